package linalg

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"ck/internal/isa"
)

// workers is an Each of so many goroutines that take turns at random.
func workers(n int) Each {
	return func(tasks int, f func(i int)) error {
		var wg sync.WaitGroup
		order := rand.Perm(tasks)
		for w := range n {
			wg.Go(func() {
				for i := w; i < tasks; i += n {
					f(order[i])
				}
			})
		}
		wg.Wait()
		return nil
	}
}

// tiers are those that this CPU has.
func tiers() []isa.Tier {
	var list []isa.Tier
	for _, t := range []isa.Tier{isa.Go, isa.AVX2, isa.AVX512} {
		if isa.Check(t, isa.Detect()) == nil {
			list = append(list, t)
		}
	}
	return list
}

// The sums are those of the definition, bit for bit, for every tier, number of workers, and cut of the rows.
func TestGram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 5, 24, 25, 100, 240, 241} {
		const rows, stride = 300, 250
		x := make([]float32, rows*stride)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		want := make([]float64, n*n)
		for i := range n {
			for j := range n {
				for r := range rows {
					want[i*n+j] += float64(x[r*stride+i]) * float64(x[r*stride+j]) // exact products: fused or not is the same
				}
			}
		}
		for _, tier := range tiers() {
			for k, cut := range [][]int{{300}, {1, 99, 200}, {256, 44}} {
				g := &Gram{N: n, Width: WidthOf(tier), Sums: make([]float64, n*n)}
				at, scratch := 0, new(Scratch)
				for _, c := range cut {
					if err := g.Add(workers(k+1), scratch, x[at*stride:], c, stride); err != nil {
						t.Fatal(err)
					}
					at += c
				}
				g.Mirror()
				for i, w := range want {
					if math.Float64bits(g.Sums[i]) != math.Float64bits(w) {
						t.Fatalf("n %d, %v, cut %v: sum %d,%d is %v, want %v", n, tier, cut, i/n, i%n, g.Sums[i], w)
					}
				}
			}
		}
	}
	g := &Gram{N: 3, Sums: make([]float64, 9)}
	if err := g.Add(func(int, func(int)) error { return errors.ErrUnsupported }, new(Scratch), make([]float32, 3), 1, 3); err == nil {
		t.Error("an error of the workers is lost")
	}
}

// A rate is that of some products: at least a million a second, below what any CPU does.
func TestRate(t *testing.T) {
	r, err := Rate(workers(2), 2, WidthOf(tiers()[0]))
	if err != nil || !(r > 1e6 && r < 1e13) {
		t.Errorf("%v products a second, %v", r, err)
	}
}

// BenchmarkGram says billions of products a second of one worker.
func BenchmarkGram(b *testing.B) {
	for _, n := range []int{4096, 14336} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			const rows = 512
			g := &Gram{N: n, Width: WidthOf(isa.Best(isa.Detect())), Sums: make([]float64, n*n)}
			x, s := make([]float32, rows*n), new(Scratch)
			for b.Loop() {
				if err := g.Add(workers(1), s, x, rows, n); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*rows*float64(n)*float64(n)/2/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}
