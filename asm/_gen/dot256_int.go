package main

import "fmt"

// intDoc256 heads the kernels of int256 in the assembly.
const intDoc256 = `One integer kernel of package dot:

	for each of Panels panels (Gemm: of one):
		acc = 0, or Y
		for each group: for each sum j: s = sum over its K of w*x; acc (superblocks: sub) takes s times its scale
		Y = acc

General registers: DI weights, SI activations of row 0, AX their stride (rows 1 and 2 are (SI)(AX*1) and (SI)(AX*2)), DX D,
R9 B or SD, R10 Mp, CX groups left, R12 turns of the inner loop, BX scales, R13 fifth bits, R8 Acc, R11 Pf, or what streams fetch
ahead, with R14 and R15, or, of Gemm with more than three rows, row 3; on the stack the panel loop's W, Y and number of panels left, then
what streams need.

Vector registers: integer sums from Y0, float accumulators (superblocks: sums over them) behind them unless they lie in Acc, then what
dots256 wants, constants, high bits; Y12, Y13 weights, Y14, Y15 temporaries.`

// int256 emits the kernels that intDoc256 describes.
type int256 struct {
	e     *gen
	b     *weights256
	dots  dots256
	vnni  bool
	rows  int
	loop  bool              // over Panels panels
	inAcc bool              // float accumulators (superblocks: sums over them) in Acc, for want of registers
	free  []int             // registers without a role
	ahead int               // lines fetched ahead since the address at R11
	c     map[string]string // constants: a register, or the memory operand
	high  []int             // registers for a vector of high bits; nil: none left
	extra []int             // registers of dots
	table int               // register with the values of codes plus bias; 0: they are at tableAt
	name  string
}

// Registers of weights and temporaries.
const (
	w0  = 12
	w1  = 13
	tmp = 14
	t15 = 15 // plain AVX2: a second temporary; VNNI: without a role
)

// newInt256 gives registers their roles.
func newInt256(e *gen, b *weights256, vnni bool, rows int, loop bool) *int256 {
	k := &int256{e: e, b: b, dots: b.dots(vnni), vnni: vnni, rows: rows, loop: loop, c: map[string]string{}}
	for _, n := range []string{"c03", "c0f", "c10", "c30", "c0001"} {
		k.c[n] = n + "<>(SB)"
	}
	k.inAcc = !b.folded && k.dots.inAcc(rows)
	first := 4 * rows
	if k.inAcc || b.folded {
		first = 2 * rows
	}
	for r := first; r < w0; r++ {
		k.free = append(k.free, r)
	}
	if vnni {
		k.free = append(k.free, t15)
	}
	n := k.dots.extra(rows)
	k.extra, k.free = k.free[:n], k.free[n:]
	return k
}

// tableAt is the place in Acc of the values of codes, behind accumulators.
const tableAt = "1024(R8)"

func (k *int256) sum(r, h int) int { return 2*r + h }
func (k *int256) flt(r, h int) int { return 2*k.rows + 2*r + h }

// accAt is the place in Acc of an accumulator over K, subAt that of a sum over the superblock.
func (k *int256) accAt(r, h int) string { return fmt.Sprintf("%d(R8)", 64*r+32*h) }
func (k *int256) subAt(r, h int) string { return fmt.Sprintf("%d(R8)", 512+64*r+32*h) }

// hasOffset: the sums start at an offset from B.
func (k *int256) hasOffset() bool { return k.b.hasOffset() && !k.b.signed }

// take removes the last free register, for a role.
func (k *int256) take() int {
	r := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	return r
}

// keep puts the constants that the kernel needs into free registers, as far as there are any; then it sets two aside for high bits.
func (k *int256) keep() {
	b := k.b
	if b.coding == codes {
		k.table = w0
		if len(k.free) > 0 {
			k.table = k.take()
		}
		k.e.arg("R13")
		k.e.ld("R13", "Values", "AX")
		k.e.p("VBROADCASTI128 (AX), Y%d", k.table)
		if b.bias > 0 {
			k.e.p("VPADDB c%x<>(SB), Y%d, Y%d", b.bias, k.table, k.table)
		}
		if k.table == w0 { // no register is left
			k.e.ld("R13", "Acc", "R8")
			k.e.p("VMOVDQU Y%d, %s", w0, tableAt)
			k.table = 0
		}
	}
	want := map[coding][]string{nibbles: {"c0f"}, fives: {"c0f", "c10"}, sixes: {"c0f", "c30"}, twos: {"c03", "c0f"}, codes: {"c0f"}}[b.coding]
	if b.coding == codes && b.bias == 32 { // bytes of 6 bits: they share the registers of sixes
		want = append(want, "c30")
	}
	if !k.vnni && b.coding != twos {
		want = append(want, "c0001")
	}
	for _, n := range want {
		if len(k.free) > 0 {
			r := k.take()
			k.e.p("VMOVDQU %s<>(SB), Y%d", n, r)
			k.c[n] = fmt.Sprintf("Y%d", r)
		}
	}
	apart := b.coding == fives || b.coding == sixes || b.coding == twos || b.coding == codes && b.bias == 32
	if apart && len(k.free) > 1 {
		k.high = []int{k.take(), k.take()}
	}
}

// macro begins a macro of so many rows.
func (k *int256) macro(role string) func() { return k.e.macro(fmt.Sprintf("%s%d", role, k.rows)) }

// each calls f for both halves of all rows.
func (k *int256) each(role string, f func(r, h int)) {
	defer k.macro(role)()
	for r := range k.rows {
		for h := range 2 {
			f(r, h)
		}
	}
}

// emit writes the kernel. That of signed codes has two bodies, and takes the one of bytes of 6 bits if all values allow it.
func (k *int256) emit(tier string) {
	e, b := k.e, k.b
	k.begin(tier)
	if b.signed {
		e.arg("R13")
		e.ld("R13", "Values", "AX")
		e.p("VMOVDQU (AX), X0")
		bias256(e, 0, 0, "X", k.name+"_wide")
		narrow := newInt256(e, b.biased(32), k.vnni, k.rows, k.loop)
		narrow.name = k.name + "_narrow"
		narrow.body()
		e.lab(k.name + "_wide")
	}
	k.body()
}

// bias256 adds 32 to values, to register biased, and goes on at label wide if one of the results is not within 0..63. IQ2 and IQ3_XXS (up
// to 43 and 62) and IQ4_XS (127) are wide, the other types narrow.
func bias256(e *gen, values, biased int, size, wide string) {
	e.p("VPADDB c20<>(SB), %s%d, %s%d", size, values, size, biased)
	e.p("VPTEST cc0<>(SB), %s%d", size, biased)
	e.p("JNE %s", wide)
}

// begin writes the head of the kernel.
func (k *int256) begin(tier string) {
	kind, form, frame := fmt.Sprintf("Gemm%d", k.rows), "one panel", 0
	switch {
	case k.loop:
		kind, form, frame = fmt.Sprintf("Small%d", k.rows), "Panels panels", 24
		if k.streams() {
			frame = streamFrame
		}
		if k.rows == 1 {
			kind = "Gemv"
		}
	case k.b.opened:
		form = "one unpacked panel"
	}
	if k.dots.sums != nil { // else signed256
		k.e.describe(intDoc256)
	}
	k.name = tier + kind + k.b.name
	k.e.fnFrame(k.name, fmt.Sprintf("multiplies %s with %s of %s.", activationRows(k.rows), form, k.b.name), frame)
}

// body writes the kernel but for its head.
func (k *int256) body() {
	e, b := k.e, k.b
	k.keep()
	e.arg("R13")
	e.ld("R13", "W", "DI")
	k.panels()
	k.start()
	end := k.macro("SETUP")
	e.ld("R13", "X", "SI")
	k.stride("XStride")
	k.row3("SI")
	e.ld("R13", "D", "DX")
	if b.scaling == perBlockMin {
		e.ld("R13", "SD", "R9")
	} else {
		e.ld("R13", "B", "R9")
	}
	e.ld("R13", "Mp", "R10")
	e.ld("R13", "Groups", "CX")
	end()
	e.lab(k.name + "_group")
	k.aim()
	if b.super() {
		k.superblock()
	} else {
		k.blocks()
	}
	e.p("DECQ CX")
	e.p("JNZ %s_group", k.name)
	k.finish()
	k.end()
}

// panels begins the loop over panels, if the kernel has one; end ends it and the kernel.
func (k *int256) panels() {
	if !k.loop {
		return
	}
	end := k.e.macro("PANELS")
	for i, f := range []string{"W", "Y", "Panels"} {
		k.e.ld("R13", f, "AX")
		k.e.p("MOVQ AX, %d(SP)", 8*i)
	}
	end()
	if k.streams() {
		streamArgs(k.e, k.block())
	}
	k.e.lab(k.name + "_panel")
	k.e.p("MOVQ 0(SP), DI")
	if !k.streams() {
		k.distance()
	}
}

func (k *int256) end() {
	if k.loop {
		end := k.e.macro("NEXTPANEL")
		k.e.p("ADDQ $64, 8(SP)")
		k.e.ld("R13", "WStep", "BX")
		k.e.p("ADDQ BX, 0(SP)")
		k.e.p("DECQ 16(SP)")
		end()
		k.e.p("JNZ %s_panel", k.name)
	}
	k.e.ret()
}

// distance loads the prefetch distance: twice Pf, for Pf = 8192 is what suits one stream of the 512-bit kernels. Q5_K read 31 GB/s with
// 8 KiB, 35 with 12, 39 with 16; Q5_0 36, 39, 38; Q4_K 38, 39, 40; Q6_K 37, 40, 40 (one Zen 5 core, whose read loops reach 40).
func (k *int256) distance() {
	k.e.ld("R13", "Pf", "R11")
	k.e.p("ADDQ R11, R11")
}

// row256 is off bytes into row r at base, rows AX bytes apart; R11 is the address of row 3.
func row256(base string, r, off int) string {
	if r >= 3 {
		base = "R11"
	}
	return strided(off, base, "AX", r%3)
}

// stride loads the row stride f.
func (k *int256) stride(f string) {
	if k.rows > 1 {
		k.e.ld("R13", f, "AX")
	}
}

// y points R12 to the outputs of row 0 and AX to their stride.
func (k *int256) y() {
	defer k.macro("OUTPUTS")()
	if k.loop {
		k.e.p("MOVQ 8(SP), R12")
	} else {
		k.e.ld("R13", "Y", "R12")
	}
	k.stride("YStride")
	k.row3("R12")
}

// row3 points R11 to row 3, if there is one, of rows at base.
func (k *int256) row3(base string) {
	if k.rows > 3 {
		k.e.p("LEAQ (%s)(AX*2), R11", base)
		k.e.p("ADDQ AX, R11")
	}
}

// start sets the accumulators over K to zero or to Y: those of superblocks are used once per superblock and lie in Acc.
func (k *int256) start() {
	e := k.e
	acc, mem := k.flt, k.b.super() || k.inAcc
	if mem {
		acc = k.sum
		e.ld("R13", "Acc", "R8")
	}
	k.each("ZERO", func(r, h int) { k.zero(acc(r, h)) })
	e.ld("R13", "Cont", "AX")
	e.p("TESTQ AX, AX")
	e.p("JEQ %s_zero", k.name)
	k.y()
	k.each("LOAD", func(r, h int) { e.p("VMOVUPS %s, Y%d", row256("R12", r, 32*h), acc(r, h)) })
	e.lab(k.name + "_zero")
	if mem {
		k.each("SPILL", func(r, h int) { e.p("VMOVUPS Y%d, %s", acc(r, h), k.accAt(r, h)) })
	}
}

// finish stores the outputs.
func (k *int256) finish() {
	e := k.e
	if k.b.coding == fives && k.looped() {
		e.arg("R13")
	}
	k.y()
	k.each("STORE", func(r, h int) {
		f := tmp
		if k.b.super() || k.inAcc {
			e.p("VMOVUPS %s, Y%d", k.accAt(r, h), f)
		} else {
			f = k.flt(r, h)
		}
		e.p("VMOVUPS Y%d, %s", f, row256("R12", r, 32*h))
	})
}

func (k *int256) zero(r int) { k.e.p("VPXOR Y%d, Y%d, Y%d", r, r, r) }
