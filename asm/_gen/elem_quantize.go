package main

import (
	"fmt"
	"math"
)

// quantize writes Q8 and Q8K: the scale of a block, its elements, their sums. SI elements, DI int8, R8 scales, R9 sums; vector 14 one
// over the scale, X15 127; AX the bits of the largest |x|.
func (v *elems) quantize() {
	name := v.op("Q8")
	v.loop(name, "quantizes blocks of 32.", 32,
		[]walk{{"A", "SI", 128}, {"Dst", "DI", 32}, {"D", "R8", 4}, {"Sum", "R9", 4}}, v.load127, func() {
			v.blockScale(name, 32)
			v.quantize32()
			v.o("VPADDD", reg(0), reg(1), reg(0))
			v.p("VMOVD %s, (R9)", v.fold("VPADDD", 0, 1))
			v.p("JMP %s_next", name)
			v.zeroBlock(name, 32)
			v.p("MOVL $0, (R9)")
			v.lab(name + "_next")
		})
	v.ret()

	name = v.op("Q8K")
	v.loop(name, "quantizes blocks of 256.", 256,
		[]walk{{"A", "SI", 0}, {"Dst", "DI", 0}, {"D", "R8", 4}, {"Sum", "R9", 0}}, v.load127, func() {
			v.blockScale(name, 256)
			v.p("MOVL $8, BX")
			v.lab(name + "_p")
			v.quantize32()
			v.p("VMOVD %s, (R9)", v.fold("VPADDD", 0, 2))
			v.p("VMOVD %s, 4(R9)", v.fold("VPADDD", 1, 2))
			v.p("ADDQ $128, SI")
			v.p("ADDQ $32, DI")
			v.p("ADDQ $8, R9")
			v.p("DECL BX")
			v.p("JNZ %s_p", name)
			v.p("JMP %s_next", name)
			v.zeroBlock(name, 256)
			for i := range 2 {
				v.p("VMOVDQU Y9, %d(R9)", 32*i)
			}
			v.p("ADDQ $1024, SI")
			v.p("ADDQ $256, DI")
			v.p("ADDQ $64, R9")
			v.lab(name + "_next")
		})
	v.ret()
}

// The smallest of the largest |x| of a block that gives a usable scale, and infinity, as bits.
var (
	smallBits = math.Float32bits(1e-30)
	infBits   = uint32(0x7f800000)
)

// load127 sets X15.
func (v *elems) load127() {
	v.p("MOVL $0x%08x, AX", math.Float32bits(127))
	v.p("VMOVD AX, X15")
}

// blockScale stores the scale of n elements at SI: |x| is compared as integers, so that NaN is largest; a block without a usable scale
// gets zeros at name_bad.
func (v *elems) blockScale(name string, n int) {
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
	v.p("LEAL -%d(AX), BX", smallBits)
	v.p("CMPL BX, $%d", infBits-smallBits)
	v.p("JAE %s_bad", name)
	v.p("VDIVSS %s, X15, X9", x)
	v.p("VBROADCASTSS X9, %s", v.name(one(14), 0))
}

// quantize32 quantizes 32 elements into vectors 0, 1 and stores them.
func (v *elems) quantize32() {
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

// zeroBlock makes a block of n zeros, with a scale only where it is not finite; Y9 is zero then.
func (v *elems) zeroBlock(name string, n int) {
	v.lab(name + "_bad")
	v.p("CMPL AX, $%d", infBits)
	v.p("JGE %s_keep", name)
	v.p("MOVL $0, (R8)")
	v.lab(name + "_keep")
	v.p("VPXOR X9, X9, X9")
	for i := 0; i < n; i += 32 {
		v.p("VMOVDQU Y9, %d(DI)", i)
	}
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
