package oracle

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// pre are the names of norms before blocks.
var pre = map[string]string{"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}

func with(names map[string]string, more ...string) map[string]string {
	out := maps.Clone(names)
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// number is a float32 of the file, as short as a person writes it.
func number(m *gguf.Model, key string) json.Number {
	return json.Number(fmt.Sprint(m.KV.Value(key).(float32)))
}

func phi3(m *gguf.Model, c map[string]any) {
	c["hidden_act"], c["sliding_window"] = "silu", nil
	c["original_max_position_embeddings"] = m.KV.Value("phi3.rope.scaling.original_context_length")
	long := m.Tensor("rope_factors_long.weight")
	if long == nil {
		return
	}
	list := func(t *gguf.Tensor) (out []json.Number) {
		for i := 0; i < len(t.Data); i += 4 {
			out = append(out, json.Number(fmt.Sprint(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[i:])))))
		}
		return out
	}
	c["rope_scaling"] = map[string]any{"type": "longrope", "long_factor": list(long), "short_factor": list(m.Tensor("rope_factors_short.weight"))}
}

func granite(m *gguf.Model, c map[string]any) {
	arch := m.KV.Value("general.architecture").(string)
	c["hidden_act"] = "silu"
	for key, name := range map[string]string{"embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale", "attention_multiplier": "attention.scale",
		"logits_scaling": "logit_scale"} {
		c[key] = number(m, arch+"."+name)
	}
	c["num_local_experts"], c["num_experts_per_tok"] = m.KV.Value(arch+".expert_count"), m.KV.Value(arch+".expert_used_count")
}

func glm4moe(m *gguf.Model, c map[string]any) {
	c["hidden_act"], c["partial_rotary_factor"] = "silu", 0.5
	for key, name := range map[string]string{"n_routed_experts": "expert_count", "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
		"n_group": "expert_group_count", "topk_group": "expert_group_used_count", "n_shared_experts": "expert_shared_count", "first_k_dense_replace": "leading_dense_block_count",
		"num_nextn_predict_layers": "nextn_predict_layers", "norm_topk_prob": "expert_weights_norm"} {
		c[key] = m.KV.Value("glm4moe." + name)
	}
	c["routed_scaling_factor"] = number(m, "glm4moe.expert_weights_scale")
}

func gptOSS(m *gguf.Model, c map[string]any) {
	c["hidden_act"], c["swiglu_limit"], c["quantization_config"] = "silu", 7.0, map[string]any{"quant_method": "mxfp4"}
	c["sliding_window"] = m.KV.Value("gpt-oss.attention.sliding_window")
	c["num_local_experts"], c["num_experts_per_tok"] = m.KV.Value("gpt-oss.expert_count"), m.KV.Value("gpt-oss.expert_used_count")
	c["rope_scaling"] = map[string]any{"rope_type": "yarn", "factor": number(m, "gpt-oss.rope.scaling.factor"), "beta_fast": 32.0, "beta_slow": 1.0,
		"original_max_position_embeddings": m.KV.Value("gpt-oss.rope.scaling.original_context_length")}
}

// layerOf cuts a name of the file into the beginning of the folder's and the rest.
func layerOf(name string) (layer, part string) {
	number, part, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	return "model.layers." + number + ".", part
}

// granitemoe puts gates and what they multiply into one tensor: of each expert the first, then the second.
func granitemoe(ts map[string]*gguf.Tensor) (map[string]tensor, error) {
	out := map[string]tensor{}
	for name, gate := range ts {
		layer, part := layerOf(name)
		if part != "ffn_gate_exps.weight" {
			continue
		}
		up := ts[strings.Replace(name, "gate", "up", 1)]
		t, err := plain(gate)
		if err != nil {
			return nil, err
		}
		experts := t.shape[0]
		each := len(t.data) / experts
		var b []byte
		for e := range experts {
			b = append(append(b, gate.Data[e*each:][:each]...), up.Data[e*each:][:each]...)
		}
		out[layer+"block_sparse_moe.input_linear.weight"] = tensor{t.dtype, []int{experts, 2 * t.shape[1], t.shape[2]}, b}
	}
	return out, nil
}

// glm4moeExperts makes a tensor of each expert.
func glm4moeExperts(ts map[string]*gguf.Tensor) (map[string]tensor, error) {
	out := map[string]tensor{}
	for name, x := range ts {
		layer, part := layerOf(name)
		t, err := plain(x)
		if err != nil {
			return nil, err
		}
		if part == "exp_probs_b.bias" {
			out[layer+"mlp.gate.e_score_correction_bias"] = t
			continue
		}
		to, ok := map[string]string{"ffn_gate_exps.weight": "gate_proj", "ffn_up_exps.weight": "up_proj", "ffn_down_exps.weight": "down_proj"}[part]
		if !ok {
			return nil, fmt.Errorf("tensor %s: has no name", name)
		}
		each := len(t.data) / t.shape[0]
		for e := range t.shape[0] {
			out[fmt.Sprintf("%smlp.experts.%d.%s.weight", layer, e, to)] = tensor{t.dtype, t.shape[1:], t.data[e*each:][:each]}
		}
	}
	return out, nil
}

// gptOSSExperts writes blocks and scales apart, neighbours in a byte; the rows of gates and of what they multiply in turns.
func gptOSSExperts(ts map[string]*gguf.Tensor) (map[string]tensor, error) {
	out := map[string]tensor{}
	for name := range ts {
		layer, part := layerOf(name)
		for to, from := range map[string][]string{"gate_up_proj": {"ffn_gate_exps", "ffn_up_exps"}, "down_proj": {"ffn_down_exps"}} {
			if part != from[0]+".weight" {
				continue
			}
			prefix := strings.TrimSuffix(name, part)
			first := ts[prefix+from[0]+".weight"]
			cols, rows, experts := first.Shape[0], first.Shape[1], first.Shape[2]
			var blocks, scales, biases []byte
			for r := range rows * experts {
				for _, f := range from {
					w, bias := ts[prefix+f+".weight"], ts[prefix+f+".bias"]
					if w.Type != quant.MXFP4 || bias.Type != quant.F32 {
						return nil, fmt.Errorf("tensor %s: type %s", w.Name, w.Type)
					}
					for b := range cols / 32 {
						block := w.Data[(r*cols/32+b)*17:][:17]
						scales = append(scales, block[0])
						code := func(i int) byte {
							if i < 16 {
								return block[1+i] & 15
							}
							return block[1+i-16] >> 4
						}
						for i := 0; i < 32; i += 2 {
							blocks = append(blocks, code(i)|code(i+1)<<4)
						}
					}
					biases = append(biases, bias.Data[4*r:][:4]...)
				}
			}
			n := rows * len(from)
			out[layer+"mlp.experts."+to+"_blocks"] = tensor{"U8", []int{experts, n, cols / 32, 16}, blocks}
			out[layer+"mlp.experts."+to+"_scales"] = tensor{"U8", []int{experts, n, cols / 32}, scales}
			out[layer+"mlp.experts."+to+"_bias"] = tensor{"F32", []int{experts, n}, biases}
		}
	}
	return out, nil
}
