package entropy

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// tensor is a model of one tensor of random weights of a type, whose values scale gives.
func tensor(t *testing.T, typ quant.Type, rows, cols int, value func(i int) float32) (*gguf.Model, *gguf.Tensor) {
	t.Helper()
	row, data := make([]float32, cols), make([]byte, rows*typ.RowBytes(cols))
	for r := range rows {
		for c := range row {
			row[c] = value(r*cols + c)
		}
		if err := quant.Quantize(typ, data[r*typ.RowBytes(cols):][:typ.RowBytes(cols)], row, nil); err != nil {
			t.Fatal(err)
		}
	}
	m := gguf.NewModel("test")
	x := &gguf.Tensor{Name: "x", Type: typ, Shape: []int{cols, rows}, Data: data, File: -1}
	if err := m.Add(x); err != nil {
		t.Fatal(err)
	}
	return m, x
}

// The histogram is that of the definition, the parts are those of Of, and the coder reaches the entropy but for what its
// tables take; nothing depends on the number of workers.
func TestFull(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_K, quant.Q6_K, quant.IQ4_NL} {
		const rows, cols = 1500, 1024
		m, x := tensor(t, typ, rows, cols, func(int) float32 { return float32(0.02 * rng.NormFloat64()) })
		var first Full
		for _, workers := range []int{1, 2, 5} {
			f, err := FullOf(context.Background(), m, x, workers)
			if err != nil {
				t.Fatal(err)
			}
			if workers == 1 {
				first = f
			}
			if !reflect.DeepEqual(f, first) {
				t.Errorf("%v, %d workers: other figures", typ, workers)
			}
		}
		all, err := Of(context.Background(), m, 2, func(int64) {})
		if err != nil || !reflect.DeepEqual(all[0], first.Tensor) {
			t.Errorf("%v: parts %+v, want %+v, %v", typ, first.Tensor, all[0], err)
		}
		want := HistogramBits(rows, cols, func(i int, dst []float32) { quant.Decode(typ, dst, x.Row(i)) })
		if first.Histogram != want || want < 5 || want > 8 {
			t.Errorf("%v: %v bits in 256 bins, want %v", typ, first.Histogram, want)
		}
		if first.Coded > first.Bits()*1.001 || first.Coded < first.Entropy()-0.05 /* its scales have a table a byte */ || typ == quant.BF16 && first.Coded > first.Entropy()+0.15 {
			t.Errorf("%v: coded in %v bits, entropy %v of %v", typ, first.Coded, first.Entropy(), first.Bits())
		}
		for _, p := range first.Parts {
			if typ == quant.BF16 && p.Name == "exponent" && math.Abs(p.Entropy-2.55) > 0.06 {
				t.Errorf("exponents of Gaussian weights carry %v bits, published figures say 2.6", p.Entropy)
			}
			if p.Name == "sign" && math.Abs(p.Entropy-1) > 1e-3 {
				t.Errorf("%v: signs carry %v bits", typ, p.Entropy)
			}
		}
	}
}

// Parts are counted from the bits that the format gives them: one changed at a time is one part's.
func TestFloatParts(t *testing.T) {
	for _, c := range []struct {
		typ       quant.Type
		bytes     int
		parts     []string
		positions [][2]int // bits of each, from the lowest
	}{
		{quant.F32, 4, []string{"sign", "exponent", "mantissa, upper", "mantissa, lower"}, [][2]int{{31, 32}, {23, 31}, {16, 23}, {0, 16}}},
		{quant.F16, 2, []string{"sign", "exponent", "mantissa"}, [][2]int{{15, 16}, {10, 15}, {0, 10}}},
		{quant.BF16, 2, []string{"sign", "exponent", "mantissa"}, [][2]int{{15, 16}, {7, 15}, {0, 7}}},
	} {
		for k, name := range c.parts {
			for bit := c.positions[k][0]; bit < c.positions[k][1]; bit++ {
				data := make([]byte, 4*c.bytes)
				for i := range 2 { // half of four elements have the bit
					var word [4]byte
					binary.LittleEndian.PutUint32(word[:], 1<<bit)
					copy(data[2*i*c.bytes:], word[:c.bytes])
				}
				m := gguf.NewModel("test")
				if err := m.Add(&gguf.Tensor{Name: "x", Type: c.typ, Shape: []int{4}, Data: data, File: -1}); err != nil {
					t.Fatal(err)
				}
				list, err := Of(context.Background(), m, 1, func(int64) {})
				if err != nil {
					t.Fatal(err)
				}
				for i, p := range list[0].Parts {
					want := 0.0
					if i == k {
						want = 1
					}
					if p.Entropy != want || p.Name != c.parts[i] {
						t.Errorf("%v, bit %d, which is of the %s: part %s carries %v", c.typ, bit, name, p.Name, p.Entropy)
					}
				}
			}
		}
	}
}
