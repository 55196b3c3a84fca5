package hf

// gptOSS reads the keys of GptOssForCausalLM: a window in every other layer, the first one among them, and experts in MXFP4.
func gptOSS(c *config) {
	var own struct {
		Limit *float64 `json:"swiglu_limit"`
	}
	c.own(&own)
	c.decoder("silu")
	c.readWindow(true, func(layer int) bool { return layer%2 == 0 })
	c.mixture("num_local_experts", "num_experts_per_tok", "intermediate_size")
	if own.Limit != nil && *own.Limit != 7 {
		c.fail("swiglu_limit: is %v, and only 7 is supported for %s", *own.Limit, c.name)
	}
}
