package main

import (
	"fmt"
	"math"
)

// Registers of grid, which gridNear uses otherwise.
const (
	gR = iota
	gXQ
	gQQ
	gPoint
	gT
	gSum
	gAt
	gIndex
	gOdd
)

// Rows of constants.
const (
	gOnes = iota // all bits
	gMax         // the largest float32
	gNext        // the number of lanes
)

// constantsGrid adds them, and the numbers of lanes.
func (v *lanes) constantsGrid() {
	v.rows64("gridc", 0xffffffff, math.Float32bits(math.MaxFloat32), uint32(v.width()))
	var number []uint32
	for i := range v.width() {
		number = append(number, uint32(i))
	}
	v.list("gridn", number...)
}

// width is the number of lanes of a register.
func (v *lanes) width() int { return 8 << b2i(v.wide) }

// gridType is a routine for points of dim elements, whose levels up to top have so many bits each.
type gridType struct{ dim, bits, top int }

// grid is searchPoint of internal/quant for all points of the blocks, and searchSums of what it finds.
func (v *lanes) grid(t gridType) {
	values := fmt.Sprintf("grid%d", t.dim)
	v.rows64(values+"top", uint32(t.top))
	v.odd(values+"odd", 1<<t.bits)
	v.search(fmt.Sprintf("Grid%d", t.dim), "takes the elements to points of a grid, by R and Scale.", func(f string) {
		v.p("LEAQ %d(R8), SI", v.args.at("X"))
		v.p("LEAQ %d(R8), AX", v.args.at("Code"))
		v.ld("R13", "Index", "R9")
		v.ld("R13", "Near", "R10")
		v.ld("R13", "N", "CX")
		v.zero(gXQ)
		v.store(gXQ, v.at("SumX", 0))
		v.store(gXQ, v.at("SumW", 0))
		v.lab(f + "_point")
		v.gridCode(t, row(values+"top", 0))
		v.store(gPoint, mem{0, "(AX)", 1})
		v.all(2)
		v.gather("R9", gPoint, 2, gIndex)
		v.signs(gIndex, 1)
		v.storeMask(1, v.moved(), gT)
		v.jumpIfNone(1, f+"_take")
		v.gridNear(f, t, row(values+"odd", 0))
		v.lab(f + "_take")
		v.gridTake(t, row(values+"odd", 0))
		v.p("ADDQ $%d, SI", 64*t.dim)
		v.p("ADDQ $64, AX")
		v.p("SUBQ $%d, CX", t.dim)
		v.p("JNZ %s_point", f)
	})
}

// odd adds a row that repeats what n levels stand for.
func (v *lanes) odd(name string, n int) {
	var x []float32
	for i := range v.width() {
		x = append(x, float32(2*(i%n)+1))
	}
	v.list(name, words(x)...)
}

// moved is the row of the point in Moved.
func (v *lanes) moved() mem { return mem{v.args.at("Moved") - v.args.at("Code"), "(AX)", 1} }

// element is element j of the point in a field that has a row for each.
func (v *lanes) element(field string, j int) mem {
	return mem{v.args.at(field) - v.args.at("X") + 64*j, "(SI)", 1}
}

// ofLane is a place of memory in the lane that DX tells.
func ofLane(m mem) mem { return mem{m.off, m.base + "(DX*4)", 1} }

// words is an instruction on words, whose name 512-bit code has a D behind.
func (v *lanes) words(ins string) string { return ins + [...]string{"", "D"}[b2i(v.wide)] }

// all sets mask m.
func (v *lanes) all(m int) {
	if v.wide {
		v.p("KXNORW K%d, K%d, K%d", m, m, m)
	} else {
		v.p("VPCMPEQD %s, %s, %s", v.mask(m), v.mask(m), v.mask(m))
	}
}

// signs sets mask m where words are negative.
func (v *lanes) signs(a, m int) {
	if v.wide {
		v.p("VPMOVD2M Z%d, K%d", a, m)
	} else {
		v.p("VPSRAD $31, Y%d, %s", a, v.mask(m))
	}
}

// bits puts mask m into a general register, a bit for each lane.
func (v *lanes) bits(m int, r string) {
	if v.wide {
		v.p("KMOVW K%d, %s", m, r)
	} else {
		v.p("VMOVMSKPS %s, %s", v.mask(m), r)
	}
}

// gather loads words from base, where mask m is set, and clears the mask.
func (v *lanes) gather(base string, at, m, d int) {
	if v.wide {
		v.p("VPGATHERDD (%s)(Z%d*4), K%d, Z%d", base, at, m, d)
	} else {
		v.p("VPGATHERDD %s, (%s)(Y%d*4), Y%d", v.mask(m), base, at, d)
	}
}

// gridCode makes the code of the levels nearest to a point.
func (v *lanes) gridCode(t gridType, top mem) {
	v.load(v.at("R", 0), gR)
	for j := range t.dim {
		v.mul(v.element("X", j), gR, gT)
		v.sub(gT, row("lanec", c1), gT)
		v.mul(row("lanec", cHalf), gT, gT)
		v.add(row("lanec", cMagic), gT, gT)
		v.o(v.words("VPAND"), row("lanec", cMantissa), gT, gT)
		v.o("VPSUBD", row("lanec", cMagicBits), gT, gT)
		v.o("VPMINSD", top, gT, gT)
		v.o("VPMAXSD", row("lanec", cZero), gT, gT)
		if j == 0 {
			v.mov(gT, gPoint)
			continue
		}
		v.o("VPSLLD", fmt.Sprintf("$%d", t.bits*j), gT, gT)
		v.o(v.words("VPOR"), gT, gPoint, gPoint)
	}
}

// Registers of gridNear. Those below nSum are the tables: what an element adds to the sum, for each of its levels.
// In 256-bit code the last two are those of masks that grid has no use for at the time.
const (
	nSum  = 8 + iota // and the scaled values, before there are sums
	nCode            // and differences from them
	nBest
	nFirst // the candidate of nBest
	nAt
	nT = nAt + 2
)

// gridNear replaces the codes of the lanes of mask 1 by those of the best points in their lists, lane by lane: there,
// lanes of the vectors are candidates. No multiplication is left in the loop over them: an element has few levels, so
// the square that it adds comes out of a table. Each sum keeps its order.
func (v *lanes) gridNear(f string, t gridType, odd mem) {
	v.o(v.words("VPXOR"), row("gridc", gOnes), gIndex, gAt) // the complement: where the list begins
	v.store(gAt, v.at("High", 0))
	v.bits(1, "BX")
	v.lab(f + "_lane")
	v.p("TZCNTL BX, DX")
	v.p("MOVL %s, DI", v.name(ofLane(v.at("High", 0))))
	v.p("LEAQ (R10)(DI*2), DI")
	v.p("MOVWLZX (DI), R11") // candidates
	v.p("ADDQ $2, DI")
	v.p("MOVQ DI, R14")
	v.gridTables(t, odd)
	v.load(row("gridc", gMax), nBest)
	v.zero(nFirst)
	v.load(row("gridn", 0), nAt)
	v.lab(f + "_near")
	v.o("VPMOVZXWD", "(DI)", nCode)
	for j := range t.dim {
		if j == 0 {
			v.lookUp(t, 0, nCode, nSum)
			continue
		}
		v.o("VPSRLD", fmt.Sprintf("$%d", t.bits*j), nCode, nT)
		v.lookUp(t, j, nT, nT)
		v.add(nT, nSum, nSum)
	}
	v.compare(nSum, isLess, nBest, 3)
	v.where(3, nSum, nBest)
	v.where(3, nAt, nFirst)
	v.o("VPADDD", row("gridc", gNext), nAt, nAt)
	v.p("ADDQ $%d, DI", 2*v.width())
	v.p("SUBL $%d, R11", v.width())
	v.p("JGT %s_near", f)
	v.gridFirst(f)
	v.p("MOVWLZX (R14)(R15*2), DI")
	v.p("MOVL DI, %s", v.name(ofLane(mem{0, "(AX)", 1})))
	v.p("LEAL -1(BX), DX")
	v.p("ANDL DX, BX")
	v.p("JNZ %s_lane", f)
}

// gridTables makes the tables of the point's elements in lane DX.
func (v *lanes) gridTables(t gridType, odd mem) {
	v.o("VBROADCASTSS", ofLane(v.at("Scale", 0)), nSum)
	v.mul(odd, nSum, nSum)
	for j := range t.dim {
		x, w := ofLane(v.element("X", j)), ofLane(v.element("Root", j))
		if v.wide {
			v.o("VSUBPS.BCST", x, nSum, nCode)
			v.o("VMULPS.BCST", w, nCode, j)
		} else {
			v.o("VBROADCASTSS", x, nCode)
			v.sub(nSum, nCode, nCode)
			v.o("VBROADCASTSS", w, j)
			v.mul(nCode, j, j)
		}
		v.mul(nCode, j, j)
	}
}

// lookUp looks words up in a table; their bits above a level's do not count.
func (v *lanes) lookUp(t gridType, table, at, d int) {
	if t.bits == 2 {
		v.o("VPERMILPS", at, table, d)
	} else {
		v.o("VPERMPS", table, at, d)
	}
}

// gridFirst sets R15 to the number of the best candidate, of several the first: the lowest of those in nFirst whose
// sum is the least of nBest.
func (v *lanes) gridFirst(f string) {
	v.store(nFirst, v.at("Lowest", 0))
	if v.wide {
		v.p("VEXTRACTF64X4 $1, Z%d, Y%d", nBest, nT)
		v.p("VMINPS Y%d, Y%d, Y%d", nBest, nT, nT)
		v.p("VEXTRACTF128 $1, Y%d, X%d", nT, nCode)
	} else {
		v.p("VMOVAPS Y%d, Y%d", nBest, nT)
		v.p("VEXTRACTF128 $1, Y%d, X%d", nBest, nCode)
	}
	v.p("VMINPS X%d, X%d, X%d", nCode, nT, nT)
	for _, order := range []int{0x4e, 0xb1} {
		v.p("VPERMILPS $%d, X%d, X%d", order, nT, nCode)
		v.p("VMINPS X%d, X%d, X%d", nCode, nT, nT)
	}
	v.o("VBROADCASTSS", fmt.Sprintf("X%d", nT), nT)
	v.compare(nBest, isEqual, nT, 3)
	v.bits(3, "R11")
	v.p("MOVL $-1, R15")
	v.lab(f + "_first")
	number := v.name(mem{v.args.at("Lowest"), "(R8)(DI*4)", 1})
	v.p("TZCNTL R11, DI")
	v.p("CMPL R15, %s", number)
	v.p("CMOVLHI %s, R15", number)
	v.p("LEAL -1(R11), DI")
	v.p("ANDL DI, R11")
	v.p("JNZ %s_first", f)
}

// gridTake adds the points to the sums.
func (v *lanes) gridTake(t gridType, odd mem) {
	v.load(mem{0, "(AX)", 1}, gPoint)
	v.load(odd, gOdd)
	v.load(v.at("SumX", 0), gXQ)
	v.load(v.at("SumW", 0), gQQ)
	for j := range t.dim {
		v.o("VPSRLD", fmt.Sprintf("$%d", t.bits*j), gPoint, gT)
		v.lookUp(t, gOdd, gT, gT)
		v.load(v.element("W", j), gSum)
		v.mul(v.element("X", j), gSum, gAt)
		v.mul(gT, gAt, gAt)
		v.add(gAt, gXQ, gXQ)
		v.mul(gT, gSum, gSum)
		v.mul(gT, gSum, gSum)
		v.add(gSum, gQQ, gQQ)
	}
	v.store(gXQ, v.at("SumX", 0))
	v.store(gQQ, v.at("SumW", 0))
}
