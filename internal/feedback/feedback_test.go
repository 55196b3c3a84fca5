package feedback

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ck/internal/quant"
)

// types are those that can be encoded, with the bits of a weight that rank them.
var types = []quant.Type{quant.Q2_K, quant.Q3_K, quant.Q4_K, quant.Q5_K, quant.Q6_K, quant.Q4_0, quant.Q4_1,
	quant.Q5_0, quant.Q5_1, quant.Q8_0, quant.IQ4_NL, quant.IQ4_XS}

// inputs is the covariance of rows of correlated inputs: a few directions explain most of them.
func inputs(rng *rand.Rand, cols int) []float64 {
	h := make([]float64, cols*cols)
	const directions = 24
	basis := make([]float64, directions*cols)
	for i := range basis {
		basis[i] = rng.NormFloat64()
	}
	x := make([]float64, cols)
	for range 3 * cols {
		for j := range x {
			x[j] = 0.3 * rng.NormFloat64()
		}
		for d := range directions {
			a := rng.NormFloat64()
			for j := range x {
				x[j] += a * basis[d*cols+j]
			}
		}
		for i := range cols {
			for j := range cols {
				h[i*cols+j] += x[i] * x[j]
			}
		}
	}
	return h
}

func weights(rng *rand.Rand, n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	return w
}

// Where inputs go together, the error of the output is far below that of the search of scales with the same
// importances.
func TestBeatsSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, cols := range []int{256, 768} {
		h := inputs(rng, cols)
		const rows = 24
		w := weights(rng, rows*cols)
		imp := make([]float32, cols)
		for j := range imp {
			imp[j] = float32(h[j*cols+j])
		}
		for _, typ := range types {
			e, err := New(typ, slices.Clone(h), cols)
			if err != nil {
				t.Fatal(err)
			}
			q := make([]float32, rows*cols)
			b := make([]byte, rows*typ.RowBytes(cols))
			if err := e.Encode(b, slices.Clone(w), &Buffer{}); err != nil {
				t.Fatal(err)
			}
			quant.Decode(typ, q, b)
			ours := Error(w, q, h, cols)
			if err := quant.Quantize(typ, b, w, imp); err != nil {
				t.Fatal(err)
			}
			quant.Decode(typ, q, b)
			if search := Error(w, q, h, cols); !(ours < 0.5*search) {
				t.Errorf("%v, %d columns: %g, the search has %g", typ, cols, ours, search)
			}
		}
	}
}

// Rows that are encoded together are those that are encoded alone, and a Buffer keeps nothing between calls.
func TestRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	const cols, rows = 512, 5
	h := inputs(rng, cols)
	w := weights(rng, rows*cols)
	for _, typ := range []quant.Type{quant.Q4_K, quant.Q5_0} {
		e, err := New(typ, slices.Clone(h), cols)
		if err != nil {
			t.Fatal(err)
		}
		size := typ.RowBytes(cols)
		all := make([]byte, rows*size)
		buf := &Buffer{}
		if err := e.Encode(all, slices.Clone(w), buf); err != nil {
			t.Fatal(err)
		}
		for r := rows - 1; r >= 0; r-- {
			one := make([]byte, size)
			if err := e.Encode(one, slices.Clone(w[r*cols:(r+1)*cols]), buf); err != nil ||
				!slices.Equal(one, all[r*size:(r+1)*size]) {
				t.Errorf("%v: row %d alone is another one: %v", typ, r, err)
			}
		}
	}
}

// With independent inputs there is nothing to make up for: each element has the nearest code of its block's scales.
func TestIndependent(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 2))
	const cols = 256
	h := make([]float64, cols*cols)
	for j := range cols {
		h[j*cols+j] = 2
	}
	w := weights(rng, cols)
	for _, typ := range types {
		e, err := New(typ, slices.Clone(h), cols)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, typ.RowBytes(cols))
		if err := e.Encode(b, slices.Clone(w), &Buffer{}); err != nil {
			t.Fatal(err)
		}
		q, try, codes := make([]float32, cols), make([]float32, cols), make([]byte, typ.BlockElems())
		quant.Decode(typ, q, b)
		n, size := typ.BlockElems(), typ.BlockBytes()
		for at := 0; at < cols; at += n {
			block := slices.Clone(b[at/n*size:][:size])
			for c := range typ.Levels() {
				for i := range codes {
					codes[i] = byte(c)
				}
				quant.SetCodes(typ, block, codes)
				quant.Decode(typ, try[:n], block)
				for i := range n {
					if math.Abs(float64(try[i]-w[at+i])) < math.Abs(float64(q[at+i]-w[at+i]))-1e-6 {
						t.Fatalf("%v: element %d, %g, is %g; code %d is nearer: %g", typ, at+i, w[at+i], q[at+i], c,
							try[i])
					}
				}
			}
		}
	}
}

// UᵀU is the inverse of the damped covariance.
func TestFactor(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 2))
	for _, cols := range []int{32, 96, 160} {
		h := inputs(rng, cols)
		e, err := New(quant.Q4_0, slices.Clone(h), cols)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for j := range cols {
			sum += h[j*cols+j]
		}
		for j := range cols {
			h[j*cols+j] += Damping * sum / float64(cols)
		}
		for i := range cols {
			for j := range cols {
				var p float64 // of UᵀU H
				for k := range cols {
					var inv float64
					for l := 0; l <= min(i, k); l++ {
						inv += float64(e.u[l*cols+i]) * float64(e.u[l*cols+k])
					}
					p += inv * h[k*cols+j]
				}
				want := 0.0
				if i == j {
					want = 1
				}
				if math.Abs(p-want) > 1e-3 {
					t.Fatalf("%d columns: element %d, %d of the product is %g", cols, i, j, p)
				}
				if j < i && e.u[i*cols+j] != 0 {
					t.Fatalf("U has %g below its diagonal", e.u[i*cols+j])
				}
			}
		}
	}
}

func TestRefused(t *testing.T) {
	if _, err := New(quant.IQ2_XS, make([]float64, 4), 2); err == nil {
		t.Error("IQ2_XS")
	}
	if _, err := New(quant.Q4_0, make([]float64, 4), 2); err == nil {
		t.Error("a covariance of zeros")
	}
	if _, err := New(quant.Q4_0, []float64{1, 0, 0, math.NaN()}, 2); err == nil {
		t.Error("NaN")
	}
	h := []float64{1, 0, 0, 0} // a column that was never seen
	if _, err := New(quant.Q4_0, h, 2); err != nil {
		t.Error(err)
	}
}
