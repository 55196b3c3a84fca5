package main

// Kernels that pack panels: source blocks of 16 rows to whole groups. A row is read 16 bytes at a time, a "unit". Four rows'
// units, i, 4+i, 8+i, 12+i, are the 128-bit lanes of a vector, so that four vectors hold the units of 16 rows and transposing them
// within lanes gives four vectors of the panel: dword d of all 16 rows (pack_rows.go). Bits are sorted afterwards, in all rows at once
// (pack_bits.go).

// packing is a kernel: for each group it reads step bytes of a row and writes group bytes, by open and then by turns of body.
type packing struct {
	name, layouts string
	step, group   int
	near          bool // rows have just been written: no prefetching
	open          func(p *packer)
	loop
}

// loop is the loop over a group: a turn reads src bytes of a row and writes dst bytes of weights.
type loop struct {
	turns, src, dst int
	body            func(p *packer)
}

// packings are the kernels of both widths.
func packings() []packing {
	once := func(body func(p *packer)) loop { return loop{turns: 1, body: body} }
	all := []packing{
		{name: "Words", layouts: "F32, BF16", step: 16, group: 1024, loop: once((*packer).words)},
		{name: "Halves", layouts: "F16", step: 16, group: 1024, loop: once((*packer).halves)},
	}
	for _, l := range layouts {
		if l.name == "MXFP4" || l.name == "NVFP4" {
			continue // whose blocks are those of Q4_0 and Code4 with another form of scale
		}
		step := map[string]int{"Q8_0": 68, "Q4_0": 36, "Q4_1": 40, "Q5_0": 44, "Q5_1": 48, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210,
			"Q2_K": 84, "Code4": 148}[l.name]
		k := packing{name: l.name, layouts: l.name, step: step, group: l.bytes(), near: l.coding == codes}
		switch l.name {
		case "Q4_0":
			k.layouts = "Q4_0, MXFP4"
		case "Code4":
			k.layouts = "Code4, NVFP4"
		}
		switch {
		case !l.super():
			k.open = func(p *packer) { p.blockPlaces(&l) }
			k.loop = loop{2, step / 2, l.sumBytes(), func(p *packer) { p.block(&l, step/2) }}
		case l.sub() == 32:
			k.open = func(p *packer) { p.fours(&l) }
			k.loop = loop{8, 16, 256, func(p *packer) { p.copy(step-128, 0) }}
		case l.coding == sixes:
			k.open = func(p *packer) { p.sixes(&l) }
			k.loop = once(func(p *packer) { p.weights6(&l) })
		case l.coding == twos:
			k.open = func(p *packer) { p.twos(&l) }
			k.loop = loop{2, 32, 512, (*packer).halfTwos}
		default:
			k.open = func(p *packer) { p.codes(&l) }
			k.loop = loop{8, 16, 256, (*packer).octets}
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
		p.lowWords(reg(i), "DI", 256*i)
		p.highWords(reg(i), "DI", 256*i+128)
	}
}

// blockPlaces points BX to the scales and DX to the fifth bits of a group of blocks.
func (p *packer) blockPlaces(l *layout) {
	p.p("LEAQ %d(DI), BX", l.scales())
	if l.coding == fives {
		p.p("LEAQ %d(DI), DX", l.high())
	}
}

// block packs a block of 32: d, m or the fifth bits, weights.
func (p *packer) block(l *layout, bytes int) {
	p.dword(0, 0)
	high := reg(3) // dword 1
	if l.coding == fives && l.scaling == perBlock {
		high = 1
		p.o("VPSRLD", "$16", reg(0), reg(1)) // the first two bytes of the fifth bits, after d
		p.o("VPSLLD", "$16", reg(3), reg(2)) // the last two: dword 1
		p.or(reg(1), 2, 1)
	}
	p.lowWords(0, "BX", 0)
	if l.scaling == perBlockMin {
		p.highWords(0, "BX", l.minima()-l.scales())
	}
	p.p("ADDQ $32, BX")
	if l.coding == fives {
		p.fifth(high)
	}
	weights := bytes - l.sumBytes()/16
	if l.packed() {
		p.copy(weights, 0)
		return
	}
	for h := range 2 {
		p.unit(weights + 16*h)
		for i := range 4 {
			p.bits("VPXOR", packByte(0x80), reg(i), reg(i))
			p.store(reg(i), 256*h+64*i)
		}
	}
}

// fours packs the scales and fifth bits of a block of Q4_K or Q5_K.
func (p *packer) fours(l *layout) {
	p.scales(l.scales())
	if l.coding == fives {
		p.copy(16, l.high())
		p.copy(32, l.high()+256)
		p.bitTranspose(l.high())
	}
}

// sixes packs the scales and d of a block of Q6_K.
func (p *packer) sixes(l *layout) {
	p.byteScales(192, l)
	p.dword(194, 3)
	p.highWords(0, "DI", l.scales()+256)
	p.p("VPXOR X0, X0, X0")
	p.p("VMOVDQU Y0, %d(DI)", l.scales()+288)
}

// weights6 packs low nibbles and high bits of Q6_K. No loop: with one over half, rows came from memory at 0.87 times the rate.
func (p *packer) weights6(l *layout) {
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
}

// twos packs scales and minima, d and dmin of a block of Q2_K.
func (p *packer) twos(l *layout) {
	p.byteScales(0, l)
	p.dword(68, 3)
	p.lowWords(0, "DI", l.scales()+256)
	p.highWords(0, "DI", l.scales()+288)
}

// halfTwos packs half the weights of Q2_K, behind 16 bytes of scales: 16 bytes are parts of four sub-blocks, in pairs of bits.
func (p *packer) halfTwos() {
	for u := range 2 {
		p.unit(16 + 16*u)
		p.transposePairs()
		for c := range 4 {
			p.store(reg(c), 64*(2*c+u))
		}
	}
}

// codes packs d and the scales of a block of Code4.
func (p *packer) codes(l *layout) {
	p.dword(0, 0)
	p.store(0, l.scales()+256)
	p.byteScales(4, l)
}

// octets packs the next 16 bytes of indices of Code4, which lie behind d and 16 scales.
func (p *packer) octets() {
	p.unit(20)
	for i := range 4 {
		p.octet(reg(i))
		p.store(reg(i), 64*i)
	}
}

// byteScales packs the 16 bytes at off, a scale each.
func (p *packer) byteScales(off int, l *layout) {
	p.unit(off)
	for i := range 4 {
		p.bytes(reg(i), l.scales()+64*i)
	}
}
