//go:build !noasm

package dot

// The sets of kernels with 256-bit registers: AVX2 needs AVX2, FMA and F16C; AVXVNNI also the VEX form of VNNI.
var AVX2, AVXVNNI Set
