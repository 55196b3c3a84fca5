package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"ck/asm/dot"
	"ck/internal/isa"
	"ck/internal/quant"
)

// Once its Stop is true a matmul makes no call of a kernel that begins another tile, whichever way it goes.
func TestMatmulStops(t *testing.T) {
	ways := 0
	for _, qt := range []quant.Type{quant.F32, quant.BF16, quant.Q8_0, quant.Q4_K, quant.MXFP4} {
		rng := rand.New(rand.NewPCG(5, uint64(qt)))
		w := randomWeights(t, rng, qt, 1024, 512)
		for i, f := range formats(t, qt, false) {
			for _, rows := range []int{1, 9, 70} {
				var calls int
				var stop atomic.Bool
				counted := func(k func(*dot.Args)) func(*dot.Args) {
					if k == nil {
						return nil
					}
					return func(a *dot.Args) { calls++; stop.Store(true); k(a) }
				}
				g := *f
				g.kernels.Gemv = counted(g.kernels.Gemv)
				g.kernels.Gemm, g.kernels.Small = slices.Clone(g.kernels.Gemm), slices.Clone(g.kernels.Small)
				for i := range g.kernels.Gemm {
					g.kernels.Gemm[i] = counted(g.kernels.Gemm[i])
				}
				for i := range g.kernels.Small {
					g.kernels.Small[i] = counted(g.kernels.Small[i])
				}
				x, s := plainAct(t, f.Act, randomRows(rng, max(rows, 2), w.k)), NewScratch()
				m := &Matmul{N: w.n, K: w.k, Slices: 1, X: x, M1: rows, Y: make([]float32, x.M*w.n), YStride: w.n}
				if m.Row = w.row; !f.Direct {
					m.Row, m.W = nil, w.pack(t, f)
				}
				g.Matmul(s, m)
				all := calls
				s.Stop, calls = &stop, 0
				stop.Store(false)
				g.Matmul(s, m)
				what := fmt.Sprintf("%v kernels %d, %d rows: %d of %d calls", qt, i, rows, calls, all)
				if all >= 16 {
					ways++
					if calls > all/8 {
						t.Error(what)
					}
				}
			}
		}
	}
	if ways < 6 {
		t.Errorf("only %d ways have calls enough to tell", ways)
	}
}

// Attention over many chunks looks at Stop before each: no page is read then.
func TestAttendStops(t *testing.T) {
	f := kvFormat(t, isa.Best(isa.Detect()), quant.F16, 64, 64)
	const n = 8 * ChunkKeys
	var stop atomic.Bool
	stop.Store(true)
	s := &AttnScratch{Stop: &stop}
	a := &Attend{Rows: 1, G: 2, Q: make([]float32, 128), QStride: 128, Scale: 1, Lo: []int32{0}, Hi: []int32{n},
		K: make([]unsafe.Pointer, n/BlockKeys), V: make([]unsafe.Pointer, n/BlockKeys), O: make([]float32, 128), OStride: 128}
	f.Attend(s, a) // would fault at the first page, which is nil
}
