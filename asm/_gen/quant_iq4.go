package main

import (
	"fmt"
	"math"
)

// levelsIQ4 are the levels of IQ4_NL and IQ4_XS.
var levelsIQ4 = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// thresholdIQ4 is the smallest x that has code i: float32 x - levels[i-1] is not below levels[i] - x.
func thresholdIQ4(i int) float32 {
	low, high := levelsIQ4[i-1], levelsIQ4[i]
	below := func(x float32) bool { return x-low < high-x }
	a, b := low, high // below(a), not below(b)
	for {
		x := a + (b-a)/2
		if x == a || x == b {
			break
		}
		if below(x) {
			a = x
		} else {
			b = x
		}
	}
	for next := math.Nextafter32(a, b); next != b && below(next); next = math.Nextafter32(next, b) {
		a = next
	}
	return b
}

// cellsIQ4 divides the numbers in 32 cells around multiples of 8, at most one threshold in each: the threshold, and
// the codes below and from it on. Cell c, -16..15, is at c mod 32.
func cellsIQ4() (thresholds []float32, below, above []int) {
	thresholds, below, above = make([]float32, 32), make([]int, 32), make([]int, 32)
	code := 0
	for c := -16; c < 16; c++ {
		at := c & 31
		thresholds[at], below[at], above[at] = float32(math.Inf(1)), code, code
		if code < 15 && thresholdIQ4(code+1) < float32(8*c+4) {
			thresholds[at] = thresholdIQ4(code + 1)
			code++
			above[at] = code
		}
	}
	return thresholds, below, above
}

// constantsIQ4 writes the tables. For 512 bits: thresholds, levels below and above, codes below and above, 32 words
// of each. For 256 bits: a search tree, whose node n has the nodes 2n and 2n+1, and levels.
func (v *lanes) constantsIQ4() {
	if v.wide {
		thresholds, below, above := cellsIQ4()
		table := words(thresholds)
		for _, codes := range [][]int{below, above} {
			for _, c := range codes {
				table = append(table, math.Float32bits(levelsIQ4[c]))
			}
		}
		for _, codes := range [][]int{below, above} {
			for _, c := range codes {
				table = append(table, uint32(c))
			}
		}
		v.list("iq4", table...)
		v.rows64("iq4c", words([]float32{-128, 120, 0.125})...)
		return
	}
	var tree [16]float32
	step := 16
	for first := 1; first < 16; first *= 2 {
		for n := range first {
			tree[first+n] = thresholdIQ4(n*step + step/2)
		}
		step /= 2
	}
	v.list("iq4", append(words(tree[:]), words(levelsIQ4[:])...)...)
	v.rows64("iq4c", 2, 15, math.Float32bits(tree[1]))
}

// openIQ4 loads the tables, of levels or codes.
func (v *lanes) openIQ4(codes bool) {
	if !v.wide {
		return
	}
	for i := range 2 {
		v.p("VMOVUPS iq4<>+%d(SB), Z%d", 64*i, 16+i)
	}
	for i := range 4 {
		v.p("VMOVUPS iq4<>+%d(SB), Z%d", 128+256*b2i(codes)+64*i, 18+i)
	}
	for i := range 3 {
		v.p("VMOVUPS iq4c<>+%d(SB), Z%d", 64*i, 22+i)
	}
	v.p("VMOVUPS lanec<>+%d(SB), Z25", 64*cMagic)
}

// levelIQ4 makes of x, in register x, its level or code in register d; t is overwritten.
func (v *lanes) levelIQ4(x, d, t int, code bool) {
	if v.wide {
		v.more(x, 22, t)
		v.less(t, 23, t)
		v.o("VFMADD213PS", 25, 24, t) // the cell, in the low bits
		v.mov(t, d)
		v.o("VPERMI2PS", 17, 16, d)
		v.compare(x, isNotLess, d, 1)
		v.mov(t, d)
		v.o("VPERMI2PS", 19, 18, d)
		v.o("VPERMI2PS", 21, 20, t)
		v.where(1, t, d)
		return
	}
	tree := func(i int) mem { return mem{base: fmt.Sprintf("iq4<>+%d(SB)", 32*i)} }
	v.o("VCMPPS", isNotLess, row("iq4c", 2), x, t)
	v.load(row("iq4c", 0), d)
	v.o("VPSUBD", t, d, d)
	for level := range 3 {
		v.o("VPERMPS", tree(level/2), d, t)
		v.o("VCMPPS", isNotLess, t, x, t)
		v.o("VPADDD", d, d, d)
		v.o("VPSUBD", t, d, d)
	}
	if code {
		v.o("VPAND", row("iq4c", 1), d, d)
		return
	}
	v.o("VPSLLD", "$28", d, x)
	v.o("VPERMPS", tree(2), d, t)
	v.o("VPERMPS", tree(3), d, d)
	v.o("VBLENDVPS", x, d, t, d)
}

// iq4 is searchIQ4 of internal/quant. The first step is 1/(-top/-127), the others Steps, from the second on, over top.
func (v *lanes) iq4() {
	const best, wx = sXO, sWX
	v.search("IQ4", "searches Scale of the levels of IQ4.", func(f string) {
		v.extreme(f)
		v.openIQ4(false)
		v.p("LEAQ %d(R13), R9", v.args.at("Steps"))
		v.ld("R13", "Tries", "R10")
		v.broadcast("Steps", sR) // -127
		v.o("VXORPS", row("lanec", cSignBit), sTop, sT)
		v.div(sT, sR, sT)
		v.load(row("lanec", c1), sU)
		v.div(sU, sT, sR)
		v.sumsIQ4(f + "_c")
		v.compare(sQQ, isGreater, row("lanec", cZero), 1)
		v.div(sXQ, sQQ, sU)
		v.keep(1, sU, sU)
		v.store(sU, v.at("Scale", 0))
		v.mul(sU, sXQ, best)
		v.p("JMP %s_next", f)
		v.lab(f + "_try")
		v.p("VBROADCASTSS (R9), %s", v.name(sR))
		v.div(sR, sTop, sR)
		v.sumsIQ4(f + "_t")
		v.compare(sQQ, isGreater, row("lanec", cZero), 1)
		v.mul(sXQ, sXQ, sT)
		v.mul(best, sQQ, sU)
		v.compare(sT, isGreater, sU, 2)
		v.both(1, 2, 1)
		v.jumpIfNone(1, f+"_next")
		v.div(sXQ, sQQ, sU)
		v.mul(sU, sXQ, sT)
		v.where(1, sT, best)
		v.storeWhere(1, sU, v.at("Scale", 0), sT)
		v.lab(f + "_next")
		v.p("ADDQ $4, R9")
		v.p("DECQ R10")
		v.p("JNZ %s_try", f)
		v.keepLive("Scale")
	})
}

// sumsIQ4 sets sXQ and sQQ to the sums over levels of step 1/sR.
func (v *lanes) sumsIQ4(label string) {
	v.zero(sXQ)
	v.zero(sQQ)
	v.each(label, 4, 0, func(x, w, _ mem) {
		v.load(x, sX)
		v.mul(sX, sR, sT)
		v.levelIQ4(sT, sCode, sU, false)
		v.mul(w, sCode, sWX)
		v.mul(sX, sWX, sT)
		v.add(sT, sXQ, sXQ)
		v.mul(sCode, sWX, sT)
		v.add(sT, sQQ, sQQ)
	})
}
