package spectrum

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"ck/internal/quant"
)

func rowsOf(rows, cols int, list []float32) Rows {
	return Rows{rows, cols, func(i int, dst []float32) { copy(dst, list[i*cols:(i+1)*cols]) }}
}

func TestOutliers(t *testing.T) {
	const rows, cols = 50, 40
	rng := rand.New(rand.NewPCG(4, 4))
	list := make([]float32, rows*cols)
	for i := range list {
		list[i] = float32(rng.NormFloat64())
		if i%cols == 7 && i/cols < 12 {
			list[i] *= -100
		}
	}
	o, err := OutliersOf(rowsOf(rows, cols, list), 0.01, 3)
	if err != nil {
		t.Fatal(err)
	}
	sorted := make([]float64, len(list))
	all, theirs := 0.0, 0.0
	for i, v := range list {
		sorted[i] = math.Abs(float64(v))
	}
	slices.Sort(sorted)
	slices.Reverse(sorted)
	for i, v := range sorted {
		all += v * v
		if i < 20 {
			theirs += v * v
		}
	}
	if o.Count != 20 || o.Limit != sorted[19] || !near(o.Energy, theirs/all, 1e-12) {
		t.Errorf("%+v, want 20 from %g on with %g", o, sorted[19], theirs/all)
	}
	if len(o.Channels) == 0 || o.Channels[0].Col != 7 || o.Channels[0].Count < 10 {
		t.Errorf("channels %+v", o.Channels)
	}
	list[3*cols+5] = float32(math.NaN())
	var bad *NotFiniteError
	_, err = OutliersOf(rowsOf(rows, cols, list), 0.01, 3)
	if !errors.As(err, &bad) || bad.Row != 3 || bad.Col != 5 {
		t.Errorf("NaN: %v", err)
	}
	// All elements alike are all outliers.
	if o, _ := OutliersOf(rowsOf(2, 2, []float32{1, -1, 1, 1}), 0.25, 9); o.Count != 4 || o.Energy != 1 {
		t.Errorf("ties: %+v", o)
	}
}

// A matrix of low rank with small noise gains by its vectors; noise alone does not.
func TestResidual(t *testing.T) {
	const rows, cols = 256, 512
	for _, c := range []struct {
		signal float64
		gains  bool
	}{{30, true}, {0, false}} {
		rng := rand.New(rand.NewPCG(2, 1))
		list := make([]float32, rows*cols)
		u, v := orthonormal(rng, rows, 4), orthonormal(rng, cols, 4)
		for i := range rows {
			for j := range cols {
				x := 0.02 * rng.NormFloat64()
				for k := range 4 {
					x += c.signal * u.At(i, k) * v.At(j, k)
				}
				list[i*cols+j] = float32(x)
			}
		}
		rank := EqualRank(rows, cols, quant.Q4_0, quant.Q5_0)
		if rank != 10 { // 131,072 bits for vectors of 768 numbers in 16 bits
			t.Errorf("rank at equal bits is %d", rank)
		}
		r, err := ResidualOf(rowsOf(rows, cols, list), leadingOf(rows, cols, list), rank, quant.Q4_0, quant.Q5_0)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", r)
		if r.Plain.Bits != 5.5 || r.Split.Bits > 5.5 || r.Split.Bits < 5.4 {
			t.Errorf("bits %+v", r)
		}
		if (r.Split.Error < r.Plain.Error) != c.gains {
			t.Errorf("signal %g: %+v", c.signal, r)
		}
	}
	if _, err := ResidualOf(rowsOf(1, 33, make([]float32, 33)), Leading{}, 0, quant.Q4_0, quant.Q8_0); err == nil {
		t.Error("a row of 33 in blocks of 32 passed")
	}
}

func leadingOf(rows, cols int, list []float32) (l Leading) {
	a := mat.NewDense(rows, cols, nil)
	for i, v := range list {
		a.Set(i/cols, i%cols, float64(v))
	}
	var svd mat.SVD
	svd.Factorize(a, mat.SVDThin)
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	l.Values = svd.Values(nil)
	for k := range l.Values {
		l.Left = append(l.Left, mat.Col(nil, k, &u))
		l.Right = append(l.Right, mat.Col(nil, k, &v))
	}
	return l
}
