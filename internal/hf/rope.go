package hf

import (
	"cmp"
	"math"

	models "ck/internal/arch"
	"ck/internal/gguf"
)

// rope is rope_parameters or rope_scaling.
type rope struct {
	Type            string   `json:"rope_type"`
	OldType         string   `json:"type"`
	Theta           *float64 `json:"rope_theta"`
	Factor          *float64 `json:"factor"`
	OriginalContext *float64 `json:"original_max_position_embeddings"`
	LowFreqFactor   *float64 `json:"low_freq_factor"`
	HighFreqFactor  *float64 `json:"high_freq_factor"`
	AttentionFactor *float64 `json:"attention_factor"`
	ExtFactor       *float64 `json:"extrapolation_factor"`
	BetaFast        *float64 `json:"beta_fast"`
	BetaSlow        *float64 `json:"beta_slow"`
	MScale          *float64 `json:"mscale"`
	MScaleAllDim    *float64 `json:"mscale_all_dim"`
	Beta            *float64 `json:"llama_4_scaling_beta"`
	Truncate        *bool    `json:"truncate"`
	PartialRotary   *float64 `json:"partial_rotary_factor"`
}

// readRope reads what turns queries and keys, of either style.
func (c *config) readRope() {
	// The newer key wins where a file has both, as in transformers.
	if r := cmp.Or(c.RopeParameters, c.RopeScaling); r != nil {
		c.rope = *r
	}
	r := &c.rope
	if c.RopeScaling != nil && c.RopeParameters == nil && cmp.Or(r.Type, r.OldType) == "" {
		c.fail("rope_scaling: names no rope_type; %s", models.Remedy)
	}
	r.Type = cmp.Or(r.Type, r.OldType, "default")
	c.theta = c.number("rope_theta", cmp.Or(r.Theta, c.RopeTheta))
	c.readPartial(cmp.Or(r.PartialRotary, c.PartialRotary))
	switch r.Type {
	case "default":
		return
	case "linear", "yarn", "llama3":
	default:
		c.fail("rope_type %.100q is not supported for %s; known are default, linear, yarn, llama3", r.Type, c.name)
		return
	}
	c.factor = c.required("factor", r.Factor)
	if r.Type == "linear" {
		return
	}
	original := cmp.Or(r.OriginalContext, c.OriginalContext)
	if r.Type == "llama3" {
		if original == nil {
			original = new(float64)
			*original = 8192
			c.notes = append(c.notes, "config.json: original_max_position_embeddings: is missing, taken as 8192: that of llama.cpp's converter for llama3")
		}
		c.lowFreq, c.highFreq = c.number("low_freq_factor", r.LowFreqFactor), c.number("high_freq_factor", r.HighFreqFactor)
		if c.lowFreq >= c.highFreq {
			c.fail("low_freq_factor %v and high_freq_factor %v, expected 0 < low < high", c.lowFreq, c.highFreq)
		}
	}
	c.original = c.number("original_max_position_embeddings", original)
	for key, p := range map[string]*float64{"attention_factor": r.AttentionFactor, "extrapolation_factor": r.ExtFactor, "beta_fast": r.BetaFast,
		"beta_slow": r.BetaSlow, "mscale": r.MScale, "mscale_all_dim": r.MScaleAllDim} {
		if p != nil { // what is missing is a default of package arch
			c.number(key, p)
		}
	}
	if r.Type == "yarn" && r.Truncate != nil && !*r.Truncate { // GGUF has no such key; it is ck's own
		c.set("rope.scaling.yarn_truncate", false)
	}
}

// readPartial reads how much of a head is rotated.
func (c *config) readPartial(share *float64) {
	v := c.number("partial_rotary_factor", share)
	switch n := int(float64(c.headDim) * v); {
	case v == 1:
	case !c.class.partial:
		c.fail("partial_rotary_factor: is %v, and only 1 is supported for %s", v, c.name)
	case n < 2 || n%2 != 0:
		c.fail("partial_rotary_factor: is %v, which rotates %d of %d elements of a head; expected pairs; %s", v, n, c.headDim, models.Remedy)
	default:
		c.rotated = n
	}
}

func (c *config) ropeScaling(kv *gguf.Metadata, prefix string) {
	r := &c.rope
	if r.Type != "linear" && r.Type != "yarn" {
		return // llama3 is a tensor, see ropeFactors
	}
	kv.Set(prefix+"type", r.Type)
	kv.Set(prefix+"factor", float32(c.factor))
	if r.Type == "linear" {
		return
	}
	kv.Set(prefix+"original_context_length", uint32(c.original))
	for _, o := range []struct {
		key   string
		value *float64
	}{{"yarn_ext_factor", r.ExtFactor}, {"yarn_attn_factor", c.yarnAttnFactor()}, {"yarn_beta_fast", r.BetaFast}, {"yarn_beta_slow", r.BetaSlow}} {
		if o.value != nil {
			kv.Set(prefix+o.key, float32(*o.value))
		}
	}
}

// yarnAttnFactor is what GGUF's yarn_attn_factor must be, nil for 1. The engine multiplies cosine and sine by
// yarn_attn_factor * (1 + 0.1 ln factor) (llama.cpp, rope_yarn); transformers by attention_factor itself, or by a quotient of two
// such terms if mscale and mscale_all_dim are given (modeling_rope_utils.py). The converter copies attention_factor as it is, which
// scales twice.
func (c *config) yarnAttnFactor() *float64 {
	scale := func(m float64) float64 {
		if c.factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(c.factor) + 1
	}
	r := &c.rope
	var f float64
	switch {
	case r.AttentionFactor != nil:
		f = *r.AttentionFactor / scale(1)
	case r.MScale != nil && r.MScaleAllDim != nil && *r.MScale != 0 && *r.MScaleAllDim != 0:
		f = scale(*r.MScale) / scale(*r.MScaleAllDim) / scale(1)
	default:
		return nil
	}
	return &f
}

// ropeFactors are the divisors of the rotation's frequencies by the name of their tensor: those of the class, or for rope type llama3: frequencies whose
// wavelength fits high_freq_factor times into the original context stay, those that do not fit low_freq_factor times are divided by
// factor, those between are mixed. In float32 step by step, as the converter's torch does (LlamaModel.generate_extra_tensors).
func (c *config) ropeFactors() map[string][]float32 {
	if c.rope.Type != "llama3" {
		return c.factors
	}
	longest, shortest := float32(c.original/c.lowFreq), float32(c.original/c.highFreq)
	out := make([]float32, c.headDim/2)
	for i := range out {
		freq := 1 / float32(math.Pow(c.theta, float64(float32(2*i)/float32(c.headDim))))
		wavelength := float32(2*math.Pi) / freq
		switch {
		case wavelength < shortest:
			out[i] = 1
		case wavelength > longest:
			out[i] = float32(c.factor)
		default:
			smooth := (float32(c.original)/wavelength - float32(c.lowFreq)) / float32(c.highFreq-c.lowFreq)
			mixed := float32((1-smooth)/float32(c.factor)) + smooth
			out[i] = 1 / mixed
		}
	}
	return map[string][]float32{"rope_freqs.weight": out}
}
