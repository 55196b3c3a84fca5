// Package oracle makes forms of the reference models that the collection lacks: a Hugging Face folder from a GGUF file, by the inverse of what
// llama.cpp's convert_hf_to_gguf.py does. It is written for itself, from that script and transformers' classes, and shares no table with
// package hf, which it is there to test.
package oracle

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// family is how the models of an architecture are written in Hugging Face's form.
type family struct {
	class  string
	config func(m *gguf.Model, c map[string]any) // keys of config.json beyond the common ones
	names  map[string]string                     // of tensors in layers, beyond the common ones
	minus1 bool                                  // norms are stored as weight - 1
	bare   []string                              // names that have no .weight
	heads  bool                                  // rows of q and k are in the order of halves
	// whole makes tensors of the folder of several of the file; it gets those that have no name.
	whole func(ts map[string]*gguf.Tensor) (map[string]tensor, error)
}

// tensor is a tensor of a folder.
type tensor struct {
	dtype string
	shape []int // slowest first
	data  []byte
}

var families = map[string]family{
	"gemma2": {class: "Gemma2ForCausalLM", config: gemma2, minus1: true, names: map[string]string{"attn_norm": "input_layernorm",
		"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}},
	"phi3": {class: "Phi3ForCausalLM", config: phi3, names: map[string]string{"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
		"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}},
	"granite":    {class: "GraniteForCausalLM", config: granite, heads: true, names: pre},
	"granitemoe": {class: "GraniteMoeForCausalLM", config: granite, heads: true, names: with(pre, "ffn_gate_inp", "block_sparse_moe.router.layer", "ffn_down_exps", "block_sparse_moe.output_linear"), whole: granitemoe},
	"glm4moe": {class: "Glm4MoeForCausalLM", config: glm4moe, names: map[string]string{"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
		"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate_inp": "mlp.gate", "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
		"ffn_up_shexp": "mlp.shared_experts.up_proj", "ffn_down_shexp": "mlp.shared_experts.down_proj"}, whole: glm4moeExperts},
	"gpt-oss": {class: "GptOssForCausalLM", config: gptOSS, names: map[string]string{"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
		"attn_sinks": "self_attn.sinks", "ffn_gate_inp": "mlp.router"}, bare: []string{"attn_sinks"}, whole: gptOSSExperts},
	"olmo2": {class: "Olmo2ForCausalLM", config: olmo2, names: map[string]string{"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
		"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}},
}

// common are the names that all have; what begins with "blk." stands in layers.
var common = map[string]string{"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
	"blk.attn_q": "self_attn.q_proj", "blk.attn_k": "self_attn.k_proj", "blk.attn_v": "self_attn.v_proj", "blk.attn_output": "self_attn.o_proj",
	"blk.ffn_gate": "mlp.gate_proj", "blk.ffn_up": "mlp.up_proj", "blk.ffn_down": "mlp.down_proj"}

func gemma2(m *gguf.Model, c map[string]any) {
	c["hidden_activation"] = "gelu_pytorch_tanh"
	c["query_pre_attn_scalar"] = c["head_dim"]
	for _, name := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		c[name] = m.KV.Value("gemma2." + name)
	}
	c["sliding_window"] = m.KV.Value("gemma2.attention.sliding_window")
}

func olmo2(_ *gguf.Model, c map[string]any) { c["hidden_act"] = "silu" }

// Knows reports whether Folder can write models of the architecture of m. OLMo 3, whose files say olmo2, is another class.
func Knows(m *gguf.Model) bool {
	arch, _, err := m.KV.String("general.architecture")
	_, ok := families[arch]
	switch {
	case err != nil || !ok:
		return false
	case arch == "olmo2":
		return m.KV.Value("olmo2.attention.sliding_window") == nil
	case arch == "gpt-oss": // folders have its experts in no other type
		return m.Tensor("blk.0.ffn_up_exps.weight").Type == quant.MXFP4
	}
	return true
}

// Folder writes config.json and model.safetensors of m into the folder dir, which must exist. Matrices keep their bytes and types, which must
// be those of safetensors: F32, F16 or BF16; norms are F32.
func Folder(m *gguf.Model, dir string) error {
	arch, _, err := m.KV.String("general.architecture")
	if err != nil {
		return err
	}
	f, ok := families[arch]
	if !ok {
		return fmt.Errorf("%s: architecture %q: known are %v", m.Path, arch, slices.Sorted(maps.Keys(families)))
	}
	c, err := config(m, arch)
	if err != nil {
		return err
	}
	c["architectures"] = []string{f.class}
	f.config(m, c)
	b, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o666); err != nil {
		return err
	}
	return f.weights(m, filepath.Join(dir, "model.safetensors"))
}

// config is the keys of config.json that all classes have.
func config(m *gguf.Model, arch string) (map[string]any, error) {
	c := map[string]any{"vocab_size": m.Tensor("token_embd.weight").Rows(), "tie_word_embeddings": m.Tensor("output.weight") == nil}
	for key, name := range map[string]string{"hidden_size": "embedding_length", "num_hidden_layers": "block_count", "intermediate_size": "feed_forward_length",
		"num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv", "max_position_embeddings": "context_length",
		"head_dim": "attention.key_length"} {
		v, ok, err := m.KV.Int(arch + "." + name)
		if err != nil {
			return nil, err
		}
		if ok {
			c[key] = v
		}
	}
	for key, name := range map[string]string{"rms_norm_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base"} {
		if v, ok := m.KV.Value(arch + "." + name).(float32); ok {
			c[key] = json.Number(fmt.Sprint(v)) // as short as a person writes it
		}
	}
	return c, nil
}

// weights writes the tensors.
func (f family) weights(m *gguf.Model, path string) error {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header, data := map[string]entry{}, []byte(nil)
	add := func(name string, t tensor) {
		header[name] = entry{t.dtype, t.shape, [2]int{len(data), len(data) + len(t.data)}}
		data = append(data, t.data...)
	}
	rest := map[string]*gguf.Tensor{}
	for _, t := range m.Tensors {
		name, err := f.name(t.Name)
		if err != nil && (f.whole != nil || strings.HasPrefix(t.Name, "rope_factors_")) {
			rest[t.Name] = t
			continue
		}
		if err != nil {
			return err
		}
		x, err := plain(t)
		if err != nil {
			return err
		}
		if f.minus1 && strings.HasSuffix(t.Name, "norm.weight") {
			if x.data, err = minusOne(t); err != nil {
				return err
			}
		}
		if f.heads && (strings.HasSuffix(t.Name, "attn_q.weight") || strings.HasSuffix(t.Name, "attn_k.weight")) {
			x.data = halves(x, m)
		}
		add(name, x)
	}
	if f.whole != nil {
		made, err := f.whole(rest)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(made)) {
			add(name, made[name])
		}
	}
	h, err := json.Marshal(header)
	if err != nil {
		return err
	}
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
	return os.WriteFile(path, append(out, data...), 0o666)
}

// plain is a tensor as it is.
func plain(t *gguf.Tensor) (tensor, error) {
	dtype := map[quant.Type]string{quant.F32: "F32", quant.F16: "F16", quant.BF16: "BF16"}[t.Type]
	if dtype == "" {
		return tensor{}, fmt.Errorf("tensor %s: type %s has no form in safetensors here", t.Name, t.Type)
	}
	shape := slices.Clone(t.Shape)
	slices.Reverse(shape)
	return tensor{dtype, shape, t.Data}, nil
}

// halves puts the rows of heads in transformers' order: what GGUF has as neighbours lies half a head apart.
func halves(t tensor, m *gguf.Model) []byte {
	arch, _, err := m.KV.String("general.architecture")
	if err != nil {
		panic(err)
	}
	d, _, err := m.KV.Int(arch + ".rope.dimension_count") // whole heads are rotated
	if err != nil {
		panic(err)
	}
	rows, each := t.shape[0], len(t.data)/t.shape[0]
	out := make([]byte, 0, len(t.data))
	for h := 0; h < rows; h += int(d) {
		for _, first := range []int{0, 1} {
			for i := first; i < int(d); i += 2 {
				out = append(out, t.data[(h+i)*each:][:each]...)
			}
		}
	}
	return out
}

// name is the name of a GGUF tensor in the folder.
func (f family) name(name string) (string, error) {
	stem, suffix := name[:strings.LastIndex(name, ".")], name[strings.LastIndex(name, "."):]
	if rest, ok := strings.CutPrefix(stem, "blk."); ok {
		layer, part, _ := strings.Cut(rest, ".")
		to := f.names[part]
		if to == "" {
			to = common["blk."+part]
		}
		if slices.Contains(f.bare, part) {
			suffix = ""
		}
		if to != "" && !(strings.HasSuffix(part, "_exps") && suffix == ".bias") {
			return "model.layers." + layer + "." + to + suffix, nil
		}
	} else if to := common[stem]; to != "" {
		return to + suffix, nil
	}
	return "", fmt.Errorf("tensor %s: a %s has none of that name", name, f.class)
}

// minusOne is the elements of a norm less one; it is an error if adding one again does not give them back.
func minusOne(t *gguf.Tensor) ([]byte, error) {
	var b []byte
	for i := 0; i < len(t.Data); i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(t.Data[i:]))
		if v-1+1 != v {
			return nil, fmt.Errorf("tensor %s: element %d, %g, is no float32 plus one", t.Name, i/4, v)
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v-1))
	}
	return b, nil
}
