package main

import (
	"fmt"
	"math"
)

// Coefficients of 2^f, |f| <= 1/2: near-minimax of degree 6 (Chebyshev nodes), relative error 5e-9 before rounding. The last one is
// the limit below which the result is zero.
var exp2c = []float32{1, 0.693147188, 0.240226508, 0.0555035711, 0.00961808256, 0.00133908634, 0.00015453163, -125}

var attnFields = map[string]int{"K": 0, "V": 8, "Q": 16, "QStride": 24, "S": 32, "O": 40, "OStride": 48, "D": 56, "NV": 64, "VStride": 72,
	"J0": 80, "J1": 88, "M": 96, "Pf": 104, "KS": 112, "VS": 120, "VSStride": 128, "CapIn": 136, "CapOut": 140}

// Offsets of a state, in bytes.
const (
	stMax   = 0
	stAlpha = 4
	stSum   = 64
	stOut   = 128
)

func init() {
	for _, wide := range []bool{false, true} {
		families["attn"] = append(families["attn"], func() { attn(wide) })
	}
}

// kvElem is an element type of K and V.
type kvElem struct {
	name  string
	bytes int
}

var kvElems = []kvElem{{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"Q8", 1}}

// load widens sixteen elements at m to float32; those of Q8 still want their scales.
func (t kvElem) load(v vec, m mem, r reg) {
	m.half = 8 * t.bytes
	switch t.name {
	case "F32":
		v.o("VMOVUPS", m, r)
	case "F16":
		v.o("VCVTPH2PS", m, r)
	case "BF16":
		v.o("VPMOVZXWD", m, r)
		v.o("VPSLLD", "$16", r, r)
	case "Q8":
		v.o("VPMOVSXBD", m, r)
		v.o("VCVTDQ2PS", r, r)
	}
}

// prefetch fetches the line at BX from vector i of a run at AX, if a line starts there.
func (t kvElem) prefetch(v vec, i, first int) {
	if off := 16 * t.bytes * i; (first+off)%64 == 0 {
		v.p("PREFETCHT0 %d(AX)(BX*1)", off)
	}
}

func attn(wide bool) {
	v := vec{newGen("attn", "attn", "../attn/attn_"+map[bool]string{false: "avx2", true: "avx512"}[wide], "Args", attnFields), wide}
	v.rows64("exp2c", words(exp2c)...)
	v.rows64("nibble", 15, 8)
	v.rows64("capc", math.Float32bits(1), 0x80000000)
	tiles := 6 // of queries; more would not leave registers
	if wide {
		tiles = 8
	}
	softmax(v)
	capScores(v)
	if !wide {
		storeKeys(v)
	}
	for _, t := range kvElems {
		for m := 1; m <= tiles; m++ {
			scores(v, t, m)
			pv(v, t, m)
		}
	}
	for _, t := range []kvElem{{"Q8", 1}, {"Q4", 0}} {
		decodeK(v, t)
		decodeV(v, t)
	}
	fmt.Fprintf(&v.g, "\nfunc init() {\n")
	w := b2i(wide)
	for i, t := range append(kvElems, kvElem{"Q4", 0}) {
		fmt.Fprintf(&v.g, "\tbuilt[%d][%d] = Kernels{\n\t\tSoftmax: softmax%s,\n\t\tCap: cap%s,\n", w, i, v.suffix(), v.suffix())
		if t.bytes < 2 {
			fmt.Fprintf(&v.g, "\t\tDecodeK: decodeK%s%s,\n\t\tDecodeV: decodeV%s%s,\n", t.name, v.suffix(), t.name, v.suffix())
		}
		if t.bytes == 0 {
			fmt.Fprintf(&v.g, "\t}\n")
			continue
		}
		for _, k := range []string{"Scores", "PV"} {
			fmt.Fprintf(&v.g, "\t\t%s: [MaxTile + 1]func(*Args){", k)
			for m := 1; m <= tiles; m++ {
				fmt.Fprintf(&v.g, "%d: %s, ", m, attnName(v, k, t, m))
			}
			fmt.Fprintf(&v.g, "},\n")
		}
		fmt.Fprintf(&v.g, "\t}\n")
	}
	fmt.Fprintf(&v.g, "}\n")
	v.finish()
}

func attnName(v vec, kind string, t kvElem, m int) string {
	if kind == "PV" {
		kind = "pv"
	} else {
		kind = "scores"
	}
	return fmt.Sprintf("%s%sx%d%s", kind, t.name, m, v.suffix())
}

// scores: m queries, nv vectors of keys at a time.
func scores(v vec, t kvElem, m int) {
	name := attnName(v, "Scores", t, m)
	nv := 4
	switch {
	case v.wide && m > 6, !v.wide && m == 2:
		nv = 2
	case !v.wide && m > 2:
		nv = 1
	}
	v.fn(name, fmt.Sprintf("is Scores of %d queries.", m))
	v.c("AX K, BX from there to Pf, CX elements left, SI R9 R10 queries 0.. 3.. 6.., R8 QStride, R11 S")
	v.arg("R13")
	for _, f := range [][2]string{{"K", "DI"}, {"Pf", "BX"}, {"QStride", "R8"}, {"S", "R11"}} {
		v.ld("R13", f[0], f[1])
	}
	v.p("SUBQ DI, BX")
	q := func(i int) string {
		return [...]string{"(SI)", "(SI)(R8*1)", "(SI)(R8*2)", "(R9)", "(R9)(R8*1)", "(R9)(R8*2)", "(R10)", "(R10)(R8*1)"}[i]
	}
	acc := func(g, i int) reg { return reg(g*nv + i) }
	// Key by key, m elements of queries and a vector of keys are live beside the accumulators; else nv vectors and an element.
	per, regs := 2, 16
	if v.wide {
		per, regs = 1, 32
	}
	byKey := per*(m*nv+nv)+1 > regs
	key := func(i int) reg { return reg(m*nv + i) }
	bc := one(per * (m*nv + nv))
	if byKey {
		key = func(i int) reg { return reg(m * nv) }
		bc = one(per * (m*nv + 1))
	}
	for pass := range 4 / nv {
		first := pass * nv * 16 * t.bytes
		if nv < 4 { // keys that nobody sees
			v.p("CMPQ %d(R13), $%d", attnFields["J1"], pass*nv*16)
			v.p("JLE %s_skip%d", name, pass)
			v.p("CMPQ %d(R13), $%d", attnFields["J0"], (pass+1)*nv*16)
			v.p("JGE %s_skip%d", name, pass)
		}
		v.ld("R13", "Q", "SI")
		if m > 3 {
			v.p("LEAQ (R8)(R8*2), R9")
			v.p("LEAQ (SI)(R9*2), R10")
			v.p("ADDQ SI, R9")
		}
		v.ld("R13", "D", "CX")
		v.p("LEAQ %d(DI), AX", first)
		for i := range m * nv {
			v.zero(reg(i))
		}
		l := fmt.Sprintf("%s_d%d", name, pass)
		if t.name == "Q8" { // runs of 32 elements have a scale per key
			v.ld("R13", "KS", "R12")
			v.p("MOVQ CX, DX")
			v.lab(l + "_block")
			v.p("MOVL $32, CX")
			v.p("CMPQ DX, CX")
			v.p("CMOVQLT DX, CX")
			v.p("SUBQ CX, DX")
		}
		v.p("PCALIGN $32")
		v.lab(l)
		load := func(i int) {
			t.prefetch(v, i, first)
			t.load(v, mem{16 * t.bytes * i, "(AX)", 1}, key(i))
			if t.name == "Q8" {
				v.o("VMULPS", f32(64*(nv*pass+i), "R12"), key(i), key(i))
			}
		}
		if byKey {
			for g := range m {
				v.p("VBROADCASTSS %s, %s", q(g), v.name(bc+one(g), 0))
			}
			for i := range nv {
				load(i)
				for g := range m {
					v.o("VFMADD231PS", bc+one(g), key(i), acc(g, i))
				}
			}
		} else {
			for i := range nv {
				load(i)
			}
			for g := range m {
				v.p("VBROADCASTSS %s, %s", q(g), v.name(bc, 0))
				for i := range nv {
					v.o("VFMADD231PS", bc, key(i), acc(g, i))
				}
			}
		}
		v.p("ADDQ $%d, AX", 64*t.bytes)
		v.p("ADDQ $4, SI")
		if m > 3 {
			v.p("ADDQ $4, R9")
		}
		if m > 6 {
			v.p("ADDQ $4, R10")
		}
		v.p("DECQ CX")
		v.p("JNZ %s", l)
		if t.name == "Q8" {
			v.p("ADDQ $256, R12")
			v.p("TESTQ DX, DX")
			v.p("JNZ %s_block", l)
		}
		for g := range m {
			for i := range nv {
				v.o("VMOVUPS", acc(g, i), f32(256*g+64*(nv*pass+i), "R11"))
			}
		}
		if nv < 4 {
			v.lab(fmt.Sprintf("%s_skip%d", name, pass))
		}
	}
	v.ret()
}

// pv: m queries; runs of 8, 4, 2 or 1 vectors of V, as many as leave room for the accumulators.
func pv(v vec, t kvElem, m int) {
	name := attnName(v, "PV", t, m)
	// A run of n vectors takes m*n accumulators and, vector by vector, m weights and a vector; or, weight by weight, n vectors
	// and a weight. regs counts registers, not vectors.
	per, regs := 2, 16
	if v.wide {
		per, regs = 1, 32
	}
	byVector := func(n int) bool { return per*m*n+m+per+1 <= regs } // and a register for the scale of Q8
	fits := func(n int) bool { return byVector(n) || per*(m*n+n)+1 <= regs }
	v.fn(name, fmt.Sprintf("is PV of %d queries.", m))
	v.c("DI V at J0, R8 VStride, BX from V to Pf, SI keys, R11 weights at J0, R9 outputs, R10 OStride, DX vectors left; AX V, CX keys left")
	v.arg("R13")
	for _, f := range [][2]string{{"V", "DI"}, {"VStride", "R8"}, {"J0", "AX"}, {"J1", "SI"}, {"Pf", "BX"}, {"S", "R11"}, {"O", "R9"},
		{"OStride", "R10"}, {"NV", "DX"}} {
		v.ld("R13", f[0], f[1])
	}
	v.p("SUBQ DI, BX")
	v.p("SUBQ AX, SI")
	v.p("LEAQ (R11)(AX*4), R11")
	v.p("IMULQ R8, AX")
	v.p("ADDQ AX, DI")
	for n := 8; n > 0; n /= 2 {
		if !fits(n) {
			continue
		}
		l := fmt.Sprintf("%s_%d", name, n)
		v.lab(l)
		v.p("CMPQ DX, $%d", n)
		v.p("JLT %s_less", l)
		acc := func(g, i int) reg { return reg(g*n + i) }
		first := per * m * n // the first single register that is free
		v.p("MOVQ R9, R12")
		v.arg("R13")
		v.ld("R13", "O", "AX") // alphas
		for g := range m {
			v.p("VBROADCASTSS %d(AX), %s", stAlpha, v.name(one(first), 0))
			for i := range n {
				v.o("VMULPS", f32(stOut+64*i, "R12"), one(first), acc(g, i))
			}
			if g < m-1 {
				v.p("ADDQ R10, R12")
				v.p("ADDQ R10, AX")
			}
		}
		if t.name == "Q8" { // R14 scales of the run's first blocks, R13 VSStride
			v.ld("R13", "NV", "AX")
			v.p("SUBQ DX, AX")
			v.p("SHRQ $1, AX")
			v.p("SHLQ $2, AX")
			v.ld("R13", "VS", "R14")
			v.p("ADDQ AX, R14")
			v.ld("R13", "J0", "AX")
			v.ld("R13", "VSStride", "R13")
			v.p("IMULQ R13, AX")
			v.p("ADDQ AX, R14")
		}
		v.p("MOVQ DI, AX")
		v.p("MOVQ R11, R12")
		v.p("MOVQ SI, CX")
		v.p("PCALIGN $32")
		v.lab(l + "_j")
		fetch := func(i int, r reg, scale one) {
			t.prefetch(v, i, 0)
			t.load(v, mem{16 * t.bytes * i, "(AX)", 1}, r)
			if t.name == "Q8" {
				v.p("VBROADCASTSS %d(R14), %s", 4*(i/2), v.name(scale, 0))
				v.o("VMULPS", scale, r, r)
			}
		}
		weight := func(g int, r one) { v.p("VBROADCASTSS %d(R12), %s", 256*g, v.name(r, 0)) }
		if byVector(n) {
			x := reg(m * n)
			w := one(first + per)
			for g := range m {
				weight(g, w+one(g))
			}
			for i := range n {
				fetch(i, x, w+one(m))
				for g := range m {
					v.o("VFMADD231PS", w+one(g), x, acc(g, i))
				}
			}
		} else {
			w := one(first + per*n)
			for i := range n {
				fetch(i, reg(m*n+i), w)
			}
			for g := range m {
				weight(g, w)
				for i := range n {
					v.o("VFMADD231PS", w, reg(m*n+i), acc(g, i))
				}
			}
		}
		if t.name == "Q8" {
			v.p("ADDQ R13, R14")
		}
		v.p("ADDQ R8, AX")
		v.p("ADDQ $4, R12")
		v.p("DECQ CX")
		v.p("JNZ %s_j", l)
		v.p("MOVQ R9, R12")
		for g := range m {
			for i := range n {
				v.o("VMOVUPS", acc(g, i), f32(stOut+64*i, "R12"))
			}
			if g < m-1 {
				v.p("ADDQ R10, R12")
			}
		}
		v.p("ADDQ $%d, DI", n*16*t.bytes)
		v.p("ADDQ $%d, R9", n*64)
		v.p("SUBQ $%d, DX", n)
		v.p("JMP %s", l)
		v.lab(l + "_less")
	}
	v.ret()
}

// exp2 is x = 2^x for x <= 0, zero below the limit; NaN stays. n, f, p are temporaries.
func (v vec) exp2(x, n, f, p reg) {
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

func softmax(v vec) {
	name := "softmax" + v.suffix()
	v.fn(name, "is Softmax of M queries.")
	v.c("DI scores, R9 state, R10 OStride, CX queries left; vectors 0..3 scores, then weights")
	v.arg("R13")
	for _, f := range [][2]string{{"S", "DI"}, {"O", "R9"}, {"OStride", "R10"}, {"M", "CX"}} {
		v.ld("R13", f[0], f[1])
	}
	// Two loops, of maxima and of exponentials, let more queries overlap than one does: three quarters of its time.
	v.lab(name + "_max")
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
	v.p("JNZ %s_max", name)
	for _, f := range [][2]string{{"S", "DI"}, {"O", "R9"}, {"M", "CX"}} {
		v.ld("R13", f[0], f[1])
	}
	top := one(14)
	v.lab(name + "_exp")
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
	v.p("JNZ %s_exp", name)
	v.ret()
}

// storeKeys: tiles of 8 keys by 8 elements of 16 bits, in rounds of pairs, of fours, of eights. Half vectors do: it is the stores
// that count, one for each element of 8 keys.
func storeKeys(v vec) {
	name := "storeKeysAVX2"
	v.fn(name, "is StoreKeys for keys of a multiple of 8 elements.")
	v.c("SI R9 R10 keys 0.. 3.. 6.., R8 VStride, DI K, CX elements left")
	v.arg("R13")
	for _, f := range [][2]string{{"V", "SI"}, {"VStride", "R8"}, {"K", "DI"}, {"D", "CX"}} {
		v.ld("R13", f[0], f[1])
	}
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
	for _, f := range [][2]string{{"K", "SI"}, {"Pf", "BX"}, {"KS", "R8"}, {"O", "DI"}, {"D", "DX"}} {
		v.ld("R13", f[0], f[1])
	}
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
	for _, f := range [][2]string{{"V", "SI"}, {"Pf", "BX"}, {"VS", "R8"}, {"O", "DI"}, {"NV", "CX"}} {
		v.ld("R13", f[0], f[1])
	}
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

func capScores(v vec) {
	name := "cap" + v.suffix()
	v.fn(name, "is Cap of M queries.")
	v.c("DI scores, CX vectors left")
	v.arg("R13")
	v.ld("R13", "S", "DI")
	v.ld("R13", "M", "CX")
	v.p("SHLQ $2, CX")
	in, out := one(14), one(15)
	v.p("VBROADCASTSS %d(R13), %s", attnFields["CapIn"], v.name(in, 0))
	v.p("VBROADCASTSS %d(R13), %s", attnFields["CapOut"], v.name(out, 0))
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
