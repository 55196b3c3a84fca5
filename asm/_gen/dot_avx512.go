package main

import "fmt"

// Float kernels with 512-bit registers, panels of 64 rows: four vectors x 1..6 activation rows, 24 accumulators. F32 and F16 need
// AVX-512 F; BF16 has two kinds, one with VDPBF16PS and one without.
//
// Z0..Z23 accumulators (four per row), Z24..Z27 weights, Z28..Z30 activations, Z31 mask 0xffff0000. DI weights; SI, R8, AX activations;
// CX groups left, R10 prefetch distance, BX arguments; 0(SP) W, 8(SP) Y, 16(SP) panels left, 24(SP) slices left.

// float512 is a float layout.
type float512 struct {
	name, label string
	group       int  // bytes of a group
	x           int  // bytes of activations of a group
	unroll      int  // groups per turn of the loop
	rest        bool // groups may be no multiple of unroll
}

var floats512 = []*float512{
	{"F32", "F32", 256, 4, 4, true},
	{"F16", "F16", 128, 4, 4, true},
	{"BF16", "BF16", 256, 4, 4, false}, // K is padded to 32
	{"BF16", "BF16dp", 256, 4, 4, false},
}

func dotAVX512() {
	e := newGen("dot", "dot", "../dot/dot_avx512", "Args", dotFields)
	table := ""
	for _, l := range floats512 {
		if l.label == "BF16dp" {
			table = "\n// AVX512 is the set of kernels that need AVX-512 F, BW, DQ and VL.\nvar AVX512 = Set{Of: [Layouts]Kernels{\n" + table + "}}\n" +
				"\n// AVX512BF16 is the set of kernels that need AVX-512 BF16 as well.\nvar AVX512BF16 = Set{Of: [Layouts]Kernels{\n"
		}
		for rows := 1; rows <= 6; rows++ {
			for _, stream := range []bool{true, false} {
				floatKernel(e, l, rows, stream)
			}
		}
		p := "avx512"
		table += "\t" + l.name + ": " + kernelsOf(p+"Gemv"+l.label, p+"Small"+l.label+"x", p+"Gemm"+l.label+"x", 1, "", 0) + ",\n"
	}
	fold(e)
	e.table(table + "}}\n")
	e.write()
}

// floatKernel emits a kernel; stream: Panels panels read from memory, with prefetch, else one panel in a cache.
func floatKernel(e *gen, l *float512, rows int, stream bool) {
	name := fmt.Sprintf("avx512Gemm%sx%d", l.label, rows)
	doc := fmt.Sprintf("multiplies %d activation rows with one panel of %s.", rows, l.name)
	if stream {
		name = fmt.Sprintf("avx512Small%sx%d", l.label, rows)
		doc = fmt.Sprintf("multiplies %d activation rows with Panels panels of %s.", rows, l.name)
		if rows == 1 {
			name = "avx512Gemv" + l.label
			doc = fmt.Sprintf("multiplies one activation row with Panels panels of %s.", l.name)
		}
	}
	e.fnFrame(name, doc, 32)
	if l.label == "BF16" {
		e.p("MOVL $0xffff0000, AX")
		e.p("VPBROADCASTD AX, Z31")
	}
	e.arg("BX")
	e.ld("BX", "Pf", "R10")
	e.ld("BX", "W", "DI")
	e.ld("BX", "Y", "R9")
	e.p("MOVQ DI, 0(SP)")
	e.p("MOVQ R9, 8(SP)")
	if stream {
		e.ld("BX", "Panels", "CX")
		e.p("MOVQ CX, 16(SP)")
		e.p("MOVQ $1, 24(SP)")
		e.lab(name + "_panel")
	}
	outputs := func(f func(reg, off int)) {
		e.p("MOVQ 8(SP), R9")
		e.ld("BX", "YStride", "AX")
		for r := 0; r < rows; r++ {
			for i := 0; i < 4; i++ {
				f(4*r+i, 64*i)
			}
			if r < rows-1 {
				e.p("ADDQ AX, R9")
			}
		}
	}
	for i := 0; i < 4*rows; i++ {
		e.zero(i)
	}
	e.ld("BX", "Cont", "AX")
	e.p("TESTQ AX, AX")
	e.p("JEQ %s_zero", name)
	outputs(func(reg, off int) { e.p("VMOVUPS %d(R9), Z%d", off, reg) })
	e.lab(name + "_zero")
	if stream {
		e.p("DECQ 24(SP)")
		e.p("JGT %s_slice", name)
		e.ld("BX", "Slices", "AX")
		e.p("MOVQ AX, 24(SP)")
	}
	e.ld("BX", "X", "SI")
	if stream {
		e.lab(name + "_slice")
	}
	e.ld("BX", "XStride", "AX")
	e.p("LEAQ (AX)(AX*2), R8")
	e.p("ADDQ SI, R8")
	e.ld("BX", "Groups", "CX")
	turn := func(n int) {
		for k := 0; k < n; k++ {
			l.step(e, k, rows, stream)
		}
		e.p("ADDQ $%d, DI", n*l.group)
		e.p("ADDQ $%d, SI", n*l.x)
		e.p("ADDQ $%d, R8", n*l.x)
	}
	if l.rest {
		e.p("SUBQ $%d, CX", l.unroll)
		e.p("JLT %s_rest", name)
		e.lab(name + "_k")
		turn(l.unroll)
		e.p("SUBQ $%d, CX", l.unroll)
		e.p("JGE %s_k", name)
		e.lab(name + "_rest")
		e.p("ADDQ $%d, CX", l.unroll)
		e.p("JEQ %s_done", name)
		e.lab(name + "_one")
		turn(1)
		e.p("DECQ CX")
		e.p("JNZ %s_one", name)
		e.lab(name + "_done")
	} else {
		e.lab(name + "_k")
		turn(l.unroll)
		e.p("SUBQ $%d, CX", l.unroll)
		e.p("JNZ %s_k", name)
	}
	outputs(func(reg, off int) { e.p("VMOVUPS Z%d, %d(R9)", reg, off) })
	if stream {
		e.p("ADDQ $256, 8(SP)")
		e.ld("BX", "WStep", "AX")
		e.p("MOVQ 0(SP), DI")
		e.p("ADDQ AX, DI")
		e.p("MOVQ DI, 0(SP)")
		e.p("DECQ 16(SP)")
		e.p("JNZ %s_panel", name)
	}
	e.ret()
}

// step is group k of a turn.
func (l *float512) step(e *gen, k, rows int, fetch bool) {
	if fetch {
		for off := 0; off < l.group; off += 64 {
			e.p("PREFETCHT0 %d(DI)(R10*1)", k*l.group+off)
		}
	}
	switch l.label {
	case "BF16": // first elements of the pairs, then second ones: both are float32 after a shift or a mask
		for half := 0; half < 2; half++ {
			for i := 0; i < 4; i++ {
				if half == 0 {
					e.p("VPSLLD $16, %d(DI), Z%d", k*l.group+64*i, 24+i)
				} else {
					e.p("VPANDD %d(DI), Z31, Z%d", k*l.group+64*i, 24+i)
				}
			}
			for r := 0; r < rows; r++ {
				t := 28 + r%3
				e.p("VPBROADCASTD %s, Z%d", xrow(r, k*l.x), t)
				if half == 0 {
					e.p("VPSLLD $16, Z%d, Z%d", t, t)
				} else {
					e.p("VPANDD Z%d, Z31, Z%d", t, t)
				}
				for i := 0; i < 4; i++ {
					e.p("VFMADD231PS Z%d, Z%d, Z%d", t, 24+i, 4*r+i)
				}
			}
		}
		return
	case "F16":
		for i := 0; i < 4; i++ {
			e.p("VCVTPH2PS %d(DI), Z%d", k*l.group+32*i, 24+i)
		}
	default:
		for i := 0; i < 4; i++ {
			e.p("VMOVDQU64 %d(DI), Z%d", k*l.group+64*i, 24+i)
		}
	}
	for r := 0; r < rows; r++ {
		t := 28 + r%3
		e.p("VPBROADCASTD %s, Z%d", xrow(r, k*l.x), t)
		for i := 0; i < 4; i++ {
			if l.label == "BF16dp" {
				e.dpbf16(t, 24+i, 4*r+i)
			} else {
				e.p("VFMADD231PS Z%d, Z%d, Z%d", t, 24+i, 4*r+i)
			}
		}
	}
}

// fold is GoFold with 256-bit registers: every tier with assembly uses it.
func fold(e *gen) {
	e.fn("avxFold", "adds slices and stores outputs (GoFold).")
	e.arg("BX")
	for _, f := range [][2]string{{"W", "SI"}, {"WStep", "AX"}, {"Y", "DI"}, {"Panels", "CX"}, {"Groups", "DX"}, {"B", "R10"}, {"Cont", "R11"}} {
		e.ld("BX", f[0], f[1])
	}
	e.p("LEAQ (AX)(AX*2), R8")
	four := func(base string, off, r int) { // Yr = (s0+s1)+(s2+s3)
		e.p("VMOVUPS %d(%s), Y%d", off, base, r)
		e.p("VADDPS %d(%s)(AX*1), Y%d, Y%d", off, base, r, r)
		e.p("VMOVUPS %d(%s)(AX*2), Y%d", off, base, r+2)
		e.p("VADDPS %d(%s)(R8*1), Y%d, Y%d", off, base, r+2, r+2)
		e.p("VADDPS Y%d, Y%d, Y%d", r+2, r, r)
	}
	for _, n := range []int{2, 4, 8} {
		e.p("CMPQ DX, $%d", n)
		e.p("JEQ avxFold_%d", n)
	}
	for _, n := range []int{1, 2, 4, 8} {
		name := fmt.Sprintf("avxFold_%d", n)
		e.lab(name)
		e.p("MOVQ AX, R12") // bytes of the panel's slice left
		e.lab(name + "_v")
		if n == 8 {
			e.p("LEAQ (SI)(AX*4), R9")
		}
		for off := 0; off < 64; off += 32 {
			r := off / 32
			switch n {
			case 1, 2:
				e.p("VMOVUPS %d(SI), Y%d", off, r)
				if n == 2 {
					e.p("VADDPS %d(SI)(AX*1), Y%d, Y%d", off, r, r)
				}
			default:
				four("SI", off, r)
				if n == 8 {
					four("R9", off, r+4)
					e.p("VADDPS Y%d, Y%d, Y%d", r+4, r, r)
				}
			}
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
