package main

import (
	"fmt"
	"strings"
)

// Kernels of package roof: loops that read memory and loops that only compute, the upper bounds of all others.

// roofPeaks are the arithmetic loops: n independent instructions (or groups of them) of ops operations each, on registers that hold
// zeros. Needs are features of /proc/cpuinfo.
var roofPeaks = []struct {
	name, label, needs string
	n, ops             int
	body               func(e *gen, i int)
}{
	{"fma256", "vfmadd231ps ymm", `"avx2", "fma"`, 12, 8 * 2, func(e *gen, i int) { e.p("VFMADD231PS Y14, Y15, Y%d", i) }},
	{"maddubs256", "vpmaddubsw+vpmaddwd+vpaddd ymm", `"avx2"`, 12, 32 * 2, func(e *gen, i int) {
		t := 13 + i%3%2
		e.p("VPMADDUBSW Y12, Y12, Y%d", t)
		e.p("VPMADDWD Y%d, Y12, Y%d", t, t)
		e.p("VPADDD Y%d, Y%d, Y%d", t, i, i)
	}},
	{"vnni256", "vpdpbusd ymm", `"avx_vnni"`, 12, 32 * 2, func(e *gen, i int) { e.vnniVex(14, 15, i) }},
	{"fma512", "vfmadd231ps zmm", `"avx512f"`, 24, 16 * 2, func(e *gen, i int) { e.p("VFMADD231PS Z30, Z31, Z%d", i) }},
	{"vnni512", "vpdpbusd zmm", `"avx512_vnni"`, 24, 64 * 2, func(e *gen, i int) { e.p("VPDPBUSD Z30, Z31, Z%d", i) }},
	{"bf16dp512", "vdpbf16ps zmm", `"avx512_bf16"`, 24, 32 * 2, func(e *gen, i int) { e.dpbf16(30, 31, i) }},
}

// roofs writes the loops and their lists.
func roofs() *gen {
	e := newGen("roof", "roof", "args")
	reads, peaks := "", ""
	for _, width := range []int{256, 512} {
		for _, streams := range []int{1, 2, 4} {
			name := fmt.Sprintf("%dx%d", width, streams)
			roofRead(e, "read"+name, width, streams)
			reads += fmt.Sprintf("{%q, %d, Needs{%q}, read%s},\n", name, streams, map[int]string{256: "avx2", 512: "avx512f"}[width], name)
		}
	}
	for _, k := range roofPeaks {
		roofPeak(e, k.name, func() {
			for i := range k.n {
				k.body(e, i)
			}
		})
		peaks += fmt.Sprintf("{%q, %d, Needs{%s}, %s},\n", k.label, k.n*k.ops, k.needs, k.name)
	}
	e.code("\n// Reads lists the read loops, Peaks the arithmetic ones; the first of each runs on every machine.\nvar (")
	e.code("Reads = []Read{\nreadGo,\n%s}\nPeaks = []Peak{\npeakGo,\n%s}\n)", reads, peaks)
	return e
}

// roofRead emits a loop that reads 256 bytes of each of several streams in turn.
func roofRead(e *gen, name string, width, streams int) {
	e.fn(name, fmt.Sprintf("reads %d streams of N bytes, Stride apart, with %d-bit loads; N is a multiple of 256.", streams, width))
	ptrs := []string{"SI", "DI", "R8", "R9"}
	e.arg("BX")
	e.lds("BX", [2]string{"P", "SI"}, [2]string{"Stride", "DX"}, [2]string{"N", "CX"})
	for i := 1; i < streams; i++ {
		e.p("LEAQ (%s)(DX*1), %s", ptrs[i-1], ptrs[i])
	}
	e.p("SHRQ $8, CX")
	e.lab(name + "_l")
	for i := 0; i < streams; i++ {
		for k := 0; k < 256; k += width / 8 {
			r := (4*i + k*8/width) % 16
			if width == 512 {
				e.p("VPORD %d(%s), Z%d, Z%d", k, ptrs[i], r, r)
			} else {
				e.p("VPOR %d(%s), Y%d, Y%d", k, ptrs[i], r, r)
			}
		}
		e.p("ADDQ $256, %s", ptrs[i])
	}
	e.p("DECQ CX")
	e.p("JNZ %s_l", name)
	e.ret()
}

// roofPeak emits a loop around instructions on registers that hold zeros.
func roofPeak(e *gen, name string, body func()) {
	e.fn(name, "repeats its instructions N times.")
	e.arg("BX")
	e.ld("BX", "N", "CX")
	for i := 0; i < 16; i++ {
		e.p("VPXOR X%d, X%d, X%d", i, i, i)
	}
	if strings.HasSuffix(name, "512") {
		for i := 16; i < 32; i++ {
			e.zero(i)
		}
	}
	e.lab(name + "_l")
	body()
	e.p("DECQ CX")
	e.p("JNZ %s_l", name)
	e.ret()
}
