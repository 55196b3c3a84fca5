package hf

import (
	"encoding/json"
	"math"

	models "ck/internal/arch"
)

// gemma2 reads the keys of Gemma2ForCausalLM. The window is that of every other layer, the first one among them.
func gemma2(c *config) {
	var own struct {
		Activation string          `json:"hidden_activation"`
		Scalar     *float64        `json:"query_pre_attn_scalar"`
		Scores     json.RawMessage `json:"attn_logit_softcapping"`
		Logits     json.RawMessage `json:"final_logit_softcapping"`
	}
	c.own(&own)
	if own.Activation != "" && own.Activation != "gelu_pytorch_tanh" {
		c.fail("hidden_activation %.100q is not supported for %s, expected gelu_pytorch_tanh", own.Activation, c.name)
	}
	if c.HeadDim == nil { // transformers takes 256, not what follows from hidden_size
		c.fail("head_dim: is missing; %s", models.Remedy)
	}
	c.readCounts()
	c.readRope()
	c.readWindow(true, func(layer int) bool { return layer%2 == 0 })
	if scalar := c.number("query_pre_attn_scalar", own.Scalar); scalar != float64(c.headDim) {
		c.set("attention.scale", float32(1/math.Sqrt(scalar)))
	}
	c.softcap("attn_logit_softcapping", own.Scores)
	c.softcap("final_logit_softcapping", own.Logits)
}

// softcap sets the bound that a key gives; null means none, which is 0 in GGUF.
func (c *config) softcap(key string, text json.RawMessage) {
	bound := 0.0
	if string(text) != "null" {
		var p *float64
		if len(text) > 0 && json.Unmarshal(text, &p) != nil {
			c.fail("%s: is %.100s, wanted a number or null; %s", key, text, models.Remedy)
			return
		}
		bound = c.number(key, p)
	}
	c.set(key, float32(bound))
}
