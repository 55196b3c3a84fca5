package generate

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ck/internal/arch"
	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/testkit"
	"ck/internal/tokenizer"
)

// tinyShape is the shape of the models that are damaged here.
var tinyShape = synth.Shape{Arch: "llama", Layers: 2, Hidden: 64, FFN: 64, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 512, Context: 256, RopeBase: 1e4}

// tinyModels are models that read every known key between them, by name, with the keys that they set beside those of package synth.
var tinyModels = map[string]map[string]any{
	"as synthesized, byte-level BPE": {},
	"yarn, window, SentencePiece": {
		"llama.expert_count": uint32(0), "llama.nextn_predict_layers": uint32(0), "llama.attention.sliding_window": uint32(32), "llama.attention.sliding_window_pattern": []bool{true, false},
		"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4), "llama.rope.scaling.original_context_length": uint32(64),
		"llama.rope.scaling.yarn_ext_factor": float32(1), "llama.rope.scaling.yarn_attn_factor": float32(1.25),
		"llama.rope.scaling.yarn_beta_fast": float32(16), "llama.rope.scaling.yarn_beta_slow": float32(2),
		"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": spmTokens, "tokenizer.ggml.scores": make([]float32, len(spmTokens)),
		"tokenizer.ggml.token_type": spmTypes, "tokenizer.ggml.merges": nil, "tokenizer.ggml.bos_token_id": uint32(1), "tokenizer.ggml.eos_token_id": uint32(2),
		"tokenizer.ggml.unknown_token_id": uint32(0), "tokenizer.ggml.eot_token_id": uint32(2), "tokenizer.ggml.eom_token_id": uint32(2),
		"tokenizer.ggml.add_bos_token": true, "tokenizer.ggml.add_eos_token": false, "tokenizer.ggml.add_space_prefix": true,
		"tokenizer.ggml.remove_extra_whitespaces": false, "tokenizer.ggml.pre": "default",
		"tokenizer.ggml.precompiled_charsmap": []uint8{4, 0, 0, 0, 0, 0, 0, 0}, // a map of nothing
		"tokenizer.chat_template":             "{{ messages }}", "tokenizer.chat_template.other": "{{ messages }}", "ck.prompt.default": "raw",
	},
	"yarn's older factor": {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4), "llama.rope.scaling.original_context_length": uint32(64),
		"llama.rope.scaling.attn_factor": float32(1.25), "llama.rope.scaling.yarn_truncate": false},
	"yarn's multiplier of the logarithm": {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4), "llama.rope.scaling.original_context_length": uint32(64),
		"llama.rope.scaling.yarn_log_multiplier": float32(0.1)},
	"linear scaling of old files": {"llama.rope.scale_linear": float32(2)},
}

// familyModels are reference models whose families have keys of their own, by architecture, with the keys that are set beside the file's.
var familyModels = map[string]map[string]any{"gemma2": {"gemma2.attention.scale": float32(0.25)}, "olmo2": {}, "granite": {}, "gemma4": {}, "mistral3": {}, "llama4": {},
	"qwen3moe": {"qwen3moe.expert_gating_func": uint32(1), "qwen3moe.expert_weights_norm": true, "qwen3moe.expert_weights_scale": float32(2),
		"qwen3moe.expert_group_count": uint32(2), "qwen3moe.expert_group_used_count": uint32(1)}}

// spmTokens is a SentencePiece vocabulary: unknown, BOS, EOS, the bytes, words.
var spmTokens, spmTypes = func() (text []string, kind []int32) {
	text, kind = []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}
	for b := range 256 {
		text, kind = append(text, fmt.Sprintf("<0x%02X>", b)), append(kind, 6)
	}
	for len(text) < tinyShape.Vocab {
		text, kind = append(text, fmt.Sprintf("▁w%d", len(text))), append(kind, 1)
	}
	return text, kind
}()

var tinyOnce = sync.OnceValues(func() (*gguf.Model, error) { return synth.Model("tiny", tinyShape, quant.F32, 1) })

// tinyWeights are the weights and the vocabulary of all of them.
func tinyWeights(t testing.TB) *gguf.Model {
	t.Helper()
	m, err := tinyOnce()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// tinyGGUF is the file of one of the models, with one key changed; nil takes it away.
func tinyGGUF(t testing.TB, more map[string]any, key string, value any) []byte {
	t.Helper()
	return damaged(t, tinyWeights(t), more, key, value)
}

// damaged is the file of a model with keys set, one of them to a wrong value.
func damaged(t testing.TB, m *gguf.Model, more map[string]any, key string, value any) []byte {
	t.Helper()
	values := map[string]any{}
	for _, k := range m.KV.Keys() {
		values[k] = m.KV.Value(k)
	}
	maps.Copy(values, more)
	if key != "" {
		values[key] = value
	}
	kv := &gguf.Metadata{}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if values[k] != nil {
			kv.Set(k, values[k])
		}
	}
	var infos []gguf.TensorInfo
	for _, x := range m.Tensors {
		infos = append(infos, gguf.TensorInfo{Name: x.Name, Type: x.Type, Shape: x.Shape})
	}
	var b bytes.Buffer
	w, err := gguf.NewWriter(&b, kv, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range m.Tensors {
		if _, err := w.Write(x.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// use opens an engine for a model and evaluates a row, as every program does.
func use(m *Model) error {
	e, err := engine.Open(m.Weights, engine.Options{Threads: 1})
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Forward(context.Background(), e.NewSeq(), []int32{1, 2, 3}, engine.Last, func(int, []float32) error { return nil })
}

// useGGUF opens a file that lies in memory and uses it.
func useGGUF(b []byte) error {
	w, err := gguf.FromBytes("tiny.gguf", b)
	if err != nil {
		return err
	}
	m, err := fromGGUF(w, "tiny.gguf")
	if err != nil {
		return &InputError{err}
	}
	return use(m)
}

// refused judges an error of a damaged file: it must be one of the input (exit code 3) and name what was damaged or the tensor that
// contradicts it.
func refused(err error, names ...string) bool {
	var in *InputError
	var model *engine.ModelError
	return (errors.As(err, &in) || errors.As(err, &model)) && slices.ContainsFunc(names, func(n string) bool { return strings.Contains(err.Error(), n) })
}

// damages are the wrong values of a key, by name, made for the kind of its right value.
func damages(right any) map[string]any {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	d := map[string]any{"string": "x", "bool": true, "array": []uint32{1}, "NaN": nan, "inf": inf, "-inf": -inf, "integer": uint32(1), "zero": uint32(0),
		"negative": int32(-7), "huge": uint64(1) << 62, "beyond int64": uint64(1) << 63, "float": float32(1.5)}
	switch right := right.(type) {
	case uint32:
		d["float"] = float32(right) // for an integer, whatever its value
		delete(d, "integer")
	case float32:
		d["zero"], d["negative"], d["huge"], d["f64 NaN"] = float32(0), float32(-1), float32(3e38), math.NaN()
		delete(d, "float")
		delete(d, "integer") // a number like others
		delete(d, "beyond int64")
	case bool:
		delete(d, "bool")
	case string:
		d["unknown"], d["array of strings"] = "x", []string{right}
		delete(d, "string")
	case []bool:
		d["array of strings"], d["empty array"], d["short array"], d["long array"] = []string{"x"}, []bool{}, right[:len(right)-1], append(slices.Clone(right), true)
	case []string:
		d["array"], d["empty array"], d["short array"] = []float32{1}, []string{}, right[:len(right)-1]
	case []float32:
		d["array"], d["array of strings"], d["short array"], d["array of bools"] = []uint32{1}, []string{"x"}, right[:len(right)-1], make([]bool, len(right))
		for name, v := range map[string]float32{"element NaN": nan, "element inf": inf, "element -inf": -inf, "element huge": 3e38} {
			bad := slices.Clone(right)
			bad[len(bad)-1] = v
			d[name] = bad
		}
	case []uint8:
		d["array"], d["array of strings"], d["short array"] = []uint32{1}, []string{"x"}, right[:len(right)-1]
		d["element huge"] = append(make([]int32, len(right)), 256)
	case []int32:
		d["array"], d["array of strings"], d["short array"], d["array of floats"] = []uint32{1}, []string{"x"}, right[:len(right)-1], make([]float32, len(right))
		for name, v := range map[string]int32{"element negative": -1, "element huge": math.MaxInt32} {
			bad := slices.Clone(right)
			bad[len(bad)-1] = v
			d[name] = bad
		}
	}
	return d
}

// legal are the changed values that a file may have, each with its reason: KEY DAMAGE.
var legal = map[string]string{
	"tokenizer.ggml.pre unknown":                     "SentencePiece has no pre-tokenizer",
	"general.name unknown":                           "any name will do",
	"tokenizer.chat_template unknown":                "any text is a template",
	"tokenizer.chat_template.other unknown":          "any text is a template",
	"llama.expert_count zero":                        "no experts: what it was",
	"llama.nextn_predict_layers zero":                "none: what it was",
	"llama.rope.scaling.yarn_log_multiplier zero":    "no multiplier",
	"gemma4.final_logit_softcapping zero":            "no caps",
	"mistral3.attention.temperature_scale zero":      "queries do not grow",
	"mistral3.rope.scaling.yarn_log_multiplier zero": "no multiplier",
	"qwen3moe.expert_gating_func zero":               "that of the family",
	"qwen3moe.expert_group_count zero":               "no groups",
	"gemma2.attn_logit_softcapping zero":             "no caps",
	"gemma2.final_logit_softcapping zero":            "no caps",
	"tokenizer.ggml.bos_token_id zero":               "an id like others",
	"tokenizer.ggml.eos_token_id zero":               "an id like others",
	"tokenizer.ggml.unknown_token_id zero":           "what it was",
	"tokenizer.ggml.eot_token_id zero":               "an id like others",
	"tokenizer.ggml.eom_token_id zero":               "an id like others",
	"tokenizer.ggml.scores element inf":              "scores are only compared",
	"tokenizer.ggml.scores element -inf":             "scores are only compared",
	"tokenizer.ggml.scores element huge":             "scores are only compared",
	"tokenizer.ggml.merges empty array":              "a vocabulary without merges: characters",
	"tokenizer.ggml.merges short array":              "merges count one by one",
}

// The script of damaged hyperparameters: every known key with values of wrong types and out of range. None is silent: the file is refused
// by a line that names the key, or the value is on the list of legal ones.
func TestDamagedGGUF(t *testing.T) {
	cases, silent, seen := 0, 0, map[string]bool{}
	each := func(name string, model *gguf.Model, more map[string]any, which func(key string) bool) {
		if err := useGGUF(damaged(t, model, more, "", nil)); err != nil {
			t.Fatalf("%s, undamaged: %v", name, err)
		}
		m, err := gguf.FromBytes("tiny", damaged(t, model, more, "", nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range m.KV.Keys() {
			if !which(key) {
				continue
			}
			for damage, value := range damages(m.KV.Value(key)) {
				cases++
				err := useGGUF(damaged(t, model, more, key, value))
				names := []string{key}
				if key == "tokenizer.ggml.tokens" {
					names = append(names, "tokenizer.ggml.token_type") // which has another length then
				}
				switch _, ok := legal[key+" "+damage]; {
				case err == nil && !ok:
					silent++
					t.Errorf("%s: %s %s: silent", name, key, damage)
				case err == nil:
					seen[key+" "+damage] = true
				case !refused(err, names...):
					t.Errorf("%s: %s %s: %v", name, key, damage, err)
				}
			}
		}
	}
	for name, more := range tinyModels {
		each(name, tinyWeights(t), more, func(key string) bool { // the others are damaged in the synthesized one
			_, ok := more[key]
			return ok || len(more) == 0
		})
	}
	for arch, more := range familyModels {
		each(arch, familyModel(t, arch), more, func(key string) bool { return strings.HasPrefix(key, arch+".") })
	}
	for k := range legal {
		if !seen[k] {
			t.Errorf("%s is on the list of legal changes, and is refused", k)
		}
	}
	t.Logf("%d damaged files, %d silent", cases, silent)
}

// familyModel is the reference model of a family.
func familyModel(t testing.TB, arch string) *gguf.Model {
	t.Helper()
	m, err := gguf.Open(testkit.Data(t, "models/"+arch+"/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// asked remembers the keys that readers ask for.
type asked struct {
	*gguf.Metadata
	m    *gguf.Model
	keys map[string]bool
}

func (a asked) String(k string) (string, bool, error) { a.keys[k] = true; return a.Metadata.String(k) }
func (a asked) Int(k string) (int64, bool, error)     { a.keys[k] = true; return a.Metadata.Int(k) }
func (a asked) Float(k string) (float64, bool, error) { a.keys[k] = true; return a.Metadata.Float(k) }
func (a asked) Bool(k string) (bool, bool, error)     { a.keys[k] = true; return a.Metadata.Bool(k) }
func (a asked) Bools(k string) ([]bool, bool, error)  { a.keys[k] = true; return a.Metadata.Bools(k) }
func (a asked) Ints(k string) ([]int64, bool, error)  { a.keys[k] = true; return a.Metadata.Ints(k) }
func (a asked) Strings(k string) ([]string, bool, error) {
	a.keys[k] = true
	return a.Metadata.Strings(k)
}
func (a asked) Float32s(k string) ([]float32, bool, error) {
	a.keys[k] = true
	return a.Metadata.Float32s(k)
}
func (a asked) Vector(tensor string) ([]float32, error) {
	return a.m.Decode(a.m.Tensor(tensor), 1<<22)
}
func (a asked) Shape(tensor string) (rows, cols int, ok bool) {
	if t := a.m.Tensor(tensor); t != nil {
		return t.Rows(), t.Cols(), true
	}
	return 0, 0, false
}

func (a asked) Tensors() []string { return a.m.Names() }

func (a asked) Experts(name string) int {
	t := a.m.Tensor(name)
	switch {
	case t == nil:
		return 0
	case len(t.Shape) > 2:
		return t.Shape[2]
	}
	return 1
}

// Every key that the architectures and the tokenizer ask for is one that TestDamagedGGUF damages.
func TestDamagedKeysAreAll(t *testing.T) {
	known, keys := map[string]bool{}, map[string]bool{}
	var models []*gguf.Model
	for _, more := range tinyModels {
		m, err := gguf.FromBytes("tiny", tinyGGUF(t, more, "", nil))
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	for arch, more := range familyModels {
		m, err := gguf.FromBytes(arch, damaged(t, familyModel(t, arch), more, "", nil))
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	// Keys that all families read are damaged for llama, those of experts for qwen3moe; those of a family's own for it.
	shared := func(key string) string {
		arch, rest, _ := strings.Cut(key, ".")
		if familyModels[arch] == nil {
			return key
		}
		for _, of := range []string{"llama.", "qwen3moe."} {
			if known[of+rest] {
				return of + rest
			}
		}
		return key
	}
	for _, m := range models {
		for _, k := range m.KV.Keys() {
			known[k] = true
		}
		a := asked{m.KV, m, keys}
		if _, _, err := arch.Build(a); err != nil {
			t.Fatal(err)
		}
		if _, err := tokenizer.FromGGUF(a); err != nil {
			t.Fatal(err)
		}
	}
	for k := range keys {
		if k = shared(k); !known[k] {
			t.Errorf("%s is read, and no model of tinyModels has it", k)
		}
	}
	if len(keys) < 35 {
		t.Errorf("only %d keys are read", len(keys))
	}
}

// tinyFolder writes the weights and the vocabulary of a Hugging Face folder of the tiny model.
func tinyFolder(t testing.TB, dir string, tokens []string) {
	t.Helper()
	m := tinyWeights(t)
	names := strings.NewReplacer("token_embd", "model.embed_tokens", "output_norm", "model.norm", "blk.", "model.layers.", "attn_norm", "input_layernorm",
		"attn_q", "self_attn.q_proj", "attn_k", "self_attn.k_proj", "attn_v", "self_attn.v_proj", "attn_output", "self_attn.o_proj",
		"ffn_norm", "post_attention_layernorm", "ffn_gate", "mlp.gate_proj", "ffn_up", "mlp.up_proj", "ffn_down", "mlp.down_proj", "output.", "lm_head.")
	header, data := map[string]any{}, []byte(nil)
	for _, x := range m.Tensors {
		shape := slices.Clone(x.Shape)
		slices.Reverse(shape)
		header[names.Replace(x.Name)] = map[string]any{"dtype": "F32", "shape": shape, "data_offsets": []int{len(data), len(data) + len(x.Data)}}
		data = append(data, x.Data...)
	}
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), data...)
	vocab := map[string]int{}
	for i, s := range tokens {
		vocab[s] = i
	}
	tok, err := json.Marshal(map[string]any{"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
		"added_tokens": []any{map[string]any{"id": 1, "content": "<s>", "special": true}, map[string]any{"id": 2, "content": "</s>", "special": true}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"model.safetensors": file, "tokenizer.json": tok} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// folderFiles are the files of a folder that are damaged key by key, for each class of configurations.
var folderFiles = []map[string]any{
	{"config.json": map[string]any{"architectures": []any{"LlamaForCausalLM"}, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "vocab_size": 512, "rms_norm_eps": 1e-5,
		"hidden_act": "silu", "tie_word_embeddings": false, "partial_rotary_factor": 1, "rope_theta": 1e4, "original_max_position_embeddings": 64,
		"rope_scaling": map[string]any{"type": "yarn", "factor": 4.0, "attention_factor": 1.25, "extrapolation_factor": 1.0, "beta_fast": 16.0, "beta_slow": 2.0,
			"mscale": 1.0, "mscale_all_dim": 1.0, "truncate": true}},
		"tokenizer_config.json": map[string]any{"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true, "add_eos_token": false,
			"chat_template": "{{ messages }}", "added_tokens_decoder": map[string]any{"1": map[string]any{"content": "<s>", "special": true}}},
		"generation_config.json": map[string]any{"eos_token_id": 2}},
	{"config.json": map[string]any{"architectures": []any{"LlamaForCausalLM"}, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "vocab_size": 512, "rms_norm_eps": 1e-5,
		"rope_parameters": map[string]any{"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 64, "low_freq_factor": 1.0,
			"high_freq_factor": 4.0, "partial_rotary_factor": 1}}},
	{"config.json": map[string]any{"architectures": []any{"Qwen2ForCausalLM"}, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "vocab_size": 512, "rms_norm_eps": 1e-5,
		"sliding_window": 32, "use_sliding_window": true, "max_window_layers": 1}},
	{"config.json": map[string]any{"architectures": []any{"Qwen2ForCausalLM"}, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "vocab_size": 512, "rms_norm_eps": 1e-5,
		"sliding_window": 32, "use_sliding_window": true, "layer_types": []any{"full_attention", "sliding_attention"}}},
}

// wrongJSON are values that replace one of a JSON file, as they are written there.
func wrongJSON(right any) map[string]string {
	d := map[string]string{"string": `"☃"`, "bool": "true", "array": "[1]", "object": `{"x":1}`, "float": "8.5", "1e999": "1e999", "-1e999": "-1e999", "negative": "-7",
		"zero": "0", "huge": "4611686018427387904", "very huge": "1e300", "NaN": "NaN", "Infinity": "Infinity"}
	switch right.(type) {
	case bool:
		delete(d, "bool")
	case string:
		d["unknown"] = `"☃"`
		delete(d, "string")
	case float64: // any number within the range
		delete(d, "float")
	}
	return d
}

// legalJSON is legal for the files of a folder: FILE KEY DAMAGE.
var legalJSON = map[string]string{
	"config.json rope_scaling.mscale zero":                         "as if it were not there, as transformers has it",
	"config.json rope_scaling.mscale_all_dim zero":                 "as if it were not there, as transformers has it",
	"config.json rope_parameters object":                           "one without a key that counts: the defaults, which -v says",
	"config.json max_window_layers zero":                           "all layers have the window",
	"generation_config.json eos_token_id array":                    "one of one id",
	"generation_config.json eos_token_id zero":                     "an id like others",
	"tokenizer_config.json chat_template unknown":                  "any text is a template",
	"tokenizer_config.json added_tokens_decoder.1 object":          "counts only where there is no tokenizer.json",
	"tokenizer_config.json added_tokens_decoder.1.content unknown": "counts only where there is no tokenizer.json",
}

// The same for the files of a Hugging Face folder.
func TestDamagedFolder(t *testing.T) {
	dir := t.TempDir()
	tinyFolder(t, dir, spmTokens)
	try := func(files map[string]any) error {
		for _, name := range []string{"config.json", "tokenizer_config.json", "generation_config.json"} {
			path := filepath.Join(dir, name)
			os.Remove(path)
			if files[name] == nil {
				continue
			}
			b, err := json.Marshal(files[name])
			if err != nil {
				t.Fatal(err)
			}
			for _, raw := range []string{"NaN", "Infinity"} { // no JSON, but what Python writes
				b = bytes.ReplaceAll(b, []byte(`"`+raw+`"`), []byte(raw))
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return useFolder(dir)
	}
	cases, silent, seen := 0, 0, map[string]bool{}
	judge := func(file, key, damage string, files map[string]any) {
		cases++
		err := try(files)
		last := key[strings.LastIndex(key, ".")+1:]
		switch _, ok := legalJSON[file+" "+key+" "+damage]; {
		case err == nil && !ok:
			silent++
			t.Errorf("%s: %s %s: silent", file, key, damage)
		case err == nil:
			seen[file+" "+key+" "+damage] = true
		case !refused(err, last) || !strings.Contains(err.Error(), file):
			t.Errorf("%s: %s %s: %v", file, key, damage, err)
		}
	}
	for i, files := range folderFiles {
		if err := try(files); err != nil {
			t.Fatalf("folder %d, undamaged: %v", i, err)
		}
		for name := range files {
			each(files[name].(map[string]any), "", func(key string, right any, set func(any)) {
				for damage, raw := range wrongJSON(right) {
					if raw == "NaN" || raw == "Infinity" {
						set(raw)
					} else {
						set(json.RawMessage(raw))
					}
					judge(name, key, damage, files)
				}
				set(right)
			})
		}
	}
	for k := range legalJSON {
		if !seen[k] {
			t.Errorf("%s is on the list of legal changes, and is refused", k)
		}
	}
	t.Logf("%d damaged folders, %d silent", cases, silent)
}

// each calls f for every key of an object and of those within it; set gives the key another value.
func each(o map[string]any, prefix string, f func(key string, right any, set func(any))) {
	for _, k := range slices.Sorted(maps.Keys(o)) {
		right := o[k]
		f(prefix+k, right, func(v any) { o[k] = v })
		if in, ok := right.(map[string]any); ok {
			each(in, prefix+k+".", f)
		}
	}
}

// A vocabulary larger than the embedding is refused when the model opens, in both forms; a smaller one is padded.
func TestMoreTokensThanRows(t *testing.T) {
	for n, want := range map[int]string{tinyShape.Vocab + 1: "tensor token_embd.weight: has 512 rows, but the vocabulary has 513 tokens; ", tinyShape.Vocab: "", 300: ""} {
		more := maps.Clone(tinyModels["yarn, window, SentencePiece"])
		tokens, types := append(slices.Clone(spmTokens), "▁more")[:n], append(slices.Clone(spmTypes), 1)[:n]
		maps.Copy(more, map[string]any{"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.scores": make([]float32, n)})
		dir := t.TempDir()
		tinyFolder(t, dir, tokens)
		b, err := json.Marshal(folderFiles[0]["config.json"])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		for form, err := range map[string]error{"gguf": useGGUF(tinyGGUF(t, more, "", nil)), "hf": useFolder(dir)} {
			if want == "" && err != nil || want != "" && !refused(err, want) {
				t.Errorf("%d tokens, %s: %v, expected %q", n, form, err, want)
			}
		}
	}
}

// useFolder opens a folder and uses it.
func useFolder(dir string) error {
	m, err := Open(dir)
	if err != nil {
		return err
	}
	defer m.Close()
	return use(m)
}
