//go:build !amd64 || noasm

package readloop

import "unsafe"

func xor(p unsafe.Pointer, n int) uint64 {
	sum := uint64(0)
	for _, x := range unsafe.Slice((*uint64)(p), n) {
		sum ^= x
	}
	return sum
}
