package kernel

import (
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ck/asm/roof"
	"ck/internal/quant"
)

func BenchmarkTwo(b *testing.B) {
	const half = 256 << 20
	mem, err := syscall.Mmap(-1, 0, 2*half, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	defer syscall.Munmap(mem)
	syscall.Madvise(mem, 14)
	const k = 1024
	rng := rand.New(rand.NewPCG(1, 1))
	tabs := tables(b)
	tab := tabs[len(tabs)-1]
	qt := quant.Q8_0
	if os.Getenv("QT") != "" {
		for _, t := range panelTypes {
			if t.String() == os.Getenv("QT") {
				qt = t
			}
		}
	}
	f := tab.Format(qt, false)
	fillPanels(b, mem, f, qt, k, rng)
	size := f.PanelBytes(k)
	panels := half / size
	n := panels * f.PanelRows
	x := plainAct(b, f.Act, randomRows(rng, 1, k))
	both := func(g func(w []byte)) float64 {
		var wg sync.WaitGroup
		t0 := time.Now()
		for i := range 2 {
			wg.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				g(mem[i*half:][:half])
			})
		}
		wg.Wait()
		return 2 * half / time.Since(t0).Seconds() / 1e9
	}
	s := [2]*Scratch{NewScratch(), NewScratch()}
	y := [2][]float32{make([]float32, n), make([]float32, n)}
	var mu, ro []float64
	var loops [3][]float64
	for b.Loop() {
		mu = append(mu, both(func(w []byte) {
			i := 0
			if &w[0] != &mem[0] {
				i = 1
			}
			f.Matmul(s[i], &Matmul{W: w[:panels*size], N: n, K: k, Slices: 1, X: x, M1: 1, Y: y[i], YStride: n})
		}))
		at := 0
		for i := range roof.Reads {
			if l := &roof.Reads[i]; strings.HasPrefix(l.Name, "256") {
				loops[at] = append(loops[at], both(func(w []byte) {
					for ; len(w) > 0; w = w[min(len(w), 4<<20):] {
						l.Run(w[:min(len(w), 4<<20)])
					}
				}))
				at++
			}
		}
		ro = append(ro, max(loops[0][len(loops[0])-1], loops[1][len(loops[1])-1], loops[2][len(loops[2])-1]))
	}
	med := func(l []float64) float64 { l = slices.Sorted(slices.Values(l)); return l[len(l)/2] }
	b.ReportMetric(med(mu), "GB/s")
	for i, l := range loops {
		b.ReportMetric(med(l), []string{"r1", "r2", "r4"}[i])
	}
	b.ReportMetric(100*med(mu)/med(ro), "%roof")
}
