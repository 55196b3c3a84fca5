package inspect

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ck/internal/gguf"
	"ck/internal/linalg"
	"ck/internal/quant"
)

// A row in parts is the row, for every type that can be decoded and every slice of a tensor of three dimensions.
func TestParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16, quant.F64, quant.Q8_0, quant.Q4_K, quant.Q6_K, quant.IQ2_XS, quant.TQ1_0} {
		const cols, rows, slicesOf = 768, 3, 2
		data := make([]byte, rows*slicesOf*typ.RowBytes(cols))
		for i := range data {
			data[i] = byte(rng.Uint32()) & 0x3f // scales stay finite
		}
		m := &Model{Model: gguf.NewModel("test")}
		if err := m.Add(&gguf.Tensor{Name: "blk.1.x.weight", Type: typ, Shape: []int{cols, rows, slicesOf}, Data: data, File: -1}); err != nil {
			t.Fatal(err)
		}
		list, left, err := m.Matrices(nil)
		if err != nil || len(left) != 0 || len(list) != slicesOf {
			t.Fatalf("%v: %v, %v, %v", typ, list, left, err)
		}
		for s := range list {
			x := &list[s]
			if x.Layer != 1 || x.Class != "x" || x.Slice != s || x.Rows != rows || x.Cols != cols || !strings.HasSuffix(x.Name, "weight["+string(rune('0'+s))+"]") {
				t.Errorf("matrix %d is %+v", s, x)
			}
			for r := range rows {
				want := make([]float32, cols)
				quant.Decode(typ, want, data[(s*rows+r)*typ.RowBytes(cols):])
				got, whole, parts := make([]float32, cols), make([]float64, cols), make([]float64, cols)
				x.Reader().Row(r, got)
				x.Reader().Row64(r, whole)
				for from := 0; from < cols; from += linalg.Part {
					x.Floats().Reader()(r, from, parts[from:from+linalg.Part])
				}
				for i := range want {
					if got[i] != want[i] || float32(whole[i]) != want[i] || whole[i] != parts[i] {
						t.Fatalf("%v, matrix %d, row %d, column %d: %v, %v, %v, want %v", typ, s, r, i, got[i], whole[i], parts[i], want[i])
					}
				}
			}
		}
	}
}

// Names say class and layer.
func TestClassOf(t *testing.T) {
	for name, want := range map[string]struct {
		class string
		layer int
	}{
		"blk.3.attn_q.weight":                    {"attn_q", 3},
		"blk.12.ffn_up_exps.weight":              {"ffn_up_exps", 12},
		"blk.0.attn_q.bias":                      {"attn_q.bias", 0},
		"model.layers.7.self_attn.q_proj.weight": {"self_attn.q_proj", 7},
		"token_embd.weight":                      {"token_embd", -1},
		"output":                                 {"output", -1},
		"blk.03.attn_q.weight":                   {"blk.03.attn_q", -1},
		"blk.-1.attn_q.weight":                   {"blk.-1.attn_q", -1},
		"model.layers.7":                         {"model.layers.7", -1},
		"a.1.mlp.experts.5.down_proj.weight":     {"mlp.experts.5.down_proj", 1},
		"7.weight":                               {"7", -1},
		"":                                       {"", -1},
		"blk.99999999999999999999.attn_q.weight": {"blk.99999999999999999999.attn_q", -1},
	} {
		if class, layer := ClassOf(name); class != want.class || layer != want.layer {
			t.Errorf("%q: %q of layer %d, want %q of %d", name, class, layer, want.class, want.layer)
		}
	}
}

// Each ends with the first error and with its context, and does each piece once.
func TestEach(t *testing.T) {
	m := &Model{Model: gguf.NewModel("test")}
	var done [100]atomic.Int32
	if err := m.Each(context.Background(), len(done), 3, func(i int) error { done[i].Add(1); return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range done {
		if done[i].Load() != 1 {
			t.Errorf("piece %d was done %d times", i, done[i].Load())
		}
	}
	var begun atomic.Int32
	err := m.Each(context.Background(), 1000, 2, func(i int) error { begun.Add(1); return errors.ErrUnsupported })
	if !errors.Is(err, errors.ErrUnsupported) || begun.Load() > 2 {
		t.Errorf("%v after %d pieces", err, begun.Load())
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := m.Each(ctx, 3, 2, func(int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if list := slices.Collect(keysOf(map[string]string{"a": "b"})); len(list) != 1 {
		t.Error(list)
	}
}
