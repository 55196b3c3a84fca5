package hf

import (
	"encoding/json"
	"slices"

	models "ck/internal/arch"
	"ck/internal/gguf"
)

// readWindow reads sliding_window, which means something if the class uses it, and which layers have it: those of layer_types, or where that is
// absent those for which slides is true (transformers, configuration_*.py).
func (c *config) readWindow(used bool, slides func(layer int) bool) {
	c.slides = slides
	if string(c.SlidingWindow) != "null" {
		used = used || slices.Contains(c.LayerTypes, "sliding_attention")
		var p *float64
		if len(c.SlidingWindow) > 0 {
			if json.Unmarshal(c.SlidingWindow, &p) != nil {
				c.fail("sliding_window: is %.100s, wanted an integer or null; %s", c.SlidingWindow, models.Remedy)
				return
			}
		}
		if p != nil || used {
			c.window = int(c.number("sliding_window", p))
		}
	}
	if len(c.LayerTypes) > 0 && len(c.LayerTypes) != c.layers {
		c.fail("layer_types has %d entries, num_hidden_layers is %d", len(c.LayerTypes), c.layers)
	}
	for i, t := range c.LayerTypes {
		if t != "full_attention" && t != "sliding_attention" {
			c.fail("layer_types[%d] is %.100q, expected full_attention or sliding_attention", i, t)
		}
		if t == "sliding_attention" && c.window == 0 {
			c.fail("layer_types[%d] is sliding_attention, but sliding_window is null", i)
		}
	}
	if len(c.LayerTypes) > 0 {
		c.slides = func(layer int) bool { return c.LayerTypes[layer] == "sliding_attention" }
	}
}

// setWindow sets the window's length and, if some layers have none, the list of those that do.
func (c *config) setWindow(kv *gguf.Metadata, prefix string) {
	if c.window == 0 {
		return
	}
	pattern := make([]bool, c.layers)
	for i := range pattern {
		pattern[i] = c.slides(i)
	}
	if !slices.Contains(pattern, true) {
		return
	}
	kv.Set(prefix+"sliding_window", uint32(c.window))
	if slices.Contains(pattern, false) {
		kv.Set(prefix+"sliding_window_pattern", pattern)
	}
}
