package main

// turn is the number of integer sums that a turn of the loop over a group makes: two that share vectors of nibbles, else
// one (of 16 K it is 0.99 to 1 times as fast as two). A group of blocks has two sums and mostly no loop, which costs more
// than 1 %: Q8_0 with VNNI is 0.98 times as fast in one, Q4_0 without VNNI 0.98, Q4_1 and Q5_1 0.97 to 1. Kernels of few
// rows wait for memory and get no loop over blocks either: one row is 0.97 to 0.99 times as fast in the cache.
func (k *int256) turn() int {
	b := k.b
	if b.super() {
		if b.packed() && b.sub() == 32 {
			return 2
		}
		return 1
	}
	unpacks := k.rows == 0
	if unpacks || !k.loop && b.scaling == perBlock && k.vnni == (b.name == "Q4_0") {
		return 1
	}
	return 2
}

// looped: there is a loop over the group, whose turns move DI.
func (k *int256) looped() bool { return k.turn() < k.b.subs() }

// scaleBytes is how far apart the scales of two sums lie.
func (b *weights256) scaleBytes() int {
	if b.super() {
		return 16
	}
	return 32
}

// scalesAt is the place of the scales of the turn's first sum, fivesAt that of its fifth bits.
func (k *int256) scalesAt() slot {
	if k.looped() {
		return slot{"BX", 0}
	}
	return slot{"DI", k.b.scales()}
}

func (k *int256) fivesAt() slot {
	if k.looped() {
		return slot{"R13", 0}
	}
	return slot{"DI", k.b.high()}
}

// turns goes through a group, in a loop or not: DI goes through weights, R13 through fifth bits, BX through scales, SI and R11 through
// activations. In the end BX is behind the scales.
func (k *int256) turns(sum func(j int)) {
	e, b := k.e, k.b
	n, looped := k.turn(), k.looped()
	apart := b.coding == fives
	if looped {
		e.p("LEAQ %d(DI), BX", b.scales())
		if apart {
			e.p("LEAQ %d(DI), R13", b.high())
		}
		e.p("MOVL $%d, R12", b.subs()/n)
		e.lab(k.name + "_sub")
	}
	for j := range n {
		sum(j)
	}
	if looped {
		k.nextTurn()
		if apart {
			e.p("ADDQ $%d, R13", 64*n)
		}
		e.p("ADDQ $%d, BX", n*b.scaleBytes())
		e.p("ADDQ $%d, DI", n*b.sumBytes())
	}
	e.p("ADDQ $%d, SI", n*b.sub())
	if k.rows > 3 {
		e.p("ADDQ $%d, R11", n*b.sub())
	}
	if looped {
		e.p("DECQ R12")
		e.p("JNZ %s_sub", k.name)
	}
}

// nextGroup moves DI from behind the turns to the next group.
func (k *int256) nextGroup() {
	n := k.b.bytes()
	if k.looped() {
		n -= k.b.subs() * k.b.sumBytes()
	}
	k.e.p("ADDQ $%d, DI", n)
}

// fetchScales prefetches the scales of a group, after its turns.
func (k *int256) fetchScales() {
	b, at := k.b, k.scalesAt()
	if k.looped() {
		at.off -= b.subs() * b.scaleBytes()
	}
	for off := 0; off < b.scaling.bytes(); off += 64 {
		if k.streams() {
			k.fetchNext()
		} else {
			k.pf(at.base, at.off+off, 0)
		}
	}
	k.even()
}

// blocks is a group of two blocks of 32, for each acc = fma(float(isum), d*dx, acc); acc = fma(m, sx, acc).
func (k *int256) blocks() {
	e, b := k.e, k.b
	k.turns(func(j int) {
		k.dots.sums(k, j)
		for h := range 2 {
			k.scaleBlock(j, h)
		}
		e.p("ADDQ R10, DX")
		if b.scaling == perBlockMin || k.hasOffset() {
			e.p("ADDQ R10, R9")
		}
	})
	k.fetchScales()
	k.nextGroup()
}

// scaleBlock adds half h of the sums of block j of the turn to the accumulators.
func (k *int256) scaleBlock(j, h int) {
	defer k.macro("SCALE")()
	e, b := k.e, k.b
	minima, at := b.scaling == perBlockMin, k.scalesAt()
	at.off += 32*j + 16*h
	if b.scaling == perBlockBrain {
		e.p("VPMOVZXWD %d(%s), Y%d", at.off, at.base, w0)
		e.p("VPSLLD $16, Y%d, Y%d", w0, w0)
	} else {
		e.p("VCVTPH2PS %d(%s), Y%d", at.off, at.base, w0)
	}
	if minima {
		e.p("VCVTPH2PS %d(%s), Y%d", b.minima()-b.scales()+at.off, at.base, w1)
	}
	for r := range k.rows {
		s := k.sum(r, h)
		k.scaled(r, w0)
		e.p("VCVTDQ2PS Y%d, Y%d", s, s)
		acc := s
		if k.inAcc {
			e.p("VFMADD213PS %s, Y%d, Y%d", k.accAt(r, h), tmp, s)
		} else {
			acc = k.flt(r, h)
			e.p("VFMADD231PS Y%d, Y%d, Y%d", tmp, s, acc)
		}
		if minima {
			e.p("VBROADCASTSS %d(R9), Y%d", 4*r, tmp)
			e.p("VFMADD231PS Y%d, Y%d, Y%d", tmp, w1, acc)
		}
		if k.inAcc {
			e.p("VMOVUPS Y%d, %s", acc, k.accAt(r, h))
		}
	}
}

// scaled makes tmp the scales d times dx of row r.
func (k *int256) scaled(r, d int) {
	k.e.p("VBROADCASTSS %d(DX), Y%d", 4*r, tmp)
	k.e.p("VMULPS Y%d, Y%d, Y%d", tmp, d, tmp)
}

// superblock: sub = fma(float(sc_j), float(isum_j), sub) for each j; acc = fma(sub, d*dx, acc); with minima
// acc = fnma(float(sum of m_j*s_j), dmin*dx, acc). Q2_K: see minima2.
func (k *int256) superblock() {
	e, b := k.e, k.b
	k.zeroSub()
	k.turns(func(j int) {
		k.dots.sums(k, j)
		switch {
		case b.scaling != perSubNibbles:
			k.scaleSub(j)
		case !b.folded:
			k.scaleSub2(j)
		}
	})
	if b.folded && k.vnni {
		k.vnniFold()
	}
	// BX is at the minima now, or at d of Q6_K, Code4 and Q2_K.
	k.fetchScales()
	for h := range 2 {
		k.scaleAll(h)
	}
	if b.scaling == perSubNibbles {
		k.minima2()
	}
	k.nextGroup()
	e.p("ADDQ R10, DX")
	if b.scaling == perSubMin {
		e.p("LEAQ (R9)(R10*4), R9")
	}
}

// zeroSub starts the sums over a superblock.
func (k *int256) zeroSub() {
	switch {
	case k.b.folded && k.vnni:
		k.vnniZero()
	case k.b.folded:
		k.each("ZERO", func(r, h int) { k.zero(k.sum(r, h)) })
	case k.inAcc:
		k.zero(tmp)
		k.each("SPILL", func(r, h int) { k.e.p("VMOVUPS Y%d, %s", tmp, k.subAt(r, h)) })
	default:
		k.each("ZERO", func(r, h int) { k.zero(k.flt(r, h)) })
	}
}

// scaleSub adds sum j of the turn, times its scale, to the superblock's.
func (k *int256) scaleSub(j int) {
	e, ext := k.e, "VPMOVSXBD"
	if k.b.scaling == perSubMin || k.b.scaling == perSubMini {
		ext = "VPMOVZXBD"
	}
	if k.hasOffset() {
		e.p("ADDQ R10, R9")
	}
	for h := range 2 {
		end := k.macro("SCALE")
		e.p("%s %d(BX), Y%d", ext, 16*j+8*h, w0)
		if k.b.scaling == perSubMini {
			e.p("VPSLLD $20, Y%d, Y%d", w0, w0)
			e.p("VPOR %s<>(SB), Y%d, Y%d", miniBias, w0, w0)
		} else {
			e.p("VCVTDQ2PS Y%d, Y%d", w0, w0)
		}
		for r := range k.rows {
			s := k.sum(r, h)
			e.p("VCVTDQ2PS Y%d, Y%d", s, s)
			if k.inAcc {
				e.p("VFMADD213PS %s, Y%d, Y%d", k.subAt(r, h), w0, s)
				e.p("VMOVUPS Y%d, %s", s, k.subAt(r, h))
			} else {
				e.p("VFMADD231PS Y%d, Y%d, Y%d", w0, s, k.flt(r, h))
			}
		}
		end()
	}
}

// scaleAll ends half h of a superblock: d to w0, dmin to w1, sums of minima in the registers of integer sums.
func (k *int256) scaleAll(h int) {
	defer k.macro("SCALEALL")()
	e := k.e
	minima := k.b.scaling == perSubMin
	switch {
	case minima:
		k.sumMinima(h)
		e.p("VCVTPH2PS %d(BX), Y%d", 128+32+16*h, w1)
		e.p("VCVTPH2PS %d(BX), Y%d", 128+16*h, w0)
	case k.b.scaling == perSubFloat || k.b.scaling == perSubMini:
		e.p("VMOVUPS %d(BX), Y%d", 32*h, w0)
	default:
		e.p("VCVTPH2PS %d(BX), Y%d", 16*h, w0)
	}
	for r := range k.rows {
		s, f := k.sum(r, h), t15
		switch {
		case k.b.folded:
			f = s
		case k.inAcc:
			e.p("VMOVUPS %s, Y%d", k.subAt(r, h), f)
		default:
			f = k.flt(r, h)
		}
		if k.b.scaling == perSubNibbles { // a sum of integers until here
			e.p("VCVTDQ2PS Y%d, Y%d", f, f)
		}
		k.scaled(r, w0)
		e.p("VFMADD213PS %s, Y%d, Y%d", k.accAt(r, h), tmp, f)
		if minima {
			k.scaled(r, w1)
			e.p("VCVTDQ2PS Y%d, Y%d", s, s)
			e.p("VFNMADD231PS Y%d, Y%d, Y%d", tmp, s, f)
		}
		e.p("VMOVUPS Y%d, %s", f, k.accAt(r, h))
	}
}

// sumMinima makes the integer sums of half h those of minima times sums of activations.
func (k *int256) sumMinima(h int) {
	e := k.e
	for t := range 4 {
		end := k.macro("MINIMA")
		e.p("VPMOVZXBW %d(BX), Y%d", 32*t+16*h, w0)
		for r := range k.rows {
			e.p("VPBROADCASTD %d(R9), Y%d", 16*r+4*t, tmp)
			if s := k.sum(r, h); t == 0 {
				e.p("VPMADDWD Y%d, Y%d, Y%d", tmp, w0, s)
			} else {
				e.p("VPMADDWD Y%d, Y%d, Y%d", tmp, w0, tmp)
				e.p("VPADDD Y%d, Y%d, Y%d", tmp, s, s)
			}
		}
		end()
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

// scales2 makes Q2_K's scales j of both halves of the rows words, by a shuffle of consts256.
func (k *int256) scales2(j int, shuffle string, half0, half1 int) {
	defer k.macro("SCALES")()
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
	k.each("SCALE", func(r, h int) { k.addWords([]int{w0, w1}[h], k.sum(r, h), k.flt(r, h), k.sum(r, h)) })
}

// minima2 ends a superblock of Q2_K: acc = fma(float(sum of m_j*n_j), dmin*dx/32, acc). BX points to d. n_j/32 is at most 16*127, a word.
func (k *int256) minima2() {
	e := k.e
	k.each("ZERO", func(r, h int) { k.zero(k.sum(r, h)) })
	e.p("SUBQ $256, BX")
	e.p("MOVL $4, R12")
	e.lab(k.name + "_min")
	for j := range 4 {
		end := k.macro("MINIMA")
		for h, m := range []int{w0, w1} {
			e.p("VPMOVZXBD %d(BX), Y%d", 16*j+8*h, m)
			e.p("VPSRLD $4, Y%d, Y%d", m, m)
		}
		for r := range k.rows {
			e.p("VPBROADCASTD %d(R9), Y%d", 4*r, tmp)
			e.p("VPSRLD $5, Y%d, Y%d", tmp, tmp)
			k.addWords(tmp, w0, k.sum(r, 0), t15)
			k.addWords(tmp, w1, k.sum(r, 1), tmp)
		}
		end()
		e.p("ADDQ R10, R9")
	}
	e.p("ADDQ $64, BX")
	e.p("DECQ R12")
	e.p("JNZ %s_min", k.name)
	for h := range 2 {
		end := k.macro("SCALEMIN")
		e.p("VCVTPH2PS %d(BX), Y%d", 32+16*h, w1)
		for r := range k.rows {
			s := k.sum(r, h)
			e.p("VPSLLD $5, Y%d, Y%d", s, s)
			e.p("VCVTDQ2PS Y%d, Y%d", s, s)
			k.scaled(r, w1)
			e.p("VMULPS c3d000000<>(SB), Y%d, Y%d", tmp, tmp)
			e.p("VFMADD213PS %s, Y%d, Y%d", k.accAt(r, h), tmp, s)
			e.p("VMOVUPS Y%d, %s", s, k.accAt(r, h))
		}
		end()
	}
}
