package main

// signedDoc256 heads the kernels of signed256 in the assembly.
const signedDoc256 = `The kernel of 8-bit weights without VNNI: |w| times x with the sign of w, whose pairs fit into a word
(2*128*127 < 2^15). That is 4 instructions per vector and row, as with low and high nibbles apart, but there is less to do for a
vector and for a block, and one sum per row lets six rows share the weights, half a panel at a time. Float accumulators lie in Acc.

Registers as of int256, but Y0.. sums of a half, Y6 weights, Y7 |weights|, Y8.. temporaries of the rows.`

// signed256 emits the kernels that signedDoc256 describes.
type signed256 struct{ *int256 }

const (
	signedW    = 6
	signedAbs  = 7
	signedTemp = 8
	signed80   = 14 // 0x80 in all bytes
	signed0001 = 15 // 1 in all words
)

func newSigned256(e *gen, b *weights256, rows int, loop bool) signed256 {
	return signed256{&int256{e: e, b: b, rows: rows, loop: loop, inAcc: true}}
}

func (k signed256) emit(tier string) {
	e, b := k.e, k.b
	e.describe(signedDoc256)
	k.begin(tier)
	e.p("VMOVDQU c80<>(SB), Y%d", signed80)
	e.p("VMOVDQU c0001<>(SB), Y%d", signed0001)
	e.arg("R13")
	e.ld("R13", "W", "DI")
	k.panels()
	e.ld("R13", "Acc", "R8")
	k.zero(0)
	k.each("SPILL", func(r, h int) { e.p("VMOVUPS Y0, %s", k.accAt(r, h)) })
	e.ld("R13", "Cont", "AX")
	e.p("TESTQ AX, AX")
	e.p("JEQ %s_zero", k.name)
	k.y()
	k.each("LOAD", func(r, h int) { k.copy(row256("R12", r, 32*h), k.accAt(r, h)) })
	e.lab(k.name + "_zero")
	end := k.macro("SETUP")
	e.ld("R13", "X", "SI")
	k.stride("XStride")
	k.row3("SI")
	e.ld("R13", "D", "DX")
	e.ld("R13", "Mp", "R10")
	e.ld("R13", "Groups", "CX")
	end()
	e.lab(k.name + "_group")
	k.aim()
	k.turns(func(j int) {
		for h := range 2 {
			for i := range b.vecs() {
				k.vector(j, i, h)
			}
			k.scale(j, h)
		}
		e.p("ADDQ R10, DX")
	})
	k.fetchScales()
	k.nextGroup()
	e.p("DECQ CX")
	e.p("JNZ %s_group", k.name)
	k.y()
	k.each("STORE", func(r, h int) { k.copy(k.accAt(r, h), row256("R12", r, 32*h)) })
	k.end()
}

// copy moves a vector from memory to memory.
func (k signed256) copy(from, to string) {
	k.e.p("VMOVUPS %s, Y0", from)
	k.e.p("VMOVUPS Y0, %s", to)
}

// vector adds half h of vector i of block j of the turn to the sums.
func (k signed256) vector(j, i, h int) {
	e := k.e
	n := k.b.vecs()*j + i
	k.pf("DI", 64*n, h)
	k.fetchStep((2*j+h)*k.b.vecs()+i, 2*k.turn()*k.b.vecs())
	defer k.macro("STEP")()
	e.p("VPXOR %d(DI), Y%d, Y%d", 64*n+32*h, signed80, signedW)
	e.p("VPABSB Y%d, Y%d", signedW, signedAbs)
	for r := range k.rows {
		t := signedTemp + r
		e.p("VPBROADCASTD %s, Y%d", row256("SI", r, 4*n), t)
		e.p("VPSIGNB Y%d, Y%d, Y%d", signedW, t, t)
		e.p("VPMADDUBSW Y%d, Y%d, Y%d", t, signedAbs, t)
		if i == 0 {
			e.p("VPMADDWD Y%d, Y%d, Y%d", signed0001, t, r)
			continue
		}
		e.p("VPMADDWD Y%d, Y%d, Y%d", signed0001, t, t)
		e.p("VPADDD Y%d, Y%d, Y%d", t, r, r)
	}
}

// scale adds the sums of half h of block j of the turn to the accumulators: acc = fma(float(isum), d*dx, acc).
func (k signed256) scale(j, h int) {
	defer k.macro("SCALE")()
	e, at := k.e, k.scalesAt()
	e.p("VCVTPH2PS %d(%s), Y%d", at.off+32*j+16*h, at.base, signedW)
	for r := range k.rows {
		t := signedTemp + r
		e.p("VBROADCASTSS %d(DX), Y%d", 4*r, t)
		e.p("VMULPS Y%d, Y%d, Y%d", t, signedW, t)
		e.p("VCVTDQ2PS Y%d, Y%d", r, r)
		e.p("VFMADD213PS %s, Y%d, Y%d", k.accAt(r, h), t, r)
		e.p("VMOVUPS Y%d, %s", r, k.accAt(r, h))
	}
}
