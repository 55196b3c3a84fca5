package main

import "fmt"

// panelDoc512 heads the kernels of panel512 in the assembly.
const panelDoc512 = `A kernel over packed panels:

	for each of Panels panels, or of their slices:
		acc = 0, or Y
		for each group: for each sum j: s = sum over its K of w*x; acc (superblocks: sub) takes s times its scale
		Y = acc

Registers:

	Z0..Z5   integer sums of the rows        DI  weights             SI, R8, AX  activations: rows 0, 3, stride
	Z6..Z11  second sums; temporaries;       DX  D                   R9          B or SD
	         minima of Q2_K
	Z12..Z17 float accumulators              R10 Mp                  CX          groups left
	Z18..Z23 sums over a superblock          BX  prefetch distance   R11         turns of an inner loop
	Z24..Z29 weights, scales                 R12, R13 pointers, with several rows
	Z30, Z31 masks; values of Code4          0(SP) Y, 8(SP) panels left, 16(SP) slices left, 24(SP) pairs2`

// panel512 emits the kernels that panelDoc512 describes.
type panel512 struct {
	open512
	rows int
	name string
}

const (
	second512 = 6  // register of row 0's second sum, or minima
	acc512    = 12 // of its float accumulator
	sub512    = 18 // of its sum over a superblock
	pairs512  = 24 // place on the stack of pairs2
)

func newPanel512(e *gen, l layout, rows int) *panel512 {
	k := &panel512{open512{e, l}, rows, fmt.Sprintf("vnniSmall%sx%d", l.name, rows)}
	if rows == 1 {
		k.name = "vnniGemv" + l.name
	}
	return k
}

// macro begins a macro of so many rows.
func (k *panel512) macro(role string) func() { return k.e.macro(fmt.Sprintf("%s%d", role, k.rows)) }

// folded reports whether weights are multiplied by the scales of their sub-blocks, and minima summed in pairs: with this many rows
// that costs less than VPDPWSSD for each row and sub-block.
func (k *panel512) folded() bool { return k.l.coding == twos && k.rows >= 4 }

// inner: superblocks of several rows go through a loop over sub-blocks, which moves the pointers.
func (k *panel512) inner() bool { return k.l.super() && k.rows > 1 }

// fetch prefetches the line at weight byte off, a distance ahead.
func (k *panel512) fetch(off int) {
	k.e.p("PREFETCHT0 %d(DI)(BX*1)", off)
}

// fetchScales prefetches the lines of a group's scales.
func (k *panel512) fetchScales() {
	defer k.e.macro("AHEAD")()
	for off := k.l.scales(); off < k.l.bytes(); off += 64 {
		k.fetch(off)
	}
}

// fetchPart is step i of n that prefetch the lines of a group in the order of their addresses. Types whose fifth bits lie apart
// from the nibbles need it: with prefetches in the order of use Q5_K reached 73 % of the read loop's rate, so 78 to 88 %.
func (k *panel512) fetchPart(i, n int) {
	defer k.e.macro("AHEAD")()
	lines := k.l.bytes() / 64
	for l := i * lines / n; l < (i+1)*lines/n; l++ {
		k.fetch(64 * l)
	}
}

func (k *panel512) emit() {
	e, l := k.e, k.l
	frame := 24
	if k.folded() {
		frame = pairs512 + 8*32
	}
	e.describe(panelDoc512)
	e.fnFrame(k.name, fmt.Sprintf("multiplies %s with Panels panels of %s.", activationRows(k.rows), l.name), frame)
	e.arg("CX")
	begin := e.macro("CONSTANTS" + l.name)
	k.constants()
	begin()
	if k.folded() {
		rowsMask(e, k.rows)
	}
	e.lds("CX", [2]string{"W", "DI"}, [2]string{"Pf", "BX"}, [2]string{"Mp", "R10"}, [2]string{"Y", "R8"}, [2]string{"Panels", "R9"})
	begin = e.macro("PANELS")
	e.p("MOVQ R8, 0(SP)")
	e.p("MOVQ R9, 8(SP)")
	e.p("MOVQ $1, 16(SP)")
	begin()
	e.lab(k.name + "_panel")
	e.arg("CX")
	k.start()
	e.p("DECQ 16(SP)")
	e.p("JGT %s_slice", k.name)
	e.ld("CX", "Slices", "AX")
	e.p("MOVQ AX, 16(SP)")
	e.lds("CX", [2]string{"X", "SI"}, [2]string{"D", "DX"})
	if l.scaling == perBlockMin {
		e.ld("CX", "SD", "R9")
	} else {
		e.ld("CX", "B", "R9")
	}
	e.lab(k.name + "_slice")
	if k.rows > 1 {
		end := e.macro("ROWS")
		e.ld("CX", "XStride", "AX")
		e.p("LEAQ (AX)(AX*2), R8")
		e.p("ADDQ SI, R8")
		end()
	}
	e.ld("CX", "Groups", "CX")
	e.lab(k.name + "_group")
	k.group()
	k.advance()
	e.p("DECQ CX")
	e.p("JNZ %s_group", k.name)
	k.finish()
	e.ret()
}

// group is the body for a group, by scaling and number of rows.
func (k *panel512) group() {
	switch {
	case !k.l.super():
		for b := range 2 {
			k.block(b)
		}
	case k.l.sub() == 32 && k.rows == 1:
		k.fours()
	case k.l.sub() == 32:
		k.foursLoop()
	case k.rows == 1:
		k.sixteens()
	case k.folded():
		k.twosLoop()
	default:
		k.sixteensLoop()
	}
}

// outputs calls f for each accumulator with the address of its outputs; AX is the stride of rows, R8 the base.
func (k *panel512) outputs(role string, f func(reg int, addr string)) {
	defer k.macro(role)()
	e := k.e
	e.p("MOVQ 0(SP), R8")
	if k.rows > 1 {
		e.ld("CX", "YStride", "AX")
	}
	for r := range k.rows {
		if r == 3 {
			e.p("LEAQ (AX)(AX*2), R11")
			e.p("ADDQ R11, R8")
		}
		f(acc512+r, indexed("R8", "AX", r%3))
	}
}

// zeros clears the registers of all rows from that of row 0 on.
func (k *panel512) zeros(first int) {
	defer k.macro("ZERO")()
	for r := range k.rows {
		k.e.zero(first + r)
	}
}

// start sets the accumulators to zero or to the outputs.
func (k *panel512) start() {
	e := k.e
	k.zeros(acc512)
	e.ld("CX", "Cont", "AX")
	e.p("TESTQ AX, AX")
	e.p("JEQ %s_zero", k.name)
	k.outputs("LOAD", func(reg int, addr string) { e.p("VMOVUPS %s, Z%d", addr, reg) })
	e.lab(k.name + "_zero")
}

// finish stores the outputs and goes to the next panel.
func (k *panel512) finish() {
	e := k.e
	e.arg("CX")
	k.outputs("STORE", func(reg int, addr string) { e.p("VMOVUPS Z%d, %s", reg, addr) })
	end := e.macro("NEXT" + k.l.name)
	e.p("ADDQ $64, 0(SP)")
	e.ld("CX", "Groups", "AX") // DI went through Groups groups
	e.p("IMUL3Q $%d, AX, AX", k.l.bytes())
	e.p("SUBQ AX, DI")
	e.ld("CX", "WStep", "AX")
	e.p("ADDQ AX, DI")
	e.p("DECQ 8(SP)")
	end()
	e.p("JNZ %s_panel", k.name)
}

// step moves the activations' pointers.
func (k *panel512) step(bytes int) {
	k.e.p("ADDQ $%d, SI", bytes)
	if k.rows > 3 {
		k.e.p("ADDQ $%d, R8", bytes)
	}
}

// advance moves the pointers to the next group, unless the body's loop did.
func (k *panel512) advance() {
	defer k.e.macro("ADVANCE")()
	e, l := k.e, k.l
	if k.inner() {
		e.p("ADDQ $%d, DI", l.bytes()-l.subs()*l.sumBytes())
	} else {
		e.p("ADDQ $%d, DI", l.bytes())
		k.step(l.subs() * l.sub())
	}
	switch {
	case !l.super():
		e.p("LEAQ (DX)(R10*2), DX")
		e.p("LEAQ (R9)(R10*2), R9")
	case l.sub() == 32:
		e.p("ADDQ R10, DX")
		e.p("LEAQ (R9)(R10*4), R9")
	default:
		e.p("ADDQ R10, DX")
		if k.rows == 1 {
			e.p("MOVQ R8, R9")
		}
	}
}
