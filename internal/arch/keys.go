package arch

import (
	"fmt"
	"math"
	"strconv"
)

// Remedy is what to do about a file that says what cannot be.
const Remedy = "the file is damaged or was written wrongly: download or convert it again"

// limit is the largest sensible value of a size: it keeps products of two within an int.
const limit = 1 << 30

// Key is a hyperparameter: what a sound file may say, and what it means where the file leaves it out. All that is read of a file is a
// row of the table, so that nothing is read without a range and no default is taken unsaid.
type Key struct {
	Name     string  // in GGUF, behind the architecture's name and a dot; "" if only config.json has it
	Config   string  // in config.json; "" if that has none
	Integer  bool    // of any width
	Min, Max float64 // both allowed
	Above    bool    // Min itself is not allowed

	// Default is the value where the file leaves the key out; get is the value of another key. nil: the file must have it.
	Default func(get func(name string) float64) float64
	// Why the default is right; "" where the absence of the key is the absence of a feature, which needs no word.
	Why string
}

// is and of make defaults: a number, and what another key says.
func is(v float64) func(func(string) float64) float64 {
	return func(func(string) float64) float64 { return v }
}

func of(name string) func(func(string) float64) float64 {
	return func(get func(string) float64) float64 { return get(name) }
}

// keys is the table.
var keys = []Key{
	{Name: "embedding_length", Config: "hidden_size", Integer: true, Min: 1, Max: limit},
	{Name: "block_count", Config: "num_hidden_layers", Integer: true, Min: 1, Max: 1 << 14},
	{Name: "feed_forward_length", Config: "intermediate_size", Integer: true, Min: 1, Max: limit},
	{Name: "vocab_size", Config: "vocab_size", Integer: true, Min: 1, Max: limit}, // of GGUF: only where it is there
	{Name: "context_length", Config: "max_position_embeddings", Integer: true, Min: 1, Max: limit,
		Default: is(2048), Why: "the context of the first llama models, whose files may lack it"},
	{Name: "expert_count", Integer: true, Min: 0, Max: 1 << 20, Default: is(0)},
	{Name: "expert_used_count", Config: "num_experts_per_tok", Integer: true, Min: 0, Max: 1 << 20},
	{Config: "num_experts", Integer: true, Min: 1, Max: 1 << 20},
	{Config: "top_k_experts", Integer: true, Min: 1, Max: 1 << 20},
	{Config: "n_routed_experts", Integer: true, Min: 1, Max: 1 << 20},
	{Config: "n_shared_experts", Integer: true, Min: 0, Max: 1 << 20},
	{Config: "first_k_dense_replace", Integer: true, Min: 0, Max: 1 << 14},
	{Config: "num_local_experts", Integer: true, Min: 1, Max: 1 << 20},
	{Name: "expert_feed_forward_length", Config: "moe_intermediate_size", Integer: true, Min: 1, Max: limit},
	{Name: "interleave_moe_layer_step", Integer: true, Min: 0, Max: 1 << 14},
	{Name: "expert_gating_func", Integer: true, Min: 0, Max: 255},
	{Name: "expert_weights_scale", Config: "routed_scaling_factor", Min: 0, Max: 1e6, Above: true},
	{Name: "expert_group_count", Config: "n_group", Integer: true, Min: 0, Max: 1 << 20, Default: is(0)},
	{Name: "expert_group_used_count", Config: "topk_group", Integer: true, Min: 0, Max: 1 << 20, Default: is(0)},

	{Name: "nextn_predict_layers", Config: "num_nextn_predict_layers", Integer: true, Min: 0, Max: 1 << 14, Default: is(0)},
	{Name: "embedding_scale", Config: "embedding_multiplier", Min: 0, Max: 1e6, Above: true, Default: is(1)},
	{Name: "residual_scale", Config: "residual_multiplier", Min: 0, Max: 1e6, Above: true, Default: is(1)},
	{Name: "logit_scale", Config: "logits_scaling", Min: 0, Max: 1e6, Above: true, Default: is(1)},

	{Name: "attention.head_count", Config: "num_attention_heads", Integer: true, Min: 1, Max: 1 << 20},
	{Name: "attention.head_count_kv", Config: "num_key_value_heads", Integer: true, Min: 1, Max: 1 << 20,
		Default: of("attention.head_count"), Why: "each head has keys and values of its own"},
	{Name: "attention.key_length", Config: "head_dim", Integer: true, Min: 1, Max: 1 << 14,
		Default: func(get func(string) float64) float64 {
			return math.Trunc(get("embedding_length") / get("attention.head_count"))
		}, Why: "the heads share the width"},
	{Name: "attention.key_length_swa", Integer: true, Min: 1, Max: 1 << 14, Default: of("attention.key_length")}, // of layers with a window
	{Name: "attention.value_length_swa", Integer: true, Min: 1, Max: 1 << 14, Default: of("attention.value_length")},
	{Name: "attention.shared_kv_layers", Config: "num_kv_shared_layers", Integer: true, Min: 0, Max: 1 << 14, Default: is(0)},
	{Name: "embedding_length_per_layer_input", Config: "hidden_size_per_layer_input", Integer: true, Min: 0, Max: 1 << 16, Default: is(0)},
	{Name: "attention.value_length", Integer: true, Min: 1, Max: 1 << 14, Default: of("attention.key_length"), Why: "values are as long as keys"},
	{Name: "attention.layer_norm_rms_epsilon", Config: "rms_norm_eps", Min: 0, Max: 1, Above: true, Default: is(1e-5), Why: "that of llama"},
	{Name: "attention.sliding_window", Integer: true, Min: 0, Max: limit, Default: is(0)},
	{Name: "attention.temperature_scale", Config: "llama_4_scaling_beta", Min: 0, Max: 1e3},
	{Name: "attention.scale", Min: 0, Max: 1e3, Above: true},
	{Config: "attention_multiplier", Min: 0, Max: 1e3, Above: true, Default: is(1)},
	{Config: "query_pre_attn_scalar", Min: 0, Max: 1e6, Above: true, Default: is(256), Why: "that of transformers"},
	{Name: "attn_logit_softcapping", Config: "attn_logit_softcapping", Min: 0, Max: 1e6, Default: is(50), Why: "that of gemma 2; 0 means none"},
	{Name: "final_logit_softcapping", Config: "final_logit_softcapping", Min: 0, Max: 1e6, Default: is(30), Why: "that of gemma 2; 0 means none"},
	{Config: "sliding_window", Integer: true, Min: 1, Max: limit, Default: is(4096), Why: "that of transformers; null means none"},
	{Config: "max_window_layers", Integer: true, Min: 0, Max: limit, Default: is(28), Why: "that of transformers"},

	{Name: "rope.dimension_count", Integer: true, Min: 2, Max: 1 << 14, Default: of("attention.key_length"), Why: "whole heads are rotated"},
	{Name: "rope.freq_base", Config: "rope_theta", Min: 1, Max: 1e15, Default: is(10000), Why: "that of Su et al. 2021, which converters leave out"},
	{Name: "rope.dimension_count_swa", Integer: true, Min: 2, Max: 1 << 14, Default: of("attention.key_length_swa")},
	{Name: "rope.freq_base_swa", Min: 1, Max: 1e15, Default: of("rope.freq_base")}, // of layers with a window
	{Config: "partial_rotary_factor", Min: 0, Max: 1, Above: true, Default: is(1)},
	{Config: "rope_local_base_freq", Min: 1, Max: 1e15, Default: is(10000), Why: "that of transformers"},
	{Name: "rope.scaling.factor", Config: "factor", Min: 0, Max: 1e6, Above: true, Default: of("rope.scale_linear")},
	{Name: "rope.scale_linear", Min: 0, Max: 1e6, Above: true, Default: is(1)}, // the factor's older name
	{Name: "rope.scaling.original_context_length", Config: "original_max_position_embeddings", Integer: true, Min: 1, Max: limit,
		Default: of("context_length"), Why: "that of transformers for yarn"},
	{Name: "rope.scaling.yarn_ext_factor", Config: "extrapolation_factor", Min: 1, Max: 1, Default: is(1)}, // others are not supported
	{Name: "rope.scaling.yarn_attn_factor", Config: "attention_factor", Min: 0, Max: 1e3, Above: true, Default: of("rope.scaling.attn_factor")},
	{Name: "rope.scaling.yarn_log_multiplier", Min: 0, Max: 1e3},
	{Name: "rope.scaling.attn_factor", Min: 0, Max: 1e3, Above: true, Default: is(1)},
	{Name: "rope.scaling.yarn_beta_fast", Config: "beta_fast", Min: 0, Max: 1e6, Above: true, Default: is(32), Why: "that of Peng et al. 2023 for llama"},
	{Name: "rope.scaling.yarn_beta_slow", Config: "beta_slow", Min: 0, Max: 1e6, Above: true, Default: is(1), Why: "that of Peng et al. 2023 for llama"},
	{Config: "low_freq_factor", Min: 0, Max: 1e6, Above: true, Default: is(1), Why: "that of llama.cpp's converter"},
	{Config: "high_freq_factor", Min: 0, Max: 1e6, Above: true, Default: is(4), Why: "that of llama.cpp's converter"},
	{Config: "mscale", Min: 0, Max: 1e3, Default: is(0)}, // 0: as if it were not there
	{Config: "mscale_all_dim", Min: 0, Max: 1e3, Default: is(0)},
}

// words are the keys that are no numbers: what is taken where the file leaves them out, and why.
var words = map[string]struct{ says, why string }{
	"rope.scaling.type":                {"linear", "old files name only the factor"},
	"attention.sliding_window_pattern": {"a window in every layer", "files of models with full attention between name the layers"},
}

// find is the row for which is holds; asking for a key without a row is a defect of the caller.
func find(what string, is func(*Key) bool) *Key {
	for i := range keys {
		if is(&keys[i]) {
			return &keys[i]
		}
	}
	panic("arch: no row of the table of keys is called " + what)
}

func keyNamed(name string) *Key { return find(name, func(k *Key) bool { return k.Name == name }) }

// ConfigKey is the row of a key of config.json; it panics if there is none.
func ConfigKey(name string) *Key { return find(name, func(k *Key) bool { return k.Config == name }) }

// Check says what is wrong with a value of the key, without naming the key; nil if it is sound.
func (k *Key) Check(v float64) error {
	if v >= k.Min && v <= k.Max && !(k.Above && v == k.Min) && !(k.Integer && v != math.Trunc(v)) {
		return nil
	}
	what := "a number"
	if k.Integer {
		what = "an integer"
	}
	switch {
	case k.Min == k.Max:
		return fmt.Errorf("is %s, and only %s is supported", Text(v), Text(k.Min))
	case k.Above:
		return fmt.Errorf("is %s, expected %s above %s and at most %s; %s", Text(v), what, Text(k.Min), Text(k.Max), Remedy)
	}
	return fmt.Errorf("is %s, expected %s from %s to %s; %s", Text(v), what, Text(k.Min), Text(k.Max), Remedy)
}

// Text is a value as a person writes it: sizes in full.
func Text(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e10 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// sound is a value that passes Check, for what is still computed after an error.
func (k *Key) sound() float64 { return max(k.Min, 1) }
