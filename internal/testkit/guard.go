package testkit

import (
	"syscall"
	"testing"
	"unsafe"
)

// Guarded is a slice of n elements of T that ends exactly at an inaccessible page: reading or writing one byte past the end
// faults. The memory lies outside the Go heap and is unmapped when the test ends.
func Guarded[T any](t testing.TB, n int) []T {
	t.Helper()
	var e T
	size, page := n*int(unsafe.Sizeof(e)), syscall.Getpagesize()
	body := (size + page - 1) / page * page
	b, err := syscall.Mmap(-1, 0, body+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range [][]byte{b[:page], b[page+body:]} {
		if err := syscall.Mprotect(g, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[page+body-size])), n)
}
