//go:build !amd64 || noasm

package dot

// The sets of kernels with 256-bit registers; empty here.
var AVX2, AVXVNNI Set
