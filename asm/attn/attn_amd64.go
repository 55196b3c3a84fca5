//go:build !noasm

package attn

// Built tells that this program holds the assembly of W256 and W512.
const Built = true

// built holds the kernels in assembly, filled by the generated files.
var built [2][numTypes]Kernels

func storeKeys(a *Args) { storeKeysAVX2(a) }
