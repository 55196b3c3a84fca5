package main

import "fmt"

// Registers of grid.
const (
	gR = iota
	gScale
	gXQ
	gQQ
	gPoint
	gT
	gSum
	gAt
	gLeft
	gBest
	gFound
	gIndex
)

// grid is searchPoint of internal/quant for all points of the blocks, dim elements with levels of so many bits each,
// and searchSums of what it finds. Values are the odd numbers that levels stand for, four bits each in Index and Near.
func (v *lanes) grid(dim, bits, top int) {
	v.search(fmt.Sprintf("Grid%d", dim), "takes the elements to points of a grid, by R and Scale.", func(f string) {
		for _, p := range [][2]string{{"X", "SI"}, {"W", "DX"}, {"Q", "DI"}, {"Root", "R11"}, {"Moved", "AX"}} {
			v.p("LEAQ %d(R8), %s", v.args.at(p[0]), p[1])
		}
		v.ld("R13", "Index", "R9")
		v.ld("R13", "Near", "R10")
		v.ld("R13", "N", "CX")
		v.load(v.at("R", 0), gR)
		v.load(v.at("Scale", 0), gScale)
		v.zero(gXQ)
		v.zero(gQQ)
		v.lab(f + "_point")
		v.gridCode(dim, bits, top)
		v.all(2)
		v.gather("R9", gPoint, 2, gIndex)
		v.signs(gIndex, 1)
		v.storeMask(1, mem{0, "(AX)", 1}, gT)
		v.jumpIfNone(1, f+"_take")
		v.gridNear(f, dim)
		v.where(1, gFound, gIndex)
		v.lab(f + "_take")
		v.gridTake(dim)
		for _, r := range []string{"SI", "DX", "DI", "R11"} {
			v.p("ADDQ $%d, %s", 64*dim, r)
		}
		v.p("ADDQ $64, AX")
		v.p("SUBQ $%d, CX", dim)
		v.p("JNZ %s_point", f)
		v.store(gXQ, v.at("SumX", 0))
		v.store(gQQ, v.at("SumW", 0))
	})
}

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

// gather loads words from base, where mask m is set. It clears a copy of the mask in 256-bit code, in 512-bit code the
// mask itself.
func (v *lanes) gather(base string, at, m, d int) {
	if v.wide {
		v.p("VPGATHERDD (%s)(Z%d*4), K%d, Z%d", base, at, m, d)
	} else {
		v.p("VMOVAPS %s, Y%d", v.mask(m), gT)
		v.p("VPGATHERDD Y%d, (%s)(Y%d*4), Y%d", gT, base, at, d)
	}
}

// gridCode makes the code of the levels nearest to a point.
func (v *lanes) gridCode(dim, bits, top int) {
	for j := range dim {
		v.mul(mem{64 * j, "(SI)", 1}, gR, gT)
		v.sub(gT, row("lanec", c1), gT)
		v.mul(row("lanec", cHalf), gT, gT)
		v.add(row("lanec", cMagic), gT, gT)
		v.o(v.words("VPAND"), row("lanec", cMantissa), gT, gT)
		v.o("VPSUBD", row("lanec", cMagicBits), gT, gT)
		v.o("VPMINSD", row("gridc", b2i(top == 7)), gT, gT)
		v.o("VPMAXSD", row("lanec", cZero), gT, gT)
		if j == 0 {
			v.mov(gT, gPoint)
			continue
		}
		v.o("VPSLLD", fmt.Sprintf("$%d", bits*j), gT, gT)
		v.o(v.words("VPOR"), gT, gPoint, gPoint)
	}
}

// gridNear sets gFound to the best point of the lists, in the lanes of mask 1. A list has its length and then the
// points. Mask 2 has the lanes whose list has not ended.
func (v *lanes) gridNear(f string, dim int) {
	v.o(v.words("VPXOR"), row("gridc", 2), gIndex, gAt) // the complement: where the list begins
	v.keep(1, gAt, gAt)
	v.all(2)
	v.gather("R10", gAt, 2, gLeft)
	v.keep(1, gLeft, gLeft)
	v.load(row("gridc", 3), gBest)
	v.zero(gPoint)
	v.p("XORL BX, BX")
	v.lab(f + "_near")
	v.o("VPSUBD", row("gridc", 2), gAt, gAt)
	v.more0(gLeft, 2)
	if v.wide {
		v.p("KMOVW K2, K3")
		v.gather("R10", gAt, 3, gPoint)
	} else {
		v.gather("R10", gAt, 2, gPoint)
	}
	v.p("TESTL BX, BX")
	v.p("JNZ %s_next", f)
	v.mov(gPoint, gFound)
	v.p("MOVL $1, BX")
	v.lab(f + "_next")
	v.zero(gSum)
	for j := range dim {
		v.gridValue(gPoint, j)
		v.mul(gScale, gT, gT)
		v.sub(gT, mem{64 * j, "(SI)", 1}, gT)
		v.mul(mem{64 * j, "(R11)", 1}, gT, gSpare)
		v.mul(gSpare, gT, gT)
		v.add(gT, gSum, gSum)
	}
	v.compare(gSum, isLess, gBest, 3)
	v.both(2, 3, 3)
	v.where(3, gSum, gBest)
	v.where(3, gPoint, gFound)
	v.o("VPADDD", row("gridc", 2), gLeft, gLeft)
	v.more0(gLeft, 2)
	v.jumpIfSome(2, f+"_near")
}

// gSpare is the register of mask 4 in 256-bit code, which grid does not use.
const gSpare = 12

// more0 sets mask m where words are above 0.
func (v *lanes) more0(a, m int) {
	if v.wide {
		v.p("VPCMPD $6, lanec<>+%d(SB), Z%d, K%d", 64*cZero, a, m)
	} else {
		v.p("VPCMPGTD lanec<>+%d(SB), Y%d, %s", 64*cZero, a, v.mask(m))
	}
}

// jumpIfSome goes to a label where mask m is not empty.
func (v *lanes) jumpIfSome(m int, label string) {
	if v.wide {
		v.p("KORTESTW K%d, K%d", m, m)
	} else {
		v.p("VTESTPS %s, %s", v.mask(m), v.mask(m))
	}
	v.p("JNZ %s", label)
}

// gridValue is value j of points p, in gT.
func (v *lanes) gridValue(p, j int) {
	from := p
	if j > 0 {
		v.o("VPSRLD", fmt.Sprintf("$%d", 4*j), p, gT)
		from = gT
	}
	v.o(v.words("VPAND"), row("gridc", 4), from, gT)
	v.o("VCVTDQ2PS", gT, gT)
}

// gridTake stores the values of the points and adds them to the sums.
func (v *lanes) gridTake(dim int) {
	for j := range dim {
		v.gridValue(gIndex, j)
		v.store(gT, mem{64 * j, "(DI)", 1})
		v.load(mem{64 * j, "(DX)", 1}, gSum)
		v.mul(mem{64 * j, "(SI)", 1}, gSum, gAt)
		v.mul(gT, gAt, gAt)
		v.add(gAt, gXQ, gXQ)
		v.mul(gT, gSum, gSum)
		v.mul(gT, gSum, gSum)
		v.add(gSum, gQQ, gQQ)
	}
}
