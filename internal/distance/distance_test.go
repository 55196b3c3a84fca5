package distance

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// model has one matrix of the values, in type t, and further tensors.
func model(t *testing.T, typ quant.Type, x []float32, cols, interleave int, more ...string) *gguf.Model {
	t.Helper()
	m := gguf.NewModel("m")
	add := func(name string, typ quant.Type, x []float32) {
		b := make([]byte, typ.RowBytes(len(x)))
		if err := quant.Quantize(typ, b, x, nil); err != nil {
			t.Fatal(err)
		}
		if err := m.Add(&gguf.Tensor{Name: name, Type: typ, Shape: []int{cols, len(x) / cols}, Data: b, File: -1,
			Interleave: interleave}); err != nil {
			t.Fatal(err)
		}
	}
	add("w", typ, x)
	for _, name := range more {
		add(name, quant.F32, x[:cols])
	}
	return m
}

func TestOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, 256*700)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	a, b := model(t, quant.F32, x, 256, 0, "only a"), model(t, quant.Q4_K, x, 256, 0, "only b")
	y := make([]float32, len(x))
	quant.Decode(quant.Q4_K, y, b.Tensor("w").Data)
	var signal, noise, largest float64
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		signal, noise, largest = signal+float64(x[i])*float64(x[i]), noise+d*d, math.Max(largest, math.Abs(d))
	}
	var first *Report
	for _, workers := range []int{1, 3, 8} {
		told := int64(0)
		r, err := Of(context.Background(), a, b, Options{Workers: workers, At: func(n int64) { told = n }})
		if err != nil {
			t.Fatal(err)
		}
		w := r.Tensors[0]
		if math.Abs(w.RMSE-math.Sqrt(noise/float64(len(x)))) > 1e-9 || w.Max != largest ||
			math.Abs(w.SNR-10*math.Log10(signal/noise)) > 1e-9 || told != int64(len(x)) {
			t.Errorf("%+v, %d told; want %g, %g, %g dB", w, told, math.Sqrt(noise/float64(len(x))), largest,
				10*math.Log10(signal/noise))
		}
		if len(r.OnlyA) != 1 || r.OnlyA[0] != "only a" || len(r.OnlyB) != 1 || r.OnlyB[0] != "only b" {
			t.Errorf("only in one: %v %v", r.OnlyA, r.OnlyB)
		}
		if first == nil {
			first = r
		}
		if r.Tensors[0].RMSE != first.Tensors[0].RMSE {
			t.Errorf("%d workers: another sum", workers)
		}
	}
	r, err := Of(context.Background(), a, a, Options{Workers: 2})
	if err != nil || r.Tensors[0].RMSE != 0 || !math.IsInf(r.Tensors[0].SNR, 1) {
		t.Errorf("a model and itself: %v, %+v", err, r.Tensors)
	}
}

// Rows in halves are compared with rows in GGUF's order.
func TestInterleave(t *testing.T) {
	x := make([]float32, 8*4)
	y := make([]float32, 8*4)
	for r := range 8 {
		for c := range 4 {
			x[4*r+c] = float32(r)
		}
	}
	a := model(t, quant.F32, x, 4, 2)
	for r := range 8 {
		quant.Decode(quant.F32, y[4*r:4*r+4], a.Tensor("w").Row(r))
	}
	rep, err := Of(context.Background(), a, model(t, quant.F32, y, 4, 0), Options{})
	if err != nil || rep.Tensors[0].Max != 0 || x[4] == y[4] {
		t.Errorf("%v, %+v", err, rep.Tensors)
	}
}

func TestRefused(t *testing.T) {
	x := make([]float32, 64)
	var shape *ShapeError
	if _, err := Of(context.Background(), model(t, quant.F32, x, 32, 0), model(t, quant.F32, x, 16, 0),
		Options{}); !errors.As(err, &shape) {
		t.Errorf("other shapes: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Of(ctx, model(t, quant.F32, x, 32, 0), model(t, quant.F32, x, 32, 0),
		Options{Workers: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	x[5] = float32(math.NaN())
	r, err := Of(context.Background(), model(t, quant.F32, x, 32, 0), model(t, quant.F32, make([]float32, 64), 32, 0),
		Options{})
	if err != nil || !math.IsNaN(r.Tensors[0].RMSE) || !math.IsNaN(r.Tensors[0].Max) {
		t.Errorf("NaN: %v, %+v", err, r)
	}
}

// The error of the outputs is that of the products with inputs of the covariance given, or of its diagonal.
func TestOutput(t *testing.T) {
	const rows, cols, samples = 9, 32, 50
	rng := rand.New(rand.NewPCG(5, 6))
	normals := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	w, in := normals(rows*cols), normals(samples*cols)
	a, b := model(t, quant.F32, w, cols, 0), model(t, quant.Q4_0, w, cols, 0)
	q := make([]float32, len(w))
	quant.Decode(quant.Q4_0, q, b.Tensor("w").Data)
	cov, squares := make([]float64, cols*cols), make([]float64, cols)
	var out, noise, diagonal, diagonalNoise float64
	for s := range samples {
		x := in[s*cols:][:cols]
		for i := range cols {
			squares[i] += float64(x[i]) * float64(x[i])
			for j := range cols {
				cov[i*cols+j] += float64(x[i]) * float64(x[j])
			}
		}
		for r := range rows {
			y, d := 0.0, 0.0
			for j := range cols {
				v, e := float64(w[r*cols+j]), float64(w[r*cols+j])-float64(q[r*cols+j])
				y, d = y+v*float64(x[j]), d+e*float64(x[j])
				diagonal += v * v * float64(x[j]) * float64(x[j])
				diagonalNoise += e * e * float64(x[j]) * float64(x[j])
			}
			out, noise = out+y*y, noise+d*d
		}
	}
	for name, c := range map[string]struct {
		inputs *Inputs
		want   float64
	}{"covariance": {&Inputs{Covariance: cov}, noise / out}, "diagonal": {&Inputs{Squares: squares}, diagonalNoise / diagonal},
		"nothing": {nil, -1}} {
		r, err := Of(context.Background(), a, b, Options{Workers: 2, Inputs: func(tensor string, n int) *Inputs {
			if tensor != "w" || n != cols {
				t.Errorf("asked for %s of %d columns", tensor, n)
			}
			return c.inputs
		}})
		if err != nil || math.Abs(r.Tensors[0].Output-c.want) > 1e-9 {
			t.Errorf("%s: %v, %v; want %v", name, r.Tensors[0].Output, err, c.want)
		}
	}
}
