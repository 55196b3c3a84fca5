package main

import "fmt"

// unpack512 emits a kernel that expands groups to one byte per weight: DI groups at Src, SI at Dst, BX prefetch distance, CX groups
// left; Z24.. weights as of open512.
type unpack512 struct {
	open512
	to layout
}

func newUnpack512(e *gen, l layout) *unpack512 { return &unpack512{open512{e, l}, l.unpacked()} }

func (k *unpack512) emit() {
	e, l := k.e, k.l
	name := "vnniUnpack" + l.name
	e.fn(name, fmt.Sprintf("unpacks Groups groups of %s to groups of %d bytes.", l.name, k.to.bytes()))
	e.arg("CX")
	k.constants()
	e.lds("CX", [2]string{"Src", "DI"}, [2]string{"Dst", "SI"}, [2]string{"Pf", "BX"}, [2]string{"Groups", "CX"})
	e.lab(name + "_group")
	for off := 0; off < l.bytes(); off += 64 {
		e.p("PREFETCHT0 %d(DI)(BX*1)", off)
	}
	switch {
	case !l.super():
		k.blocks()
	case l.sub() == 32:
		k.fours()
	default:
		k.sixteens()
	}
	if l.scaling == perSubNibbles {
		k.scalesTwos()
	} else {
		for off := 0; off < l.scaling.bytes(); off += 64 {
			e.p("VMOVDQU64 %d(DI), Z24", l.scales()+off)
			e.p("VMOVDQU64 Z24, %d(SI)", k.to.scales()+off)
		}
	}
	e.p("ADDQ $%d, DI", l.bytes())
	e.p("ADDQ $%d, SI", k.to.bytes())
	e.p("DECQ CX")
	e.p("JNZ %s_group", name)
	e.ret()
}

// split stores the low nibbles of the vector at byte off at lo, the high ones at hi; bits of i, j of the fifth bits in Z26, and in
// Zh, belong to them.
func (k *unpack512) split(off, lo, hi, i, j, h int) {
	defer k.e.macro("SPLIT")()
	k.nibbles(at("DI", off))
	if k.l.coding == fives {
		k.bit4(i, 26, 24, 28)
		k.bit4(j, h, 25, 29)
	}
	k.e.p("VMOVDQU64 Z24, %d(SI)", lo)
	k.e.p("VMOVDQU64 Z25, %d(SI)", hi)
}

// blocks opens a group of two blocks: a vector's nibbles are 16 K apart.
func (k *unpack512) blocks() {
	for b := range 2 {
		if k.l.coding == fives {
			k.e.p("VMOVDQU64 %d(DI), Z26", k.l.high()+64*b)
		}
		for i := range 4 {
			k.split(256*b+64*i, 512*b+64*i, 512*b+256+64*i, i, i+4, 26)
		}
	}
}

// fours opens a superblock of sub-blocks of 32: a vector's nibbles belong to two of them.
func (k *unpack512) fours() {
	for p := range 4 {
		if k.l.coding == fives {
			k.e.p("VMOVDQU64 %d(DI), Z26", k.l.high()+128*p)
			k.e.p("VMOVDQU64 %d(DI), Z27", k.l.high()+128*p+64)
		}
		for i := range 8 {
			k.split(512*p+64*i, 1024*p+64*i, 1024*p+512+64*i, i, i, 27)
		}
	}
}

// sixteens opens a superblock of sub-blocks of 16; weights of Q2_K are multiplied by their scales.
func (k *unpack512) sixteens() {
	e, l := k.e, k.l
	for j := range 16 {
		end := e.macro("SIXTEEN")
		for i := range l.sumBytes() / 64 {
			e.p("VMOVDQU64 %d(DI), Z%d", l.sumBytes()*j+64*i, k.first()+i)
		}
		k.sixteen()
		if l.coding == twos {
			end()
			e.p("VPMOVZXBD %d(DI), Z28", l.scales()+16*j)
			end = e.macro("SCALED")
			k.foldScales()
		}
		for i := range 4 {
			e.p("VMOVDQU64 Z%d, %d(SI)", 24+i, 256*j+64*i)
		}
		end()
	}
}

// scalesTwos stores the minima of Q2_K in pairs of bytes, then d and dmin.
func (k *unpack512) scalesTwos() {
	e, from, to := k.e, k.l.scales(), k.to.scales()
	for t := range 8 {
		end := e.macro("MINIMA")
		e.p("VPMOVZXBW %d(DI), Y24", from+32*t)
		e.p("VPMOVZXBW %d(DI), Y25", from+32*t+16)
		e.p("VPSRLW $4, Y24, Y24")
		e.p("VPSRLW $4, Y25, Y25")
		e.p("VPSLLW $8, Y25, Y25")
		e.p("VPORD Y25, Y24, Y24")
		e.p("VMOVDQU64 Y24, %d(SI)", to+32*t)
		end()
	}
	e.p("VMOVDQU64 %d(DI), Z24", from+256)
	e.p("VMOVDQU64 Z24, %d(SI)", to+256)
}
