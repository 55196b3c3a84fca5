package main

import "fmt"

// pvDoc heads the kernels of pv in the assembly.
const pvDoc = `PV of m queries:

	O[i][:] *= alpha; for each key j in [J0, J1): for each query i: O[i][:] += S[i][j] * V[j][:]

It goes through V in runs of 8, 4, 2 or 1 vectors, as many as leave room for the accumulators. DI V at J0, R8 VStride, BX from V to
Pf, SI keys, R11 weights at J0, R9 outputs, R10 OStride, DX vectors left; AX V, R12 weights, CX keys left; Q8: R14 scales, R13 VSStride.
Vectors 0.. accumulators, query by query; behind them a single register for alpha, then V and weights.`

// pv emits the kernels that pvDoc describes.
type pv struct {
	vec
	t    kvElem
	m    int
	name string
}

func newPV(v vec, t kvElem, m int) *pv {
	return &pv{v, t, m, fmt.Sprintf("pv%sx%d%s", t.name, m, v.suffix())}
}

// byVector: the registers hold m*n accumulators and, vector by vector, m weights, a vector and a scale of Q8. fits: or, weight by weight,
// n vectors and a weight.
func (k *pv) byVector(n int) bool {
	all, per := k.registers()
	return per*k.m*n+k.m+per+1 <= all
}

func (k *pv) fits(n int) bool {
	all, per := k.registers()
	return k.byVector(n) || per*(k.m*n+n)+1 <= all
}

// macro begins a macro of so many queries.
func (k *pv) macro(role string) func() { return k.gen.macro(fmt.Sprintf("%sx%d", role, k.m)) }

func (k *pv) emit() {
	k.describe(pvDoc)
	k.fn(k.name, fmt.Sprintf("is PV of %d queries.", k.m))
	k.c("DI V at J0, R8 VStride, BX from V to Pf, SI keys, R11 weights at J0, R9 outputs, R10 OStride, DX vectors left; AX V, CX keys left")
	end := k.gen.macro("BEGINPV")
	k.arg("R13")
	k.lds("R13", [2]string{"V", "DI"}, [2]string{"VStride", "R8"}, [2]string{"J0", "AX"}, [2]string{"J1", "SI"}, [2]string{"Pf", "BX"},
		[2]string{"S", "R11"}, [2]string{"O", "R9"}, [2]string{"OStride", "R10"}, [2]string{"NV", "DX"})
	k.p("SUBQ DI, BX")
	k.p("SUBQ AX, SI")
	k.p("LEAQ (R11)(AX*4), R11")
	k.p("IMULQ R8, AX")
	k.p("ADDQ AX, DI")
	end()
	for n := 8; n > 0; n /= 2 {
		if k.fits(n) {
			k.run(n)
		}
	}
	k.ret()
}

// outputs calls f for each accumulator of a run of n with the address of its output, and next between the queries.
func (k *pv) outputs(role string, n int, query func(), f func(acc reg, addr mem), next func()) {
	defer k.macro(fmt.Sprint(role, n))()
	for g := range k.m {
		query()
		for i := range n {
			f(reg(g*n+i), f32(stOut+64*i, "R12"))
		}
		if g < k.m-1 {
			next()
		}
	}
}

// run goes through runs of n vectors of V while there are that many left.
func (k *pv) run(n int) {
	l := fmt.Sprintf("%s_%d", k.name, n)
	k.lab(l)
	k.p("CMPQ DX, $%d", n)
	k.p("JLT %s_less", l)
	_, per := k.registers()
	alpha := one(per * k.m * n) // the first single register that is free
	end := k.gen.macro("BEGINRUN")
	k.p("MOVQ R9, R12")
	k.arg("R13")
	k.ld("R13", "O", "AX") // alphas
	end()
	k.outputs("ALPHA", n, func() { k.p("VBROADCASTSS %d(AX), %s", stAlpha, k.vec.name(alpha, 0)) },
		func(acc reg, addr mem) { k.o("VMULPS", addr, alpha, acc) },
		func() { k.p("ADDQ R10, R12"); k.p("ADDQ R10, AX") })
	if k.t == kvQ8 {
		k.scales()
	}
	end = k.gen.macro("BEGINKEYS")
	k.p("MOVQ DI, AX")
	k.p("MOVQ R11, R12")
	k.p("MOVQ SI, CX")
	k.p("PCALIGN $32")
	end()
	k.lab(l + "_j")
	k.key(n, alpha+one(per))
	end = k.gen.macro("NEXTKEY")
	if k.t == kvQ8 {
		k.p("ADDQ R13, R14")
	}
	k.p("ADDQ R8, AX")
	k.p("ADDQ $4, R12")
	k.p("DECQ CX")
	end()
	k.p("JNZ %s_j", l)
	k.p("MOVQ R9, R12")
	k.outputs("STORE", n, func() {}, func(acc reg, addr mem) { k.o("VMOVUPS", acc, addr) }, func() { k.p("ADDQ R10, R12") })
	end = k.gen.macro(fmt.Sprintf("NEXTRUN%sx%d", k.t.name, n))
	k.p("ADDQ $%d, DI", n*16*k.t.bytes)
	k.p("ADDQ $%d, R9", n*64)
	k.p("SUBQ $%d, DX", n)
	end()
	k.p("JMP %s", l)
	k.lab(l + "_less")
}

// scales points R14 to the scales of the run's first blocks; R13 becomes VSStride.
func (k *pv) scales() {
	defer k.gen.macro("SCALES")()
	k.ld("R13", "NV", "AX")
	k.p("SUBQ DX, AX")
	k.p("SHRQ $1, AX")
	k.p("SHLQ $2, AX")
	k.ld("R13", "VS", "R14")
	k.p("ADDQ AX, R14")
	k.ld("R13", "J0", "AX")
	k.ld("R13", "VSStride", "R13")
	k.p("IMULQ R13, AX")
	k.p("ADDQ AX, R14")
}

// key adds the products of one key's values and its weights; free is the first single register behind the first vector that is free.
func (k *pv) key(n int, free one) {
	_, per := k.registers()
	fetch := func(i int, r reg, scale one) {
		defer k.gen.macro("FETCH" + k.t.name)()
		k.t.prefetch(k.vec, i, 0)
		k.t.load(k.vec, mem{16 * k.t.bytes * i, "(AX)", 1}, r)
		if k.t == kvQ8 {
			k.p("VBROADCASTSS %d(R14), %s", 4*(i/2), k.vec.name(scale, 0))
			k.o("VMULPS", scale, r, r)
		}
	}
	weight := func(g int, r one) { k.p("VBROADCASTSS %d(R12), %s", 256*g, k.vec.name(r, 0)) }
	if k.byVector(n) {
		x := reg(k.m * n)
		end := k.macro("WEIGHTS")
		for g := range k.m {
			weight(g, free+one(g))
		}
		end()
		for i := range n {
			fetch(i, x, free+one(k.m))
			end := k.macro(fmt.Sprintf("VALUES%dof%d", i, n))
			for g := range k.m {
				k.o("VFMADD231PS", free+one(g), x, reg(g*n+i))
			}
			end()
		}
		return
	}
	w := free + one(per*(n-1))
	for i := range n {
		fetch(i, reg(k.m*n+i), w)
	}
	defer k.macro(fmt.Sprint("VALUES", n))()
	for g := range k.m {
		weight(g, w)
		for i := range n {
			k.o("VFMADD231PS", w, reg(k.m*n+i), reg(g*n+i))
		}
	}
}
