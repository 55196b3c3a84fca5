// Package readloop is a read loop in assembly for team's tests: a fault in it must end as a fault in a kernel does.
package readloop

import "unsafe"

// XOR folds n*8 bytes at p:
//
//	for _, x := range unsafe.Slice((*uint64)(p), n) { sum ^= x }
func XOR(p unsafe.Pointer, n int) uint64 { return xor(p, n) }
