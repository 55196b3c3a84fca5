package main

import (
	"fmt"
	"math"
)

// vec emits code for vectors of sixteen float32 lanes: one Z register, or two Y registers that hold the halves. So both widths come
// from one text and cannot differ in the order of their arithmetic.
type vec struct {
	*gen
	wide bool
}

// reg is a vector of sixteen lanes: Zi, or Y2i and Y2i+1. one is a single register, Zi or Yi, used by both halves. mem is a
// vector in memory: half bytes apart are its halves (32 for float32, 16 for 16-bit elements, 8 for bytes, 0 for constants).
type (
	reg int
	one int
	mem struct {
		off  int
		base string // "(DI)", "(AX)(BX*1)"
		half int
	}
)

func f32(off int, base string) mem { return mem{off, "(" + base + ")", 32} }

// newVec starts a pair of files whose name ends in the tier.
func newVec(family, prefix, argType string, wide bool) vec {
	v := vec{wide: wide}
	v.gen = newGen(family, prefix+v.tier(), argType)
	return v
}

// letters of a tier's file and function names.
func (v vec) tier() string {
	if v.wide {
		return "avx512"
	}
	return "avx2"
}

func (v vec) suffix() string {
	if v.wide {
		return "AVX512"
	}
	return "AVX2"
}

// name writes operand a for half h.
func (v vec) name(a any, h int) string {
	switch a := a.(type) {
	case reg:
		if v.wide {
			return fmt.Sprintf("Z%d", int(a))
		}
		return v.ymm(2*int(a) + h)
	case one:
		if v.wide {
			return fmt.Sprintf("Z%d", int(a))
		}
		return v.ymm(int(a))
	case mem:
		if a.half == 0 {
			return a.base
		}
		return fmt.Sprintf("%d%s", a.off+h*a.half, a.base)
	}
	return a.(string)
}

// ymm names a 256-bit register; those from 16 on are AVX-512's, and the assembler would take them without a word.
func (v vec) ymm(n int) string {
	if n > 15 {
		panic(fmt.Sprintf("Y%d in 256-bit code", n))
	}
	return fmt.Sprintf("Y%d", n)
}

// o emits one instruction on all lanes, operands in the assembler's order.
func (v vec) o(ins string, args ...any) {
	halves := 2
	if v.wide {
		halves = 1
	}
	for h := range halves {
		s := ins
		for i, a := range args {
			s += [...]string{", ", " "}[b2i(i == 0)] + v.name(a, h)
		}
		v.p("%s", s)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (v vec) zero(r reg) {
	if v.wide {
		v.o("VPXORD", r, r, r)
	} else {
		v.o("VXORPS", r, r, r)
	}
}

// and and or are bitwise on float32 lanes.
func (v vec) and(a any, b, dst reg) { v.bits("VPAND", a, b, dst) }
func (v vec) or(a any, b, dst reg)  { v.bits("VPOR", a, b, dst) }
func (v vec) bits(ins string, a any, b, dst reg) {
	if v.wide {
		ins += "D"
	}
	v.o(ins, a, b, dst)
}

// rows64 writes 64-byte rows, each one 32-bit word sixteen times, so that both widths can use them as operands from memory.
func (e *gen) rows64(name string, words ...uint32) {
	for i, w := range words {
		for j := range 8 {
			e.datum(name, 64*i+8*j, 8, fmt.Sprintf("0x%08x%08x", w, w))
		}
	}
	e.global(name, 64*len(words))
}

// list writes 32-bit words.
func (e *gen) list(name string, words ...uint32) {
	for i, w := range words {
		e.datum(name, 4*i, 4, fmt.Sprint(w))
	}
	e.global(name, 4*len(words))
}

// row is row i of what rows64 wrote.
func row(name string, i int) mem { return mem{0, fmt.Sprintf("%s<>+%d(SB)", name, 64*i), 0} }

func words(x []float32) (w []uint32) {
	for _, v := range x {
		w = append(w, math.Float32bits(v))
	}
	return w
}
