package main

import "fmt"

// Kernels that pack panels: source blocks of 16 rows to whole groups. A row is read 16 bytes at a time, a "unit". Four rows'
// units, i, 4+i, 8+i, 12+i, are the 128-bit lanes of a vector, so that four vectors hold the units of 16 rows and transposing them
// within lanes gives four vectors of the panel: dword d of all 16 rows. Bits are sorted afterwards, in all rows at once.

var packFields = fields("Src", "Stride", "Dst", "Groups", "Pf")

func init() {
	families["dot"] = append(families["dot"], func() { dotPack(false) }, func() { dotPack(true) })
}

// packer emits kernels. SI, R8, R9, R10 point to rows 0, 4, 8, 12 at the current group, R11 is the stride, R12 three times
// that, R13 the prefetch distance, DI the destination, CX counts groups.
type packer struct {
	vec
	near   bool // no prefetching
	onLoad func()
}

// A kernel reads `step` bytes of a row and writes `group` bytes for each group.
func dotPack(wide bool) {
	v := vec{wide: wide}
	v.gen = newGen("dot", "dot", "../dot/pack_"+v.tier(), "packArgs", packFields)
	v.constants()
	p := &packer{vec: v}
	p.kernel("Words", 16, 1024, func() {
		p.unit(0)
		for i := range 4 {
			p.store(reg(i), 256*i)
		}
	})
	p.kernel("Halves", 16, 1024, func() {
		p.unit(0)
		for i := range 4 {
			p.lowWords(reg(i), 256*i)
			p.highWords(reg(i), 256*i+128)
		}
	})
	p.kernel("Q8_0", 68, 1088, func() {
		for b := range 2 {
			p.dword(34*b, 0)
			p.lowWords(0, 1024+32*b)
			for h := range 2 {
				p.unit(34*b + 2 + 16*h)
				for i := range 4 {
					p.bits("VPXOR", packConst(0x80), reg(i), reg(i))
					p.store(reg(i), 512*b+256*h+64*i)
				}
			}
		}
	})
	p.kernel("Q4_0", 36, 576, func() {
		for b := range 2 {
			p.dword(18*b, 0)
			p.lowWords(0, 512+32*b)
			p.copy(18*b+2, 256*b)
		}
	})
	p.kernel("Q4_1", 40, 640, func() {
		for b := range 2 {
			p.dword(20*b, 0)
			p.lowWords(0, 512+32*b)
			p.highWords(0, 576+32*b)
			p.copy(20*b+4, 256*b)
		}
	})
	p.kernel("Q5_0", 44, 704, func() {
		for b := range 2 {
			p.dword(22*b, 0)
			p.o("VPSRLD", "$16", reg(0), reg(1)) // the first two bytes of the fifth bits, after d
			p.o("VPSLLD", "$16", reg(3), reg(2)) // the last two: dword 1
			p.or(reg(1), 2, 1)
			p.lowWords(0, 640+32*b)
			p.fifth(1, 512+64*b)
			p.copy(22*b+6, 256*b)
		}
	})
	p.kernel("Q5_1", 48, 768, func() {
		for b := range 2 {
			p.dword(24*b, 0)
			p.lowWords(0, 640+32*b)
			p.highWords(0, 704+32*b)
			p.fifth(3, 512+64*b)
			p.copy(24*b+8, 256*b)
		}
	})
	p.kernel("Q4_K", 144, 2368, func() {
		p.scales(2048)
		for i := range 8 {
			p.copy(16+16*i, 256*i)
		}
	})
	p.kernel("Q5_K", 176, 2880, func() {
		p.scales(2560)
		for i := range 8 {
			p.copy(48+16*i, 256*i)
		}
		p.copy(16, 2048)
		p.copy(32, 2304)
		p.bitTranspose(2048)
	})
	p.kernel("Q6_K", 210, 3392, func() {
		for n := range 2 {
			for l := range 2 { // half of a run of 32: sub-blocks 8n+2c+l
				at := func(c int) int { return 192 * (8*n + 2*c + l) }
				for c := range 2 {
					p.unit(64*n + 32*c + 16*l)
					p.swap(0, 1, 4, 4, 0x0f) // low nibbles of both to 0, high ones to 1
					p.swap(2, 3, 4, 4, 0x0f)
					p.store(0, at(c))
					p.store(2, at(c)+64)
					p.store(1, at(c+2))
					p.store(3, at(c+2)+64)
				}
				p.unit(128 + 32*n + 16*l)
				p.transposePairs()
				for c := range 4 {
					p.store(reg(c), at(c)+128)
				}
			}
		}
		p.unit(192)
		for i := range 4 {
			p.bytes(reg(i), 3072+64*i)
		}
		p.dword(194, 3)
		p.highWords(0, 3328)
		p.p("VPXOR X0, X0, X0")
		p.p("VMOVDQU Y0, 3360(DI)")
	})
	p.kernel("Q2_K", 84, 1344, func() {
		p.unit(0)
		for i := range 4 {
			p.bytes(reg(i), 1024+64*i)
		}
		for u := range 4 { // 16 bytes: parts of four sub-blocks, in pairs of bits
			p.unit(16 + 16*u)
			p.transposePairs()
			for c := range 4 {
				p.store(reg(c), 64*(8*(u/2)+2*c+u%2))
			}
		}
		p.dword(68, 3)
		p.lowWords(0, 1280)
		p.highWords(0, 1312)
	})
	p.near = true // rows have just been written
	p.kernel("Code4", 148, 2368, func() {
		p.dword(0, 0)
		p.store(0, 2304)
		p.unit(4)
		for i := range 4 {
			p.bytes(reg(i), 2048+64*i)
		}
		for u := range 8 {
			p.unit(20 + 16*u)
			for i := range 4 {
				p.octet(reg(i))
				p.store(reg(i), 256*u+64*i)
			}
		}
	})
	p.finish()
}

// transposePairs makes bits 2i, 2i+1 of vector c of bits 2c, 2c+1 of vector i, of vectors 0..3. It uses vector 4.
func (p *packer) transposePairs() {
	p.swap(0, 2, 4, 4, 0x0f)
	p.swap(1, 3, 4, 4, 0x0f)
	p.swap(0, 1, 4, 2, 0x33)
	p.swap(2, 3, 4, 2, 0x33)
}

// octet sorts the eight nibbles of each dword of r: nibble k goes to the low half of byte k, nibble 4+k to the high half. It
// exchanges the middle bytes, then the middle nibbles of each word. It uses vector 4.
func (p *packer) octet(r reg) {
	p.o("VPSHUFB", mem{base: "packmiddle<>(SB)"}, r, r)
	p.o("VPSRLD", "$4", r, reg(4))
	p.bits("VPXOR", r, 4, 4)
	p.and(packWord(5), 4, 4)
	p.bits("VPXOR", reg(4), r, r)
	p.o("VPSLLD", "$4", reg(4), reg(4))
	p.bits("VPXOR", reg(4), r, r)
}

// Constants in memory: single bytes in all places, then the tables of shuffles.
var packBytes = []uint32{0x80, 0x0f, 0x33, 0x55, 0x3f, 0x30}

var packWords = []uint32{0x11111111, 0x03030303, 0x000f000f, 0x000000ff, 0x0000ffff, 0x00f000f0}

func packConst(b uint32) mem {
	for i, c := range packBytes {
		if c == b {
			return row("packconst", i)
		}
	}
	panic(b)
}

func packWord(i int) mem { return row("packconst", len(packBytes)+i) }

func (v vec) constants() {
	var w []uint32
	for _, b := range packBytes {
		w = append(w, b*0x01010101)
	}
	v.rows64("packconst", append(w, packWords...)...)
	for i := range 8 { // bytes 0 of four dwords, bytes 1, ...
		fmt.Fprintf(&v.s, "DATA packbytes<>+%d(SB)/8, $0x%016x\n", 8*i, [2]uint64{0x0d0905010c080400, 0x0f0b07030e0a0602}[i%2])
	}
	fmt.Fprintf(&v.s, "GLOBL packbytes<>(SB), RODATA|NOPTR, $64\n")
	for i := range 8 { // bytes 0, 2, 1, 3 of each dword
		fmt.Fprintf(&v.s, "DATA packmiddle<>+%d(SB)/8, $0x%016x\n", 8*i, [2]uint64{0x0705060403010200, 0x0f0d0e0c0b090a08}[i%2])
	}
	fmt.Fprintf(&v.s, "GLOBL packmiddle<>(SB), RODATA|NOPTR, $64\n")
	lanes := 2
	if v.wide {
		lanes = 4
	}
	for i := range 4 * lanes { // dword j of lane l to place lanes*j+l
		fmt.Fprintf(&v.s, "DATA packlanes<>+%d(SB)/4, $%d\n", 4*i, i%lanes*4+i/lanes)
	}
	fmt.Fprintf(&v.s, "GLOBL packlanes<>(SB), RODATA|NOPTR, $%d\n", 16*lanes)
}

// kernel emits a kernel whose body packs one group.
func (p *packer) kernel(name string, step, group int, body func()) {
	name = p.tier() + "Pack" + name
	p.fn(name, fmt.Sprintf("packs Groups x %d bytes of 16 rows to Groups x %d bytes.", step, group))
	p.arg("BX")
	p.ld("BX", "Src", "SI")
	p.ld("BX", "Stride", "R11")
	p.ld("BX", "Dst", "DI")
	p.ld("BX", "Groups", "CX")
	p.ld("BX", "Pf", "R13")
	p.p("LEAQ (R11)(R11*2), R12")
	p.p("LEAQ (SI)(R11*4), R8")
	p.p("LEAQ (R8)(R11*4), R9")
	p.p("LEAQ (R9)(R11*4), R10")
	p.lab(name + "_l")
	// The prefetches are spread over the loads: 64 at once would wait for each other, and nothing would be under way later.
	start, loads := p.s.Len(), 0
	p.onLoad = func() { loads++ }
	body()
	p.s.Truncate(start)
	var ahead []string
	for off := 0; off < step && !p.near; off += 64 {
		for j := range 4 {
			for i := range 4 {
				ahead = append(ahead, fmt.Sprintf("LEAQ (%s)(R13*1), AX\n\tPREFETCHT0 %s", packBase[j], packRow("AX", i, off)))
			}
		}
	}
	quota := (len(ahead) + loads - 1) / loads
	p.onLoad = func() {
		for range min(quota, len(ahead)) {
			p.p("%s", ahead[0])
			ahead = ahead[1:]
		}
	}
	body()
	for _, b := range packBase {
		p.p("ADDQ $%d, %s", step, b)
	}
	p.p("ADDQ $%d, DI", group)
	p.p("DECQ CX")
	p.p("JNZ %s_l", name)
	p.ret()
}

var packBase = [4]string{"SI", "R8", "R9", "R10"}

// packRow is the address of row i of four from base on.
func packRow(base string, i, off int) string {
	return fmt.Sprintf("%d(%s)%s", off, base, []string{"", "(R11*1)", "(R11*2)", "(R12*1)"}[i])
}

// load fills vectors 0..3 with the 16 bytes at off of each row, lane j of vector i from row 4j+i.
func (p *packer) load(off int) {
	p.onLoad()
	for i := range 4 {
		at := func(j int) string { return packRow(packBase[j], i, off) }
		if p.wide {
			p.p("VMOVDQU %s, X%d", at(0), i)
			for j := 1; j < 4; j++ {
				p.p("VINSERTI32X4 $%d, %s, Z%d, Z%d", j, at(j), i, i)
			}
			continue
		}
		for h := range 2 {
			p.p("VMOVDQU %s, X%d", at(2*h), 2*i+h)
			p.p("VINSERTI128 $1, %s, Y%d, Y%d", at(2*h+1), 2*i+h, 2*i+h)
		}
	}
}

// unit makes vector d (0..3) the dwords at off+4d of the rows. It uses vectors 4 to 7.
func (p *packer) unit(off int) {
	p.load(off)
	for i := range 2 {
		p.o("VPUNPCKLDQ", reg(2*i+1), reg(2*i), reg(4+2*i))
		p.o("VPUNPCKHDQ", reg(2*i+1), reg(2*i), reg(5+2*i))
	}
	for i := range 2 {
		p.o("VPUNPCKLQDQ", reg(6+i), reg(4+i), reg(2*i))
		p.o("VPUNPCKHQDQ", reg(6+i), reg(4+i), reg(2*i+1))
	}
}

// dword makes vector 0 dword d (0, 3) of the 16 bytes at off, and vector 3 its neighbour (1, 2).
func (p *packer) dword(off, d int) {
	p.load(off)
	ins, first, second := "VPUNPCKLDQ", "VPUNPCKLQDQ", "VPUNPCKHQDQ"
	if d == 3 {
		ins, first, second = "VPUNPCKHDQ", second, first
	}
	p.o(ins, reg(1), reg(0), reg(1))
	p.o(ins, reg(3), reg(2), reg(2))
	p.o(first, reg(2), reg(1), reg(0))
	p.o(second, reg(2), reg(1), reg(3))
}

// copy stores the four vectors of the 16 bytes at off one after another.
func (p *packer) copy(off, dst int) {
	p.unit(off)
	for i := range 4 {
		p.store(reg(i), dst+64*i)
	}
}

func (p *packer) move(src, dst any) {
	if p.wide {
		p.o("VMOVDQU32", src, dst)
	} else {
		p.o("VMOVDQU", src, dst)
	}
}

func (p *packer) store(r reg, dst int) { p.move(r, f32(dst, "DI")) }

// lowWords and highWords store one half of each dword of r: 32 bytes. They use vectors 6 and 7.
func (p *packer) lowWords(r reg, dst int) {
	if p.wide {
		p.p("VPMOVDW Z%d, %d(DI)", r, dst)
		return
	}
	p.and(packWord(4), r, 7)
	p.words(dst)
}

func (p *packer) highWords(r reg, dst int) {
	p.o("VPSRLD", "$16", r, reg(7))
	if p.wide {
		p.p("VPMOVDW Z7, %d(DI)", dst)
		return
	}
	p.words(dst)
}

// words stores the low halves of vector 7, whose high ones are 0.
func (p *packer) words(dst int) {
	p.p("VPACKUSDW Y15, Y14, Y14")
	p.p("VPERMQ $0xd8, Y14, Y14")
	p.p("VMOVDQU Y14, %d(DI)", dst)
}

// bytes stores byte j of each row's dword in r at dst+16j. It uses vectors 6 and 7.
func (p *packer) bytes(r reg, dst int) {
	p.o("VPSHUFB", mem{base: "packbytes<>(SB)"}, r, reg(7))
	if p.wide {
		p.p("VMOVDQU32 packlanes<>(SB), Z6")
		p.p("VPERMD Z7, Z6, Z7")
		p.store(7, dst)
		return
	}
	p.p("VMOVDQU packlanes<>(SB), Y13")
	p.p("VPERMD Y14, Y13, Y14") // bytes j of rows 0..7 in qword j
	p.p("VPERMD Y15, Y13, Y15") // rows 8..15
	p.p("VPUNPCKLQDQ Y15, Y14, Y13")
	p.p("VPUNPCKHQDQ Y15, Y14, Y14")
	for i := range 2 {
		p.p("VMOVDQU X%d, %d(DI)", 13+i, dst+16*i)
		p.p("VEXTRACTI128 $1, Y%d, %d(DI)", 13+i, dst+32+16*i)
	}
}

// scales stores d, dmin and the K-quants' packed scales and minima, the first 16 bytes of a block, at dst. See packScales in Go.
func (p *packer) scales(dst int) {
	p.unit(0)
	p.lowWords(0, dst+256)
	p.highWords(0, dst+288)
	p.and(packConst(0x3f), 1, 4)
	p.bytes(4, dst)
	p.o("VPSRLD", "$2", reg(1), reg(1))
	p.and(packConst(0x30), 1, 1)
	p.and(packConst(0x0f), 3, 4)
	p.or(reg(1), 4, 4)
	p.bytes(4, dst+64)
	p.and(packConst(0x3f), 2, 4)
	p.lowWords(4, dst+128)
	p.highWords(4, dst+160)
	p.o("VPSRLD", "$2", reg(2), reg(2))
	p.and(packConst(0x30), 2, 2)
	p.o("VPSRLD", "$4", reg(3), reg(3))
	p.and(packConst(0x0f), 3, 4)
	p.or(reg(2), 4, 4)
	p.lowWords(4, dst+192)
	p.highWords(4, dst+224)
}

// fifth stores the dwords of w with bit 4i+k moved to bit i of byte k. It uses vectors 4 to 6.
func (p *packer) fifth(w reg, dst int) {
	for k := range 4 {
		if p.o("VPSRLD", fmt.Sprintf("$%d", k), w, reg(4)); k == 0 {
			p.and(packWord(0), w, 4)
		} else {
			p.and(packWord(0), 4, 4)
		}
		for i, s := range []int{3, 6, 12} {
			p.o("VPSRLD", fmt.Sprintf("$%d", s), reg(4), reg(5))
			p.or(reg(5), 4, 4)
			p.and(packWord(1+i), 4, 4)
		}
		if k == 0 {
			p.or(reg(4), 4, 6)
			continue
		}
		p.o("VPSLLD", fmt.Sprintf("$%d", 8*k), reg(4), reg(4))
		p.or(reg(4), 6, 6)
	}
	p.store(6, dst)
}

// swap exchanges the bits of a that are above those of mask by s with the bits of b under mask (a byte); t is overwritten.
func (p *packer) swap(a, b, t reg, s int, mask uint32) {
	shift := fmt.Sprintf("$%d", s)
	p.o("VPSRLD", shift, a, t)
	p.bits("VPXOR", b, t, t)
	p.and(packConst(mask), t, t)
	p.bits("VPXOR", t, b, b)
	p.o("VPSLLD", shift, t, t)
	p.bits("VPXOR", t, a, a)
}

// bitTranspose transposes, in each byte place, the 8 x 8 matrix of the bits of eight vectors at dst.
func (p *packer) bitTranspose(dst int) {
	halves, name, suffix, mov := 2, "Y", "", "VMOVDQU"
	if p.wide {
		halves, name, suffix, mov = 1, "Z", "D", "VMOVDQU32"
	}
	for h := range halves {
		for i := range 8 {
			p.p("%s %d(DI), %s%d", mov, dst+64*i+32*h, name, i)
		}
		for s := 4; s > 0; s /= 2 {
			m := packConst(map[int]uint32{4: 0x0f, 2: 0x33, 1: 0x55}[s]).base
			for i := range 8 {
				if i&s != 0 {
					continue
				}
				p.p("VPSRLD $%d, %s%d, %s8", s, name, i, name)
				p.p("VPXOR%s %s%d, %s8, %s8", suffix, name, i+s, name, name)
				p.p("VPAND%s %s, %s8, %s8", suffix, m, name, name)
				p.p("VPXOR%s %s8, %s%d, %s%d", suffix, name, name, i+s, name, i+s)
				p.p("VPSLLD $%d, %s8, %s8", s, name, name)
				p.p("VPXOR%s %s8, %s%d, %s%d", suffix, name, name, i, name, i)
			}
		}
		for i := range 8 {
			p.p("%s %s%d, %d(DI)", mov, name, i, dst+64*i+32*h)
		}
	}
}
