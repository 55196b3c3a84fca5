package imatrix

import (
	"context"
	"slices"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/quant"
)

// coarse is a tensor in Q4_0, or as it is where that does not fit.
func coarse(t *testing.T, from *gguf.Tensor) *gguf.Tensor {
	if len(from.Shape) < 2 || from.Cols()%32 != 0 {
		return from
	}
	x := make([]float32, from.Rows()*from.Cols())
	quant.Decode(from.Type, x, from.Data)
	b := make([]byte, from.Rows()*quant.Q4_0.RowBytes(from.Cols()))
	for r := range from.Rows() {
		if err := quant.Quantize(quant.Q4_0, b[r*quant.Q4_0.RowBytes(from.Cols()):][:quant.Q4_0.RowBytes(from.Cols())],
			x[r*from.Cols():][:from.Cols()], nil); err != nil {
			t.Fatal(err)
		}
	}
	return &gguf.Tensor{Name: from.Name, Type: quant.Q4_0, Shape: from.Shape, Data: b, File: -1}
}

// The covariances of each layer are, bit for bit, those that the whole model gives whose earlier layers have
// been changed, for any number of threads; a model that stays as it is gives others.
func TestLayers(t *testing.T) {
	m, tok, text := stories(t)
	opt := Options{Block: 32}
	blocks, err := BlocksOf(tok, text, opt)
	if err != nil {
		t.Fatal(err)
	}
	wanted := func(name string) bool {
		return strings.HasSuffix(name, "attn_v.weight") || strings.HasSuffix(name, "ffn_down.weight")
	}
	opt.Covariance = wanted
	original := collect(t, open(t, m, engine.Options{Threads: 2}), tok, text, opt)
	for _, threads := range []int{1, 3} {
		changed := map[string]*gguf.Tensor{}
		before := map[string]*gguf.Tensor{}
		stage, compared := 0, 0
		l := &Layers{Model: m, Wanted: wanted}
		l.Open = func(m *gguf.Model, g *graph.Graph) (*engine.Engine, error) {
			return engine.OpenGraph(m, g, engine.Options{Threads: threads, KV: quant.F32, KVSet: true})
		}
		l.Change = func(_ context.Context, from *gguf.Tensor, h []float64) (*gguf.Tensor, error) {
			changed[from.Name] = coarse(t, from)
			if h == nil {
				return changed[from.Name], nil
			}
			compared++
			if !strings.HasPrefix(from.Name, "blk.0.") && slices.Equal(h, original.Find(from.Name).Covariance) {
				t.Errorf("%s: the covariance is that of the original model", from.Name)
			}
			// The plain way: the whole model, its earlier layers replaced.
			e := open(t, m.With(before), engine.Options{Threads: 2})
			if plain := collect(t, e, tok, text, opt); !slices.Equal(h, plain.Find(from.Name).Covariance) {
				t.Errorf("%d threads, %s: another covariance than the whole model gives", threads, from.Name)
			}
			return changed[from.Name], nil
		}
		if err := l.Begin(open(t, m, engine.Options{Threads: 1}).Graph, blocks); err != nil {
			t.Fatal(err)
		}
		if l.Stages() != 7 || l.StageOf("token_embd.weight") != 0 || l.StageOf("blk.3.ffn_up.weight") != 4 ||
			l.StageOf("output_norm.weight") != 6 {
			t.Errorf("%d stages", l.Stages())
		}
		for ; l.Next() < l.Stages(); stage++ {
			if err := l.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
			for name, x := range changed {
				before[name] = x
			}
		}
		if stage != 7 || compared != 10 {
			t.Errorf("%d stages, %d covariances", stage, compared)
		}
	}
}
