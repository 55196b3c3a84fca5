package hf

// granite reads the keys of GraniteForCausalLM: llama with factors.
func granite(c *config) {
	c.decoder("silu")
	var own struct {
		Embedding *float64 `json:"embedding_multiplier"`
		Residual  *float64 `json:"residual_multiplier"`
		Attention *float64 `json:"attention_multiplier"`
		Logits    *float64 `json:"logits_scaling"`
	}
	c.own(&own)
	for _, k := range []struct {
		key, to string
		v       *float64
	}{{"embedding_multiplier", "embedding_scale", own.Embedding}, {"residual_multiplier", "residual_scale", own.Residual},
		{"attention_multiplier", "attention.scale", own.Attention}, {"logits_scaling", "logit_scale", own.Logits}} {
		// What is missing is 1 in transformers, of scores too.
		c.set(k.to, float32(c.number(k.key, k.v)))
	}
}

// graniteMoE reads the keys of GraniteMoeForCausalLM.
func graniteMoE(c *config) {
	granite(c)
	c.mixture("num_local_experts", "num_experts_per_tok", "")
}
