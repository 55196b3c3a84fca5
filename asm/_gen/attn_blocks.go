package main

// Kernels of package attn that store keys and decode blocks.

// storeKeys: tiles of 8 keys by 8 elements of 16 bits, in rounds of pairs, of fours, of eights. Half vectors do: it is the stores
// that count, one for each element of 8 keys.
func storeKeys(v vec) {
	name := "storeKeysAVX2"
	v.fn(name, "is StoreKeys for keys of a multiple of 8 elements.")
	v.c("SI R9 R10 keys 0.. 3.. 6.., R8 VStride, DI K, CX elements left")
	v.arg("R13")
	v.lds("R13", [2]string{"V", "SI"}, [2]string{"VStride", "R8"}, [2]string{"K", "DI"}, [2]string{"D", "CX"})
	v.p("LEAQ (R8)(R8*2), R9")
	v.p("LEAQ (SI)(R9*2), R10")
	v.p("ADDQ SI, R9")
	v.lab(name + "_d")
	for i, at := range []string{"(SI)", "(SI)(R8*1)", "(SI)(R8*2)", "(R9)", "(R9)(R8*1)", "(R9)(R8*2)", "(R10)", "(R10)(R8*1)"} {
		v.p("VMOVDQU %s, X%d", at, i)
	}
	// Registers 0..7 and 8..15 take turns; a round puts lanes of i and i+4 in turn into 2i and 2i+1. Three rounds are the transpose.
	from, to := 0, 8
	for range 3 {
		for i := range 4 {
			v.p("VPUNPCKLWD X%d, X%d, X%d", from+i+4, from+i, to+2*i)
			v.p("VPUNPCKHWD X%d, X%d, X%d", from+i+4, from+i, to+2*i+1)
		}
		from, to = to, from
	}
	for d := range 8 {
		v.p("VMOVDQU X%d, %d(DI)", from+d, 128*d)
	}
	for _, r := range []string{"SI", "R9", "R10"} {
		v.p("ADDQ $16, %s", r)
	}
	v.p("ADDQ $1024, DI")
	v.p("SUBQ $8, CX")
	v.p("JNZ %s_d", name)
	v.ret()
}

// decodeK: all keys of a block, 32 elements after another; t.bytes is 1 for Q8, 0 for Q4.
func decodeK(v vec, t kvElem) {
	name := "decodeK" + t.name + v.suffix()
	v.fn(name, "is DecodeK.")
	v.c("SI K, BX from there to Pf, R8 scales, DI O, DX elements left, CX rounds left")
	v.arg("R13")
	v.lds("R13", [2]string{"K", "SI"}, [2]string{"Pf", "BX"}, [2]string{"KS", "R8"}, [2]string{"O", "DI"}, [2]string{"D", "DX"})
	v.p("SUBQ SI, BX")
	v.lab(name + "_block")
	if t.bytes == 1 {
		v.p("MOVL $32, CX")
		v.p("CMPQ DX, CX")
		v.p("CMOVQLT DX, CX")
	} else {
		v.p("MOVL $16, CX")
	}
	v.lab(name + "_d")
	v.p("PREFETCHT0 (SI)(BX*1)")
	for i := range 4 {
		v.decode(t, i, mem{16 * i, "(SI)", 8}, f32(64*i, "R8"), 64*i, 16*256+64*i)
	}
	v.p("ADDQ $64, SI")
	v.p("ADDQ $256, DI")
	v.p("DECQ CX")
	v.p("JNZ %s_d", name)
	if t.bytes == 0 {
		v.p("ADDQ $%d, DI", 16*256)
	}
	v.p("ADDQ $256, R8")
	v.p("SUBQ $32, DX")
	v.p("JGT %s_block", name)
	v.ret()
}

// decodeV: NV blocks of 32 elements.
func decodeV(v vec, t kvElem) {
	name := "decodeV" + t.name + v.suffix()
	v.fn(name, "is DecodeV.")
	v.c("SI V, BX from there to Pf, R8 scales, DI O, CX blocks left")
	v.arg("R13")
	v.lds("R13", [2]string{"V", "SI"}, [2]string{"Pf", "BX"}, [2]string{"VS", "R8"}, [2]string{"O", "DI"}, [2]string{"NV", "CX"})
	v.p("SUBQ SI, BX")
	v.lab(name + "_b")
	v.p("PREFETCHT0 (SI)(BX*1)")
	scale := one(14)
	v.p("VBROADCASTSS (R8), %s", v.name(scale, 0))
	v.decode(t, 0, mem{0, "(SI)", 8}, scale, 0, 64)
	if t.bytes == 1 {
		v.decode(t, 1, mem{16, "(SI)", 8}, scale, 64, 0)
	}
	v.p("ADDQ $%d, SI", 16+16*t.bytes)
	v.p("ADDQ $4, R8")
	v.p("ADDQ $128, DI")
	v.p("DECQ CX")
	v.p("JNZ %s_b", name)
	v.ret()
}

// decode turns sixteen bytes at m into elements at lo(DI), and where they are nibbles the high ones at hi(DI); i alternates vectors.
func (v vec) decode(t kvElem, i int, m mem, scale any, lo, hi int) {
	defer v.macro("DECODE" + t.name)()
	x := reg(i % 2)
	if t.bytes == 1 {
		t.load(v, m, x)
		v.o("VMULPS", scale, x, x)
		v.o("VMOVUPS", x, f32(lo, "DI"))
		return
	}
	h := x + 2
	v.o("VPMOVZXBD", m, x)
	v.o("VPSRLD", "$4", x, h)
	v.and(row("nibble", 0), x, x)
	for _, r := range []reg{x, h} {
		v.o("VPSUBD", row("nibble", 1), r, r)
		v.o("VCVTDQ2PS", r, r)
		v.o("VMULPS", scale, r, r)
	}
	v.o("VMOVUPS", x, f32(lo, "DI"))
	v.o("VMOVUPS", h, f32(hi, "DI"))
}
