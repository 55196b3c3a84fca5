package main

import "fmt"

// scoresDoc heads the kernels of scores in the assembly.
const scoresDoc = `Scores of m queries:

	for each d: for each query i: S[i][:] += K[d][:] * Q[i][d]

It takes nv vectors of keys at a time, R14 the first key of a pass of the loop. AX K, BX from there to Pf, CX elements left, SI R9 R10 queries 0.. 3.. 6.., R8 QStride, R11 S,
DI K at d = 0, R13 arguments; Q8: R12 scales, DX elements left behind the block. Vectors 0.. scores, query by query; behind them keys,
then elements of queries.`

// scores emits the kernels that scoresDoc describes.
type scores struct {
	vec
	t     kvElem
	m, nv int
	name  string
	byKey bool // key by key, m elements of queries and a vector of keys are live beside the scores; else nv vectors and an element
	bc    one  // the first element of queries
}

func newScores(v vec, t kvElem, m int) *scores {
	k := &scores{vec: v, t: t, m: m, nv: 4, name: fmt.Sprintf("scores%sx%d%s", t.name, m, v.suffix())}
	switch {
	case v.wide && m > 6, !v.wide && m == 2:
		k.nv = 2
	case !v.wide && m > 2:
		k.nv = 1
	}
	all, per := v.registers()
	k.byKey = per*(m*k.nv+k.nv)+1 > all
	k.bc = one(per * (m*k.nv + k.nv))
	if k.byKey {
		k.bc = one(per * (m*k.nv + 1))
	}
	return k
}

func (k *scores) acc(g, i int) reg { return reg(g*k.nv + i) }

// key is the vector of keys i.
func (k *scores) key(i int) reg {
	if k.byKey {
		i = 0
	}
	return reg(k.m*k.nv + i)
}

// query is the address of the element of query i.
func (k *scores) query(i int) string { return indexed([]string{"SI", "R9", "R10"}[i/3], "R8", i%3) }

// macro begins a macro of so many queries.
func (k *scores) macro(role string) func() { return k.gen.macro(fmt.Sprintf("%sx%d", role, k.m)) }

func (k *scores) emit() {
	k.describe(scoresDoc)
	k.fn(k.name, fmt.Sprintf("is Scores of %d queries.", k.m))
	k.c("AX K, BX from there to Pf, CX elements left, SI R9 R10 queries 0.. 3.. 6.., R8 QStride, R11 S")
	end := k.gen.macro("BEGINSCORES")
	k.arg("R13")
	k.lds("R13", [2]string{"K", "DI"}, [2]string{"Pf", "BX"}, [2]string{"QStride", "R8"}, [2]string{"S", "R11"})
	k.p("SUBQ DI, BX")
	end()
	switch {
	case k.nv == 4:
		k.pass(0)
	case k.looped():
		k.passes()
	default:
		for j := 0; j < 64; j += 16 * k.nv {
			skip := fmt.Sprintf("%s_skip%d", k.name, j)
			k.p("CMPQ %d(R13), $%d", k.args.at("J1"), j)
			k.p("JLE %s", skip)
			k.p("CMPQ %d(R13), $%d", k.args.at("J0"), j+16*k.nv)
			k.p("JGE %s", skip)
			k.pass(j)
			k.lab(skip)
		}
	}
	k.ret()
}

// looped: there is a loop over passes. It costs 1 % or less, but with 2 or 3 queries up to 7: they stay unrolled.
func (k *scores) looped() bool { return k.nv < 4 && k.m > 3 }

// passes is the loop over passes, but for keys that nobody sees.
func (k *scores) passes() {
	k.p("XORL R14, R14")
	k.lab(k.name + "_pass")
	k.p("CMPQ R14, %d(R13)", k.args.at("J1"))
	k.p("JGE %s_end", k.name)
	k.p("LEAQ %d(R14), AX", 16*k.nv)
	k.p("CMPQ AX, %d(R13)", k.args.at("J0"))
	k.p("JLE %s_skip", k.name)
	k.pass(0)
	k.lab(k.name + "_skip")
	k.p("ADDQ $%d, R11", 64*k.nv)
	k.p("ADDQ $%d, R14", 16*k.nv)
	k.p("CMPQ R14, $64")
	k.p("JLT %s_pass", k.name)
	k.lab(k.name + "_end")
}

// pass makes the scores of nv vectors of keys, from key j on; in a loop, from R14 on.
func (k *scores) pass(j int) {
	k.ld("R13", "Q", "SI")
	if k.m > 3 {
		end := k.gen.macro("QUERYROWS")
		k.p("LEAQ (R8)(R8*2), R9")
		k.p("LEAQ (SI)(R9*2), R10")
		k.p("ADDQ SI, R9")
		end()
	}
	k.ld("R13", "D", "CX")
	if k.looped() {
		k.p("LEAQ (DI)(R14*%d), AX", k.t.bytes)
	} else {
		k.p("LEAQ %d(DI), AX", j*k.t.bytes)
	}
	end := k.macro("ZERO")
	for i := range k.m * k.nv {
		k.zero(reg(i))
	}
	end()
	l := fmt.Sprintf("%s_d%d", k.name, j)
	if k.t == kvQ8 { // runs of 32 elements have a scale per key
		k.ld("R13", "KS", "R12")
		if k.looped() {
			k.p("LEAQ (R12)(R14*4), R12")
		}
		k.p("MOVQ CX, DX")
		k.lab(l + "_block")
		k.p("MOVL $32, CX")
		k.p("CMPQ DX, CX")
		k.p("CMOVQLT DX, CX")
		k.p("SUBQ CX, DX")
	}
	k.p("PCALIGN $32")
	k.lab(l)
	k.element(j)
	k.p("ADDQ $%d, AX", 64*k.t.bytes)
	for i := 0; i < k.m; i += 3 {
		k.p("ADDQ $4, %s", []string{"SI", "R9", "R10"}[i/3])
	}
	k.p("DECQ CX")
	k.p("JNZ %s", l)
	if k.t == kvQ8 {
		k.p("ADDQ $256, R12")
		k.p("TESTQ DX, DX")
		k.p("JNZ %s_block", l)
	}
	end = k.macro("SCORES")
	for g := range k.m {
		for i := range k.nv {
			k.o("VMOVUPS", k.acc(g, i), f32(256*g+4*j+64*i, "R11"))
		}
	}
	end()
}

// element adds the products of one element of the keys and the queries.
func (k *scores) element(j int) {
	load := func(i int) {
		defer k.gen.macro("FETCH" + k.t.name)()
		k.t.prefetch(k.vec, i, j*k.t.bytes)
		k.t.load(k.vec, mem{16 * k.t.bytes * i, "(AX)", 1}, k.key(i))
		if k.t == kvQ8 {
			k.o("VMULPS", f32(4*j+64*i, "R12"), k.key(i), k.key(i))
		}
	}
	if k.byKey {
		end := k.macro("QUERIES")
		for g := range k.m {
			k.p("VBROADCASTSS %s, %s", k.query(g), k.vec.name(k.bc+one(g), 0))
		}
		end()
		for i := range k.nv {
			load(i)
			end := k.macro(fmt.Sprint("KEYS", i))
			for g := range k.m {
				k.o("VFMADD231PS", k.bc+one(g), k.key(i), k.acc(g, i))
			}
			end()
		}
		return
	}
	for i := range k.nv {
		load(i)
	}
	defer k.macro("KEYS")()
	for g := range k.m {
		k.p("VBROADCASTSS %s, %s", k.query(g), k.vec.name(k.bc, 0))
		for i := range k.nv {
			k.o("VFMADD231PS", k.bc, k.key(i), k.acc(g, i))
		}
	}
}
