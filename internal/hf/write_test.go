package hf

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ck/internal/aside"
	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/safetensors"
	"ck/internal/testkit"
)

// sameModel compares two models: keys of the engine, and every row of every tensor.
func sameModel(t testing.TB, got, want *gguf.Model) {
	t.Helper()
	a, b := engineKeys(got), engineKeys(want)
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		t.Errorf("keys %v, expected %v", a, b)
	}
	for _, k := range b {
		if g, w := got.KV.Value(k), want.KV.Value(k); !reflect.DeepEqual(g, w) {
			t.Errorf("%s is %v, expected %v", k, g, w)
		}
	}
	if len(got.Tensors) != len(want.Tensors) {
		t.Errorf("%d tensors, expected %d", len(got.Tensors), len(want.Tensors))
	}
	for _, w := range want.Tensors {
		g := got.Tensor(w.Name)
		if g == nil || g.Type != w.Type || !slices.Equal(g.Shape, w.Shape) {
			t.Errorf("tensor %s: %v, expected %v %v", w.Name, g, w.Type, w.Shape)
			continue
		}
		for r := range w.Rows() {
			if !bytes.Equal(g.Row(r), w.Row(r)) {
				t.Errorf("%s: row %d differs", w.Name, r)
				break
			}
		}
	}
}

func openBoth(t testing.TB, name string) (folder string, h, g *gguf.Model) {
	folder = testkit.Data(t, "models/"+name+"/hf")
	h, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if path, ok := testkit.Lookup(t, "models/"+name+"/model.gguf"); ok {
		if g, err = gguf.Open(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
	}
	return folder, h, g
}

func reopened(t testing.TB, m *gguf.Model, o WriteOptions) (dir string, back *gguf.Model) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	if err := Write(context.Background(), dir, m, o); err != nil {
		t.Fatal(err)
	}
	back, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { back.Close() })
	return dir, back
}

// A folder that is written of a GGUF file has the weights of the folder that the file was made of, byte for byte, and means the same. So has one
// that is written of the folder itself, with its config.json or without.
func TestWriteGivesTheFolder(t *testing.T) {
	for name, class := range map[string]string{"llama-gqa": "", "llama-spm-tied": "", "stories260K": "", "mistral": "MistralForCausalLM",
		"mistral-window-hf": "", "mistral3": "",
		"mixtral": "", "qwen2": "", "qwen3": "", "trained-qwen3": "", "trained-llama-256": "", "gemma3": "", "gemma4-moe": "-", "gemma4-kv": "-"} {
		t.Run(name, func(t *testing.T) {
			folder, h, g := openBoth(t, name)
			weights, err := os.ReadFile(filepath.Join(folder, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(folder, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			typ, ok := MatrixType(h)
			if !ok {
				t.Fatal("its matrices have no type in common")
			}
			models := map[string]*gguf.Model{"folder": h}
			if g != nil {
				models["gguf"] = g
			}
			for from, m := range models {
				for _, given := range [][]byte{nil, text} {
					if given == nil && class == "-" {
						if err := Write(t.Context(), filepath.Join(t.TempDir(), "x"), m, WriteOptions{Type: typ}); err == nil || !strings.Contains(err.Error(),
							"a Gemma4ForCausalLM cannot be written from a model's metadata alone") {
							t.Errorf("without config.json: %v", err)
						}
						continue
					}
					dir, back := reopened(t, m, WriteOptions{Type: typ, Class: strings.Trim(class, "-"), Config: given})
					if b, err := os.ReadFile(filepath.Join(dir, "model.safetensors")); err != nil || !bytes.Equal(b, weights) {
						t.Errorf("of the %s, config.json given %v: other weights, %v", from, given != nil, err)
					}
					if given == nil && from == "gguf" { // GGUF's llama has no window
						back.KV.Remove("llama.attention.sliding_window")
						h := &gguf.Model{KV: h.KV.Clone(), Tensors: h.Tensors}
						h.KV.Remove("llama.attention.sliding_window")
						sameModel(t, back, h)
					} else {
						sameModel(t, back, h)
					}
				}
			}
		})
	}
}

// GGUF files without a folder: each is written as one that has its rows bit for bit and means what it says, or is refused by the name of what it is.
func TestWriteEveryArchitecture(t *testing.T) {
	for name, refused := range map[string]string{"gemma2": "", "granite": "", "llama-bias": "", "llama-rope-linear": "", "llama-rope-llama3": "",
		"llama-rope-yarn": "",
		"olmo2":           "", "phi3": "", "phi3-longrope": "", "qwen3moe": "", "gpt-oss": "a GptOssForCausalLM", "granitemoe": "a GraniteMoeForCausalLM",
		"glm4moe": "a Glm4MoeForCausalLM", "gemma4": "a Gemma4ForCausalLM", "olmo3": "olmo2.rope.freq_base_swa", "mamba": `architecture "mamba"`} {
		t.Run(name, func(t *testing.T) {
			g, err := gguf.Open(testkit.Data(t, "models/"+name+"/model.gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			typ, ok := MatrixType(g)
			if refused != "" {
				if err := Write(t.Context(), filepath.Join(t.TempDir(), "x"), g, WriteOptions{}); err == nil || !strings.Contains(err.Error(), refused) {
					t.Errorf("%v, expected %q", err, refused)
				}
				return
			}
			if !ok {
				t.Fatal("its matrices have no type in common")
			}
			_, back := reopened(t, g, WriteOptions{Type: typ})
			for _, k := range engineKeys(g) {
				if got, want := back.KV.Value(k), g.KV.Value(k); !sameValue(got, want) {
					t.Errorf("%s is %v, expected %v", k, got, want)
				}
			}
			if len(back.Tensors) != len(g.Tensors) {
				t.Errorf("%d tensors, expected %d", len(back.Tensors), len(g.Tensors))
			}
			for _, w := range g.Tensors {
				b := back.Tensor(w.Name)
				if b == nil || b.Type != w.Type || !slices.Equal(b.Shape, w.Shape) {
					t.Fatalf("%s is %v", w.Name, b)
				}
				for r := range w.Rows() {
					if !bytes.Equal(b.Row(r), w.Row(r)) {
						t.Fatalf("%s: row %d differs", w.Name, r)
					}
				}
			}
		})
	}
}

// What config.json of every class says comes back, through the metadata.
func TestConfigBack(t *testing.T) {
	of := func(class string, kv ...any) map[string]any {
		return with(small(), append([]any{"architectures", []string{class}, "rope_theta", 5e5}, kv...)...)
	}
	types := []string{"full_attention", "sliding_attention", "sliding_attention"}
	yarn := map[string]any{"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2, "truncate": false}
	gemma := []any{"num_hidden_layers", 7, "head_dim", 4, "sliding_window", 16, "query_pre_attn_scalar", 24, "rms_norm_eps", 1e-6}
	moe := []any{"num_experts_per_tok", 2, "moe_intermediate_size", 5, "num_local_experts", 3, "num_experts", 3}
	for _, c := range []map[string]any{
		of("LlamaForCausalLM"),
		of("LlamaForCausalLM", "head_dim", 6, "rms_norm_eps", 1e-6, "rope_theta", 1234567.0),
		of("LlamaForCausalLM", "rope_scaling", map[string]any{"rope_type": "llama3", "factor": 32, "low_freq_factor": 1, "high_freq_factor": 4,
			"original_max_position_embeddings": 8192}, "head_dim", 64),
		of("LlamaForCausalLM", "rope_scaling", map[string]any{"type": "linear", "factor": 2.5}),
		of("LlamaForCausalLM", "rope_scaling", yarn),
		of("LlamaForCausalLM", "rope_scaling", with(yarn, "attention_factor", 1.25)),
		of("LlamaForCausalLM", "rope_scaling", with(yarn, "attention_factor", 1.0)),
		of("MistralForCausalLM", "sliding_window", 8), of("MistralForCausalLM", "sliding_window", nil),
		of("Ministral3ForCausalLM", "sliding_window", nil, "rope_parameters", with(yarn, "mscale", 1, "mscale_all_dim", 0.5, "llama_4_scaling_beta", 0.1,
			"rope_theta", 7e5)),
		of("MixtralForCausalLM", append(moe, "sliding_window", 9)...),
		of("Qwen2ForCausalLM"), of("Qwen2ForCausalLM", "use_sliding_window", true, "sliding_window", 5, "max_window_layers", 1, "num_hidden_layers", 3),
		of("Qwen2ForCausalLM", "use_sliding_window", true, "sliding_window", 5, "max_window_layers", 0, "num_hidden_layers", 3),
		of("Qwen3ForCausalLM"), of("Qwen3ForCausalLM", "layer_types", types, "sliding_window", 6, "num_hidden_layers", 3),
		of("Qwen3MoeForCausalLM", append(moe, "norm_topk_prob", true)...), of("Qwen3MoeForCausalLM", append(moe, "norm_topk_prob", false)...),
		of("Olmo2ForCausalLM"),
		of("GraniteForCausalLM", "embedding_multiplier", 12, "residual_multiplier", 0.22, "attention_multiplier", 0.015625, "logits_scaling", 8),
		of("Gemma2ForCausalLM", gemma...), of("Gemma2ForCausalLM", append(gemma, "attn_logit_softcapping", nil, "final_logit_softcapping", 20)...),
		of("Gemma2ForCausalLM", append(gemma, "query_pre_attn_scalar", 4.7)...),
		of("Gemma3ForCausalLM", append(gemma, "rope_local_base_freq", 2e4)...),
		of("Gemma3ForCausalLM", append(gemma, "query_pre_attn_scalar", 4, "num_hidden_layers", 3, "layer_types", types, "rope_scaling",
			map[string]any{"rope_type": "linear", "factor": 8})...),
		of("Phi3ForCausalLM", "original_max_position_embeddings", 32, "sliding_window", 7, "num_hidden_layers", 2),
		of("Phi3ForCausalLM", "original_max_position_embeddings", 32, "sliding_window", nil, "head_dim", 8, "partial_rotary_factor", 0.75, "num_hidden_layers", 2,
			"rope_scaling", map[string]any{"type": "longrope", "short_factor": []float32{1, 1.1, 1.3}, "long_factor": []float32{1, 2.2, 3.3}, "attention_factor": 1.25}),
	} {
		for _, tied := range []bool{true, false} {
			c["tie_word_embeddings"] = tied
			p, err := parse(t, c)
			if err != nil {
				t.Fatalf("%v: %v", c, err)
			}
			m := bare(t, p, tied)
			back, text, err := configOf(m, p.name)
			if err != nil {
				t.Errorf("%v: %v", c, err)
				continue
			}
			kv := &gguf.Metadata{}
			back.metadata(kv)
			for _, k := range p.keys() {
				if got, want := kv.Value(k), m.KV.Value(k); !reflect.DeepEqual(got, want) {
					t.Errorf("%v\n %s is %v, expected %v\n%s", c, k, got, want, text)
				}
			}
			if len(kv.Keys()) != len(p.keys()) || back.tied() != tied {
				t.Errorf("%v: keys %v, expected %v", c, kv.Keys(), p.keys())
			}
			if !reflect.DeepEqual(back.ropeFactors(), p.ropeFactors()) {
				t.Errorf("%v: factors %v, expected %v", c, back.ropeFactors(), p.ropeFactors())
			}
			if p.arch24() && !bytes.Contains(text, []byte(`"query_pre_attn_scalar": 24,`)) {
				t.Errorf("query_pre_attn_scalar is no integer: %s", text)
			}
			if bytes.Contains(text, []byte(`"rope_theta": 500000,`)) || bytes.Contains(text, []byte("softcapping\": 0")) || bytes.Contains(text,
				[]byte(`"hidden_size": 8.0`)) {
				t.Errorf("a number of the wrong kind, which transformers refuses: %s", text)
			}
		}
	}
}

// bare is a model of that metadata, with the tensors that config.json follows from.
func bare(t testing.TB, p *config, tied bool) *gguf.Model {
	m := gguf.NewModel("m")
	p.metadata(m.KV)
	add := func(x *gguf.Tensor) {
		if err := m.Add(x); err != nil {
			t.Fatal(err)
		}
	}
	matrix := func(name string) {
		add(&gguf.Tensor{Name: name, Type: quant.F32, Shape: []int{8, 3}, Data: make([]byte, 96)})
	}
	if matrix("token_embd.weight"); !tied {
		matrix("output.weight")
	}
	for name, f := range p.ropeFactors() {
		add(vector(name, f))
	}
	if p.name == "Qwen2ForCausalLM" {
		for l := range p.layers {
			for _, s := range []string{"attn_q", "attn_k", "attn_v"} {
				add(vector("blk."+string(rune('0'+l))+"."+s+".bias", make([]float32, 8)))
			}
		}
	}
	return m
}

// arch24 reports whether the scale of scores is that of heads of 24.
func (c *config) arch24() bool {
	return slices.ContainsFunc(c.extra, func(x extra) bool { return x.key == "attention.scale" && x.value == float32(1/math.Sqrt(24)) })
}

func (c *config) keys() []string {
	kv := &gguf.Metadata{}
	c.metadata(kv)
	return kv.Keys()
}

// Every name of every class that has tensors one each goes there and back, and every recipe can be undone.
func TestEveryNameBack(t *testing.T) {
	for name, class := range classes {
		if class.takeApart != nil {
			continue
		}
		c := &config{name: name, class: class, layers: 13, heads: 3, headsKV: 3, headDim: 4, experts: 5}
		for key, to := range class.names {
			suffixes := []string{".weight", ".bias"}
			if strings.Contains(to, ".") {
				suffixes = []string{""}
			}
			for _, s := range suffixes {
				folder := strings.Replace(strings.Replace(key, "N.", "model.layers.12.", 1), ".E.", ".4.", 1) + s
				if name == "Phi3ForCausalLM" && key == "N.mlp.up_proj" {
					continue // no phi3 has it
				}
				g, _, _, err := c.rename(folder)
				if err != nil {
					t.Fatal(err)
				}
				back, stem, err := c.unname(g)
				if back = strings.Replace(back, ".E.", ".4.", 1); err != nil || back != folder || stem != to {
					t.Errorf("%s: %s is %s, and that %s, %s: %v", name, folder, g, back, stem, err)
				}
			}
		}
		for stem, change := range class.recipes {
			v := make([]float32, 12)
			for i := range v {
				v[i] = float32(i) + 0.5
			}
			x := &gguf.Tensor{Name: stem, Shape: []int{12}}
			want := slices.Clone(v)
			if err := change(c, x, v); err != nil {
				t.Fatal(err)
			}
			heads, plusOne, err := c.undo(stem, x)
			if err != nil || heads == 0 && !plusOne {
				t.Errorf("%s: %s cannot be undone: %v", name, stem, err)
			}
			if (&piece{from: x, rows: 1, heads: heads, plusOne: plusOne}).undo(v); !slices.Equal(v, want) {
				t.Errorf("%s: %s is undone as %v", name, stem, v)
			}
		}
	}
	one := 0
	for _, class := range classes {
		if class.arch != "llama" {
			one++
		}
	}
	archs := map[string]bool{}
	for _, class := range classes {
		archs[class.arch] = true
	}
	if one != len(archs)-1 {
		t.Error("two classes have an architecture but llama: choose must tell them apart")
	}
	for c := range writable {
		if classes[c].arch == "" {
			t.Errorf("%s is written, and unknown", c)
		}
	}
}

// A matrix cannot be less one, and numbers are compared as floats have them.
func TestUndoRefuses(t *testing.T) {
	c := &config{name: "Gemma3ForCausalLM", class: classes["Gemma3ForCausalLM"], layers: 1}
	if _, _, err := c.undo("attn_norm", &gguf.Tensor{Name: "blk.0.attn_norm.weight", Shape: []int{4, 2}}); err == nil || !strings.Contains(err.Error(),
		"blk.0.attn_norm.weight: 2 dimensions, expected the vector") {
		t.Errorf("a norm of two dimensions: %v", err)
	}
	c.class.recipes = map[string]recipe{"x": func(*config, *gguf.Tensor, []float32) error { return nil }}
	if _, _, err := c.undo("x", &gguf.Tensor{Name: "x", Shape: []int{4}}); err == nil || !strings.Contains(err.Error(), "cannot be undone") {
		t.Errorf("an unknown recipe: %v", err)
	}
	for _, v := range []struct {
		a, b any
		same bool
	}{{float32(0.1), 0.1, true}, {float32(0.1), 0.2, false}, {uint32(3), uint64(3), true}, {uint32(3), float32(3), true}, {int8(-1), uint8(255), false}, {"a",
		"a", true},
		{"a", uint32(1), false}, {true, true, true}, {true, false, false}, {[]bool{true}, []bool{true}, true}, {[]bool{true}, []bool{false}, false}} {
		if got := sameValue(v.a, v.b); got != v.same {
			t.Errorf("%v and %v are the same: %v", v.a, v.b, got)
		}
	}
	x := &piece{from: &gguf.Tensor{Name: "x", Shape: []int{3, 9}}}
	if err := x.encode(quant.F16, make([]byte, 12), []float32{1, 2, 3, 4, 1e6, 5}, 7, false); err == nil || !strings.Contains(err.Error(),
		"row 8 of the folder's, element 1: 1e+06") {
		t.Errorf("beyond F16: %v", err)
	}
}

// What GGUF files may leave out is what it means, and nothing else is left to chance.
func TestImplied(t *testing.T) {
	moe := with(small(), "architectures", []string{"Qwen3MoeForCausalLM"}, "num_experts", 3, "num_experts_per_tok", 2, "moe_intermediate_size", 5,
		"norm_topk_prob", true)
	gemma := with(small(), "architectures", []string{"Gemma3ForCausalLM"}, "num_hidden_layers", 7, "head_dim", 4, "sliding_window", 16, "query_pre_attn_scalar", 4)
	for _, c := range []struct {
		config map[string]any
		gone   string
		given  map[string]any // config.json that no longer fits
	}{
		{moe, "qwen3moe.expert_weights_norm", with(moe, "norm_topk_prob", false)},
		{small(), "llama.attention.key_length", nil},
		{small(), "llama.attention.value_length", nil},
		{small(), "llama.vocab_size", nil},
		{small(), "llama.rope.freq_base", with(small(), "rope_theta", 2e4)},
		{with(small(), "num_key_value_heads", 2), "llama.attention.head_count_kv", small()},
		{gemma, "gemma3.rope.freq_base_swa", with(gemma, "rope_local_base_freq", 2e4)},
		{gemma, "gemma3.attention.sliding_window_pattern", with(gemma, "layer_types", slices.Repeat([]string{"sliding_attention", "full_attention",
			"full_attention", "full_attention", "full_attention", "full_attention", "full_attention"}, 1))},
	} {
		p, err := parse(t, c.config)
		if err != nil {
			t.Fatal(err)
		}
		m := gguf.NewModel("m")
		p.metadata(m.KV)
		if err := m.Add(&gguf.Tensor{Name: "token_embd.weight", Type: quant.F32, Shape: []int{8, 3}, Data: make([]byte, 96)}); err != nil {
			t.Fatal(err)
		}
		want := m.KV.Value(c.gone)
		m.KV.Remove(c.gone)
		back, _, err := configOf(m, p.name)
		if err != nil {
			t.Errorf("without %s: %v", c.gone, err)
			continue
		}
		kv := &gguf.Metadata{}
		if back.metadata(kv); !reflect.DeepEqual(kv.Value(c.gone), want) {
			t.Errorf("without %s it is %v, expected %v", c.gone, kv.Value(c.gone), want)
		}
		if c.given == nil {
			continue
		}
		text, err := json.Marshal(c.given)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := givenConfig(m, text); err == nil || !strings.Contains(err.Error(), c.gone+": config.json means ") {
			t.Errorf("without %s, and another in config.json: %v", c.gone, err)
		}
	}
}

// The orders of rows are inverse to each other, and GGUF's is the one that Tensor.Row has.
func TestRowOrders(t *testing.T) {
	for _, c := range []struct{ heads, d int }{{1, 2}, {2, 4}, {3, 6}, {5, 8}, {1, 64}} {
		rows := c.heads * c.d
		x := &gguf.Tensor{Type: quant.I8, Shape: []int{1, rows}, Interleave: c.heads}
		for f := range rows {
			x.Data = append(x.Data, byte(f))
		}
		for r := range rows {
			if f := folderRow(r, rows, c.heads); f != int(x.Row(r)[0]) || ggufRow(f, rows, c.heads) != r {
				t.Fatalf("%d heads of %d: row %d is %d in the folder, expected %d; and back %d", c.heads, c.d, r, f, x.Row(r)[0], ggufRow(f, rows, c.heads))
			}
		}
	}
	v := []float32{0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61, 70, 71}
	g := GGUFRows(v, 2, 2)
	if want := []float32{0, 1, 20, 21, 10, 11, 30, 31, 40, 41, 60, 61, 50, 51, 70, 71}; !slices.Equal(g, want) || !slices.Equal(FolderRows(g, 2, 2), v) ||
		!slices.Equal(GGUFRows(v, 2, 0), v) {
		t.Errorf("rows %v", g)
	}
}

// Shards, a tokenizer's files, settings of sampling, tokens; and a quantized model is decoded.
func TestWriteFolderFiles(t *testing.T) {
	folder, _, g := openBoth(t, "trained-qwen3")
	kv := g.KV.Clone()
	kv.Set("general.sampling.top_k", int32(20))
	kv.Set("general.sampling.temp", float32(0.6))
	kv.Set("tokenizer.ggml.eot_token_id", uint32(7))
	m := g.With(nil)
	m.KV = kv
	var progress int64
	dir, back := reopened(t, m, WriteOptions{Type: quant.F16, MaxShardBytes: 1 << 17, Files: []string{filepath.Join(folder, "tokenizer.json")},
		Progress: func(n int64) { progress = n }})
	if len(back.Files()) < 3 {
		t.Errorf("files %v", back.Files())
	}
	for _, x := range g.Tensors {
		if b := back.Tensor(x.Name); b == nil || !bytes.Equal(b.Row(x.Rows()-1), x.Row(x.Rows()-1)) {
			t.Errorf("%s differs", x.Name)
		}
	}
	var gen map[string]any
	b, err := os.ReadFile(filepath.Join(dir, "generation_config.json"))
	if err != nil || json.Unmarshal(b, &gen) != nil || gen["top_k"] != 20.0 || gen["temperature"] != 0.6 || gen["do_sample"] != true ||
		!reflect.DeepEqual(gen["eos_token_id"], []any{381.0, 7.0}) {
		t.Errorf("%s, %v", b, err)
	}
	total := 0
	for _, f := range back.Files() {
		s, err := safetensors.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range s.Tensors {
			total += len(x.Data)
		}
		if s.Metadata["format"] != "pt" {
			t.Errorf("metadata %v", s.Metadata)
		}
		s.Close()
	}
	if int64(total) != progress {
		t.Errorf("%d bytes of tensors, %d reported", total, progress)
	}
	copied, _ := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if want, _ := os.ReadFile(filepath.Join(folder, "tokenizer.json")); len(want) == 0 || !bytes.Equal(copied, want) {
		t.Error("tokenizer.json differs")
	}
	own := filepath.Join(t.TempDir(), "generation_config.json")
	if err := os.WriteFile(own, []byte(`{"top_k": 3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	other, _ := reopened(t, m, WriteOptions{Type: quant.F16, Files: []string{own}})
	if b, err := os.ReadFile(filepath.Join(other, "generation_config.json")); err != nil || string(b) != `{"top_k": 3}` {
		t.Errorf("a given generation_config.json became %s: %v", b, err)
	}
	config, _ := os.ReadFile(filepath.Join(dir, "config.json"))
	if !strings.Contains(string(config), `"torch_dtype": "float16"`) || !strings.Contains(string(config), `"eos_token_id": 381`) {
		t.Errorf("config.json %s", config)
	}
}

// tiny is a llama of one layer with random weights, as GGUF has it.
func tiny(t testing.TB, typ quant.Type) *gguf.Model {
	p, err := parse(t, with(small(), "hidden_size", 64, "head_dim", 32, "intermediate_size", 32))
	if err != nil {
		t.Fatal(err)
	}
	m := gguf.NewModel("tiny")
	p.metadata(m.KV)
	r := rand.New(rand.NewPCG(5, 6))
	for name, shape := range map[string][]int{"token_embd.weight": {64, 3}, "output_norm.weight": {64}, "blk.0.attn_norm.weight": {64},
		"blk.0.ffn_norm.weight": {64},
		"blk.0.attn_q.weight":   {64, 64}, "blk.0.attn_k.weight": {64, 32}, "blk.0.attn_v.weight": {64, 32}, "blk.0.attn_output.weight": {64, 64},
		"blk.0.ffn_gate.weight": {64, 32}, "blk.0.ffn_up.weight": {64, 32}, "blk.0.ffn_down.weight": {32, 64}} {
		x := &gguf.Tensor{Name: name, Type: typ, Shape: shape, File: -1}
		if len(shape) == 1 {
			x.Type = quant.F32
		}
		v := make([]float32, x.Rows()*x.Cols())
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		x.Data = make([]byte, x.Type.RowBytes(len(v)))
		if err := quant.Quantize(x.Type, x.Data, v, nil); err != nil {
			t.Fatal(err)
		}
		if err := m.Add(x); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// Weights are rounded once to each type, and blocks are decoded.
func TestWriteTypes(t *testing.T) {
	for _, from := range []quant.Type{quant.F32, quant.BF16, quant.Q8_0, quant.Q4_0} {
		m := tiny(t, from)
		for _, to := range FloatTypes {
			_, back := reopened(t, m, WriteOptions{Type: to})
			for _, x := range m.Tensors {
				for r := range x.Rows() {
					v := make([]float32, x.Cols())
					quant.Decode(x.Type, v, x.Row(r))
					want := make([]byte, to.RowBytes(len(v)))
					for i, e := range v { // one by one, by the definition
						switch to {
						case quant.F32:
							binary.LittleEndian.PutUint32(want[4*i:], math.Float32bits(e))
						case quant.BF16:
							u := math.Float32bits(e)
							binary.LittleEndian.PutUint16(want[2*i:], uint16((u+0x7fff+u>>16&1)>>16))
						default:
							if err := quant.Quantize(to, want[2*i:], v[i:i+1], nil); err != nil {
								t.Fatal(err)
							}
						}
					}
					b := back.Tensor(x.Name)
					got := make([]float32, len(v))
					quant.Decode(b.Type, got, b.Row(r))
					quant.Decode(to, v, want)
					if !slices.Equal(got, v) {
						t.Fatalf("%v to %v: %s row %d is other", from, to, x.Name, r)
					}
				}
			}
		}
	}
}

// replaced is m with a tensor of other values.
func replaced(m *gguf.Model, name string, change func([]byte)) *gguf.Model {
	x := *m.Tensor(name)
	x.Data = bytes.Clone(x.Data)
	change(x.Data)
	return m.With(map[string]*gguf.Tensor{name: &x})
}

// withKey is m with another value of a key, nil for none.
func withKey(m *gguf.Model, key string, v any) *gguf.Model {
	k := m.With(nil)
	k.KV = m.KV.Clone()
	if v == nil {
		k.KV.Remove(key)
	} else {
		k.KV.Set(key, v)
	}
	return k
}

// tinyText is the config.json of tiny, with other keys.
func tinyText(t testing.TB, kv ...any) []byte {
	b, err := json.Marshal(with(with(small(), "hidden_size", 64, "head_dim", 32, "intermediate_size", 32), kv...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWriteErrors(t *testing.T) {
	m := tiny(t, quant.F32)
	set := func(v float32, at int) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[4*at:], math.Float32bits(v)) }
	}
	keyed := func(key string, v any) *gguf.Model { return withKey(m, key, v) }
	plus := func(name string, shape ...int) *gguf.Model {
		p := tiny(t, quant.F32)
		x := &gguf.Tensor{Name: name, Type: quant.F32, Shape: shape, File: -1}
		x.Data = make([]byte, 4*x.Rows()*x.Cols())
		if err := p.Add(x); err != nil {
			t.Fatal(err)
		}
		return p
	}
	text, other := tinyText(t), tinyText(t, "intermediate_size", 31)
	llama3 := tinyText(t, "rope_scaling", map[string]any{"rope_type": "llama3", "factor": 8})
	f32 := WriteOptions{Type: quant.F32}
	for want, c := range map[string]struct {
		m *gguf.Model
		o WriteOptions
	}{
		"a folder of Q8_0 is not supported":                      {m, WriteOptions{Type: quant.Q8_0}},
		"attn_q.weight: row 33 of the folder's, element 1: 7000": {replaced(m, "blk.0.attn_q.weight", set(70000, 64*(32+2)+1)), WriteOptions{Type: quant.F16}},
		"ffn_down.weight: row 0 of the folder's, element 31: is": {replaced(m, "blk.0.ffn_down.weight", set(float32(math.NaN()), 31)), f32},
		"is +Inf, and a weight must be finite":                   {replaced(m, "output_norm.weight", set(float32(math.Inf(1)), 0)), WriteOptions{Type: quant.BF16}},
		"llama.rope.surprise: is 3, and the config.json of a Ll": {keyed("llama.rope.surprise", uint32(3)), f32},
		"llama.context_length: is missing":                       {keyed("llama.context_length", nil), f32},
		"llama.context_length: is of type string":                {keyed("llama.context_length", "x"), f32},
		"general.architecture: is missing":                       {keyed("general.architecture", nil), f32},
		`architecture "mamba": writing a folder of it is not`:    {keyed("general.architecture", "mamba"), f32},
		"writing a GptOssForCausalLM as a folder is not support": {keyed("general.architecture", "gpt-oss"), f32},
		"a Glm4MoeForCausalLM cannot be written from a model's ": {keyed("general.architecture", "glm4moe"), f32},
		"a Qwen2ForCausalLM has architecture qwen2, the model's": {m, WriteOptions{Class: "Qwen2ForCausalLM"}},
		`architecture "NoSuch" is not supported`:                 {m, WriteOptions{Class: "NoSuch"}},
		"head_count: is 0, expected 1 or more":                   {keyed("llama.attention.head_count", uint32(0)), f32},
		"rope_type \"su\" is not supported":                      {keyed("llama.rope.scaling.type", "su"), f32},
		"blk.0.mystery.weight\": a LlamaForCausalLM has no such": {plus("blk.0.mystery.weight", 3), f32},
		"blk.1.attn_q.weight\": layer 1, but there are 1":        {plus("blk.1.attn_q.weight", 3), f32},
		"1 biases of attn_q, attn_k, attn_v, attn_output in 1 l": {plus("blk.0.attn_q.bias", 64), f32},
		"rope_freqs.weight: is not what rope_type llama3 makes":  {plus("rope_freqs.weight", 16), f32},
		"config.json: unexpected end of JSON input at offset 22": {m, WriteOptions{Config: []byte(`{"intermediate_size": `)}},
		"feed_forward_length: is 32, and config.json means 31":   {m, WriteOptions{Config: other}},
		"is of a LlamaForCausalLM, a MistralForCausalLM is aske": {m, WriteOptions{Config: text, Class: "MistralForCausalLM"}},
		"rope_freqs.weight: is not what config.json says of ro":  {plus("rope_freqs.weight", 16), WriteOptions{Config: llama3}},
		"rope_freqs.weight: is missing, and config.json has its": {m, WriteOptions{Config: llama3}},
		"tie_word_embeddings: is true, and the model's output.w": {plus("output.weight", 64, 3), WriteOptions{Config: text}},
		"the folder has a file of that name already":             {m, WriteOptions{Files: []string{"config.json"}}},
		"nowhere.json: no such file":                             {m, WriteOptions{Files: []string{"nowhere.json"}}},
		"shards of at most -1 bytes":                             {m, WriteOptions{MaxShardBytes: -1}},
	} {
		if want == "the folder has a file of that name already" {
			path := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			c.o.Files = []string{path}
		}
		parent := t.TempDir()
		err := Write(t.Context(), filepath.Join(parent, "out"), c.m, c.o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
		if left, _ := os.ReadDir(parent); len(left) > 0 {
			t.Errorf("%s: %v is left", want, left)
		}
	}
}

// A config.json that fits is taken, without the quantization that the weights no longer have.
func TestGivenConfig(t *testing.T) {
	m := tiny(t, quant.F32)
	dir, _ := reopened(t, m, WriteOptions{Config: tinyText(t, "quantization_config", map[string]any{"quant_method": "fp8"}, "initializer_range", 0.125)})
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil || bytes.Contains(b, []byte("quantization")) || !bytes.Contains(b, []byte(`"initializer_range": 0.125`)) {
		t.Errorf("config.json %s, %v", b, err)
	}
	if _, back := reopened(t, m, WriteOptions{Config: tinyText(t)}); back.Tensor("output.weight") != nil {
		t.Error("there is a second output")
	}
}

// A folder is there whole or not at all, and only a folder of its kind is replaced.
func TestWriteFolderWhole(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "m")
	m := tiny(t, quant.F32)
	names := func() []string {
		entries, err := os.ReadDir(parent)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := Write(ctx, dir, m, WriteOptions{Progress: func(int64) {
		cancel()
		if n := names(); len(n) != 1 || !strings.HasPrefix(n[0], ".m.") {
			t.Errorf("while it is written there are %v", n)
		}
	}})
	if !errors.Is(err, context.Canceled) || len(names()) > 0 {
		t.Errorf("interrupted: %v, left %v", err, names())
	}
	for _, left := range []string{".m.0123abcd.tmp", ".m.0123abcg.tmp", ".n.0123abcd.tmp"} { // of killed processes, and others'
		if err := os.Mkdir(filepath.Join(parent, left), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	used := filepath.Join(parent, ".m.89abcdef.tmp") // of a process that goes on
	if err := os.Mkdir(used, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(used)
	if err != nil || !aside.Lock(f) {
		t.Fatal(err)
	}
	if err := Write(t.Context(), dir, m, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(used); err != nil {
		t.Errorf("another process' folder: %v", err)
	}
	f.Close()
	if want := []string{".m.0123abcg.tmp", ".n.0123abcd.tmp", "m"}; !slices.Equal(names(), want) {
		t.Errorf("%v, expected %v", names(), want)
	}
	if err := Write(t.Context(), dir, m, WriteOptions{}); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a second time: %v", err)
	}
	extra := filepath.Join(dir, "old.txt")
	if err := os.WriteFile(extra, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), dir, m, WriteOptions{Force: true, Type: quant.BF16}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(extra); !errors.Is(err, fs.ErrNotExist) || len(names()) != 3 {
		t.Errorf("replaced: %v, %v", err, names())
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(parent, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: `has a folder "sub" in it`, home: "has no config.json", filepath.Join(home, "letter.txt"): "is no folder"} {
		if err := Write(t.Context(), path, m, WriteOptions{Force: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", path, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "letter.txt")); err != nil {
		t.Error(err)
	}
}

// Names for adapters: whole matrices with their heads.
func TestNaming(t *testing.T) {
	m := tiny(t, quant.F32)
	n, err := NewNaming(m, "")
	if err != nil || n.Class != "LlamaForCausalLM" {
		t.Fatal(n, err)
	}
	for name, want := range map[string]int{"blk.0.attn_q.weight": 2, "blk.0.attn_k.weight": 1, "blk.0.attn_v.weight": 0, "blk.0.ffn_down.weight": 0} {
		folder, heads, err := n.Folder(m.Tensor(name))
		back, err2 := n.GGUF(folder)
		if err != nil || err2 != nil || heads != want || back != name {
			t.Errorf("%s: %s with %d heads, and back %s: %v, %v", name, folder, heads, back, err, err2)
		}
	}
	if _, err := n.GGUF("model.layers.0.self_attn.x_proj.weight"); err == nil {
		t.Error("x_proj has a name")
	}
	if _, _, err := n.Folder(&gguf.Tensor{Name: "blk.0.attn_q.weight", Shape: []int{64, 63}}); err == nil || !strings.Contains(err.Error(), "2 heads of 32 rows") {
		t.Errorf("63 rows: %v", err)
	}
}

// The text of any given config.json ends in an error or a folder's plan.
func FuzzGivenConfig(tf *testing.F) {
	f := testkit.Fuzz(tf)
	m := tiny(f, quant.F32)
	f.Add(tinyText(f))
	f.Add([]byte(`{"architectures":["Gemma3ForConditionalGeneration"],"text_config":{"model_type":"gemma3_text","head_dim":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := planFolder(m, &WriteOptions{Config: b, MaxShardBytes: 1 << 40})
		if err == nil && len(p.pieces) != len(m.Tensors) {
			t.Errorf("%d of %d tensors", len(p.pieces), len(m.Tensors))
		}
	})
}

// Files that are given as texts, and what removes a folder that is not finished.
func TestWriteTexts(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "m")
	m := tiny(t, quant.F32)
	for name, want := range map[string]string{"config.json": "taken already", "generation_config.json": "taken already",
		"model.safetensors": "no name of a file",
		"../x":              "no name of a file", "b.safetensors": "no name of a file"} {
		if err := Write(t.Context(), dir, m, WriteOptions{Texts: map[string][]byte{name: nil}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	twice := WriteOptions{Texts: map[string][]byte{"a.txt": nil}, Files: []string{file}}
	if err := Write(t.Context(), dir, m, twice); err == nil || !strings.Contains(err.Error(), "of that name already") {
		t.Errorf("a name that is given twice: %v", err)
	}

	var discard func()
	told := 0
	o := WriteOptions{Texts: map[string][]byte{"tokenizer.json": []byte("{}\n")}, Begun: func(f func()) { discard = f; told++ }}
	o.Progress = func(int64) {
		discard()
		if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
			t.Errorf("discarded, and %v is there: %v", left, err)
		}
	}
	if err := Write(t.Context(), dir, m, o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that was discarded: %v", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("%v is there: %v", left, err)
	}
	o.Progress = nil
	if err := Write(t.Context(), dir, m, o); err != nil {
		t.Fatal(err)
	}
	discard() // too late: it does nothing
	if b, err := os.ReadFile(filepath.Join(dir, "tokenizer.json")); err != nil || string(b) != "{}\n" || told != 2 {
		t.Errorf("%q, %v; told %d times", b, err, told)
	}
}
