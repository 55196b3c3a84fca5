package spectrum

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/lapack/gonum"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
)

// The law for beta 1 is the determinant of 1 - K on (s, infinity) with K(x, y) = Ai((x+y)/2)/2 (Ferrari, Spohn 2005),
// here by Gauss–Legendre points (Bornemann 2010).
func TestTracyWidomQuantile(t *testing.T) {
	law := func(s float64) float64 {
		const n = 60
		x, w := make([]float64, n), make([]float64, n)
		quad.Legendre{}.FixedLocations(x, w, s, s+24)
		k := mat.NewDense(n, n, nil)
		for i := range n {
			for j := range n {
				v := -math.Sqrt(w[i]*w[j]) * real(mathext.AiryAi(complex((x[i]+x[j])/2, 0))) / 2
				if i == j {
					v++
				}
				k.Set(i, j, v)
			}
		}
		return mat.Det(k)
	}
	// Johnstone's table has 0.9793 for 95 %.
	if p := law(0.9793); math.Abs(p-0.95) > 1e-4 {
		t.Fatalf("the law at 0.9793 is %g", p)
	}
	lo, hi := 0.0, 6.0
	for range 40 {
		if mid := (lo + hi) / 2; law(mid) < 0.999 {
			lo = mid
		} else {
			hi = mid
		}
	}
	if math.Abs(lo-tracyWidom999) > 1e-4 {
		t.Errorf("99.9 %% quantile is %.5f, not %.5f", lo, tracyWidom999)
	}
}

// rootsOf returns the roots of the eigenvalues of a tridiagonal matrix, in descending order.
func rootsOf(diagonal, side []float64) []float64 {
	gonum.Implementation{}.Dsterf(len(diagonal), diagonal, side)
	roots := make([]float64, len(diagonal))
	for i, v := range diagonal {
		roots[len(roots)-1-i] = math.Sqrt(max(0, v))
	}
	return roots
}
