package generate

import (
	"context"
	"errors"
	"math"
	"testing"

	"ck/internal/engine"
)

// flat is an engine whose logits are all the same.
type flat struct {
	script
	value float32
}

func (f *flat) Forward(ctx context.Context, seq int, ids []int32, want engine.Want, each func(int, []float32) error) error {
	for i := range f.logits {
		f.logits[i] = f.value
	}
	f.seqs[seq] += len(ids)
	return each(len(ids)-1, f.logits)
}

// Logits from which nothing can be drawn give an error, never a token: whatever the sampling.
func TestNothingToDraw(t *testing.T) {
	m := builtin(t)
	n := m.Tok.VocabSize()
	inf := float32(math.Inf(1))
	for _, v := range []float32{float32(math.NaN()), -inf, inf, 0} {
		for _, p := range []Params{{}, DefaultParams(), {Temp: 1}, {Temp: 1, TopP: 0.5, MinP: 0.1}} {
			e := &flat{script: script{logits: make([]float32, n)}, value: v}
			shown := 0
			res, err := m.Generate(context.Background(), e, Options{Prompt: []int32{1}, Seq: e.NewSeq(), MaxNew: 3, Sample: p}, func(Event) error {
				shown++
				return nil
			})
			if good := v == 0; errors.Is(err, errNoToken) == good || good != (shown > 0) || (res.NewTokens > 0) != good {
				t.Errorf("logits %v, %+v: %q, %v", v, p, res.Text, err)
			}
		}
	}
	s := NewSampler(Params{})
	for id := range int32(n) {
		s.Ban(id)
	}
	g := &generation{sampler: s}
	if id, err := g.draw(make([]float32, n)); err == nil {
		t.Errorf("id %d was drawn though all are banned", id)
	}
}
