package entropy

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
)

func TestBits(t *testing.T) {
	for _, c := range []struct {
		counts []int64
		want   float64
	}{{nil, 0}, {[]int64{5}, 0}, {[]int64{1, 1}, 1}, {[]int64{2, 1, 1, 0}, 1.5}, {[]int64{1, 1, 1, 1, 1, 1, 1, 1},
		3}} {
		if got := Bits(c.counts); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %g, want %g", c.counts, got, c.want)
		}
	}
}

// The parts of every type are all of its bits, and entropies are those of known distributions.
func TestOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	m := gguf.NewModel("m")
	const n = 1 << 18
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for typ := range quant.Types {
		q := quant.Type(typ)
		if !q.Known() || !q.Quantizable() || q.NeedsImatrix() {
			continue
		}
		y := x
		if q != quant.F32 && q != quant.F16 && q != quant.BF16 && q.Levels() == nil {
			y = x[:1<<13] // their quantizers are slow
		}
		b := make([]byte, q.RowBytes(len(y)))
		if err := quant.Quantize(q, b, y, nil); err != nil {
			t.Fatal(err)
		}
		if err := m.Add(&gguf.Tensor{Name: q.String(), Type: q, Shape: []int{len(y)}, Data: b,
			File: -1}); err != nil {
			t.Fatal(err)
		}
	}
	told := int64(0)
	list, err := Of(context.Background(), m, 3, func(n int64) { told = n })
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, x := range list {
		sum += x.Weights
		stored := 8 * float64(x.Type.BlockBytes()) / float64(x.Type.BlockElems())
		if math.Abs(x.Bits()-stored) > 1e-9 || x.Entropy() > x.Bits()+1e-9 || x.Entropy() <= 0 {
			t.Errorf("%v: parts of %g bits with %g of entropy, stored are %g", x.Type, x.Bits(), x.Entropy(), stored)
		}
	}
	if told != sum {
		t.Errorf("%d weights told, %d there", told, sum)
	}
	for _, x := range list {
		switch x.Type {
		case quant.BF16: // sign: 1 bit; exponents of a normal distribution: 2.55; mantissas: nearly all of 7
			if e := x.Parts[1].Entropy; e < 2.3 || e > 2.8 {
				t.Errorf("exponents of BF16: %g", e)
			}
			if e := x.Parts[2].Entropy; e < 6.9 {
				t.Errorf("mantissas of BF16: %g", e)
			}
		case quant.Q4_0: // 16 levels over a range of about 4 deviations
			if e := x.Parts[0].Entropy; e < 3.4 || e > 4 {
				t.Errorf("codes of Q4_0: %g", e)
			}
		}
	}
}
