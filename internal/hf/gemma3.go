package hf

import (
	"encoding/json"
	"math"

	models "ck/internal/arch"
)

// gemma3 reads the keys of Gemma3ForCausalLM: five of six layers have a window, and these a rotary base of their own.
func gemma3(c *config) {
	var own struct {
		Activation string          `json:"hidden_activation"`
		Scalar     *float64        `json:"query_pre_attn_scalar"`
		Scores     json.RawMessage `json:"attn_logit_softcapping"`
		Logits     json.RawMessage `json:"final_logit_softcapping"`
		Local      *float64        `json:"rope_local_base_freq"`
		Both       bool            `json:"use_bidirectional_attention"`
		Ropes      *struct {       // of transformers 5
			Full  *rope `json:"full_attention"`
			Slide *rope `json:"sliding_attention"`
		} `json:"rope_parameters"`
	}
	c.own(&own)
	if own.Activation != "" && own.Activation != "gelu_pytorch_tanh" {
		c.fail("hidden_activation %.100q is not supported for %s, expected gelu_pytorch_tanh", own.Activation, c.name)
	}
	if own.Both {
		c.fail("use_bidirectional_attention: is true, and only causal attention is supported for %s", c.name)
	}
	if c.HeadDim == nil { // transformers takes 256, not what follows from hidden_size
		c.fail("head_dim: is missing; %s", models.Remedy)
	}
	if own.Ropes != nil && own.Ropes.Full != nil {
		c.RopeParameters = own.Ropes.Full
	}
	if own.Ropes != nil && own.Ropes.Slide != nil {
		own.Local = own.Ropes.Slide.Theta
	}
	c.readCounts()
	c.readRope()
	c.readWindow(true, func(layer int) bool { return layer%6 != 5 })
	c.set("rope.freq_base_swa", float32(c.number("rope_local_base_freq", own.Local)))
	if scalar := c.number("query_pre_attn_scalar", own.Scalar); scalar != float64(c.headDim) {
		c.set("attention.scale", float32(1/math.Sqrt(scalar)))
	}
	if given := string(own.Scores); given != "" && given != "null" {
		c.fail("attn_logit_softcapping: is %.100s, expected null for %s", given, c.name)
	}
	if given := string(own.Logits); given != "" && given != "null" {
		c.softcap("final_logit_softcapping", own.Logits)
	}
}
