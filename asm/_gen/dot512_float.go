package main

import "fmt"

// floatLayout512 is a float layout for 512-bit kernels, panels of 64 rows. F32 and F16 need AVX-512 F; BF16 has two kinds, one with
// VDPBF16PS and one without.
type floatLayout512 struct {
	name, label string
	bytes       int  // of a group
	rest        bool // groups may be no multiple of unroll
	step        func(k *float512, i int)
}

var floats512 = []*floatLayout512{
	{"F32", "F32", 256, true, (*float512).plain},
	{"F16", "F16", 128, true, (*float512).plain},
	{"BF16", "BF16", 256, false, (*float512).pairs}, // K is padded to 32
	{"BF16", "BF16dp", 256, false, (*float512).plain},
}

// Groups of a turn of the loop over one or two rows, and bytes of activations of a group.
const (
	unroll512 = 4
	floatX512 = 4
)

// dotFloat512 writes the float kernels and what all tiers share.
func dotFloat512() *gen {
	e := newGen("dot", "dot_avx512", "Args")
	var plain, bf16 []kernelSet
	for _, l := range floats512 {
		for rows := 1; rows <= maxRows512; rows++ {
			for _, stream := range []bool{true, false} {
				newFloat512(e, l, rows, stream).emit()
			}
		}
		s := kernelSet{layout: l.name, gemv: "avx512Gemv" + l.label, small: names("avx512Small"+l.label+"x%d", 2, maxRows512),
			gemm: names("avx512Gemm"+l.label+"x%d", 1, maxRows512), tile: 1, sliced: true}
		if l.label == "BF16dp" {
			bf16 = append(bf16, s)
		} else {
			plain = append(plain, s)
		}
	}
	fold(e)
	e.set("AVX512", "is the set of kernels that need AVX-512 F, BW, DQ and VL.", plain)
	e.set("AVX512BF16", "is the set of kernels that need AVX-512 BF16 as well.", bf16)
	return e
}

// floatDoc512 heads the kernels of float512 in the assembly.
const floatDoc512 = `A kernel of four vectors x 1..6 activation rows, 24 accumulators.

	for each of Panels panels, or of their slices (Gemm: of one panel): Y = 0, or Y; for each K: Y += w*x

Z0..Z23 accumulators (four per row), Z24..Z27 weights, Z28..Z30 activations, Z31 mask 0xffff0000. DI weights; SI, R8, AX activations;
CX groups left, R10 prefetch distance, BX arguments; 0(SP) W, 8(SP) Y, 16(SP) panels left, 24(SP) slices left.`

// float512 emits the kernels that floatDoc512 describes.
type float512 struct {
	e      *gen
	l      *floatLayout512
	rows   int
	stream bool // Panels panels read from memory, with prefetch, else one panel in a cache
	name   string
}

func newFloat512(e *gen, l *floatLayout512, rows int, stream bool) *float512 {
	name := fmt.Sprintf("avx512Gemm%sx%d", l.label, rows)
	switch {
	case stream && rows == 1:
		name = "avx512Gemv" + l.label
	case stream:
		name = fmt.Sprintf("avx512Small%sx%d", l.label, rows)
	}
	return &float512{e, l, rows, stream, name}
}

// macro begins a macro of so many rows.
func (k *float512) macro(role string) func() { return k.e.macro(fmt.Sprintf("%s%d", role, k.rows)) }

func (k *float512) emit() {
	e := k.e
	doc := fmt.Sprintf("multiplies %d activation rows with one panel of %s.", k.rows, k.l.name)
	if k.stream {
		doc = fmt.Sprintf("multiplies %s with Panels panels of %s.", activationRows(k.rows), k.l.name)
	}
	e.describe(floatDoc512)
	e.fnFrame(k.name, doc, 32)
	if k.l.label == "BF16" {
		e.p("MOVL $0xffff0000, AX")
		e.p("VPBROADCASTD AX, Z31")
	}
	e.arg("BX")
	e.lds("BX", [2]string{"Pf", "R10"}, [2]string{"W", "DI"}, [2]string{"Y", "R9"})
	e.p("MOVQ DI, 0(SP)")
	e.p("MOVQ R9, 8(SP)")
	if k.stream {
		e.ld("BX", "Panels", "CX")
		e.p("MOVQ CX, 16(SP)")
		e.p("MOVQ $1, 24(SP)")
		e.lab(k.name + "_panel")
	}
	k.start()
	end := e.macro("SETUP")
	e.ld("BX", "XStride", "AX")
	e.p("LEAQ (AX)(AX*2), R8")
	e.p("ADDQ SI, R8")
	e.ld("BX", "Groups", "CX")
	end()
	k.groups()
	k.outputs("STORE", func(reg, off int) { e.p("VMOVUPS Z%d, %d(R9)", reg, off) })
	if k.stream {
		end := e.macro("NEXTPANEL")
		e.p("ADDQ $256, 8(SP)")
		e.ld("BX", "WStep", "AX")
		e.p("MOVQ 0(SP), DI")
		e.p("ADDQ AX, DI")
		e.p("MOVQ DI, 0(SP)")
		e.p("DECQ 16(SP)")
		end()
		e.p("JNZ %s_panel", k.name)
	}
	e.ret()
}

// start sets the accumulators to zero or to the outputs, and SI to the activations of the slice.
func (k *float512) start() {
	e := k.e
	end := k.macro("ZERO")
	for i := range 4 * k.rows {
		e.zero(i)
	}
	end()
	e.ld("BX", "Cont", "AX")
	e.p("TESTQ AX, AX")
	e.p("JEQ %s_zero", k.name)
	k.outputs("LOAD", func(reg, off int) { e.p("VMOVUPS %d(R9), Z%d", off, reg) })
	e.lab(k.name + "_zero")
	if k.stream {
		e.p("DECQ 24(SP)")
		e.p("JGT %s_slice", k.name)
		e.ld("BX", "Slices", "AX")
		e.p("MOVQ AX, 24(SP)")
	}
	e.ld("BX", "X", "SI")
	if k.stream {
		e.lab(k.name + "_slice")
	}
}

// outputs calls f for each accumulator with the place of its outputs behind R9.
func (k *float512) outputs(role string, f func(reg, off int)) {
	defer k.macro(role)()
	k.e.p("MOVQ 8(SP), R9")
	k.e.ld("BX", "YStride", "AX")
	for r := range k.rows {
		for i := range 4 {
			f(4*r+i, 64*i)
		}
		if r < k.rows-1 {
			k.e.p("ADDQ AX, R9")
		}
	}
}

// groups runs over CX groups: unroll512 per turn and the rest one by one, or all one by one, for 12 products of vectors and more hide
// what a turn costs (8 do not: two rows of F32 are 0.985 times as fast).
func (k *float512) groups() {
	e := k.e
	switch {
	case k.rows > 2:
		e.p("TESTQ CX, CX")
		e.p("JEQ %s_done", k.name)
		k.oneByOne()
		e.lab(k.name + "_done")
	case k.l.rest:
		e.p("SUBQ $%d, CX", unroll512)
		e.p("JLT %s_rest", k.name)
		e.lab(k.name + "_k")
		k.turn(unroll512)
		e.p("SUBQ $%d, CX", unroll512)
		e.p("JGE %s_k", k.name)
		e.lab(k.name + "_rest")
		e.p("ADDQ $%d, CX", unroll512)
		e.p("JEQ %s_done", k.name)
		k.oneByOne()
		e.lab(k.name + "_done")
	default:
		e.lab(k.name + "_k")
		k.turn(unroll512)
		e.p("SUBQ $%d, CX", unroll512)
		e.p("JNZ %s_k", k.name)
	}
}

// oneByOne runs over CX groups.
func (k *float512) oneByOne() {
	k.e.lab(k.name + "_one")
	k.turn(1)
	k.e.p("DECQ CX")
	k.e.p("JNZ %s_one", k.name)
}

// turn is n groups.
func (k *float512) turn(n int) {
	e, l := k.e, k.l
	for i := range n {
		end := e.macro("STEP" + l.label + fmt.Sprint("x", k.rows))
		for off := 0; off < l.bytes && k.stream; off += 64 {
			e.p("PREFETCHT0 %d(DI)(R10*1)", i*l.bytes+off)
		}
		l.step(k, i)
		end()
	}
	e.p("ADDQ $%d, DI", n*l.bytes)
	e.p("ADDQ $%d, SI", n*floatX512)
	e.p("ADDQ $%d, R8", n*floatX512)
}

// plain is group i of a turn: one K, or the pairs of VDPBF16PS.
func (k *float512) plain(i int) {
	defer k.macro("GROUP" + k.l.label + "x")()
	e := k.e
	load, bytes := "VMOVDQU64", 64
	if k.l.name == "F16" {
		load, bytes = "VCVTPH2PS", 32
	}
	for v := range 4 {
		e.p("%s %d(DI), Z%d", load, i*k.l.bytes+bytes*v, 24+v)
	}
	for r := range k.rows {
		t := 28 + r%3
		e.p("VPBROADCASTD %s, Z%d", xrow(r, i*floatX512), t)
		for v := range 4 {
			if k.l.label == "BF16dp" {
				e.dpbf16(t, 24+v, 4*r+v)
			} else {
				e.p("VFMADD231PS Z%d, Z%d, Z%d", t, 24+v, 4*r+v)
			}
		}
	}
}

// pairs is group i of a turn of BF16: first elements of the pairs, then second ones; both are float32 after a shift or a mask.
func (k *float512) pairs(i int) {
	defer k.macro("GROUP" + k.l.label + "x")()
	e := k.e
	for second := range 2 {
		for v := range 4 {
			if off := i*k.l.bytes + 64*v; second == 0 {
				e.p("VPSLLD $16, %d(DI), Z%d", off, 24+v)
			} else {
				e.p("VPANDD %d(DI), Z31, Z%d", off, 24+v)
			}
		}
		for r := range k.rows {
			t := 28 + r%3
			e.p("VPBROADCASTD %s, Z%d", xrow(r, i*floatX512), t)
			if second == 0 {
				e.p("VPSLLD $16, Z%d, Z%d", t, t)
			} else {
				e.p("VPANDD Z%d, Z31, Z%d", t, t)
			}
			for v := range 4 {
				e.p("VFMADD231PS Z%d, Z%d, Z%d", t, 24+v, 4*r+v)
			}
		}
	}
}

// fold is GoFold with 256-bit registers: every tier with assembly uses it. SI slices, AX their size, R8 three times that, DI Y, CX panels
// left, DX slices, R10 B, R11 Cont, R12 bytes of the panel's slice left, R9 the fifth slice.
func fold(e *gen) {
	e.fn("avxFold", "adds slices and stores outputs (GoFold).")
	e.arg("BX")
	e.lds("BX", [2]string{"W", "SI"}, [2]string{"WStep", "AX"}, [2]string{"Y", "DI"}, [2]string{"Panels", "CX"}, [2]string{"Groups", "DX"},
		[2]string{"B", "R10"}, [2]string{"Cont", "R11"})
	e.p("LEAQ (AX)(AX*2), R8")
	for _, n := range []int{2, 4, 8} {
		e.p("CMPQ DX, $%d", n)
		e.p("JEQ avxFold_%d", n)
	}
	for _, n := range []int{1, 2, 4, 8} {
		name := fmt.Sprintf("avxFold_%d", n)
		e.lab(name)
		e.p("MOVQ AX, R12")
		e.lab(name + "_v")
		if n == 8 {
			e.p("LEAQ (SI)(AX*4), R9")
		}
		for r := range 2 {
			foldSlices(e, n, 32*r, r)
		}
		e.p("TESTQ R10, R10")
		e.p("JEQ %s_add", name)
		e.p("VADDPS (R10), Y0, Y0")
		e.p("VADDPS 32(R10), Y1, Y1")
		e.p("ADDQ $64, R10")
		e.lab(name + "_add")
		e.p("TESTQ R11, R11")
		e.p("JEQ %s_store", name)
		e.p("VADDPS (DI), Y0, Y0")
		e.p("VADDPS 32(DI), Y1, Y1")
		e.lab(name + "_store")
		e.p("VMOVUPS Y0, (DI)")
		e.p("VMOVUPS Y1, 32(DI)")
		e.p("ADDQ $64, SI")
		e.p("ADDQ $64, DI")
		e.p("SUBQ $64, R12")
		e.p("JNZ %s_v", name)
		if n > 1 { // SI is one slice further: skip the others
			e.p("IMUL3Q $%d, AX, R12", n-1)
			e.p("ADDQ R12, SI")
		}
		e.p("DECQ CX")
		e.p("JNZ %s", name)
		e.ret()
	}
}

// foldSlices makes Yr the sum of n slices at byte off.
func foldSlices(e *gen, n, off, r int) {
	four := func(base string, r int) { // Yr = (s0+s1)+(s2+s3)
		e.p("VMOVUPS %d(%s), Y%d", off, base, r)
		e.p("VADDPS %d(%s)(AX*1), Y%d, Y%d", off, base, r, r)
		e.p("VMOVUPS %d(%s)(AX*2), Y%d", off, base, r+2)
		e.p("VADDPS %d(%s)(R8*1), Y%d, Y%d", off, base, r+2, r+2)
		e.p("VADDPS Y%d, Y%d, Y%d", r+2, r, r)
	}
	switch n {
	case 1, 2:
		e.p("VMOVUPS %d(SI), Y%d", off, r)
		if n == 2 {
			e.p("VADDPS %d(SI)(AX*1), Y%d, Y%d", off, r, r)
		}
	default:
		four("SI", r)
		if n == 8 {
			four("R9", r+4)
			e.p("VADDPS Y%d, Y%d, Y%d", r+4, r, r)
		}
	}
}
