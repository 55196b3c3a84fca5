package test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/synth"
)

// shared are models that homes share in different ways: with 8 slices of K; with one, so that ffn_down is cut by rows; with one KV head, so that no
// two homes are members; with experts.
func shared(t *testing.T) map[string]*gguf.Model {
	t.Helper()
	base := synth.Shape{Arch: "qwen3", Layers: 2, Hidden: 256, FFN: 2048, Heads: 16, KVHeads: 8, HeadDim: 128, Vocab: 1024, Context: 4096, RopeBase: 1e6, QKNorm: true}
	models := map[string]*gguf.Model{}
	add := func(name string, typ quant.Type, change func(*synth.Shape)) {
		s := base
		change(&s)
		m, err := synth.Model(name, s, typ, 5)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		models[name] = m
	}
	add("8 slices", quant.Q8_0, func(*synth.Shape) {})
	add("1 slice", quant.Q4_K, func(s *synth.Shape) { s.FFN, s.KVHeads = 2816, 4 })
	add("1 KV head", quant.Q4_0, func(s *synth.Shape) { s.KVHeads = 1 })
	add("BF16", quant.BF16, func(s *synth.Shape) { s.Vocab = 1000 })
	add("NVFP4", quant.NVFP4, func(s *synth.Shape) { s.Heads = 8 })
	return models
}

// story is what a sequence went through: a prompt, its end forgotten and written anew, tokens one by one, few rows together.
func story(t *testing.T, m *gguf.Model, opt engine.Options) [][]float32 {
	t.Helper()
	e, err := engine.Open(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var out [][]float32
	seq := e.NewSeq()
	forward := func(from, n int) {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32((from + 37*i) % e.Graph.Vocab)
		}
		if err := e.Forward(context.Background(), seq, ids, engine.All, func(_ int, l []float32) error {
			out = append(out, append([]float32(nil), l...))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	forward(11, 400) // dealt to members where walks have whole blocks of keys, from within a block too
	e.Truncate(seq, 133)
	forward(900, 260)
	e.Truncate(seq, 70)
	forward(500, 5)
	for i := range 3 {
		forward(i, 1)
	}
	e.Truncate(seq, 1)
	forward(3, 64)
	return out
}

// Whatever the homes, the workers at them and the rows of a walk: the bits are those of one worker.
func TestHomesKeepBits(t *testing.T) {
	for name, m := range shared(t) {
		for i, tier := range tiers(t) {
			if tier == isa.Go && name != "8 slices" {
				continue // slow
			}
			opt := engine.Options{Tier: tier.String(), Threads: 2}
			want := story(t, m, opt)
			for j, w := range []way{{2, 512, 2}, {3, 17, 2}, {7, 128, 6}, {8, 128, 8}, {5, 3, 4}, {6, 512, 3}, {5, 128, 4}, {3, 128, 2}} {
				if (i+j)%4 != 0 { // each somewhere
					continue
				}
				opt.Threads, opt.UBatch, opt.NoPack = w.threads, w.ubatch, j == 4
				asNodes(t, &opt, w.homes)
				if j%2 == 1 {
					opt.NUMA = "mirror"
				}
				if err := sameBits(want, story(t, m, opt)); err != nil {
					t.Errorf("%s, tier %s, %+v, %s: %v", name, tier, w, opt.NUMA, err)
				}
			}
		}
	}
}

// Members meet twice a layer where attn_output and ffn_down have as many slices as there are members, and once more where one of them has not.
func TestMeetings(t *testing.T) {
	const layers = 2
	for name, m := range shared(t) {
		for _, homes := range []int{2, 4, 8} {
			for _, each := range []int{1, 3} {
				opt := engine.Options{Threads: homes * each, Prove: true}
				asNodes(t, &opt, homes)
				e, err := engine.Open(m, opt)
				if err != nil {
					t.Fatal(err)
				}
				p, err := e.Plan(plan.One)
				if err != nil {
					t.Fatal(err)
				}
				want := 2 * layers
				if name == "1 slice" || name == "NVFP4" && homes == 8 { // whose attn_output has 1024 columns, 4 slices
					want = 3 * layers
				}
				if n := p.Meetings(); p.Homes.Members > 1 && n[plan.All] != want || (p.Homes.Members == 1) != (name == "1 KV head") {
					t.Errorf("%s, %d homes of %d workers: %v: %d meetings of all, expected %d", name, homes, each, p.Homes, n[plan.All], want)
				}
				var b strings.Builder
				if err := e.Explain(&b, plan.One); err != nil || !strings.Contains(b.String(), fmt.Sprintf("%d members of %d places", p.Homes.Members, p.Homes.Places)) {
					t.Errorf("%s: %v: %s", name, err, b.String())
				}
				e.Close()
			}
		}
	}
}

// Prompts whose rows are dealt read half of the weights at the other member's home; with mirror none, once all panels are packed.
func TestMirror(t *testing.T) {
	m := shared(t)["8 slices"]
	for mode, far := range map[string]float64{"tp": 0.5, "mirror": 0} {
		opt := engine.Options{Threads: 2, UBatch: 128}
		asNodes(t, &opt, 2)
		opt.NUMA = mode
		e, err := engine.Open(m, opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Pack(context.Background()); err != nil {
			t.Fatal(err)
		}
		if !e.Packed() || e.Packing() {
			t.Errorf("%s: not all is packed", mode)
		}
		ids := make([]int32, 256)
		if err := e.Forward(context.Background(), e.NewSeq(), ids, engine.None, nil); err != nil {
			t.Fatal(err)
		}
		if p := e.Moves().Prompts; p.Near == 0 || math.Abs(float64(p.Far)/float64(p.Near+p.Far)-far) > 0.01 {
			t.Errorf("%s: prompts read %d bytes at their home, %d at others", mode, p.Near, p.Far)
		}
		e.Close()
	}
}
