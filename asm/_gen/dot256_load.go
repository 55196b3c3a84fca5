package main

// load256 writes code that loads the weights of vector i of sum j (of the turn), half h, to register w; t is free. Half 0 is the first to
// touch a line and prefetches it.
type load256 func(k *int256, j, i, h, w, t int)

func loadWhole(k *int256, j, i, h, w, _ int) {
	off := 64 * (k.b.vecs()*j + i)
	k.pf("DI", off, h)
	k.e.p("VMOVDQU %d(DI), Y%d", off+32*h, w)
}

// loadNibbles: blocks have K 4i.. in low nibbles and K 16+4i.. in high ones, superblocks sub-block j in one of both.
func loadNibbles(k *int256, j, i, h, w, _ int) {
	off, high := 256*j+64*(i%4), i >= 4
	if k.b.super() {
		off, high = 64*i, j == 1
	}
	if !high {
		k.pf("DI", off, h)
	}
	k.nib(off, h, w, high)
}

// loadFives adds bit i of the bytes of the sum's vector of fifth bits.
func loadFives(k *int256, j, i, h, w, t int) {
	loadNibbles(k, j, i, h, w, t)
	at := k.fivesAt()
	at.off += 64 * j
	if i == 0 {
		k.pf(at.base, at.off, h)
	}
	k.bits(at.base, at.off, h, 4-i, i == 0, "c10", w, t)
}

func loadSixes(k *int256, j, i, h, w, t int) {
	bits := k.b.sumBytes()*j + 128
	off := k.b.sumBytes()*j + i/2*64
	if i%2 == 0 {
		k.pf("DI", off, h)
	}
	if i == 0 {
		k.pf("DI", bits, h)
	}
	k.nib(off, h, w, i%2 == 1)
	k.bits("DI", bits, h, 4-2*i, i == 0, "c30", w, t)
}

func loadTwos(k *int256, j, i, h, w, _ int) {
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

func loadCodes(k *int256, j, i, h, w, t int) {
	if !k.b.super() {
		loadNibbles(k, j, i, h, w, t)
		table := k.table
		if table == 0 {
			table = t
			k.e.p("VMOVDQU %s, Y%d", tableAt, t)
		}
		k.e.p("VPSHUFB Y%d, Y%d, Y%d", w, table, w)
		return
	}
	off := k.b.sumBytes()*j + i/2*64
	if i%2 == 0 {
		k.pf("DI", off, h)
	}
	k.nib(off, h, w, i%2 == 1)
	k.e.p("VPSHUFB Y%d, Y%d, Y%d", w, k.table, w)
}

// nib loads the low or high nibbles of 32 bytes.
func (k *int256) nib(off, h, w int, high bool) {
	off += 32 * h
	mask := k.c["c0f"]
	if !high && mask[0] == 'Y' {
		k.e.p("VPAND %d(DI), %s, Y%d", off, mask, w)
		return
	}
	k.e.p("VMOVDQU %d(DI), Y%d", off, w)
	if high {
		k.e.p("VPSRLW $4, Y%d, Y%d", w, w)
	}
	k.e.p("VPAND %s, Y%d, Y%d", mask, w, w)
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

// pf prefetches a line. Gemm kernels have no use for Args.Pf: the first of them to read a packed panel finds it in memory, the
// others prefetch the beginning of the next panel. With VNNI, 24 rows of Q4_0, Q4_K are 1.3 times as fast for it, of Q8_0 1.2 times.
// At 512 rows the difference was within the noise of a loaded machine; for Q8_0 it may cost some percent. Unpacked panels are in the
// cache.
func (k *int256) pf(base string, off, h int) {
	switch {
	case h != 0:
	case k.streams(): // see fetchStep
	case k.loop:
		k.e.p("PREFETCHT0 %d(%s)(R11*1)", off, base)
	case !k.b.opened:
		k.e.p("PREFETCHT0 %d(%s)", 16384+off, base)
	}
}
