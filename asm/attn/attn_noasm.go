//go:build !amd64 || noasm

package attn

// Built tells that this program holds the assembly of W256 and W512.
const Built = false

var built [2][numTypes]Kernels

func storeKeys(*Args) {}
