package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"ck/internal/quant"
	"ck/internal/testkit"
)

// Panels of a transpose are those of its rows, also where K and the number of rows are odd, and memory behind the columns is not read.
func TestPackTurned(t *testing.T) {
	for _, tab := range tables(t) {
		for _, qt := range []quant.Type{quant.F32, quant.BF16} {
			f := tab.Format(qt, qt == quant.F32)
			for _, c := range [][2]int{{1, 1}, {2, 64}, {31, 63}, {32, 64}, {33, 7}, {64, 16}, {100, 17}, {129, 64}} {
				t.Run(fmt.Sprintf("%v/%v/k=%d/n=%d", tab.Tier, qt, c[0], c[1]), func(t *testing.T) {
					k, n := c[0], c[1]
					rng := rand.New(rand.NewPCG(uint64(k), uint64(n)))
					x := testkit.Guarded[float32](t, k*n)
					turned := make([]float32, k*n)
					for i := range x {
						x[i] = float32(rng.NormFloat64())
						turned[i%n*k+i/n] = x[i]
					}
					row := func(r int) []byte {
						v := turned[r*k:][:k]
						if qt == quant.F32 {
							return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*k)
						}
						h := make([]uint16, k)
						tab.F32ToBF16(h, v)
						return unsafe.Slice((*byte)(unsafe.Pointer(&h[0])), 2*k)
					}
					want, got := make([]byte, f.PanelBytes(k)), testkit.Guarded[byte](t, f.PanelBytes(k))
					f.Pack(want, k, n, row)
					for i := range got {
						got[i] = 0xa5
					}
					tab.PackTurned(f, got, k, n, func(k int) []float32 { return x[k*n:] })
					if !bytes.Equal(want, got) {
						t.Error("other panels")
					}
				})
			}
		}
	}
}
