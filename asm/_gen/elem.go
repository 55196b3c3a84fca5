package main

import (
	"math"
	"strings"
)

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

// elems writes the kernels of a width and collects their names for the dispatch.
type elems struct {
	vec
	ops []string
}

// op is the function's name of a kernel.
func (v *elems) op(name string) string {
	v.ops = append(v.ops, name)
	return lower(name) + v.suffix()
}

// Walks of kernels with one and two sources.
var (
	oneSource  = []walk{{"Dst", "DI", 64}, {"A", "SI", 64}}
	twoSources = []walk{{"Dst", "DI", 64}, {"A", "SI", 64}, {"B", "DX", 64}}
)

// elem writes the kernels of a width, in the order of package elem's op, and their dispatch.
func elem(wide bool) *gen {
	v := &elems{vec: newVec("elem", "elem_", "Args", wide)}
	v.rows64("expc", expc...)
	v.rows64("intc", 0x7fffffff, 0x7fff, 1, 0x40, 0x400000, 0xffff0000)
	var dup []uint32
	for i := range uint32(16) {
		dup = append(dup, i, i)
	}
	v.list("dup", dup...)
	v.list("packed", 0, 4, 1, 5, 2, 6, 3, 7)

	v.simple()
	v.loop(v.op("SumSq"), "adds the squares of a to the 16 lanes at dst.", 16, []walk{{"Dst", "DI", 0}, {"A", "SI", 64}},
		func() { v.o("VMOVUPS", f32(0, "DI"), reg(0)) },
		func() { v.o("VMOVUPS", f32(0, "SI"), reg(1)); v.o("VFMADD231PS", reg(1), reg(1), reg(0)) })
	v.o("VMOVUPS", reg(0), f32(0, "DI"))
	v.ret()
	v.gated(v.op("SiLU"), "is dst = a * sigmoid(a) * b.", nil)
	v.gated(v.op("GELU"), "is dst = a * sigmoid(a * (A + B*a*a)) * b.", func() {
		v.o("VMULPS", reg(0), reg(0), reg(1))
		v.o("VMOVUPS", row("expc", cGeluA), reg(2))
		v.o("VFMADD132PS", row("expc", cGeluB), reg(2), reg(1)) // 1 = 1*B + 2
		v.o("VMULPS", reg(0), reg(1), reg(1))
	})
	v.ropeNeox()
	v.ropePair()
	v.conversions()
	v.quantize()
	v.train()

	v.code("\nfunc run%s(o op, a *Args) {\nswitch o {", v.suffix())
	for _, op := range v.ops {
		v.code("case op%s:\n%s(a)", op, lower(op)+v.suffix())
	}
	v.code("}\n}")
	return v.gen
}

// simple writes kernels that load a, change it by a few instructions and store it.
func (v *elems) simple() {
	b, x, s, t := f32(0, "DX"), reg(0), one(14), one(15)
	type step []any // an instruction and its operands
	for _, k := range []struct {
		name, doc string
		walks     []walk
		steps     []step
	}{
		{"Add", "is dst = a + b.", twoSources, []step{{"VADDPS", b, x, x}}},
		{"Mul", "is dst = a * b.", twoSources, []step{{"VMULPS", b, x, x}}},
		{"Scale", "is dst = a * s.", oneSource, []step{{"VMULPS", s, x, x}}},
		{"MulScale", "is dst = (a * s) * b.", twoSources, []step{{"VMULPS", s, x, x}, {"VMULPS", b, x, x}}},
		{"AddScaled", "is dst = fma(b, s, a).", twoSources, []step{{"VFMADD231PS", b, s, x}}},
		{"Blend", "is dst = fma(b, t, a * s).", twoSources, []step{{"VMULPS", s, x, x}, {"VFMADD231PS", b, t, x}}},
		{"Div", "is dst = a / s.", oneSource, []step{{"VDIVPS", s, x, x}}},
	} {
		v.loop(v.op(k.name), k.doc, 16, k.walks, func() {
			v.p("VBROADCASTSS %d(R13), %s", v.args.at("S"), v.name(s, 0))
			v.p("VBROADCASTSS %d(R13), %s", v.args.at("T"), v.name(t, 0))
		}, func() {
			v.o("VMOVUPS", f32(0, "SI"), x)
			for _, st := range k.steps {
				v.o(st[0].(string), st[1:]...)
			}
			v.o("VMOVUPS", x, f32(0, "DI"))
		})
		v.ret()
	}
}

// lower makes an unexported name: GELU gelu, F32ToF16 f32ToF16.
func lower(s string) string {
	n := 0
	for n < len(s) && s[n] >= 'A' && s[n] <= 'Z' {
		n++
	}
	return strings.ToLower(s[:n]) + s[n:]
}

// gated is dst = a * sigmoid(z) * b with z in vector 1 made by arg from a in vector 0; z is a where arg is nil.
func (v vec) gated(name, doc string, arg func()) {
	const x, z, n, f, p, num = reg(0), reg(1), reg(2), reg(3), reg(4), reg(5)
	low := one(14)
	v.loop(name, doc, 16, twoSources, func() { v.o("VMOVUPS", row("expc", cLow), low) }, func() {
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
		v.exp(t, f, n, p)
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

// exp is t = e^t, t <= 0.1, by f, n and p: zero below the limit, NaN of NaN.
func (v vec) exp(t, f, n, p reg) {
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
}

// ropeNeox rotates pairs whose elements lie half a head apart.
func (v *elems) ropeNeox() {
	v.loop(v.op("RopeNeox"), "rotates the pairs (a[i], dst[i]) by angles with cosines b and sines c.", 16,
		[]walk{{"A", "SI", 64}, {"Dst", "DI", 64}, {"B", "DX", 64}, {"C", "R8", 64}}, nil, func() {
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
}

// ropePair rotates pairs of neighbours. Cosines and sines are doubled: registers of n elements take n/2 of each.
func (v *elems) ropePair() {
	n, r := 8, "Y"
	if v.wide {
		n, r = 16, "Z"
	}
	v.loop(v.op("RopePair"), "rotates n pairs (dst[2i], dst[2i+1]) by angles with cosines b and sines c.", 16,
		[]walk{{"Dst", "DI", 128}, {"B", "DX", 64}, {"C", "R8", 64}}, nil, func() {
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

// bf16 rounds x to bfloat16 in the upper halves of r, whose lower ones are anything; x and top are lost.
func (v vec) bf16(x, top, r reg) {
	v.o("VPSRLD", "$16", x, top)
	v.and(row("intc", 2), top, r)
	v.o("VPADDD", row("intc", 1), r, r)
	v.o("VPADDD", x, r, r)
	v.o("VMOVUPS", row("intc", 4), top)
	v.or(x, top, top)
	if v.wide {
		v.o("VCMPPS", "$3", x, x, "K1") // unordered
		v.o("VMOVDQA32", top, "K1", r)
		return
	}
	v.o("VCMPPS", "$3", x, x, x)
	v.o("VBLENDVPS", x, top, r, r)
}

// conversions between float32 and 16 bits, to nearest even.
func (v *elems) conversions() {
	narrow := []walk{{"Dst", "DI", 32}, {"A", "SI", 64}}
	widen := []walk{{"Dst", "DI", 64}, {"A", "SI", 32}}
	half := func(r string) mem { return mem{0, "(" + r + ")", 16} }
	v.loop(v.op("F32ToF16"), "rounds to halves.", 16, narrow, nil, func() {
		v.o("VMOVUPS", f32(0, "SI"), reg(0))
		v.o("VCVTPS2PH", "$0", reg(0), half("DI")) // $0: nearest even
	})
	v.ret()
	v.loop(v.op("F16ToF32"), "widens halves.", 16, widen, nil, func() {
		v.o("VCVTPH2PS", half("SI"), reg(0))
		v.o("VMOVUPS", reg(0), f32(0, "DI"))
	})
	v.ret()
	v.loop(v.op("F32ToBF16"), "rounds to bfloat16: (x + 0x7fff + bit 16 of x) >> 16, NaN: x>>16 | 0x40.", 16, narrow, nil, func() {
		const x, top, r = reg(0), reg(1), reg(2)
		v.o("VMOVUPS", f32(0, "SI"), x)
		v.bf16(x, top, r)
		v.o("VPSRLD", "$16", r, r)
		if v.wide {
			v.p("VPMOVDW Z2, (DI)")
			return
		}
		v.p("VPACKUSDW Y5, Y4, Y4")
		v.p("VPERMQ $0xd8, Y4, Y4")
		v.p("VMOVDQU Y4, (DI)")
	})
	v.ret()
	v.loop(v.op("BF16ToF32"), "widens bfloat16.", 16, widen, nil, func() {
		kvElem{"BF16", 2}.load(v.vec, mem{0, "(SI)", 16}, 0)
		v.o("VMOVUPS", reg(0), f32(0, "DI"))
	})
	v.ret()
}
