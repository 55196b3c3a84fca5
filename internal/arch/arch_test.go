package arch

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"ck/internal/graph"
	"ck/internal/step"
)

// file is a model file of two layers with 8 query heads of 16 over 4 KV heads unless its keys say otherwise; its tensors have whatever
// shapes their use asks for, so that tests see what the keys decide.
type file struct {
	keys    map[string]any
	shapes  map[string][2]int
	vectors map[string][]float32
	experts map[string]int // matrices of a tensor; 0: one
	names   []string
}

func (f file) String(k string) (string, bool, error) { return find1[string](f, k) }
func (f file) Int(k string) (int64, bool, error) {
	v, ok, err := find1[int](f, k)
	return int64(v), ok, err
}
func (f file) Float(k string) (float64, bool, error) { return find1[float64](f, k) }
func (f file) Bool(k string) (bool, bool, error)     { return find1[bool](f, k) }
func (f file) Bools(k string) ([]bool, bool, error)  { return find1[[]bool](f, k) }
func (f file) Ints(k string) ([]int64, bool, error)  { return find1[[]int64](f, k) }
func (f file) Float32s(k string) ([]float32, bool, error) {
	return find1[[]float32](f, k)
}
func (f file) Vector(name string) ([]float32, error) { return f.vectors[name], nil }
func (f file) Shape(name string) (rows, cols int, ok bool) {
	s, ok := f.shapes[name]
	return s[0], s[1], ok
}

// Tensors is nil but for tests of unread tensors: the others' files have more than is read.
func (f file) Tensors() []string { return f.names }

func (f file) Experts(name string) int {
	if _, ok := f.shapes[name]; !ok {
		return 0
	}
	return max(1, f.experts[name])
}

func find1[T any](f file, k string) (v T, ok bool, err error) {
	x, there := f.keys[k]
	v, ok = x.(T)
	if there && !ok {
		err = fmt.Errorf("%s: is a %T", k, x)
	}
	return v, ok, err
}

// mixed is small with experts, two of which are used.
func mixed(experts int) file {
	f := small(4, 24, 32).with("expert_count", experts, "expert_used_count", 2)
	f.experts = map[string]int{}
	for l := range 2 {
		b := fmt.Sprintf("blk.%d.", l)
		f.shapes[b+"ffn_gate_inp.weight"] = [2]int{experts, 128}
		for name, s := range map[string][2]int{"ffn_gate_exps": {experts * 40, 128}, "ffn_up_exps": {experts * 40, 128}, "ffn_down_exps": {experts * 128, 40}} {
			f.shapes[b+name+".weight"], f.experts[b+name+".weight"] = s, experts
		}
	}
	return f
}

// small is a file with heads of k elements for keys and v for values, over kv KV heads. Keys are all there.
func small(kv, k, v int) file {
	f := file{keys: map[string]any{"general.architecture": "llama"}, shapes: map[string][2]int{}, vectors: map[string][]float32{}}
	for key, value := range map[string]any{"embedding_length": 128, "block_count": 2, "feed_forward_length": 96, "attention.head_count": 8,
		"attention.head_count_kv": kv, "attention.key_length": k, "attention.value_length": v, "attention.layer_norm_rms_epsilon": 1e-6,
		"context_length": 512, "rope.freq_base": 5e5, "rope.dimension_count": k} {
		f.keys["llama."+key] = value
	}
	f.shapes["token_embd.weight"] = [2]int{300, 128}
	f.shapes["output_norm.weight"] = [2]int{1, 128}
	for l := range 2 {
		b := fmt.Sprintf("blk.%d.", l)
		for name, s := range map[string][2]int{"attn_norm": {1, 128}, "ffn_norm": {1, 128}, "attn_q": {8 * k, 128}, "attn_k": {kv * k, 128},
			"attn_v": {kv * v, 128}, "attn_output": {128, 8 * v}, "ffn_gate": {96, 128}, "ffn_up": {96, 128}, "ffn_down": {128, 96}} {
			f.shapes[b+name+".weight"] = s
		}
	}
	return f
}

// with is f with keys changed; nil takes one away.
func (f file) with(kv ...any) file {
	keys := map[string]any{}
	for k, v := range f.keys {
		keys[k] = v
	}
	for i := 0; i < len(kv); i += 2 {
		k := keys["general.architecture"].(string) + "." + kv[i].(string)
		if keys[k] = kv[i+1]; kv[i+1] == nil {
			delete(keys, k)
		}
	}
	f.keys = keys
	return f
}

// as is f under the name of another architecture, with further tensors of its layers: vectors of so many elements.
func (f file) as(arch string, vectors map[string]int) file {
	keys, shapes := map[string]any{}, maps.Clone(f.shapes)
	for k, v := range f.keys {
		keys[strings.Replace(k, "llama.", arch+".", 1)] = v
	}
	keys["general.architecture"] = arch
	for name, n := range vectors {
		for l := range 2 {
			shapes[fmt.Sprintf("blk.%d.%s.weight", l, name)] = [2]int{1, n}
		}
	}
	f.keys, f.shapes = keys, shapes
	return f
}

func build(t *testing.T, f file) (*graph.Graph, []string) {
	t.Helper()
	g, notes, err := Build(f)
	if err != nil {
		t.Fatal(err)
	}
	return g, notes
}

// facts is what a graph took from the keys.
type facts struct {
	Context, KV, K, V int
	Eps               float32
	Windows           [2]int
	Pairs             int // that are rotated
	Freq1             float64
	SWA1              float64    // of the second table, 0 if there is none
	Scale             float64    // of cosines and sines
	Caps              [2]float64 // of scores and logits
	Factors           [3]float32 // of the embedding, of what blocks add, of logits
}

func factsOf(g *graph.Graph) facts {
	f := facts{Context: g.Context, KV: g.Caches[0].KVHeads, K: g.Caches[0].D, V: g.Caches[0].Dv, Windows: [2]int{g.Caches[0].Window, g.Caches[1].Window},
		Pairs: len(g.Ropes[0].InvFreq), Freq1: g.Ropes[0].InvFreq[1], Scale: g.Ropes[0].Scale}
	if len(g.Ropes) > 1 {
		f.SWA1 = g.Ropes[1].InvFreq[1]
	}
	for i := range g.Steps {
		if n, ok := g.Steps[i].Op.(step.Norm); ok {
			f.Eps = n.Eps
		}
		if a, ok := g.Steps[i].Op.(step.Attend); ok {
			f.Caps[0] = a.Cap
		}
		if e, ok := g.Steps[i].Op.(step.Embed); ok {
			f.Factors[0] = e.Scale
		}
		if s, ok := g.Steps[i].Op.(step.Scale); ok {
			at := 1
			if g.Steps[i].Out[0] == g.Logits {
				at = 2
			}
			f.Factors[at] = s.By
		}
		if c, ok := g.Steps[i].Op.(step.Softcap); ok {
			f.Caps[1] = float64(c.Cap)
		}
	}
	return f
}

// Every default of the table, by a file that leaves the key out: what the graph has then, and the note that says so. A default that is
// altered, or not used, fails here.
func TestDefaults(t *testing.T) {
	whole := facts{Context: 512, KV: 4, K: 24, V: 32, Eps: 1e-6, Pairs: 12, Freq1: math.Pow(5e5, -1.0/12), Scale: 1}
	root128 := float32(math.Sqrt(128))
	granite := small(4, 24, 32).as("granite", nil)
	olmo := small(4, 24, 32).as("olmo2", olmoNorms).with("attention.sliding_window", 7, "attention.sliding_window_pattern", []bool{true, false},
		"rope.freq_base_swa", 1e4)
	gemma := small(4, 24, 32).as("gemma2", map[string]int{"post_attention_norm": 128, "post_ffw_norm": 128}).with("attention.sliding_window", 7)
	yarn := []any{"rope.scaling.type", "yarn", "rope.scaling.factor", 4.0, "rope.scaling.original_context_length", 64, "rope.scaling.yarn_beta_fast", 8.0,
		"rope.scaling.yarn_beta_slow", 2.0}
	gemma4 := small(4, 24, 32).as("gemma4", map[string]int{"post_attention_norm": 128, "post_ffw_norm": 128, "attn_q_norm": 24, "attn_k_norm": 24}).
		with("attention.sliding_window", 7, "attention.sliding_window_pattern", []bool{true, false}, "rope.freq_base_swa", 5e5, "attention.key_length_swa", 24,
			"attention.value_length_swa", 32, "rope.dimension_count_swa", 24, "attention.shared_kv_layers", 0, "embedding_length_per_layer_input", 0)
	asGemma4 := func(f *facts) { f.Factors[0], f.Windows, f.SWA1 = root128, [2]int{7, 0}, f.Freq1 }
	tested := map[string]bool{}
	for _, c := range []struct {
		name string // the key that is left out
		file file
		want func(f *facts)
		note string // what the note says is taken; "" for no note
	}{
		{"", small(4, 24, 32), func(*facts) {}, ""},
		{"context_length", small(4, 24, 32), func(f *facts) { f.Context = 2048 }, "2048"},
		{"attention.head_count_kv", small(8, 24, 32), func(f *facts) { f.KV = 8 }, "8"},
		{"attention.key_length", small(4, 16, 32), func(f *facts) { f.K, f.Pairs, f.Freq1 = 16, 8, math.Pow(5e5, -1.0/8) }, "16"},
		{"attention.value_length", small(4, 24, 24), func(f *facts) { f.V = 24 }, "24"},
		{"attention.layer_norm_rms_epsilon", small(4, 24, 32), func(f *facts) { f.Eps = 1e-5 }, "1e-05"},
		{"rope.freq_base", small(4, 24, 32), func(f *facts) { f.Freq1 = math.Pow(10000, -1.0/12) }, "10000"},
		{"rope.dimension_count", small(4, 24, 32), func(*facts) {}, "24"},
		{"rope.dimension_count", small(4, 24, 32).with("rope.dimension_count", 8), func(f *facts) { f.Pairs, f.Freq1 = 4, math.Pow(5e5, -1.0/4) }, "-"},
		{"rope.scaling.factor", small(4, 24, 32).with("rope.scaling.type", "linear"), func(*facts) {}, ""},
		{"rope.scale_linear", small(4, 24, 32), func(*facts) {}, ""},
		{"rope.scaling.type", small(4, 24, 32).with("rope.scale_linear", 4.0), func(f *facts) { f.Freq1 /= 4 }, "linear"},
		{"rope.scaling.type", small(4, 24, 32).with("rope.scaling.factor", 4.0), func(f *facts) { f.Freq1 /= 4 }, "linear"},
		{"", small(4, 24, 32).with("rope.scaling.type", "none", "rope.scaling.factor", 4.0), func(*facts) {}, ""},
		{"attention.sliding_window", small(4, 24, 32), func(*facts) {}, ""},
		{"attention.sliding_window_pattern", small(4, 24, 32).with("attention.sliding_window", 7), func(f *facts) { f.Windows = [2]int{7, 7} }, "a window in every layer"},
		{"", small(4, 24, 32).with("attention.sliding_window", 7, "attention.sliding_window_pattern", []bool{true, false}),
			func(f *facts) { f.Windows = [2]int{7, 0} }, ""},
		{"rope.scaling.original_context_length", small(4, 24, 32).with(append(yarn, "context_length", 64)...),
			func(f *facts) { f.Context = 64; yarnFacts(f, 8, 2, 64, 1) }, "64"},
		{"rope.scaling.yarn_beta_fast", small(4, 24, 32).with(yarn...), func(f *facts) { yarnFacts(f, 32, 2, 64, 1) }, "32"},
		{"rope.scaling.yarn_beta_slow", small(4, 24, 32).with(yarn...), func(f *facts) { yarnFacts(f, 8, 1, 64, 1) }, "1"},
		{"rope.scaling.yarn_attn_factor", small(4, 24, 32).with(append(yarn, "rope.scaling.attn_factor", 1.5)...), func(f *facts) { yarnFacts(f, 8, 2, 64, 1.5) }, ""},
		{"", small(4, 24, 32).with(append(yarn, "rope.scaling.yarn_attn_factor", 1.25)...), func(f *facts) { yarnFacts(f, 8, 2, 64, 1.25) }, ""},
		{"rope.scaling.attn_factor", small(4, 24, 32).with(yarn...), func(f *facts) { yarnFacts(f, 8, 2, 64, 1) }, ""},
		{"rope.scaling.yarn_ext_factor", small(4, 24, 32).with(yarn...), func(f *facts) { yarnFacts(f, 8, 2, 64, 1) }, ""},
		{"expert_count", small(4, 24, 32), func(*facts) {}, ""},
		{"expert_group_count", mixed(8), func(*facts) {}, ""},
		{"nextn_predict_layers", small(4, 24, 32), func(*facts) {}, ""},
		{"embedding_scale", granite.with("residual_scale", 0.5, "logit_scale", 4.0), func(f *facts) { f.Factors = [3]float32{1, 0.5, 0.25} }, ""},
		{"residual_scale", granite.with("embedding_scale", 3.0, "logit_scale", 4.0), func(f *facts) { f.Factors = [3]float32{3, 0, 0.25} }, ""},
		{"logit_scale", granite.with("embedding_scale", 3.0, "residual_scale", 0.5), func(f *facts) { f.Factors = [3]float32{3, 0.5, 0} }, ""},
		{"expert_group_used_count", mixed(8), func(*facts) {}, ""},
		{"attn_logit_softcapping", gemma.with("final_logit_softcapping", 7.0), func(f *facts) { f.Factors[0], f.Windows, f.Caps = root128, [2]int{7, 0}, [2]float64{50, 7} }, "50"},
		{"final_logit_softcapping", gemma.with("attn_logit_softcapping", 7.0), func(f *facts) { f.Factors[0], f.Windows, f.Caps = root128, [2]int{7, 0}, [2]float64{7, 30} }, "30"},
		{"attention.sliding_window", small(4, 24, 32).as("gemma2", map[string]int{"post_attention_norm": 128, "post_ffw_norm": 128}).
			with("attn_logit_softcapping", 7.0, "final_logit_softcapping", 8.0),
			func(f *facts) { f.Factors[0], f.Windows, f.Caps = root128, [2]int{4096, 0}, [2]float64{7, 8} }, "4096"},
		{"attention.key_length_swa", gemma4, asGemma4, ""},
		{"attention.value_length_swa", gemma4, asGemma4, ""},
		{"rope.dimension_count_swa", gemma4, asGemma4, ""},
		{"attention.shared_kv_layers", gemma4, asGemma4, ""},
		{"embedding_length_per_layer_input", gemma4, asGemma4, ""},
		{"", olmo, func(f *facts) { f.Windows, f.SWA1 = [2]int{7, 0}, math.Pow(1e4, -1.0/12) }, ""},
		{"rope.freq_base_swa", olmo, func(f *facts) { f.Windows, f.SWA1 = [2]int{7, 0}, f.Freq1 }, ""},
	} {
		f := c.file
		if c.name != "" && c.note != "-" {
			f = f.with(c.name, nil)
			tested[c.name] = true
		}
		g, notes := build(t, f)
		want := whole
		want.K, want.V = g.Caches[0].D, g.Caches[0].Dv
		c.want(&want)
		got := factsOf(g)
		if math.Abs(got.Freq1/want.Freq1-1) < 1e-12 && math.Abs(got.Scale/want.Scale-1) < 1e-12 {
			got.Freq1, got.Scale = want.Freq1, want.Scale
		}
		if got != want {
			t.Errorf("without %s: %+v, expected %+v", c.name, got, want)
		}
		text := g.Arch + "." + c.name + ": not in the file, taken as " + c.note + ": "
		if c.note != "" && c.note != "-" && (len(notes) != 1 || !strings.HasPrefix(notes[0], text)) || (c.note == "" || c.note == "-") && len(notes) > 0 {
			t.Errorf("without %s: notes %q, expected %q", c.name, notes, c.note)
		}
	}
	for _, k := range keys {
		if k.Name != "" && k.Default != nil && !tested[k.Name] {
			t.Errorf("%s has a default that is not tested", k.Name)
		}
	}
	for name := range words {
		if !tested[name] {
			t.Errorf("%s has a default that is not tested", name)
		}
	}
}

// olmoNorms are the norms of olmo2 that llama has not, for heads of small(4, 24, 32).
var olmoNorms = map[string]int{"post_attention_norm": 128, "post_ffw_norm": 128, "attn_q_norm": 8 * 24, "attn_k_norm": 4 * 24}

// Layers of olmo2 with a window turn by frequencies without scaling, those without by scaled ones.
func TestRopeByWindow(t *testing.T) {
	g, _ := build(t, small(4, 24, 32).as("olmo2", olmoNorms).with("attention.sliding_window", 7, "attention.sliding_window_pattern", []bool{true, false},
		"rope.scaling.type", "linear", "rope.scaling.factor", 8.0))
	for i := range g.Steps {
		if r, ok := g.Steps[i].Op.(step.Rotate); ok {
			want := 1 / 8.0
			if strings.HasPrefix(g.Steps[i].Name, "blk.0.") {
				want = 1
			}
			if got := g.Ropes[r.Table].InvFreq[0]; got != want {
				t.Errorf("%s: pair 0 turns by %v, expected %v", g.Steps[i].Name, got, want)
			}
		}
	}
}

// yarnFacts are pair 1 and the scale of heads of 24 with base 5e5 under yarn by 4.
func yarnFacts(f *facts, fast, slow, orig, attn float64) {
	f.Freq1 = yarnFreq(1, 24, 5e5, 4, fast, slow, orig)
	f.Scale = attn * (1 + 0.1*math.Log(4))
}

// yarnFreq is the frequency of a pair by the paper (Peng et al. 2023, section 3.2, and transformers' reading of it), written for itself.
func yarnFreq(pair, dims int, base, factor, fast, slow, orig float64) float64 {
	freq := 1 / math.Pow(base, float64(2*pair)/float64(dims))
	turnsAt := func(turns float64) float64 { // the pair that turns so often within the original context
		return float64(dims) * math.Log(orig/(2*math.Pi*turns)) / (2 * math.Log(base))
	}
	from, to := math.Max(0, math.Floor(turnsAt(fast))), math.Min(float64(dims-1), math.Ceil(turnsAt(slow)))
	if from == to {
		to += 0.001
	}
	keep := 1 - math.Min(1, math.Max(0, (float64(pair)-from)/(to-from)))
	return freq*keep + freq/factor*(1-keep)
}

// All pairs of all kinds of scaling against the formulas in float64; every parameter of yarn matters.
func TestRopeFrequencies(t *testing.T) {
	const dims, base, orig = 24, 5e5, 4096.0
	f := small(4, dims, 32)
	check := func(name string, f file, want func(i int) float64) []float64 {
		t.Helper()
		g, _ := build(t, f)
		inv := g.Ropes[0].InvFreq
		for i, v := range inv {
			if w := want(i); math.Abs(v/w-1) > 1e-12 {
				t.Errorf("%s: pair %d is %g, expected %g", name, i, v, w)
			}
		}
		return inv
	}
	plain := func(i int) float64 { return math.Exp(-2 * float64(i) / dims * math.Log(base)) }
	check("plain", f, plain)
	check("linear", f.with("rope.scaling.type", "linear", "rope.scaling.factor", 8.0), func(i int) float64 { return plain(i) / 8 })
	check("old linear", f.with("rope.scale_linear", 8.0), func(i int) float64 { return plain(i) / 8 })
	factors := small(4, dims, 32)
	factors.shapes["rope_freqs.weight"] = [2]int{1, dims / 2}
	for i := range dims / 2 {
		factors.vectors["rope_freqs.weight"] = append(factors.vectors["rope_freqs.weight"], float32(1+i))
	}
	check("llama3", factors, func(i int) float64 { return plain(i) / float64(1+i) })
	seen := [][]float64{}
	for _, p := range [][3]float64{{32, 1, orig}, {16, 1, orig}, {32, 4, orig}, {32, 1, 128}, {32, 1, 65536}, {4, 4, orig}} {
		y := f.with("rope.scaling.type", "yarn", "rope.scaling.factor", 8.0, "rope.scaling.yarn_beta_fast", p[0], "rope.scaling.yarn_beta_slow", p[1],
			"rope.scaling.original_context_length", int(p[2]))
		inv := check(fmt.Sprint("yarn ", p), y, func(i int) float64 { return yarnFreq(i, dims, base, 8, p[0], p[1], p[2]) })
		if slices.ContainsFunc(seen, func(s []float64) bool { return slices.Equal(s, inv) }) {
			t.Errorf("yarn %v gives the frequencies of other settings: the test shows nothing", p)
		}
		seen = append(seen, inv)
	}
}

// What no sound file says is refused by its key.
func TestRefuses(t *testing.T) {
	f := small(4, 24, 32)
	yarn := f.with("rope.scaling.type", "yarn", "rope.scaling.factor", 4.0)
	for want, f := range map[string]file{
		"llama.embedding_length: the key is missing":                     f.with("embedding_length", nil),
		"llama.block_count: is 0":                                        f.with("block_count", 0),
		"llama.block_count: is 1, but there is a tensor blk.1":           f.with("block_count", 1),
		"llama.attention.head_count: 8 heads cannot share 3":             f.with("attention.head_count_kv", 3),
		"llama.attention.layer_norm_rms_epsilon: is 1.5":                 f.with("attention.layer_norm_rms_epsilon", 1.5),
		"layer_norm_rms_epsilon: is too small for float32":               f.with("attention.layer_norm_rms_epsilon", 1e-60),
		"llama.rope.freq_base: is 0.5":                                   f.with("rope.freq_base", 0.5),
		"llama.rope.freq_base: is NaN":                                   f.with("rope.freq_base", math.NaN()),
		"llama.rope.freq_base: is +Inf":                                  f.with("rope.freq_base", math.Inf(1)),
		"llama.rope.dimension_count: is 7, and only pairs":               f.with("rope.dimension_count", 7),
		"llama.rope.dimension_count: is 26, but keys of layer 0 have 24": f.with("rope.dimension_count", 26),
		"llama.rope.scaling.factor: is 0":                                f.with("rope.scaling.factor", 0.0),
		"llama.rope.scale_linear: is -2":                                 f.with("rope.scale_linear", -2.0),
		`llama.rope.scaling.type: "dynamic" is not supported`:            f.with("rope.scaling.type", "dynamic"),
		"yarn_beta_fast (1) not below yarn_beta_slow (2)":                yarn.with("rope.scaling.yarn_beta_fast", 1.0, "rope.scaling.yarn_beta_slow", 2.0),
		"a freq_base (1) above 1":                                        yarn.with("rope.freq_base", 1.0),
		"llama.rope.scaling.yarn_ext_factor: is 0, and only 1":           yarn.with("rope.scaling.yarn_ext_factor", 0.0),
		"llama.context_length: is 0":                                     f.with("context_length", 0),
		"llama.vocab_size: is 299, but token_embd.weight has 300":        f.with("vocab_size", 299),
		"sliding_window_pattern: has 3 entries for 2 layers":             f.with("attention.sliding_window", 4, "attention.sliding_window_pattern", []bool{true, true, true}),
		"sliding_window_pattern: names layers with a window":             f.with("attention.sliding_window_pattern", []bool{true, false}),
		"llama.expert_count: is 8, but no layer has a tensor":            f.with("expert_count", 8),
		"llama.expert_used_count: is 0 of 8 experts":                     mixed(8).with("expert_used_count", 0),
		"llama.expert_used_count: is 9 of 8 experts":                     mixed(8).with("expert_used_count", 9),
		"llama.expert_used_count: the key is missing":                    mixed(8).with("expert_used_count", nil),
		"llama.expert_count: is 0, but there are tensors":                mixed(8).with("expert_count", 0),
		"ffn_gate_exps.weight: has 8 matrices for 4 experts":             mixed(8).with("expert_count", 4),
		"llama.expert_gating_func: is 7; ck knows 1 (softmax)":           mixed(8).with("expert_gating_func", 7),
		"3 groups do not divide 8 experts":                               mixed(8).with("expert_group_count", 3, "expert_group_used_count", 2),
		"llama.expert_group_used_count: is 5 of 4 groups":                mixed(8).with("expert_group_count", 4, "expert_group_used_count", 5),
		"llama.rope.freq_base: is a string":                              f.with("rope.freq_base", "10000"),
	} {
		if _, _, err := Build(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q in it", err, want)
		}
	}
	bad := small(4, 24, 32)
	bad.shapes["rope_freqs.weight"] = [2]int{1, 12}
	bad.vectors["rope_freqs.weight"] = append(make([]float32, 0, 12), 1, 1, float32(math.Inf(1)), 1, 1, 1, 1, 1, 1, 1, 1, 1)
	if _, _, err := Build(bad); err == nil || !strings.Contains(err.Error(), "rope_freqs.weight: factor 2 is +Inf") {
		t.Errorf("an infinite factor: %v", err)
	}
}

// What is not supported is said: by what it needs, where it is known; no architecture has a row and is lacking.
func TestUnknown(t *testing.T) {
	for name, want := range map[string]string{"mamba": "recurrent state", "deepseek2": "MLA", "gpt2": "LayerNorm", "clip": "mmproj", "gpt-9": "ck knows apertus, arcee"} {
		_, _, err := Build(file{keys: map[string]any{"general.architecture": name}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, expected %q in it", name, err, want)
		}
	}
	for name := range lacking {
		if architectures[name] != nil {
			t.Errorf("%s is supported", name)
		}
	}
}

// A tensor that the architecture knows nothing of is refused: without it the model would be another one.
func TestUnreadTensors(t *testing.T) {
	f := small(4, 24, 32).with("nextn_predict_layers", 1)
	for name := range f.shapes {
		if !strings.HasPrefix(name, "blk.1.") { // which is the layer that is left out
			f.names = append(f.names, name)
		}
	}
	sound := []string{"blk.1.nextn.eh_proj.weight", "blk.0.attn_q.input_scale"}
	for name, want := range map[string]string{"": "", "blk.0.attn_rot.weight": "", "blk.2.attn_q.weight": "", "rope_frequencies.weight": "",
		"blk.0.ffn_up.scales": "", "blk.x.weight": ""} {
		c := f
		if c.names = append(slices.Clone(f.names), sound...); name != "" {
			c.names, want = append(c.names, name, "another.weight"), "tensor "+name+", and 1 more: ck knows no such tensor in a model of architecture llama"
		}
		_, _, err := Build(c)
		switch {
		case want == "" && err != nil:
			t.Errorf("all tensors known: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("tensor %s: %v", name, err)
		}
	}
}

// A factor of a whole matrix, as files with weights of NVFP4 have, multiplies the product before the bias is added; those of experts are one each.
func TestFactorsOfMatrices(t *testing.T) {
	f := mixed(4).as("qwen3moe", map[string]int{"attn_q_norm": 24, "attn_k_norm": 24})
	f.shapes["blk.0.attn_q.scale"], f.shapes["blk.0.attn_q.bias"] = [2]int{1, 1}, [2]int{1, 8 * 24}
	f.shapes["blk.1.attn_output.scale"] = [2]int{1, 1}
	f.shapes["blk.1.ffn_up_exps.scale"], f.shapes["blk.1.ffn_down_exps.scale"] = [2]int{1, 4}, [2]int{1, 4}
	g, _ := build(t, f)
	found := map[string]string{}
	for i := range g.Steps {
		s := &g.Steps[i]
		var w []string
		for _, x := range s.W {
			w = append(w, g.Weights[x].Name)
		}
		if e, ok := s.Op.(step.Experts); ok && e.Factors {
			w = append(w, "factors")
		}
		found[s.Name] = s.Op.Kind() + " " + strings.Join(w, " ")
	}
	for name, want := range map[string]string{
		"blk.0.attn_q":             "matmul blk.0.attn_q.weight",
		"blk.0.attn_q_scaled":      "scale blk.0.attn_q.scale blk.0.attn_q.bias",
		"blk.1.attn_output_scaled": "scale blk.1.attn_output.scale",
		"blk.0.ffn_up_exps":        "experts blk.0.ffn_up_exps.weight",
		"blk.1.ffn_gate_exps":      "experts blk.1.ffn_gate_exps.weight",
		"blk.1.ffn_up_exps":        "experts blk.1.ffn_up_exps.weight blk.1.ffn_up_exps.scale factors",
		"blk.1.ffn_down_exps":      "experts blk.1.ffn_down_exps.weight blk.1.ffn_down_exps.scale factors",
	} {
		if found[name] != want {
			t.Errorf("%s: %q, want %q", name, found[name], want)
		}
	}
}

// Queries, keys and values may be one matrix in a file of any architecture.
func TestFusedProjections(t *testing.T) {
	f := small(4, 24, 32)
	for l := range 2 {
		b := fmt.Sprintf("blk.%d.attn_", l)
		delete(f.shapes, b+"q.weight")
		delete(f.shapes, b+"k.weight")
		delete(f.shapes, b+"v.weight")
		f.shapes[b+"qkv.weight"], f.shapes[b+"qkv.bias"] = [2]int{8*24 + 4*24 + 4*32, 128}, [2]int{1, 8*24 + 4*24 + 4*32}
	}
	g, _ := build(t, f)
	var got []string
	for i := range g.Steps {
		if s := &g.Steps[i]; strings.HasPrefix(s.Name, "blk.1.attn_") && s.Op.Kind() == "matmul" {
			for _, w := range s.W {
				got = append(got, fmt.Sprintf("%s %d %s", s.Name, g.Width(s.Out[0]), g.Weights[w].Label()))
			}
		}
	}
	want := []string{"blk.1.attn_q 192 blk.1.attn_qkv.weight[0:192]", "blk.1.attn_q 192 blk.1.attn_qkv.bias[0:192]",
		"blk.1.attn_k 96 blk.1.attn_qkv.weight[192:288]", "blk.1.attn_k 96 blk.1.attn_qkv.bias[192:288]",
		"blk.1.attn_v 128 blk.1.attn_qkv.weight[288:416]", "blk.1.attn_v 128 blk.1.attn_qkv.bias[288:416]", "blk.1.attn_output 128 blk.1.attn_output.weight"}
	if !slices.Equal(got, want) {
		t.Errorf("%q,\nwant %q", got, want)
	}
	f.shapes["blk.1.attn_qkv.weight"] = [2]int{415, 128}
	if _, _, err := Build(f); err == nil || !strings.Contains(err.Error(), "tensor blk.1.attn_qkv.weight: has 415 outputs, expected 416") {
		t.Error(err)
	}
}
