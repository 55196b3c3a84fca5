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

	models "ck/internal/arch"
	"ck/internal/gguf"
	"ck/internal/jsonfile"
)

// config is the part of config.json that the table's classes compute with: first as it is written, null and what is missing as nil,
// then what it means.
type config struct {
	Architectures     []string `json:"architectures"`
	HiddenSize        *float64 `json:"hidden_size"`
	IntermediateSize  *float64 `json:"intermediate_size"`
	Layers            *float64 `json:"num_hidden_layers"`
	Heads             *float64 `json:"num_attention_heads"`
	HeadsKV           *float64 `json:"num_key_value_heads"`
	HeadDim           *float64 `json:"head_dim"`
	Context           *float64 `json:"max_position_embeddings"`
	Vocab             *float64 `json:"vocab_size"`
	RMSNormEps        *float64 `json:"rms_norm_eps"`
	HiddenAct         string   `json:"hidden_act"`
	TieWordEmbeddings bool     `json:"tie_word_embeddings"`

	// transformers 5 has rope_parameters alone, the older style rope_theta and rope_scaling.
	RopeParameters  *rope    `json:"rope_parameters"`
	RopeScaling     *rope    `json:"rope_scaling"`
	RopeTheta       *float64 `json:"rope_theta"`
	PartialRotary   *float64 `json:"partial_rotary_factor"`
	OriginalContext *float64 `json:"original_max_position_embeddings"`

	SlidingWindow    json.RawMessage `json:"sliding_window"` // null is not the same as nothing
	UseSlidingWindow bool            `json:"use_sliding_window"`
	MaxWindowLayers  *float64        `json:"max_window_layers"`
	LayerTypes       []string        `json:"layer_types"`

	Quantization json.RawMessage `json:"quantization_config"`

	class string
	arch  arch
	err   error    // the first one
	notes []string // of defaults that were taken

	hidden, ffn, layers, heads, headsKV, headDim, context, vocab int

	eps  float64
	rope rope // of either style
	// What rope says, or its defaults.
	theta, factor, original, lowFreq, highFreq float64

	window, fullLayers int // positions that layers from fullLayers on see; 0: all
}

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
	Truncate        *bool    `json:"truncate"`
	PartialRotary   *float64 `json:"partial_rotary_factor"`
}

// parseConfig reads config.json and checks every value that is used. Errors name the key.
func parseConfig(b []byte) (*config, error) {
	c := &config{}
	if err := jsonfile.Unmarshal(b, c); err != nil {
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
	c.readCounts()
	c.readRope()
	c.readWindow()
	return c, c.err
}

func (c *config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// number is the value of a key, p, or its default where the file has none. Range and default are those of the table of package arch.
func (c *config) number(key string, p *float64) float64 {
	k := models.ConfigKey(key)
	if p == nil {
		if k.Default == nil {
			c.fail("%s: is missing; %s", key, models.Remedy)
			return 1
		}
		v := k.Default(c.other)
		if k.Why != "" {
			c.notes = append(c.notes, fmt.Sprintf("config.json: %s: is missing, taken as %s: %s", key, models.Text(v), k.Why))
		}
		p = &v
	}
	if err := k.Check(*p); err != nil {
		c.fail("%s: %w", key, err)
		return max(k.Min, 1)
	}
	return *p
}

// required is the value of a key that has no default in config.json.
func (c *config) required(key string, p *float64) float64 {
	if p == nil {
		c.fail("%s: is missing; %s", key, models.Remedy)
		return 1
	}
	return c.number(key, p)
}

// other is the value of another key, by its name in GGUF, for defaults that follow from it.
func (c *config) other(name string) float64 {
	switch name {
	case "embedding_length":
		return float64(c.hidden)
	case "attention.head_count":
		return float64(c.heads)
	case "context_length":
		return float64(c.context)
	}
	return 1 // rope.scale_linear and attn_factor, which only GGUF has
}

func (c *config) readCounts() {
	for _, n := range []struct {
		key  string
		from *float64
		to   *int
	}{
		{"num_hidden_layers", c.Layers, &c.layers}, {"max_position_embeddings", c.Context, &c.context}, {"hidden_size", c.HiddenSize, &c.hidden},
		{"intermediate_size", c.IntermediateSize, &c.ffn}, {"num_attention_heads", c.Heads, &c.heads}, {"vocab_size", c.Vocab, &c.vocab},
	} {
		*n.to = int(c.required(n.key, n.from))
	}
	if c.HeadDim == nil && c.hidden%c.heads != 0 {
		c.fail("hidden_size %d is no multiple of num_attention_heads %d, and there is no head_dim", c.hidden, c.heads)
	}
	c.headsKV = int(c.number("num_key_value_heads", c.HeadsKV))
	c.headDim = int(c.number("head_dim", c.HeadDim))
	c.eps = c.required("rms_norm_eps", c.RMSNormEps)
	if c.heads%c.headsKV != 0 {
		c.fail("num_attention_heads %d is no multiple of num_key_value_heads %d", c.heads, c.headsKV)
	}
	if c.headDim%2 != 0 {
		c.fail("head_dim %d is odd; rotary embeddings need pairs", c.headDim)
	}
}

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
	c.number("partial_rotary_factor", cmp.Or(r.PartialRotary, c.PartialRotary))
	switch r.Type {
	case "default":
		return
	case "linear", "yarn", "llama3":
	default:
		c.fail("rope_type %.100q is not supported for %s; known are default, linear, yarn, llama3", r.Type, c.class)
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
	if r.Truncate != nil && !*r.Truncate {
		c.fail("yarn with truncate = false is not supported")
	}
}

func (c *config) readWindow() {
	if c.arch.window == noWindow {
		return
	}
	if string(c.SlidingWindow) != "null" {
		used := c.arch.window == windowAll || c.UseSlidingWindow || slices.Contains(c.LayerTypes, "sliding_attention")
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
	if c.arch.window == windowFromMax && c.UseSlidingWindow && len(c.LayerTypes) == 0 {
		c.fullLayers = int(c.number("max_window_layers", c.MaxWindowLayers))
	}
}

// slides reports whether a layer attends to the last SlidingWindow positions only.
func (c *config) slides(layer int) bool {
	switch {
	case c.window == 0:
		return false
	case len(c.LayerTypes) > 0:
		return c.LayerTypes[layer] == "sliding_attention"
	case c.arch.window == windowFromMax:
		return c.UseSlidingWindow && layer >= c.fullLayers
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
		{"block_count", c.layers}, {"context_length", c.context}, {"embedding_length", c.hidden}, {"feed_forward_length", c.ffn},
		{"attention.head_count", c.heads}, {"attention.head_count_kv", c.headsKV}, {"attention.key_length", c.headDim},
		{"attention.value_length", c.headDim}, {"vocab_size", c.vocab}, {"rope.dimension_count", c.headDim},
	} {
		kv.Set(a+n.key, uint32(n.value))
	}
	kv.Set(a+"attention.layer_norm_rms_epsilon", float32(c.eps))
	kv.Set(a+"rope.freq_base", float32(c.theta))
	c.ropeScaling(kv, a+"rope.scaling.")
	c.setWindow(kv, a+"attention.")
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

// setWindow sets the window's length and, if some layers have none, the list of those that do.
func (c *config) setWindow(kv *gguf.Metadata, prefix string) {
	pattern := make([]bool, c.layers)
	any := false
	for i := range pattern {
		pattern[i] = c.slides(i)
		any = any || pattern[i]
	}
	if !any {
		return
	}
	kv.Set(prefix+"sliding_window", uint32(c.window))
	if slices.Contains(pattern, false) {
		kv.Set(prefix+"sliding_window_pattern", pattern)
	}
}

// ropeFactors are the divisors of the rotation's frequencies, shape [head_dim/2], for rope type llama3, else nil: frequencies whose
// wavelength fits high_freq_factor times into the original context stay, those that do not fit low_freq_factor times are divided by
// factor, those between are mixed. In float32 step by step, as the converter's torch does (LlamaModel.generate_extra_tensors).
func (c *config) ropeFactors() []float32 {
	if c.rope.Type != "llama3" {
		return nil
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
	return out
}
