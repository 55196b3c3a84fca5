package spectrum

import (
	"errors"
	"fmt"
	"math"

	"ck/internal/isa"
	"ck/internal/quant"
)

// Leading is the largest singular values of a matrix with their vectors: Left[k] has a value for each row, Right[k]
// for each column.
type Leading struct {
	Values      []float64
	Left, Right [][]float64
}

// Coding is what a way to store a matrix costs and loses.
type Coding struct {
	Bits  float64 // per weight
	Error float64 // squared error over the energy
}

// Residual compares a matrix stored as a few vectors in F16 with a quantized rest, and the same matrix quantized
// alone.
type Residual struct {
	Rank  int
	Split Coding // vectors and rest
	Plain Coding
}

// EqualRank returns the rank whose vectors in F16, beside a rest of type rest, take the bits of the plain type; 0
// where there are none to spend.
func EqualRank(rows, cols int, rest, plain quant.Type) int {
	spare := (bitsOf(plain) - bitsOf(rest)) * float64(rows) * float64(cols)
	return max(0, min(rows, cols, int(spare/(16*float64(rows+cols)))))
}

// bitsOf is the bits of a weight.
func bitsOf(t quant.Type) float64 { return 8 * float64(t.BlockBytes()) / float64(t.BlockElems()) }

// ResidualOf stores m both ways. The vectors are l's first rank ones, each scaled by the root of its value and
// rounded to F16.
func ResidualOf(m Rows, l Leading, rank int, rest, plain quant.Type) (Residual, error) {
	r := Residual{Rank: rank}
	if rank > len(l.Values) {
		return r, fmt.Errorf("rank %d is asked for and %d leading vectors are given", rank, len(l.Values))
	}
	left, right := make([][]float32, rank), make([][]float32, rank)
	for k := range rank {
		var bad [2]error
		root := math.Sqrt(l.Values[k])
		left[k], bad[0] = half(l.Left[k], root)
		right[k], bad[1] = half(l.Right[k], root)
		if err := errors.Join(bad[:]...); err != nil {
			return r, err
		}
	}
	features := isa.Detect()
	a, err := newCoder(rest, m.Cols, features)
	if err != nil {
		return r, err
	}
	b, err := newCoder(plain, m.Cols, features)
	if err != nil {
		return r, err
	}
	row, low := make([]float32, m.Cols), make([]float32, m.Cols)
	energy := 0.0
	for i := range m.Rows {
		m.Row(i, row)
		copy(low, row)
		for k := range rank {
			for j, v := range right[k] {
				low[j] -= float32(left[k][i] * v)
			}
		}
		for _, v := range row {
			energy += float64(float64(v) * float64(v))
		}
		if err := a.add(low); err != nil {
			return r, err
		}
		if err := b.add(row); err != nil {
			return r, err
		}
	}
	vectors := 16 * float64(rank) * float64(m.Rows+m.Cols) / float64(m.Rows) / float64(m.Cols)
	r.Split, r.Plain = Coding{Bits: bitsOf(rest) + vectors}, Coding{Bits: bitsOf(plain)}
	if energy > 0 {
		r.Split.Error, r.Plain.Error = a.lost/energy, b.lost/energy
	}
	return r, nil
}

// half scales a vector and rounds it to F16.
func half(v []float64, by float64) ([]float32, error) {
	x := make([]float32, len(v))
	for i := range v {
		x[i] = float32(v[i] * by)
	}
	b := make([]byte, quant.F16.RowBytes(len(x)))
	err := quant.Quantize(quant.F16, b, x, nil)
	quant.Decode(quant.F16, x, b)
	return x, err
}

// coder quantizes rows and sums up what is lost.
type coder struct {
	typ     quant.Type
	encoder *quant.Encoder
	bytes   []byte
	back    []float32
	lost    float64
}

func newCoder(t quant.Type, cols int, f isa.Features) (*coder, error) {
	if cols%t.BlockElems() != 0 {
		return nil, fmt.Errorf("rows of %d do not divide into blocks of %s, of %d", cols, t, t.BlockElems())
	}
	c := &coder{typ: t, encoder: quant.NewEncoder(t, f)}
	c.bytes, c.back = make([]byte, t.RowBytes(cols)), make([]float32, cols)
	return c, nil
}

func (c *coder) add(row []float32) error {
	if err := c.encoder.Encode(c.bytes, row, nil); err != nil {
		return err
	}
	quant.Decode(c.typ, c.back, c.bytes)
	for j, v := range row {
		d := float64(v) - float64(c.back[j])
		c.lost += float64(d * d)
	}
	return nil
}
