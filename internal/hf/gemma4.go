package hf

import (
	"encoding/json"
	"slices"
	"strconv"

	models "ck/internal/arch"
)

// gemma4 reads the keys of Gemma4ForCausalLM (transformers, configuration_gemma4.py): layers without a window have heads, KV heads and a rotation of
// their own.
func gemma4(c *config) {
	var own struct {
		Activation string          `json:"hidden_activation"`
		Logits     json.RawMessage `json:"final_logit_softcapping"`
		Both       json.RawMessage `json:"use_bidirectional_attention"`
		Shared     *float64        `json:"num_kv_shared_layers"`
		Wide       bool            `json:"use_double_wide_mlp"`
		PerLayer   *float64        `json:"hidden_size_per_layer_input"`
		Experts    bool            `json:"enable_moe_block"`
		Ropes      *struct {
			Full  *rope `json:"full_attention"`
			Slide *rope `json:"sliding_attention"`
		} `json:"rope_parameters"`
	}
	c.own(&own)
	if own.Activation != "" && own.Activation != "gelu_pytorch_tanh" {
		c.fail("hidden_activation %.100q is not supported for %s, expected gelu_pytorch_tanh", own.Activation, c.name)
	}
	if s := string(own.Both); s != "" && s != "null" && s != "false" && s != `"vision"` { // which is about pictures
		c.fail("use_bidirectional_attention: is %.100s, and only causal attention is supported for %s", s, c.name)
	}
	if c.HeadDim == nil { // transformers takes 256, not what follows from hidden_size
		c.fail("head_dim: is missing; %s", models.Remedy)
	}
	if own.Ropes == nil || own.Ropes.Full == nil || own.Ropes.Slide == nil {
		c.fail("rope_parameters: must have full_attention and sliding_attention; %s", models.Remedy)
		return
	}
	full := *own.Ropes.Full
	share, kind := full.PartialRotary, full.Type
	full.PartialRotary = nil
	if kind == "proportional" {
		full.Type = "default"
	}
	c.RopeParameters = &full
	c.readCounts()
	c.readRope()
	c.readWindow(true, func(layer int) bool { return layer%6 != 5 })
	c.set("rope.freq_base_swa", float32(c.required("rope_theta", own.Ropes.Slide.Theta)))
	c.globalHeads()
	c.factors = map[string][]float32{"rope_freqs.weight": proportional(c.headDim, c.partOf(share, kind))}

	shared := 0
	if own.Shared != nil {
		shared = int(c.number("num_kv_shared_layers", own.Shared))
	}
	c.set("attention.shared_kv_layers", uint32(shared))
	if own.Wide { // feed-forwards of layers without keys of their own are twice as wide
		widths := make([]uint32, c.layers)
		for l := range widths {
			if widths[l] = uint32(c.ffn); l >= c.layers-shared {
				widths[l] *= 2
			}
		}
		c.set("feed_forward_length", widths)
	}
	width := 0
	if own.PerLayer != nil {
		width = int(c.number("hidden_size_per_layer_input", own.PerLayer))
	}
	c.set("embedding_length_per_layer_input", uint32(width))
	if own.Experts {
		c.mixture("num_experts", "top_k_experts", "moe_intermediate_size")
	}
	if given := string(own.Logits); given != "" && given != "null" {
		c.softcap("final_logit_softcapping", own.Logits)
	}
}

// globalHeads reads the sizes of layers without a window, of either style, and sets those of both kinds: per_layer_config has them by layer,
// global_head_dim and num_global_key_value_heads for all such layers.
func (c *config) globalHeads() {
	type sizes struct {
		HeadDim *float64 `json:"head_dim"`
		KV      *float64 `json:"num_key_value_heads"`
	}
	var own struct {
		HeadDim *float64         `json:"global_head_dim"`
		KV      *float64         `json:"num_global_key_value_heads"`
		Layers  map[string]sizes `json:"per_layer_config"`
	}
	c.own(&own)
	near, dims, kvs := c.headDim, make([]int, c.layers), make([]int32, c.layers)
	for l := range c.layers {
		s := own.Layers[strconv.Itoa(l)]
		if !c.slides(l) && own.Layers == nil {
			s = sizes{own.HeadDim, own.KV}
		}
		dims[l], kvs[l] = near, int32(c.headsKV)
		if s.HeadDim != nil {
			dims[l] = int(c.number("head_dim", s.HeadDim))
		}
		if s.KV != nil {
			kvs[l] = int32(c.number("num_key_value_heads", s.KV))
		}
	}
	far := near
	for l, d := range dims {
		if !c.slides(l) {
			far = d
		}
	}
	for l, d := range dims {
		if want := map[bool]int{true: near, false: far}[c.slides(l)]; d != want {
			c.fail("head_dim of layer %d is %d, of others of its kind %d; that is not supported for %s", l, d, want, c.name)
		}
	}
	if far%2 != 0 {
		c.fail("head_dim %d is odd; rotary embeddings need pairs", far)
	}
	c.headDim = far
	for _, name := range []string{"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"} {
		c.set(name, uint32(near))
	}
	if slices.Max(kvs) != slices.Min(kvs) {
		c.set("attention.head_count_kv", kvs)
	} else {
		c.headsKV = int(kvs[0])
	}
}

// partOf is the part of a head that a rotation of the kind turns.
func (c *config) partOf(share *float64, kind string) float64 {
	switch {
	case kind != "proportional" && share != nil && *share != 1:
		c.fail("partial_rotary_factor: is supported for rope_type proportional alone in %s", c.name)
	case share == nil || kind != "proportional":
		return 1
	case !(*share > 0 && *share <= 1):
		c.fail("partial_rotary_factor: is %v, expected a number above 0 and at most 1; %s", *share, models.Remedy)
		return 1
	}
	return *share
}

// proportional are the divisors that leave the frequencies of the first pairs of a head as they are, and stop the others; 1e30 is what the converter
// writes for that.
func proportional(dim int, share float64) []float32 {
	out := make([]float32, dim/2)
	for i := range out {
		if out[i] = 1; i >= int(share*float64(dim)/2) {
			out[i] = 1e30
		}
	}
	return out
}
