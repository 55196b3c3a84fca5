package test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/testkit"
)

// sequenceLogits runs ids through a sequence of e in walks of many rows, of a few and of one, and returns the logits of all rows. The
// sequence is as long afterwards as it was before.
func sequenceLogits(t testing.TB, e *engine.Engine, seq int, ids []int32) [][]float32 {
	t.Helper()
	start := e.Len(seq)
	defer e.Truncate(seq, start)
	var out [][]float32
	for at, n := 0, 40; at < len(ids); at, n = at+n, max(1, n/4) {
		n = min(n, len(ids)-at)
		if err := e.Forward(context.Background(), seq, ids[at:at+n], engine.All, func(_ int, l []float32) error {
			out = append(out, append([]float32(nil), l...))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Nothing that can be left out changes a bit of the logits, neither in a variant that runs in turn with its engine nor in an engine of its
// own: on every tier, with one worker and with two, behind tokens that the other one has put into a sequence they share.
func TestAblationsKeepTheBits(t *testing.T) {
	for _, file := range []string{"trained-qwen3/model.gguf", "kq-llama/Q4_K_M.gguf"} {
		c := testkit.LoadCase(t, filepath.Dir(file))
		m, err := gguf.Open(filepath.Join(c.Dir, filepath.Base(file)))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		ids := c.Sequences[0].IDs
		for _, s := range c.Sequences {
			if len(s.IDs) > len(ids) && len(s.IDs) < 100 {
				ids = s.IDs
			}
		}
		for len(ids) < 56 {
			ids = append(ids[:len(ids):len(ids)], ids...)
		}
		ids = ids[:56]
		for _, tier := range tiers(t) {
			for threads := 1; threads <= 2; threads++ {
				ablations(t, m, engine.Options{Tier: tier.String(), Threads: threads}, fmt.Sprintf("%s, tier %s, %d workers", file, tier, threads), ids)
			}
		}
	}
}

func ablations(t *testing.T, m *gguf.Model, opt engine.Options, label string, ids []int32) {
	t.Helper()
	e, err := engine.Open(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	seq := e.NewSeq()
	before := ids[:3]
	forward := func(e *engine.Engine, seq int) {
		if err := e.Forward(context.Background(), seq, before, engine.None, nil); err != nil {
			t.Fatal(err)
		}
	}
	forward(e, seq)
	want := sequenceLogits(t, e, seq, ids)
	for _, word := range engine.AblationNames {
		off, ok := engine.ParseAblation(word)
		if !ok || off.String() != word {
			t.Fatalf("%s is %v", word, off)
		}
		v, err := e.Variant(off)
		if err != nil {
			t.Fatal(err)
		}
		own := seq
		if shares := e.SharesSequences(v); shares != (off&engine.Huge == 0) {
			t.Errorf("%s without %s: shares sequences: %v", label, word, shares)
		} else if !shares {
			own = v.NewSeq()
			forward(v, own)
		}
		if v.Packed() != (e.Packed() && off&engine.Pack == 0) {
			t.Errorf("%s without %s: packed: %v", label, word, v.Packed())
		}
		for range 3 { // panels come with use
			if err := sameBits(want, sequenceLogits(t, v, own, ids)); err != nil {
				t.Errorf("%s without %s: %v", label, word, err)
			}
			if err := sameBits(want, sequenceLogits(t, e, seq, ids)); err != nil {
				t.Errorf("%s, in turn with %s: %v", label, word, err)
			}
		}
		v.Close()
		if opt.Threads > 1 {
			continue
		}
		alone := opt
		alone.Without = off
		x, err := engine.Open(m, alone)
		if err != nil {
			t.Fatal(err)
		}
		seq := x.NewSeq()
		forward(x, seq)
		if err := sameBits(want, sequenceLogits(t, x, seq, ids)); err != nil {
			t.Errorf("%s opened without %s: %v", label, word, err)
		}
		x.Close()
	}
}

// Where panels fit once and not twice, the variant in small pages is refused, and nothing else is.
func TestVariantWithoutRoom(t *testing.T) {
	c := testkit.LoadCase(t, "trained-qwen3")
	m, err := gguf.Open(filepath.Join(c.Dir, "model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var e *engine.Engine
	for limit := m.SizeBytes(); e == nil; limit += m.SizeBytes() / 4 { // the limit bounds buffers and cache as well: until panels fit
		if limit > 16*m.SizeBytes() {
			t.Fatal("panels do not even fit once")
		}
		x, err := engine.Open(m, engine.Options{Threads: 1, MemLimit: limit})
		if noRoom := (*engine.MemoryError)(nil); errors.As(err, &noRoom) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if x.Packed() {
			e = x
		}
	}
	for _, word := range engine.AblationNames {
		off, _ := engine.ParseAblation(word)
		v, err := e.Variant(off)
		if (off == engine.Huge) != errors.Is(err, engine.ErrNoRoom) {
			t.Errorf("without %s: %v", word, err)
		}
		if err == nil {
			v.Close()
		}
	}
}
