package hf

// llama reads the keys of LlamaForCausalLM and Olmo2ForCausalLM, to which sliding_window means nothing.
func llama(c *config) { c.decoder("silu") }

// ministral reads the keys of Ministral3ForCausalLM: queries grow with the position, and yarn has the scale that mscale_all_dim leaves.
func ministral(c *config) {
	mistral(c)
	r := &c.rope
	if r.Beta != nil {
		c.set("attention.temperature_scale", float32(c.number("llama_4_scaling_beta", r.Beta)))
	}
	if r.Type != "yarn" || r.MScaleAllDim == nil {
		return
	}
	if r.MScale == nil || *r.MScale != 1 {
		c.fail("mscale: only 1 is supported for %s", c.name)
	}
	c.set("rope.scaling.yarn_log_multiplier", float32(*r.MScaleAllDim))
	r.MScale = nil // said by the multiplier
}

// mistral reads the keys of MistralForCausalLM: all layers have the window, if it is not null.
func mistral(c *config) {
	c.decoder("silu")
	c.readWindow(true, func(int) bool { return true })
}
