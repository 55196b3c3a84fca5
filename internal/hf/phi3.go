package hf

import (
	"cmp"
	"math"
	"slices"

	models "ck/internal/arch"
)

// phi3 reads the keys of Phi3ForCausalLM. With longrope the frequencies are divided by one list of factors in sequences within the original context,
// by another in longer ones, and cos and sin have a factor of both contexts (transformers, modeling_rope_utils.py).
func phi3(c *config) {
	type long struct {
		Type    string    `json:"rope_type"`
		OldType string    `json:"type"`
		Short   []float32 `json:"short_factor"`
		Long    []float32 `json:"long_factor"`
	}
	var own struct {
		Parameters *long `json:"rope_parameters"`
		Scaling    *long `json:"rope_scaling"`
	}
	c.own(&own)
	r := cmp.Or(own.Parameters, own.Scaling)
	var kind string
	if r != nil {
		kind = cmp.Or(r.Type, r.OldType)
	}
	is := kind == "longrope" || kind == "su"
	common := cmp.Or(c.RopeParameters, c.RopeScaling)
	if is { // what else turns is as by default
		common.Type = "default"
	}
	c.decoder("silu")
	c.readWindow(false, func(int) bool { return true })
	if c.window == 0 {
		c.set("attention.sliding_window", uint32(0)) // as the converter has it
	}
	given := c.OriginalContext
	if common != nil {
		given = cmp.Or(common.OriginalContext, given)
	}
	if given == nil { // nothing follows from it without longrope
		given = c.Context
	}
	original := c.required("original_max_position_embeddings", given)
	c.set("rope.scaling.original_context_length", uint32(original))
	if !is {
		return
	}
	scale := 1.0
	if factor := float64(c.context) / original; factor > 1 {
		scale = math.Sqrt(1 + math.Log(factor)/math.Log(original))
	}
	if common.AttentionFactor != nil {
		scale = c.number("attention_factor", common.AttentionFactor)
	}
	c.set("rope.scaling.attn_factor", float32(scale))
	if want := cmp.Or(c.rotated, c.headDim) / 2; len(r.Short) != want || len(r.Long) != want {
		c.fail("rope_scaling: %d short and %d long factors, expected %d; %s", len(r.Short), len(r.Long), want, models.Remedy)
		return
	}
	for _, x := range slices.Concat(r.Short, r.Long) {
		if !(x > 0 && x <= math.MaxFloat32) {
			c.fail("rope_scaling: a factor is %v, expected a number above 0; %s", x, models.Remedy)
			return
		}
	}
	c.factors = map[string][]float32{"rope_factors_short.weight": r.Short, "rope_factors_long.weight": r.Long}
}
