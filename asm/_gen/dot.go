package main

// Kernels of package dot: matmul. This file has what the tiers share; dot_vnni.go and dot_avx512.go are the 512-bit ones, dot_avx2.go
// the 256-bit ones.

// dotFields are the offsets of dot.Args; a test compares them with the struct.
var dotFields = fields("W", "WStep", "WFar", "X", "XStride", "D", "SD", "B", "Mp", "Y", "YStride", "YFar", "Groups", "Panels", "Cont",
	"Pf", "Acc", "Src", "Dst")

// fields numbers names in steps of eight bytes.
func fields(names ...string) map[string]int {
	m := map[string]int{}
	for i, n := range names {
		m[n] = 8 * i
	}
	return m
}
