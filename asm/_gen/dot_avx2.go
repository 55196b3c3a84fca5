package main

import "fmt"

// 256-bit kernels of package dot, for tiers avx2 (VPMADDUBSW) and avxvnni (VEX VPDPBUSD). They use Y0..Y15 and VEX encodings
// only. Lane by lane the integers are exact and the float instructions are those of the 512-bit kernels, in their order, so
// both give the same bits.
//
// One integer kernel serves 1 to 3 activation rows of one panel, a panel being two registers wide: with 2 integer and 2 float
// accumulators per row, three rows fill the register file; where the integers need more, the floats lie in Acc. Weights of 4, 5 and
// 6 bits are taken apart in registers, low and high nibbles in turns, or read from panels that were unpacked before. Q8_0 without VNNI
// has a kernel of its own, signed256. Code4's weights are looked up in a table that stays in a register: with VNNI they are biased by
// 128, as Q8_0's, and so are the unpacked ones; without it they are biased by 32 and treated like Q6_K's if all values allow it, else
// signed (bias256). Q2_K's sum over a superblock is less than 2^24:
// it is added up in integers, which float32 holds as exactly as the chain that the package prescribes, and unpacking multiplies the weights
// by their scales (at most 45).
//
// General registers: DI weights, SI activations of row 0, AX their stride (rows 1 and 2 are (SI)(AX*1) and (SI)(AX*2)), DX D,
// R9 B or SD, R10 Mp, CX groups left, R12 turns of the inner loop, BX scales, R13 fifth bits of Q5_K, R8 Acc, R11 Pf; on the
// stack the panel loop's W, Y and number of panels left.

func init() { families["dot"] = append(families["dot"], dot256) }

func dot256() {
	for _, vnni := range []bool{false, true} {
		tier := "avx2"
		if vnni {
			tier = "avxvnni"
		}
		e := newGen("dot", "dot", "../dot/dot_"+tier, "Args", dotFields)
		consts256(e)
		for _, b := range blocks256 {
			if b.codes && vnni {
				b = b.biased(128, 255)
			}
			for rows, kind := range []string{1: "Gemv", 2: "Small2", 3: "Small3"} {
				switch {
				case rows == 0:
				case !vnni && b.top == 255:
					signed256(e, b, rows, true, tier+kind)
				default:
					newInt256(e, b, vnni, rows, true).emit(tier + kind)
				}
			}
			// Unpacked panels of 4 bits are 10 % faster without VNNI, with it 3 % less what the unpacking takes: not worth it.
			// Q5_0 unpacked is like Q8_0 for VNNI.
			g := b
			if b.unpackedBytes > 0 && !(vnni && b.top == 15) {
				g = b.unpacked()
			}
			switch {
			case vnni && b.name == "Q5_0":
			case !vnni && b.top == 255:
				for rows := 1; rows <= 6; rows++ {
					signed256(e, b, rows, false, fmt.Sprint(tier, "Gemm", rows))
				}
			default:
				most := 3
				if vnni && g.flat {
					most = 6 // it needs no float accumulators
				}
				for rows := 1; rows <= most; rows++ {
					newInt256(e, g, vnni, rows, false).emit(fmt.Sprint(tier, "Gemm", rows))
				}
			}
			if b.unpackedBytes > 0 && (!vnni || b.codes) {
				unpack256(e, b, tier)
			}
		}
		if !vnni {
			for _, layout := range []string{"F32", "F16", "BF16"} {
				for rows := 1; rows <= 3; rows++ {
					float256(e, layout, rows)
				}
			}
		}
		e.write()
	}
}

// consts256 writes the constants: 32 bytes each, named by their repeated hexadecimal pattern.
func consts256(e *gen) {
	e.s.WriteString("\n")
	for _, c := range []struct {
		name string
		v    uint64
	}{
		{"c03", 0x0303030303030303}, {"c0f", 0x0f0f0f0f0f0f0f0f}, {"c10", 0x1010101010101010}, {"c20", 0x2020202020202020},
		{"c30", 0x3030303030303030}, {"c80", 0x8080808080808080}, {"cc0", 0xc0c0c0c0c0c0c0c0},
		{"c0001", 0x0001000100010001}, {"cffff0000", 0xffff0000ffff0000},
		{"c3d000000", 0x3d0000003d000000}, // 1/32
	} {
		for i := 0; i < 4; i++ {
			fmt.Fprintf(&e.s, "DATA %s<>+%d(SB)/8, $%#x\n", c.name, 8*i, c.v)
		}
		fmt.Fprintf(&e.s, "GLOBL %s<>(SB), RODATA|NOPTR, $32\n", c.name)
	}
	// Shuffles that take bytes 8h..8h+7 of 16 to the low byte of 32-bit words, or of both their halves.
	for h := 0; h < 2; h++ {
		for n, name := range []string{"once", "twice"} {
			for i := 8 * h; i < 8*h+8; i++ {
				v := []int{0x80808000 | i, 0x80008000 | i<<16 | i}[n]
				fmt.Fprintf(&e.s, "DATA %s%d<>+%d(SB)/4, $%#x\n", name, h, 4*(i%8), v)
			}
			fmt.Fprintf(&e.s, "GLOBL %s%d<>(SB), RODATA|NOPTR, $32\n", name, h)
		}
	}
}

// block256 is an integer layout as the kernels read it. A group holds subs integer sums of vecs vectors (4 K each); the inner
// loop takes unroll of them per turn (subs: there is no inner loop).
type block256 struct {
	name                string
	bytes               int // of a group
	subs, vecs, unroll  int
	top                 int                                // largest weight: 3, 15, 31, 63; 127: signed; 255: +128
	turn                int                                // bytes of vectors per turn of the inner loop
	fifth               int                                // Q5_K: place of the fifth bits
	d, m                int                                // blocks of 32: places of d and m (0: none)
	scales              int                                // K-quants: place of scales; d of Q2_K, Q6_K and Code4 lies behind them
	vec                 func(k *int256, j, i, h, w, t int) // weights of vector i of sum j, half h, to register w; t is free
	unpackedBytes, tail int                                // form after unpacking: its size; bytes of scales
	codes               bool                               // Code4: d is float32
	bias                int                                // Code4: what is added to its values
	flat                bool                               // unpacked Q2_K: one sum over the group, scales are in the weights
}

func (b *block256) k() bool { return b.scales != 0 }

// minima: a K-quant whose scales are followed by minima.
func (b *block256) minima() bool { return b.k() && (b.top == 15 || b.top == 31) }

var blocks256 = []*block256{
	{name: "Q8_0", bytes: 1088, subs: 2, vecs: 8, unroll: 2, top: 255, d: 1024, vec: plain256},
	{name: "Q4_0", bytes: 576, subs: 2, vecs: 8, unroll: 2, top: 15, d: 512, vec: nib32, unpackedBytes: 1088, tail: 64},
	{name: "Q4_1", bytes: 640, subs: 2, vecs: 8, unroll: 2, top: 15, d: 512, m: 576, vec: nib32, unpackedBytes: 1152, tail: 128},
	{name: "Q5_0", bytes: 704, subs: 2, vecs: 8, unroll: 2, top: 31, d: 640, vec: five32, unpackedBytes: 1088, tail: 64},
	{name: "Q5_1", bytes: 768, subs: 2, vecs: 8, unroll: 2, top: 31, d: 640, m: 704, vec: five32, unpackedBytes: 1152, tail: 128},
	{name: "Q4_K", bytes: 2368, subs: 8, vecs: 8, unroll: 2, top: 15, turn: 512, scales: 2048, vec: nibK, unpackedBytes: 4416, tail: 320},
	{name: "Q5_K", bytes: 2880, subs: 8, vecs: 8, unroll: 2, top: 31, turn: 512, fifth: 2048, scales: 2560, vec: fiveK, unpackedBytes: 4416, tail: 320},
	{name: "Q6_K", bytes: 3392, subs: 16, vecs: 4, unroll: 2, top: 63, turn: 384, scales: 3072, vec: six, unpackedBytes: 4416, tail: 320},
	{name: "Q2_K", bytes: 1344, subs: 16, vecs: 4, unroll: 2, top: 3, turn: 128, scales: 1024, vec: two, unpackedBytes: 4416, tail: 320},
	{name: "Code4", bytes: 2368, subs: 16, vecs: 4, unroll: 2, top: 127, turn: 256, scales: 2048, vec: code, unpackedBytes: 4416, tail: 320, codes: true},
}

// biased is Code4 with a bias for its values.
func (b *block256) biased(bias, top int) *block256 {
	c := *b
	c.bias, c.top = bias, top
	return &c
}

// unpacked is the layout after unpacking: one byte per weight, then the scales.
func (b *block256) unpacked() *block256 {
	u := *b
	u.bytes, u.vec, u.fifth = b.unpackedBytes, plain256, 0
	if b.k() {
		u.scales, u.turn, u.flat = 4096, 64*b.vecs*b.unroll, b.top == 3
		return &u
	}
	u.d = 1024
	if b.m != 0 {
		u.m = 1088
	}
	return &u
}

// The vec functions. h 0 is the first to touch a line and prefetches it.

func plain256(k *int256, j, i, h, w, _ int) {
	off := 64 * (k.b.vecs*j + i)
	k.pf("DI", off, h)
	k.e.p("VMOVDQU %d(DI), Y%d", off+32*h, w)
}

// nib loads the low or high nibbles of 32 bytes.
func (k *int256) nib(off, h, w int, high bool) {
	off += 32 * h
	switch mask := k.c["c0f"]; {
	case !high && mask[0] == 'Y':
		k.e.p("VPAND %d(DI), %s, Y%d", off, mask, w)
	default:
		k.e.p("VMOVDQU %d(DI), Y%d", off, w)
		if high {
			k.e.p("VPSRLW $4, Y%d, Y%d", w, w)
		}
		k.e.p("VPAND %s, Y%d, Y%d", mask, w, w)
	}
}

// bits adds to w bits of the 32 bytes at off(base), shifted left (or right, if negative) and masked. first: no bits of them have
// been used yet.
func (k *int256) bits(base string, off, h, shift int, first bool, mask string, w, t int) {
	src := t
	if k.high != nil {
		src = k.high[h]
	}
	if src == t || first {
		k.e.p("VMOVDQU %d(%s), Y%d", off+32*h, base, src)
	}
	if shift > 0 {
		k.e.p("VPSLLW $%d, Y%d, Y%d", shift, src, t)
		src = t
	} else if shift < 0 {
		k.e.p("VPSRLW $%d, Y%d, Y%d", -shift, src, t)
		src = t
	}
	k.e.p("VPAND %s, Y%d, Y%d", k.c[mask], src, t)
	k.e.p("VPOR Y%d, Y%d, Y%d", t, w, w)
}

func nib32(k *int256, j, i, h, w, _ int) {
	off := 256*j + 64*(i%4)
	if i < 4 {
		k.pf("DI", off, h)
	}
	k.nib(off, h, w, i >= 4)
}

func five32(k *int256, j, i, h, w, t int) {
	nib32(k, j, i, h, w, t)
	if i == 0 {
		k.pf("DI", 512+64*j, h)
	}
	k.bits("DI", 512+64*j, h, 4-i, i == 0, "c10", w, t)
}

func nibK(k *int256, j, i, h, w, _ int) {
	if j == 0 {
		k.pf("DI", 64*i, h)
	}
	k.nib(64*i, h, w, j == 1)
}

func fiveK(k *int256, j, i, h, w, t int) {
	nibK(k, j, i, h, w, t)
	if i == 0 {
		k.pf("R13", 64*j, h)
	}
	k.bits("R13", 64*j, h, 4-i, i == 0, "c10", w, t)
}

func six(k *int256, j, i, h, w, t int) {
	off := 192*j + i/2*64
	if i%2 == 0 {
		k.pf("DI", off, h)
	}
	if i == 0 {
		k.pf("DI", 192*j+128, h)
	}
	k.nib(off, h, w, i%2 == 1)
	k.bits("DI", 192*j+128, h, 4-2*i, i == 0, "c30", w, t)
}

func two(k *int256, j, i, h, w, _ int) {
	if i == 0 {
		k.pf("DI", 64*j, h)
	}
	src := w
	if k.high != nil {
		src = k.high[h]
	}
	if src == w || i == 0 {
		k.e.p("VMOVDQU %d(DI), Y%d", 64*j+32*h, src)
	}
	if i > 0 {
		k.e.p("VPSRLW $%d, Y%d, Y%d", 2*i, src, w)
		src = w
	}
	k.e.p("VPAND %s, Y%d, Y%d", k.c["c03"], src, w)
}

func code(k *int256, j, i, h, w, _ int) {
	off := 128*j + i/2*64
	if i%2 == 0 {
		k.pf("DI", off, h)
	}
	k.nib(off, h, w, i%2 == 1)
	k.e.p("VPSHUFB Y%d, Y%d, Y%d", w, k.table, w)
}

// int256 emits one integer kernel.
type int256 struct {
	e     *gen
	b     *block256
	vnni  bool
	rows  int
	loop  bool              // over Panels panels
	inMem bool              // float accumulators (K-quants: sums over the superblock) in Acc, for want of registers
	free  []int             // registers without a role
	c     map[string]string // constants: a register, or the memory operand
	high  []int             // registers for a vector of high bits; nil: none left
	extra []int             // registers for more sums and temporaries, without VNNI
	table int               // register with the values of Code4 plus bias
	name  string
}

// Roles of registers: integer sums from Y0, float accumulators (K-quants: sums over the superblock) behind them, weights,
// temporaries.
const (
	w0  = 12
	w1  = 13
	tmp = 14
	t15 = 15 // plain AVX2: a second temporary; VNNI: the mask 0x0f
)

func (k *int256) sum(r, h int) int { return 2*r + h }
func (k *int256) flt(r, h int) int { return 2*k.rows + 2*r + h }

// accAt is the place in Acc of an accumulator over K, subAt that of a sum over the superblock.
func (k *int256) accAt(r, h int) string { return fmt.Sprintf("%d(R8)", 64*r+32*h) }
func (k *int256) subAt(r, h int) string { return fmt.Sprintf("%d(R8)", 512+64*r+32*h) }

func newInt256(e *gen, b *block256, vnni bool, rows int, loop bool) *int256 {
	k := &int256{e: e, b: b, vnni: vnni, rows: rows, loop: loop, c: map[string]string{}}
	for _, n := range []string{"c03", "c0f", "c10", "c30", "c0001"} {
		k.c[n] = n + "<>(SB)"
	}
	k.inMem = !vnni && (rows > 1 && b.top == 31 || b.top == 63 || rows > 2 && b.top == 127) // they need more sums or temporaries
	first := 4 * rows
	if k.inMem || b.flat {
		first = 2 * rows
	}
	for r := first; r < w0; r++ {
		k.free = append(k.free, r)
	}
	extra := 0
	switch {
	case vnni:
		k.free = append(k.free, t15)
	case b.top == 31:
		extra = 2 * rows
	case b.top == 63 || b.flat:
		extra = 4
	case b.top == 127:
		extra = 2
	}
	k.extra, k.free = k.free[:extra], k.free[extra:]
	return k
}

// take removes the last free register, for a role.
func (k *int256) take() int {
	r := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	return r
}

// keep puts the constants that the kernel needs into free registers, as far as there are any; then it sets two aside for high bits.
func (k *int256) keep() {
	var want []string
	packed := k.b.unpackedBytes > 0 && k.b.bytes != k.b.unpackedBytes
	if packed && k.b.codes {
		k.table = k.take()
		k.e.arg("R13")
		k.e.ld("R13", "Values", "AX")
		k.e.p("VBROADCASTI128 (AX), Y%d", k.table)
		if k.b.bias > 0 {
			k.e.p("VPADDB c%x<>(SB), Y%d, Y%d", k.b.bias, k.table, k.table)
		}
	}
	switch {
	case packed && k.b.top == 3:
		want = append(want, "c03", "c0f")
	case packed:
		want = append(want, "c0f")
	}
	switch {
	case packed && k.b.top == 31:
		want = append(want, "c10")
	case packed && k.b.top == 63:
		want = append(want, "c30")
	}
	if !k.vnni && !(packed && k.b.top == 3) {
		want = append(want, "c0001")
	}
	for _, n := range want {
		if len(k.free) > 0 {
			r := k.take()
			k.e.p("VMOVDQU %s<>(SB), Y%d", n, r)
			k.c[n] = fmt.Sprintf("Y%d", r)
		}
	}
	if packed && (k.b.top == 3 || k.b.top == 31 || k.b.top == 63) && len(k.free) > 1 {
		k.high = []int{k.take(), k.take()}
	}
}

// ahead loads the prefetch distance: twice Pf, for Pf = 8192 is what suits one stream of the 512-bit kernels. Q5_K read 31 GB/s with
// 8 KiB, 35 with 12, 39 with 16; Q5_0 36, 39, 38; Q4_K 38, 39, 40; Q6_K 37, 40, 40 (one Zen 5 core, whose read loops reach 40).
func (k *int256) ahead() {
	k.e.ld("R13", "Pf", "R11")
	k.e.p("ADDQ R11, R11")
}

// pf prefetches a line. Gemm kernels have no use for Args.Pf: the first of them to read a packed panel finds it in memory, the
// others prefetch the beginning of the next panel. With VNNI, 24 rows of Q4_0, Q4_K are 1.3 times as fast for it, of Q8_0 1.2 times.
// At 512 rows the difference was within the noise of a loaded machine; for Q8_0 it may cost some percent. Unpacked panels are in the
// cache.
func (k *int256) pf(base string, off, h int) {
	switch {
	case h != 0:
	case k.loop:
		k.e.p("PREFETCHT0 %d(%s)(R11*1)", off, base)
	case k.b.bytes != k.b.unpackedBytes:
		k.e.p("PREFETCHT0 %d(%s)", 16384+off, base)
	}
}

// row256 is off bytes into row r at base, rows AX bytes apart; R11 is the address of row 3.
func row256(base string, r, off int) string {
	if r >= 3 {
		base = "R11"
	}
	return fmt.Sprintf("%d(%s)%s", off, base, []string{"", "(AX*1)", "(AX*2)"}[r%3])
}

// stride loads the row stride f.
func (k *int256) stride(f string) {
	if k.rows > 1 {
		k.e.ld("R13", f, "AX")
	}
}

// each calls f for both halves of all rows.
func (k *int256) each(f func(r, h int)) {
	for r := 0; r < k.rows; r++ {
		for h := 0; h < 2; h++ {
			f(r, h)
		}
	}
}

// emit writes the kernel; its name is prefix and the layout.
func (k *int256) emit(prefix string) {
	e, b := k.e, k.b
	k.name = prefix + b.name
	k.begin()
	if b.codes && b.bias == 0 {
		e.arg("R13")
		e.ld("R13", "Values", "AX")
		e.p("VMOVDQU (AX), X0")
		bias256(e, 0, 0, "X", k.name+"_wide")
		narrow := newInt256(e, b.biased(32, 63), k.vnni, k.rows, k.loop)
		narrow.name = k.name + "_narrow"
		narrow.body()
		e.lab(k.name + "_wide")
	}
	k.body()
}

// bias256 adds 32 to values, to register biased, and goes on at label wide if one of the results is not within 0..63. IQ2 and IQ3_XXS (up
// to 43 and 62) and IQ4_XS (127) are wide, the other types narrow.
func bias256(e *gen, values, biased int, size, wide string) {
	e.p("VPADDB c20<>(SB), %s%d, %s%d", size, values, size, biased)
	e.p("VPTEST cc0<>(SB), %s%d", size, biased)
	e.p("JNE %s", wide)
}

// body writes the kernel but for its head.
func (k *int256) body() {
	e, b := k.e, k.b
	k.keep()
	e.arg("R13")
	e.ld("R13", "W", "DI")
	k.panels()
	k.start()
	e.ld("R13", "X", "SI")
	k.stride("XStride")
	k.row3("SI")
	e.ld("R13", "D", "DX")
	if b.m != 0 {
		e.ld("R13", "SD", "R9")
	} else {
		e.ld("R13", "B", "R9")
	}
	e.ld("R13", "Mp", "R10")
	e.ld("R13", "Groups", "CX")
	e.lab(k.name + "_group")
	if b.k() {
		k.superblock()
	} else {
		for j := 0; j < 2; j++ {
			k.dots(j)
			k.scale32(j)
		}
		for off := b.d; off < b.bytes; off += 64 {
			k.pf("DI", off, 0)
		}
		e.p("ADDQ $%d, DI", b.bytes)
		e.p("ADDQ $64, SI")
	}
	e.p("DECQ CX")
	e.p("JNZ %s_group", k.name)
	k.finish()
	k.end()
}

// begin writes the head of the kernel.
func (k *int256) begin() {
	rows := fmt.Sprintf("%d activation rows", k.rows)
	if k.rows == 1 {
		rows = "one activation row"
	}
	if k.loop {
		k.e.fnFrame(k.name, fmt.Sprintf("multiplies %s with Panels panels of %s.", rows, k.b.name), 24)
		return
	}
	form := "panel of " + k.b.name
	if k.b.bytes == k.b.unpackedBytes {
		form = "unpacked " + form
	}
	k.e.fnFrame(k.name, fmt.Sprintf("multiplies %s with one %s.", rows, form), 0)
}

// panels begins the loop over panels, if the kernel has one; end ends it and the kernel.
func (k *int256) panels() {
	if !k.loop {
		return
	}
	for i, f := range []string{"W", "Y", "Panels"} {
		k.e.ld("R13", f, "AX")
		k.e.p("MOVQ AX, %d(SP)", 8*i)
	}
	k.e.lab(k.name + "_panel")
	k.e.p("MOVQ 0(SP), DI")
	k.ahead()
}

func (k *int256) end() {
	if k.loop {
		k.e.p("ADDQ $64, 8(SP)")
		k.e.ld("R13", "WStep", "BX")
		k.e.p("ADDQ BX, 0(SP)")
		k.e.p("DECQ 16(SP)")
		k.e.p("JNZ %s_panel", k.name)
	}
	k.e.ret()
}

// y points R12 to the outputs of row 0 and AX to their stride.
func (k *int256) y() {
	if k.loop {
		k.e.p("MOVQ 8(SP), R12")
	} else {
		k.e.ld("R13", "Y", "R12")
	}
	k.stride("YStride")
	k.row3("R12")
}

// row3 points R11 to row 3, if there is one, of rows at base.
func (k *int256) row3(base string) {
	if k.rows > 3 {
		k.e.p("LEAQ (%s)(AX*2), R11", base)
		k.e.p("ADDQ AX, R11")
	}
}

// start sets the accumulators over K to zero or to Y: K-quants' are used once per superblock and lie in Acc.
func (k *int256) start() {
	e := k.e
	acc, mem := k.flt, k.b.k() || k.inMem
	if mem {
		acc = k.sum
		e.ld("R13", "Acc", "R8")
	}
	k.each(func(r, h int) { e.p("VPXOR Y%d, Y%d, Y%d", acc(r, h), acc(r, h), acc(r, h)) })
	e.ld("R13", "Cont", "AX")
	e.p("TESTQ AX, AX")
	e.p("JEQ %s_zero", k.name)
	k.y()
	k.each(func(r, h int) { e.p("VMOVUPS %s, Y%d", row256("R12", r, 32*h), acc(r, h)) })
	e.lab(k.name + "_zero")
	if mem {
		k.each(func(r, h int) { e.p("VMOVUPS Y%d, %s", acc(r, h), k.accAt(r, h)) })
	}
}

func (k *int256) finish() {
	e := k.e
	if k.b.fifth != 0 {
		e.arg("R13")
	}
	k.y()
	k.each(func(r, h int) {
		f := tmp
		if k.b.k() || k.inMem {
			e.p("VMOVUPS %s, Y%d", k.accAt(r, h), f)
		} else {
			f = k.flt(r, h)
		}
		e.p("VMOVUPS Y%d, %s", f, row256("R12", r, 32*h))
	})
}

// hasOffset: the sums start at an offset from B.
func (k *int256) hasOffset() bool {
	return k.b.m == 0 && !k.b.minima() && k.b.top != 3 && k.b.top != 127
}

// dots leaves integer sum j (of the turn) in the sum registers: Q2_K's, without VNNI, as two words. If there is one sum over the group
// it is added to it.
func (k *int256) dots(j int) {
	e, b := k.e, k.b
	x := func(r, i, reg int) { e.p("VPBROADCASTD %s, Y%d", row256("SI", r, 4*(b.vecs*j+i)), reg) }
	madd := func(x, w, d int) { e.p("VPMADDUBSW Y%d, Y%d, Y%d", x, w, d) }
	ones := func(s, d int) { e.p("VPMADDWD %s, Y%d, Y%d", k.c["c0001"], s, d) }
	// words adds the products of x with weights w to the word sums s; first: sets them.
	words := func(first bool, x, w, s, t int) {
		if first {
			madd(x, w, s)
			return
		}
		madd(x, w, t)
		e.p("VPADDW Y%d, Y%d, Y%d", t, s, s)
	}
	switch {
	case k.vnni:
		k.vnniDots(j, x)
		return
	case b.top == 15 || b.top == 3 && !b.flat: // 8 * 2*15*127 < 2^15: a block's words can be added as words
		for i := 0; i < b.vecs; i++ {
			b.vec(k, j, i, 0, w0, tmp)
			b.vec(k, j, i, 1, w1, tmp)
			for r := 0; r < k.rows; r++ {
				x(r, i, tmp)
				words(i == 0, tmp, w0, k.sum(r, 0), t15)
				words(i == 0, tmp, w1, k.sum(r, 1), tmp)
			}
		}
		if b.top == 15 {
			k.each(func(r, h int) { ones(k.sum(r, h), k.sum(r, h)) })
		}
	case b.top == 31: // 4 * 2*31*127 < 2^15: four words can be added
		high := k.extra
		for i := 0; i < b.vecs; i++ {
			b.vec(k, j, i, 0, w0, tmp)
			b.vec(k, j, i, 1, w1, tmp)
			for r := 0; r < k.rows; r++ {
				x(r, i, tmp)
				words(i%4 == 0, tmp, w0, k.sum(r, 0), t15)
				words(i%4 == 0, tmp, w1, k.sum(r, 1), tmp)
				if i == 3 {
					ones(k.sum(r, 0), high[2*r])
					ones(k.sum(r, 1), high[2*r+1])
				}
			}
		}
		k.each(func(r, h int) {
			s := k.sum(r, h)
			ones(s, s)
			e.p("VPADDD Y%d, Y%d, Y%d", high[2*r+h], s, s)
		})
	case b.top == 127: // |w| times x with the sign of w: 2*127*127 < 2^15, but no words can be added
		abs := k.extra
		for i := 0; i < b.vecs; i++ {
			b.vec(k, j, i, 0, w0, tmp)
			b.vec(k, j, i, 1, w1, tmp)
			e.p("VPABSB Y%d, Y%d", w0, abs[0])
			e.p("VPABSB Y%d, Y%d", w1, abs[1])
			for r := 0; r < k.rows; r++ {
				x(r, i, tmp)
				e.p("VPSIGNB Y%d, Y%d, Y%d", w0, tmp, t15)
				e.p("VPSIGNB Y%d, Y%d, Y%d", w1, tmp, tmp)
				for h, t := range []int{t15, tmp} {
					madd(t, abs[h], t)
					if s := k.sum(r, h); i == 0 {
						ones(t, s)
					} else {
						ones(t, t)
						e.p("VPADDD Y%d, Y%d, Y%d", t, s, s)
					}
				}
			}
		}
	case b.top == 63 || b.flat: // 2 * 2*63*127 < 2^15: two words can be added
		v0, v1, t := k.extra[0], k.extra[1], k.extra[2:]
		for i := 0; i < b.vecs; i += 2 {
			b.vec(k, j, i, 0, w0, tmp)
			b.vec(k, j, i, 1, w1, tmp)
			b.vec(k, j, i+1, 0, v0, tmp)
			b.vec(k, j, i+1, 1, v1, tmp)
			for r := 0; r < k.rows; r++ {
				x(r, i, tmp)
				x(r, i+1, t15)
				madd(tmp, w0, t[0])
				madd(t15, v0, t[1])
				madd(tmp, w1, tmp)
				madd(t15, v1, t15)
				e.p("VPADDW Y%d, Y%d, Y%d", t[1], t[0], t[0])
				e.p("VPADDW Y%d, Y%d, Y%d", t15, tmp, tmp)
				for h, w := range []int{t[0], tmp} {
					if s := k.sum(r, h); i == 0 && !b.flat {
						ones(w, s)
					} else {
						ones(w, w)
						e.p("VPADDD Y%d, Y%d, Y%d", w, s, s)
					}
				}
			}
		}
	}
	if k.hasOffset() {
		for r := 0; r < k.rows; r++ {
			e.p("VPBROADCASTD %d(R9), Y%d", 4*r, tmp)
			for h := 0; h < 2; h++ {
				e.p("VPADDD Y%d, Y%d, Y%d", tmp, k.sum(r, h), k.sum(r, h))
			}
		}
	}
}

// ways is how many sets of sums VPDPBUSD adds to in turn, lest its latency shows with few rows; way is a register of one of them. Sums of
// four vectors do better with one: what follows does not wait for them (one row, packed: Q6_K 1.15 times as fast, Code4 and Q2_K 1.2).
func (k *int256) ways() int {
	if k.b.vecs == 4 && !k.b.flat {
		return 1
	}
	return min(1+len(k.free)/(2*k.rows), 4)
}

func (k *int256) way(way, r, h int) int {
	if way == 0 {
		return k.sum(r, h)
	}
	return k.free[2*k.rows*(way-1)+2*r+h]
}

// vnniDots is dots with VPDPBUSD.
func (k *int256) vnniDots(j int, x func(r, i, reg int)) {
	e, b := k.e, k.b
	if !b.flat {
		k.vnniZero()
	}
	for i := 0; i < b.vecs; i++ {
		b.vec(k, j, i, 0, w0, tmp)
		b.vec(k, j, i, 1, w1, tmp)
		for r := 0; r < k.rows; r++ {
			x(r, i, tmp)
			e.vnniVex(tmp, w0, k.way(i%k.ways(), r, 0))
			e.vnniVex(tmp, w1, k.way(i%k.ways(), r, 1))
		}
	}
	if !b.flat {
		k.vnniFold()
	}
}

// vnniZero starts all ways at zero, the first one at the offset if there is one.
func (k *int256) vnniZero() {
	e := k.e
	for way := 0; way < k.ways(); way++ {
		k.each(func(r, h int) {
			s := k.way(way, r, h)
			if way > 0 || !k.hasOffset() {
				e.p("VPXOR Y%d, Y%d, Y%d", s, s, s)
				return
			}
			if h == 1 && k.b.bias == 128 {
				e.p("VMOVDQA Y%d, Y%d", k.way(0, r, 0), s)
				return
			}
			e.p("VPBROADCASTD %d(R9), Y%d", 4*r, s)
			if k.b.bias == 128 {
				e.p("VPSLLD $2, Y%d, Y%d", s, s) // -32 times the sum of x becomes -128
			}
		})
	}
}

// vnniFold adds the ways up.
func (k *int256) vnniFold() {
	for n := k.ways(); n > 1; n = (n + 1) / 2 {
		for way := (n + 1) / 2; way < n; way++ {
			k.each(func(r, h int) {
				s := k.way(way-(n+1)/2, r, h)
				k.e.p("VPADDD Y%d, Y%d, Y%d", k.way(way, r, h), s, s)
			})
		}
	}
}

// scale32: acc = fma(float(isum), d*dx, acc); acc = fma(m, sx, acc).
func (k *int256) scale32(j int) {
	e, b := k.e, k.b
	for h := 0; h < 2; h++ {
		e.p("VCVTPH2PS %d(DI), Y%d", b.d+32*j+16*h, w0)
		if b.m != 0 {
			e.p("VCVTPH2PS %d(DI), Y%d", b.m+32*j+16*h, w1)
		}
		for r := 0; r < k.rows; r++ {
			s := k.sum(r, h)
			e.p("VBROADCASTSS %d(DX), Y%d", 4*r, tmp)
			e.p("VMULPS Y%d, Y%d, Y%d", tmp, w0, tmp)
			e.p("VCVTDQ2PS Y%d, Y%d", s, s)
			acc := s
			if k.inMem {
				e.p("VFMADD213PS %s, Y%d, Y%d", k.accAt(r, h), tmp, s)
			} else {
				acc = k.flt(r, h)
				e.p("VFMADD231PS Y%d, Y%d, Y%d", tmp, s, acc)
			}
			if b.m != 0 {
				e.p("VBROADCASTSS %d(R9), Y%d", 4*r, tmp)
				e.p("VFMADD231PS Y%d, Y%d, Y%d", tmp, w1, acc)
			}
			if k.inMem {
				e.p("VMOVUPS Y%d, %s", acc, k.accAt(r, h))
			}
		}
	}
	e.p("ADDQ R10, DX")
	if b.m != 0 || k.hasOffset() {
		e.p("ADDQ R10, R9")
	}
}

// superblock: sub = fma(float(sc_j), float(isum_j), sub) for each j; acc = fma(sub, d*dx, acc); with minima
// acc = fnma(float(sum of m_j*s_j), dmin*dx, acc). Q2_K: see minima2.
func (k *int256) superblock() {
	e, b := k.e, k.b
	switch {
	case b.flat && k.vnni:
		k.vnniZero()
	case b.flat:
		k.each(func(r, h int) { e.p("VPXOR Y%d, Y%d, Y%d", k.sum(r, h), k.sum(r, h), k.sum(r, h)) })
	case k.inMem:
		e.p("VPXOR Y%d, Y%d, Y%d", tmp, tmp, tmp)
		k.each(func(r, h int) { e.p("VMOVUPS Y%d, %s", tmp, k.subAt(r, h)) })
	default:
		k.each(func(r, h int) { e.p("VPXOR Y%d, Y%d, Y%d", k.flt(r, h), k.flt(r, h), k.flt(r, h)) })
	}
	e.p("LEAQ %d(DI), BX", b.scales)
	if b.fifth != 0 {
		e.p("LEAQ %d(DI), R13", b.fifth)
	}
	e.p("MOVL $%d, R12", b.subs/b.unroll)
	e.lab(k.name + "_sub")
	for j := 0; j < b.unroll; j++ {
		k.dots(j)
		switch {
		case b.top != 3:
			k.scaleSub(j)
		case !b.flat:
			k.scaleSub2(j)
		}
	}
	if b.fifth != 0 {
		e.p("ADDQ $128, R13")
	}
	e.p("ADDQ $%d, BX", 16*b.unroll)
	e.p("ADDQ $%d, DI", b.turn)
	e.p("ADDQ $%d, SI", 4*b.vecs*b.unroll)
	if k.rows > 3 {
		e.p("ADDQ $%d, R11", 4*b.vecs*b.unroll)
	}
	e.p("DECQ R12")
	e.p("JNZ %s_sub", k.name)
	if b.flat && k.vnni {
		k.vnniFold()
	}
	// BX is behind the scales now: at the minima, or d of Q6_K, Code4 and Q2_K.
	for off := b.scales; off < b.bytes; off += 64 {
		k.pf("BX", off-b.scales-16*b.subs, 0)
	}
	k.scaleAll()
	if b.top == 3 {
		k.minima2()
	}
	e.p("ADDQ $%d, DI", b.bytes-b.subs/b.unroll*b.turn)
	e.p("ADDQ R10, DX")
	if b.minima() {
		e.p("LEAQ (R9)(R10*4), R9")
	}
}

// scaleSub adds sum j of the turn, times its scale, to the superblock's.
func (k *int256) scaleSub(j int) {
	e, ext := k.e, "VPMOVSXBD"
	if k.b.minima() {
		ext = "VPMOVZXBD"
	}
	if k.hasOffset() {
		e.p("ADDQ R10, R9")
	}
	for h := 0; h < 2; h++ {
		e.p("%s %d(BX), Y%d", ext, 16*j+8*h, w0)
		e.p("VCVTDQ2PS Y%d, Y%d", w0, w0)
		for r := 0; r < k.rows; r++ {
			s := k.sum(r, h)
			e.p("VCVTDQ2PS Y%d, Y%d", s, s)
			if k.inMem {
				e.p("VFMADD213PS %s, Y%d, Y%d", k.subAt(r, h), w0, s)
				e.p("VMOVUPS Y%d, %s", s, k.subAt(r, h))
			} else {
				e.p("VFMADD231PS Y%d, Y%d, Y%d", w0, s, k.flt(r, h))
			}
		}
	}
}

// scaleAll ends a superblock.
func (k *int256) scaleAll() {
	e := k.e
	minima := k.b.minima()
	for h := 0; h < 2; h++ {
		dOff := 16 * h
		if minima {
			dOff += 128
			for t := 0; t < 4; t++ {
				e.p("VPMOVZXBW %d(BX), Y%d", 32*t+16*h, w0)
				for r := 0; r < k.rows; r++ {
					e.p("VPBROADCASTD %d(R9), Y%d", 16*r+4*t, tmp)
					if s := k.sum(r, h); t == 0 {
						e.p("VPMADDWD Y%d, Y%d, Y%d", tmp, w0, s)
					} else {
						e.p("VPMADDWD Y%d, Y%d, Y%d", tmp, w0, tmp)
						e.p("VPADDD Y%d, Y%d, Y%d", tmp, s, s)
					}
				}
			}
			e.p("VCVTPH2PS %d(BX), Y%d", dOff+32, w1)
		}
		if k.b.codes {
			e.p("VMOVUPS %d(BX), Y%d", 32*h, w0)
		} else {
			e.p("VCVTPH2PS %d(BX), Y%d", dOff, w0)
		}
		for r := 0; r < k.rows; r++ {
			s, f := k.sum(r, h), t15
			switch {
			case k.inMem:
				e.p("VMOVUPS %s, Y%d", k.subAt(r, h), f)
			case k.b.flat:
				f = s
			default:
				f = k.flt(r, h)
			}
			if k.b.top == 3 {
				e.p("VCVTDQ2PS Y%d, Y%d", f, f)
			}
			e.p("VBROADCASTSS %d(DX), Y%d", 4*r, tmp)
			e.p("VMULPS Y%d, Y%d, Y%d", tmp, w0, tmp)
			e.p("VFMADD213PS %s, Y%d, Y%d", k.accAt(r, h), tmp, f)
			if minima {
				e.p("VBROADCASTSS %d(DX), Y%d", 4*r, tmp)
				e.p("VMULPS Y%d, Y%d, Y%d", tmp, w1, tmp)
				e.p("VCVTDQ2PS Y%d, Y%d", s, s)
				e.p("VFNMADD231PS Y%d, Y%d, Y%d", tmp, s, f)
			}
			e.p("VMOVUPS Y%d, %s", f, k.accAt(r, h))
		}
	}
}

// addWords adds the products of words x and w to s; t is free, and may be x or w.
func (k *int256) addWords(x, w, s, t int) {
	if k.vnni {
		k.e.wordsVex(x, w, s)
		return
	}
	k.e.p("VPMADDWD Y%d, Y%d, Y%d", x, w, t)
	k.e.p("VPADDD Y%d, Y%d, Y%d", t, s, s)
}

// wordsVex emits the VEX form (AVX-VNNI) of VPDPWSSD: yd += s16(ys1)*s16(ys2). VEX.256.66.0F38.W0 52 /r, register form.
func (e *gen) wordsVex(ys2, ys1, yd int) {
	inv := func(x, bit int) byte { return byte(^x>>bit) & 1 }
	e.raw(fmt.Sprintf("{vex} VPDPWSSD Y%d, Y%d, Y%d", ys2, ys1, yd),
		0xC4, inv(yd, 3)<<7|1<<6|inv(ys2, 3)<<5|0x02, byte(^ys1&15)<<3|1<<2|0x01, 0x52,
		0xC0|byte(yd&7)<<3|byte(ys2&7))
}

// scales2 makes Q2_K's scales j of both halves of the rows words, by a shuffle of consts256.
func (k *int256) scales2(j int, shuffle string, half0, half1 int) {
	k.e.p("VBROADCASTI128 %d(BX), Y%d", 16*j, half1)
	k.e.p("VPAND %s, Y%d, Y%d", k.c["c0f"], half1, half1)
	k.e.p("VPSHUFB %s0<>(SB), Y%d, Y%d", shuffle, half1, half0)
	k.e.p("VPSHUFB %s1<>(SB), Y%d, Y%d", shuffle, half1, half1)
}

// scaleSub2 is scaleSub for Q2_K. A sum is two words, or the low word of one that needs no more (3*127*16).
func (k *int256) scaleSub2(j int) {
	shuffle := "twice"
	if k.vnni {
		shuffle = "once"
	}
	k.scales2(j, shuffle, w0, w1)
	k.each(func(r, h int) { k.addWords([]int{w0, w1}[h], k.sum(r, h), k.flt(r, h), k.sum(r, h)) })
}

// minima2 ends a superblock of Q2_K: acc = fma(float(sum of m_j*n_j), dmin*dx/32, acc). BX points to d. n_j/32 is at most 16*127, a word.
func (k *int256) minima2() {
	e := k.e
	k.each(func(r, h int) { e.p("VPXOR Y%d, Y%d, Y%d", k.sum(r, h), k.sum(r, h), k.sum(r, h)) })
	e.p("SUBQ $256, BX")
	e.p("MOVL $4, R12")
	e.lab(k.name + "_min")
	for j := 0; j < 4; j++ {
		for h, m := range []int{w0, w1} {
			e.p("VPMOVZXBD %d(BX), Y%d", 16*j+8*h, m)
			e.p("VPSRLD $4, Y%d, Y%d", m, m)
		}
		for r := 0; r < k.rows; r++ {
			e.p("VPBROADCASTD %d(R9), Y%d", 4*r, tmp)
			e.p("VPSRLD $5, Y%d, Y%d", tmp, tmp)
			k.addWords(tmp, w0, k.sum(r, 0), t15)
			k.addWords(tmp, w1, k.sum(r, 1), tmp)
		}
		e.p("ADDQ R10, R9")
	}
	e.p("ADDQ $64, BX")
	e.p("DECQ R12")
	e.p("JNZ %s_min", k.name)
	for h := 0; h < 2; h++ {
		e.p("VCVTPH2PS %d(BX), Y%d", 32+16*h, w1)
		for r := 0; r < k.rows; r++ {
			s := k.sum(r, h)
			e.p("VPSLLD $5, Y%d, Y%d", s, s)
			e.p("VCVTDQ2PS Y%d, Y%d", s, s)
			e.p("VBROADCASTSS %d(DX), Y%d", 4*r, tmp)
			e.p("VMULPS Y%d, Y%d, Y%d", tmp, w1, tmp)
			e.p("VMULPS c3d000000<>(SB), Y%d, Y%d", tmp, tmp)
			e.p("VFMADD213PS %s, Y%d, Y%d", k.accAt(r, h), tmp, s)
			e.p("VMOVUPS Y%d, %s", s, k.accAt(r, h))
		}
	}
}

// signed256 writes the kernel of 8-bit weights without VNNI: |w| times x with the sign of w, whose pairs fit into a word
// (2*128*127 < 2^15). That is 4 instructions per vector and row, as with low and high nibbles apart, but there is less to do for a
// vector and for a block, and one sum per row lets six rows share the weights, half a panel at a time. Float accumulators lie in Acc.
func signed256(e *gen, b *block256, rows int, loop bool, prefix string) {
	k := &int256{e: e, b: b, rows: rows, loop: loop, inMem: true, name: prefix + b.name}
	const w, abs, temps, c80, ones = 6, 7, 8, 14, 15
	outputs := func(f func(y, acc string)) {
		k.y()
		k.each(func(r, h int) { f(row256("R12", r, 32*h), k.accAt(r, h)) })
	}
	k.begin()
	e.p("VMOVDQU c80<>(SB), Y%d", c80)
	e.p("VMOVDQU c0001<>(SB), Y%d", ones)
	e.arg("R13")
	e.ld("R13", "W", "DI")
	k.panels()
	e.ld("R13", "Acc", "R8")
	e.p("VPXOR Y0, Y0, Y0")
	k.each(func(r, h int) { e.p("VMOVUPS Y0, %s", k.accAt(r, h)) })
	e.ld("R13", "Cont", "AX")
	e.p("TESTQ AX, AX")
	e.p("JEQ %s_zero", k.name)
	outputs(func(y, acc string) {
		e.p("VMOVUPS %s, Y0", y)
		e.p("VMOVUPS Y0, %s", acc)
	})
	e.lab(k.name + "_zero")
	e.ld("R13", "X", "SI")
	k.stride("XStride")
	k.row3("SI")
	e.ld("R13", "D", "DX")
	e.ld("R13", "Mp", "R10")
	e.ld("R13", "Groups", "CX")
	e.lab(k.name + "_group")
	for j := 0; j < b.subs; j++ {
		for h := 0; h < 2; h++ {
			for i := 0; i < b.vecs; i++ {
				off := 64 * (b.vecs*j + i)
				k.pf("DI", off, h)
				e.p("VPXOR %d(DI), Y%d, Y%d", off+32*h, c80, w)
				e.p("VPABSB Y%d, Y%d", w, abs)
				for r := 0; r < rows; r++ {
					t := temps + r
					e.p("VPBROADCASTD %s, Y%d", row256("SI", r, 4*(b.vecs*j+i)), t)
					e.p("VPSIGNB Y%d, Y%d, Y%d", w, t, t)
					e.p("VPMADDUBSW Y%d, Y%d, Y%d", t, abs, t)
					if i == 0 {
						e.p("VPMADDWD Y%d, Y%d, Y%d", ones, t, r)
						continue
					}
					e.p("VPMADDWD Y%d, Y%d, Y%d", ones, t, t)
					e.p("VPADDD Y%d, Y%d, Y%d", t, r, r)
				}
			}
			e.p("VCVTPH2PS %d(DI), Y%d", b.d+32*j+16*h, w)
			for r := 0; r < rows; r++ {
				t := temps + r
				e.p("VBROADCASTSS %d(DX), Y%d", 4*r, t)
				e.p("VMULPS Y%d, Y%d, Y%d", t, w, t)
				e.p("VCVTDQ2PS Y%d, Y%d", r, r)
				e.p("VFMADD213PS %s, Y%d, Y%d", k.accAt(r, h), t, r)
				e.p("VMOVUPS Y%d, %s", r, k.accAt(r, h))
			}
		}
		e.p("ADDQ R10, DX")
	}
	k.pf("DI", b.d, 0)
	e.p("ADDQ $%d, DI", b.bytes)
	e.p("ADDQ $64, SI")
	if rows > 3 {
		e.p("ADDQ $64, R11")
	}
	e.p("DECQ CX")
	e.p("JNZ %s_group", k.name)
	outputs(func(y, acc string) {
		e.p("VMOVUPS %s, Y0", acc)
		e.p("VMOVUPS Y0, %s", y)
	})
	k.end()
}

// unpack256 writes the kernel that expands groups to one byte per weight.
func unpack256(e *gen, b *block256, tier string) {
	name := tier + "Unpack" + b.name
	e.fnFrame(name, fmt.Sprintf("expands Groups groups of %s at Src to %d bytes each at Dst.", b.name, b.unpackedBytes), 0)
	k := newInt256(e, b, true, 0, true)
	k.keep()
	if b.codes && b.bias == 0 {
		bias256(e, k.table, w0, "Y", name+"_wide")
		e.p("VMOVDQA Y%d, Y%d", w0, k.table)
		e.lab(name + "_wide")
	}
	var sc [2]int
	if b.top == 3 {
		sc = [2]int{k.take(), k.take()}
	}
	e.arg("R13")
	k.ahead()
	e.ld("R13", "Src", "DI")
	e.ld("R13", "Dst", "R8")
	e.ld("R13", "Groups", "CX")
	e.lab(name + "_group")
	turns, scales := 1, b.d
	if b.k() {
		turns, scales = b.subs/b.unroll, b.scales
		e.p("LEAQ %d(DI), BX", b.scales)
		if b.fifth != 0 {
			e.p("LEAQ %d(DI), R13", b.fifth)
		}
		e.p("MOVL $%d, R12", turns)
		e.lab(name + "_sub")
	}
	n := 0
	for j := 0; j < b.unroll; j++ {
		if b.top == 3 {
			k.scales2(j, "twice", sc[0], sc[1])
		}
		for i := 0; i < b.vecs; i++ {
			for h := 0; h < 2; h++ {
				b.vec(k, j, i, h, w0, w1)
				if b.top == 3 { // two bytes at a time: 3*15 < 256
					e.p("VPMULLW Y%d, Y%d, Y%d", sc[h], w0, w0)
				}
				e.p("VMOVDQU Y%d, %d(R8)", w0, n)
				n += 32
			}
		}
	}
	e.p("ADDQ $%d, R8", n)
	if b.k() {
		if b.fifth != 0 {
			e.p("ADDQ $128, R13")
		}
		if b.top == 3 {
			e.p("ADDQ $%d, BX", 16*b.unroll)
		}
		e.p("ADDQ $%d, DI", b.turn)
		e.p("DECQ R12")
		e.p("JNZ %s_sub", name)
	}
	for i := 0; i < b.tail; i += 32 {
		k.pf("DI", scales-turns*b.turn+i, i%64)
		e.p("VMOVDQU %d(DI), Y%d", scales-turns*b.turn+i, w0)
		e.p("VMOVDQU Y%d, %d(R8)", w0, i)
	}
	e.p("ADDQ $%d, DI", b.bytes-turns*b.turn)
	e.p("ADDQ $%d, R8", b.tail)
	e.p("DECQ CX")
	e.p("JNZ %s_group", name)
	e.ret()
}

// Two and three rows of a float layout take this many groups of a panel before they change halves. From memory (Small) 8 KiB, less
// than the prefetch distance; of a cached panel (Gemm) 32 or 64 KiB.
var (
	chunkSmall256 = map[string]int{"F32": 32, "F16": 64, "BF16": 32}
	chunkGemm256  = map[string]int{"F32": 256, "F16": 256, "BF16": 128}
)

// float256 writes the kernels of the float layouts for rows activation rows: one row has the eight accumulators of a panel in
// registers; two and three have those of one half (32 weight rows) at a time, the others wait in Y.
func float256(e *gen, layout string, rows int) {
	for _, loop := range []bool{true, false} {
		kind, what := "Gemm"+fmt.Sprint(rows), "panel"
		if loop {
			what = "Panels panels"
			kind = "Small" + fmt.Sprint(rows)
			if rows == 1 {
				kind = "Gemv"
			}
		}
		k := &fl256{e: e, layout: layout, rows: rows, fetch: loop, name: "avx2" + kind + layout, mask: "cffff0000<>(SB)"}
		frame := 0
		if loop {
			frame = 24
		}
		e.fnFrame(k.name, fmt.Sprintf("multiplies %d activation rows with %s of %s.", rows, what, layout), frame)
		if layout == "BF16" && rows < 3 {
			k.mask = "Y14"
			e.p("VMOVDQU cffff0000<>(SB), Y14")
		}
		e.arg("R13")
		if loop {
			for i, f := range []string{"W", "Y", "Panels"} {
				e.ld("R13", f, "AX")
				e.p("MOVQ AX, %d(SP)", 8*i)
			}
		}
		if rows > 1 {
			e.ld("R13", "XStride", "AX")
			e.ld("R13", "YStride", "R10")
		}
		if loop {
			e.lab(k.name + "_panel")
			e.p("MOVQ 0(SP), DI")
			e.p("MOVQ 8(SP), R9")
		} else {
			e.ld("R13", "W", "DI")
			e.ld("R13", "Y", "R9")
		}
		if loop {
			e.ld("R13", "Pf", "R11")
			e.p("LEAQ (DI)(R11*2), R11") // twice Pf, as in int256.ahead
		}
		e.ld("R13", "X", "SI")
		e.ld("R13", "Groups", "CX")
		e.ld("R13", "Cont", "R12")
		k.panel()
		if loop {
			e.p("ADDQ $256, 8(SP)")
			e.ld("R13", "WStep", "BX")
			e.p("ADDQ BX, 0(SP)")
			e.p("DECQ 16(SP)")
			e.p("JNZ %s_panel", k.name)
		}
		e.ret()
	}
}

// fl256 emits one float kernel.
type fl256 struct {
	e            *gen
	layout       string
	rows         int
	fetch        bool
	name, mask   string
	vecs, accs   int // accumulators per row and pass
	wBytes, pass int // bytes of a group, and of its part in a pass
}

func (k *fl256) y(r, off int) string {
	return fmt.Sprintf("%d(R9)%s", off, []string{"", "(R10*1)", "(R10*2)"}[r])
}

func (k *fl256) panel() {
	e := k.e
	k.wBytes = 256
	if k.layout == "F16" {
		k.wBytes = 128
	}
	k.vecs, k.pass = 8, k.wBytes
	if k.rows == 1 {
		for v := 0; v < 8; v++ {
			e.p("VXORPS Y%d, Y%d, Y%d", v, v, v)
		}
		e.p("TESTQ R12, R12")
		e.p("JEQ %s_zero", k.name)
		k.accs256("load", 0)
		e.lab(k.name + "_zero")
		e.p("MOVQ DI, R8")
		e.p("MOVQ SI, DX")
		e.p("MOVQ CX, R12")
		k.loop(0)
		k.accs256("store", 0)
		return
	}
	k.vecs, k.pass = 4, k.wBytes/2
	e.p("TESTQ R12, R12")
	e.p("JNE %s_chunk", k.name)
	e.p("VXORPS Y0, Y0, Y0")
	for r := 0; r < k.rows; r++ {
		for v := 0; v < 8; v++ {
			e.p("VMOVUPS Y0, %s", k.y(r, 32*v))
		}
	}
	e.lab(k.name + "_chunk")
	chunk := chunkGemm256[k.layout]
	if k.fetch {
		chunk = chunkSmall256[k.layout]
	}
	e.p("MOVQ $%d, BX", chunk)
	e.p("CMPQ CX, BX")
	e.p("CMOVQLT CX, BX")
	for h := 0; h < 2; h++ {
		e.p("MOVQ DI, R8")
		e.p("MOVQ SI, DX")
		e.p("MOVQ BX, R12")
		k.accs256("load", h)
		k.loop(h)
		k.accs256("store", h)
	}
	e.p("MOVQ R8, DI")
	e.p("MOVQ DX, SI")
	e.p("SUBQ BX, CX")
	e.p("JNZ %s_chunk", k.name)
}

func (k *fl256) accs256(what string, h int) {
	for r := 0; r < k.rows; r++ {
		for v := 0; v < k.vecs; v++ {
			if y, a := k.y(r, 128*h+32*v), k.vecs*r+v; what == "load" {
				k.e.p("VMOVUPS %s, Y%d", y, a)
			} else {
				k.e.p("VMOVUPS Y%d, %s", a, y)
			}
		}
	}
}

// loop runs over R12 groups, weights at R8, activations at DX, for half h of the panel (two and three rows).
func (k *fl256) loop(h int) {
	e := k.e
	x := func(r int) string { return fmt.Sprintf("(DX)%s", []string{"", "(AX*1)", "(AX*2)"}[r]) }
	xr, w := 12, 15 // three rows fill the register file: 12 accumulators, 3 activations, weights
	if k.rows == 1 {
		xr = 8
	}
	fma := func(v int) {
		for r := 0; r < k.rows; r++ {
			e.p("VFMADD231PS Y%d, Y%d, Y%d", xr+r, w, k.vecs*r+v)
		}
	}
	e.lab(fmt.Sprintf("%s_k%d", k.name, h))
	if k.fetch { // R11 goes evenly through both halves' bytes, whichever half is at work
		for off := 0; off < k.pass; off += 64 {
			e.p("PREFETCHT0 %d(R11)", off)
		}
		e.p("ADDQ $%d, R11", k.pass)
	}
	step := 4
	switch k.layout {
	case "F32", "F16":
		for r := 0; r < k.rows; r++ {
			e.p("VBROADCASTSS %s, Y%d", x(r), xr+r)
		}
		for v := 0; v < k.vecs; v++ {
			if k.layout == "F16" {
				e.p("VCVTPH2PS %d(R8), Y%d", k.pass*h+16*v, w)
			} else {
				e.p("VMOVUPS %d(R8), Y%d", k.pass*h+32*v, w)
			}
			fma(v)
		}
	case "BF16": // the pair's first, then its second element
		for half := 0; half < 2; half++ {
			for r := 0; r < k.rows; r++ {
				e.p("VPBROADCASTD %s, Y%d", x(r), xr+r)
				if half == 0 {
					e.p("VPSLLD $16, Y%d, Y%d", xr+r, xr+r)
				} else {
					e.p("VPAND %s, Y%d, Y%d", k.mask, xr+r, xr+r)
				}
			}
			for v := 0; v < k.vecs; v++ {
				off := k.pass*h + 32*v
				switch {
				case half == 1 && k.mask[0] == 'Y':
					e.p("VPAND %d(R8), %s, Y%d", off, k.mask, w)
				case half == 1:
					e.p("VMOVDQU %d(R8), Y%d", off, w)
					e.p("VPAND %s, Y%d, Y%d", k.mask, w, w)
				default:
					e.p("VMOVDQU %d(R8), Y%d", off, w)
					e.p("VPSLLD $16, Y%d, Y%d", w, w)
				}
				fma(v)
			}
		}
	}
	e.p("ADDQ $%d, R8", k.wBytes)
	e.p("ADDQ $%d, DX", step)
	e.p("DECQ R12")
	e.p("JNZ %s_k%d", k.name, h)
}
