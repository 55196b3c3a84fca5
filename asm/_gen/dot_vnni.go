package main

import (
	"fmt"
	"strings"
)

// Integer kernels with 512-bit registers and AVX-512 VNNI. Weights are unsigned bytes, activations signed: VPDPBUSD takes four
// activations as an embedded broadcast, one load and one dot product for 64 weights; the weights' offset is undone by starting
// the sum at -offset*sum(x).
//
// Kernels over packed panels (Gemv, Small) take the weights apart in registers:
//
//	Z0..Z5   integer sums of the rows        DI  weights             SI, R8, AX  activations: rows 0, 3, stride
//	Z6..Z11  second sums; temporaries;       DX  D                   R9          B or SD
//	         minima of Q2_K
//	Z12..Z17 float accumulators              R10 Mp                  CX          groups left
//	Z18..Z23 sums over a K-quant's group     BX  prefetch distance   R11         turns of an inner loop
//	Z24..Z29 weights, scales                 R12, R13 pointers, with several rows
//	Z30, Z31 masks; values of Code4          0(SP) Y, 8(SP) panels left, 16(SP) slices left
//
// Kernels over unpacked panels (Gemm) compute 2 panels x 1..6 rows: a broadcast activation serves two weight vectors.

// int512 is an integer layout.
type int512 struct {
	name       string
	bytes      int // of a group
	vecs       int // blocks of 32: weight vectors of a block
	nib        bool
	high       int // place of fifth bits; 0: none
	d, m       int // blocks of 32: places of d and m; 0: none
	scales     int // scales per 256: place of those of the sub-blocks
	sub        int // sub-blocks of 16: bytes of the weights of one; 0: sub-blocks of 32
	unpacked   int // bytes of an unpacked group; 0: as packed
	tail, gemm int // bytes of scales; which micro-kernel: 0 Q8, 1 Q8 with m, 2 Q4_K, 3 Q6_K, 4 Code4, 5 Q2_K
}

func (l *int512) k() bool    { return l.scales != 0 }
func (l *int512) six() bool  { return l.name == "Q6_K" }
func (l *int512) code() bool { return l.name == "Code4" }
func (l *int512) two() bool  { return l.name == "Q2_K" }

var ints512 = []*int512{
	{name: "Q8_0", bytes: 1088, vecs: 8, d: 1024},
	{name: "Q4_0", bytes: 576, vecs: 4, nib: true, d: 512, unpacked: 1088, tail: 64},
	{name: "Q4_1", bytes: 640, vecs: 4, nib: true, d: 512, m: 576, unpacked: 1152, tail: 128, gemm: 1},
	{name: "Q5_0", bytes: 704, vecs: 4, nib: true, high: 512, d: 640, unpacked: 1088, tail: 64},
	{name: "Q5_1", bytes: 768, vecs: 4, nib: true, high: 512, d: 640, m: 704, unpacked: 1152, tail: 128, gemm: 1},
	{name: "Q4_K", bytes: 2368, scales: 2048, unpacked: 4416, tail: 320, gemm: 2},
	{name: "Q5_K", bytes: 2880, high: 2048, scales: 2560, unpacked: 4416, tail: 320, gemm: 2},
	{name: "Q6_K", bytes: 3392, scales: 3072, sub: 192, unpacked: 4416, tail: 320, gemm: 3},
	{name: "Code4", bytes: 2368, scales: 2048, sub: 128, unpacked: 4416, tail: 320, gemm: 4},
	{name: "Q2_K", bytes: 1344, scales: 1024, sub: 64, unpacked: 4416, tail: 320, gemm: 5},
}

var gemms512 = []string{"vnniGemmQ8x", "vnniGemmQ8Mx", "vnniGemmQ4Kx", "vnniGemmQ6Kx", "vnniGemmCode4x", "vnniGemmQ2Kx"}

func dotVNNI() {
	e := newGen("dot", "dot", "../dot/dot_vnni", "Args", dotFields)
	g := newGen("dot", "dot", "../dot/dot_vnni_gemm", "Args", dotFields)
	table := "\n// VNNI is the set of kernels that need AVX-512 VNNI.\nvar VNNI = Set{Of: [Layouts]Kernels{\n"
	for _, l := range ints512 {
		for rows := 1; rows <= 6; rows++ {
			(&panel512{e: e, l: l, rows: rows}).emit()
		}
		unpack := ""
		if l.unpacked != 0 {
			unpack = "vnniUnpack" + l.name
			unpack512(g, l)
		}
		k := kernelsOf("vnniGemv"+l.name, "vnniSmall"+l.name+"x", gemms512[l.gemm], 2, unpack, l.unpacked)
		table += "\t" + l.name + ": " + strings.TrimSuffix(k, "}") + ", Few: 48, Folds: true},\n" // beyond 48 rows unpacking panels pays
	}
	for rows := 1; rows <= 6; rows++ {
		gemmQ8(g, rows, false)
		gemmQ8(g, rows, true)
		gemmK(g, rows, "Q4K")
		gemmK(g, rows, "Q6K")
		gemmK(g, rows, "Code4")
		gemmQ2K(g, rows)
	}
	e.table(table + "}}\n")
	e.write()
	g.write()
}

// panel512 emits a kernel over packed panels.
type panel512 struct {
	e    *gen
	l    *int512
	rows int
	name string
	acc  int // float accumulator of row 0
}

// w is the address of weight byte off.
func (k *panel512) w(off int) string {
	return fmt.Sprintf("%d(DI)", off)
}

// fetch prefetches the line at weight byte off, a distance ahead.
func (k *panel512) fetch(off int) {
	k.e.p("PREFETCHT0 %d(DI)(BX*1)", off)
}

// fetchPart is step i of n that prefetch the lines of a group in the order of their addresses. Types whose fifth bits lie apart
// from the nibbles need it: with prefetches in the order of use Q5_K reached 73 % of the read loop's rate, so 78 to 88 %.
func (k *panel512) fetchPart(i, n int) {
	lines := k.l.bytes / 64
	for l := i * lines / n; l < (i+1)*lines/n; l++ {
		k.fetch(64 * l)
	}
}

func (k *panel512) emit() {
	e, l := k.e, k.l
	switch {
	case k.rows == 1:
		k.name = "vnniGemv" + l.name
		e.fnFrame(k.name, "multiplies one activation row with Panels panels of "+l.name+".", 24)
	default:
		k.name = fmt.Sprintf("vnniSmall%sx%d", l.name, k.rows)
		frame := 24
		if k.folded() {
			frame += 8 * 32
		}
		e.fnFrame(k.name, fmt.Sprintf("multiplies %d activation rows with Panels panels of %s.", k.rows, l.name), frame)
	}
	e.arg("CX")
	l.constants(e)
	if k.folded() {
		rowsMask(e, k.rows)
	}
	e.ld("CX", "W", "DI")
	e.ld("CX", "Pf", "BX")
	e.ld("CX", "Mp", "R10")
	e.ld("CX", "Y", "R8")
	e.ld("CX", "Panels", "R9")
	e.p("MOVQ R8, 0(SP)")
	e.p("MOVQ R9, 8(SP)")
	e.p("MOVQ $1, 16(SP)")
	e.lab(k.name + "_panel")
	e.arg("CX")
	k.start()
	e.p("DECQ 16(SP)")
	e.p("JGT %s_slice", k.name)
	e.ld("CX", "Slices", "AX")
	e.p("MOVQ AX, 16(SP)")
	e.ld("CX", "X", "SI")
	e.ld("CX", "D", "DX")
	if l.m != 0 {
		e.ld("CX", "SD", "R9")
	} else {
		e.ld("CX", "B", "R9")
	}
	e.lab(k.name + "_slice")
	if k.rows > 1 {
		e.ld("CX", "XStride", "AX")
		e.p("LEAQ (AX)(AX*2), R8")
		e.p("ADDQ SI, R8")
	}
	e.ld("CX", "Groups", "CX")
	e.lab(k.name + "_group")
	k.acc = 12
	k.group()
	k.advance()
	e.p("DECQ CX")
	e.p("JNZ %s_group", k.name)
	k.finish()
	e.ret()
}

// constants fills Z31 and Z30 with what takes weights apart; CX holds the arguments, AX and Z29 are free.
func (l *int512) constants(e *gen) {
	if l.name != "Q8_0" && !l.two() {
		e.bytesIn(0x0f, 31)
	}
	switch {
	case l.two():
		e.bytesIn(0x03, 31)
		e.p("MOVL $0x0f, AX") // of a dword
		e.p("VPBROADCASTD AX, Z30")
	case l.code():
		// The values unsigned, +128: the offset is four times that of Q6_K.
		e.ld("CX", "Values", "AX")
		e.p("VBROADCASTI32X4 (AX), Z30")
		e.bytesIn(0x80, 29)
		e.p("VPXORD Z29, Z30, Z30")
	case l.six():
		e.bytesIn(0x30, 30)
	case l.high != 0:
		e.bytesIn(0x10, 30)
	}
}

// outputs calls f for each accumulator with the address of its outputs; AX is the stride of rows, R8 the base.
func (k *panel512) outputs(f func(reg int, addr string)) {
	e := k.e
	e.p("MOVQ 0(SP), R8")
	n := k.rows
	if n > 1 {
		e.ld("CX", "YStride", "AX")
	}
	for r := 0; r < n; r++ {
		if r == 3 {
			e.p("LEAQ (AX)(AX*2), R11")
			e.p("ADDQ R11, R8")
		}
		f(12+r, "(R8)"+[]string{"", "(AX*1)", "(AX*2)"}[r%3])
	}
}

// start sets the accumulators to zero or to the outputs.
func (k *panel512) start() {
	e := k.e
	for r := range k.rows {
		e.zero(12 + r)
	}
	e.ld("CX", "Cont", "AX")
	e.p("TESTQ AX, AX")
	e.p("JEQ %s_zero", k.name)
	k.outputs(func(reg int, addr string) { e.p("VMOVUPS %s, Z%d", addr, reg) })
	e.lab(k.name + "_zero")
}

// finish stores the outputs and goes to the next panel.
func (k *panel512) finish() {
	e := k.e
	e.arg("CX")
	k.outputs(func(reg int, addr string) { e.p("VMOVUPS Z%d, %s", reg, addr) })
	e.p("ADDQ $64, 0(SP)")
	e.ld("CX", "Groups", "AX") // DI went through Groups groups
	e.p("IMUL3Q $%d, AX, AX", k.l.bytes)
	e.p("SUBQ AX, DI")
	e.ld("CX", "WStep", "AX")
	e.p("ADDQ AX, DI")
	e.p("DECQ 8(SP)")
	e.p("JNZ %s_panel", k.name)
}

func (k *panel512) group() {
	switch {
	case k.l.sub != 0 && k.rows == 1:
		k.sixteens()
	case k.l.sub != 0:
		k.sixteensLoop()
	case k.l.k() && k.rows == 1:
		k.fours()
	case k.l.k():
		k.foursLoop()
	default:
		for b := 0; b < 2; b++ {
			k.block(b)
		}
	}
}

// advance moves the pointers to the next group, unless the body's loop did.
func (k *panel512) advance() {
	e, l := k.e, k.l
	loop := l.k() && k.rows > 1
	switch {
	case loop && l.sub != 0:
		e.p("ADDQ $%d, DI", l.bytes-l.scales)
	case loop:
		e.p("ADDQ $%d, DI", l.bytes-2048)
	default:
		e.p("ADDQ $%d, DI", l.bytes)
		step := 64
		if l.k() {
			step = 256
		}
		e.p("ADDQ $%d, SI", step)
		if k.rows > 3 {
			e.p("ADDQ $%d, R8", step)
		}
	}
	switch {
	case !l.k():
		e.p("LEAQ (DX)(R10*2), DX")
		e.p("LEAQ (R9)(R10*2), R9")
	case l.sub != 0:
		e.p("ADDQ R10, DX")
		if k.rows == 1 {
			e.p("MOVQ R8, R9")
		}
	default:
		e.p("ADDQ R10, DX")
		e.p("LEAQ (R9)(R10*4), R9")
	}
}

// nibbles splits the vector at addr: low nibbles to Z24, high ones to Z25.
func (k *panel512) nibbles(addr string) {
	e := k.e
	e.p("VMOVDQU64 %s, Z24", addr)
	e.p("VPSRLW $4, Z24, Z25")
	e.p("VPANDD Z24, Z31, Z24")
	e.p("VPANDD Z25, Z31, Z25")
}

// bit4 adds bit i of each byte of Zh as bit 4 to Zw; t is free. A | (B & C) is VPTERNLOG 0xf8 on (A, B, C).
func bit4(e *gen, i, h, w, t int) {
	switch {
	case i < 4:
		e.p("VPSLLW $%d, Z%d, Z%d", 4-i, h, t)
		h = t
	case i > 4:
		e.p("VPSRLW $%d, Z%d, Z%d", i-4, h, t)
		h = t
	}
	e.p("VPTERNLOGD $0xf8, Z30, Z%d, Z%d", h, w)
}

// block is one of the two blocks of 32 K of a group. With few rows, two sums per row shorten the chains.
func (k *panel512) block(b int) {
	e, l := k.e, k.l
	at := func(reg string, r int) string {
		if b == 0 {
			return fmt.Sprintf("%d(%s)", 4*r, reg)
		}
		return fmt.Sprintf("%d(%s)(R10*1)", 4*r, reg)
	}
	second := 0
	if k.rows <= 3 {
		second = 6
	}
	for r := 0; r < k.rows; r++ {
		if l.m == 0 {
			e.p("VPBROADCASTD %s, Z%d", at("R9", r), r)
		} else {
			e.zero(r)
		}
		if second != 0 {
			e.zero(second + r)
		}
	}
	if l.high != 0 {
		e.p("VMOVDQU64 %s, Z26", k.w(l.high+64*b))
	}
	for i := 0; i < l.vecs; i++ {
		off := 64 * (b*l.vecs + i)
		k.fetchPart(b*l.vecs+i, 2*l.vecs)
		if !l.nib {
			e.p("VMOVDQU64 %s, Z24", k.w(off))
			for r := 0; r < k.rows; r++ {
				e.p("VPDPBUSD.BCST %s, Z24, Z%d", xrow(r, 32*b+4*i), r+second*(i%2))
			}
			continue
		}
		k.nibbles(k.w(off))
		if l.high != 0 {
			bit4(e, i, 26, 24, 27)
			bit4(e, i+4, 26, 25, 28)
		}
		for r := 0; r < k.rows; r++ {
			e.p("VPDPBUSD.BCST %s, Z24, Z%d", xrow(r, 32*b+4*i), r)
		}
		for r := 0; r < k.rows; r++ {
			e.p("VPDPBUSD.BCST %s, Z25, Z%d", xrow(r, 32*b+16+4*i), r+second)
		}
	}
	e.p("VCVTPH2PS %s, Z28", k.w(l.d+32*b))
	if l.m != 0 {
		e.p("VCVTPH2PS %s, Z29", k.w(l.m+32*b))
	}
	for r := 0; r < k.rows; r++ {
		if second != 0 {
			e.p("VPADDD Z%d, Z%d, Z%d", second+r, r, r)
		}
		e.p("VMULPS.BCST %s, Z28, Z27", at("DX", r))
		e.p("VCVTDQ2PS Z%d, Z%d", r, r)
		e.p("VFMADD231PS Z27, Z%d, Z%d", r, k.acc+r)
		if l.m != 0 {
			e.p("VFMADD231PS.BCST %s, Z29, Z%d", at("R9", r), k.acc+r)
		}
	}
}

// fours is a group of Q4_K or Q5_K, one row, unrolled.
func (k *panel512) fours() {
	e, l := k.e, k.l
	e.zero(18)
	e.zero(20)
	for p := 0; p < 4; p++ {
		k.pair(k.w, 512*p, l.high+128*p, 64*p, l.scales+32*p)
	}
	k.minima(k.w, l.scales+128, 20)
	for off := l.scales; off < l.bytes && l.high == 0; off += 64 {
		k.fetch(off)
	}
	k.scaleK(k.w, l.scales+256, 20)
}

// pair adds the sub-blocks 2p, 2p+1 of Q4_K or Q5_K to Z18..: nibbles at q, fifth bits at h, activations at x, scales at s.
func (k *panel512) pair(w func(int) string, q, h, x, s int) {
	e, l := k.e, k.l
	for r := 0; r < k.rows; r++ {
		e.zero(r)
		e.zero(6 + r)
	}
	high := func(off int) string { return w(off) }
	scale := high
	if k.rows > 1 {
		high = func(off int) string { return fmt.Sprintf("%d(R12)", off) }
		scale = func(off int) string { return fmt.Sprintf("%d(R13)", off) }
	}
	if l.high != 0 {
		for i := 0; i < 2; i++ {
			if k.rows > 1 {
				e.p("PREFETCHT0 %d(R12)(BX*1)", 64*i)
			}
			e.p("VMOVDQU64 %s, Z%d", high(h+64*i), 26+i)
		}
	}
	for i := 0; i < 8; i++ {
		if l.high != 0 && k.rows == 1 {
			k.fetchPart(q/64+i, 32)
		} else {
			k.fetch(q + 64*i)
		}
		k.nibbles(w(q + 64*i))
		if l.high != 0 {
			bit4(e, i, 26, 24, 28)
			bit4(e, i, 27, 25, 29)
		}
		for r := 0; r < k.rows; r++ {
			e.p("VPDPBUSD.BCST %s, Z24, Z%d", xrow(r, x+4*i), r)
		}
		for r := 0; r < k.rows; r++ {
			e.p("VPDPBUSD.BCST %s, Z25, Z%d", xrow(r, x+32+4*i), 6+r)
		}
	}
	for i := 0; i < 2; i++ {
		e.p("VPMOVZXBD %s, Z28", scale(s+16*i))
		e.p("VCVTDQ2PS Z28, Z28")
		for r := 0; r < k.rows; r++ {
			e.p("VCVTDQ2PS Z%d, Z%d", 6*i+r, 6*i+r)
			e.p("VFMADD231PS Z28, Z%d, Z%d", 6*i+r, 18+r)
		}
	}
}

// minima sums the minima at off times the sums of activations in Z(to)..
func (k *panel512) minima(w func(int) string, off, to int) {
	for t := 0; t < 4; t++ {
		k.e.p("VPMOVZXBW %s, Z24", w(off+32*t))
		for r := 0; r < k.rows; r++ {
			k.e.p("VPDPWSSD.BCST %d(R9), Z24, Z%d", 16*r+4*t, to+r)
		}
	}
}

// scaleK ends a group of Q4_K or Q5_K: d and dmin at off, sums in Z18.., minima in Z(mins)...
func (k *panel512) scaleK(w func(int) string, off, mins int) {
	e := k.e
	e.p("VCVTPH2PS %s, Z28", w(off))
	e.p("VCVTPH2PS %s, Z29", w(off+32))
	for r := 0; r < k.rows; r++ {
		e.p("VMULPS.BCST %d(DX), Z28, Z26", 4*r)
		e.p("VMULPS.BCST %d(DX), Z29, Z27", 4*r)
		e.p("VCVTDQ2PS Z%d, Z%d", mins+r, mins+r)
		e.p("VFMADD231PS Z26, Z%d, Z%d", 18+r, k.acc+r)
		e.p("VFNMADD231PS Z27, Z%d, Z%d", mins+r, k.acc+r)
	}
}

// foursLoop is fours for several rows, a loop over pairs: R12 fifth bits, R13 scales.
func (k *panel512) foursLoop() {
	e, l := k.e, k.l
	for r := 0; r < k.rows; r++ {
		e.zero(18 + r)
	}
	for off := l.scales; off < l.bytes; off += 64 {
		k.fetch(off)
	}
	e.p("LEAQ %d(DI), R13", l.scales)
	if l.high != 0 {
		e.p("LEAQ %d(DI), R12", l.high)
	}
	e.p("MOVL $4, R11")
	e.lab(k.name + "_pair")
	k.pair(k.w, 0, 0, 0, 0)
	e.p("ADDQ $512, DI")
	e.p("ADDQ $32, R13")
	if l.high != 0 {
		e.p("ADDQ $128, R12")
	}
	e.p("ADDQ $64, SI")
	if k.rows > 3 {
		e.p("ADDQ $64, R8")
	}
	e.p("DECQ R11")
	e.p("JNZ %s_pair", k.name)
	for r := 0; r < k.rows; r++ {
		e.zero(r)
	}
	w := func(off int) string { return fmt.Sprintf("%d(R13)", off) }
	k.minima(w, 0, 0)
	k.scaleK(w, 128, 0)
}

// unpack6 makes Z24..Z27 of low nibbles Z6, Z7 and high bits Z8; Z31 and Z30 are the masks 0x0f and 0x30.
func unpack6(e *gen) {
	e.p("VPSRLW $4, Z6, Z25")
	e.p("VPSRLW $4, Z7, Z27")
	e.p("VPSLLW $4, Z8, Z9")
	e.p("VPSLLW $2, Z8, Z10")
	e.p("VPSRLW $2, Z8, Z11")
	e.p("VPANDD Z6, Z31, Z24")
	e.p("VPANDD Z25, Z31, Z25")
	e.p("VPANDD Z7, Z31, Z26")
	e.p("VPANDD Z27, Z31, Z27")
	e.p("VPTERNLOGD $0xf8, Z30, Z9, Z24")
	e.p("VPTERNLOGD $0xf8, Z30, Z10, Z25")
	e.p("VPTERNLOGD $0xf8, Z30, Z8, Z26")
	e.p("VPTERNLOGD $0xf8, Z30, Z11, Z27")
}

// unpackCode makes Z24..Z27 of indices Z6, Z7; Z31 is the mask 0x0f, Z30 the values.
func unpackCode(e *gen) {
	e.p("VPSRLW $4, Z6, Z25")
	e.p("VPSRLW $4, Z7, Z27")
	e.p("VPANDD Z6, Z31, Z24")
	e.p("VPANDD Z25, Z31, Z25")
	e.p("VPANDD Z7, Z31, Z26")
	e.p("VPANDD Z27, Z31, Z27")
	for i := 24; i < 28; i++ {
		e.p("VPSHUFB Z%d, Z30, Z%d", i, i)
	}
}

// unpack2 makes Z24..Z27 of the weights Z24 of Q2_K; Z31 is the mask 0x03.
func unpack2(e *gen) {
	for i := 1; i < 4; i++ {
		e.p("VPSRLW $%d, Z24, Z%d", 2*i, 24+i)
	}
	for i := 24; i < 28; i++ {
		e.p("VPANDD Z%d, Z31, Z%d", i, i)
	}
}

// sub2 is sub16 for Q2_K. All its sums over a group are integers that float32 holds, so that they stay integers until its end, which
// is as exact: a sub-block's sum is at most 16*3*127, one word, and VPDPWSSD multiplies it with the scale, a word beside a zero. Z6..
// are the minima times the sums of activations, which are a word each after a shift by 5.
func (k *panel512) sub2(q, x int, s, b string) {
	e := k.e
	for r := 0; r < k.rows; r++ {
		e.zero(r)
	}
	if !k.inOrder() {
		k.fetch(q)
	}
	e.p("VMOVDQU64 %s, Z24", k.w(q))
	unpack2(e)
	for i := 0; i < 4; i++ {
		for r := 0; r < k.rows; r++ {
			e.p("VPDPBUSD.BCST %s, Z%d, Z%d", xrow(r, x+4*i), 24+i, r)
		}
	}
	e.p("VPMOVZXBD %s, Z28", s)
	e.p("VPSRLD $4, Z28, Z29")
	e.p("VPANDD Z30, Z28, Z28")
	for r := 0; r < k.rows; r++ {
		e.p("VPSRAD.BCST $5, %d(%s), Z%d", 4*r, b, 24+r%4)
		e.p("VPDPWSSD Z%d, Z28, Z%d", r, 18+r)
		e.p("VPDPWSSD Z%d, Z29, Z%d", 24+r%4, 6+r)
	}
	e.p("ADDQ R10, %s", b)
}

// folded reports whether weights are multiplied by the scales of their sub-blocks, and minima summed in pairs: with this many rows
// that costs less than VPDPWSSD for each row and sub-block.
func (k *panel512) folded() bool { return k.l.two() && k.rows >= 4 }

// times2 multiplies the weights Z24..Z27 of Q2_K by the scales that are in the low nibbles of the dwords of Z28, which it overwrites, as
// it does Z29. Neighbours stay apart: products are at most 45.
func times2(e *gen) {
	e.p("VPANDD Z30, Z28, Z28")
	e.p("VPSLLD $16, Z28, Z29")
	e.p("VPORD Z29, Z28, Z28")
	for i := 24; i < 28; i++ {
		e.p("VPMULLW Z28, Z%d, Z%d", i, i)
	}
}

// twosLoop goes through a group of Q2_K with folded scales: R12 pairs of sums, R13 scales. Two sums of a row, at Z0.. and Z18.., shorten
// the chains, which go through the group.
func (k *panel512) twosLoop() {
	e := k.e
	pairs2(e, 24, func(string) {})
	for r := 0; r < k.rows; r++ {
		e.zero(r)
	}
	e.p("LEAQ 24(SP), R12")
	e.p("MOVL $8, R11")
	e.lab(k.name + "_pair")
	for h := 0; h < 2; h++ {
		k.fetch(64 * h)
		e.p("VMOVDQU64 %s, Z24", k.w(64*h))
		unpack2(e)
		e.p("VPMOVZXBD %d(R13), Z28", 16*h)
		times2(e)
		for i := 0; i < 4; i++ {
			for r := 0; r < k.rows; r++ {
				e.p("VPDPBUSD.BCST %s, Z%d, Z%d", xrow(r, 16*h+4*i), 24+i, i%2*18+r)
			}
		}
	}
	e.p("VPMOVZXBD (R13), Z28")
	e.p("VPMOVZXBD 16(R13), Z29")
	e.p("VPSRLD $4, Z28, Z28")
	e.p("VPSRLD $4, Z29, Z29")
	e.p("VPSLLD $16, Z29, Z29")
	e.p("VPORD Z29, Z28, Z28")
	for r := 0; r < k.rows; r++ {
		e.p("VPDPWSSD.BCST %d(R12), Z28, Z%d", 4*r, 6+r)
	}
	e.p("ADDQ $128, DI")
	e.p("ADDQ $32, R12")
	e.p("ADDQ $32, R13")
	e.p("ADDQ $32, SI")
	e.p("ADDQ $32, R8")
	e.p("DECQ R11")
	e.p("JNZ %s_pair", k.name)
	for r := 0; r < k.rows; r++ {
		e.p("VPADDD Z%d, Z%d, Z%d", r, 18+r, 18+r)
	}
	k.scale16(256)
}

// inOrder reports whether prefetches go by address, with the lines of scales spread over the sub-blocks, and not with the loads of weights.
// One row of Code4 reached 88 instead of 86 % of the read loop's rate, Q2_K 96 instead of 95, Q6_K 88 instead of 92 (medians of 7).
func (k *panel512) inOrder() bool { return k.rows == 1 && !k.l.six() }

// scale2 ends a group of Q2_K, d at weight byte at; R11 is free.
func (k *panel512) scale2(at int) {
	e := k.e
	e.p("VCVTPH2PS %s, Z28", k.w(at))
	e.p("VCVTPH2PS %s, Z29", k.w(at+32))
	e.p("MOVL $0x3d000000, R11") // 1/32
	e.p("VPBROADCASTD R11, Z25")
	for r := 0; r < k.rows; r++ {
		e.p("VMULPS.BCST %d(DX), Z28, Z26", 4*r)
		e.p("VMULPS.BCST %d(DX), Z29, Z27", 4*r)
		e.p("VMULPS Z25, Z27, Z27")
		e.p("VCVTDQ2PS Z%d, Z%d", 18+r, 18+r)
		e.p("VPSLLD $5, Z%d, Z%d", 6+r, 6+r)
		e.p("VCVTDQ2PS Z%d, Z%d", 6+r, 6+r)
		e.p("VFMADD231PS Z26, Z%d, Z%d", 18+r, k.acc+r)
		e.p("VFMADD231PS Z27, Z%d, Z%d", 6+r, k.acc+r)
	}
}

// sub16 adds a sub-block of 16 K to Z18..: weights at q, activations at x, scale at address s; b is the register of its offsets.
func (k *panel512) sub16(q, x int, s, b string) {
	e, l := k.e, k.l
	if l.two() {
		k.sub2(q, x, s, b)
		return
	}
	for r := 0; r < k.rows; r++ {
		if l.code() {
			e.p("VPSLLD.BCST $2, %d(%s), Z%d", 4*r, b, r)
		} else {
			e.p("VPBROADCASTD %d(%s), Z%d", 4*r, b, r)
		}
	}
	e.p("ADDQ R10, %s", b)
	for i := 0; i < l.sub/64; i++ {
		if !k.inOrder() {
			k.fetch(q + 64*i)
		}
		e.p("VMOVDQU64 %s, Z%d", k.w(q+64*i), 6+i)
	}
	if l.code() {
		unpackCode(e)
	} else {
		unpack6(e)
	}
	for i := 0; i < 4; i++ {
		for r := 0; r < k.rows; r++ {
			e.p("VPDPBUSD.BCST %s, Z%d, Z%d", xrow(r, x+4*i), 24+i, r)
		}
	}
	e.p("VPMOVSXBD %s, Z28", s)
	e.p("VCVTDQ2PS Z28, Z28")
	for r := 0; r < k.rows; r++ {
		e.p("VCVTDQ2PS Z%d, Z%d", r, r)
		e.p("VFMADD231PS Z28, Z%d, Z%d", r, 18+r)
	}
}

// scale16 ends a group; d at weight byte at.
func (k *panel512) scale16(at int) {
	e := k.e
	switch {
	case k.l.two():
		k.scale2(at)
		return
	case k.l.code():
		e.p("VMOVUPS %s, Z28", k.w(at))
	default:
		e.p("VCVTPH2PS %s, Z28", k.w(at))
	}
	for r := 0; r < k.rows; r++ {
		e.p("VMULPS.BCST %d(DX), Z28, Z29", 4*r)
		e.p("VFMADD231PS Z29, Z%d, Z%d", 18+r, k.acc+r)
	}
}

// zero16 starts the sums over a group.
func (k *panel512) zero16() {
	for r := 0; r < k.rows; r++ {
		k.e.zero(18 + r)
		if k.l.two() {
			k.e.zero(6 + r)
		}
	}
}

// sixteens is a group with sub-blocks of 16, one row, unrolled; R8 walks the offsets.
func (k *panel512) sixteens() {
	e, l := k.e, k.l
	k.zero16()
	e.p("MOVQ R9, R8")
	for j := 0; j < 16; j++ {
		if k.inOrder() {
			k.fetchPart(j, 16)
		}
		k.sub16(l.sub*j, 16*j, k.w(l.scales+16*j), "R8")
	}
	for off := l.scales; off < l.bytes && !k.inOrder(); off += 64 {
		k.fetch(off)
	}
	k.scale16(l.scales + 256)
}

// sixteensLoop is sixteens for several rows, a loop over sub-blocks: R13 scales.
func (k *panel512) sixteensLoop() {
	e, l := k.e, k.l
	k.zero16()
	for off := l.scales; off < l.bytes; off += 64 {
		k.fetch(off)
	}
	e.p("LEAQ %d(DI), R13", l.scales)
	if k.folded() {
		k.twosLoop()
		return
	}
	e.p("MOVL $16, R11")
	e.lab(k.name + "_sub")
	k.sub16(0, 0, "(R13)", "R9")
	e.p("ADDQ $%d, DI", l.sub)
	e.p("ADDQ $16, R13")
	e.p("ADDQ $16, SI")
	if k.rows > 3 {
		e.p("ADDQ $16, R8")
	}
	e.p("DECQ R11")
	e.p("JNZ %s_sub", k.name)
	k.scale16(256)
}

// Micro-kernels: 2 panels x rows. Z0..Z11 integer sums (two per row), Z12..Z23 float accumulators or a K-quant's sums over a group,
// Z24, Z25 weights, Z26, Z27 activations, Z28..Z31 scales. DI weights, R11 distance to the second panel; SI, R8, AX activations; DX D;
// R9 B or SD; R10 Mp; CX groups left; BX scales; R12 turns; R13 Acc; R14 activations to prefetch; 0(SP) slices left, 8(SP) slices
// done. At Acc float accumulators, behind them the tree's pending sums of 1, 2 and 4 slices, 768 bytes each.

// tile512 loads the arguments and starts the accumulators: Z12.. or, with acc, the scratch.
func tile512(e *gen, name string, rows int, b string, acc bool) {
	e.arg("BX")
	e.ld("BX", "Slices", "SI")
	e.p("MOVQ SI, 0(SP)")
	e.p("MOVQ $0, 8(SP)")
	for _, f := range [][2]string{{"W", "DI"}, {"WFar", "R11"}, {"X", "SI"}, {"XStride", "AX"}, {"D", "DX"}, {b, "R9"}, {"Mp", "R10"}, {"Src", "R14"}} {
		e.ld("BX", f[0], f[1])
	}
	e.p("LEAQ (AX)(AX*2), R8")
	e.p("ADDQ SI, R8")
	for i := 0; i < 2*rows; i++ {
		e.zero(12 + i)
	}
	e.ld("BX", "Cont", "CX")
	e.p("TESTQ CX, CX")
	e.p("JEQ %s_fetch", name)
	tileOutputs(e, rows, func(reg int, addr string) { e.p("VMOVUPS %s, Z%d", addr, reg) })
	e.lab(name + "_fetch")
	// While the tile is computed: with a residual to be added, 59 % of the peak became 68 (K = N = 2048 in the engine).
	tileOutputs(e, rows, func(_ int, addr string) { e.p("PREFETCHT0 %s", addr) })
	e.lab(name + "_slice")
	if acc {
		e.ld("BX", "Acc", "R13")
		for i := 0; i < 2*rows; i++ {
			e.p("VMOVUPS Z%d, %d(R13)", 12+i, 64*i)
		}
	}
	e.ld("BX", "Groups", "CX")
	e.lab(name + "_group")
}

// tileEnd adds a slice to the tree and goes on with the next one, which follows in W, X, D and B; after the last it stores the
// outputs. A slice meets the pending sums as a binary number's carry meets its ones, so the tree is that of GoFold. Slices stored
// one by one and added by a call for each row cost 400 to 600 cycles for six rows, 9 % of the time at K = 2048.
func tileEnd(e *gen, name string, rows int, acc bool) {
	e.p("DECQ CX")
	e.p("JNZ %s_group", name)
	e.arg("BX")
	if acc {
		for i := 0; i < 2*rows; i++ {
			e.p("VMOVUPS %d(R13), Z%d", 64*i, 12+i)
		}
	} else {
		e.ld("BX", "Acc", "R13")
	}
	e.p("MOVQ 8(SP), R12")
	e.lab(name + "_tree")
	e.p("ADDQ $768, R13")
	e.p("TESTQ $1, R12")
	e.p("JEQ %s_leaf", name)
	for i := 0; i < 2*rows; i++ {
		e.p("VADDPS %d(R13), Z%d, Z%d", 64*i, 12+i, 12+i)
	}
	e.p("SHRQ $1, R12")
	e.p("JMP %s_tree", name)
	e.lab(name + "_leaf")
	e.p("INCQ 8(SP)")
	e.p("DECQ 0(SP)")
	e.p("JLE %s_out", name)
	for i := 0; i < 2*rows; i++ {
		e.p("VMOVUPS Z%d, %d(R13)", 12+i, 64*i)
		e.zero(12 + i)
	}
	e.p("JMP %s_slice", name)
	e.lab(name + "_out")
	e.ld("BX", "Bias", "CX")
	e.p("TESTQ CX, CX")
	e.p("JEQ %s_add", name)
	e.ld("BX", "YFar", "R13")
	for i := 0; i < 2*rows; i++ {
		e.p("VADDPS (CX)%s, Z%d, Z%d", []string{"", "(R13*1)"}[i%2], 12+i, 12+i)
	}
	e.lab(name + "_add")
	e.ld("BX", "Add", "CX")
	e.p("TESTQ CX, CX")
	e.p("JEQ %s_store", name)
	tileOutputs(e, rows, func(reg int, addr string) { e.p("VADDPS %s, Z%d, Z%d", addr, reg, reg) })
	e.lab(name + "_store")
	tileOutputs(e, rows, func(reg int, addr string) { e.p("VMOVUPS Z%d, %s", reg, addr) })
	e.ret()
}

// tileOutputs calls f for each accumulator and the address of its outputs; BX holds the arguments.
func tileOutputs(e *gen, rows int, f func(reg int, addr string)) {
	e.ld("BX", "Y", "R12")
	e.ld("BX", "YStride", "CX")
	e.ld("BX", "YFar", "R13")
	for r := 0; r < rows; r++ {
		f(12+2*r, "(R12)")
		f(13+2*r, "(R12)(R13*1)")
		e.p("ADDQ CX, R12")
	}
}

// fetchRows prefetches for the next tile of rows: with x the activations that 32 K of it take, in the order of memory, and the scales
// or sums of the current blocks, by register the bytes that a row has there. Without it the engine's prefill, whose buffers lie in
// huge pages, had 62 % of the peak instead of 69; benchmarks on small pages showed no difference.
func fetchRows(e *gen, rows int, x bool, blocks map[string]int) {
	if x {
		n := (rows + 1) / 2
		for i := 0; i < n; i++ {
			e.p("PREFETCHT0 %d(R14)", 64*i)
		}
		e.p("ADDQ $%d, R14", 64*n)
	}
	for _, reg := range []string{"DX", "R9"} {
		for b := blocks[reg] * rows; b > 0; b -= 64 {
			e.p("PREFETCHT0 %d(%s)", blocks[reg]*rows+b-4, reg)
		}
	}
}

// dots512 adds n vectors at weight byte w to the integer sums.
func dots512(e *gen, rows, n, w, x int) {
	for i := 0; i < n; i++ {
		e.p("VMOVDQU64 %d(DI), Z24", w+64*i)
		e.p("VMOVDQU64 %d(DI)(R11*1), Z25", w+64*i)
		for r := 0; r < rows; r++ {
			t := 26 + r%2
			e.p("VPBROADCASTD %s, Z%d", xrow(r, x+4*i), t)
			e.p("VPDPBUSD Z%d, Z24, Z%d", t, 2*r)
			e.p("VPDPBUSD Z%d, Z25, Z%d", t, 2*r+1)
		}
	}
}

// gemmQ8 is the micro-kernel of the types with blocks of 32: groups of 1088 bytes, with minima (m) 1152.
func gemmQ8(e *gen, rows int, m bool) {
	name, b, bytes := fmt.Sprintf("vnniGemmQ8x%d", rows), "B", 1088
	if m {
		name, b, bytes = fmt.Sprintf("vnniGemmQ8Mx%d", rows), "SD", 1152
	}
	e.fnFrame(name, fmt.Sprintf("multiplies %d activation rows with two panels of one byte per weight, scales (M: and minima) per 32 K.", rows), 16)
	tile512(e, name, rows, b, false)
	for b := 0; b < 2; b++ {
		for r := 0; r < rows; r++ {
			if m {
				e.zero(2 * r)
				e.zero(2*r + 1)
			} else {
				e.p("VPBROADCASTD %d(R9), Z%d", 4*r, 2*r)
				e.p("VMOVDQA64 Z%d, Z%d", 2*r, 2*r+1)
			}
		}
		fetchRows(e, rows, true, map[string]int{"DX": 4, "R9": 4})
		dots512(e, rows, 8, 512*b, 32*b)
		e.p("VCVTPH2PS %d(DI), Z28", 1024+32*b)
		e.p("VCVTPH2PS %d(DI)(R11*1), Z29", 1024+32*b)
		if m {
			e.p("VCVTPH2PS %d(DI), Z24", 1088+32*b)
			e.p("VCVTPH2PS %d(DI)(R11*1), Z25", 1088+32*b)
		}
		for r := 0; r < rows; r++ {
			// One load for both panels, here and of the offsets, instead of embedded broadcasts: four loads fewer per row and group.
			e.p("VBROADCASTSS %d(DX), Z%d", 4*r, 26+r%2)
			e.p("VMULPS Z%d, Z28, Z30", 26+r%2)
			e.p("VMULPS Z%d, Z29, Z31", 26+r%2)
			if m {
				e.p("VBROADCASTSS %d(R9), Z%d", 4*r, 26+r%2)
			}
			for k := 0; k < 2; k++ {
				e.p("VCVTDQ2PS Z%d, Z%d", 2*r+k, 2*r+k)
				e.p("VFMADD231PS Z%d, Z%d, Z%d", 30+k, 2*r+k, 12+2*r+k)
				if m {
					e.p("VFMADD231PS Z%d, Z%d, Z%d", 26+r%2, 24+k, 12+2*r+k)
				}
			}
		}
		e.p("ADDQ R10, DX")
		e.p("ADDQ R10, R9")
	}
	e.p("ADDQ $%d, DI", bytes)
	e.p("ADDQ $64, SI")
	e.p("ADDQ $64, R8")
	tileEnd(e, name, rows, false)
}

// gemmK is the micro-kernel of unpacked Q4_K (and Q5_K), Q6_K, Code4: 64 vectors of bytes, then 320 bytes of scales. The float
// accumulators are in the scratch, for the registers are full.
func gemmK(e *gen, rows int, of string) {
	name, four := fmt.Sprintf("vnniGemm%sx%d", of, rows), of == "Q4K"
	e.fnFrame(name, fmt.Sprintf("multiplies %d activation rows with two unpacked panels of a K-quant.", rows), 16)
	tile512(e, name, rows, "B", true)
	e.p("LEAQ 4096(DI), BX")
	for i := 0; i < 2*rows; i++ {
		e.zero(12 + i)
	}
	e.p("MOVL $8, R12")
	e.lab(name + "_sub")
	if !four {
		for j := 0; j < 2; j++ {
			for r := 0; r < rows; r++ {
				if of == "Code4" {
					e.p("VPSLLD.BCST $2, %d(R9), Z%d", 4*r, 2*r)
				} else {
					e.p("VPBROADCASTD %d(R9), Z%d", 4*r, 2*r)
				}
				e.p("VMOVDQA64 Z%d, Z%d", 2*r, 2*r+1)
			}
			fetchRows(e, rows, j == 0, map[string]int{"R9": 4})
			dots512(e, rows, 4, 256*j, 16*j)
			subK(e, rows, "VPMOVSXBD", 16*j)
			e.p("ADDQ R10, R9")
		}
		e.p("ADDQ $32, BX")
	} else {
		for r := 0; r < rows; r++ {
			e.zero(2 * r)
			e.zero(2*r + 1)
		}
		fetchRows(e, rows, true, nil)
		dots512(e, rows, 8, 0, 0)
		subK(e, rows, "VPMOVZXBD", 0)
		e.p("ADDQ $16, BX")
	}
	e.p("ADDQ $512, DI")
	e.p("ADDQ $32, SI")
	e.p("ADDQ $32, R8")
	e.p("DECQ R12")
	e.p("JNZ %s_sub", name)
	at := []string{"(DI)", "(DI)(R11*1)"} // now at the scales
	if four {
		for i := 0; i < 2*rows; i++ {
			e.zero(i)
		}
		fetchRows(e, rows, false, map[string]int{"R9": 16})
		for t := 0; t < 4; t++ {
			e.p("VPMOVZXBW %d%s, Z24", 128+32*t, at[0])
			e.p("VPMOVZXBW %d%s, Z25", 128+32*t, at[1])
			for r := 0; r < rows; r++ {
				e.p("VPBROADCASTD %d(R9), Z%d", 16*r+4*t, 26+r%2)
				e.p("VPDPWSSD Z%d, Z24, Z%d", 26+r%2, 2*r)
				e.p("VPDPWSSD Z%d, Z25, Z%d", 26+r%2, 2*r+1)
			}
		}
		e.p("LEAQ (R9)(R10*4), R9")
	}
	for k := 0; k < 2; k++ {
		if of == "Code4" {
			e.p("VMOVUPS 256%s, Z%d", at[k], 24+k)
		} else {
			e.p("VCVTPH2PS 256%s, Z%d", at[k], 24+k)
		}
		if four {
			e.p("VCVTPH2PS 288%s, Z%d", at[k], 26+k)
		}
	}
	for i := 0; i < 2*rows; i++ {
		e.p("VMOVUPS %d(R13), Z30", 64*i)
		e.p("VMULPS.BCST %d(DX), Z%d, Z28", i/2*4, 24+i%2)
		e.p("VFMADD231PS Z28, Z%d, Z30", 12+i)
		if four {
			e.p("VMULPS.BCST %d(DX), Z%d, Z29", i/2*4, 26+i%2)
			e.p("VCVTDQ2PS Z%d, Z%d", i, i)
			e.p("VFNMADD231PS Z29, Z%d, Z30", i)
		}
		e.p("VMOVUPS Z30, %d(R13)", 64*i)
	}
	fetchRows(e, rows, false, map[string]int{"DX": 4})
	e.p("ADDQ R10, DX")
	e.p("ADDQ $320, DI")
	tileEnd(e, name, rows, true)
}

// rowsMask makes K1 the mask of the rows.
func rowsMask(e *gen, rows int) {
	e.p("MOVL $%d, AX", 1<<rows-1)
	e.p("KMOVW AX, K1")
}

// pairs2 stores on the stack, for each of eight pairs of sub-blocks, the sums of 16 activations of eight rows as pairs of words, which
// it makes of the 32-bit offsets of the rows in K1. R9 goes to the next group.
func pairs2(e *gen, at int, fetch func(addr string)) {
	for t := 0; t < 8; t++ {
		for i, addr := range []string{"(R9)", "(R9)(R10*1)"} {
			e.p("VMOVDQU32.Z %s, K1, Y%d", addr, i)
			fetch(addr)
		}
		e.p("VPSRLD $5, Y0, Y0")
		e.p("VPSLLD $11, Y1, Y1")
		e.p("VPBLENDW $0xaa, Y1, Y0, Y0")
		e.p("VMOVDQU Y0, %d(SP)", at+32*t)
		e.p("LEAQ (R9)(R10*2), R9")
	}
}

// gemmQ2K is the micro-kernel of unpacked Q2_K: 64 vectors of bytes, weights times the scales of their sub-blocks (at most 45), so
// that one integer sum runs through a group; 8 x 16 x 2 bytes of minima; d, dmin. At 16(SP) is what pairs2 makes.
func gemmQ2K(e *gen, rows int) {
	name := fmt.Sprintf("vnniGemmQ2Kx%d", rows)
	e.fnFrame(name, fmt.Sprintf("multiplies %d activation rows with two unpacked panels of Q2_K.", rows), 16+8*32)
	rowsMask(e, rows)
	tile512(e, name, rows, "B", false)
	pairs2(e, 16, func(addr string) { e.p("PREFETCHT0 %d%s", 8*rows-4, addr) }) // those of the next tile
	zero := func() {
		for i := 0; i < 2*rows; i++ {
			e.zero(i)
		}
	}
	zero()
	e.p("MOVL $8, R12")
	e.lab(name + "_sub")
	fetchRows(e, rows, true, nil)
	dots512(e, rows, 8, 0, 0)
	e.p("ADDQ $512, DI")
	e.p("ADDQ $32, SI")
	e.p("ADDQ $32, R8")
	e.p("DECQ R12")
	e.p("JNZ %s_sub", name)
	// DI is now at the scales. Z24 has 1/32.
	scale := func(off int) {
		e.p("VCVTPH2PS %d(DI), Z28", off)
		e.p("VCVTPH2PS %d(DI)(R11*1), Z29", off)
		for r := 0; r < rows; r++ {
			e.p("VBROADCASTSS %d(DX), Z%d", 4*r, 26+r%2)
			for k := 0; k < 2; k++ {
				i := 2*r + k
				e.p("VMULPS Z%d, Z%d, Z%d", 26+r%2, 28+k, 30+k)
				if off == 288 {
					e.p("VMULPS Z24, Z%d, Z%d", 30+k, 30+k)
					e.p("VPSLLD $5, Z%d, Z%d", i, i)
				}
				e.p("VCVTDQ2PS Z%d, Z%d", i, i)
				e.p("VFMADD231PS Z%d, Z%d, Z%d", 30+k, i, 12+i)
			}
		}
	}
	scale(256)
	zero()
	for t := 0; t < 8; t++ {
		e.p("VPMOVZXBW %d(DI), Z24", 32*t)
		e.p("VPMOVZXBW %d(DI)(R11*1), Z25", 32*t)
		for r := 0; r < rows; r++ {
			e.p("VPBROADCASTD %d(SP), Z%d", 16+32*t+4*r, 26+r%2)
			e.p("VPDPWSSD Z%d, Z24, Z%d", 26+r%2, 2*r)
			e.p("VPDPWSSD Z%d, Z25, Z%d", 26+r%2, 2*r+1)
		}
	}
	e.p("MOVL $0x3d000000, R12")
	e.p("VPBROADCASTD R12, Z24")
	scale(288)
	fetchRows(e, rows, false, map[string]int{"DX": 4})
	e.p("ADDQ R10, DX")
	e.p("ADDQ $320, DI")
	tileEnd(e, name, rows, false)
}

// subK adds the integer sums of a sub-block, times its scales at BX, to the sums of the group. In float: VCVTDQ2PS and VFMADD231PS
// cost no more than VPMULLD and VPADDD.
func subK(e *gen, rows int, extend string, off int) {
	e.p("%s %d(BX), Z28", extend, off)
	e.p("%s %d(BX)(R11*1), Z29", extend, off)
	e.p("VCVTDQ2PS Z28, Z28")
	e.p("VCVTDQ2PS Z29, Z29")
	for i := 0; i < 2*rows; i++ {
		e.p("VCVTDQ2PS Z%d, Z%d", i, i)
		e.p("VFMADD231PS Z%d, Z%d, Z%d", 28+i%2, i, 12+i)
	}
}

// unpack512 expands groups to one byte per weight.
func unpack512(e *gen, l *int512) {
	name := "vnniUnpack" + l.name
	e.fn(name, fmt.Sprintf("unpacks Groups groups of %s to groups of %d bytes.", l.name, l.unpacked))
	e.arg("CX")
	l.constants(e)
	e.ld("CX", "Src", "DI")
	e.ld("CX", "Dst", "SI")
	e.ld("CX", "Pf", "BX")
	e.ld("CX", "Groups", "CX")
	e.lab(name + "_group")
	for off := 0; off < l.bytes; off += 64 {
		e.p("PREFETCHT0 %d(DI)(BX*1)", off)
	}
	k := &panel512{e: e, l: l, rows: 1}
	split := func(off, lo, hi int, fifth func()) {
		k.nibbles(k.w(off))
		fifth()
		e.p("VMOVDQU64 Z24, %d(SI)", lo)
		e.p("VMOVDQU64 Z25, %d(SI)", hi)
	}
	scales := l.scales
	switch {
	case l.two():
		for j := 0; j < 16; j++ {
			e.p("VMOVDQU64 %d(DI), Z24", 64*j)
			unpack2(e)
			e.p("VPMOVZXBD %d(DI), Z28", l.scales+16*j)
			times2(e)
			for i := 0; i < 4; i++ {
				e.p("VMOVDQU64 Z%d, %d(SI)", 24+i, 256*j+64*i)
			}
		}
		for t := 0; t < 8; t++ {
			e.p("VPMOVZXBW %d(DI), Y24", l.scales+32*t)
			e.p("VPMOVZXBW %d(DI), Y25", l.scales+32*t+16)
			e.p("VPSRLW $4, Y24, Y24")
			e.p("VPSRLW $4, Y25, Y25")
			e.p("VPSLLW $8, Y25, Y25")
			e.p("VPORD Y25, Y24, Y24")
			e.p("VMOVDQU64 Y24, %d(SI)", 4096+32*t)
		}
		e.p("VMOVDQU64 %d(DI), Z24", l.scales+256)
		e.p("VMOVDQU64 Z24, %d(SI)", 4096+256)
	case l.sub != 0:
		for j := 0; j < 16; j++ {
			for i := 0; i < l.sub/64; i++ {
				e.p("VMOVDQU64 %d(DI), Z%d", l.sub*j+64*i, 6+i)
			}
			if l.code() {
				unpackCode(e)
			} else {
				unpack6(e)
			}
			for i := 0; i < 4; i++ {
				e.p("VMOVDQU64 Z%d, %d(SI)", 24+i, 256*j+64*i)
			}
		}
	case l.k():
		for p := 0; p < 4; p++ {
			if l.high != 0 {
				e.p("VMOVDQU64 %d(DI), Z26", l.high+128*p)
				e.p("VMOVDQU64 %d(DI), Z27", l.high+128*p+64)
			}
			for i := 0; i < 8; i++ {
				split(512*p+64*i, 1024*p+64*i, 1024*p+512+64*i, func() {
					if l.high != 0 {
						bit4(e, i, 26, 24, 28)
						bit4(e, i, 27, 25, 29)
					}
				})
			}
		}
	default:
		scales = l.d
		for b := 0; b < 2; b++ {
			if l.high != 0 {
				e.p("VMOVDQU64 %d(DI), Z26", l.high+64*b)
			}
			for i := 0; i < 4; i++ {
				split(256*b+64*i, 512*b+64*i, 512*b+256+64*i, func() {
					if l.high != 0 {
						bit4(e, i, 26, 24, 28)
						bit4(e, i+4, 26, 25, 29)
					}
				})
			}
		}
	}
	for off := 0; off < l.tail && !l.two(); off += 64 {
		e.p("VMOVDQU64 %d(DI), Z24", scales+off)
		e.p("VMOVDQU64 Z24, %d(SI)", l.unpacked-l.tail+off)
	}
	e.p("ADDQ $%d, DI", l.bytes)
	e.p("ADDQ $%d, SI", l.unpacked)
	e.p("DECQ CX")
	e.p("JNZ %s_group", name)
	e.ret()
}
