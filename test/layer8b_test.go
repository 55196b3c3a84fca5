package test

import (
	"math"
	"os"
	"testing"

	"ck/internal/arch"
	"ck/internal/engine"
	"ck/internal/graph"
	"ck/internal/quant"
	"ck/internal/synth"
)

// One layer in the shape of an 8B model (hidden 4096, feed-forward 14336, 32 heads over 8, vocabulary 128256) with random weights of each
// type that has kernels, against the float64 interpreter: walks of 1, 7 and 512 rows, which must also agree with each other bit for
// bit. CK_TEST_LARGE=1 runs all types (about 8 GB of memory, minutes); else two.
func TestLayerOf8B(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	types := []quant.Type{quant.Q4_K}
	if os.Getenv("CK_TEST_LARGE") != "" {
		types = []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q5_1, quant.Q4_K, quant.Q5_K, quant.Q6_K, quant.Q2_K, quant.IQ4_XS, quant.IQ4_NL}
	}
	shape, err := synth.Find("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	shape.Layers, shape.Tied = 1, true
	ids := make([]int32, 512)
	for i := range ids {
		ids[i] = int32((i*7919 + 13) % shape.Vocab)
	}
	sample := []int32{0, 6, 301, 511}
	for _, typ := range types {
		t.Run(typ.String(), func(t *testing.T) {
			m, err := synth.Model("8b-layer", shape, typ, 5)
			if err != nil {
				t.Fatal(err)
			}
			g, _, err := arch.Build(source{m.KV, m})
			if err != nil {
				t.Fatal(err)
			}
			in := input(ids)
			in.Pick = sample
			want := graph.Interpret(g, in, weightsOf(g, m))
			for _, act := range []struct {
				f32   bool
				bound float64 // relative error; 8-bit and BF16 activations: what one layer of the reference models shows at most
			}{{true, 1e-5}, {false, map[bool]float64{true: 0.04, false: 1e-5}[typ != quant.F32 && typ != quant.F16]}} {
				if act.f32 && os.Getenv("CK_TEST_LARGE") == "" {
					continue
				}
				opt := engine.Options{F32Act: act.f32, KV: quant.F32, KVSet: true}
				got := logits(t, m, opt, ids)
				var d2, c2 float64
				for i, row := range sample {
					for j, w := range want[i] {
						d := float64(got[row][j]) - w
						d2, c2 = d2+d*d, c2+w*w
					}
				}
				rel := math.Sqrt(d2 / c2)
				t.Logf("act f32=%v: relative error %.2e over %d logits", act.f32, rel, len(sample)*shape.Vocab)
				if !(rel <= act.bound) {
					t.Errorf("act f32=%v: relative error %.2e, bound %.0e", act.f32, rel, act.bound)
				}
				for _, n := range []int{7, 1} {
					if err := sameBits(logits(t, m, opt, ids[:n]), got[:n]); err != nil {
						t.Errorf("act f32=%v: %d rows have other bits than 512: %v", act.f32, n, err)
					}
				}
			}
		})
	}
}
