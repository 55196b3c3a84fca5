package linalg

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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

// Of a matrix of rank 12 with noise beside it the leading vectors are those of the whole decomposition; in the same bits
// for any number of workers and tier.
func TestLeading(t *testing.T) {
	const rank, asked = 12, 20
	rng := rand.New(rand.NewPCG(7, 8))
	for _, s := range [][3]int{{300, 500, 1}, {500, 300, 1}, {40, 700, 1}, {300, 310, 0}, {5, 3, 1}} {
		rows, cols := s[0], s[1]
		data := gaussian(rng, rows*cols)
		for i := range data {
			data[i] *= 1e-3 * float64(s[2])
		}
		for k := range rank {
			u, v := gaussian(rng, rows), gaussian(rng, cols)
			for i := range rows {
				for j := range cols {
					data[i*cols+j] += u[i] * v[j] / float64(1+k)
				}
			}
		}
		a := of(rows, cols, data)
		want, err := SingularValues(context.Background(), a, Options{Method: Direct})
		if err != nil {
			t.Fatal(err)
		}
		var first []float64
		for _, tier := range tiers() {
			for _, n := range []int{1, 3} {
				values, left, right, err := Leading(context.Background(), a, asked, Options{Width: WidthOf(tier), Each: workers(n)})
				if err != nil {
					t.Fatal(err)
				}
				all := slices.Concat(values, slices.Concat(left...), slices.Concat(right...))
				if first == nil {
					first = all
					checkLeading(t, a, data, values, left, right, want, min(rank, len(values)))
				}
				if !slices.Equal(first, all) {
					t.Fatalf("%v, %v, %d workers: other bits", s, tier, n)
				}
				if len(values) != min(asked, rows, cols) {
					t.Fatalf("%v: %d values", s, len(values))
				}
				if s[2] == 0 && values[rank] != 0 {
					t.Errorf("%v: value %d of a matrix of rank %d is %v", s, rank, rank, values[rank])
				}
			}
		}
	}
}

// checkLeading compares the first values with those wanted, their vectors with what the matrix makes of them.
func checkLeading(t *testing.T, a Matrix, data, values []float64, left, right [][]float64, want []float64, sure int) {
	t.Helper()
	for i, v := range values[:sure] {
		if math.Abs(v-want[i]) > 1e-9*want[0] {
			t.Errorf("%d x %d: value %d is %v, want %v", a.Rows, a.Cols, i, v, want[i])
		}
		for r := range a.Rows { // A right = value left
			sum := 0.0
			for c := range a.Cols {
				sum += data[r*a.Cols+c] * right[i][c]
			}
			if math.Abs(sum-v*left[i][r]) > 1e-9*want[0] {
				t.Fatalf("%d x %d: row %d of A times vector %d is %v, want %v", a.Rows, a.Cols, r, i, sum, v*left[i][r])
			}
		}
	}
	for _, side := range [][][]float64{left, right} {
		for i, u := range side {
			for j, v := range side {
				dot, want := 0.0, 0.0
				for r := range u {
					dot += u[r] * v[r]
				}
				if i == j && values[i] > 0 {
					want = 1
				}
				if math.Abs(dot-want) > 1e-11 {
					t.Fatalf("%d x %d: vectors %d and %d have the product %v", a.Rows, a.Cols, i, j, dot)
				}
			}
		}
	}
}

// The bound holds where it is largest: for values that are zero but for rounding, and for a spectrum that falls to them.
func TestBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	worst := 0.0
	for _, s := range [][3]int{{200, 300, 20}, {300, 200, 199}, {150, 2000, 1}, {400, 400, 300}} {
		rows, cols, rank := s[0], s[1], s[2]
		data := make([]float64, rows*cols)
		for k := range rank {
			u, v := gaussian(rng, rows), gaussian(rng, cols)
			scale := math.Pow(10, -9*float64(k)/float64(rank))
			for i := range rows {
				for j := range cols {
					data[i*cols+j] += scale * u[i] * v[j]
				}
			}
		}
		a := of(rows, cols, data)
		want, err := SingularValues(context.Background(), a, Options{Method: Direct})
		if err != nil {
			t.Fatal(err)
		}
		got, err := SingularValues(context.Background(), a, Options{Method: ByGram, Width: WidthOf(isa.Best(isa.Detect()))})
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			worst = max(worst, math.Abs(got[i]-w)/ByGram.Bound(w, want[0]))
		}
	}
	t.Logf("at most %.2f of the bound", worst)
	if worst > 1 {
		t.Errorf("%.2f times the bound", worst)
	}
}

// What has no answer is an error: values that are not finite, and by the Gram matrix those whose squares have no room.
func TestSingularValuesRefused(t *testing.T) {
	for _, m := range []Method{Direct, ByGram} {
		for _, bad := range []float64{math.NaN(), math.Inf(-1)} {
			if _, err := SingularValues(context.Background(), of(2, 3, []float64{1, 2, 3, bad, 5, 6}), Options{Method: m}); !errors.Is(err, ErrNotFinite) {
				t.Errorf("method %d, %g: %v", m, bad, err)
			}
		}
	}
	var e *RangeError
	for _, v := range []float64{1e-70, 1e70} {
		a := of(1, 2, []float64{v, v / 2})
		if _, err := SingularValues(context.Background(), a, Options{Method: ByGram}); !errors.As(err, &e) {
			t.Errorf("%g: %v", v, err)
		}
		got, err := SingularValues(context.Background(), a, Options{Method: Direct})
		if err != nil || math.Abs(got[0]/(v*math.Sqrt(1.25))-1) > 1e-14 {
			t.Errorf("%g: %v, %v", v, got, err)
		}
	}
	ctx, stop := context.WithCancelCause(context.Background())
	stop(errors.ErrUnsupported)
	if _, err := SingularValues(ctx, of(1, 1, []float64{1}), Options{Method: ByGram}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("stopped: %v", err)
	}
	for _, s := range [][2]int{{0, 3}, {3, 0}} {
		if got, err := SingularValues(context.Background(), of(s[0], s[1], nil), Options{}); len(got) != 0 || err != nil {
			t.Errorf("%v: %v, %v", s, got, err)
		}
	}
	got, err := SingularValues(context.Background(), of(2, 2, make([]float64, 4)), Options{Method: ByGram})
	if err != nil || !slices.Equal(got, []float64{0, 0}) {
		t.Errorf("zeros: %v, %v", got, err)
	}
}

// inTurn is an Each of so many goroutines of which each takes what is next.
func inTurn(n int) Each {
	return func(tasks int, f func(i int)) error {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range min(n, tasks) {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < tasks; i = int(next.Add(1)) - 1 {
					f(i)
				}
			})
		}
		wg.Wait()
		return nil
	}
}

// BenchmarkSingularValues says the seconds of the Gram part beside the whole.
func BenchmarkSingularValues(b *testing.B) {
	for _, s := range [][2]int{{1024, 4096}, {2048, 2048}, {4096, 14336}} {
		b.Run(fmt.Sprint(s), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(5, 6))
			a := of(s[0], s[1], gaussian(rng, s[0]*s[1]))
			for b.Loop() {
				start, half := time.Now(), time.Duration(0)
				gram := false
				_, err := SingularValues(context.Background(), a, Options{Method: ByGram, Width: WidthOf(isa.AVX512), Each: inTurn(2), At: func(done float64) {
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
