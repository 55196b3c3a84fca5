//go:build !noasm

package attn

// Built tells that this program holds the assembly of W256 and W512.
const Built = true

// built holds the kernels in assembly.
var built = [2][numTypes]Kernels{kernelsAVX2, kernelsAVX512}

func storeKeys(a *Args) { storeKeysAVX2(a) }
