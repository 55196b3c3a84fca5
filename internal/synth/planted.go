package synth

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// A Plant changes a matrix [rows][cols] of a model in its place. Models with planted properties are what measurements
// of weights are tried on: the truth about them is known.
type Plant func(name string, rows, cols int, x []float32)

// Planted is a model with changed matrices, all of them in F32. It needs m's files: m stays open while it is used.
func Planted(m *gguf.Model, plants ...Plant) *gguf.Model {
	changed := map[string]*gguf.Tensor{}
	for _, t := range m.Tensors {
		if len(t.Shape) != 2 {
			continue
		}
		x := make([]float32, t.Rows()*t.Cols())
		for r := range t.Rows() {
			quant.Decode(t.Type, x[r*t.Cols():][:t.Cols()], t.Row(r))
		}
		for _, p := range plants {
			p(t.Name, t.Rows(), t.Cols(), x)
		}
		data := make([]byte, 0, 4*len(x))
		for _, v := range x {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		changed[t.Name] = &gguf.Tensor{Name: t.Name, Type: quant.F32, Shape: t.Shape, Data: data, File: -1}
	}
	return m.With(changed)
}

// normals fills x with normal numbers of standard deviation sd that depend on seed and name alone.
func normals(x []float32, sd float64, seed uint64, name string) {
	h := seed
	for _, c := range name {
		h = h*1099511628211 ^ uint64(c)
	}
	rng := rand.New(rand.NewPCG(seed, h))
	for i := range x {
		x[i] = float32(sd * rng.NormFloat64())
	}
}

// spread is the root of the mean square of x.
func spread(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(x)))
}

// LowRank makes matrices products of two Gaussian ones with so many columns between them, as large as before, and adds
// noise of that share of their size.
func LowRank(rank int, noise float64, seed uint64) Plant {
	return func(name string, rows, cols int, x []float32) {
		size := spread(x)
		a, b := make([]float32, rows*rank), make([]float32, rank*cols)
		normals(a, 1, seed, name)
		normals(b, size/math.Sqrt(float64(rank)), seed+1, name)
		normals(x, noise*size, seed+2, name)
		for r := range rows {
			for k := range rank {
				f := a[r*rank+k]
				for c, v := range b[k*cols:][:cols] {
					x[r*cols+c] += f * v
				}
			}
		}
	}
}

// Alike makes the matrices of one class alike in all layers: the correlation between any two of them is rho.
func Alike(rho float64, seed uint64) Plant {
	return func(name string, rows, cols int, x []float32) {
		var layer int
		var class string
		if n, _ := fmt.Sscanf(name, "blk.%d.%s", &layer, &class); n != 2 {
			return
		}
		size := spread(x)
		common := make([]float32, len(x))
		normals(common, size, seed, class)
		normals(x, size, seed+1, name)
		for i, c := range common {
			x[i] = float32(math.Sqrt(rho))*c + float32(math.Sqrt(1-rho))*x[i]
		}
	}
}

// Levels makes weights take few values, evenly spaced and equally often: their histogram has log2(n) bits.
func Levels(n int, seed uint64) Plant {
	return func(name string, rows, cols int, x []float32) {
		size := spread(x)
		normals(x, 1, seed, name)
		for i, v := range x {
			u := 0.5 * math.Erfc(-float64(v)/math.Sqrt2) // even between 0 and 1
			x[i] = float32(size * (math.Min(math.Floor(u*float64(n)), float64(n-1)) - float64(n-1)/2))
		}
	}
}

// Scaled multiplies matrices of a class, such as "attn_q", in the layers [from, to) by f.
func Scaled(class string, from, to int, f float32) Plant {
	return func(name string, rows, cols int, x []float32) {
		for l := from; l < to; l++ {
			if name == fmt.Sprintf("blk.%d.%s.weight", l, class) {
				for i := range x {
					x[i] *= f
				}
			}
		}
	}
}

// Uneven gives the inputs of layers other sizes without a change of what the model computes: norms in front of matrices get gains of
// up to most and down to 1/most, drawn by column, and the columns that they meet are divided by them. It needs m's files.
func Uneven(m *gguf.Model, most float64, seed uint64) *gguf.Model {
	fed := map[string][]string{"attn_norm": {"attn_q", "attn_k", "attn_v"}, "ffn_norm": {"ffn_gate", "ffn_up"}}
	changed := map[string]*gguf.Tensor{}
	for l := 0; ; l++ {
		any := false
		for norm, classes := range fed {
			t := m.Tensor(fmt.Sprintf("blk.%d.%s.weight", l, norm))
			if t == nil {
				continue
			}
			any = true
			gains := make([]float32, t.Cols())
			normals(gains, 1, seed, t.Name)
			for i, v := range gains {
				u := math.Erf(float64(v) / math.Sqrt2) // even between -1 and 1
				gains[i] = float32(math.Exp2(math.Round(u * math.Log2(most))))
			}
			changed[t.Name] = times(t, gains)
			for i, g := range gains { // a power of two: nothing is rounded
				gains[i] = 1 / g
			}
			for _, c := range classes {
				if t := m.Tensor(fmt.Sprintf("blk.%d.%s.weight", l, c)); t != nil {
					changed[t.Name] = times(t, gains)
				}
			}
		}
		if !any {
			return m.With(changed)
		}
	}
}

// times is a tensor in F32 with its columns multiplied.
func times(t *gguf.Tensor, by []float32) *gguf.Tensor {
	row := make([]float32, t.Cols())
	data := make([]byte, 0, 4*t.Rows()*t.Cols())
	for r := range t.Rows() {
		quant.Decode(t.Type, row, t.Row(r))
		for c, v := range row {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v*by[c]))
		}
	}
	return &gguf.Tensor{Name: t.Name, Type: quant.F32, Shape: t.Shape, Data: data, File: -1}
}
