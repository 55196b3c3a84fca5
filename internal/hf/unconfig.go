package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	models "ck/internal/arch"
	"ck/internal/gguf"
	"ck/internal/jsonfile"
	"ck/internal/quant"
)

// writable are the classes whose config.json is made from a model's metadata: transformers' model_type and what the class has beyond the
// keys that all have. What they miss of a model is found when the metadata that the result means is held against the model's (sameKeys).
var writable = map[string]struct {
	modelType string
	own       func(*unparser)
}{
	"LlamaForCausalLM":      {"llama", (*unparser).llama},
	"MistralForCausalLM":    {"mistral", (*unparser).mistral},
	"Ministral3ForCausalLM": {"ministral3", (*unparser).mistral},
	"MixtralForCausalLM":    {"mixtral", (*unparser).mixtral},
	"Qwen2ForCausalLM":      {"qwen2", (*unparser).qwen2},
	"Qwen3ForCausalLM":      {"qwen3", (*unparser).qwen3},
	"Qwen3MoeForCausalLM":   {"qwen3_moe", (*unparser).qwen3moe},
	"Olmo2ForCausalLM":      {"olmo2", (*unparser).attentionBias},
	"GraniteForCausalLM":    {"granite", (*unparser).granite},
	"Gemma2ForCausalLM":     {"gemma2", (*unparser).gemma2},
	"Gemma3ForCausalLM":     {"gemma3_text", (*unparser).gemma3},
	"Phi3ForCausalLM":       {"phi3", (*unparser).phi3},
}

// Classes are the classes of folders that Write makes of a model's metadata alone, sorted.
func Classes() []string { return slices.Sorted(maps.Keys(writable)) }

// unparser makes config.json of a model.
type unparser struct {
	m     *gguf.Model
	arch  string
	class string
	out   map[string]any
	rope  map[string]any // rope_scaling
	err   error          // the first one
}

// f32 is a number of config.json that is of a float type even if it is whole, as Python has it; with the digits that float32 needs.
type f32 float32

func (x f32) MarshalJSON() ([]byte, error) { return floatText(float64(x), 32) }

// f64 is one with the digits of a float64.
type f64 float64

func (x f64) MarshalJSON() ([]byte, error) { return floatText(float64(x), 64) }

func floatText(x float64, bits int) ([]byte, error) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil, fmt.Errorf("%v is no number of JSON", x)
	}
	s := strconv.FormatFloat(x, 'g', -1, bits)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return []byte(s), nil
}

// configOf is the config.json of a model, as text and read again. class is the one of the folder, "" for the one that the model's metadata
// suggests.
func configOf(m *gguf.Model, class string) (*config, []byte, error) {
	arch, ok, err := m.KV.String("general.architecture")
	if err != nil || !ok {
		return nil, nil, fmt.Errorf("general.architecture: is missing, or no string; %s", models.Remedy)
	}
	u := &unparser{m: m, arch: arch, out: map[string]any{}}
	if u.class = class; class == "" {
		u.class = u.choose()
	}
	of, ok := writable[u.class]
	switch {
	case u.class == "":
		err = fmt.Errorf("architecture %.100q: writing a folder of it is not supported; known are %s", arch, strings.Join(Classes(), ", "))
	case !ok && classes[u.class].takeApart != nil:
		err = errTakenApart(u.class)
	case !ok && classes[u.class].arch == "":
		err = &ClassError{u.class}
	case !ok:
		err = fmt.Errorf("a %s cannot be written from a model's metadata alone, give the config.json that it was made from; without are %s", u.class,
			strings.Join(Classes(), ", "))
	case classes[u.class].arch != arch:
		err = fmt.Errorf("a %s has architecture %s, the model's is %.100q", u.class, classes[u.class].arch, arch)
	}
	if err != nil {
		return nil, nil, err
	}
	u.common(of.modelType)
	u.scaling()
	of.own(u)
	if u.err != nil {
		return nil, nil, u.err
	}
	text, err := json.MarshalIndent(u.out, "", "  ")
	if err != nil {
		return nil, nil, fmt.Errorf("config.json: %w", err)
	}
	c, err := checkedConfig(m, text)
	return c, text, err
}

func errTakenApart(class string) error {
	return fmt.Errorf("writing a %s as a folder is not supported: its tensors are others than one each in GGUF; write a GGUF file", class)
}

// choose is the class of the model; "" if there is none.
func (u *unparser) choose() string {
	if u.arch == "llama" {
		switch {
		case u.m.KV.Value("llama.expert_count") != nil && u.integer("expert_count") > 0:
			return "MixtralForCausalLM"
		case u.m.KV.Value("llama.attention.sliding_window") != nil:
			return "MistralForCausalLM"
		}
		return "LlamaForCausalLM"
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) { // one of each other architecture
		if classes[name].arch == u.arch {
			return name
		}
	}
	return ""
}

func (u *unparser) fail(format string, args ...any) {
	if u.err == nil {
		u.err = fmt.Errorf(format, args...)
	}
}

func (u *unparser) has(key string) bool { return u.m.KV.Value(u.arch+"."+key) != nil }

// integer is the value of a key behind the architecture's name, that must be there.
func (u *unparser) integer(key string) int64 {
	v, ok, err := u.m.KV.Int(u.arch + "." + key)
	switch {
	case err != nil:
		u.fail("%w", err)
	case !ok:
		u.fail("%s.%s: is missing; %s", u.arch, key, models.Remedy)
	}
	return v
}

func (u *unparser) integerOr(key string, missing int64) int64 {
	if !u.has(key) {
		return missing
	}
	return u.integer(key)
}

func (u *unparser) float(key string) float64 {
	v, ok, err := u.m.KV.Float(u.arch + "." + key)
	switch {
	case err != nil:
		u.fail("%w", err)
	case !ok:
		u.fail("%s.%s: is missing; %s", u.arch, key, models.Remedy)
	}
	return v
}

// copyFloats takes keys over, where they are there.
func (u *unparser) copyFloats(to map[string]any, keys ...[2]string) {
	for _, k := range keys {
		if u.has(k[1]) {
			to[k[0]] = f32(u.float(k[1]))
		}
	}
}

// common sets what all classes have. Of rope it writes the older style, which all versions of transformers read.
func (u *unparser) common(modelType string) {
	o := u.out
	o["architectures"], o["model_type"] = []string{u.class}, modelType
	o["hidden_act"], o["use_cache"] = "silu", true
	hidden, heads := u.integer("embedding_length"), u.integer("attention.head_count")
	if heads < 1 {
		u.fail("%s.attention.head_count: is %d, expected 1 or more; %s", u.arch, heads, models.Remedy)
		heads = 1
	}
	o["hidden_size"], o["num_attention_heads"] = hidden, heads
	o["num_key_value_heads"] = u.integerOr("attention.head_count_kv", heads)
	o["head_dim"] = u.integerOr("attention.key_length", hidden/heads)
	o["num_hidden_layers"], o["intermediate_size"] = u.integer("block_count"), u.integer("feed_forward_length")
	o["max_position_embeddings"] = u.integer("context_length")
	o["rms_norm_eps"] = f32(u.float("attention.layer_norm_rms_epsilon"))
	o["rope_theta"] = f32(models.ConfigKey("rope_theta").Default(nil))
	u.copyFloats(o, [2]string{"rope_theta", "rope.freq_base"})
	if embd := u.m.Tensor("token_embd.weight"); embd == nil {
		u.fail("tensor token_embd.weight: is missing; %s", models.Remedy)
	} else {
		o["vocab_size"] = embd.Rows()
	}
	o["tie_word_embeddings"] = u.m.Tensor("output.weight") == nil
	for _, id := range []string{"bos", "eos", "pad"} {
		if v, ok, err := u.m.KV.Int("tokenizer.ggml." + idKeys[id]); err != nil {
			u.fail("%w", err)
		} else if ok {
			o[id+"_token_id"] = v
		}
	}
}

// idKeys are the keys of tokens in GGUF.
var idKeys = map[string]string{"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}

// scaling sets rope_scaling.
func (u *unparser) scaling() {
	u.rope = map[string]any{}
	u.out["rope_scaling"] = nil
	if u.m.Tensor("rope_freqs.weight") != nil {
		u.llama3()
		return
	}
	if !u.has("rope.scaling.type") {
		return
	}
	kind, _, err := u.m.KV.String(u.arch + ".rope.scaling.type")
	if err != nil {
		u.fail("%w", err)
	}
	if kind == "none" {
		return
	}
	u.out["rope_scaling"], u.rope["rope_type"] = u.rope, kind
	u.copyFloats(u.rope, [2]string{"factor", "rope.scaling.factor"})
	if kind != "yarn" {
		return // readRope knows what there is
	}
	u.copyFloats(u.rope, [2]string{"extrapolation_factor", "rope.scaling.yarn_ext_factor"}, [2]string{"beta_fast", "rope.scaling.yarn_beta_fast"},
		[2]string{"beta_slow", "rope.scaling.yarn_beta_slow"}, [2]string{"llama_4_scaling_beta", "attention.temperature_scale"})
	if u.has("rope.scaling.original_context_length") {
		u.rope["original_max_position_embeddings"] = u.integer("rope.scaling.original_context_length")
	}
	if u.has("rope.scaling.yarn_attn_factor") { // see yarnAttnFactor
		scale := 1.0
		if factor := u.float("rope.scaling.factor"); factor > 1 {
			scale = 0.1*math.Log(factor) + 1
		}
		u.rope["attention_factor"] = f64(u.float("rope.scaling.yarn_attn_factor") * scale)
	}
	if u.has("rope.scaling.yarn_log_multiplier") {
		u.rope["mscale"] = f32(1)
		u.copyFloats(u.rope, [2]string{"mscale_all_dim", "rope.scaling.yarn_log_multiplier"})
	}
	switch truncate, ok, err := u.m.KV.Bool(u.arch + ".rope.scaling.yarn_truncate"); {
	case err != nil:
		u.fail("%w", err)
	case ok:
		u.rope["truncate"] = truncate
	}
}

// llama3 finds the parameters of the divisors of frequencies in rope_freqs.weight, which has only their result: the factor is the largest of
// them, powers of two are tried as the original context. What gives the same divisors computes the same.
func (u *unparser) llama3() {
	freqs, err := u.m.Decode(u.m.Tensor("rope_freqs.weight"), 1<<14)
	if err != nil {
		u.fail("%w", err)
		return
	}
	c := &config{headDim: 2 * len(freqs), theta: models.ConfigKey("rope_theta").Default(nil), rope: rope{Type: "llama3"}, factor: float64(slices.Max(freqs))}
	if u.has("rope.freq_base") {
		c.theta = u.float("rope.freq_base")
	}
	c.lowFreq = 1 // the result is the same where all three of these are multiplied
	for _, high := range []float64{4, 2, 3, 8} {
		for bits := 5; bits <= 20; bits++ {
			c.highFreq, c.original = high, float64(int(1)<<bits)
			if c.factor >= 1 && slices.Equal(c.ropeFactors()["rope_freqs.weight"], freqs) {
				maps.Copy(u.rope, map[string]any{"rope_type": "llama3", "factor": f32(c.factor), "low_freq_factor": f32(1), "high_freq_factor": f32(high),
					"original_max_position_embeddings": 1 << bits})
				u.out["rope_scaling"] = u.rope
				return
			}
		}
	}
	u.fail("tensor rope_freqs.weight: is not what rope_type llama3 makes of usual parameters; give the config.json that the model was made from")
}

// biases reports whether these matrices of the layers have biases: all, or none of them.
func (u *unparser) biases(stems ...string) bool {
	n, layers := 0, int(u.integer("block_count"))
	for _, t := range u.m.Tensors {
		stem, ok := strings.CutSuffix(t.Name, ".bias")
		if ok && strings.HasPrefix(stem, "blk.") && slices.Contains(stems, stem[strings.LastIndexByte(stem, '.')+1:]) {
			n++
		}
	}
	if n != 0 && n != layers*len(stems) {
		u.fail("%d biases of %s in %d layers; a %s has them of all or none", n, strings.Join(stems, ", "), layers, u.class)
	}
	return n > 0
}

// sliding sets sliding_window, and which layers have it if not all.
func (u *unparser) sliding(all bool) {
	u.out["sliding_window"] = nil
	if !u.has("attention.sliding_window") || u.integer("attention.sliding_window") == 0 {
		return
	}
	u.out["sliding_window"] = u.integer("attention.sliding_window")
	pattern, ok, err := u.m.KV.Bools(u.arch + ".attention.sliding_window_pattern")
	switch {
	case err != nil:
		u.fail("%w", err)
	case ok && all && slices.Contains(pattern, false):
		u.fail("%s.attention.sliding_window_pattern: some layers have no window; in a %s all have", u.arch, u.class)
	case ok:
		types := make([]string, len(pattern))
		for i, slides := range pattern {
			types[i] = "full_attention"
			if slides {
				types[i] = "sliding_attention"
			}
		}
		u.out["layer_types"] = types
	}
}

func (u *unparser) attentionBias() {
	u.out["attention_bias"] = u.biases("attn_q", "attn_k", "attn_v", "attn_output")
}

func (u *unparser) llama() {
	u.attentionBias()
	u.out["mlp_bias"] = u.biases("ffn_gate", "ffn_up", "ffn_down")
}

func (u *unparser) noBiases(stems ...string) {
	if u.biases(stems...) {
		u.fail("tensor blk.0.%s.bias: a %s has no such biases", stems[0], u.class)
	}
}

func (u *unparser) mistral() {
	u.noBiases("attn_q", "attn_k", "attn_v", "attn_output")
	u.sliding(true)
}

func (u *unparser) mixtral() {
	u.mistral()
	u.out["num_local_experts"], u.out["num_experts_per_tok"] = u.integer("expert_count"), u.integer("expert_used_count")
}

// qwen sets the window of qwen's classes, which name their layers.
func (u *unparser) qwen() {
	u.sliding(false)
	used := u.out["sliding_window"] != nil
	u.out["use_sliding_window"] = used
	if used && u.out["layer_types"] == nil { // all of them
		u.out["max_window_layers"] = 0
	}
}

func (u *unparser) qwen2() {
	u.qwen()
	if !u.biases("attn_q", "attn_k", "attn_v") {
		u.fail("tensor blk.0.attn_q.bias: is missing, and a %s has it", u.class)
	}
	u.noBiases("attn_output")
}

func (u *unparser) qwen3() {
	u.qwen()
	u.attentionBias()
}

func (u *unparser) qwen3moe() {
	u.qwen3()
	o := u.out
	o["num_experts"], o["num_experts_per_tok"] = u.integer("expert_count"), u.integer("expert_used_count")
	o["moe_intermediate_size"] = u.integer("expert_feed_forward_length")
	o["decoder_sparse_step"], o["mlp_only_layers"] = 1, []int{}
	norm, ok, err := u.m.KV.Bool(u.arch + ".expert_weights_norm")
	if err != nil {
		u.fail("%w", err)
	}
	o["norm_topk_prob"] = norm || !ok // as llama.cpp computes
}

func (u *unparser) granite() {
	u.llama()
	u.copyFloats(u.out, [2]string{"embedding_multiplier", "embedding_scale"}, [2]string{"residual_multiplier", "residual_scale"},
		[2]string{"attention_multiplier", "attention.scale"}, [2]string{"logits_scaling", "logit_scale"})
}

// gemma sets what gemma's classes share.
func (u *unparser) gemma() {
	u.attentionBias()
	u.sliding(false)
	delete(u.out, "hidden_act")
	u.out["hidden_activation"] = "gelu_pytorch_tanh"
	u.out["query_pre_attn_scalar"] = u.out["head_dim"]
	if u.has("attention.scale") {
		scale := u.float("attention.scale")
		scalar := 1 / (scale * scale)
		u.out["query_pre_attn_scalar"] = f64(scalar)
		if whole := math.Round(scalar); float32(1/math.Sqrt(whole)) == float32(scale) && whole < 1<<30 {
			u.out["query_pre_attn_scalar"] = int(whole) // transformers wants an integer
		}
	}
	for _, key := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		u.out[key] = nil
		if u.has(key) && u.float(key) != 0 {
			u.copyFloats(u.out, [2]string{key, key})
		}
	}
}

func (u *unparser) gemma2() { u.gemma() }

func (u *unparser) gemma3() {
	u.gemma()
	u.out["rope_local_base_freq"] = f32(models.ConfigKey("rope_local_base_freq").Default(nil))
	u.copyFloats(u.out, [2]string{"rope_local_base_freq", "rope.freq_base_swa"})
}

func (u *unparser) phi3() {
	u.noBiases("attn_qkv", "attn_output")
	u.sliding(true)
	if u.has("rope.scaling.original_context_length") {
		u.out["original_max_position_embeddings"] = u.integer("rope.scaling.original_context_length")
	}
	head := u.integerOr("attention.key_length", u.integer("embedding_length")/max(u.integer("attention.head_count"), 1))
	if dim := u.integerOr("rope.dimension_count", head); dim != head && head > 0 {
		u.out["partial_rotary_factor"] = f64(float64(dim) / float64(head))
	}
	short, long := u.m.Tensor("rope_factors_short.weight"), u.m.Tensor("rope_factors_long.weight")
	if short == nil || long == nil {
		return
	}
	u.rope["rope_type"], u.rope["type"] = "longrope", "longrope"
	for key, t := range map[string]*gguf.Tensor{"short_factor": short, "long_factor": long} {
		x, err := u.m.Decode(t, 1<<14)
		if err != nil {
			u.fail("%w", err)
		}
		list := make([]f32, len(x))
		for i := range x {
			list[i] = f32(x[i])
		}
		u.rope[key] = list
	}
	u.copyFloats(u.rope, [2]string{"attention_factor", "rope.scaling.attn_factor"})
	u.out["rope_scaling"] = u.rope
}

// givenConfig is the config.json that a model was made from, as text for its folder and read: that of the language model alone, without the
// quantization that the folder's weights had.
func givenConfig(m *gguf.Model, b []byte) (*config, []byte, error) {
	b, _, _, err := unwrap(b)
	if err != nil {
		return nil, nil, fmt.Errorf("config.json: %w", err)
	}
	var all map[string]json.RawMessage // numbers keep their digits
	if err := jsonfile.Unmarshal(b, &all); err != nil {
		return nil, nil, fmt.Errorf("config.json: %w", err)
	}
	delete(all, "quantization_config")
	delete(all, "dtype") // torch_dtype says it to all versions
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, nil, err
	}
	c, err := checkedConfig(m, text)
	return c, text, err
}

// checkedConfig reads config.json and holds it against the model.
func checkedConfig(m *gguf.Model, text []byte) (*config, error) {
	c, err := parseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if c.class.takeApart != nil || c.nextn > 0 {
		return nil, errTakenApart(c.name)
	}
	if err := c.sameKeys(m); err != nil {
		return nil, err
	}
	if tied := m.Tensor("output.weight") == nil; tied != c.tied() {
		return nil, fmt.Errorf("config.json: tie_word_embeddings: is %v, and the model's output.weight says %v", c.tied(), tied)
	}
	for name, x := range c.ropeFactors() {
		t := m.Tensor(name)
		if t == nil {
			return nil, fmt.Errorf("tensor %s: is missing, and config.json has its divisors of frequencies", name)
		}
		have, err := m.Decode(t, 1<<14)
		if err != nil {
			return nil, err
		}
		if t.Type != quant.F32 || !slices.Equal(have, x) {
			return nil, fmt.Errorf("tensor %s: is not what config.json says of rope; they are of different models", name)
		}
	}
	return c, nil
}

// sameKeys holds what config.json means against the model's metadata. Nothing that the model says is lost; what config.json says beyond it
// is what the model's program takes where a key is missing.
func (c *config) sameKeys(m *gguf.Model) error {
	kv := &gguf.Metadata{}
	c.metadata(kv)
	prefix := c.class.arch + "."
	arch, _, err := m.KV.String("general.architecture")
	if err != nil {
		return err
	}
	if arch != c.class.arch {
		return fmt.Errorf("config.json: a %s has architecture %s, the model's is %.100q", c.name, c.class.arch, arch)
	}
	for _, key := range m.KV.Keys() {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok || name == "rope.scaling.finetuned" { // only a remark
			continue
		}
		if got, want := kv.Value(key), m.KV.Value(key); got == nil && !meansNothing(name, want) {
			return fmt.Errorf("%s: is %s, and the config.json of a %s has nothing that says it", key, short(want), c.name)
		} else if got != nil && !sameValue(got, want) {
			return fmt.Errorf("%s: is %s, and config.json means %s", key, short(want), short(got))
		}
	}
	for _, key := range kv.Keys() {
		name, ok := strings.CutPrefix(key, prefix)
		if got := kv.Value(key); ok && m.KV.Value(key) == nil && !c.implied(m, name, got) {
			return fmt.Errorf("%s: config.json means %s, and the model does not say it", key, short(got))
		}
	}
	return nil
}

// short is the begin of a value as text.
func short(v any) string { return fmt.Sprintf("%.100s", fmt.Sprint(v)) }

// meansNothing reports whether a key of that value says as much as no key.
func meansNothing(name string, v any) bool {
	switch name {
	case "rope.scaling.type":
		return v == "none"
	case "attention.sliding_window", "expert_count", "expert_used_count":
		return sameValue(v, uint32(0))
	case "rope.scaling.attn_factor":
		return sameValue(v, float32(1))
	}
	return false
}

// implied reports whether got is what a missing key means.
func (c *config) implied(m *gguf.Model, name string, got any) bool {
	switch name {
	case "attention.key_length":
		return sameValue(got, uint32(c.hidden/c.heads))
	case "attention.value_length", "rope.dimension_count":
		return sameValue(got, uint32(c.headDim))
	case "attention.head_count_kv":
		return sameValue(got, uint32(c.heads))
	case "rope.freq_base":
		return sameValue(got, float32(models.ConfigKey("rope_theta").Default(nil)))
	case "rope.freq_base_swa":
		return sameValue(got, float32(models.ConfigKey("rope_local_base_freq").Default(nil)))
	case "expert_weights_norm":
		return got == true
	case "vocab_size":
		embd := m.Tensor("token_embd.weight")
		return embd != nil && sameValue(got, uint32(embd.Rows()))
	case "attention.sliding_window": // GGUF's llama has no such key
		return c.class.arch == "llama"
	case "attention.sliding_window_pattern": // of gemma, known by the architecture
		pattern, _ := got.([]bool)
		for i, slides := range pattern {
			if c.class.arch == "gemma2" && slides != (i%2 == 0) || c.class.arch == "gemma3" && slides != (i%6 != 5) {
				return false
			}
		}
		return c.class.arch == "gemma2" || c.class.arch == "gemma3"
	}
	return false
}

// sameValue compares values of keys: numbers by value, whatever their types, those of a float type as float32.
func sameValue(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	switch {
	case x.CanFloat() && y.CanFloat():
		return float32(x.Float()) == float32(y.Float())
	case x.CanConvert(reflect.TypeFor[float64]()) && y.CanConvert(reflect.TypeFor[float64]()):
		return x.Convert(reflect.TypeFor[float64]()).Float() == y.Convert(reflect.TypeFor[float64]()).Float()
	}
	return reflect.DeepEqual(a, b)
}
