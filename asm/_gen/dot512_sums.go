package main

// The bodies of panel512 by scaling. Sums of superblocks are made in float, acc = fma(sub, d*dx, acc) at their end; package dot's
// comment has the order.

// dots adds four activations of each row, from byte x on, times weights Zw to the sums from register s on.
func (k *panel512) dots(x, w, s int) {
	defer k.macro("DOTS")()
	for r := range k.rows {
		k.e.p("VPDPBUSD.BCST %s, Z%d, Z%d", xrow(r, x), w, s+r)
	}
}

// addScaled adds the integer sums from register s on, times scales Z28, to the sums over the superblock.
func (k *panel512) addScaled(s int) {
	defer k.macro("SUMS")()
	for r := range k.rows {
		k.e.p("VCVTDQ2PS Z%d, Z%d", s+r, s+r)
		k.e.p("VFMADD231PS Z28, Z%d, Z%d", s+r, sub512+r)
	}
}

// block is one of the two blocks of 32 K of a group. With few rows, two sums per row shorten the chains.
func (k *panel512) block(b int) {
	e, l := k.e, k.l
	row := func(reg string, r int) string { return strided(4*r, reg, "R10", b) }
	two := k.rows <= 3
	end := k.macro("OFFSETS")
	for r := range k.rows {
		if l.hasOffset() {
			e.p("VPBROADCASTD %s, Z%d", row("R9", r), r)
		} else {
			e.zero(r)
		}
		if two {
			e.zero(second512 + r)
		}
	}
	end()
	k.blockDots(b, second512*b2i(two))
	defer k.macro("SCALE")()
	e.scale512(l.scaling, at("DI", l.scales()+32*b), 28)
	minima := l.scaling == perBlockMin
	if minima {
		e.p("VCVTPH2PS %s, Z29", at("DI", l.minima()+32*b))
	}
	for r := range k.rows {
		if two {
			e.p("VPADDD Z%d, Z%d, Z%d", second512+r, r, r)
		}
		e.p("VMULPS.BCST %s, Z28, Z27", row("DX", r))
		e.p("VCVTDQ2PS Z%d, Z%d", r, r)
		e.p("VFMADD231PS Z27, Z%d, Z%d", r, acc512+r)
		if minima {
			e.p("VFMADD231PS.BCST %s, Z29, Z%d", row("R9", r), acc512+r)
		}
	}
}

// blockDots makes the integer sums of block b; other is the register of row 0's second sums, or its first.
func (k *panel512) blockDots(b, other int) {
	e, l := k.e, k.l
	vecs := l.sumBytes() / 64
	if l.coding == fives {
		e.p("VMOVDQU64 %s, Z26", at("DI", l.high()+64*b))
	}
	for i := range vecs {
		addr, x := at("DI", 64*(b*vecs+i)), 32*b+4*i
		k.fetchPart(b*vecs+i, 2*vecs)
		end := k.macro("STEP")
		if !l.packed() {
			e.p("VMOVDQU64 %s, Z24", addr)
			k.dots(x, 24, other*(i%2))
			end()
			continue
		}
		k.nibbles(addr)
		if l.coding == fives {
			k.bit4(i, 26, 24, 27)
			k.bit4(i+4, 26, 25, 28)
		}
		k.dots(x, 24, 0)
		k.dots(x+16, 25, other)
		end()
	}
}

// fours is a superblock of Q4_K or Q5_K, one row, unrolled.
func (k *panel512) fours() {
	l := k.l
	const mins = 20
	k.e.zero(sub512)
	k.e.zero(mins)
	for p := range 4 {
		k.pair(512*p, at("DI", l.high()+128*p), at("DI", l.high()+128*p+64), 64*p,
			at("DI", l.scales()+32*p), at("DI", l.scales()+32*p+16))
	}
	k.minima("DI", l.scales()+128, mins)
	if l.coding != fives {
		k.fetchScales()
	}
	k.scaleFours("DI", l.scales()+256, mins)
}

// foursLoop is fours for several rows, a loop over pairs: R12 fifth bits, R13 scales.
func (k *panel512) foursLoop() {
	e, l := k.e, k.l
	const mins = 0
	k.zeros(sub512)
	k.fetchScales()
	e.p("LEAQ %d(DI), R13", l.scales())
	if l.coding == fives {
		e.p("LEAQ %d(DI), R12", l.high())
	}
	e.p("MOVL $4, R11")
	e.lab(k.name + "_pair")
	k.pair(0, "0(R12)", "64(R12)", 0, "0(R13)", "16(R13)")
	e.p("ADDQ $512, DI")
	e.p("ADDQ $32, R13")
	if l.coding == fives {
		e.p("ADDQ $128, R12")
	}
	k.step(64)
	e.p("DECQ R11")
	e.p("JNZ %s_pair", k.name)
	k.zeros(mins)
	k.minima("R13", 0, mins)
	k.scaleFours("R13", 128, mins)
}

// pair adds the sub-blocks 2p, 2p+1 of Q4_K or Q5_K to the sums over the superblock: nibbles at byte q, activations at x; of both
// sub-blocks fifth bits at h0, h1, scales at s0, s1.
func (k *panel512) pair(q int, h0, h1 string, x int, s0, s1 string) {
	e := k.e
	for r := range k.rows {
		e.zero(r)
		e.zero(second512 + r)
	}
	high := k.l.coding == fives
	if high {
		for i, h := range []string{h0, h1} {
			if k.rows > 1 {
				e.p("PREFETCHT0 %s(BX*1)", h)
			}
			e.p("VMOVDQU64 %s, Z%d", h, 26+i)
		}
	}
	for i := range 8 {
		if high && k.rows == 1 {
			k.fetchPart(q/64+i, 32)
		} else {
			k.fetch(q + 64*i)
		}
		end := k.macro("STEP")
		k.nibbles(at("DI", q+64*i))
		if high {
			k.bit4(i, 26, 24, 28)
			k.bit4(i, 27, 25, 29)
		}
		k.dots(x+4*i, 24, 0)
		k.dots(x+32+4*i, 25, second512)
		end()
	}
	defer k.macro("SCALE")()
	for i, s := range []string{s0, s1} {
		e.p("VPMOVZXBD %s, Z28", s)
		e.p("VCVTDQ2PS Z28, Z28")
		k.addScaled(second512 * i)
	}
}

// minima sums the minima at off(base) times the sums of activations in Z(to)..
func (k *panel512) minima(base string, off, to int) {
	for t := range 4 {
		end := k.macro("MINIMA")
		k.e.p("VPMOVZXBW %s, Z24", at(base, off+32*t))
		for r := range k.rows {
			k.e.p("VPDPWSSD.BCST %d(R9), Z24, Z%d", 16*r+4*t, to+r)
		}
		end()
	}
}

// scaleFours ends a superblock of Q4_K or Q5_K: d and dmin at off(base), minima in Z(mins)...
func (k *panel512) scaleFours(base string, off, mins int) {
	defer k.macro("SCALEALL")()
	e := k.e
	e.p("VCVTPH2PS %s, Z28", at(base, off))
	e.p("VCVTPH2PS %s, Z29", at(base, off+32))
	for r := range k.rows {
		e.p("VMULPS.BCST %d(DX), Z28, Z26", 4*r)
		e.p("VMULPS.BCST %d(DX), Z29, Z27", 4*r)
		e.p("VCVTDQ2PS Z%d, Z%d", mins+r, mins+r)
		e.p("VFMADD231PS Z26, Z%d, Z%d", sub512+r, acc512+r)
		e.p("VFNMADD231PS Z27, Z%d, Z%d", mins+r, acc512+r)
	}
}

// zeroSixteens starts the sums over a superblock.
func (k *panel512) zeroSixteens() {
	defer k.macro("ZEROSUB")()
	for r := range k.rows {
		k.e.zero(sub512 + r)
		if k.l.coding == twos {
			k.e.zero(second512 + r)
		}
	}
}

// inOrder reports whether prefetches go by address, with the lines of scales spread over the sub-blocks, and not with the loads of weights.
// One row of Code4 reached 88 instead of 86 % of the read loop's rate, Q2_K 96 instead of 95, Q6_K 88 instead of 92 (medians of 7).
func (k *panel512) inOrder() bool { return k.rows == 1 && k.l.coding != sixes }

// sixteens is a superblock with sub-blocks of 16, one row, unrolled; R8 walks the offsets.
func (k *panel512) sixteens() {
	l := k.l
	k.zeroSixteens()
	k.e.p("MOVQ R9, R8")
	for j := range 16 {
		if k.inOrder() {
			k.fetchPart(j, 16)
		}
		k.sixteen(l.sumBytes()*j, 16*j, at("DI", l.scales()+16*j), "R8")
	}
	if !k.inOrder() {
		k.fetchScales()
	}
	k.scaleSixteens(l.scales() + 256)
}

// sixteensLoop is sixteens for several rows, a loop over sub-blocks: R13 scales.
func (k *panel512) sixteensLoop() {
	e, l := k.e, k.l
	k.zeroSixteens()
	k.fetchScales()
	e.p("LEAQ %d(DI), R13", l.scales())
	e.p("MOVL $16, R11")
	e.lab(k.name + "_sub")
	k.sixteen(0, 0, "(R13)", "R9")
	e.p("ADDQ $%d, DI", l.sumBytes())
	e.p("ADDQ $16, R13")
	k.step(16)
	e.p("DECQ R11")
	e.p("JNZ %s_sub", k.name)
	k.scaleSixteens(256)
}

// sixteen adds a sub-block of 16 K to the sums over the superblock: weights at byte q, activations at x, scale at address s; b is the
// register of its offsets.
func (k *panel512) sixteen(q, x int, s, b string) {
	e, l := k.e, k.l
	quarter := l.coding == twos // sums of activations belong to minima there
	end := k.macro("OFFSETS")
	for r := range k.rows {
		switch {
		case quarter:
			e.zero(r)
		case l.coding == codes && l.codeBias() == 128:
			e.p("VPSLLD.BCST $2, %d(%s), Z%d", 4*r, b, r)
		default:
			e.p("VPBROADCASTD %d(%s), Z%d", 4*r, b, r)
		}
	}
	end()
	if !quarter {
		e.p("ADDQ R10, %s", b)
	}
	for i := range l.sumBytes() / 64 {
		if !k.inOrder() {
			k.fetch(q + 64*i)
		}
		e.p("VMOVDQU64 %s, Z%d", at("DI", q+64*i), k.first()+i)
	}
	end = k.macro("STEP")
	k.open512.sixteen()
	for i := range 4 {
		k.dots(x+4*i, 24+i, 0)
	}
	end()
	if quarter {
		k.scaleTwos(s, b)
		return
	}
	defer k.macro("SCALE")()
	e.scaleSub512(l.scaling, s, 28)
	k.addScaled(0)
}

// scaleSixteens ends a superblock; d at weight byte off.
func (k *panel512) scaleSixteens(off int) {
	defer k.macro("SCALEALL")()
	e := k.e
	switch k.l.scaling {
	case perSubNibbles:
		k.endTwos(off)
		return
	case perSubFloat, perSubMini:
		e.p("VMOVUPS %s, Z28", at("DI", off))
	default:
		e.p("VCVTPH2PS %s, Z28", at("DI", off))
	}
	for r := range k.rows {
		e.p("VMULPS.BCST %d(DX), Z28, Z29", 4*r)
		e.p("VFMADD231PS Z29, Z%d, Z%d", sub512+r, acc512+r)
	}
}

// scaleTwos ends a sub-block of Q2_K. All its sums over a superblock are integers that float32 holds, so that they stay integers until
// its end, which is as exact: a sub-block's sum is at most 16*3*127, one word, and VPDPWSSD multiplies it with the scale, a word beside
// a zero. Z6.. are the minima times the sums of activations, which are a word each after a shift by 5.
func (k *panel512) scaleTwos(s, b string) {
	defer k.macro("SCALE")()
	e := k.e
	e.p("VPMOVZXBD %s, Z28", s)
	e.p("VPSRLD $4, Z28, Z29")
	e.p("VPANDD Z30, Z28, Z28")
	for r := range k.rows {
		e.p("VPSRAD.BCST $5, %d(%s), Z%d", 4*r, b, 24+r%4)
		e.p("VPDPWSSD Z%d, Z28, Z%d", r, sub512+r)
		e.p("VPDPWSSD Z%d, Z29, Z%d", 24+r%4, second512+r)
	}
	e.p("ADDQ R10, %s", b)
}

// twosLoop goes through a superblock of Q2_K with folded scales: R12 pairs of sums, R13 scales. Two sums of a row, at Z0.. and Z18..,
// shorten the chains, which go through the superblock.
func (k *panel512) twosLoop() {
	e := k.e
	k.zeroSixteens()
	k.fetchScales()
	e.p("LEAQ %d(DI), R13", k.l.scales())
	pairs2(e, pairs512, func(string) {})
	k.zeros(0)
	e.p("LEAQ %d(SP), R12", pairs512)
	e.p("MOVL $8, R11")
	e.lab(k.name + "_pair")
	for h := range 2 {
		k.fetch(64 * h)
		e.p("VMOVDQU64 %s, Z24", at("DI", 64*h))
		k.twos()
		e.p("VPMOVZXBD %d(R13), Z28", 16*h)
		k.foldScales()
		for i := range 4 {
			k.dots(16*h+4*i, 24+i, i%2*sub512)
		}
	}
	e.p("VPMOVZXBD (R13), Z28")
	e.p("VPMOVZXBD 16(R13), Z29")
	e.p("VPSRLD $4, Z28, Z28")
	e.p("VPSRLD $4, Z29, Z29")
	e.p("VPSLLD $16, Z29, Z29")
	e.p("VPORD Z29, Z28, Z28")
	for r := range k.rows {
		e.p("VPDPWSSD.BCST %d(R12), Z28, Z%d", 4*r, second512+r)
	}
	e.p("ADDQ $128, DI")
	e.p("ADDQ $32, R12")
	e.p("ADDQ $32, R13")
	k.step(32)
	e.p("DECQ R11")
	e.p("JNZ %s_pair", k.name)
	for r := range k.rows {
		e.p("VPADDD Z%d, Z%d, Z%d", r, sub512+r, sub512+r)
	}
	k.endTwos(256)
}

// endTwos ends a superblock of Q2_K, d at weight byte off; R11 is free.
func (k *panel512) endTwos(off int) {
	e := k.e
	e.p("VCVTPH2PS %s, Z28", at("DI", off))
	e.p("VCVTPH2PS %s, Z29", at("DI", off+32))
	e.p("MOVL $0x3d000000, R11") // 1/32
	e.p("VPBROADCASTD R11, Z25")
	for r := range k.rows {
		e.p("VMULPS.BCST %d(DX), Z28, Z26", 4*r)
		e.p("VMULPS.BCST %d(DX), Z29, Z27", 4*r)
		e.p("VMULPS Z25, Z27, Z27")
		e.p("VCVTDQ2PS Z%d, Z%d", sub512+r, sub512+r)
		e.p("VPSLLD $5, Z%d, Z%d", second512+r, second512+r)
		e.p("VCVTDQ2PS Z%d, Z%d", second512+r, second512+r)
		e.p("VFMADD231PS Z26, Z%d, Z%d", sub512+r, acc512+r)
		e.p("VFMADD231PS Z27, Z%d, Z%d", second512+r, acc512+r)
	}
}
