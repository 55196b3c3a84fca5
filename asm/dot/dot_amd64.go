//go:build !noasm

package dot

// The sets of kernels with 512-bit registers: AVX512 needs AVX-512 F, BW, DQ, VL; VNNI also AVX-512 VNNI; AVX512BF16 also
// AVX-512 BF16 (BF16 alone).
var AVX512, VNNI, AVX512BF16 Set
