package main

// open512 takes packed weights apart: Z24..Z27 weights, Z26..Z29 fifth bits and temporaries, Z6..Z11 temporaries of sub-blocks of 16,
// Z30, Z31 masks or values.
type open512 struct {
	e *gen
	l layout
}

// bytesIn fills Zr with byte v, by way of general register AX.
func (o open512) bytesIn(v uint32, r int) {
	o.e.p("MOVL $0x%08x, AX", v*0x01010101)
	o.e.p("VPBROADCASTD AX, Z%d", r)
}

// constants fills Z31 and Z30 with what takes weights apart; CX holds the arguments, AX and Z29 are free.
func (o open512) constants() {
	e := o.e
	if o.l.coding == twos {
		o.bytesIn(0x03, 31)
		e.p("MOVL $0x0f, AX") // of a dword
		e.p("VPBROADCASTD AX, Z30")
		return
	}
	if o.l.packed() {
		o.bytesIn(0x0f, 31)
	}
	switch o.l.coding {
	case codes: // the values unsigned; +128: the offset is four times that of Q6_K
		e.ld("CX", "Values", "AX")
		e.p("VBROADCASTI32X4 (AX), Z30")
		o.bytesIn(uint32(o.l.codeBias()), 29)
		e.p("VPADDB Z29, Z30, Z30")
	case sixes:
		o.bytesIn(0x30, 30)
	case fives:
		o.bytesIn(0x10, 30)
	}
}

// nibbles splits the vector at addr: low nibbles to Z24, high ones to Z25.
func (o open512) nibbles(addr string) {
	role := "NIBBLES"
	if o.l.coding == codes {
		role = "CODES"
	}
	defer o.e.macro(role)()
	o.e.p("VMOVDQU64 %s, Z24", addr)
	o.e.p("VPSRLW $4, Z24, Z25")
	o.e.p("VPANDD Z24, Z31, Z24")
	o.e.p("VPANDD Z25, Z31, Z25")
	if o.l.coding == codes {
		o.lookup(24, 26)
	}
}

// lookup puts values in place of the indices in Z(from).. up to, but without, Z(to).
func (o open512) lookup(from, to int) {
	for i := from; i < to; i++ {
		o.e.p("VPSHUFB Z%d, Z30, Z%d", i, i)
	}
}

// scale512 loads the float scales of a block, at addr, to Zr.
func (e *gen) scale512(s scaling, addr string, r int) {
	if s == perBlockBrain {
		e.p("VPMOVZXWD %s, Z%d", addr, r)
		e.p("VPSLLD $16, Z%d, Z%d", r, r)
		return
	}
	e.p("VCVTPH2PS %s, Z%d", addr, r)
}

// scaleSub512 loads the scales of a sub-block, a byte each at addr, as floats to Zr.
func (e *gen) scaleSub512(s scaling, addr string, r int) {
	switch s {
	case perSubMini:
		e.p("VPMOVZXBD %s, Z%d", addr, r)
		e.p("VPSLLD $20, Z%d, Z%d", r, r)
		e.p("VPORD.BCST %s<>(SB), Z%d, Z%d", miniBias, r, r)
		return
	case perSubMin:
		e.p("VPMOVZXBD %s, Z%d", addr, r)
	default:
		e.p("VPMOVSXBD %s, Z%d", addr, r)
	}
	e.p("VCVTDQ2PS Z%d, Z%d", r, r)
}

// bit4 adds bit i of each byte of Zh as bit 4 to Zw; t is free. A | (B & C) is VPTERNLOG 0xf8 on (A, B, C).
func (o open512) bit4(i, h, w, t int) {
	switch {
	case i < 4:
		o.e.p("VPSLLW $%d, Z%d, Z%d", 4-i, h, t)
		h = t
	case i > 4:
		o.e.p("VPSRLW $%d, Z%d, Z%d", i-4, h, t)
		h = t
	}
	o.e.p("VPTERNLOGD $0xf8, Z30, Z%d, Z%d", h, w)
}

// sixteen makes Z24..Z27 the weights of a sub-block of 16 K, from its vectors in Z6.. (twos: Z24).
func (o open512) sixteen() {
	switch o.l.coding {
	case twos:
		o.twos()
	case codes:
		o.fourNibbles()
		o.lookup(24, 28)
	case sixes:
		o.sixes()
	}
}

// first is the register of the first vector of a sub-block of 16 K.
func (o open512) first() int {
	if o.l.coding == twos {
		return 24
	}
	return 6
}

// fourNibbles makes Z24..Z27 of the nibbles of Z6, Z7.
func (o open512) fourNibbles() {
	defer o.e.macro("OPEN")()
	e := o.e
	e.p("VPSRLW $4, Z6, Z25")
	e.p("VPSRLW $4, Z7, Z27")
	e.p("VPANDD Z6, Z31, Z24")
	e.p("VPANDD Z25, Z31, Z25")
	e.p("VPANDD Z7, Z31, Z26")
	e.p("VPANDD Z27, Z31, Z27")
}

// sixes makes Z24..Z27 of low nibbles Z6, Z7 and high bits Z8.
func (o open512) sixes() {
	defer o.e.macro("OPEN")()
	e := o.e
	e.p("VPSRLW $4, Z6, Z25")
	e.p("VPSRLW $4, Z7, Z27")
	e.p("VPSLLW $4, Z8, Z9")
	e.p("VPSLLW $2, Z8, Z10")
	e.p("VPSRLW $2, Z8, Z11")
	e.p("VPANDD Z6, Z31, Z24")
	e.p("VPANDD Z25, Z31, Z25")
	e.p("VPANDD Z7, Z31, Z26")
	e.p("VPANDD Z27, Z31, Z27")
	for i, high := range []int{9, 10, 8, 11} {
		e.p("VPTERNLOGD $0xf8, Z30, Z%d, Z%d", high, 24+i)
	}
}

// twos makes Z24..Z27 of the pairs of bits of Z24.
func (o open512) twos() {
	defer o.e.macro("OPEN")()
	for i := 1; i < 4; i++ {
		o.e.p("VPSRLW $%d, Z24, Z%d", 2*i, 24+i)
	}
	for i := 24; i < 28; i++ {
		o.e.p("VPANDD Z%d, Z31, Z%d", i, i)
	}
}

// foldScales multiplies the weights Z24..Z27 of Q2_K by the scales that are in the low nibbles of the dwords of Z28, which it
// overwrites, as it does Z29. Neighbours stay apart: products are at most 45.
func (o open512) foldScales() {
	defer o.e.macro("FOLD")()
	e := o.e
	e.p("VPANDD Z30, Z28, Z28")
	e.p("VPSLLD $16, Z28, Z29")
	e.p("VPORD Z29, Z28, Z28")
	for i := 24; i < 28; i++ {
		e.p("VPMULLW Z28, Z%d, Z%d", i, i)
	}
}
