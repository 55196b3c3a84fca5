package main

import (
	"fmt"
	"strings"
)

// Instructions that the assembler of Go 1.26 lacks, as bytes: Intel SDM volume 2, sections 2.3 (VEX) and 2.7 (EVEX). All are register
// forms of opcode map 0F38 with W = 0; operands are in the assembler's order, the destination last.

// raw emits one instruction given as bytes: a macro whose name has its operands in the assembler's order.
func (e *gen) raw(name string, bs ...byte) {
	var t []string
	for _, b := range bs {
		t = append(t, fmt.Sprintf("BYTE $0x%02x", b))
	}
	it := e.callOf(name, []item{{text: strings.Join(t, "; ")}})
	it.call.instruction = true
	e.items = append(e.items, it)
}

// inverted is the complement of a bit of register number x, as prefixes hold it.
func inverted(x, bit int) byte { return byte(^x>>bit) & 1 }

// modRM names registers rm and reg in the last byte.
func modRM(reg, rm int) byte { return 0xC0 | byte(reg&7)<<3 | byte(rm&7) }

// vex66 emits opcode op of VEX.256.66.0F38.W0.
func (e *gen) vex66(name string, op byte, ys2, ys1, yd int) {
	e.raw(fmt.Sprintf("%s_Y%d_Y%d_Y%d", name, ys2, ys1, yd),
		0xC4, inverted(yd, 3)<<7|1<<6|inverted(ys2, 3)<<5|0x02, byte(^ys1&15)<<3|1<<2|0x01, op, modRM(yd, ys2))
}

// vnniVex emits the VEX form (AVX-VNNI) of VPDPBUSD: yd += u8(ys1)*s8(ys2).
func (e *gen) vnniVex(ys2, ys1, yd int) { e.vex66("VPDPBUSD", 0x50, ys2, ys1, yd) }

// wordsVex emits the VEX form (AVX-VNNI) of VPDPWSSD: yd += s16(ys1)*s16(ys2).
func (e *gen) wordsVex(ys2, ys1, yd int) { e.vex66("VPDPWSSD", 0x52, ys2, ys1, yd) }

// dpbf16 emits VDPBF16PS zd += pairs zs1*zs2: EVEX.512.F3.0F38.W0 52.
func (e *gen) dpbf16(zs2, zs1, zd int) {
	p0 := inverted(zd, 3)<<7 | inverted(zs2, 4)<<6 | inverted(zs2, 3)<<5 | inverted(zd, 4)<<4 | 0x02
	p1 := byte(^zs1&15)<<3 | 1<<2 | 0x02   // W=0, pp=F3
	p2 := byte(0x40) | inverted(zs1, 4)<<3 // L'L=512
	e.raw(fmt.Sprintf("VDPBF16PS_Z%d_Z%d_Z%d", zs2, zs1, zd), 0x62, p0, p1, p2, 0x52, modRM(zd, zs2))
}
