package hf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"ck/internal/gguf"
)

const (
	maxCount    = 1 << 30 // of anything that config.json counts
	maxLayers   = 1 << 16 // and of what is held per layer or pair of a head: a short file asks for no more
	maxHeadDim  = 1 << 16
	defaultBase = 10000 // rope_theta of the four classes where config.json has none
)

// config is the part of config.json that the table's classes compute with. JSON null leaves the zero value.
type config struct {
	Architectures     []string
	HiddenSize        int     `json:"hidden_size"`
	IntermediateSize  int     `json:"intermediate_size"`
	Layers            int     `json:"num_hidden_layers"`
	Heads             int     `json:"num_attention_heads"`
	HeadsKV           int     `json:"num_key_value_heads"`
	HeadDim           int     `json:"head_dim"`
	Context           int     `json:"max_position_embeddings"`
	Vocab             int     `json:"vocab_size"`
	RMSNormEps        float64 `json:"rms_norm_eps"`
	HiddenAct         string  `json:"hidden_act"`
	TieWordEmbeddings bool    `json:"tie_word_embeddings"`

	// transformers 5 has rope_parameters alone, the older style rope_theta and rope_scaling.
	RopeParameters  *rope   `json:"rope_parameters"`
	RopeScaling     *rope   `json:"rope_scaling"`
	RopeTheta       float64 `json:"rope_theta"`
	PartialRotary   float64 `json:"partial_rotary_factor"`
	OriginalContext int     `json:"original_max_position_embeddings"`

	SlidingWindow    int      `json:"sliding_window"`
	UseSlidingWindow bool     `json:"use_sliding_window"`
	MaxWindowLayers  int      `json:"max_window_layers"`
	LayerTypes       []string `json:"layer_types"`

	Quantization json.RawMessage `json:"quantization_config"`

	class string
	arch  arch
	rope  rope // of either style, with its defaults
}

// rope is rope_parameters or rope_scaling.
type rope struct {
	Type            string   `json:"rope_type"`
	OldType         string   `json:"type"`
	Theta           float64  `json:"rope_theta"`
	Factor          float64  `json:"factor"`
	OriginalContext float64  `json:"original_max_position_embeddings"`
	LowFreqFactor   float64  `json:"low_freq_factor"`
	HighFreqFactor  float64  `json:"high_freq_factor"`
	AttentionFactor *float64 `json:"attention_factor"`
	ExtFactor       *float64 `json:"extrapolation_factor"`
	BetaFast        *float64 `json:"beta_fast"`
	BetaSlow        *float64 `json:"beta_slow"`
	MScale          float64  `json:"mscale"`
	MScaleAllDim    float64  `json:"mscale_all_dim"`
	Truncate        *bool    `json:"truncate"`
	PartialRotary   float64  `json:"partial_rotary_factor"`
}

// parseConfig reads config.json and checks every value that is used.
func parseConfig(b []byte) (*config, error) {
	c := &config{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, err
	}
	if len(c.Architectures) == 0 {
		return nil, errors.New("no architectures; it must name the model's class")
	}
	c.class = c.Architectures[0]
	var ok bool
	if c.arch, ok = archs[c.class]; !ok {
		return nil, fmt.Errorf("architecture %.100q is not supported; known are %s", c.class, strings.Join(slices.Sorted(maps.Keys(archs)), ", "))
	}
	if q := string(c.Quantization); q != "" && q != "null" {
		return nil, errors.New("quantization_config: quantized weights of this form are not supported; take the original model or a GGUF file")
	}
	if c.HiddenAct != "" && c.HiddenAct != "silu" {
		return nil, fmt.Errorf("hidden_act %.100q is not supported for %s, expected silu", c.HiddenAct, c.class)
	}
	for _, check := range []func() error{c.checkCounts, c.checkRope, c.checkWindow} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *config) checkCounts() error {
	c.HeadsKV = cmp.Or(c.HeadsKV, c.Heads)
	if c.HeadDim == 0 && c.Heads > 0 {
		if c.HiddenSize%c.Heads != 0 {
			return fmt.Errorf("hidden_size %d is no multiple of num_attention_heads %d, and there is no head_dim", c.HiddenSize, c.Heads)
		}
		c.HeadDim = c.HiddenSize / c.Heads
	}
	for _, n := range []struct {
		key   string
		value int
		limit int
	}{
		{"num_hidden_layers", c.Layers, maxLayers}, {"max_position_embeddings", c.Context, maxCount}, {"hidden_size", c.HiddenSize, maxCount},
		{"intermediate_size", c.IntermediateSize, maxCount}, {"num_attention_heads", c.Heads, maxCount},
		{"num_key_value_heads", c.HeadsKV, maxCount}, {"head_dim", c.HeadDim, maxHeadDim}, {"vocab_size", c.Vocab, maxCount},
	} {
		if n.value < 1 || n.value > n.limit {
			return fmt.Errorf("%s is %d, expected 1 to %d", n.key, n.value, n.limit)
		}
	}
	if c.Heads%c.HeadsKV != 0 {
		return fmt.Errorf("num_attention_heads %d is no multiple of num_key_value_heads %d", c.Heads, c.HeadsKV)
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("head_dim %d is odd; rotary embeddings need pairs", c.HeadDim)
	}
	if !(c.RMSNormEps > 0 && c.RMSNormEps < 1) {
		return fmt.Errorf("rms_norm_eps is %v, expected a number between 0 and 1", c.RMSNormEps)
	}
	return nil
}

func (c *config) checkRope() error {
	// The newer key wins where a file has both, as in transformers.
	if r := cmp.Or(c.RopeParameters, c.RopeScaling); r != nil {
		c.rope = *r
	}
	r := &c.rope
	r.Type = cmp.Or(r.Type, r.OldType, "default")
	r.Theta = cmp.Or(r.Theta, c.RopeTheta, defaultBase)
	r.OriginalContext = cmp.Or(r.OriginalContext, float64(c.OriginalContext))
	if !(r.Theta > 0 && r.Theta <= math.MaxFloat32) {
		return fmt.Errorf("rope_theta is %v, expected a positive number", r.Theta)
	}
	if p := cmp.Or(r.PartialRotary, c.PartialRotary, 1); p != 1 {
		return fmt.Errorf("partial_rotary_factor %v is not supported for %s, expected 1", p, c.class)
	}
	switch r.Type {
	case "default":
		return nil
	case "linear", "yarn", "llama3":
	default:
		return fmt.Errorf("rope_type %.100q is not supported for %s; known are default, linear, yarn, llama3", r.Type, c.class)
	}
	if !(r.Factor > 0 && r.Factor <= math.MaxFloat32) {
		return fmt.Errorf("rope factor is %v, expected a positive number", r.Factor)
	}
	if r.Type == "linear" {
		return nil
	}
	if r.Type == "llama3" {
		r.OriginalContext = cmp.Or(r.OriginalContext, 8192) // the converter's defaults
		r.LowFreqFactor = cmp.Or(r.LowFreqFactor, 1)
		r.HighFreqFactor = cmp.Or(r.HighFreqFactor, 4)
		if !(r.LowFreqFactor > 0 && r.HighFreqFactor > r.LowFreqFactor) {
			return fmt.Errorf("low_freq_factor %v and high_freq_factor %v, expected 0 < low < high", r.LowFreqFactor, r.HighFreqFactor)
		}
	}
	r.OriginalContext = cmp.Or(r.OriginalContext, float64(c.Context)) // transformers' default for yarn
	if n := r.OriginalContext; !(n >= 1 && n <= maxCount && n == math.Trunc(n)) {
		return fmt.Errorf("original_max_position_embeddings is %v, expected an integer from 1 to %d", n, maxCount)
	}
	if r.Truncate != nil && !*r.Truncate {
		return errors.New("yarn with truncate = false is not supported")
	}
	return nil
}

func (c *config) checkWindow() error {
	if c.arch.window == noWindow {
		c.SlidingWindow = 0
		return nil
	}
	if c.SlidingWindow < 0 || c.SlidingWindow > maxCount {
		return fmt.Errorf("sliding_window is %d, expected 1 to %d or null", c.SlidingWindow, maxCount)
	}
	if len(c.LayerTypes) > 0 && len(c.LayerTypes) != c.Layers {
		return fmt.Errorf("layer_types has %d entries, num_hidden_layers is %d", len(c.LayerTypes), c.Layers)
	}
	for i, t := range c.LayerTypes {
		if t != "full_attention" && t != "sliding_attention" {
			return fmt.Errorf("layer_types[%d] is %.100q, expected full_attention or sliding_attention", i, t)
		}
		if t == "sliding_attention" && c.SlidingWindow == 0 {
			return fmt.Errorf("layer_types[%d] is sliding_attention, but sliding_window is null", i)
		}
	}
	return nil
}

// slides reports whether a layer attends to the last SlidingWindow positions only.
func (c *config) slides(layer int) bool {
	switch {
	case c.SlidingWindow == 0:
		return false
	case len(c.LayerTypes) > 0:
		return c.LayerTypes[layer] == "sliding_attention"
	case c.arch.window == windowFromMax:
		return c.UseSlidingWindow && layer >= c.MaxWindowLayers
	}
	return c.arch.window == windowAll
}

// metadata sets the keys that the converter writes. Beyond it: the window of mistral, whose GGUF architecture has none; the head's
// and the rotation's length and vocab_size for all classes.
func (c *config) metadata(kv *gguf.Metadata) {
	a := c.arch.name + "."
	kv.Set("general.architecture", c.arch.name)
	for _, n := range []struct {
		key   string
		value int
	}{
		{"block_count", c.Layers}, {"context_length", c.Context}, {"embedding_length", c.HiddenSize}, {"feed_forward_length", c.IntermediateSize},
		{"attention.head_count", c.Heads}, {"attention.head_count_kv", c.HeadsKV}, {"attention.key_length", c.HeadDim},
		{"attention.value_length", c.HeadDim}, {"vocab_size", c.Vocab}, {"rope.dimension_count", c.HeadDim},
	} {
		kv.Set(a+n.key, uint32(n.value))
	}
	kv.Set(a+"attention.layer_norm_rms_epsilon", float32(c.RMSNormEps))
	kv.Set(a+"rope.freq_base", float32(c.rope.Theta))
	c.ropeScaling(kv, a+"rope.scaling.")
	c.window(kv, a+"attention.")
}

func (c *config) ropeScaling(kv *gguf.Metadata, prefix string) {
	r := &c.rope
	if r.Type != "linear" && r.Type != "yarn" {
		return // llama3 is a tensor, see ropeFactors
	}
	kv.Set(prefix+"type", r.Type)
	kv.Set(prefix+"factor", float32(r.Factor))
	if r.Type == "linear" {
		return
	}
	kv.Set(prefix+"original_context_length", uint32(r.OriginalContext))
	for _, o := range []struct {
		key   string
		value *float64
	}{{"yarn_ext_factor", r.ExtFactor}, {"yarn_attn_factor", r.yarnAttnFactor()}, {"yarn_beta_fast", r.BetaFast}, {"yarn_beta_slow", r.BetaSlow}} {
		if o.value != nil {
			kv.Set(prefix+o.key, float32(*o.value))
		}
	}
}

// yarnAttnFactor is what GGUF's yarn_attn_factor must be, nil for 1. The engine multiplies cosine and sine by
// yarn_attn_factor * (1 + 0.1 ln factor) (llama.cpp, rope_yarn); transformers by attention_factor itself, or by a quotient of two
// such terms if mscale and mscale_all_dim are given (modeling_rope_utils.py). The converter copies attention_factor as it is, which
// scales twice.
func (r *rope) yarnAttnFactor() *float64 {
	scale := func(m float64) float64 {
		if r.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(r.Factor) + 1
	}
	var f float64
	switch {
	case r.AttentionFactor != nil:
		f = *r.AttentionFactor / scale(1)
	case r.MScale != 0 && r.MScaleAllDim != 0:
		f = scale(r.MScale) / scale(r.MScaleAllDim) / scale(1)
	default:
		return nil
	}
	return &f
}

// window sets the window's length and, if some layers have none, the list of those that do.
func (c *config) window(kv *gguf.Metadata, prefix string) {
	pattern := make([]bool, c.Layers)
	any := false
	for i := range pattern {
		pattern[i] = c.slides(i)
		any = any || pattern[i]
	}
	if !any {
		return
	}
	kv.Set(prefix+"sliding_window", uint32(c.SlidingWindow))
	if slices.Contains(pattern, false) {
		kv.Set(prefix+"sliding_window_pattern", pattern)
	}
}

// ropeFactors are the divisors of the rotation's frequencies, shape [head_dim/2], for rope type llama3, else nil: frequencies whose
// wavelength fits high_freq_factor times into the original context stay, those that do not fit low_freq_factor times are divided by
// factor, those between are mixed. In float32 step by step, as the converter's torch does (LlamaModel.generate_extra_tensors).
func (c *config) ropeFactors() []float32 {
	r := &c.rope
	if r.Type != "llama3" {
		return nil
	}
	longest, shortest := float32(r.OriginalContext/r.LowFreqFactor), float32(r.OriginalContext/r.HighFreqFactor)
	out := make([]float32, c.HeadDim/2)
	for i := range out {
		freq := 1 / float32(math.Pow(r.Theta, float64(float32(2*i)/float32(c.HeadDim))))
		wavelength := float32(2*math.Pi) / freq
		switch {
		case wavelength < shortest:
			out[i] = 1
		case wavelength > longest:
			out[i] = float32(r.Factor)
		default:
			smooth := (float32(r.OriginalContext)/wavelength - float32(r.LowFreqFactor)) / float32(r.HighFreqFactor-r.LowFreqFactor)
			mixed := float32((1-smooth)/float32(r.Factor)) + smooth
			out[i] = 1 / mixed
		}
	}
	return out
}
