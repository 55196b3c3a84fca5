package cost

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// An Outline is a well-known model that package synth has no shape of. There is no plan to walk without a file, so no time is expected of it; what
// it weighs, and what no program can pass, follow from its tensors.
type Outline struct {
	Arch                                                         string // general.architecture
	Lacks                                                        string // what shapes lack for it
	Layers, Hidden, FFN, Heads, KVHeads, HeadDim, Vocab, Context int
	Experts, Active                                              int // experts of a layer, each of FFN, and how many of them a token uses; 0: dense
	Window, Every                                                int // layers but each Every-th keep Window positions; 0: all keep all
	Tied, QKNorm, PostNorms, Biases, Sinks                       bool
	Default                                                      string // the type or recipe in which it comes; "": Q8_0
}

const noSinks, noGemma = "sinks, biases and windows", "windows and norms behind blocks"

// outlines are from the config.json files of the models on Hugging Face.
var outlines = map[string]Outline{
	"gemma-3-1b": {Arch: "gemma3", Lacks: noGemma, Layers: 26, Hidden: 1152, FFN: 6912, Heads: 4, KVHeads: 1, HeadDim: 256, Vocab: 262144, Context: 32768, Window: 512, Every: 6,
		Tied: true, QKNorm: true, PostNorms: true},
	"gemma-3-4b": {Arch: "gemma3", Lacks: noGemma, Layers: 34, Hidden: 2560, FFN: 10240, Heads: 8, KVHeads: 4, HeadDim: 256, Vocab: 262208, Context: 131072, Window: 1024, Every: 6,
		Tied: true, QKNorm: true, PostNorms: true},
	"gemma-3-12b": {Arch: "gemma3", Lacks: noGemma, Layers: 48, Hidden: 3840, FFN: 15360, Heads: 16, KVHeads: 8, HeadDim: 256, Vocab: 262208, Context: 131072, Window: 1024, Every: 6,
		Tied: true, QKNorm: true, PostNorms: true},
	"gemma-3-27b": {Arch: "gemma3", Lacks: noGemma, Layers: 62, Hidden: 5376, FFN: 21504, Heads: 32, KVHeads: 16, HeadDim: 128, Vocab: 262208, Context: 131072, Window: 1024, Every: 6,
		Tied: true, QKNorm: true, PostNorms: true},
	"gpt-oss-20b": {Arch: "gpt-oss", Lacks: noSinks, Layers: 24, Hidden: 2880, FFN: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Vocab: 201088, Context: 131072, Experts: 32, Active: 4,
		Window: 128, Every: 2, Biases: true, Sinks: true, Default: "MXFP4_MOE"},
	"gpt-oss-120b": {Arch: "gpt-oss", Lacks: noSinks, Layers: 36, Hidden: 2880, FFN: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Vocab: 201088, Context: 131072, Experts: 128, Active: 4,
		Window: 128, Every: 2, Biases: true, Sinks: true, Default: "MXFP4_MOE"},
}

// OutlineNames lists the models that FindOutline knows.
func OutlineNames() []string {
	var n []string
	for k := range outlines {
		n = append(n, k)
	}
	slices.Sort(n)
	return n
}

// FindOutline is the outline of a name, in any case.
func FindOutline(name string) (Outline, bool) {
	o, ok := outlines[strings.ToLower(name)]
	return o, ok
}

// Tensors lists the tensors of the model's GGUF file with their types. typ is the name of a recipe, or of a block type for all matrices.
func (o Outline) Tensors(typ string) ([]gguf.TensorInfo, error) {
	out := o.shapes()
	r, isRecipe := quant.FindRecipe(typ)
	t, isType := quant.Parse(typ)
	switch {
	case isRecipe:
		ask := make([]quant.RecipeTensor, len(out))
		for i, x := range out {
			ask[i] = quant.RecipeTensor{Name: x.Name, Shape: x.Shape, Type: x.Type}
		}
		for i, t := range r.Types(quant.RecipeModel{Arch: o.Arch, Layers: o.Layers, Heads: o.Heads, KVHeads: o.KVHeads, Experts: o.Experts}, ask) {
			out[i].Type = t
		}
	case isType && usable(t):
		for i := range out {
			if x := &out[i]; x.Type != quant.F32 {
				x.Type = quant.F16 // where a row is no multiple of the block
				if x.Shape[0]%t.BlockElems() == 0 {
					x.Type = t
				}
			}
		}
	default:
		return nil, fmt.Errorf("type %q is neither a recipe (%s) nor a block type of weights", typ, strings.Join(quant.RecipeNames(), ", "))
	}
	return out, nil
}

// shapes lists the tensors, matrices as BF16 and the rest as F32, which recipes leave alone.
func (o Outline) shapes() []gguf.TensorInfo {
	var out []gguf.TensorInfo
	add := func(t quant.Type, name string, shape ...int) {
		out = append(out, gguf.TensorInfo{Name: name, Type: t, Shape: shape})
	}
	matrix := func(name string, biased bool, shape ...int) { // its row is as long as what it multiplies
		add(quant.BF16, name+".weight", shape...)
		if biased {
			add(quant.F32, name+".bias", shape[1:]...)
		}
	}
	add(quant.BF16, "token_embd.weight", o.Hidden, o.Vocab)
	for l := range o.Layers {
		b := fmt.Sprintf("blk.%d.", l)
		q, kv := o.Heads*o.HeadDim, o.KVHeads*o.HeadDim
		add(quant.F32, b+"attn_norm.weight", o.Hidden)
		matrix(b+"attn_q", o.Biases, o.Hidden, q)
		matrix(b+"attn_k", o.Biases, o.Hidden, kv)
		matrix(b+"attn_v", o.Biases, o.Hidden, kv)
		matrix(b+"attn_output", o.Biases, q, o.Hidden)
		if o.QKNorm {
			add(quant.F32, b+"attn_q_norm.weight", o.HeadDim)
			add(quant.F32, b+"attn_k_norm.weight", o.HeadDim)
		}
		if o.Sinks {
			add(quant.F32, b+"attn_sinks.weight", o.Heads)
		}
		add(quant.F32, b+"ffn_norm.weight", o.Hidden)
		if o.PostNorms {
			add(quant.F32, b+"post_attention_norm.weight", o.Hidden)
			add(quant.F32, b+"post_ffw_norm.weight", o.Hidden)
		}
		if o.Experts == 0 {
			matrix(b+"ffn_gate", false, o.Hidden, o.FFN)
			matrix(b+"ffn_up", false, o.Hidden, o.FFN)
			matrix(b+"ffn_down", false, o.FFN, o.Hidden)
			continue
		}
		add(quant.F32, b+"ffn_gate_inp.weight", o.Hidden, o.Experts)
		if o.Biases {
			add(quant.F32, b+"ffn_gate_inp.bias", o.Experts)
		}
		matrix(b+"ffn_gate_exps", o.Biases, o.Hidden, o.FFN, o.Experts)
		matrix(b+"ffn_up_exps", o.Biases, o.Hidden, o.FFN, o.Experts)
		matrix(b+"ffn_down_exps", o.Biases, o.FFN, o.Hidden, o.Experts)
	}
	add(quant.F32, "output_norm.weight", o.Hidden)
	if !o.Tied {
		add(quant.BF16, "output.weight", o.Hidden, o.Vocab)
	}
	return out
}

// Weight is what an outline's tensors are together.
type Weight struct {
	Params, ActiveParams float64 // of one token: without experts that it does not use, and without the other rows of the embedding
	PromptParams         float64 // of those, what every token of a prompt needs: no logits, no embedding
	File                 int64   // bytes of the tensors
	Read                 float64 // bytes that a walk of so many rows reads: experts that at least one row uses, on average, if routing is even
}

// Weigh adds the tensors up. A walk has rows rows.
func (o Outline) Weigh(tensors []gguf.TensorInfo, rows int) Weight {
	var w Weight
	for _, t := range tensors {
		n := float64(rowsOf(t.Shape)) * float64(t.Shape[0])
		bytes := int64(rowsOf(t.Shape)) * int64(t.Type.RowBytes(t.Shape[0]))
		w.Params, w.File = w.Params+n, w.File+bytes
		used, read := 1.0, 1.0
		switch {
		case strings.Contains(t.Name, "_exps."):
			used = float64(o.Active) / float64(o.Experts)
			read = 1 - math.Pow(1-used, float64(rows))
		case t.Name == "token_embd.weight" && !o.Tied:
			used, read = 1/float64(o.Vocab), min(1, float64(rows)/float64(o.Vocab))
		}
		w.ActiveParams += used * n
		if t.Name != "token_embd.weight" && t.Name != "output.weight" {
			w.PromptParams += used * n
		}
		w.Read += read * float64(bytes)
	}
	return w
}

// CacheBytes is what one sequence of so many positions takes in a KV cache of a type. Layers with a window keep that many.
func (o Outline) CacheBytes(t quant.Type, positions int) int64 {
	n := int64(0)
	for l := range o.Layers {
		kept := positions
		if o.Window > 0 && (l+1)%o.Every != 0 {
			kept = min(kept, o.Window)
		}
		n += 2 * int64(kept) * int64(o.KVHeads) * int64(t.RowBytes(o.HeadDim))
	}
	return n
}

// PromptOps is 2 operations for each parameter that a token needs, and token: the least, without attention and with no logits.
func (w Weight) PromptOps(tokens int) float64 { return opsForward * w.PromptParams * float64(tokens) }
