package hf

// llama reads the keys of LlamaForCausalLM and Olmo2ForCausalLM, to which sliding_window means nothing.
func llama(c *config) { c.decoder("silu") }

// mistral reads the keys of MistralForCausalLM: all layers have the window, if it is not null.
func mistral(c *config) {
	c.decoder("silu")
	c.readWindow(true, func(int) bool { return true })
}
