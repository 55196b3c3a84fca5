package hf

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// pairs are the models that exist in both forms, with the keys that only Open sets: those of the window that GGUF's llama lacks, and
// lengths that the converter leaves to their defaults.
var pairs = map[string][]string{
	"llama-gqa":      nil,
	"llama-spm-tied": nil,
	"stories260K":    nil,
	"mistral":        {"llama.attention.sliding_window"},
	"qwen2":          {"qwen2.attention.key_length", "qwen2.attention.value_length", "qwen2.rope.dimension_count", "qwen2.vocab_size"},
	"qwen3":          {"qwen3.rope.dimension_count", "qwen3.vocab_size"},
	"trained-qwen3":  {"qwen3.rope.dimension_count", "qwen3.vocab_size"},
}

// engineKeys are the keys of a model but for tokenizer and descriptions.
func engineKeys(m *gguf.Model) []string {
	return slices.DeleteFunc(m.KV.Keys(), func(k string) bool {
		return strings.HasPrefix(k, "tokenizer.") || strings.HasPrefix(k, "general.") && k != "general.architecture" && k != "general.file_type"
	})
}

// A folder and the GGUF file that the converter made of it are the same model, bit by bit.
func TestSameAsConverted(t *testing.T) {
	for name, extra := range pairs {
		t.Run(name, func(t *testing.T) {
			h, err := Open(testkit.Data(t, "models/"+name+"/hf"))
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			g, err := gguf.Open(testkit.Data(t, "models/"+name+"/model.gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			for _, k := range engineKeys(g) {
				if got, want := h.KV.Value(k), g.KV.Value(k); got != want {
					t.Errorf("%s is %T %v, the converter wrote %T %v", k, got, got, want, want)
				}
			}
			more := slices.DeleteFunc(engineKeys(h), func(k string) bool { return g.KV.Value(k) != nil })
			slices.Sort(more)
			if !slices.Equal(more, extra) {
				t.Errorf("keys beyond the converter's: %v, expected %v", more, extra)
			}
			if len(h.Tensors) != len(g.Tensors) {
				t.Errorf("%d tensors, the converter wrote %d", len(h.Tensors), len(g.Tensors))
			}
			for _, want := range g.Tensors {
				got := h.Tensor(want.Name)
				if got == nil || got.Type != want.Type || !slices.Equal(got.Shape, want.Shape) {
					t.Errorf("tensor %v, the converter wrote %s %v %v", got, want.Name, want.Type, want.Shape)
					continue
				}
				for r := range want.Rows() {
					if string(got.Row(r)) != string(want.Row(r)) {
						t.Errorf("%s: row %d differs", want.Name, r)
						break
					}
				}
			}
		})
	}
}

// Weights stay in the file's mapping.
func TestNoCopies(t *testing.T) {
	m, err := Open(testkit.Data(t, "models/llama-spm-tied/hf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := os.ReadFile(m.Files()[0])
	if err != nil {
		t.Fatal(err)
	}
	mapped := 0
	for _, x := range m.Tensors {
		if x.File < 0 {
			if len(x.Shape) != 1 {
				t.Errorf("%s was copied", x.Name)
			}
			continue
		}
		mapped++
		if string(b[x.Offset:][:len(x.Data)]) != string(x.Data) {
			t.Errorf("%s: Offset does not lead to its bytes", x.Name)
		}
	}
	if mapped != 15 || m.SizeBytes() != int64(len(b)) {
		t.Errorf("%d tensors mapped, expected 15; %d bytes, expected %d", mapped, m.SizeBytes(), len(b))
	}
	if q := m.Tensor("blk.1.attn_q.weight"); q.Interleave != 8 {
		t.Errorf("attn_q has Interleave %d, expected its 8 heads", q.Interleave)
	}
}

func TestMistralWindow(t *testing.T) {
	m, err := Open(testkit.Data(t, "models/mistral-window-hf/hf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	arch, _, _ := m.KV.String("general.architecture")
	w, ok, _ := m.KV.Int("llama.attention.sliding_window")
	if arch != "llama" || w != 48 || !ok || m.KV.Value("llama.attention.sliding_window_pattern") != nil {
		t.Errorf("architecture %s, window %d", arch, w)
	}
	if m.Tensor("output.weight") == nil {
		t.Error("no output.weight, the model is untied")
	}
}

// A class that the table lacks is named in the error.
func TestUnknownClass(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"architectures": ["BloomForCausalLM"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "BloomForCausalLM") || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("%v, expected config.json and BloomForCausalLM in it", err)
	}
}

// small is a config of one layer, 2 query heads and 1 key head of 4.
func small() map[string]any {
	return map[string]any{"architectures": []string{"LlamaForCausalLM"}, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1,
		"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "vocab_size": 3, "rms_norm_eps": 1e-5,
		"tie_word_embeddings": true}
}

func with(c map[string]any, kv ...any) map[string]any {
	c = maps.Clone(c)
	for i := 0; i < len(kv); i += 2 {
		c[kv[i].(string)] = kv[i+1]
	}
	return c
}

func parse(t testing.TB, c map[string]any) (*config, error) {
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return parseConfig(b)
}

func metadata(t testing.TB, c map[string]any) *gguf.Metadata {
	p, err := parse(t, c)
	if err != nil {
		t.Fatal(err)
	}
	kv := &gguf.Metadata{}
	p.metadata(kv)
	return kv
}

func TestRopeScaling(t *testing.T) {
	type keys map[string]any
	const p = "llama.rope.scaling."
	yarn := map[string]any{"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 64}
	for _, c := range []struct {
		config map[string]any
		want   keys
	}{
		{small(), keys{"llama.rope.freq_base": float32(10000)}},
		{with(small(), "rope_theta", 5e5), keys{"llama.rope.freq_base": float32(5e5)}},
		{with(small(), "rope_parameters", map[string]any{"rope_theta": 7.0, "rope_type": "default"}), keys{"llama.rope.freq_base": float32(7)}},
		{with(small(), "rope_theta", 9.0, "rope_scaling", map[string]any{"type": "linear", "factor": 4.0}),
			keys{"llama.rope.freq_base": float32(9), p + "type": "linear", p + "factor": float32(4)}},
		{with(small(), "rope_scaling", yarn),
			keys{"llama.rope.freq_base": float32(10000), p + "type": "yarn", p + "factor": float32(8), p + "original_context_length": uint32(64)}},
		{with(small(), "rope_scaling", map[string]any{"type": "yarn", "factor": 2}), // the context is transformers' default
			keys{"llama.rope.freq_base": float32(10000), p + "type": "yarn", p + "factor": float32(2), p + "original_context_length": uint32(64)}},
		{with(small(), "rope_scaling", with(yarn, "beta_fast", 16, "beta_slow", 2, "attention_factor", 1)),
			keys{"llama.rope.freq_base": float32(10000), p + "type": "yarn", p + "factor": float32(8), p + "original_context_length": uint32(64),
				p + "yarn_beta_fast": float32(16), p + "yarn_beta_slow": float32(2), p + "yarn_attn_factor": float32(1 / (1 + 0.1*math.Log(8)))}},
		{with(small(), "rope_scaling", with(yarn, "mscale", 1, "mscale_all_dim", 1)),
			keys{"llama.rope.freq_base": float32(10000), p + "type": "yarn", p + "factor": float32(8), p + "original_context_length": uint32(64),
				p + "yarn_attn_factor": float32(1 / (1 + 0.1*math.Log(8)))}},
		{with(small(), "rope_scaling", map[string]any{"rope_type": "llama3", "factor": 8}), keys{"llama.rope.freq_base": float32(10000)}},
	} {
		kv, got := metadata(t, c.config), keys{}
		for _, k := range kv.Keys() {
			if strings.HasPrefix(k, "llama.rope.") && k != "llama.rope.dimension_count" {
				got[k] = kv.Value(k)
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v\n gives %v\nexpected %v", c.config, got, c.want)
		}
	}
}

// The converter's own files with scaled rotations: what Open makes of the configurations that they say they come from.
func TestRopeScalingAsConverted(t *testing.T) {
	for name, scaling := range map[string]map[string]any{
		"llama-rope-linear": {"rope_type": "linear", "factor": 4.0},
		"llama-rope-yarn":   {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64},
	} {
		g, err := gguf.Open(testkit.Data(t, "models/"+name+"/model.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		kv := metadata(t, with(small(), "rope_scaling", scaling))
		n := 0
		for _, k := range g.KV.Keys() {
			if strings.Contains(k, ".rope.scaling.") {
				n++
				if got, want := kv.Value(k), g.KV.Value(k); got != want {
					t.Errorf("%s: %s is %T %v, the converter wrote %T %v", name, k, got, got, want, want)
				}
			}
		}
		if n < 2 {
			t.Errorf("%s has %d keys of rope scaling", name, n)
		}
	}
}

// The factors of llama3 have the very bits that the converter computed.
func TestRopeFactorsAsConverted(t *testing.T) {
	g, err := gguf.Open(testkit.Data(t, "models/llama-rope-llama3/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	want := g.Tensor("rope_freqs.weight")
	c := with(small(), "head_dim", 32, "rope_parameters", map[string]any{"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0,
		"original_max_position_embeddings": 64, "low_freq_factor": 1.0, "high_freq_factor": 4.0})
	tensors := map[string]stored{"model.embed_tokens.weight": {"BF16", []int{3, 8}, bf16(make([]float32, 24)...)}}
	m, err := Open(folder(t, c, tensors))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	got := m.Tensor("rope_freqs.weight")
	if got == nil || got.Type != want.Type || !slices.Equal(got.Shape, want.Shape) || string(got.Data) != string(want.Data) {
		t.Errorf("rope_freqs.weight is %v, the converter computed %v", got, floats(want.Data))
	}
}

func TestWindows(t *testing.T) {
	qwen := with(small(), "architectures", []string{"Qwen2ForCausalLM"}, "num_hidden_layers", 3, "sliding_window", 16, "max_window_layers", 2)
	mistral := with(small(), "architectures", []string{"MistralForCausalLM"}, "num_hidden_layers", 3, "sliding_window", 16)
	types := []string{"sliding_attention", "full_attention", "sliding_attention"}
	for _, c := range []struct {
		config  map[string]any
		window  any
		pattern any
	}{
		{with(small(), "sliding_window", 16), nil, nil}, // llama has none
		{mistral, uint32(16), nil},
		{with(mistral, "sliding_window", nil), nil, nil},
		{qwen, nil, nil},
		{with(qwen, "use_sliding_window", true), uint32(16), []bool{false, false, true}},
		{with(qwen, "use_sliding_window", true, "max_window_layers", 0), uint32(16), nil},
		{with(qwen, "use_sliding_window", true, "max_window_layers", 3), nil, nil},
		{with(qwen, "layer_types", types), uint32(16), []bool{true, false, true}},
	} {
		kv := metadata(t, c.config)
		arch, _, _ := kv.String("general.architecture")
		window, pattern := kv.Value(arch+".attention.sliding_window"), kv.Value(arch+".attention.sliding_window_pattern")
		if window != c.window || !reflect.DeepEqual(pattern, c.pattern) {
			t.Errorf("%v\n gives window %v, pattern %v, expected %v, %v", c.config, window, pattern, c.window, c.pattern)
		}
	}
}

// What config.json leaves out, and null, gets the value of package arch's table, with a note. Zero is not nothing.
func TestConfigDefaults(t *testing.T) {
	qwen := with(small(), "architectures", []string{"Qwen2ForCausalLM"}, "num_hidden_layers", 30, "use_sliding_window", true)
	llama3 := map[string]any{"rope_type": "llama3", "factor": 8.0}
	for _, c := range []struct {
		config map[string]any
		notes  []string // key and value
		want   map[string]any
	}{
		{with(small(), "num_key_value_heads", nil), []string{"num_key_value_heads 2", "head_dim 4", "rope_theta 10000"}, map[string]any{"attention.head_count_kv": uint32(2)}},
		{with(small(), "head_dim", 6), []string{"rope_theta 10000"}, map[string]any{"attention.key_length": uint32(6), "attention.value_length": uint32(6), "rope.dimension_count": uint32(6)}},
		{small(), []string{"head_dim 4", "rope_theta 10000"}, map[string]any{"attention.key_length": uint32(4), "rope.freq_base": float32(10000)}},
		{with(small(), "rope_scaling", llama3), []string{"head_dim 4", "rope_theta 10000", "original_max_position_embeddings 8192", "low_freq_factor 1", "high_freq_factor 4"}, nil},
		{with(small(), "rope_scaling", map[string]any{"type": "yarn", "factor": 2.0}), []string{"head_dim 4", "rope_theta 10000", "original_max_position_embeddings 64"},
			map[string]any{"rope.scaling.original_context_length": uint32(64)}},
		{qwen, []string{"head_dim 4", "rope_theta 10000", "sliding_window 4096", "max_window_layers 28"}, map[string]any{"attention.sliding_window": uint32(4096)}},
		{with(small(), "architectures", []string{"MistralForCausalLM"}), []string{"head_dim 4", "rope_theta 10000", "sliding_window 4096"},
			map[string]any{"attention.sliding_window": uint32(4096)}},
		{with(small(), "architectures", []string{"MistralForCausalLM"}, "sliding_window", nil), []string{"head_dim 4", "rope_theta 10000"},
			map[string]any{"attention.sliding_window": nil}},
	} {
		p, err := parse(t, c.config)
		if err != nil {
			t.Errorf("%v: %v", c.config, err)
			continue
		}
		var notes []string
		for _, n := range p.notes {
			key, rest, _ := strings.Cut(strings.TrimPrefix(n, "config.json: "), ": is missing, taken as ")
			value, why, _ := strings.Cut(rest, ": ")
			if notes = append(notes, key+" "+value); why == "" {
				t.Errorf("%q does not say why", n)
			}
		}
		if !slices.Equal(notes, c.notes) {
			t.Errorf("%v\n notes %q, expected %q", c.config, notes, c.notes)
		}
		kv := &gguf.Metadata{}
		p.metadata(kv)
		for k, v := range c.want {
			if got := kv.Value(p.class.arch + "." + k); got != v {
				t.Errorf("%v\n %s is %v, expected %v", c.config, k, got, v)
			}
		}
	}
	p, err := parse(t, with(small(), "rope_scaling", llama3))
	if f := p.ropeFactors()["rope_freqs.weight"]; err != nil || f[0] != 1 || p.original != 8192 || p.lowFreq != 1 || p.highFreq != 4 {
		t.Errorf("llama3: %v, %v", f, err)
	}
	for _, key := range []string{"num_key_value_heads", "head_dim", "rope_theta", "max_position_embeddings", "rms_norm_eps", "vocab_size", "partial_rotary_factor"} {
		if _, err := parse(t, with(small(), key, 0)); err == nil || !strings.Contains(err.Error(), key+": is 0") {
			t.Errorf("%s of 0: %v", key, err)
		}
	}
}

// What Gemma2ForCausalLM says of its own: caps of scores and logits, the scale of queries, a window in every other layer.
func TestGemma2Keys(t *testing.T) {
	gemma := with(small(), "architectures", []string{"Gemma2ForCausalLM"}, "num_hidden_layers", 3, "head_dim", 4, "query_pre_attn_scalar", 4,
		"attn_logit_softcapping", 20.0, "final_logit_softcapping", 10.0, "sliding_window", 16)
	every := map[string]any{"attn_logit_softcapping": float32(20), "final_logit_softcapping": float32(10), "attention.scale": nil,
		"attention.sliding_window": uint32(16), "attention.sliding_window_pattern": []bool{true, false, true}}
	for _, c := range []struct {
		config map[string]any
		want   map[string]any // beside every
	}{
		{gemma, nil},
		{with(gemma, "query_pre_attn_scalar", 16), map[string]any{"attention.scale": float32(0.25)}},
		{with(gemma, "query_pre_attn_scalar", nil), map[string]any{"attention.scale": float32(1) / 16}},
		{with(gemma, "attn_logit_softcapping", nil), map[string]any{"attn_logit_softcapping": float32(0)}},
		{with(gemma, "final_logit_softcapping", nil), map[string]any{"final_logit_softcapping": float32(0)}},
		{without(gemma, "attn_logit_softcapping"), map[string]any{"attn_logit_softcapping": float32(50)}},
		{without(gemma, "final_logit_softcapping"), map[string]any{"final_logit_softcapping": float32(30)}},
		{without(gemma, "query_pre_attn_scalar"), map[string]any{"attention.scale": float32(1) / 16}},
		{without(gemma, "sliding_window"), map[string]any{"attention.sliding_window": uint32(4096)}},
		{with(gemma, "layer_types", []string{"full_attention", "sliding_attention", "full_attention"}),
			map[string]any{"attention.sliding_window_pattern": []bool{false, true, false}}},
		{with(gemma, "hidden_activation", "gelu_pytorch_tanh"), nil},
	} {
		want := maps.Clone(every)
		maps.Copy(want, c.want)
		kv := metadata(t, c.config)
		for k, v := range want {
			if got := kv.Value("gemma2." + k); !reflect.DeepEqual(got, v) {
				t.Errorf("%v\n %s is %v, expected %v", c.config, k, got, v)
			}
		}
	}
	for want, c := range map[string]map[string]any{
		"hidden_activation":                with(gemma, "hidden_activation", "gelu"),
		"head_dim: is missing":             without(gemma, "head_dim"),
		"query_pre_attn_scalar: is 0":      with(gemma, "query_pre_attn_scalar", 0),
		"attn_logit_softcapping: is \"a\"": with(gemma, "attn_logit_softcapping", "a"),
		"attn_logit_softcapping: is -1":    with(gemma, "attn_logit_softcapping", -1),
		"final_logit_softcapping: is -1":   with(gemma, "final_logit_softcapping", -1),
	} {
		if _, err := parse(t, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, expected %q in it", c, err, want)
		}
	}
}

func without(c map[string]any, key string) map[string]any {
	c = maps.Clone(c)
	delete(c, key)
	return c
}

func TestConfigRefuses(t *testing.T) {
	scaled := func(kv ...any) map[string]any {
		return with(small(), "rope_scaling", with(map[string]any{"rope_type": "llama3", "factor": 8}, kv...))
	}
	for want, c := range map[string]map[string]any{
		"no architectures":       with(small(), "architectures", nil),
		`"FooForCausalLM"`:       with(small(), "architectures", []string{"FooForCausalLM"}),
		"quantization_config":    with(small(), "quantization_config", map[string]any{"quant_method": "gptq"}),
		"hidden_act":             with(small(), "hidden_act", "gelu"),
		"num_hidden_layers: is":  with(small(), "num_hidden_layers", 1<<30),
		"vocab_size: is missing": with(small(), "vocab_size", nil),
		"vocab_size: is -3":      with(small(), "vocab_size", -3),
		"no head_dim":            with(small(), "hidden_size", 9),
		"no multiple of num_ke":  with(small(), "num_key_value_heads", 3),
		"head_dim 5 is odd":      with(small(), "head_dim", 5),
		"head_dim: is 131072":    with(small(), "head_dim", 1<<17),
		"num_attention_heads":    with(small(), "num_attention_heads", nil),
		"rms_norm_eps":           with(small(), "rms_norm_eps", nil),
		"rope_theta: is -1":      with(small(), "rope_theta", -1),
		"partial_rotary_factor":  with(small(), "partial_rotary_factor", 0.5),
		`rope_type "dynamic"`:    scaled("rope_type", "dynamic"),
		"factor: is 0":           scaled("factor", 0),
		"0 < low < high":         scaled("low_freq_factor", 4),
		"original_max_position":  scaled("original_max_position_embeddings", 64.5),
		"sliding_window: is -1":  with(small(), "architectures", []string{"Qwen2ForCausalLM"}, "sliding_window", -1),
		"2 entries":              with(small(), "architectures", []string{"Qwen2ForCausalLM"}, "layer_types", []string{"full_attention", "full_attention"}),
		`layer_types[0] is "x`:   with(small(), "architectures", []string{"Qwen2ForCausalLM"}, "layer_types", []string{"x"}),
		"sliding_window is nul":  with(small(), "architectures", []string{"Qwen2ForCausalLM"}, "sliding_window", nil, "layer_types", []string{"sliding_attention"}),
		"hidden_size: is 8.5":    with(small(), "hidden_size", 8.5),
	} {
		if _, err := parse(t, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, expected %q in it", c, err, want)
		}
	}
	if _, err := parse(t, small()); err != nil {
		t.Errorf("the model of these cases: %v", err)
	}
}

// stored is a tensor to be written to a safetensors file.
type stored struct {
	dtype string
	shape []int
	data  []byte
}

// folder writes a model folder.
func folder(t testing.TB, c map[string]any, tensors map[string]stored) string {
	dir := t.TempDir()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	header, data := map[string]any{}, []byte(nil)
	for name, x := range tensors {
		header[name] = map[string]any{"dtype": x.dtype, "shape": x.shape, "data_offsets": []int{len(data), len(data) + len(x.data)}}
		data = append(data, x.data...)
	}
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), data...)
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), file, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func bf16(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(v)>>16))
	}
	return b
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// Vectors become F32; the bias of q and k is put in the order of its weight's rows.
func TestVectors(t *testing.T) {
	tensors := map[string]stored{
		"model.embed_tokens.weight":                      {"BF16", []int{3, 8}, bf16(make([]float32, 24)...)},
		"model.norm.weight":                              {"F32", []int{2}, floatBytes([]float32{5, 6})},
		"model.layers.0.input_layernorm.weight":          {"F16", []int{3}, []byte{0, 0x3c, 1, 0, 0, 0xc0}},
		"model.layers.0.self_attn.q_proj.bias":           {"BF16", []int{8}, bf16(0, 1, 2, 3, 4, 5, 6, 7)},
		"model.layers.0.self_attn.k_proj.bias":           {"F32", []int{4}, floatBytes([]float32{0, 1, 2, 3})},
		"model.layers.0.self_attn.v_proj.bias":           {"F64", []int{2}, binary.LittleEndian.AppendUint64(make([]byte, 8), math.Float64bits(0.1))},
		"model.layers.0.self_attn.rotary_emb.inv_freq":   {"F32", []int{1}, make([]byte, 4)},
		"model.layers.0.self_attn.q_proj.weight":         {"I8", []int{8, 1}, []byte{0, 1, 2, 3, 4, 5, 6, 7}},
		"lm_head.weight":                                 {"BF16", []int{3, 8}, bf16(make([]float32, 24)...)}, // tied: not a second matrix
		"model.layers.0.post_attention_layernorm.weight": {"F32", []int{}, floatBytes([]float32{9})},
	}
	m, err := Open(folder(t, small(), tensors))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if len(m.Tensors) != len(tensors)-2 {
		t.Errorf("%d tensors of %d, expected all but inv_freq and lm_head", len(m.Tensors), len(tensors))
	}
	for name, want := range map[string][]float32{
		"output_norm.weight":     {5, 6},
		"blk.0.attn_norm.weight": {1, 0x1p-24, -2},
		"blk.0.attn_q.bias":      {0, 2, 1, 3, 4, 6, 5, 7},
		"blk.0.attn_k.bias":      {0, 2, 1, 3},
		"blk.0.attn_v.bias":      {0, 0.1},
		"blk.0.ffn_norm.weight":  {9},
	} {
		x := m.Tensor(name)
		if x == nil || x.Type != quant.F32 || !slices.Equal(x.Shape, []int{len(want)}) || !slices.Equal(floats(x.Data), want) {
			t.Errorf("%s: %v, expected F32 %v", name, x, want)
		}
	}
	q := m.Tensor("blk.0.attn_q.weight")
	var rows []byte
	for r := range q.Rows() {
		rows = append(rows, q.Row(r)...)
	}
	if want := []byte{0, 2, 1, 3, 4, 6, 5, 7}; !slices.Equal(rows, want) {
		t.Errorf("rows of q %v, expected %v", rows, want)
	}
}

func TestTensorErrors(t *testing.T) {
	embd := stored{"BF16", []int{3, 8}, bf16(make([]float32, 24)...)}
	one := stored{"F32", []int{1}, make([]byte, 4)}
	for name, c := range map[string]struct {
		tensor stored
		want   string
	}{
		"model.layers.1.input_layernorm.weight":    {one, "layer 1, but num_hidden_layers is 1"},
		"model.layers.-1.input_layernorm.weight":   {one, "layer -1"},
		"model.layers.00.input_layernorm.weight":   {one, "no such tensor is known in a LlamaForCausalLM"},
		"model.layers.0.mystery.weight":            {one, "no such tensor"},
		"model.layers.0.input_layernorm":           {one, "no such tensor"},
		"model.layers.0.self_attn.q_proj.weight":   {stored{"F32", []int{7, 1}, make([]byte, 28)}, "expected 2 heads of 4 rows"},
		"model.layers.0.self_attn.k_proj.bias":     {one, "expected 1 heads of 4 rows"},
		"model.layers.0.mlp.up_proj.weight":        {stored{"F8_E4M3", []int{1}, make([]byte, 1)}, "F8_E4M3 of 1 dimensions"},
		"model.layers.0.mlp.up_proj.bias":          {stored{"I8", []int{1}, make([]byte, 1)}, "vector of I8"},
		"model.layers.0.mlp.down_proj.weight":      {stored{"F32", []int{0, 4}, nil}, "dimension 1 is 0"},
		"model.layers.0.mlp.gate_proj.weight":      {stored{"F32", []int{1, 1, 1, 1, 1}, make([]byte, 4)}, "5 dimensions"},
		"model.layers.0.self_attn.k_proj.weight":   {stored{"F32", []int{}, make([]byte, 4)}, "heads of 4 rows"},
		"model.layers.0.self_attn.q_norm.surprise": {one, "no such tensor"},
	} {
		_, err := Open(folder(t, small(), map[string]stored{"model.embed_tokens.weight": embd, name: c.tensor}))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "model.safetensors") {
			t.Errorf("%s: %v, expected %q, tensor and file in it", name, err, c.want)
		}
	}
	_, err := Open(folder(t, with(small(), "vocab_size", 4), map[string]stored{"model.embed_tokens.weight": embd}))
	if err == nil || !strings.Contains(err.Error(), "config.json: vocab_size: is 4, but model.embed_tokens.weight has 3 rows") {
		t.Errorf("four tokens, three rows: %v", err)
	}
	_, err = Open(folder(t, with(small(), "tie_word_embeddings", false), map[string]stored{"model.embed_tokens.weight": embd}))
	if err == nil || !strings.Contains(err.Error(), "lm_head.weight is missing") {
		t.Errorf("untied without lm_head: %v", err)
	}
}

func TestFolderErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("empty folder: %v", err)
	}
	b, err := json.Marshal(small())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "model.safetensors") {
		t.Errorf("folder without weights: %v", err)
	}
	whole, err := os.ReadFile(testkit.Data(t, "models/qwen2/hf/model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), whole[:len(whole)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "incomplete") {
		t.Errorf("truncated weights: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b[:len(b)-5], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "config.json: unexpected end") {
		t.Errorf("truncated config.json: %v", err)
	}
}

func FuzzHFConfig(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for name := range pairs {
		config, ok := testkit.Lookup(f, "models/"+name+"/hf/config.json")
		if !ok {
			continue
		}
		b, err := os.ReadFile(config)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"architectures":["Qwen2ForCausalLM"],"rope_scaling":{"type":"yarn","factor":4}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		c, err := parseConfig(b)
		if err != nil {
			return
		}
		kv := &gguf.Metadata{}
		c.metadata(kv)
		for _, k := range kv.Keys() {
			v := kv.Value(k)
			if x, ok := v.(float32); ok && (math.IsNaN(float64(x)) || math.IsInf(float64(x), 0)) {
				t.Errorf("%s is %v", k, x)
			}
			if n, ok := v.(uint32); ok && n == 0 {
				t.Errorf("%s is 0", k)
			}
		}
		for name, factors := range c.ropeFactors() {
			for i, x := range factors {
				if !(x > 0) {
					t.Errorf("%s: factor %d is %v", name, i, x)
				}
			}
		}
	})
}
