package main

// codes emits a routine over elements in their order, 16 at a time with a scale and a low each. body turns those
// of register r to codes, as words, for the scale in register 8 and the low in register 9; it may use 2..7. With skip,
// a scale of 0 leaves the codes as they are.
func (v *lanes) codes(name, doc string, skip bool, before func(), body func(r int)) {
	outer := v.args
	v.args = operandsOf("quant", "Codes")
	defer func() { v.args = outer }()
	f := lower(name) + v.suffix()
	v.fn(f, doc)
	v.arg("R13")
	v.lds("R13", [2]string{"Src", "SI"}, [2]string{"Dst", "DI"}, [2]string{"Scale", "R9"}, [2]string{"Low", "R10"},
		[2]string{"Blocks", "CX"})
	for i, field := range []string{"Minimum", "Highest", "Offset"} {
		v.p("VPBROADCASTD %d(R13), %s", v.args.at(field), v.name(10+i))
	}
	v.p("VBROADCASTSS %d(R13), %s", v.args.at("Bias"), v.name(13))
	before()
	v.lab(f + "_l")
	if skip {
		v.p("MOVL (R9), AX")
		v.p("ADDL AX, AX")
		v.p("JZ %s_next", f)
	}
	v.p("VBROADCASTSS (R9), %s", v.name(8))
	v.p("VBROADCASTSS (R10), %s", v.name(9))
	registers := 2 - b2i(v.wide)
	for r := range registers {
		v.load(mem{32 * r, "(SI)", 1}, r)
		body(r)
		v.o("VPADDD", 12, r, r)
	}
	if v.wide {
		v.p("VPMOVDB Z0, (DI)")
	} else {
		v.p("VPACKSSDW Y1, Y0, Y0")
		v.p("VEXTRACTI128 $1, Y0, X1")
		v.p("VPACKSSWB X1, X0, X0") // words of elements 0..3, 8..11, 4..7, 12..15
		v.p("VPSHUFD $0xd8, X0, X0")
		v.p("VMOVDQU X0, (DI)")
	}
	if skip {
		v.lab(f + "_next")
	}
	v.p("ADDQ $64, SI")
	v.p("ADDQ $16, DI")
	v.p("ADDQ $4, R9")
	v.p("ADDQ $4, R10")
	v.p("DECQ CX")
	v.p("JNZ %s_l", f)
	v.ret()
}

// nearest rounds r as the plain code does, to words between those in registers 10 and 11.
func (v *lanes) nearest(r int) {
	and := "VPAND"
	if v.wide {
		and = "VPANDD"
	}
	v.add(row("lanec", cMagic), r, r)
	v.o(and, row("lanec", cMantissa), r, r)
	v.o("VPSUBD", row("lanec", cMagicBits), r, r)
	v.o("VPMINSD", 11, r, r)
	v.o("VPMAXSD", 10, r, r)
}

// stored are the codes for scales that are stored.
func (v *lanes) stored() {
	nothing := func() {}
	v.codes("Stored", "makes codes (x+low)/scale.", true, nothing, func(r int) {
		v.add(9, r, r)
		v.div(r, 8, r)
		v.nearest(r)
	})
	v.codes("Searched", "makes codes (x-low)*scale.", true, nothing, func(r int) {
		v.sub(r, 9, r)
		v.mul(8, r, r)
		v.nearest(r)
	})
	v.codes("Truncated", "makes codes (x-low)*scale + bias.", false, nothing, func(r int) {
		v.sub(r, 9, r)
		v.mul(8, r, r)
		v.add(13, r, r)
		v.o("VCVTTPS2DQ", r, r)
		v.o("VPMINSD", 11, r, r)
	})
	bits := [2]string{"VPAND", "VPOR"}
	if v.wide {
		bits = [2]string{"VPANDD", "VPORD"}
	}
	v.codes("Away", "makes codes x*scale, ties away from zero.", false, nothing, func(r int) {
		v.mul(8, r, r)
		v.o(bits[0], row("lanec", cSignBit), r, 2)
		v.o(bits[1], row("lanec", cBelowHalf), 2, 2)
		v.add(2, r, r) // a half itself would take the number below a half to one
		v.o("VCVTTPS2DQ", r, r)
	})
	v.codes("CodesIQ4", "makes codes of x*scale.", false, func() { v.openIQ4(true) }, func(r int) {
		v.mul(8, r, 2)
		v.levelIQ4(2, r, 3, true)
	})
	v.rows64("fp4c", words([]float32{0, 1, 2, 3, 4, 6, 8, 12})...)
	v.rows64("fp4n", 0, 1, 2, 3, 4, 5, 6, 7)
	v.codes("CodesFP4", "makes codes of the 4-bit floats times scale that are nearest.", false, nothing, v.codeFP4)
}

// codeFP4 makes the codes of register r: it compares magnitudes with those of the levels, and then adds the signs.
func (v *lanes) codeFP4(r int) {
	v.magnitude(r, 2)
	v.mov(2, 3) // the least error so far, of level 0
	v.zero(4)
	for c := 1; c < 8; c++ {
		v.mul(row("fp4c", c), 8, 5)
		v.sub(5, 2, 5)
		v.magnitude(5, 5)
		v.compare(5, isLess, 3, 1)
		v.where(1, 5, 3)
		v.load(row("fp4n", c), 6)
		v.where(1, 6, 4)
	}
	v.o("VPSRLD", "$31", r, r)
	v.o("VPSLLD", "$3", r, r)
	v.compare(3, isLess, 2, 1) // level 0 has no sign
	v.keep(1, r, r)
	v.o(v.words("VPOR"), 4, r, r)
}

// scan looks at the bits of elements.
func (v *lanes) scan() {
	outer := v.args
	v.args = operandsOf("quant", "Scan")
	defer func() { v.args = outer }()
	f := "scan" + v.suffix()
	v.fn(f, "finds the largest magnitude and all bits.")
	v.arg("R13")
	v.ld("R13", "Src", "SI")
	v.ld("R13", "N", "CX")
	for r := range 8 {
		v.p("VPXOR Y%d, Y%d, Y%d", r, r, r)
	}
	v.p("VMOVDQU lanec<>+%d(SB), Y8", 64*cMagnitude)
	v.lab(f + "_l")
	for r := range 4 { // even registers have magnitudes, odd ones all bits
		v.p("VMOVDQU %d(SI), Y%d", 32*r, 9+r)
		v.p("VPOR Y%d, Y%d, Y%d", 9+r, 2*r+1, 2*r+1)
		v.p("VPAND Y8, Y%d, Y%d", 9+r, 9+r)
		v.p("VPMAXUD Y%d, Y%d, Y%d", 9+r, 2*r, 2*r)
	}
	v.p("SUBQ $-128, SI")
	v.p("SUBQ $32, CX")
	v.p("JNZ %s_l", f)
	for r := 2; r < 8; r += 2 {
		v.p("VPMAXUD Y%d, Y0, Y0", r)
		v.p("VPOR Y%d, Y1, Y1", r+1)
	}
	for r, ins := range []string{"VPMAXUD", "VPOR"} {
		v.p("VEXTRACTI128 $1, Y%d, X4", r)
		v.p("%s X4, X%d, X%d", ins, r, r)
		for _, s := range []string{"$0x4e", "$0xb1"} {
			v.p("VPSHUFD %s, X%d, X4", s, r)
			v.p("%s X4, X%d, X%d", ins, r, r)
		}
	}
	v.p("VMOVD X0, %d(R13)", v.args.at("Magnitude"))
	v.p("VMOVD X1, %d(R13)", v.args.at("Any"))
	v.ret()
}
