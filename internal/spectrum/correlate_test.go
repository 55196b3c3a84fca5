package spectrum

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// Correlated Gaussians must show their correlation, and both ways to count the saved bits must agree.
func TestCorrelate(t *testing.T) {
	const rows, cols = 200, 500
	for _, rho := range []float64{0, 0.3, 0.9} {
		rng := rand.New(rand.NewPCG(1, uint64(100*rho)))
		x, y := make([]float32, rows*cols), make([]float32, rows*cols)
		for i := range x {
			u := rng.NormFloat64()
			x[i] = float32(0.02 * u)
			y[i] = float32(-0.04 * (rho*u + math.Sqrt(1-rho*rho)*rng.NormFloat64()))
		}
		p, err := Correlate(rowsOf(rows, cols, x), rowsOf(rows, cols, y))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%.1f: %+v", rho, p)
		want := -math.Log2(1-rho*rho) / 2 // 0.068 bits at 0.3: 1.9 % of 3.6
		if math.Abs(p.Correlation+rho) > 0.01 || math.Abs(p.Cosine+rho) > 0.01 ||
			math.Abs(p.Scale+2*rho) > 0.02 || math.Abs(p.Left-(1-rho*rho)) > 0.01 ||
			math.Abs(p.Gaussian-want) > 0.02 || math.Abs(p.Measured-want) > 0.02 {
			t.Errorf("correlation -%g: %+v, want %g bits", rho, p, want)
		}
	}
}

func TestCorrelateOdd(t *testing.T) {
	zero, one := rowsOf(1, 3, make([]float32, 3)), rowsOf(1, 3, []float32{1, 2, 4})
	if p, err := Correlate(zero, one); p != (Pair{}) || err != nil {
		t.Errorf("zero: %+v, %v", p, err)
	}
	p, err := Correlate(one, one)
	if err != nil || !near(p.Cosine, 1, 1e-15) || p.Left > 1e-15 || p.Scale != 1 || p.Measured < 1 {
		t.Errorf("itself: %+v, %v", p, err)
	}
	// A mean alone gives a cosine, not a correlation.
	p, _ = Correlate(rowsOf(1, 4, []float32{9, 11, 9, 11}), rowsOf(1, 4, []float32{9, 9, 11, 11}))
	if p.Cosine < 0.98 || p.Correlation != 0 {
		t.Errorf("means: %+v", p)
	}
	if _, err := Correlate(one, rowsOf(3, 1, []float32{1, 2, 3})); err == nil {
		t.Error("shapes that differ passed")
	}
	var bad *NotFiniteError
	_, err = Correlate(one, rowsOf(1, 3, []float32{1, float32(math.Inf(-1)), 3}))
	if !errors.As(err, &bad) || bad.Col != 1 {
		t.Errorf("infinite: %v", err)
	}
}

func TestAngles(t *testing.T) {
	c, s := math.Cos(0.3), math.Sin(0.3)
	a := [][]float64{{1, 0, 0, 0}, {0, 1, 0, 0}}
	b := [][]float64{{0, c, s, 0}, {0, 0, 0, 1}} // 0.3 from the second vector, and at right angles
	got, err := Angles(a, b)
	if err != nil || len(got) != 2 || math.Abs(got[0]-0.3) > 1e-12 || math.Abs(got[1]-math.Pi/2) > 1e-12 {
		t.Errorf("angles %v, %v", got, err)
	}
	if got, _ := Angles(a, a); got[1] > 1e-7 {
		t.Errorf("with itself %v", got)
	}
	if _, err := Angles(a, [][]float64{{1}}); err == nil {
		t.Error("vectors of other lengths passed")
	}
}
