package hf

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ck/internal/gguf"
)

// class is what the converter knows of a class of models; a new one is a row of classes and a file with its parser.
type class struct {
	arch    string            // general.architecture
	parse   func(*config)     // reads the keys of config.json
	tied    bool              // the output matrix is the embedding's where config.json does not say
	names   map[string]string // GGUF names of tensors, without .weight or .bias; "N." stands for "model.layers.N." there and "blk.N." here, E for the number of an expert; names with a dot here are whole, of tensors without such an end there
	recipes map[string]recipe // of the rows of tensors, by GGUF name without "blk.N."; the others are as they are

	// apart are tensors that become others than one each, by whole name with "N."; takeApart makes these of them when all are known.
	apart     map[string]bool
	takeApart func(c *config, m *gguf.Model) error
	partial   bool // a part of a head may be rotated
}

// classes is the table, as config.json's architectures names them.
var classes = map[string]class{
	"Gemma2ForCausalLM": {arch: "gemma2", parse: gemma2, tied: true, names: union(projections, postNorms, map[string]string{
		"N.input_layernorm":           "attn_norm",
		"N.pre_feedforward_layernorm": "ffn_norm",
	}), recipes: onePlusNorms},
	"Gemma3ForCausalLM": {arch: "gemma3", parse: gemma3, tied: true, names: union(projections, postNorms, qkNorms, map[string]string{
		"N.input_layernorm":           "attn_norm",
		"N.pre_feedforward_layernorm": "ffn_norm",
	}), recipes: onePlusNorms},
	"Gemma4ForCausalLM": {arch: "gemma4", parse: gemma4, tied: true, names: union(projections, postNorms, qkNorms, map[string]string{
		"N.input_layernorm":                "attn_norm",
		"N.pre_feedforward_layernorm":      "ffn_norm",
		"N.post_feedforward_layernorm_1":   "post_ffw_norm_1",
		"N.pre_feedforward_layernorm_2":    "pre_ffw_norm_2",
		"N.post_feedforward_layernorm_2":   "post_ffw_norm_2",
		"N.layer_scalar":                   "layer_output_scale.weight",
		"N.router.proj":                    "ffn_gate_inp",
		"N.router.scale":                   "ffn_gate_inp.scale",
		"N.router.per_expert_scale":        "ffn_down_exps.scale",
		"N.experts.gate_up_proj":           "ffn_gate_up_exps.weight",
		"N.experts.down_proj":              "ffn_down_exps.weight",
		"model.embed_tokens_per_layer":     "per_layer_token_embd",
		"model.per_layer_model_projection": "per_layer_model_proj",
		"model.per_layer_projection_norm":  "per_layer_proj_norm",
		"N.per_layer_input_gate":           "inp_gate",
		"N.per_layer_projection":           "proj",
		"N.post_per_layer_input_norm":      "post_norm",
	})},
	"Glm4MoeForCausalLM": {arch: "glm4moe", parse: glm4moe, partial: true, names: union(projections, qkNorms, experts, map[string]string{
		"N.input_layernorm":                  "attn_norm",
		"N.post_attention_layernorm":         "post_attention_norm",
		"N.mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
		"N.mlp.shared_experts.gate_proj":     "ffn_gate_shexp",
		"N.mlp.shared_experts.up_proj":       "ffn_up_shexp",
		"N.mlp.shared_experts.down_proj":     "ffn_down_shexp",
	})},
	"GptOssForCausalLM": {arch: "gpt-oss", parse: gptOSS, names: union(projections, map[string]string{
		"N.input_layernorm":          "attn_norm",
		"N.post_attention_layernorm": "post_attention_norm",
		"N.self_attn.sinks":          "attn_sinks.weight",
		"N.mlp.router":               "ffn_gate_inp",
	}), apart: gptOSSExperts, takeApart: (*config).gptOSSExperts},
	"GraniteForCausalLM": {arch: "granite", parse: granite, names: union(projections, preNorms), recipes: neighbours},
	"GraniteMoeForCausalLM": {arch: "granitemoe", parse: graniteMoE, names: union(projections, preNorms, map[string]string{
		"N.block_sparse_moe.router.layer":  "ffn_gate_inp",
		"N.block_sparse_moe.output_linear": "ffn_down_exps",
	}), recipes: neighbours, apart: map[string]bool{graniteMoEInput: true}, takeApart: (*config).graniteMoEInput},
	"Phi3ForCausalLM": {arch: "phi3", parse: phi3, partial: true, names: union(projections, preNorms, map[string]string{
		"N.self_attn.qkv_proj": "attn_qkv",
		"N.mlp.gate_up_proj":   "ffn_up",
	})},
	"LlamaForCausalLM": {arch: "llama", parse: llama, names: union(projections, preNorms), recipes: neighbours},
	"MixtralForCausalLM": {arch: "llama", parse: mixtral, names: union(projections, preNorms, map[string]string{
		"N.block_sparse_moe.gate":         "ffn_gate_inp",
		"N.block_sparse_moe.experts.E.w1": "ffn_gate_exps",
		"N.block_sparse_moe.experts.E.w2": "ffn_down_exps",
		"N.block_sparse_moe.experts.E.w3": "ffn_up_exps",
	}), recipes: neighbours},
	"Qwen3MoeForCausalLM":   {arch: "qwen3moe", parse: qwen3moe, names: union(projections, preNorms, qkNorms, experts)},
	"Ministral3ForCausalLM": {arch: "mistral3", parse: ministral, names: union(projections, preNorms), recipes: neighbours},
	"MistralForCausalLM":    {arch: "llama", parse: mistral, names: union(projections, preNorms), recipes: neighbours},
	"Olmo2ForCausalLM":      {arch: "olmo2", parse: llama, names: union(projections, qkNorms, postNorms)},
	"Qwen2ForCausalLM":      {arch: "qwen2", parse: qwen, names: union(projections, preNorms)},
	"Qwen3ForCausalLM":      {arch: "qwen3", parse: qwen, names: union(projections, preNorms, qkNorms)},
}

// Names that classes share (gguf-py, tensor_mapping.py).
var (
	projections = map[string]string{
		"model.embed_tokens": "token_embd",
		"model.norm":         "output_norm",
		"lm_head":            "output",
		"N.self_attn.q_proj": "attn_q",
		"N.self_attn.k_proj": "attn_k",
		"N.self_attn.v_proj": "attn_v",
		"N.self_attn.o_proj": "attn_output",
		"N.mlp.gate_proj":    "ffn_gate",
		"N.mlp.up_proj":      "ffn_up",
		"N.mlp.down_proj":    "ffn_down",
	}
	preNorms = map[string]string{
		"N.input_layernorm":          "attn_norm",
		"N.post_attention_layernorm": "ffn_norm",
	}
	postNorms = map[string]string{
		"N.post_attention_layernorm":   "post_attention_norm",
		"N.post_feedforward_layernorm": "post_ffw_norm",
	}
	experts = map[string]string{
		"N.mlp.gate":                "ffn_gate_inp",
		"N.mlp.experts.E.gate_proj": "ffn_gate_exps",
		"N.mlp.experts.E.up_proj":   "ffn_up_exps",
		"N.mlp.experts.E.down_proj": "ffn_down_exps",
	}
	qkNorms = map[string]string{
		"N.self_attn.q_norm": "attn_q_norm",
		"N.self_attn.k_norm": "attn_k_norm",
	}
)

// neighbours are the recipes of models whose GGUF files turn neighbours.
var neighbours = map[string]recipe{
	"attn_q": permute(func(c *config) int { return c.heads }),
	"attn_k": permute(func(c *config) int { return c.headsKV }),
}

// onePlusNorms are the recipes of models whose folders have norms less one.
var onePlusNorms = map[string]recipe{"output_norm": onePlus, "attn_norm": onePlus, "post_attention_norm": onePlus, "ffn_norm": onePlus, "post_ffw_norm": onePlus,
	"attn_q_norm": onePlus, "attn_k_norm": onePlus}

// union is all names of several maps.
func union(of ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range of {
		maps.Copy(all, m)
	}
	return all
}

// ClassError says that a folder's class is not in the table.
type ClassError struct{ Name string }

func (e *ClassError) Error() string {
	return fmt.Sprintf("architecture %.100q is not supported; known are %s", e.Name, strings.Join(slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(classes)), wrappers...))), ", "))
}
