package main

import (
	"fmt"
	"slices"
)

// packRepeated are constants that fill vectors in memory: bytes, then 32-bit words.
var packRepeated = append(repeat(0x80, 0x0f, 0x33, 0x55, 0x3f, 0x30), 0x11111111, 0x03030303, 0x000f000f, 0x000000ff, 0x0000ffff, 0x00f000f0)

// repeat fills 32-bit words with bytes.
func repeat(bytes ...uint32) (w []uint32) {
	for _, b := range bytes {
		w = append(w, b*0x01010101)
	}
	return w
}

// packByte and packWord are constants: a byte in all places, a 32-bit word.
func packByte(b uint32) mem { return packWord(b * 0x01010101) }

func packWord(w uint32) mem {
	i := slices.Index(packRepeated, w)
	if i < 0 {
		panic(fmt.Sprintf("no constant %#x", w))
	}
	return row("packconst", i)
}

// constants writes packRepeated and the tables of shuffles.
func (p *packer) constants() {
	p.rows64("packconst", packRepeated...)
	for _, t := range []struct {
		name string
		of   [2]uint64
	}{
		{"packbytes", [2]uint64{0x0d0905010c080400, 0x0f0b07030e0a0602}},  // bytes 0 of four dwords, bytes 1, ...
		{"packmiddle", [2]uint64{0x0705060403010200, 0x0f0d0e0c0b090a08}}, // bytes 0, 2, 1, 3 of each dword
	} {
		for i := range 8 {
			p.datum(t.name, 8*i, 8, fmt.Sprintf("0x%016x", t.of[i%2]))
		}
		p.global(t.name, 64)
	}
	lanes := 2
	if p.wide {
		lanes = 4
	}
	var places []uint32
	for i := range 4 * lanes { // dword j of lane l to place lanes*j+l
		places = append(places, uint32(i%lanes*4+i/lanes))
	}
	p.list("packlanes", places...)
}

// scales stores d, dmin and the K-quants' packed scales and minima, the first 16 bytes of a block, at dst. See packScales in Go.
func (p *packer) scales(dst int) {
	p.unit(0)
	p.lowWords(0, "DI", dst+256)
	p.highWords(0, "DI", dst+288)
	p.and(packByte(0x3f), 1, 4)
	p.bytes(4, dst)
	p.o("VPSRLD", "$2", reg(1), reg(1))
	p.and(packByte(0x30), 1, 1)
	p.and(packByte(0x0f), 3, 4)
	p.or(reg(1), 4, 4)
	p.bytes(4, dst+64)
	p.and(packByte(0x3f), 2, 4)
	p.lowWords(4, "DI", dst+128)
	p.highWords(4, "DI", dst+160)
	p.o("VPSRLD", "$2", reg(2), reg(2))
	p.and(packByte(0x30), 2, 2)
	p.o("VPSRLD", "$4", reg(3), reg(3))
	p.and(packByte(0x0f), 3, 4)
	p.or(reg(2), 4, 4)
	p.lowWords(4, "DI", dst+192)
	p.highWords(4, "DI", dst+224)
}

// transposePairs makes bits 2i, 2i+1 of vector c of bits 2c, 2c+1 of vector i, of vectors 0..3. It uses vector 4.
func (p *packer) transposePairs() {
	defer p.macro("PAIRS")()
	p.swap(0, 2, 4, 4, 0x0f)
	p.swap(1, 3, 4, 4, 0x0f)
	p.swap(0, 1, 4, 2, 0x33)
	p.swap(2, 3, 4, 2, 0x33)
}

// octet sorts the eight nibbles of each dword of r: nibble k goes to the low half of byte k, nibble 4+k to the high half. It
// exchanges the middle bytes, then the middle nibbles of each word. It uses vector 4.
func (p *packer) octet(r reg) {
	defer p.macro("OCTET")()
	p.o("VPSHUFB", mem{base: "packmiddle<>(SB)"}, r, r)
	p.o("VPSRLD", "$4", r, reg(4))
	p.bits("VPXOR", r, 4, 4)
	p.and(packWord(0x00f000f0), 4, 4)
	p.bits("VPXOR", reg(4), r, r)
	p.o("VPSLLD", "$4", reg(4), reg(4))
	p.bits("VPXOR", reg(4), r, r)
}

// fifth stores at DX the dwords of w with bit 4i+k moved to bit i of byte k. It uses vectors 4 to 6.
func (p *packer) fifth(w reg) {
	defer p.macro("FIFTH")()
	for k := range 4 {
		p.o("VPSRLD", fmt.Sprintf("$%d", k), w, reg(4))
		from := reg(4)
		if k == 0 {
			from = w
		}
		p.and(packWord(0x11111111), from, 4)
		for _, step := range []struct{ shift, mask uint32 }{{3, 0x03030303}, {6, 0x000f000f}, {12, 0x000000ff}} {
			p.o("VPSRLD", fmt.Sprintf("$%d", step.shift), reg(4), reg(5))
			p.or(reg(5), 4, 4)
			p.and(packWord(step.mask), 4, 4)
		}
		if k == 0 {
			p.or(reg(4), 4, 6)
			continue
		}
		p.o("VPSLLD", fmt.Sprintf("$%d", 8*k), reg(4), reg(4))
		p.or(reg(4), 6, 6)
	}
	p.move(reg(6), f32(0, "DX"))
	p.p("ADDQ $64, DX")
}

// swap exchanges the bits of a that are above those of mask by s with the bits of b under mask (a byte); t is overwritten.
func (p *packer) swap(a, b, t reg, s int, mask uint32) {
	defer p.macro("SWAP")()
	shift := fmt.Sprintf("$%d", s)
	p.o("VPSRLD", shift, a, t)
	p.bits("VPXOR", b, t, t)
	p.and(packByte(mask), t, t)
	p.bits("VPXOR", t, b, b)
	p.o("VPSLLD", shift, t, t)
	p.bits("VPXOR", t, a, a)
}

// bitTranspose transposes, in each byte place, the 8 x 8 matrix of the bits of eight vectors at dst.
func (p *packer) bitTranspose(dst int) {
	name, suffix, mov, half := "Y", "", "VMOVDQU", p.tier()+"PackHalf"
	if p.wide {
		name, suffix, mov = "Z", "D", "VMOVDQU32"
	} else { // half a vector is a turn
		p.p("MOVL $2, AX")
		p.lab(half)
	}
	for i := range 8 {
		p.p("%s %d(DI), %s%d", mov, dst+64*i, name, i)
	}
	for s := 4; s > 0; s /= 2 {
		m := packByte(map[int]uint32{4: 0x0f, 2: 0x33, 1: 0x55}[s]).base
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
		p.p("%s %s%d, %d(DI)", mov, name, i, dst+64*i)
	}
	if !p.wide {
		p.p("ADDQ $32, DI")
		p.p("DECQ AX")
		p.p("JNZ %s", half)
		p.p("SUBQ $64, DI")
	}
}
