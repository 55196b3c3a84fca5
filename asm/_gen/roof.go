package main

import "fmt"

// Kernels of package roof: loops that read memory and loops that only compute, the upper bounds of all others.

func init() { families["roof"] = append(families["roof"], roofs) }

func roofs() {
	e := newGen("roof", "roof", "../roof/roof", "args", fields("P", "Stride", "N"))
	for _, width := range []int{256, 512} {
		for _, streams := range []int{1, 2, 4} {
			roofRead(e, width, streams)
		}
	}
	roofPeak(e, "fma256", 12, func(i int) { e.p("VFMADD231PS Y14, Y15, Y%d", i) })
	roofPeak(e, "maddubs256", 4, func(i int) {
		for k := 0; k < 3; k++ {
			e.p("VPMADDUBSW Y12, Y12, Y%d", 13+k%2)
			e.p("VPMADDWD Y%d, Y12, Y%d", 13+k%2, 13+k%2)
			e.p("VPADDD Y%d, Y%d, Y%d", 13+k%2, 3*i+k, 3*i+k)
		}
	})
	roofPeak(e, "vnni256", 12, func(i int) { e.vnniVex(14, 15, i) })
	roofPeak(e, "fma512", 24, func(i int) { e.p("VFMADD231PS Z30, Z31, Z%d", i) })
	roofPeak(e, "vnni512", 24, func(i int) { e.p("VPDPBUSD Z30, Z31, Z%d", i) })
	roofPeak(e, "bf16dp512", 24, func(i int) { e.dpbf16(30, 31, i) })
	e.write()
}

// roofRead emits a loop that reads 256 bytes of each of several streams in turn.
func roofRead(e *gen, width, streams int) {
	name := fmt.Sprintf("read%dx%d", width, streams)
	e.fn(name, fmt.Sprintf("reads %d streams of N bytes, Stride apart, with %d-bit loads; N is a multiple of 256.", streams, width))
	ptrs := []string{"SI", "DI", "R8", "R9"}
	e.arg("BX")
	e.ld("BX", "P", "SI")
	e.ld("BX", "Stride", "DX")
	e.ld("BX", "N", "CX")
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

// roofPeak emits a loop of independent instructions on registers that hold zeros.
func roofPeak(e *gen, name string, n int, body func(i int)) {
	e.fn(name, "repeats its instructions N times.")
	e.arg("BX")
	e.ld("BX", "N", "CX")
	for i := 0; i < 16; i++ {
		e.p("VPXOR X%d, X%d, X%d", i, i, i)
	}
	if name[len(name)-3:] == "512" {
		for i := 16; i < 32; i++ {
			e.zero(i)
		}
	}
	e.lab(name + "_l")
	for i := 0; i < n; i++ {
		body(i)
	}
	e.p("DECQ CX")
	e.p("JNZ %s_l", name)
	e.ret()
}
