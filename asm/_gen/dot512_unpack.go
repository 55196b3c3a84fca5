package main

import "fmt"

// unpack512 emits a kernel that expands groups to one byte per weight: DI groups at Src, SI at Dst, BX prefetch distance, CX groups
// left, AX turns, R8 fifth bits or scales; Z24.. weights as of open512.
type unpack512 struct {
	open512
	to   layout
	name string
}

func newUnpack512(e *gen, l layout) *unpack512 {
	return &unpack512{open512{e, l}, l.unpacked(), "vnniUnpack" + l.name}
}

func (k *unpack512) emit() {
	e, l := k.e, k.l
	e.fn(k.name, fmt.Sprintf("unpacks Groups groups of %s to groups of %d bytes.", l.name, k.to.bytes()))
	e.arg("CX")
	k.constants()
	e.lds("CX", [2]string{"Src", "DI"}, [2]string{"Dst", "SI"}, [2]string{"Pf", "BX"}, [2]string{"Groups", "CX"})
	e.lab(k.name + "_group")
	for off := 0; off < l.bytes(); off += 64 {
		e.p("PREFETCHT0 %d(DI)(BX*1)", off)
	}
	if k.apart() {
		e.p("LEAQ %d(DI), R8", l.high())
	}
	switch {
	case !l.super():
		k.turns("sub", 2, 64, 256, 512, k.block)
	case l.sub() == 32:
		k.turns("sub", 4, 128, 512, 1024, k.fours)
	default:
		k.turns("sub", 8, 32, 2*l.sumBytes(), 512, k.sixteens)
	}
	// DI is behind the weights now, SI at the scales.
	from := l.scales() - l.high()
	if l.scaling == perSubNibbles {
		k.turns("min", 8, 0, 32, 32, k.minima)
		from -= 256
		e.p("VMOVDQU64 (DI), Z24")
		e.p("VMOVDQU64 Z24, (SI)")
		e.p("ADDQ $64, SI")
	} else {
		for off := 0; off < l.scaling.bytes(); off += 64 {
			e.p("VMOVDQU64 %d(DI), Z24", from+off)
			e.p("VMOVDQU64 Z24, %d(SI)", off)
		}
		e.p("ADDQ $%d, SI", l.scaling.bytes())
	}
	e.p("ADDQ $%d, DI", from+l.scaling.bytes())
	e.p("DECQ CX")
	e.p("JNZ %s_group", k.name)
	e.ret()
}

// apart: fifth bits or scales are read beside the weights.
func (k *unpack512) apart() bool { return k.l.coding == fives || k.l.coding == twos }

// turns is a loop; a turn moves R8, DI and SI by so many bytes.
func (k *unpack512) turns(label string, n, r8, di, si int, body func()) {
	e := k.e
	e.p("MOVL $%d, AX", n)
	e.lab(k.name + "_" + label)
	body()
	if k.apart() && r8 > 0 {
		e.p("ADDQ $%d, R8", r8)
	}
	e.p("ADDQ $%d, DI", di)
	e.p("ADDQ $%d, SI", si)
	e.p("DECQ AX")
	e.p("JNZ %s_%s", k.name, label)
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

// block opens a block of a group: a vector's nibbles are 16 K apart.
func (k *unpack512) block() {
	if k.l.coding == fives {
		k.e.p("VMOVDQU64 (R8), Z26")
	}
	for i := range 4 {
		k.split(64*i, 64*i, 256+64*i, i, i+4, 26)
	}
}

// fours opens two sub-blocks of 32: a vector's nibbles belong to both.
func (k *unpack512) fours() {
	if k.l.coding == fives {
		k.e.p("VMOVDQU64 (R8), Z26")
		k.e.p("VMOVDQU64 64(R8), Z27")
	}
	for i := range 8 {
		k.split(64*i, 64*i, 512+64*i, i, i, 27)
	}
}

// sixteens opens two sub-blocks of 16; weights of Q2_K are multiplied by their scales.
func (k *unpack512) sixteens() {
	e, l := k.e, k.l
	for j := range 2 {
		end := e.macro("SIXTEEN")
		for i := range l.sumBytes() / 64 {
			e.p("VMOVDQU64 %d(DI), Z%d", l.sumBytes()*j+64*i, k.first()+i)
		}
		k.sixteen()
		if l.coding == twos {
			end()
			e.p("VPMOVZXBD %d(R8), Z28", 16*j)
			end = e.macro("SCALED")
			k.foldScales()
		}
		for i := range 4 {
			e.p("VMOVDQU64 Z%d, %d(SI)", 24+i, 256*j+64*i)
		}
		end()
	}
}

// minima stores those of two sub-blocks of Q2_K in pairs of bytes.
func (k *unpack512) minima() {
	e := k.e
	e.p("VPMOVZXBW (DI), Y24")
	e.p("VPMOVZXBW 16(DI), Y25")
	e.p("VPSRLW $4, Y24, Y24")
	e.p("VPSRLW $4, Y25, Y25")
	e.p("VPSLLW $8, Y25, Y25")
	e.p("VPORD Y25, Y24, Y24")
	e.p("VMOVDQU64 Y24, (SI)")
}
