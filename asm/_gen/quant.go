package main

import (
	"fmt"
	"math"
)

// lanes emits code with a block in each lane: sixteen lanes of one Z register, or eight of a Y register, twice.
// Logical registers are 0..11; masks 1..4 are K1..K4 or Y15..Y12. R13 is the operands' address, R8 that of the half in
// work.
type lanes struct {
	*gen
	wide bool
	ops  []string
}

// at is a place in memory: field of the operands, of the half in work, and rows behind it.
func (v *lanes) at(field string, rows int) mem { return mem{v.args.at(field) + 64*rows, "(R8)", 1} }

func (v *lanes) name(a any) string {
	switch a := a.(type) {
	case int:
		if v.wide {
			return fmt.Sprintf("Z%d", a)
		}
		if a > 15 {
			panic("too many registers for AVX2")
		}
		return fmt.Sprintf("Y%d", a)
	case mem:
		if a.half == 0 {
			return a.base
		}
		return fmt.Sprintf("%d%s", a.off, a.base)
	}
	return a.(string)
}

// o emits one instruction, operands in the assembler's order.
func (v *lanes) o(ins string, args ...any) {
	s := ins
	for i, a := range args {
		s += [...]string{", ", " "}[b2i(i == 0)] + v.name(a)
	}
	v.p("%s", s)
}

func (v *lanes) load(m any, r int)   { v.o("VMOVUPS", m, r) }
func (v *lanes) store(r int, m mem)  { v.o("VMOVUPS", r, m) }
func (v *lanes) mov(a, b int)        { v.o("VMOVAPS", a, b) }
func (v *lanes) add(a any, b, d int) { v.o("VADDPS", a, b, d) }
func (v *lanes) mul(a any, b, d int) { v.o("VMULPS", a, b, d) }

// sub is d = a - b, div is d = a / b.
func (v *lanes) sub(a int, b any, d int) { v.o("VSUBPS", b, a, d) }
func (v *lanes) div(a int, b any, d int) { v.o("VDIVPS", b, a, d) }

// less is d = a < b ? a : b, more is d = a > b ? a : b.
func (v *lanes) less(a int, b any, d int) { v.o("VMINPS", b, a, d) }
func (v *lanes) more(a int, b any, d int) { v.o("VMAXPS", b, a, d) }

func (v *lanes) zero(r int) { v.o("VXORPS", r, r, r) }

// magnitude is d = |a|.
func (v *lanes) magnitude(a, d int) { v.o("VANDPS", row("lanec", cMagnitude), a, d) }

// round is d = a rounded to an integer, ties to even.
func (v *lanes) round(a, d int) {
	if v.wide {
		v.o("VRNDSCALEPS", "$0", a, d)
	} else {
		v.o("VROUNDPS", "$0", a, d)
	}
}

// Predicates of comparisons; those with not hold for NaN.
const (
	isEqual    = "$0"
	isLess     = "$0x11"
	isNotEqual = "$4"
	isNotLess  = "$5"
	isGreater  = "$0x1e"
	isNotLeast = "$9" // not a >= b
)

func (v *lanes) mask(m int) string {
	if v.wide {
		return fmt.Sprintf("K%d", m)
	}
	return fmt.Sprintf("Y%d", 16-m)
}

// compare sets mask m where a is so to b.
func (v *lanes) compare(a int, is string, b any, m int) { v.o("VCMPPS", is, b, a, v.mask(m)) }

// both and either set mask m.
func (v *lanes) both(a, b, m int)   { v.combine("KANDW", "VANDPS", a, b, m) }
func (v *lanes) either(a, b, m int) { v.combine("KORW", "VORPS", a, b, m) }
func (v *lanes) combine(wide, narrow string, a, b, m int) {
	if v.wide {
		narrow = wide
	}
	v.p("%s %s, %s, %s", narrow, v.mask(a), v.mask(b), v.mask(m))
}

// none clears mask m.
func (v *lanes) none(m int) {
	if v.wide {
		v.p("KXORW %s, %s, %s", v.mask(m), v.mask(m), v.mask(m))
	} else {
		v.p("VXORPS %s, %s, %s", v.mask(m), v.mask(m), v.mask(m))
	}
}

// where sets the lanes of d that mask m has to those of a, a register.
func (v *lanes) where(m int, a, d int) {
	if v.wide {
		v.p("VMOVAPS Z%d, K%d, Z%d", a, m, d)
	} else {
		v.p("VBLENDVPS %s, Y%d, Y%d, Y%d", v.mask(m), a, d, d)
	}
}

// keep is d = a in the lanes that mask m has, else 0.
func (v *lanes) keep(m, a, d int) {
	if v.wide {
		v.p("VMOVAPS.Z Z%d, K%d, Z%d", a, m, d)
	} else {
		v.p("VANDPS %s, Y%d, Y%d", v.mask(m), a, d)
	}
}

// storeWhere sets the lanes of memory that mask m has; t is overwritten.
func (v *lanes) storeWhere(m, a int, to mem, t int) {
	if v.wide {
		v.p("VMOVUPS Z%d, K%d, %s", a, m, v.name(to))
		return
	}
	v.load(to, t)
	v.where(m, a, t)
	v.store(t, to)
}

// storeMask writes mask m as words, t is overwritten.
func (v *lanes) storeMask(m int, to mem, t int) {
	if v.wide {
		v.p("VPMOVM2D K%d, Z%d", m, t)
		v.store(t, to)
	} else {
		v.p("VMOVUPS %s, %s", v.mask(m), v.name(to))
	}
}

// jumpIfNone goes to a label where mask m is empty.
func (v *lanes) jumpIfNone(m int, label string) {
	if v.wide {
		v.p("KORTESTW K%d, K%d", m, m)
	} else {
		v.p("VTESTPS %s, %s", v.mask(m), v.mask(m))
	}
	v.p("JZ %s", label)
}

// broadcast is field of the operands in all lanes.
func (v *lanes) broadcast(field string, r int) {
	v.p("VBROADCASTSS %d(R13), %s", v.args.at(field), v.name(r))
}

// search emits a routine over the lanes; name is that of a method of package quant's Block.
func (v *lanes) search(name, doc string, body func(f string)) {
	f := lower(name) + v.suffix()
	v.ops = append(v.ops, name)
	v.fn(f, doc)
	v.arg("R13")
	v.p("MOVQ R13, R8")
	if !v.wide {
		v.p("MOVL $2, R12")
		v.lab(f + "_half")
	}
	body(f)
	if !v.wide {
		v.p("ADDQ $32, R8")
		v.p("DECL R12")
		v.p("JNZ %s_half", f)
	}
	v.ret()
}

func (v *lanes) suffix() string { return vec{wide: v.wide}.suffix() }

// each emits a loop over the elements, unrolled so often; SI runs over X, DX over W, DI over Q. from is the first.
func (v *lanes) each(label string, unroll int, from int, body func(x, w, q mem)) {
	v.p("LEAQ %d(R8), SI", v.args.at("X")+64*from)
	v.p("LEAQ %d(R8), DX", v.args.at("W")+64*from)
	v.p("LEAQ %d(R8), DI", v.args.at("Q")+64*from)
	v.ld("R13", "N", "CX")
	if from > 0 {
		v.p("SUBQ $%d, CX", from)
	}
	v.p("PCALIGN $32")
	v.lab(label)
	for i := range unroll {
		body(mem{64 * i, "(SI)", 1}, mem{64 * i, "(DX)", 1}, mem{64 * i, "(DI)", 1})
	}
	for _, r := range []string{"SI", "DX", "DI"} {
		v.p("ADDQ $%d, %s", 64*unroll, r)
	}
	v.p("SUBQ $%d, CX", unroll)
	v.p("JNZ %s", label)
}

// Rows of constants.
const (
	cMagnitude = iota
	cZero
	c1
	cInRange
	cNegligible
	cMagic
	cMantissa
	cMagicBits
	cSignBit
	cBelowHalf
	cHalf
)

var laneConstants = []uint32{0x7fffffff, 0, math.Float32bits(1), math.Float32bits(1 << 21), math.Float32bits(1e-15),
	math.Float32bits(0x1.8p23), 0x7fffff, 0x400000, 0x80000000,
	math.Float32bits(0.49999997), math.Float32bits(0.5)}

// quantizers writes the family of a width.
func quantizers(wide bool) *gen {
	x := vec{wide: wide}
	v := &lanes{wide: wide}
	v.gen = newGen("quant", "quant_"+x.tier(), "Block")
	v.rows64("lanec", laneConstants...)
	v.weighPlain()
	v.meanSquares()
	v.weigh()
	v.affine("Affine", false)
	v.affine("AffineAbsolute", true)
	v.extremes()
	v.symmetric()
	v.descent()
	v.positive()
	v.constantsIQ4()
	v.iq4()
	v.constantsGrid()
	v.grid(gridType{4, 3, 7})
	v.grid(gridType{8, 2, 2})
	v.ternaries()
	v.code("\nfunc run%s(o Op, b *Block) {\nswitch o {", v.suffix())
	for _, op := range v.ops {
		v.code("case %s:\n%s(b)", op, lower(op)+v.suffix())
	}
	v.code("}\n}")
	v.stored()
	if !wide {
		v.transpose()
		v.scan()
	}
	return v.gen
}

// transpose makes lanes of blocks, 8 by 8.
func (v *lanes) transpose() {
	f := "transpose" + v.suffix()
	v.fn(f, "copies N elements of sixteen blocks at Src to Dst, a block in each lane.")
	v.arg("R13")
	v.ld("R13", "Src", "SI")
	v.ld("R13", "Dst", "DI")
	v.ld("R13", "N", "BX")
	v.p("SHLQ $2, BX") // bytes of a block
	v.p("LEAQ (BX)(BX*2), R9")
	v.p("MOVL $2, R12")
	v.lab(f + "_half")
	v.p("MOVQ BX, CX")
	v.p("MOVQ SI, AX")
	v.p("MOVQ DI, R10")
	v.lab(f + "_l")
	v.p("LEAQ (AX)(BX*4), DX")
	for h := range 2 { // elements 4h.. of blocks i and i+4
		off := 16 * h
		for i, at := range []string{"", "(BX*1)", "(BX*2)", "(R9*1)"} {
			v.p("VMOVUPS %d(AX)%s, X%d", off, at, i)
			v.p("VINSERTF128 $1, %d(DX)%s, Y%d, Y%d", off, at, i, i)
		}
		v.p("VUNPCKLPS Y1, Y0, Y4")
		v.p("VUNPCKHPS Y1, Y0, Y5")
		v.p("VUNPCKLPS Y3, Y2, Y6")
		v.p("VUNPCKHPS Y3, Y2, Y7")
		v.p("VUNPCKLPD Y6, Y4, Y0")
		v.p("VUNPCKHPD Y6, Y4, Y1")
		v.p("VUNPCKLPD Y7, Y5, Y2")
		v.p("VUNPCKHPD Y7, Y5, Y3")
		for i := range 4 {
			v.p("VMOVUPS Y%d, %d(R10)", i, 256*h+64*i)
		}
	}
	v.p("ADDQ $32, AX")
	v.p("ADDQ $512, R10")
	v.p("SUBQ $32, CX")
	v.p("JNZ %s_l", f)
	v.p("LEAQ (SI)(BX*8), SI")
	v.p("ADDQ $32, DI")
	v.p("DECL R12")
	v.p("JNZ %s_half", f)
	v.ret()
}

// weighPlain is W = Average*sqrt(the mean of X*X) + |X|.
func (v *lanes) weighPlain() {
	v.search("WeighPlain", "sets W to Average times the root mean square of the block, plus |X|.", func(f string) {
		v.zero(0)
		v.each(f+"_s", 4, 0, func(x, _, _ mem) {
			v.load(x, 1)
			v.mul(1, 1, 1)
			v.add(1, 0, 0)
		})
		v.broadcast("Elements", 1)
		v.div(0, 1, 0)
		v.o("VSQRTPS", 0, 0)
		v.broadcast("Average", 1)
		v.mul(1, 0, 0)
		v.each(f+"_w", 4, 0, func(x, w, _ mem) {
			v.load(x, 1)
			v.magnitude(1, 1)
			v.add(1, 0, 1)
			v.store(1, w)
		})
	})
	v.search("WeighSquare", "sets W to X*X.", func(f string) {
		v.each(f+"_w", 4, 0, func(x, w, _ mem) {
			v.load(x, 1)
			v.mul(1, 1, 1)
			v.store(1, w)
		})
	})
}

// meanSquares is Variance = the sum of X*X times Average.
func (v *lanes) meanSquares() {
	v.search("MeanSquares", "sets Variance to Average times the sum of X*X.", func(f string) {
		v.zero(0)
		v.each(f+"_s", 4, 0, func(x, _, _ mem) {
			v.load(x, 1)
			v.mul(1, 1, 1)
			v.add(1, 0, 0)
		})
		v.broadcast("Average", 1)
		v.mul(1, 0, 0)
		v.store(0, v.at("Variance", 0))
	})
}

// weigh is W *= sqrt(Variance + X*X), Sum the sum of W.
func (v *lanes) weigh() {
	v.search("Weigh", "multiplies W by the root of Variance + X*X and sets Sum to the sum of W.", func(f string) {
		v.zero(0)
		v.load(v.at("Variance", 0), 2)
		v.each(f+"_w", 4, 0, func(x, w, _ mem) {
			v.load(x, 1)
			v.mul(1, 1, 1)
			v.add(1, 2, 1)
			v.o("VSQRTPS", 1, 1)
			v.mul(w, 1, 1)
			v.store(1, w)
			v.add(1, 0, 0)
		})
		v.store(0, v.at("Sum", 0))
	})
}
