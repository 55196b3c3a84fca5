package main

import "fmt"

// tileDoc512 heads the kernels of tile512 in the assembly.
const tileDoc512 = `A micro-kernel over unpacked panels: a tile of 2 panels x rows, a broadcast activation serves two weight vectors.

	for each of Slices slices:
		acc = 0, or of the first Y
		for each group: for each sum j: s = sum over its K of w*x; acc (superblocks: sub) takes s times its scale
		add acc to the tree
	Y = tree, + Bias, + Y if Add

Registers: Z0..Z11 integer sums (two per row), Z12..Z23 float accumulators or sums over a superblock, Z24, Z25 weights, Z26, Z27
activations, Z28..Z31 scales. DI weights, R11 distance to the second panel; SI, R8, AX activations; DX D; R9 B or SD; R10 Mp; CX
groups left; BX scales; R12 turns; R13 Acc; R14 activations to prefetch; 0(SP) slices left, 8(SP) slices done, 16(SP) pairs2. At Acc
float accumulators, behind them the tree's pending sums of 1, 2 and 4 slices, 768 bytes each.`

// tile512 emits the kernels that tileDoc512 describes.
type tile512 struct {
	e *gen
	scaling
	rows int
	name string
}

// tileAcc is the register of the first float accumulator; tilePairs the place of pairs2.
const (
	tileAcc   = 12
	tilePairs = 16
)

func (k *tile512) emit() {
	k.name = fmt.Sprintf("vnniGemm%sx%d", gemms512[k.scaling], k.rows)
	doc, frame := "two unpacked panels of a K-quant", 16
	switch {
	case !k.super():
		doc = "two panels of one byte per weight, scales (M: and minima) per 32 K"
	case k.scaling == perSubNibbles:
		doc, frame = "two unpacked panels of Q2_K", tilePairs+8*32
	}
	k.e.describe(tileDoc512)
	k.e.fnFrame(k.name, fmt.Sprintf("multiplies %d activation rows with %s.", k.rows, doc), frame)
	if k.scaling == perSubNibbles {
		rowsMask(k.e, k.rows)
	}
	k.begin()
	switch {
	case !k.super():
		k.blocks()
	case k.scaling == perSubNibbles:
		k.superTwos()
	default:
		k.superblock()
	}
	k.end()
}

// spills: the float accumulators are in the scratch, for the registers hold sums over a superblock.
func (k *tile512) spills() bool { return k.super() && k.scaling != perSubNibbles }

// macro begins a macro of so many rows.
func (k *tile512) macro(role string) func() { return k.e.macro(fmt.Sprintf("%s%d", role, k.rows)) }

// both calls f for each accumulator: of row r, panel p, its number.
func (k *tile512) both(role string, f func(r, p, i int)) {
	defer k.macro(role)()
	for r := range k.rows {
		for p := range 2 {
			f(r, p, 2*r+p)
		}
	}
}

// zeros clears the registers of all rows and panels from first on.
func (k *tile512) zeros(first int) { k.both("ZERO", func(_, _, i int) { k.e.zero(first + i) }) }

// begin loads the arguments and starts the accumulators: Z12.. or the scratch.
func (k *tile512) begin() {
	e, sums := k.e, "B"
	if k.scaling == perBlockMin {
		sums = "SD"
	}
	e.arg("BX")
	e.ld("BX", "Slices", "SI")
	e.p("MOVQ SI, 0(SP)")
	e.p("MOVQ $0, 8(SP)")
	begin := e.macro("SETUP")
	e.lds("BX", [2]string{"W", "DI"}, [2]string{"WFar", "R11"}, [2]string{"X", "SI"}, [2]string{"XStride", "AX"}, [2]string{"D", "DX"},
		[2]string{sums, "R9"}, [2]string{"Mp", "R10"}, [2]string{"Src", "R14"})
	e.p("LEAQ (AX)(AX*2), R8")
	e.p("ADDQ SI, R8")
	begin()
	k.zeros(tileAcc)
	e.ld("BX", "Cont", "CX")
	e.p("TESTQ CX, CX")
	e.p("JEQ %s_fetch", k.name)
	k.outputs("LOAD", func(reg int, addr string) { e.p("VMOVUPS %s, Z%d", addr, reg) })
	e.lab(k.name + "_fetch")
	// While the tile is computed: with a residual to be added, 59 % of the peak became 68 (K = N = 2048 in the engine).
	k.outputs("FETCH", func(_ int, addr string) { e.p("PREFETCHT0 %s", addr) })
	e.lab(k.name + "_slice")
	if k.spills() {
		e.ld("BX", "Acc", "R13")
		k.store()
	}
	e.ld("BX", "Groups", "CX")
	e.lab(k.name + "_group")
}

// store writes the accumulators to the scratch at R13.
func (k *tile512) store() {
	k.both("SPILL", func(_, _, i int) { k.e.p("VMOVUPS Z%d, %d(R13)", tileAcc+i, 64*i) })
}

// end adds a slice to the tree and goes on with the next one, which follows in W, X, D and B; after the last it stores the
// outputs. A slice meets the pending sums as a binary number's carry meets its ones, so the tree is that of GoFold. Slices stored
// one by one and added by a call for each row cost 400 to 600 cycles for six rows, 9 % of the time at K = 2048.
func (k *tile512) end() {
	e := k.e
	e.p("DECQ CX")
	e.p("JNZ %s_group", k.name)
	e.arg("BX")
	if k.spills() {
		k.both("FILL", func(_, _, i int) { e.p("VMOVUPS %d(R13), Z%d", 64*i, tileAcc+i) })
	} else {
		e.ld("BX", "Acc", "R13")
	}
	e.p("MOVQ 8(SP), R12")
	e.lab(k.name + "_tree")
	e.p("ADDQ $768, R13")
	e.p("TESTQ $1, R12")
	e.p("JEQ %s_leaf", k.name)
	k.both("TREE", func(_, _, i int) { e.p("VADDPS %d(R13), Z%d, Z%d", 64*i, tileAcc+i, tileAcc+i) })
	e.p("SHRQ $1, R12")
	e.p("JMP %s_tree", k.name)
	e.lab(k.name + "_leaf")
	e.p("INCQ 8(SP)")
	e.p("DECQ 0(SP)")
	e.p("JLE %s_out", k.name)
	k.both("PEND", func(_, _, i int) {
		e.p("VMOVUPS Z%d, %d(R13)", tileAcc+i, 64*i)
		e.zero(tileAcc + i)
	})
	e.p("JMP %s_slice", k.name)
	e.lab(k.name + "_out")
	e.ld("BX", "Bias", "CX")
	e.p("TESTQ CX, CX")
	e.p("JEQ %s_add", k.name)
	e.ld("BX", "YFar", "R13")
	k.both("BIAS", func(_, p, i int) { e.p("VADDPS %s, Z%d, Z%d", indexed("CX", "R13", p), tileAcc+i, tileAcc+i) })
	e.lab(k.name + "_add")
	e.ld("BX", "Add", "CX")
	e.p("TESTQ CX, CX")
	e.p("JEQ %s_store", k.name)
	k.outputs("RESIDUAL", func(reg int, addr string) { e.p("VADDPS %s, Z%d, Z%d", addr, reg, reg) })
	e.lab(k.name + "_store")
	k.outputs("STORE", func(reg int, addr string) { e.p("VMOVUPS Z%d, %s", reg, addr) })
	e.ret()
}

// outputs calls f for each accumulator and the address of its outputs; BX holds the arguments.
func (k *tile512) outputs(role string, f func(reg int, addr string)) {
	defer k.macro(role)()
	e := k.e
	e.lds("BX", [2]string{"Y", "R12"}, [2]string{"YStride", "CX"}, [2]string{"YFar", "R13"})
	k.both("MOVE", func(_, p, i int) {
		f(tileAcc+i, indexed("R12", "R13", p))
		if p == 1 {
			e.p("ADDQ CX, R12")
		}
	})
}

// fetch prefetches for the next tile of rows: with x the activations that 32 K of it take, in the order of memory, and the scales
// or sums of the current blocks, by register the bytes that a row has there. Without it the engine's prefill, whose buffers lie in
// huge pages, had 62 % of the peak instead of 69; benchmarks on small pages showed no difference.
func (k *tile512) fetch(x bool, blocks map[string]int) {
	defer k.e.macro("AHEAD")()
	e := k.e
	if x {
		n := (k.rows + 1) / 2
		for i := range n {
			e.p("PREFETCHT0 %d(R14)", 64*i)
		}
		e.p("ADDQ $%d, R14", 64*n)
	}
	for _, reg := range []string{"DX", "R9"} {
		for b := blocks[reg] * k.rows; b > 0; b -= 64 {
			e.p("PREFETCHT0 %d(%s)", blocks[reg]*k.rows+b-4, reg)
		}
	}
}

// offsets starts the integer sums: at zero, or where weights have an offset at its product with the sum of activations.
func (k *tile512) offsets() {
	defer k.macro("OFFSETS")()
	e := k.e
	for r := range k.rows {
		switch k.scaling {
		case perBlock, perBlockBrain, perSub, perSubMini:
			e.p("VPBROADCASTD %d(R9), Z%d", 4*r, 2*r)
		case perSubFloat: // the offset is 128 instead of 32
			e.p("VPSLLD.BCST $2, %d(R9), Z%d", 4*r, 2*r)
		default:
			e.zero(2 * r)
			e.zero(2*r + 1)
			continue
		}
		e.p("VMOVDQA64 Z%d, Z%d", 2*r, 2*r+1)
	}
}

// dots adds n vectors at weight byte w, times activations at byte x, to the integer sums.
func (k *tile512) dots(n, w, x int) {
	e := k.e
	for i := range n {
		end := k.macro("DOTS")
		e.p("VMOVDQU64 %d(DI), Z24", w+64*i)
		e.p("VMOVDQU64 %d(DI)(R11*1), Z25", w+64*i)
		for r := range k.rows {
			t := 26 + r%2
			e.p("VPBROADCASTD %s, Z%d", xrow(r, x+4*i), t)
			for p := range 2 {
				e.p("VPDPBUSD Z%d, Z%d, Z%d", t, 24+p, 2*r+p)
			}
		}
		end()
	}
}

// load2 loads what lies at byte off(base) of both panels to Zr, Zr+1.
func (k *tile512) load2(ins string, off int, base string, r int) {
	for p := range 2 {
		k.e.p("%s %s, Z%d", ins, strided(off, base, "R11", p), r+p)
	}
}

// blocks is a group of two blocks of 32: acc = fma(float(isum), d*dx, acc); acc = fma(m, sx, acc).
func (k *tile512) blocks() {
	e, l := k.e, layout{coding: whole, scaling: k.scaling}
	minima := k.scaling == perBlockMin
	e.p("LEAQ %d(DI), BX", l.scales())
	e.p("MOVL $2, R12")
	e.lab(k.name + "_sub")
	k.offsets()
	k.fetch(true, map[string]int{"DX": 4, "R9": 4})
	k.dots(8, 0, 0)
	end := k.macro("SCALE")
	for p := range 2 {
		e.scale512(k.scaling, strided(0, "BX", "R11", p), 28+p)
	}
	if minima {
		k.load2("VCVTPH2PS", l.minima()-l.scales(), "BX", 24)
	}
	for r := range k.rows {
		t := 26 + r%2
		// One load for both panels, here and of the offsets, instead of embedded broadcasts: four loads fewer per row and group.
		e.p("VBROADCASTSS %d(DX), Z%d", 4*r, t)
		e.p("VMULPS Z%d, Z28, Z30", t)
		e.p("VMULPS Z%d, Z29, Z31", t)
		if minima {
			e.p("VBROADCASTSS %d(R9), Z%d", 4*r, t)
		}
		for p := range 2 {
			i := 2*r + p
			e.p("VCVTDQ2PS Z%d, Z%d", i, i)
			e.p("VFMADD231PS Z%d, Z%d, Z%d", 30+p, i, tileAcc+i)
			if minima {
				e.p("VFMADD231PS Z%d, Z%d, Z%d", t, 24+p, tileAcc+i)
			}
		}
	}
	end()
	e.p("ADDQ R10, DX")
	e.p("ADDQ R10, R9")
	e.p("ADDQ $32, BX")
	k.next(32)
	e.p("ADDQ $%d, DI", l.bytes()-1024)
}

// next ends a turn of the loop over a group, which takes n K.
func (k *tile512) next(n int) {
	e := k.e
	e.p("ADDQ $%d, DI", 16*n)
	e.p("ADDQ $%d, SI", n)
	e.p("ADDQ $%d, R8", n)
	e.p("DECQ R12")
	e.p("JNZ %s_sub", k.name)
}

// superblock is a group of Q4_K (and Q5_K), Q6_K, Code4, NVFP4: 64 vectors of bytes, then 320 bytes of scales.
func (k *tile512) superblock() {
	e := k.e
	minima := k.scaling == perSubMin
	e.p("LEAQ 4096(DI), BX")
	k.zeros(tileAcc)
	e.p("MOVL $%d, R12", k.subs())
	e.lab(k.name + "_sub")
	if minima {
		k.offsets()
		k.fetch(true, nil)
		k.dots(8, 0, 0)
		k.scaleSub()
	} else {
		k.offsets()
		e.p("TESTL $1, R12") // activations of 32 K in every other turn
		e.p("JNE %s_odd", k.name)
		k.fetch(true, nil)
		e.lab(k.name + "_odd")
		k.fetch(false, map[string]int{"R9": 4})
		k.dots(4, 0, 0)
		k.scaleSub()
		e.p("ADDQ R10, R9")
	}
	e.p("ADDQ $16, BX")
	k.next(k.sub())
	// DI is now at the scales.
	if minima {
		k.zeros(0)
		k.fetch(false, map[string]int{"R9": 16})
		for t := range 4 {
			k.addMinima(128+32*t, func(r int) string { return at("R9", 16*r+4*t) })
		}
		e.p("LEAQ (R9)(R10*4), R9")
	}
	d := "VCVTPH2PS"
	if k.scaling == perSubFloat || k.scaling == perSubMini {
		d = "VMOVUPS"
	}
	for p := range 2 {
		e.p("%s %s, Z%d", d, strided(256, "DI", "R11", p), 24+p)
		if minima {
			e.p("VCVTPH2PS %s, Z%d", strided(288, "DI", "R11", p), 26+p)
		}
	}
	k.both("SCALEALL", func(r, p, i int) {
		e.p("VMOVUPS %d(R13), Z30", 64*i)
		e.p("VMULPS.BCST %d(DX), Z%d, Z28", 4*r, 24+p)
		e.p("VFMADD231PS Z28, Z%d, Z30", tileAcc+i)
		if minima {
			e.p("VMULPS.BCST %d(DX), Z%d, Z29", 4*r, 26+p)
			e.p("VCVTDQ2PS Z%d, Z%d", i, i)
			e.p("VFNMADD231PS Z29, Z%d, Z30", i)
		}
		e.p("VMOVUPS Z30, %d(R13)", 64*i)
	})
	k.endSuper()
}

// endSuper goes to the next superblock.
func (k *tile512) endSuper() {
	k.fetch(false, map[string]int{"DX": 4})
	k.e.p("ADDQ R10, DX")
	k.e.p("ADDQ $320, DI")
}

// scaleSub adds the integer sums of a sub-block, times its scales at BX, to the sums over the superblock. In float: VCVTDQ2PS and
// VFMADD231PS cost no more than VPMULLD and VPADDD.
func (k *tile512) scaleSub() {
	defer k.macro("SCALE")()
	e := k.e
	for p := range 2 {
		e.scaleSub512(k.scaling, strided(0, "BX", "R11", p), 28+p)
	}
	k.both("SUMS", func(_, p, i int) {
		e.p("VCVTDQ2PS Z%d, Z%d", i, i)
		e.p("VFMADD231PS Z%d, Z%d, Z%d", 28+p, i, tileAcc+i)
	})
}

// addMinima adds the pairs of minima at byte off, times the pairs of sums of a row at an address, to the integer sums.
func (k *tile512) addMinima(off int, sums func(r int) string) {
	defer k.macro("MINIMA")()
	e := k.e
	k.load2("VPMOVZXBW", off, "DI", 24)
	for r := range k.rows {
		t := 26 + r%2
		e.p("VPBROADCASTD %s, Z%d", sums(r), t)
		for p := range 2 {
			e.p("VPDPWSSD Z%d, Z%d, Z%d", t, 24+p, 2*r+p)
		}
	}
}

// superTwos is a group of Q2_K: 64 vectors of bytes, weights times the scales of their sub-blocks (at most 45), so that one integer sum
// runs through a superblock; 8 x 16 x 2 bytes of minima; d, dmin.
func (k *tile512) superTwos() {
	e := k.e
	pairs2(e, tilePairs, func(addr string) { e.p("PREFETCHT0 %d%s", 8*k.rows-4, addr) }) // those of the next tile
	k.zeros(0)
	e.p("MOVL $8, R12")
	e.lab(k.name + "_sub")
	k.fetch(true, nil)
	k.dots(8, 0, 0)
	k.next(32)
	// DI is now at the scales.
	k.scaleTwos(256, false)
	k.zeros(0)
	for t := range 8 {
		k.addMinima(32*t, func(r int) string { return at("SP", tilePairs+32*t+4*r) })
	}
	e.p("MOVL $0x3d000000, R12") // 1/32
	e.p("VPBROADCASTD R12, Z24")
	k.scaleTwos(288, true)
	k.endSuper()
}

// scaleTwos adds integer sums times the scale at byte off; those of minima are a 32nd, and so is their scale by Z24.
func (k *tile512) scaleTwos(off int, minima bool) {
	defer k.macro("SCALE")()
	e := k.e
	k.load2("VCVTPH2PS", off, "DI", 28)
	for r := range k.rows {
		t := 26 + r%2
		e.p("VBROADCASTSS %d(DX), Z%d", 4*r, t)
		for p := range 2 {
			i := 2*r + p
			e.p("VMULPS Z%d, Z%d, Z%d", t, 28+p, 30+p)
			if minima {
				e.p("VMULPS Z24, Z%d, Z%d", 30+p, 30+p)
				e.p("VPSLLD $5, Z%d, Z%d", i, i)
			}
			e.p("VCVTDQ2PS Z%d, Z%d", i, i)
			e.p("VFMADD231PS Z%d, Z%d, Z%d", 30+p, i, tileAcc+i)
		}
	}
}
