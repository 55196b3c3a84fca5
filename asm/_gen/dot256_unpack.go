package main

import "fmt"

// unpack256 writes the kernel that expands groups of b to one byte per weight: DI groups at Src, R8 at Dst, CX groups left, BX scales,
// R13 fifth bits, R12 turns. It has no sums, so that all of their registers can hold constants.
func unpack256(e *gen, b *weights256, name string) {
	to := b.unpacked()
	e.fnFrame(name, fmt.Sprintf("expands Groups groups of %s at Src to %d bytes each at Dst.", b.name, to.bytes()), 0)
	k := newInt256(e, b, true, 0, true)
	k.keep()
	if b.signed {
		bias256(e, k.table, w0, "Y", name+"_wide")
		e.p("VMOVDQA Y%d, Y%d", w0, k.table)
		e.lab(name + "_wide")
	}
	var folds [2]int // the scales of both halves
	if to.folded {
		folds = [2]int{k.take(), k.take()}
	}
	e.arg("R13")
	k.distance()
	e.lds("R13", [2]string{"Src", "DI"}, [2]string{"Dst", "R8"}, [2]string{"Groups", "CX"})
	e.lab(name + "_group")
	turn, done := k.turn(), b.subs()*b.sumBytes() // done: how far the loop moves DI
	if to.folded {
		e.p("LEAQ %d(DI), BX", b.scales())
	}
	if b.coding == fives {
		e.p("LEAQ %d(DI), R13", b.high())
	}
	e.p("MOVL $%d, R12", b.subs()/turn)
	e.lab(name + "_sub")
	for j := range turn {
		if to.folded {
			k.scales2(j, "twice", folds[0], folds[1])
		}
		for i := range b.vecs() {
			end := e.macro("UNPACK")
			for h := range 2 {
				b.load(k, j, i, h, w0, w1)
				if to.folded { // two bytes at a time: 3*15 < 256
					e.p("VPMULLW Y%d, Y%d, Y%d", folds[h], w0, w0)
				}
				e.p("VMOVDQU Y%d, %d(R8)", w0, j*to.sumBytes()+64*i+32*h)
			}
			end()
		}
	}
	e.p("ADDQ $%d, R8", turn*to.sumBytes())
	if b.coding == fives {
		e.p("ADDQ $%d, R13", 64*turn)
	}
	if to.folded {
		e.p("ADDQ $%d, BX", 16*turn)
	}
	e.p("ADDQ $%d, DI", turn*b.sumBytes())
	e.p("DECQ R12")
	e.p("JNZ %s_sub", name)
	scales := b.scaling.bytes()
	for i := 0; i < scales; i += 32 {
		k.pf("DI", b.scales()-done+i, i%64)
		e.p("VMOVDQU %d(DI), Y%d", b.scales()-done+i, w0)
		e.p("VMOVDQU Y%d, %d(R8)", w0, i)
	}
	e.p("ADDQ $%d, DI", b.bytes()-done)
	e.p("ADDQ $%d, R8", scales)
	e.p("DECQ CX")
	e.p("JNZ %s_group", name)
	e.ret()
}
