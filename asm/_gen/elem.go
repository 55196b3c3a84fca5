package main

import (
	"fmt"
	"math"
	"strings"
)

var elemFields = map[string]int{"Dst": 0, "A": 8, "B": 16, "C": 24, "D": 32, "Sum": 40, "N": 48, "S": 56, "T": 60}

// Coefficients of e^f, |f| <= ln(2)/2: near-minimax of degree 6 (Chebyshev nodes), relative error 5e-9 before rounding. Behind
// them: log2(e); ln(2) in two parts, the first of 9 bits, so that its products with exponents are exact; a limit below which the
// result counts as zero (its exponent would leave the normal range); the lower bound of arguments of sigmoid products; 1; sign;
// the constants of GELU (see asm/elem).
var (
	ln2hi = float32(0.693359375)
	expc  = append(words([]float32{1, 1.00000001, 0.500000001, 0.166665053, 0.041666465, 0.00836914849, 0.0013933641,
		math.Log2E, ln2hi, float32(math.Ln2 - float64(ln2hi)), -86.6, -128, 1}), 0x80000000,
		math.Float32bits(1.5957691216057308), math.Float32bits(1.5957691216057308*0.044715))
)

const (
	cLog2e = 7 + iota
	cLn2hi
	cLn2lo
	cExpLimit
	cLow
	cOne
	cSign
	cGeluA
	cGeluB
)

func init() {
	for _, wide := range []bool{false, true} {
		families["elem"] = append(families["elem"], func() { elem(wide) })
	}
}

// walk is a register that starts at a field's value and advances by bytes in each round of a loop.
type walk struct {
	field, reg string
	bytes      int
}

// loop emits a kernel whose rounds take n of the N elements; the caller ends it with ret.
func (v vec) loop(name, doc string, n int, walks []walk, before, body func()) {
	v.fn(name, doc)
	v.arg("R13")
	for _, w := range walks {
		v.ld("R13", w.field, w.reg)
	}
	v.ld("R13", "N", "CX")
	if before != nil {
		before()
	}
	v.p("PCALIGN $32")
	v.lab(name + "_l")
	body()
	for _, w := range walks {
		if w.bytes > 0 {
			v.p("ADDQ $%d, %s", w.bytes, w.reg)
		}
	}
	v.p("SUBQ $%d, CX", n)
	v.p("JNZ %s_l", name)
}

func elem(wide bool) {
	v := vec{newGen("elem", "elem", "../elem/elem_"+map[bool]string{false: "avx2", true: "avx512"}[wide], "Args", elemFields), wide}
	v.rows64("expc", expc...)
	v.rows64("intc", 0x7fffffff, 0x7fff, 1, 0x40)
	v.list("dup", 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15)
	v.list("packed", 0, 4, 1, 5, 2, 6, 3, 7)

	var ops []string
	add := func(op string) string { ops = append(ops, op); return lower(op) + v.suffix() }
	a, b, d := f32(0, "SI"), f32(0, "DX"), f32(0, "DI")
	w1 := []walk{{"Dst", "DI", 64}, {"A", "SI", 64}}
	w2 := append(w1[:2:2], walk{"B", "DX", 64})
	s, t := one(14), one(15)
	scale := func() {
		v.p("VBROADCASTSS %d(R13), %s", elemFields["S"], v.name(s, 0))
		v.p("VBROADCASTSS %d(R13), %s", elemFields["T"], v.name(t, 0))
	}
	simple := func(op, doc string, w []walk, ins ...func()) {
		v.loop(add(op), doc, 16, w, scale, func() {
			v.o("VMOVUPS", a, reg(0))
			for _, f := range ins {
				f()
			}
			v.o("VMOVUPS", reg(0), d)
		})
		v.ret()
	}
	o := func(ins string, args ...any) func() { return func() { v.o(ins, args...) } }
	simple("Add", "is dst = a + b.", w2, o("VADDPS", b, reg(0), reg(0)))
	simple("Mul", "is dst = a * b.", w2, o("VMULPS", b, reg(0), reg(0)))
	simple("Scale", "is dst = a * s.", w1, o("VMULPS", s, reg(0), reg(0)))
	simple("MulScale", "is dst = (a * s) * b.", w2, o("VMULPS", s, reg(0), reg(0)), o("VMULPS", b, reg(0), reg(0)))
	simple("AddScaled", "is dst = fma(b, s, a).", w2, o("VFMADD231PS", b, s, reg(0)))
	simple("Blend", "is dst = fma(b, t, a * s).", w2, o("VMULPS", s, reg(0), reg(0)), o("VFMADD231PS", b, t, reg(0)))
	simple("Div", "is dst = a / s.", w1, o("VDIVPS", s, reg(0), reg(0)))

	sq := walk{"Dst", "DI", 0}
	v.loop(add("SumSq"), "adds the squares of a to the 16 lanes at dst.", 16, []walk{sq, w1[1]},
		func() { v.o("VMOVUPS", d, reg(0)) },
		func() { v.o("VMOVUPS", a, reg(1)); v.o("VFMADD231PS", reg(1), reg(1), reg(0)) })
	v.o("VMOVUPS", reg(0), d)
	v.ret()

	v.gated(add("SiLU"), "is dst = a * sigmoid(a) * b.", w2, nil)
	v.gated(add("GELU"), "is dst = a * sigmoid(a * (A + B*a*a)) * b.", w2, func() {
		v.o("VMULPS", reg(0), reg(0), reg(1))
		v.o("VMOVUPS", row("expc", cGeluA), reg(2))
		v.o("VFMADD132PS", row("expc", cGeluB), reg(2), reg(1)) // 1 = 1*B + 2
		v.o("VMULPS", reg(0), reg(1), reg(1))
	})
	v.rope(add)
	v.conversions(add, w1)
	v.quantize(add)

	fmt.Fprintf(&v.g, "\nfunc run%s(o op, a *Args) {\n\tswitch o {\n", v.suffix())
	for _, op := range ops {
		fmt.Fprintf(&v.g, "\tcase op%s:\n\t\t%s(a)\n", op, lower(op)+v.suffix())
	}
	fmt.Fprintf(&v.g, "\t}\n}\n")
	v.finish()
}

// lower makes an unexported name: GELU gelu, F32ToF16 f32ToF16.
func lower(s string) string {
	n := 0
	for n < len(s) && s[n] >= 'A' && s[n] <= 'Z' {
		n++
	}
	return strings.ToLower(s[:n]) + s[n:]
}

// list writes 32-bit words.
func (e *gen) list(name string, words ...uint32) {
	for i, w := range words {
		fmt.Fprintf(&e.s, "DATA %s<>+%d(SB)/4, $%d\n", name, 4*i, w)
	}
	fmt.Fprintf(&e.s, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", name, 4*len(words))
}

// gated is dst = a * sigmoid(z) * b with z in vector 1 made by arg from a in vector 0; z is a where arg is nil.
func (v vec) gated(name, doc string, w []walk, arg func()) {
	const x, z, n, f, p, num = reg(0), reg(1), reg(2), reg(3), reg(4), reg(5)
	low := one(14)
	v.loop(name, doc, 16, w, func() { v.o("VMOVUPS", row("expc", cLow), low) }, func() {
		v.o("VMOVUPS", f32(0, "SI"), x)
		v.o("VMAXPS", x, low, x) // this order of operands keeps NaN
		if arg == nil {
			v.o("VMOVAPS", x, z)
		} else {
			arg()
		}
		v.o("VMOVUPS", row("expc", cOne), num)
		t := reg(6) // -|z|, then e
		v.or(row("expc", cSign), z, t)
		v.o("VMULPS", row("expc", cLog2e), t, f)
		v.o("VCVTPS2DQ", f, n)
		v.o("VCVTDQ2PS", n, p)
		v.o("VMOVAPS", t, f)
		v.o("VFNMADD231PS", row("expc", cLn2hi), p, f)
		v.o("VFNMADD231PS", row("expc", cLn2lo), p, f)
		v.o("VMOVUPS", row("expc", 6), p)
		for i := 5; i >= 0; i-- {
			v.o("VFMADD213PS", row("expc", i), f, p)
		}
		v.o("VPSLLD", "$23", n, n)
		v.o("VPADDD", n, p, p)
		v.unless(t, row("expc", cExpLimit), p, t)
		v.o("VADDPS", num, t, f) // 1 + e
		if v.wide {
			v.o("VPMOVD2M", z, "K1")
			v.o("VMOVAPS", t, "K1", num)
		} else {
			v.o("VBLENDVPS", z, t, num, num)
		}
		v.o("VMULPS", f32(0, "SI"), num, x) // a itself: the same zero below the limit, NaN at -Inf
		v.o("VDIVPS", f, x, x)
		v.o("VMULPS", f32(0, "DX"), x, x)
		v.o("VMOVUPS", x, f32(0, "DI"))
	})
	v.ret()
}

func (v vec) rope(add func(string) string) {
	cs := []walk{{"B", "DX", 64}, {"C", "R8", 64}}
	v.loop(add("RopeNeox"), "rotates the pairs (a[i], dst[i]) by angles with cosines b and sines c.", 16,
		append([]walk{{"A", "SI", 64}, {"Dst", "DI", 64}}, cs...), nil, func() {
			v.o("VMOVUPS", f32(0, "SI"), reg(0))
			v.o("VMOVUPS", f32(0, "DI"), reg(1))
			v.o("VMOVUPS", f32(0, "DX"), reg(2))
			v.o("VMOVUPS", f32(0, "R8"), reg(3))
			v.o("VMULPS", reg(1), reg(3), reg(4))
			v.o("VMULPS", reg(0), reg(3), reg(3))
			v.o("VFMSUB213PS", reg(4), reg(2), reg(0))
			v.o("VFMADD213PS", reg(3), reg(2), reg(1))
			v.o("VMOVUPS", reg(0), f32(0, "SI"))
			v.o("VMOVUPS", reg(1), f32(0, "DI"))
		})
	v.ret()
	// Cosines and sines are doubled: registers of n elements take n/2 of each.
	n, r := 8, "Y"
	if v.wide {
		n, r = 16, "Z"
	}
	v.loop(add("RopePair"), "rotates n pairs (dst[2i], dst[2i+1]) by angles with cosines b and sines c.", 16,
		append([]walk{{"Dst", "DI", 128}}, cs...), nil, func() {
			for i := 0; i < 32; i += n {
				if v.wide { // both registers read all sixteen
					v.p("VMOVUPS (DX), Z1")
					v.p("VMOVUPS (R8), Z2")
					v.p("VMOVUPS dup<>+%d(SB), Z5", 4*i)
				} else {
					v.p("VMOVUPS %d(DX), X1", 2*i)
					v.p("VMOVUPS %d(R8), X2", 2*i)
					v.p("VMOVUPS dup<>(SB), Y5")
				}
				v.p("VPERMPS %s1, %s5, %s1", r, r, r)
				v.p("VPERMPS %s2, %s5, %s2", r, r, r)
				v.p("VMOVUPS %d(DI), %s0", 4*i, r)
				v.p("VPERMILPS $0xb1, %s0, %s3", r, r)
				v.p("VMULPS %s3, %s2, %s2", r, r, r)
				v.p("VFMADDSUB213PS %s2, %s1, %s0", r, r, r) // even elements subtract, odd ones add
				v.p("VMOVUPS %s0, %d(DI)", r, 4*i)
			}
		})
	v.ret()
}

func (v vec) conversions(add func(string) string, w []walk) {
	narrow := []walk{{"Dst", "DI", 32}, w[1]}
	widen := []walk{w[0], {"A", "SI", 32}}
	half := func(r string) mem { return mem{0, "(" + r + ")", 16} }
	v.loop(add("F32ToF16"), "rounds to halves.", 16, narrow, nil, func() {
		v.o("VMOVUPS", f32(0, "SI"), reg(0))
		v.o("VCVTPS2PH", "$0", reg(0), half("DI")) // $0: nearest even
	})
	v.ret()
	v.loop(add("F16ToF32"), "widens halves.", 16, widen, nil, func() {
		v.o("VCVTPH2PS", half("SI"), reg(0))
		v.o("VMOVUPS", reg(0), f32(0, "DI"))
	})
	v.ret()
	v.loop(add("F32ToBF16"), "rounds to bfloat16: (x + 0x7fff + bit 16 of x) >> 16, NaN: x>>16 | 0x40.", 16, narrow, nil, func() {
		const x, top, r = reg(0), reg(1), reg(2)
		v.o("VMOVUPS", f32(0, "SI"), x)
		v.o("VPSRLD", "$16", x, top)
		v.and(row("intc", 2), top, r)
		v.o("VPADDD", row("intc", 1), r, r)
		v.o("VPADDD", x, r, r)
		v.o("VPSRLD", "$16", r, r)
		v.or(row("intc", 3), top, top)
		if v.wide {
			v.p("VCMPPS $3, Z0, Z0, K1") // unordered
			v.p("VMOVDQA32 Z1, K1, Z2")
			v.p("VPMOVDW Z2, (DI)")
			return
		}
		v.o("VCMPPS", "$3", x, x, x)
		v.o("VBLENDVPS", x, top, r, r)
		v.p("VPACKUSDW Y5, Y4, Y4")
		v.p("VPERMQ $0xd8, Y4, Y4")
		v.p("VMOVDQU Y4, (DI)")
	})
	v.ret()
	v.loop(add("BF16ToF32"), "widens bfloat16.", 16, widen, nil, func() {
		kvElem{"BF16", 2}.load(v, mem{0, "(SI)", 16}, 0)
		v.o("VMOVUPS", reg(0), f32(0, "DI"))
	})
	v.ret()
}

// fold applies an integer operation to the sixteen lanes of r; the result is in lane 0. t is a temporary.
func (v vec) fold(ins string, r, t int) (x string) {
	a, b := r, t
	if v.wide {
		v.p("VEXTRACTI64X4 $1, Z%d, Y%d", a, b)
	} else {
		a, b = 2*r, 2*t
		v.p("VMOVAPS Y%d, Y%d", a+1, b)
	}
	v.p("%s Y%d, Y%d, Y%d", ins, b, a, a)
	v.p("VEXTRACTI128 $1, Y%d, X%d", a, b)
	v.p("%s X%d, X%d, X%d", ins, b, a, a)
	for _, s := range []string{"$0x4e", "$0xb1"} {
		v.p("VPSHUFD %s, X%d, X%d", s, a, b)
		v.p("%s X%d, X%d, X%d", ins, b, a, a)
	}
	return fmt.Sprintf("X%d", a)
}

// quantize writes Q8 and Q8K: the scale of a block, its elements, their sums.
func (v vec) quantize(add func(string) string) {
	small, inf := math.Float32bits(1e-30), uint32(0x7f800000)
	// block works on n elements at SI: |x| is compared as integers, so that NaN is largest; a block without a usable scale gets
	// zeros at l_bad.
	scale := func(name string, n int) {
		for i := 0; i < 4*n; i += 64 { // rows are quantized side by side, 256 elements of each after another
			v.p("PREFETCHT0 %d(SI)", 1024+i)
		}
		v.o("VMOVUPS", f32(0, "SI"), reg(2))
		v.and(row("intc", 0), reg(2), reg(2))
		for i := 1; i < n/16; i++ {
			v.o("VMOVUPS", f32(64*i, "SI"), reg(3))
			v.and(row("intc", 0), reg(3), reg(3))
			v.o("VPMAXSD", reg(3), reg(2), reg(2))
		}
		x := v.fold("VPMAXSD", 2, 3)
		v.p("VMOVD %s, AX", x)
		v.p("VDIVSS X15, %s, X9", x)
		v.p("VMOVSS X9, (R8)")
		v.p("LEAL -%d(AX), BX", small)
		v.p("CMPL BX, $%d", inf-small)
		v.p("JAE %s_bad", name)
		v.p("VDIVSS %s, X15, X9", x)
		v.p("VBROADCASTSS X9, %s", v.name(one(14), 0))
	}
	// pair quantizes 32 elements at off into vectors 0, 1 and stores them.
	pair := func() {
		for i := range 2 {
			v.o("VMULPS", f32(64*i, "SI"), one(14), reg(i))
			v.o("VCVTPS2DQ", reg(i), reg(i))
		}
		if v.wide {
			v.p("VPMOVSDB Z0, (DI)")
			v.p("VPMOVSDB Z1, 16(DI)")
			return
		}
		v.p("VPACKSSDW Y1, Y0, Y8")
		v.p("VPACKSSDW Y3, Y2, Y9")
		v.p("VPACKSSWB Y9, Y8, Y8")
		v.p("VMOVDQU packed<>(SB), Y9")
		v.p("VPERMD Y8, Y9, Y8")
		v.p("VMOVDQU Y8, (DI)")
	}
	// A block of zeros keeps d only where it is not finite.
	bad := func(name string, n, sums int) {
		v.lab(name + "_bad")
		v.p("CMPL AX, $%d", inf)
		v.p("JGE %s_keep", name)
		v.p("MOVL $0, (R8)")
		v.lab(name + "_keep")
		v.p("VPXOR X9, X9, X9")
		for i := 0; i < n; i += 32 {
			v.p("VMOVDQU Y9, %d(DI)", i)
		}
		if sums == 1 {
			v.p("MOVL $0, (R9)")
		}
		for i := 0; i < 4*sums; i += 32 {
			if sums > 1 {
				v.p("VMOVDQU Y9, %d(R9)", i)
			}
		}
	}
	c127 := func() {
		v.p("MOVL $0x%08x, AX", math.Float32bits(127))
		v.p("VMOVD AX, X15")
	}
	name := add("Q8")
	v.loop(name, "quantizes blocks of 32.", 32,
		[]walk{{"A", "SI", 128}, {"Dst", "DI", 32}, {"D", "R8", 4}, {"Sum", "R9", 4}}, c127, func() {
			scale(name, 32)
			pair()
			v.o("VPADDD", reg(0), reg(1), reg(0))
			v.p("VMOVD %s, (R9)", v.fold("VPADDD", 0, 1))
			v.p("JMP %s_next", name)
			bad(name, 32, 1)
			v.lab(name + "_next")
		})
	v.ret()

	name = add("Q8K")
	v.loop(name, "quantizes blocks of 256.", 256,
		[]walk{{"A", "SI", 0}, {"Dst", "DI", 0}, {"D", "R8", 4}, {"Sum", "R9", 0}}, c127, func() {
			scale(name, 256)
			v.p("MOVL $8, BX")
			v.lab(name + "_p")
			pair()
			v.p("VMOVD %s, (R9)", v.fold("VPADDD", 0, 2))
			v.p("VMOVD %s, 4(R9)", v.fold("VPADDD", 1, 2))
			v.p("ADDQ $128, SI")
			v.p("ADDQ $32, DI")
			v.p("ADDQ $8, R9")
			v.p("DECL BX")
			v.p("JNZ %s_p", name)
			v.p("JMP %s_next", name)
			bad(name, 256, 16)
			v.p("ADDQ $1024, SI")
			v.p("ADDQ $256, DI")
			v.p("ADDQ $64, R9")
			v.lab(name + "_next")
		})
	v.ret()
}
