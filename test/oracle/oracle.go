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
}

var families = map[string]family{
	"gemma2": {class: "Gemma2ForCausalLM", config: gemma2, minus1: true, names: map[string]string{"attn_norm": "input_layernorm",
		"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}},
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
	return err == nil && ok && !(arch == "olmo2" && m.KV.Value("olmo2.attention.sliding_window") != nil)
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
	for _, t := range m.Tensors {
		name, err := f.name(t.Name)
		if err != nil {
			return err
		}
		b := t.Data
		if f.minus1 && strings.HasSuffix(t.Name, "norm.weight") {
			if b, err = minusOne(t); err != nil {
				return err
			}
		}
		dtype := map[quant.Type]string{quant.F32: "F32", quant.F16: "F16", quant.BF16: "BF16"}[t.Type]
		if dtype == "" {
			return fmt.Errorf("tensor %s: type %s has no form in safetensors here", t.Name, t.Type)
		}
		shape := slices.Clone(t.Shape)
		slices.Reverse(shape)
		header[name] = entry{dtype, shape, [2]int{len(data), len(data) + len(b)}}
		data = append(data, b...)
	}
	h, err := json.Marshal(header)
	if err != nil {
		return err
	}
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
	return os.WriteFile(path, append(out, data...), 0o666)
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
		if to != "" {
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
