package main

import "fmt"

// train writes what training needs beside its products: the update of AdamW, panels of transposes, exponentials of logits, sums in float64.
func (v *elems) train() {
	v.adamW()
	v.loop(v.op("PairBF16"), "is dst = a and b rounded to bfloat16, a in the lower halves of words.", 16, twoSources, nil, func() {
		const x, top, lo, hi = reg(0), reg(1), reg(2), reg(3)
		v.o("VMOVUPS", f32(0, "SI"), x)
		v.bf16(x, top, lo)
		v.o("VMOVUPS", f32(0, "DX"), x)
		v.bf16(x, top, hi)
		v.o("VPSRLD", "$16", lo, lo)
		v.and(row("intc", 5), hi, hi)
		v.or(lo, hi, hi)
		v.o("VMOVUPS", hi, f32(0, "DI"))
	})
	v.ret()
	v.loop(v.op("Max"), "is dst = the greater of dst and a in 16 lanes.", 16, []walk{{"Dst", "DI", 0}, {"A", "SI", 64}},
		func() { v.o("VMOVUPS", f32(0, "DI"), reg(0)) },
		func() { v.o("VMOVUPS", f32(0, "SI"), reg(1)); v.o("VMAXPS", reg(0), reg(1), reg(0)) })
	v.o("VMOVUPS", reg(0), f32(0, "DI"))
	v.ret()
	v.loop(v.op("Exp"), "is dst = e^(a - s).", 16, oneSource, func() {
		v.p("VBROADCASTSS %d(R13), %s", v.args.at("S"), v.name(one(15), 0))
	}, func() {
		v.o("VMOVUPS", f32(0, "SI"), reg(0))
		v.o("VSUBPS", one(15), reg(0), reg(0))
		v.exp(reg(0), reg(1), reg(2), reg(3))
		v.o("VMOVUPS", reg(0), f32(0, "DI"))
	})
	v.ret()
	v.doubles("Sum64", "adds a to the 16 lanes of float64 at dst.", "VADDPD %[1]s, %[2]s, %[2]s")
	v.doubles("SumSq64", "adds the squares of a to the 16 lanes of float64 at dst.", "VFMADD231PD %[1]s, %[1]s, %[2]s")
}

// adamW is a step of AdamW, in the order of AdamW.step in package elem.
func (v *elems) adamW() {
	const x, t, a, b = reg(0), reg(1), reg(2), reg(3)
	c := one(14)
	by := func(i int) { v.p("VBROADCASTSS %d(R9), %s", 4*i, v.name(c, 0)) }
	const scale, beta1, beta2, rest1, rest2, rate, root, eps, keep = 0, 1, 2, 3, 4, 5, 6, 7, 8
	v.loop(v.op("AdamW"), "changes values dst, moments a and b by gradients c, with the numbers at d.", 16,
		[]walk{{"Dst", "DI", 64}, {"A", "SI", 64}, {"B", "DX", 64}, {"C", "R8", 64}, {"D", "R9", 0}}, nil, func() {
			v.o("VMOVUPS", f32(0, "R8"), x)
			by(scale)
			v.o("VMULPS", c, x, x)
			by(rest1)
			v.o("VMULPS", c, x, t)
			by(beta1)
			v.o("VMULPS", f32(0, "SI"), c, a)
			v.o("VADDPS", t, a, a)
			v.o("VMOVUPS", a, f32(0, "SI"))
			v.o("VMULPS", x, x, t)
			by(rest2)
			v.o("VMULPS", c, t, t)
			by(beta2)
			v.o("VMULPS", f32(0, "DX"), c, b)
			v.o("VADDPS", t, b, b)
			v.o("VMOVUPS", b, f32(0, "DX"))
			v.o("VSQRTPS", b, b)
			by(root)
			v.o("VMULPS", c, b, b)
			by(eps)
			v.o("VADDPS", c, b, b)
			by(rate)
			v.o("VMULPS", c, a, a)
			v.o("VDIVPS", b, a, a)
			by(keep)
			v.o("VMULPS", f32(0, "DI"), c, t)
			v.o("VSUBPS", a, t, t)
			v.o("VMOVUPS", t, f32(0, "DI"))
		})
	v.ret()
}

// doubles adds 16 lanes at a time in float64, each element widened; ins has the element and the sum.
func (v *elems) doubles(name, doc, ins string) {
	r, n := "Y", 4 // lanes of a register
	if v.wide {
		r, n = "Z", 8
	}
	half := map[string]string{"Y": "X", "Z": "Y"}[r]
	sum := func(i int) string { return fmt.Sprintf("%s%d", r, i) }
	v.loop(v.op(name), doc, 16, []walk{{"Dst", "DI", 0}, {"A", "SI", 64}}, func() {
		for i := range 16 / n {
			v.p("VMOVUPD %d(DI), %s", 8*n*i, sum(i))
		}
	}, func() {
		for i := range 16 / n {
			x := sum(8 + i)
			v.p("VMOVUPS %d(SI), %s%d", 4*n*i, half, 8+i)
			v.p("VCVTPS2PD %s%d, %s", half, 8+i, x)
			v.p(ins, x, sum(i))
		}
	})
	for i := range 16 / n {
		v.p("VMOVUPD %s, %d(DI)", sum(i), 8*n*i)
	}
	v.ret()
}
