package main

import "fmt"

// Integer kernels with 512-bit registers and AVX-512 VNNI. Weights are unsigned bytes, activations signed: VPDPBUSD takes four
// activations as an embedded broadcast, one load and one dot product for 64 weights; the weights' offset is undone by starting
// the sum at -offset*sum(x).
//
// There are three kinds. Kernels over packed panels (panel512: Gemv, Small) take the weights apart in registers (open512) and sum by
// scaling: blocks512, fours512, sixteens512, twos512. Kernels over unpacked panels (tile512: Gemm) see only the scaling. Kernels that
// unpack (unpack512) write one byte per weight.

// few512 is the most rows that are multiplied straight from the packed form: beyond it unpacking panels pays.
const few512 = 48

// maxRows512 is the most activation rows of a kernel.
const maxRows512 = 6

// gemms512 names the kernels over unpacked panels: one for each scaling.
var gemms512 = [scalings]string{perBlock: "Q8", perBlockMin: "Q8M", perBlockBrain: "MX", perSubMin: "Q4K", perSub: "Q6K", perSubFloat: "Code4", perSubMini: "NV", perSubNibbles: "Q2K"}

// layouts512 is the order of the layouts in the files: Code4 before Q2_K.
var layouts512 = append(append([]layout{}, layouts[:8]...), layouts[9], layouts[8], layouts[10], layouts[11])

// panels512 writes the kernels over packed panels, and the set.
func panels512() *gen {
	e := newGen("dot", "dot_vnni", "Args")
	consts512(e)
	var set []kernelSet
	for _, l := range layouts512 {
		for rows := 1; rows <= maxRows512; rows++ {
			newPanel512(e, l, rows).emit()
		}
		s := kernelSet{layout: l.name, gemv: "vnniGemv" + l.name, small: names("vnniSmall"+l.name+"x%d", 2, maxRows512),
			gemm: names("vnniGemm"+gemms512[l.scaling]+"x%d", 1, maxRows512), tile: 2, few: few512, sliced: true, folds: true}
		if l.packed() {
			u := l.unpacked()
			s.unpack, s.unpackedBytes = "vnniUnpack"+l.name, u.bytes()
		}
		set = append(set, s)
	}
	e.set("VNNI", "is the set of kernels that need AVX-512 VNNI.", set)
	return e
}

// tiles512 writes the kernels that unpack panels and those over unpacked panels.
func tiles512() *gen {
	e := newGen("dot", "dot_vnni_gemm", "Args")
	consts512(e)
	for _, l := range layouts512 {
		if l.packed() {
			newUnpack512(e, l).emit()
		}
	}
	for rows := 1; rows <= maxRows512; rows++ {
		for s := range scalings {
			(&tile512{e: e, scaling: s, rows: rows}).emit()
		}
	}
	return e
}

// consts512 writes the constants, of which kernels broadcast the first dword.
func consts512(e *gen) {
	e.line("")
	e.datum(miniBias, 0, 4, "0x30000000")
	e.global(miniBias, 4)
}

// zero clears Zr.
func (e *gen) zero(r int) { e.p("VPXORD Z%d, Z%d, Z%d", r, r, r) }

// at is the address off(base).
func at(base string, off int) string { return fmt.Sprintf("%d(%s)", off, base) }

// xrow is the address of activation row r at byte off: SI is row 0, R8 row 3, AX the stride.
func xrow(r, off int) string {
	return strided(off, []string{"SI", "R8"}[r/3], "AX", r%3)
}

// rowsMask makes K1 the mask of the rows.
func rowsMask(e *gen, rows int) {
	e.p("MOVL $%d, AX", 1<<rows-1)
	e.p("KMOVW AX, K1")
}

// pairs2 stores on the stack, for each of eight pairs of sub-blocks, the sums of 16 activations of eight rows as pairs of words, which
// it makes of the 32-bit offsets of the rows in K1. R9 goes to the next group.
func pairs2(e *gen, to int, fetch func(addr string)) {
	for t := range 8 {
		end := e.macro("PAIRS")
		for i := range 2 {
			addr := indexed("R9", "R10", i)
			e.p("VMOVDQU32.Z %s, K1, Y%d", addr, i)
			fetch(addr)
		}
		e.p("VPSRLD $5, Y0, Y0")
		e.p("VPSLLD $11, Y1, Y1")
		e.p("VPBLENDW $0xaa, Y1, Y0, Y0")
		e.p("VMOVDQU Y0, %d(SP)", to+32*t)
		e.p("LEAQ (R9)(R10*2), R9")
		end()
	}
}
