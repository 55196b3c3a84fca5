package hf

// qwen reads the keys of Qwen2ForCausalLM and Qwen3ForCausalLM: layers from max_window_layers on have the window, if use_sliding_window is set.
func qwen(c *config) {
	c.decoder("silu")
	var own struct {
		Use  bool     `json:"use_sliding_window"`
		From *float64 `json:"max_window_layers"`
	}
	c.own(&own)
	from := 0
	c.readWindow(own.Use, func(layer int) bool { return own.Use && layer >= from })
	if own.Use && len(c.LayerTypes) == 0 {
		from = int(c.number("max_window_layers", own.From))
	}
}
