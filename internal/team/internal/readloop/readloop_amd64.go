//go:build !noasm

package readloop

import "unsafe"

//go:noescape
func xor(p unsafe.Pointer, n int) uint64
