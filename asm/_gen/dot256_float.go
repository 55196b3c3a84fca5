package main

import "fmt"

// float layouts for 256-bit kernels. Two and three rows take chunk groups of a panel before they change halves. From memory (Gemv, Small)
// 8 KiB, for which they aim their streams; of a cached panel (Gemm) 32 or 64 KiB.
type floatLayout256 struct {
	name                  string
	bytes                 int // of a group
	chunkSmall, chunkGemm int
	streams               bool
	step                  func(k *float256, h int) // one group
}

var floats256 = []*floatLayout256{
	{"F32", 256, 32, 256, true, (*float256).plain},
	{"F16", 128, 64, 256, true, (*float256).plain},
	{"BF16", 256, 32, 128, false, (*float256).pairs},
}

// floatDoc256 heads the kernels of float256 in the assembly.
const floatDoc256 = `A kernel of a float layout: one row has the eight accumulators of a panel in registers; two and three have those of
one half (32 weight rows) at a time, the others wait in Y.

	for each of Panels panels (Gemm: of one): Y = 0, or Y; for each K: Y += w*x

DI, R8 weights: of the panel, of a half; SI, DX activations likewise, AX their stride; R9 Y, R10 its stride; CX groups left, BX those
of the chunk, R12 those left of it; R11, R14, R15 what to prefetch; on the stack the panel loop's W, Y, number of panels left, then what streams need. Y0..
accumulators, row by row; behind them (one row: Y8; else Y12..) activations; Y14 of BF16's one and two rows the mask; Y15 weights.`

// float256 emits the kernels that floatDoc256 describes.
type float256 struct {
	e          *gen
	l          *floatLayout256
	rows       int
	loop       bool // over Panels panels, read from memory
	name, mask string
	vecs, pass int // accumulators per row, and bytes of a group, of a pass over the panel
	x          int // register of row 0's activations
}

const floatW = 15

func newFloat256(e *gen, l *floatLayout256, rows int, loop bool) *float256 {
	k := &float256{e: e, l: l, rows: rows, loop: loop, mask: "cffff0000<>(SB)", vecs: 8, pass: l.bytes, x: 8}
	if rows > 1 { // three rows fill the register file: 12 accumulators, 3 activations, weights
		k.vecs, k.pass, k.x = 4, l.bytes/2, 12
	}
	kind := fmt.Sprintf("Gemm%d", rows)
	switch {
	case loop && rows == 1:
		kind = "Gemv"
	case loop:
		kind = fmt.Sprintf("Small%d", rows)
	}
	k.name = "avx2" + kind + l.name
	return k
}

// macro begins a macro of so many rows.
func (k *float256) macro(role string) func() { return k.e.macro(fmt.Sprintf("%s%d", role, k.rows)) }

func (k *float256) emit() {
	e := k.e
	what, frame := "panel", 0
	if k.loop {
		what, frame = "Panels panels", 24
		if k.l.streams {
			frame = streamFrame
		}
	}
	e.describe(floatDoc256)
	e.fnFrame(k.name, fmt.Sprintf("multiplies %d activation rows with %s of %s.", k.rows, what, k.l.name), frame)
	if k.l.name == "BF16" && k.rows < 3 {
		k.mask = "Y14"
		e.p("VMOVDQU cffff0000<>(SB), Y14")
	}
	e.arg("R13")
	if k.loop {
		end := e.macro("PANELS")
		for i, f := range []string{"W", "Y", "Panels"} {
			e.ld("R13", f, "AX")
			e.p("MOVQ AX, %d(SP)", 8*i)
		}
		end()
		if k.l.streams {
			streamArgs(e, streamBlock)
		}
	}
	if k.rows > 1 {
		e.lds("R13", [2]string{"XStride", "AX"}, [2]string{"YStride", "R10"})
	}
	if k.loop {
		e.lab(k.name + "_panel")
		end := e.macro("PANEL")
		e.p("MOVQ 0(SP), DI")
		e.p("MOVQ 8(SP), R9")
		if !k.l.streams {
			e.ld("R13", "Pf", "R11")
			e.p("LEAQ (DI)(R11*2), R11") // twice Pf, as in int256.distance
		}
		end()
	} else {
		e.lds("R13", [2]string{"W", "DI"}, [2]string{"Y", "R9"})
	}
	e.lds("R13", [2]string{"X", "SI"}, [2]string{"Groups", "CX"}, [2]string{"Cont", "R12"})
	if k.rows == 1 {
		k.onePass()
	} else {
		k.chunks()
	}
	if k.loop {
		end := e.macro("NEXTFLOATS")
		e.p("ADDQ $256, 8(SP)")
		e.ld("R13", "WStep", "BX")
		e.p("ADDQ BX, 0(SP)")
		e.p("DECQ 16(SP)")
		end()
		e.p("JNZ %s_panel", k.name)
	}
	e.ret()
}

func (k *float256) y(r, off int) string { return strided(off, "R9", "R10", r) }

// onePass goes once through a panel, for one row.
func (k *float256) onePass() {
	e := k.e
	for v := range k.vecs {
		e.p("VXORPS Y%d, Y%d, Y%d", v, v, v)
	}
	e.p("TESTQ R12, R12")
	e.p("JEQ %s_zero", k.name)
	k.outputs(0, "LOAD", "VMOVUPS %[2]s, Y%[1]d")
	e.lab(k.name + "_zero")
	e.p("MOVQ DI, R8")
	e.p("MOVQ SI, DX")
	streams := k.loop && k.l.streams
	if streams {
		e.lab(k.name + "_chunk")
		k.chunk()
		aim(e, "R8", streamBlock)
		e.p("MOVQ BX, R12")
	} else {
		e.p("MOVQ CX, R12")
	}
	k.groups(0)
	if streams {
		e.p("SUBQ BX, CX")
		e.p("JNZ %s_chunk", k.name)
	}
	k.outputs(0, "STORE", "VMOVUPS Y%[1]d, %[2]s")
}

// chunks goes through a panel chunk by chunk, and through each chunk twice, for several rows.
func (k *float256) chunks() {
	e := k.e
	e.p("TESTQ R12, R12")
	e.p("JNE %s_chunk", k.name)
	e.p("VXORPS Y0, Y0, Y0")
	end := k.macro("CLEAR")
	for r := range k.rows {
		for v := range 8 {
			e.p("VMOVUPS Y0, %s", k.y(r, 32*v))
		}
	}
	end()
	e.lab(k.name + "_chunk")
	k.chunk()
	if k.loop && k.l.streams {
		aim(e, "DI", streamBlock)
	}
	for h := range 2 {
		e.p("MOVQ DI, R8")
		e.p("MOVQ SI, DX")
		e.p("MOVQ BX, R12")
		k.outputs(h, "LOAD", "VMOVUPS %[2]s, Y%[1]d")
		k.groups(h)
		k.outputs(h, "STORE", "VMOVUPS Y%[1]d, %[2]s")
	}
	e.p("MOVQ R8, DI")
	e.p("MOVQ DX, SI")
	e.p("SUBQ BX, CX")
	e.p("JNZ %s_chunk", k.name)
}

// chunk makes BX the number of groups of the next chunk.
func (k *float256) chunk() {
	chunk := k.l.chunkGemm
	if k.loop {
		chunk = k.l.chunkSmall
	}
	k.e.p("MOVQ $%d, BX", chunk)
	k.e.p("CMPQ CX, BX")
	k.e.p("CMOVQLT CX, BX")
}

// outputs moves accumulators; move has their register and the address of their outputs.
func (k *float256) outputs(h int, role, move string) {
	defer k.macro(role)()
	for r := range k.rows {
		for v := range k.vecs {
			k.e.p(move, k.vecs*r+v, k.y(r, 128*h+32*v))
		}
	}
}

// groups runs over R12 groups, weights at R8, activations at DX, for half h of the panel (two and three rows).
func (k *float256) groups(h int) {
	e := k.e
	e.lab(fmt.Sprintf("%s_k%d", k.name, h))
	switch {
	case !k.loop:
	case !k.l.streams: // R11 goes evenly through both halves' bytes, whichever half is at work
		end := e.macro("AHEAD")
		for off := 0; off < k.pass; off += 64 {
			e.p("PREFETCHT0 %d(R11)", off)
		}
		end()
		e.p("ADDQ $%d, R11", k.pass)
	case h == 0: // for both halves
		end := e.macro("AHEAD")
		for i := range 4 {
			fetchStream(e, i)
		}
		end()
		e.p("ADDQ $%d, R11", k.l.bytes/4)
	}
	k.l.step(k, h)
	e.p("ADDQ $%d, R8", k.l.bytes)
	e.p("ADDQ $4, DX")
	e.p("DECQ R12")
	e.p("JNZ %s_k%d", k.name, h)
}

// multiply adds vector v of the weights times the activations.
func (k *float256) multiply(v int) {
	for r := range k.rows {
		k.e.p("VFMADD231PS Y%d, Y%d, Y%d", k.x+r, floatW, k.vecs*r+v)
	}
}

// plain is a group of one K.
func (k *float256) plain(h int) {
	defer k.macro("GROUP" + k.l.name + "x")()
	load, bytes := "VMOVUPS", 32
	if k.l.name == "F16" {
		load, bytes = "VCVTPH2PS", 16
	}
	for r := range k.rows {
		k.e.p("VBROADCASTSS %s, Y%d", indexed("DX", "AX", r), k.x+r)
	}
	for v := range k.vecs {
		k.e.p("%s %d(R8), Y%d", load, k.pass*h+bytes*v, floatW)
		k.multiply(v)
	}
}

// pairs is a group of two K of BF16: the pairs' first, then their second elements.
func (k *float256) pairs(h int) {
	defer k.macro("GROUP" + k.l.name + "x")()
	e := k.e
	for second := range 2 {
		for r := range k.rows {
			e.p("VPBROADCASTD %s, Y%d", indexed("DX", "AX", r), k.x+r)
			if second == 0 {
				e.p("VPSLLD $16, Y%d, Y%d", k.x+r, k.x+r)
			} else {
				e.p("VPAND %s, Y%d, Y%d", k.mask, k.x+r, k.x+r)
			}
		}
		for v := range k.vecs {
			off := k.pass*h + 32*v
			switch {
			case second == 1 && k.mask[0] == 'Y':
				e.p("VPAND %d(R8), %s, Y%d", off, k.mask, floatW)
			case second == 1:
				e.p("VMOVDQU %d(R8), Y%d", off, floatW)
				e.p("VPAND %s, Y%d, Y%d", k.mask, floatW, floatW)
			default:
				e.p("VMOVDQU %d(R8), Y%d", off, floatW)
				e.p("VPSLLD $16, Y%d, Y%d", floatW, floatW)
			}
			k.multiply(v)
		}
	}
}
