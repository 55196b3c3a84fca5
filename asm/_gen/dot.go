package main

import (
	"fmt"
	"go/format"
	"strings"
)

// Kernels of package dot: matmul. This file has what the tiers share; dot_vnni.go and dot_avx512.go are the 512-bit ones, dot_avx2.go
// the 256-bit ones.

// dotFields are the offsets of dot.Args; a test compares them with the struct.
var dotFields = fields("W", "WStep", "WFar", "X", "XStride", "D", "SD", "B", "Mp", "Y", "YStride", "YFar", "Groups", "Panels", "Cont",
	"Pf", "Acc", "Src", "Dst", "Slices", "Bias", "Add", "Values")

// fields numbers names in steps of eight bytes.
func fields(names ...string) map[string]int {
	m := map[string]int{}
	for i, n := range names {
		m[n] = 8 * i
	}
	return m
}

func init() {
	families["dot"] = append(families["dot"], dotVNNI, dotAVX512)
}

// fnFrame is fn with a stack frame of the given size.
func (e *gen) fnFrame(name, doc string, frame int) {
	fmt.Fprintf(&e.g, "\n// %s %s\n//\n//go:noescape\nfunc %s(a *%s)\n", name, doc, name, e.argTyp)
	fmt.Fprintf(&e.s, "\n// func %s(a *%s)\n// %s\nTEXT ·%s(SB), NOSPLIT, $%d-8\n", name, e.argTyp, doc, name, frame)
}

// table appends Go text to the stubs, formatted.
func (e *gen) table(text string) {
	e.g.WriteString(text)
	b, err := format.Source(e.g.Bytes())
	check(err)
	e.g.Reset()
	e.g.Write(b)
}

// bytesIn fills Zr with byte v, by way of general register AX.
func (e *gen) bytesIn(v uint32, r int) {
	e.p("MOVL $0x%08x, AX", v*0x01010101)
	e.p("VPBROADCASTD AX, Z%d", r)
}

// zero clears Zr.
func (e *gen) zero(r int) { e.p("VPXORD Z%d, Z%d, Z%d", r, r, r) }

// xrow is the address of activation row r at byte off: SI is row 0, R8 row 3, AX the stride.
func xrow(r, off int) string {
	base := "SI"
	if r >= 3 {
		base = "R8"
	}
	return fmt.Sprintf("%d(%s)%s", off, base, []string{"", "(AX*1)", "(AX*2)"}[r%3])
}

// kernelsOf is the Go text of a dot.Kernels: small and gemm are names without their number of rows.
func kernelsOf(gemv, small, gemm string, tile int, unpack string, unpacked int) string {
	list := func(name string, from int) string {
		if name == "" {
			return "nil"
		}
		var t []string
		for r := 0; r <= 6; r++ {
			if r < from {
				t = append(t, "nil")
			} else {
				t = append(t, fmt.Sprintf("%s%d", name, r))
			}
		}
		return "[]func(*Args){" + strings.Join(t, ", ") + "}"
	}
	s := fmt.Sprintf("{Gemv: %s,\n\t\tSmall: %s,\n\t\tGemm: %s, Tile: %d, Sliced: true", gemv, list(small, 2), list(gemm, 1), tile)
	if unpack != "" {
		s += fmt.Sprintf(", Unpack: %s, UnpackedBytes: %d", unpack, unpacked)
	}
	return s + "}"
}
