package mat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ck/internal/isa"
	"ck/internal/testkit"
)

// widths are those that this CPU and this program have.
func widths() []Width {
	list := []Width{Go}
	if Built && isa.Check(isa.AVX2, isa.Detect()) == nil {
		list = append(list, W256)
	}
	if Built && isa.Check(isa.AVX512, isa.Detect()) == nil {
		list = append(list, W512)
	}
	return list
}

// Sums are those of the definition, bit for bit, for any number of rows; nothing beside them is read or written.
func TestAdd(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, w := range widths() {
		for _, rows := range []int{0, 1, 2, 3, 7, 64, 129} {
			for _, stride := range []int{Columns, Columns + 1, 100} {
				a, b := testkit.Guarded[float64](t, rows*Columns), testkit.Guarded[float64](t, rows*Columns)
				c := testkit.Guarded[float64](t, (Columns-1)*stride+Columns)
				for _, x := range [][]float64{a, b, c} {
					for i := range x {
						x[i] = rng.NormFloat64()
					}
				}
				want := append([]float64(nil), c...)
				for i := range Columns {
					for j := range Columns {
						for r := range rows {
							want[i*stride+j] = math.FMA(a[r*Columns+i], b[r*Columns+j], want[i*stride+j])
						}
					}
				}
				Add(w, c, stride, a, b)
				for i := range want {
					if math.Float64bits(c[i]) != math.Float64bits(want[i]) {
						t.Fatalf("width %d, %d rows, stride %d: sum %d is %v, want %v", w, rows, stride, i, c[i], want[i])
					}
				}
			}
		}
	}
}

// Rows are those of the definition, bit for bit, for any length; nothing beside them is read or written.
func TestRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, w := range widths() {
		for _, n := range []int{0, 1, 7, 8, 9, 16, 23, 64, 1000} {
			var a [4][]float64
			x, y := testkit.Guarded[float64](t, n), testkit.Guarded[float64](t, n)
			for r := range a {
				a[r] = testkit.Guarded[float64](t, n)
			}
			for _, v := range [][]float64{x, y, a[0], a[1], a[2], a[3]} {
				for i := range v {
					v[i] = rng.NormFloat64()
				}
			}
			c := [4]float64{rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()}
			wantY, before := append([]float64(nil), y...), append([]float64(nil), x...)
			var want [4]float64
			for r := range a {
				var l [8]float64
				for j := range n {
					wantY[j] = math.FMA(c[r], a[r][j], wantY[j])
					l[j%8] = math.FMA(x[j], a[r][j], l[j%8])
				}
				want[r] = ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]))
			}
			got := Rows(w, y, x, &a, &c)
			if got != want {
				t.Errorf("width %d, %d columns: sums %v, want %v", w, n, got, want)
			}
			for j := range n {
				if y[j] != wantY[j] || x[j] != before[j] {
					t.Fatalf("width %d, %d columns: element %d is %v, want %v", w, n, j, y[j], wantY[j])
				}
			}
		}
	}
}

// What does not fit is refused before memory is touched.
func TestAddPanics(t *testing.T) {
	x := func(n int) []float64 { return make([]float64, n) }
	for i, f := range []func(){
		func() { Add(Go, x(Columns*Columns), Columns, x(Columns), x(2*Columns)) },
		func() { Add(Go, x(Columns*Columns-1), Columns, x(Columns), x(Columns)) },
		func() { Add(Go, x(Columns*Columns), Columns, x(Columns+1), x(Columns+1)) },
		func() { Rows(Go, x(8), x(8), &[4][]float64{x(8), x(8), x(8), x(7)}, new([4]float64)) },
		func() { Rows(Go, x(8), x(7), &[4][]float64{x(8), x(8), x(8), x(8)}, new([4]float64)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("case %d: no panic", i)
				}
			}()
			f()
		}()
	}
}

// BenchmarkAdd says billions of products a second, of panels that stay in the second cache.
func BenchmarkAdd(b *testing.B) {
	const rows = 256
	for _, w := range widths() {
		b.Run(fmt.Sprint(w), func(b *testing.B) {
			x, c := make([]float64, rows*Columns), make([]float64, Columns*Columns)
			for b.Loop() {
				Add(w, c, Columns, x, x)
			}
			b.ReportMetric(float64(b.N)*rows*Columns*Columns/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}
