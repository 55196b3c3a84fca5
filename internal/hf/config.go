package hf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	models "ck/internal/arch"
	"ck/internal/gguf"
	"ck/internal/jsonfile"
)

// config is the part of config.json that all classes compute with: first as it is written, null and what is missing as nil, then what it
// means. What a class has beyond it, its parser reads (own) and adds to extra.
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
	TieWordEmbeddings *bool    `json:"tie_word_embeddings"`

	// transformers 5 has rope_parameters alone, the older style rope_theta and rope_scaling.
	RopeParameters  *rope    `json:"rope_parameters"`
	RopeScaling     *rope    `json:"rope_scaling"`
	RopeTheta       *float64 `json:"rope_theta"`
	PartialRotary   *float64 `json:"partial_rotary_factor"`
	OriginalContext *float64 `json:"original_max_position_embeddings"`

	SlidingWindow json.RawMessage `json:"sliding_window"` // null is not the same as nothing
	LayerTypes    []string        `json:"layer_types"`

	Quantization json.RawMessage `json:"quantization_config"`

	text  []byte // the whole file; valid while it is parsed
	name  string // of the class
	class class
	err   error    // the first one
	notes []string // of defaults that were taken
	extra []extra  // keys of the class

	wrapped   bool              // the folder's model reads more than text
	quantized bool              // weights are FP8 with scales
	block     [2]int            // rows and columns that share a scale; 0: config.json names none
	scales    map[string]*scale // by the name of the tensor that they are of

	hidden, ffn, layers, heads, headsKV, headDim, context, vocab int
	experts                                                      int // of a layer; 0: none has some

	eps  float64
	rope rope // of either style
	// What rope says, or its defaults.
	theta, factor, original, lowFreq, highFreq float64
	rotated                                    int                  // elements of a head; 0: all
	factors                                    map[string][]float32 // divisors of frequencies that the class has, by the name of their tensor
	nextn                                      int                  // layers behind the others, which predict tokens further on
	apart                                      map[string]apart     // by the name in the folder

	window int                  // positions that a layer sees for which slides is true; 0: all
	slides func(layer int) bool // nil where the class knows no window
}

// extra is a GGUF key, behind the architecture's name and a dot, with its value.
type extra struct {
	key   string
	value any
}

// parseConfig reads config.json and checks every value that is used. Errors name the key.
func parseConfig(b []byte) (*config, error) {
	b, notes, wrapped, err := unwrap(b)
	if err != nil {
		return nil, err
	}
	c := &config{text: b, notes: notes, wrapped: wrapped}
	defer func() { c.text = nil }()
	if err := jsonfile.Unmarshal(b, c); err != nil {
		return nil, err
	}
	if len(c.Architectures) == 0 {
		return nil, errors.New("no architectures; it must name the model's class")
	}
	c.name = c.Architectures[0]
	var ok bool
	if c.class, ok = classes[c.name]; !ok {
		return nil, &ClassError{c.name}
	}
	if err := c.readQuantization(); err != nil {
		return nil, err
	}
	c.class.parse(c)
	return c, c.err
}

// decoder reads what all classes of the table have: sizes, and what turns queries and keys. act is the activation of the feed-forward.
func (c *config) decoder(act string) {
	if c.HiddenAct != "" && c.HiddenAct != act {
		c.fail("hidden_act %.100q is not supported for %s, expected %s", c.HiddenAct, c.name, act)
	}
	c.readCounts()
	c.readRope()
}

// own reads the keys of a class into v, a struct with names as encoding/json has them.
func (c *config) own(v any) {
	if err := jsonfile.Unmarshal(c.text, v); err != nil && c.err == nil {
		c.err = err
	}
}

// set adds a key of the class to the metadata.
func (c *config) set(key string, value any) { c.extra = append(c.extra, extra{key, value}) }

// tied reports whether the output matrix is the embedding's.
func (c *config) tied() bool {
	if c.TieWordEmbeddings != nil {
		return *c.TieWordEmbeddings
	}
	return c.class.tied
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

// metadata sets the keys that the converter writes. Beyond it: the window of mistral, whose GGUF architecture has none; the head's
// and the rotation's length and vocab_size for all classes.
func (c *config) metadata(kv *gguf.Metadata) {
	a := c.class.arch + "."
	kv.Set("general.architecture", c.class.arch)
	for _, n := range []struct {
		key   string
		value int
	}{
		{"block_count", c.layers}, {"context_length", c.context}, {"embedding_length", c.hidden}, {"feed_forward_length", c.ffn},
		{"attention.head_count", c.heads}, {"attention.head_count_kv", c.headsKV}, {"attention.key_length", c.headDim},
		{"attention.value_length", c.headDim}, {"vocab_size", c.vocab}, {"rope.dimension_count", cmp.Or(c.rotated, c.headDim)},
	} {
		kv.Set(a+n.key, uint32(n.value))
	}
	kv.Set(a+"attention.layer_norm_rms_epsilon", float32(c.eps))
	kv.Set(a+"rope.freq_base", float32(c.theta))
	c.ropeScaling(kv, a+"rope.scaling.")
	c.setWindow(kv, a+"attention.")
	for _, x := range c.extra {
		kv.Set(a+x.key, x.value)
	}
}
