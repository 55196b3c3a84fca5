//go:build !amd64 || noasm

package dot

// The sets of kernels in assembly; empty here.
var AVX2, AVXVNNI, AVX512, VNNI, AVX512BF16 Set

// Fold is GoFold.
var Fold = GoFold
