package main

// Kernels that pack panels: source blocks of 16 rows to whole groups. A row is read 16 bytes at a time, a "unit". Four rows'
// units, i, 4+i, 8+i, 12+i, are the 128-bit lanes of a vector, so that four vectors hold the units of 16 rows and transposing them
// within lanes gives four vectors of the panel: dword d of all 16 rows (pack_rows.go). Bits are sorted afterwards, in all rows at once
// (pack_bits.go).

// packing is a kernel: it reads step bytes of a row and writes group bytes for each group.
type packing struct {
	name, layouts string
	step, group   int
	near          bool // rows have just been written: no prefetching
	body          func(p *packer)
}

// packings are the kernels of both widths.
func packings() []packing {
	all := []packing{
		{name: "Words", layouts: "F32, BF16", step: 16, group: 1024, body: (*packer).words},
		{name: "Halves", layouts: "F16", step: 16, group: 1024, body: (*packer).halves},
	}
	for _, l := range layouts {
		step := map[string]int{"Q8_0": 68, "Q4_0": 36, "Q4_1": 40, "Q5_0": 44, "Q5_1": 48, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210,
			"Q2_K": 84, "Code4": 148}[l.name]
		k := packing{name: l.name, layouts: l.name, step: step, group: l.bytes(), near: l.coding == codes}
		k.body = func(p *packer) {
			switch {
			case !l.super():
				p.blocks(&l, step/2)
			case l.sub() == 32:
				p.fours(&l, step)
			case l.coding == sixes:
				p.sixes(&l)
			case l.coding == twos:
				p.twos(&l)
			default:
				p.codes(&l)
			}
		}
		all = append(all, k)
	}
	return all
}

// packs writes the kernels of a width and their dispatch. Calls by name keep the operands on the stack.
func packs(wide bool) *gen {
	v := newVec("dot", "pack_", "packArgs", wide)
	p := &packer{vec: v}
	p.constants()
	for _, k := range packings() {
		p.kernel(k)
	}
	v.code("\n// pack%s runs the assembly of a layout.\nfunc pack%s(l Layout, a *packArgs) {\nswitch l {", v.suffix(), v.suffix())
	for _, k := range packings() {
		v.code("case %s:\n%sPack%s(a)", k.layouts, v.tier(), k.name)
	}
	v.code("}\n}")
	return v.gen
}

// words keeps 32-bit elements, or pairs of 16 bits.
func (p *packer) words() {
	p.unit(0)
	for i := range 4 {
		p.store(reg(i), 256*i)
	}
}

// halves keeps 16-bit elements.
func (p *packer) halves() {
	p.unit(0)
	for i := range 4 {
		p.lowWords(reg(i), 256*i)
		p.highWords(reg(i), 256*i+128)
	}
}

// blocks packs two blocks: d, m or the fifth bits, weights.
func (p *packer) blocks(l *layout, block int) {
	for b := range 2 {
		start := block * b
		p.dword(start, 0)
		high := reg(3) // dword 1
		if l.coding == fives && l.scaling == perBlock {
			high = 1
			p.o("VPSRLD", "$16", reg(0), reg(1)) // the first two bytes of the fifth bits, after d
			p.o("VPSLLD", "$16", reg(3), reg(2)) // the last two: dword 1
			p.or(reg(1), 2, 1)
		}
		p.lowWords(0, l.scales()+32*b)
		if l.scaling == perBlockMin {
			p.highWords(0, l.minima()+32*b)
		}
		if l.coding == fives {
			p.fifth(high, l.high()+64*b)
		}
		weights := start + block - l.sumBytes()/16
		if l.packed() {
			p.copy(weights, l.sumBytes()*b)
			continue
		}
		for h := range 2 {
			p.unit(weights + 16*h)
			for i := range 4 {
				p.bits("VPXOR", packByte(0x80), reg(i), reg(i))
				p.store(reg(i), l.sumBytes()*b+256*h+64*i)
			}
		}
	}
}

// fours packs a block of Q4_K or Q5_K: scales, fifth bits, weights.
func (p *packer) fours(l *layout, block int) {
	p.scales(l.scales())
	for i := range 8 {
		p.copy(block-128+16*i, 256*i)
	}
	if l.coding == fives {
		p.copy(16, l.high())
		p.copy(32, l.high()+256)
		p.bitTranspose(l.high())
	}
}

// sixes packs a block of Q6_K: low nibbles, high bits, scales, d.
func (p *packer) sixes(l *layout) {
	for n := range 2 {
		for half := range 2 { // of a run of 32: sub-blocks 8n+2c+half
			to := func(c int) int { return l.sumBytes() * (8*n + 2*c + half) }
			for c := range 2 {
				p.unit(64*n + 32*c + 16*half)
				p.swap(0, 1, 4, 4, 0x0f) // low nibbles of both to 0, high ones to 1
				p.swap(2, 3, 4, 4, 0x0f)
				p.store(0, to(c))
				p.store(2, to(c)+64)
				p.store(1, to(c+2))
				p.store(3, to(c+2)+64)
			}
			p.unit(128 + 32*n + 16*half)
			p.transposePairs()
			for c := range 4 {
				p.store(reg(c), to(c)+128)
			}
		}
	}
	p.byteScales(192, l)
	p.dword(194, 3)
	p.highWords(0, l.scales()+256)
	p.p("VPXOR X0, X0, X0")
	p.p("VMOVDQU Y0, %d(DI)", l.scales()+288)
}

// twos packs a block of Q2_K: scales and minima, weights, d and dmin.
func (p *packer) twos(l *layout) {
	p.byteScales(0, l)
	for u := range 4 { // 16 bytes: parts of four sub-blocks, in pairs of bits
		p.unit(16 + 16*u)
		p.transposePairs()
		for c := range 4 {
			p.store(reg(c), 64*(8*(u/2)+2*c+u%2))
		}
	}
	p.dword(68, 3)
	p.lowWords(0, l.scales()+256)
	p.highWords(0, l.scales()+288)
}

// codes packs a block of Code4: d, scales, indices.
func (p *packer) codes(l *layout) {
	p.dword(0, 0)
	p.store(0, l.scales()+256)
	p.byteScales(4, l)
	for u := range 8 {
		p.unit(20 + 16*u)
		for i := range 4 {
			p.octet(reg(i))
			p.store(reg(i), 256*u+64*i)
		}
	}
}

// byteScales packs the 16 bytes at off, a scale each.
func (p *packer) byteScales(off int, l *layout) {
	p.unit(off)
	for i := range 4 {
		p.bytes(reg(i), l.scales()+64*i)
	}
}
