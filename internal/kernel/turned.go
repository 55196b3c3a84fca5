package kernel

import (
	"fmt"
	"unsafe"

	"ck/asm/dot"
)

// PackTurned makes the panel of n columns of a float32 matrix of k rows: that of n rows of its transpose, nothing of which is ever made.
// row is the n elements of a row of the matrix, or more. The format's layout is F32 or BF16, to which elements are rounded.
func (t *ElemTable) PackTurned(f *Format, dst []byte, k, n int, row func(k int) []float32) {
	if n > f.PanelRows || f.PanelRows != 64 {
		panic(fmt.Sprintf("kernel: %d columns of a panel of %d", n, f.PanelRows))
	}
	out := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(dst))), f.PanelBytes(k)/4)
	switch f.layout {
	case dot.F32:
		for i := range k {
			d := unsafe.Slice((*float32)(unsafe.Pointer(&out[64*i])), 64)
			clear(d[copy(d, row(i)[:n]):])
		}
	case dot.BF16:
		var zeros [64]float32
		for i := 0; i < k; i += 2 {
			next := zeros[:]
			if i+1 < k {
				next = row(i + 1)
			}
			t.PairBF16(out[32*i:][:n], row(i)[:n], next[:n])
			clear(out[32*i+n : 32*i+64])
		}
		clear(out[32*((k+1)&^1):])
	default:
		panic(fmt.Sprintf("kernel: panels of %v are not made of floats", f.layout))
	}
}
