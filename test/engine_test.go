package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/quant"
	"ck/internal/testkit"
	"ck/internal/topo"
)

// bf16Floor are tolerances of models whose folders have BF16 weights, but of which llama.cpp could measure no file of that type, so that the
// collection's tolerance for rounded activations is that of F16 (mistral-window-hf) or F32 (mixtral). Activations rounded to BF16 alone put the
// float64 interpreter 3.9e-3 to 5.2e-3 away (TestBF16Floor); the other BF16 models of the collection, whose tolerance was measured, allow 2.5e-2
// and 3.1e-2.
var bf16Floor = map[string]float64{"mistral-window-hf": 0.008, "mixtral": 0.008}

// way is one way to compute the same logits.
type way struct {
	threads, ubatch, homes int
}

var ways = []way{{2, 512, 1}, {1, 512, 1}, {2, 7, 1}, {2, 1, 1}, {1, 1, 1}, {3, 17, 2}}

// asNodes has an engine take the first CPU of this process for so many homes, each with a part of the weights.
func asNodes(t testing.TB, opt *engine.Options, homes int) {
	t.Helper()
	if opt.NUMA, opt.AsNodes = "", ""; homes == 1 {
		return
	}
	m, err := topo.Live()
	if err != nil {
		t.Fatal(err)
	}
	opt.NUMA, opt.AsNodes = "tp", strings.TrimSuffix(strings.Repeat(fmt.Sprint(m.Affinity[0], "/"), homes), "/")
}

// logits runs ids through a fresh engine and returns the logits of all rows.
func logits(t testing.TB, m *gguf.Model, opt engine.Options, ids []int32) [][]float32 {
	t.Helper()
	e, err := engine.Open(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	out := make([][]float32, len(ids))
	err = e.Forward(context.Background(), e.NewSeq(), ids, engine.All, func(i int, l []float32) error {
		out[i] = append([]float32(nil), l...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameBits(a, b [][]float32) error {
	for i := range a {
		for j := range a[i] {
			if math.Float32bits(a[i][j]) != math.Float32bits(b[i][j]) {
				return fmt.Errorf("row %d, logit %d: %g and %g", i, j, a[i][j], b[i][j])
			}
		}
	}
	return nil
}

// tiers lists the ISA tiers of this machine; CK_TEST_REQUIRE names the best one that the kernel's cpuinfo shows, which must be there.
func tiers(t testing.TB) []isa.Tier {
	t.Helper()
	all := isa.Available(isa.Detect())
	for _, want := range []isa.Tier{isa.AVX2, isa.AVXVNNI, isa.AVX512, isa.VNNI} {
		if !testkit.Required(want.String()) {
			continue
		}
		found := false
		for _, have := range all {
			found = found || have == want
		}
		if !found {
			t.Fatalf("CK_TEST_REQUIRE asks for tier %s, the engine finds %v", want, all)
		}
	}
	return all
}

// weightType is the type of the model's matrices: that of the first layer's projection after attention.
func weightType(m *gguf.Model) quant.Type { return m.Tensor("blk.0.attn_output.weight").Type }

// The engine's logits of every reference model agree with the exact ones, in every form of the model, on every tier; they are the same
// bits for any number of threads and any cut of the prompt, and on all tiers with fused multiply-add unless the weights are BF16.
func TestReferenceModels(t *testing.T) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			c := testkit.LoadCase(t, name)
			for form, m := range forms(t, c) {
				for _, f32 := range []bool{true, false} {
					for i := range c.Sequences {
						referenceSequence(t, c, &c.Sequences[i], form, m, f32)
					}
				}
			}
		})
	}
}

func referenceSequence(t *testing.T, c *testkit.Case, s *testkit.Sequence, form string, m *gguf.Model, f32 bool) {
	t.Helper()
	typ := weightType(m)
	var fused [][]float32
	for _, tier := range tiers(t) {
		opt := engine.Options{Tier: tier.String(), F32Act: f32, KV: quant.F32, KVSet: true}
		label := fmt.Sprintf("%s %s act f32=%v tier %s", form, s.Name, f32, tier)
		var want [][]float32
		for _, w := range ways {
			if tier == isa.Go && s.Name == "long" && w != ways[0] && w != ways[2] {
				continue // slow, and its bits are no promise across tiers
			}
			if w.homes > 1 && (f32 || tier != isa.Best(isa.Detect())) {
				continue // all tiers are in homes_test.go
			}
			opt.Threads, opt.UBatch = w.threads, w.ubatch
			asNodes(t, &opt, w.homes)
			got := logits(t, m, opt, s.IDs)
			if want == nil {
				want = got
				tol := 0.0
				if !f32 && typ == quant.BF16 {
					tol = bf16Floor[filepath.Base(c.Dir)]
				}
				if v := c.Compare(t, s, "exact", got, tol, !f32 && typ == quant.BF16); !v.OK {
					t.Errorf("%s: %s", label, v.Text)
				}
				continue
			}
			if err := sameBits(want, got); err != nil {
				t.Errorf("%s: %d threads, %d rows a walk, %d homes: %v", label, w.threads, w.ubatch, w.homes, err)
			}
		}
		if tier == isa.Go || typ == quant.BF16 && !f32 {
			continue
		}
		if fused == nil {
			fused = want
		} else if err := sameBits(fused, want); err != nil {
			t.Errorf("%s: other bits than the tier before: %v", label, err)
		}
	}
}

// GGUF and HF forms of a model give the same bits where the weights are the same numbers.
func TestFormsGiveTheSameBits(t *testing.T) {
	pairs := 0
	for _, name := range models {
		c := testkit.LoadCase(t, name)
		f := forms(t, c)
		if len(f) < 2 || weightType(f["gguf"]) != weightType(f["hf"]) {
			continue
		}
		pairs++
		for i := range c.Sequences {
			s := &c.Sequences[i]
			a, b := logits(t, f["gguf"], engine.Options{}, s.IDs), logits(t, f["hf"], engine.Options{}, s.IDs)
			if err := sameBits(a, b); err != nil {
				t.Errorf("%s %s: %v", name, s.Name, err)
			}
		}
	}
	t.Logf("%d models in both forms", pairs)
	if pairs < 5 {
		t.Errorf("only %d models have both forms of one type", pairs)
	}
}

// Quantized files: within the tolerance of the exact logits with 8-bit activations, within 1e-5 with float32 ones, and no further away
// than llama.cpp: 1.25 times its distance for each file and sequence and its KL divergence for each type, 1.05 times on the average.
//
// The divergence of a type is that of the rows of both models, 40: one rounding of an activation that falls the other way moves it, and
// on the 20 rows of one model a cache in BF16, which adds an error, has had 0.7 times the divergence of one in F32 (Q8_0). So where
// only one of the models is there, divergences are printed and not judged.
func TestQuantizedModels(t *testing.T) {
	type pair struct{ ours, peers float64 }
	divergences, types, both := map[string]pair{}, []string{}, 0
	judge := func(t *testing.T, what string, ratios []float64) {
		sort.Float64s(ratios)
		sum := 0.0
		for _, r := range ratios {
			sum += r
		}
		mean, worst := sum/float64(len(ratios)), ratios[len(ratios)-1]
		t.Logf("%d %s over llama.cpp's: mean %.3f, largest %.3f", len(ratios), what, mean, worst)
		if mean > 1.05 || worst > 1.25 {
			t.Errorf("%s: further away than llama.cpp: mean %.3f (limit 1.05), largest %.3f (limit 1.25)", what, mean, worst)
		}
	}
	for _, name := range []string{"kq-llama", "kq-qwen3"} {
		t.Run(name, func(t *testing.T) {
			c := testkit.LoadCase(t, name)
			both++
			var ratios []float64
			for _, q := range c.Quants {
				m, err := gguf.Open(filepath.Join(c.Dir, q.Type+".gguf"))
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				d, known := divergences[q.Type]
				if !known {
					types = append(types, q.Type)
				}
				for i := range c.Sequences {
					ratio, ours, peers := quantizedSequence(t, c, &c.Sequences[i], q, m)
					ratios, d = append(ratios, ratio), pair{d.ours + ours, d.peers + peers}
				}
				divergences[q.Type] = d
			}
			judge(t, "distances of files and sequences", ratios)
		})
	}
	var ratios []float64
	for _, typ := range types {
		d := divergences[typ]
		t.Logf("%s: KL divergence over llama.cpp's: %.3f", typ, d.ours/d.peers)
		ratios = append(ratios, d.ours/d.peers)
	}
	if len(ratios) > 0 && both == 2 {
		judge(t, "KL divergences of types", ratios)
	}
}

// divergence is the sum of the Kullback-Leibler divergences of the distributions that rows of logits give from those of the exact ones,
// over the rows that are kept, in nats.
func divergence(exact []float64, rows [][]float32, vocab int) (sum float64) {
	softmax := func(n int, at func(int) float64) (logs []float64) {
		most, total := math.Inf(-1), 0.0
		for i := range n {
			most = max(most, at(i))
		}
		for i := range n {
			total += math.Exp(at(i) - most)
		}
		for i := range n {
			logs = append(logs, at(i)-most-math.Log(total))
		}
		return logs
	}
	for k := range len(exact) / vocab {
		row := rows[len(rows)-len(exact)/vocab+k]
		p, q := softmax(vocab, func(i int) float64 { return exact[k*vocab+i] }), softmax(vocab, func(i int) float64 { return float64(row[i]) })
		for i := range p {
			sum += math.Exp(p[i]) * (p[i] - q[i])
		}
	}
	return sum
}

// quantizedSequence checks one file on one sequence and returns the engine's distance to the exact logits over llama.cpp's, and both KL
// divergences.
func quantizedSequence(t *testing.T, c *testkit.Case, s *testkit.Sequence, q testkit.QuantCase, m *gguf.Model) (ratio, ours, peers float64) {
	t.Helper()
	ref := q.Type + ".exact"
	var fused, fused32 [][]float32
	for _, tier := range tiers(t) {
		opt := engine.Options{Tier: tier.String(), KV: quant.F32, KVSet: true}
		opt.F32Act = true
		got32 := logits(t, m, opt, s.IDs)
		if v := c.Compare(t, s, ref, got32, 1e-5, false); !v.OK {
			t.Errorf("tier %s, float32 activations: %s", tier, v.Text)
		}
		opt.F32Act = false
		got := logits(t, m, opt, s.IDs)
		if v := c.Compare(t, s, ref, got, q.Tol, false); !v.OK {
			t.Errorf("tier %s: %s", tier, v.Text)
		}
		for _, w := range ways[1:4] {
			opt.Threads, opt.UBatch = w.threads, w.ubatch
			if tier == isa.Go && s.Name == "long" {
				continue
			}
			if err := sameBits(got, logits(t, m, opt, s.IDs)); err != nil {
				t.Errorf("tier %s, %s: %d threads, %d rows a walk: %v", tier, ref, w.threads, w.ubatch, err)
			}
		}
		if tier == isa.Go {
			continue
		}
		if fused != nil && (sameBits(fused, got) != nil || sameBits(fused32, got32) != nil) {
			t.Errorf("%s %s: tier %s has other bits than the one before", q.Type, s.Name, tier)
		}
		fused, fused32 = got, got32
	}
	peer := make([][]float32, len(s.IDs))
	v := c.Floats(t, s.Refs[q.Type+".llamacpp"])
	for i := range peer {
		peer[i] = make([]float32, c.Vocab)
		if k := i - (len(s.IDs) - s.Keep); k >= 0 {
			for j := range peer[i] {
				peer[i][j] = float32(v[k*c.Vocab+j])
			}
		}
	}
	own := logits(t, m, engine.Options{KV: quant.F32, KVSet: true}, s.IDs)
	ratio = c.Compare(t, s, ref, own, q.Tol, false).Rel / c.Compare(t, s, ref, peer, q.Tol, false).Rel
	exact := c.Floats(t, s.Refs[ref])
	return ratio, divergence(exact, own, c.Vocab), divergence(exact, peer, c.Vocab)
}

// Greedy decoding gives the published texts' ids.
func TestGreedyIDs(t *testing.T) {
	for name, file := range map[string]string{"stories260K": "expected_greedy_200.ids.json", "trained-qwen3": "expected_greedy.json"} {
		c := testkit.LoadCase(t, name)
		b, err := os.ReadFile(filepath.Join(c.Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			IDs []int32 `json:"ids"`
		}
		prompt := 1 // BOS
		if json.Unmarshal(b, &doc.IDs) != nil {
			if err := json.Unmarshal(b, &doc); err != nil {
				t.Fatal(err)
			}
			prompt = 20 // at least the start text; the tokenizer's part is checked where text is generated
		}
		m := forms(t, c)["gguf"]
		e, err := engine.Open(m, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		seq, at := e.NewSeq(), 0
		for next := doc.IDs[:prompt]; at < len(doc.IDs)-1; next = doc.IDs[at : at+1] {
			var best int32
			if err := e.Forward(context.Background(), seq, next, engine.Last, func(_ int, l []float32) error {
				for i, v := range l {
					if v > l[best] {
						best = int32(i)
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			at += len(next)
			if best != doc.IDs[at] {
				t.Fatalf("%s: id %d is %d, expected %d", name, at, best, doc.IDs[at])
			}
		}
	}
}
