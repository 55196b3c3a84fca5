package hf

// arch is what the converter knows of a class of models; a new one is a row of archs.
type arch struct {
	name    string            // general.architecture
	permute bool              // q and k rows are put in GGUF's order for the rotation (llama.cpp's "norm" rope)
	window  windowRule        // which layers attend to a window
	tensors map[string]string // names outside the layers, without .weight or .bias
	layer   map[string]string // names after model.layers.N.
}

// windowRule says what sliding_window means to a class where layer_types is absent (transformers, configuration_*.py).
type windowRule int

const (
	noWindow      windowRule = iota // the key means nothing
	windowAll                       // all layers, if it is not null
	windowFromMax                   // layers from max_window_layers on, if use_sliding_window is set
)

// archs is the table of classes, as config.json's architectures names them.
var archs = map[string]arch{
	"LlamaForCausalLM":   {name: "llama", permute: true, window: noWindow, tensors: outerTensors, layer: layerTensors},
	"MistralForCausalLM": {name: "llama", permute: true, window: windowAll, tensors: outerTensors, layer: layerTensors},
	"Qwen2ForCausalLM":   {name: "qwen2", window: windowFromMax, tensors: outerTensors, layer: layerTensors},
	"Qwen3ForCausalLM":   {name: "qwen3", window: windowFromMax, tensors: outerTensors, layer: layerTensors},
}

// Names that the decoder-only classes share (gguf-py, tensor_mapping.py).
var outerTensors = map[string]string{
	"model.embed_tokens": "token_embd",
	"model.norm":         "output_norm",
	"lm_head":            "output",
}

var layerTensors = map[string]string{
	"input_layernorm":          "attn_norm",
	"self_attn.q_proj":         "attn_q",
	"self_attn.k_proj":         "attn_k",
	"self_attn.v_proj":         "attn_v",
	"self_attn.o_proj":         "attn_output",
	"self_attn.q_norm":         "attn_q_norm",
	"self_attn.k_norm":         "attn_k_norm",
	"post_attention_layernorm": "ffn_norm",
	"mlp.gate_proj":            "ffn_gate",
	"mlp.up_proj":              "ffn_up",
	"mlp.down_proj":            "ffn_down",
}
