package linalg

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ck/internal/isa"
)

// of is a matrix in memory.
func of(rows, cols int, data []float64) Matrix {
	return Matrix{rows, cols, func() func(int, int, []float64) {
		return func(i, from int, dst []float64) { copy(dst, data[i*cols+from:(i+1)*cols]) }
	}}
}

func gaussian(rng *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(float32(rng.NormFloat64()))
	}
	return x
}

// Both ways give the same values, within the bound, for all shapes; by the Gram matrix in the same bits for any number of
// workers and tier.
func TestSingularValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range [][2]int{{1, 1}, {1, 9}, {9, 1}, {2, 2}, {3, 5}, {7, 300}, {33, 31}, {64, 65}, {130, 129}, {300, 513}, {600, 70}} {
		a := of(s[0], s[1], gaussian(rng, s[0]*s[1]))
		want, err := SingularValues(context.Background(), a, Options{Method: Direct})
		if err != nil {
			t.Fatal(err)
		}
		var first []float64
		for _, tier := range tiers() {
			for _, n := range []int{1, 2, 3, 5} {
				got, err := SingularValues(context.Background(), a, Options{Method: ByGram, Width: WidthOf(tier), Each: workers(n)})
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = got
				}
				if !slices.Equal(got, first) {
					t.Fatalf("%v, %v, %d workers: other bits", s, tier, n)
				}
			}
		}
		for i, w := range want {
			if !(math.Abs(first[i]-w) <= ByGram.Bound(w, want[0])+Direct.Bound(w, want[0])) {
				t.Errorf("%v: value %d is %v, want %v", s, i, first[i], w)
			}
		}
	}
}

func BenchmarkSingularValues(b *testing.B) {
	for _, s := range [][2]int{{1024, 4096}, {2048, 2048}, {4096, 14336}} {
		b.Run(fmt.Sprint(s), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(5, 6))
			a := of(s[0], s[1], gaussian(rng, s[0]*s[1]))
			for b.Loop() {
				start, half := time.Now(), time.Duration(0)
				gram := false
				_, err := SingularValues(context.Background(), a, Options{Method: ByGram, Width: WidthOf(isa.AVX512), Each: workers(2), At: func(done float64) {
					if !gram {
						half = time.Since(start)
					}
					gram = gram || done >= float64(s[1])/2/(float64(s[1])/2+2./3*float64(s[0]))-1e-9
				}})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(half.Seconds(), "gram-s")
			}
		})
	}
}
