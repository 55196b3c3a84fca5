package main

import "fmt"

// Coefficients of 2^f, |f| <= 1/2: near-minimax of degree 6 (Chebyshev nodes), relative error 5e-9 before rounding. The last one is
// the limit below which the result is zero.
var exp2c = []float32{1, 0.693147188, 0.240226508, 0.0555035711, 0.00961808256, 0.00133908634, 0.00015453163, -125}

// exp2 is x = 2^x for x <= 0, zero below the limit; NaN stays. n, f, p are temporaries.
func (v vec) exp2(x, n, f, p reg) {
	defer v.macro(fmt.Sprint("EXP2of", x))()
	v.o("VCVTPS2DQ", x, n)
	v.o("VCVTDQ2PS", n, f)
	v.o("VSUBPS", f, x, f)
	v.o("VMOVUPS", row("exp2c", 6), p)
	for i := 5; i >= 0; i-- {
		v.o("VFMADD213PS", row("exp2c", i), f, p)
	}
	v.o("VPSLLD", "$23", n, n)
	v.o("VPADDD", n, p, p)
	v.unless(x, row("exp2c", 7), p, x)
}

// unless is dst = p, but zero where x is less than limit; dst may be x.
func (v vec) unless(x reg, limit mem, p, dst reg) {
	if v.wide {
		v.o("VCMPPS", "$5", limit, x, "K1")
		v.o("VMOVAPS.Z", p, "K1", dst)
		return
	}
	v.o("VCMPPS", "$5", limit, x, dst)
	v.o("VANDPS", p, dst, dst)
}

// softmax has two loops, of maxima and of exponentials: so more queries overlap than in one, which takes a third longer.
func softmax(v vec) {
	name := "softmax" + v.suffix()
	v.fn(name, "is Softmax of M queries.")
	v.c("DI scores, R9 state, R10 OStride, CX queries left; vectors 0..3 scores, then weights")
	v.arg("R13")
	v.lds("R13", [2]string{"S", "DI"}, [2]string{"O", "R9"}, [2]string{"OStride", "R10"}, [2]string{"M", "CX"})
	softmaxMaxima(v, name+"_max")
	v.lds("R13", [2]string{"S", "DI"}, [2]string{"O", "R9"}, [2]string{"M", "CX"})
	softmaxExponentials(v, name+"_exp")
	v.ret()
}

// softmaxMaxima updates the running maxima; alpha is the old one less the new one.
func softmaxMaxima(v vec, l string) {
	v.lab(l)
	for i := range 4 {
		v.o("VMOVUPS", f32(64*i, "DI"), reg(i))
	}
	v.o("VMAXPS", reg(0), reg(1), reg(4))
	v.o("VMAXPS", reg(2), reg(3), reg(5))
	v.o("VMAXPS", reg(4), reg(5), reg(4))
	a, b := 8, 9 // the single register of vector 4 and a free one
	if v.wide {
		a, b = 4, 5
		v.p("VEXTRACTF64X4 $1, Z4, Y5")
	}
	v.p("VMAXPS Y%d, Y%d, Y%d", b, a, a)
	v.p("VEXTRACTF128 $1, Y%d, X%d", a, b)
	v.p("VMAXPS X%d, X%d, X%d", b, a, a)
	v.p("VMOVHLPS X%d, X%d, X%d", a, a, b)
	v.p("VMAXPS X%d, X%d, X%d", b, a, a)
	v.p("VMOVSHDUP X%d, X%d", a, b)
	v.p("VMAXSS X%d, X%d, X%d", b, a, a)
	v.p("VMOVSS %d(R9), X%d", stMax, b)
	v.p("VMAXSS X%d, X%d, X%d", b, a, a)
	v.p("VMOVSS X%d, %d(R9)", a, stMax)
	v.p("VSUBSS X%d, X%d, X%d", a, b, b)
	v.p("VMOVSS X%d, %d(R9)", b, stAlpha)
	v.p("ADDQ $256, DI")
	v.p("ADDQ R10, R9")
	v.p("DECQ CX")
	v.p("JNZ %s", l)
}

// softmaxExponentials makes weights of scores and takes them to the sums.
func softmaxExponentials(v vec, l string) {
	top := one(14)
	v.lab(l)
	v.p("VBROADCASTSS %d(R9), %s", stMax, v.name(top, 0))
	for i := range 4 {
		v.o("VMOVUPS", f32(64*i, "DI"), reg(i))
		v.o("VSUBPS", top, reg(i), reg(i))
		v.exp2(reg(i), 4, 5, 6)
		v.o("VMOVUPS", reg(i), f32(64*i, "DI"))
	}
	v.o("VADDPS", reg(0), reg(1), reg(0))
	v.o("VADDPS", reg(2), reg(3), reg(2))
	v.o("VADDPS", reg(2), reg(0), reg(0))
	v.o("VBROADCASTSS", fmt.Sprintf("%d(R9)", stAlpha), reg(1))
	v.exp2(1, 4, 5, 6)
	x := 2
	if v.wide {
		x = 1
	}
	v.p("VMOVSS X%d, %d(R9)", x, stAlpha)
	v.o("VMOVUPS", f32(stSum, "R9"), reg(2))
	v.o("VFMADD213PS", reg(0), reg(1), reg(2))
	v.o("VMOVUPS", reg(2), f32(stSum, "R9"))
	v.p("ADDQ $256, DI")
	v.p("ADDQ R10, R9")
	v.p("DECQ CX")
	v.p("JNZ %s", l)
}

// capScores emits Cap.
func capScores(v vec) {
	name := "cap" + v.suffix()
	v.fn(name, "is Cap of M queries.")
	v.c("DI scores, CX vectors left")
	v.arg("R13")
	v.ld("R13", "S", "DI")
	v.ld("R13", "M", "CX")
	v.p("SHLQ $2, CX")
	in, out := one(14), one(15)
	v.p("VBROADCASTSS %d(R13), %s", v.args.at("CapIn"), v.name(in, 0))
	v.p("VBROADCASTSS %d(R13), %s", v.args.at("CapOut"), v.name(out, 0))
	const x, e, sum, sign = reg(0), reg(1), reg(2), reg(3)
	v.lab(name + "_v")
	v.o("VMOVUPS", f32(0, "DI"), x)
	v.and(row("capc", 1), x, sign)
	v.bits("VPXOR", sign, x, x)
	v.o("VMULPS", in, x, e)
	v.exp2(e, 4, 5, 6)
	v.o("VADDPS", row("capc", 0), e, sum)
	v.o("VMOVUPS", row("capc", 0), x)
	v.o("VSUBPS", e, x, x)
	v.o("VDIVPS", sum, x, x)
	v.o("VMULPS", out, x, x)
	v.or(sign, x, x)
	v.o("VMOVUPS", x, f32(0, "DI"))
	v.p("ADDQ $64, DI")
	v.p("DECQ CX")
	v.p("JNZ %s_v", name)
	v.ret()
}
