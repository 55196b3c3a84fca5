//go:build !noasm

package dot

// Fold is GoFold in assembly; it needs AVX.
var Fold = avxFold
