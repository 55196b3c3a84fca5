// Package synth writes models with random weights in the shapes of real ones, so that speed can be measured without a download.
//
// The weights have the size and spread of trained ones, the vocabulary has the true number of tokens and merges English text as real ones
// do, and there is a chat template, so that every program that reads GGUF can run the file; what it says means nothing.
package synth

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// Shape is the shape of a decoder model.
type Shape struct {
	Arch            string // general.architecture: llama, qwen2, qwen3, qwen3moe, gemma3, gemma4, gpt-oss, phi3
	Layers          int
	Hidden          int
	FFN             int
	Heads, KVHeads  int
	HeadDim         int
	Vocab           int
	Context         int
	Experts, Used   int  // of a layer, and of a row; 0: a feed-forward of FFN in every layer
	ExpertFFN       int  // of each expert
	Tied            bool // no output.weight
	QKNorm, QKVBias bool
	RopeBase        float32

	// Layers but each Every-th have a window of so many positions, and a rotation of WindowBase (0: RopeBase). 0: no layer has one.
	Window, Every int
	WindowBase    float32
	// Of layers without a window, where they have others: values are keys there.
	GlobalHeadDim, GlobalKVHeads int

	Keys map[string]any // of the architecture's own, behind its name and a dot
}

// shapes are real models by name (their config.json on Hugging Face).
var shapes = map[string]Shape{
	"qwen3-0.6b":    {Arch: "qwen3", Layers: 28, Hidden: 1024, FFN: 3072, Heads: 16, KVHeads: 8, HeadDim: 128, Vocab: 151936, Context: 40960, Tied: true, QKNorm: true, RopeBase: 1e6},
	"llama-3.2-1b":  {Arch: "llama", Layers: 16, Hidden: 2048, FFN: 8192, Heads: 32, KVHeads: 8, HeadDim: 64, Vocab: 128256, Context: 131072, Tied: true, RopeBase: 5e5},
	"llama-3.1-8b":  {Arch: "llama", Layers: 32, Hidden: 4096, FFN: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256, Context: 131072, RopeBase: 5e5},
	"llama-3.2-3b":  {Arch: "llama", Layers: 28, Hidden: 3072, FFN: 8192, Heads: 24, KVHeads: 8, HeadDim: 128, Vocab: 128256, Context: 131072, Tied: true, RopeBase: 5e5},
	"llama-3.1-70b": llama70, "llama-3.3-70b": llama70,
	"mistral-7b": {Arch: "llama", Layers: 32, Hidden: 4096, FFN: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 32768, Context: 32768, RopeBase: 1e6},
	"qwen3-1.7b": {Arch: "qwen3", Layers: 28, Hidden: 2048, FFN: 6144, Heads: 16, KVHeads: 8, HeadDim: 128, Vocab: 151936, Context: 40960, Tied: true, QKNorm: true, RopeBase: 1e6},
	"qwen3-4b":   {Arch: "qwen3", Layers: 36, Hidden: 2560, FFN: 9728, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 151936, Context: 40960, Tied: true, QKNorm: true, RopeBase: 1e6},
	"qwen3-8b":   {Arch: "qwen3", Layers: 36, Hidden: 4096, FFN: 12288, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 151936, Context: 40960, QKNorm: true, RopeBase: 1e6},
	"qwen3-14b":  {Arch: "qwen3", Layers: 40, Hidden: 5120, FFN: 17408, Heads: 40, KVHeads: 8, HeadDim: 128, Vocab: 151936, Context: 40960, QKNorm: true, RopeBase: 1e6},
	"qwen3-32b":  {Arch: "qwen3", Layers: 64, Hidden: 5120, FFN: 25600, Heads: 64, KVHeads: 8, HeadDim: 128, Vocab: 151936, Context: 40960, QKNorm: true, RopeBase: 1e6},
	"qwen3-30b-a3b": {Arch: "qwen3moe", Layers: 48, Hidden: 2048, FFN: 6144, Heads: 32, KVHeads: 4, HeadDim: 128, Vocab: 151936, Context: 40960, QKNorm: true, RopeBase: 1e6,
		Experts: 128, Used: 8, ExpertFFN: 768},
	"qwen3-235b-a22b": {Arch: "qwen3moe", Layers: 94, Hidden: 4096, FFN: 12288, Heads: 64, KVHeads: 4, HeadDim: 128, Vocab: 151936, Context: 40960, QKNorm: true, RopeBase: 1e6,
		Experts: 128, Used: 8, ExpertFFN: 1536},
	"mixtral-8x7b": {Arch: "llama", Layers: 32, Hidden: 4096, FFN: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 32000, Context: 32768, RopeBase: 1e6,
		Experts: 8, Used: 2, ExpertFFN: 14336},
	"mixtral-8x22b": {Arch: "llama", Layers: 56, Hidden: 6144, FFN: 16384, Heads: 48, KVHeads: 8, HeadDim: 128, Vocab: 32768, Context: 65536, RopeBase: 1e6,
		Experts: 8, Used: 2, ExpertFFN: 16384},
	"qwen2.5-7b": {Arch: "qwen2", Layers: 28, Hidden: 3584, FFN: 18944, Heads: 28, KVHeads: 4, HeadDim: 128, Vocab: 152064, Context: 32768, QKVBias: true, RopeBase: 1e6},
	"gemma-3-1b": {Arch: "gemma3", Layers: 26, Hidden: 1152, FFN: 6912, Heads: 4, KVHeads: 1, HeadDim: 256, Vocab: 262144, Context: 32768, Tied: true, QKNorm: true, RopeBase: 1e6,
		Window: 512, Every: 6, WindowBase: 1e4},
	"gemma-3-4b": {Arch: "gemma3", Layers: 34, Hidden: 2560, FFN: 10240, Heads: 8, KVHeads: 4, HeadDim: 256, Vocab: 262208, Context: 131072, Tied: true, QKNorm: true, RopeBase: 1e6,
		Window: 1024, Every: 6, WindowBase: 1e4, Keys: linear8},
	"gemma-3-12b": {Arch: "gemma3", Layers: 48, Hidden: 3840, FFN: 15360, Heads: 16, KVHeads: 8, HeadDim: 256, Vocab: 262208, Context: 131072, Tied: true, QKNorm: true, RopeBase: 1e6,
		Window: 1024, Every: 6, WindowBase: 1e4, Keys: linear8},
	"gemma-3-27b": {Arch: "gemma3", Layers: 62, Hidden: 5376, FFN: 21504, Heads: 32, KVHeads: 16, HeadDim: 128, Vocab: 262208, Context: 131072, Tied: true, QKNorm: true, RopeBase: 1e6,
		Window: 1024, Every: 6, WindowBase: 1e4, Keys: linear8},
	"gemma-4-26b-a4b": {Arch: "gemma4", Layers: 30, Hidden: 2816, FFN: 2112, Heads: 16, KVHeads: 8, HeadDim: 256, Vocab: 262144, Context: 262144, Tied: true, QKNorm: true, RopeBase: 1e6,
		Window: 1024, Every: 6, WindowBase: 1e4, GlobalHeadDim: 512, GlobalKVHeads: 2, Experts: 128, Used: 8, ExpertFFN: 704,
		Keys: map[string]any{"final_logit_softcapping": float32(30), "attention.shared_kv_layers": uint32(0), "embedding_length_per_layer_input": uint32(0)}},
	"gpt-oss-20b": gptOSS(24, 32), "gpt-oss-120b": gptOSS(36, 128),
	"phi-4": {Arch: "phi3", Layers: 40, Hidden: 5120, FFN: 17920, Heads: 40, KVHeads: 10, HeadDim: 128, Vocab: 100352, Context: 16384, RopeBase: 250000},
}

// linear8 is how gemma 3 is stretched.
var linear8 = map[string]any{"rope.scaling.type": "linear", "rope.scaling.factor": float32(8)}

// gptOSS is the shape of gpt-oss with so many layers, and experts in each.
func gptOSS(layers, experts int) Shape {
	return Shape{Arch: "gpt-oss", Layers: layers, Hidden: 2880, FFN: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Vocab: 201088, Context: 131072, RopeBase: 150000,
		Window: 128, Every: 2, Experts: experts, Used: 4, ExpertFFN: 2880,
		Keys: map[string]any{"rope.scaling.type": "yarn", "rope.scaling.factor": float32(32), "rope.scaling.original_context_length": uint32(4096)}}
}

// llama70 is the shape of llama 3 with 70 billion parameters, of every release.
var llama70 = Shape{Arch: "llama", Layers: 80, Hidden: 8192, FFN: 28672, Heads: 64, KVHeads: 8, HeadDim: 128, Vocab: 128256, Context: 131072, RopeBase: 5e5}

// Names lists the known shapes.
func Names() []string {
	var n []string
	for k := range shapes {
		n = append(n, k)
	}
	sort.Strings(n)
	return n
}

// Find is the shape of a name.
func Find(name string) (Shape, error) {
	s, ok := shapes[name]
	if !ok {
		return s, fmt.Errorf("shape %q is unknown; ck knows %s", name, strings.Join(Names(), ", "))
	}
	return s, nil
}

// Sizes are those of a shape that somebody gives; 0: not given.
type Sizes struct{ Layers, Hidden, FFN, Heads, KVHeads, HeadDim, Vocab int }

// A Size is one of Sizes.
type Size struct {
	Name  string // as flags have it
	Usage string
	Value *int
	dst   func(*Shape) *int
	or    bool // another one is taken where it is not given
}

// List is the sizes.
func (z *Sizes) List() []Size {
	return []Size{
		{"layers", "layers", &z.Layers, func(s *Shape) *int { return &s.Layers }, false},
		{"hidden", "width of the residual stream", &z.Hidden, func(s *Shape) *int { return &s.Hidden }, false},
		{"ffn", "width of the feed-forward network", &z.FFN, func(s *Shape) *int { return &s.FFN }, false},
		{"heads", "query heads", &z.Heads, func(s *Shape) *int { return &s.Heads }, false},
		{"kv-heads", "KV heads; default: as heads", &z.KVHeads, func(s *Shape) *int { return &s.KVHeads }, true},
		{"head-dim", "elements of a head; default: hidden / heads", &z.HeadDim, func(s *Shape) *int { return &s.HeadDim }, true},
		{"vocab", "tokens of the vocabulary", &z.Vocab, func(s *Shape) *int { return &s.Vocab }, false},
	}
}

// Missing is the name of the first size that a shape of one's own needs and that is not given; "" if there is none.
func (z *Sizes) Missing() string {
	for _, e := range z.List() {
		if *e.Value == 0 && !e.or {
			return e.Name
		}
	}
	return ""
}

// Own gives s, which has no sizes yet, all of them: as many KV heads as heads, and heads that divide the width, where these are not given.
func (z *Sizes) Own(s Shape) Shape {
	s.KVHeads, s.HeadDim = z.Heads, z.Hidden/max(1, z.Heads)
	return z.In(s)
}

// In is s with the sizes that are given in place of its own.
func (z *Sizes) In(s Shape) Shape {
	for _, e := range z.List() {
		if *e.Value != 0 {
			*e.dst(&s) = *e.Value
		}
	}
	return s
}

// Tensors lists the model's tensors: norms and biases in F32, all else in BF16.
func (s Shape) Tensors() []gguf.TensorInfo { return s.tensors() }

// Pure lists the model's tensors with matrices of one type, F16 where a row is no multiple of its block.
func (s Shape) Pure(typ quant.Type) []gguf.TensorInfo {
	out := s.tensors()
	for i := range out {
		switch t := &out[i]; {
		case len(t.Shape) < 2 || t.Type == quant.F32: // norms, routers
		case t.Shape[0]%typ.BlockElems() != 0:
			t.Type = quant.F16
		default:
			t.Type = typ
		}
	}
	return out
}

// Mixed lists the model's tensors with the types that a recipe gives them. The error names a tensor that it has no type for.
func (s Shape) Mixed(r quant.Recipe) []gguf.TensorInfo {
	out := s.tensors()
	ask := make([]quant.RecipeTensor, len(out))
	for i, t := range out {
		ask[i] = quant.RecipeTensor{Name: t.Name, Shape: t.Shape, Type: t.Type}
	}
	for i, t := range r.Types(quant.RecipeModel{Arch: s.Arch, Layers: s.Layers, Heads: s.Heads, KVHeads: s.KVHeads, Experts: s.Experts}, ask) {
		out[i].Type = t
	}
	return out
}

// Metadata is the hyperparameters, as a file of the model has them: all metadata but the vocabulary.
func (s Shape) Metadata(name string) *gguf.Metadata {
	kv := &gguf.Metadata{}
	kv.Set("general.architecture", s.Arch)
	kv.Set("general.name", name+" (random weights)")
	set := func(key string, v any) { kv.Set(s.Arch+"."+key, v) }
	dim := s.headDim(s.Every - 1)
	for _, e := range []struct {
		key string
		n   int
	}{{"block_count", s.Layers}, {"context_length", s.Context}, {"embedding_length", s.Hidden}, {"feed_forward_length", s.FFN},
		{"attention.head_count", s.Heads}, {"attention.head_count_kv", s.KVHeads}, {"attention.key_length", dim},
		{"attention.value_length", dim}, {"rope.dimension_count", dim}, {"vocab_size", s.Vocab}} {
		set(e.key, uint32(e.n))
	}
	if s.Experts > 0 {
		set("expert_count", uint32(s.Experts))
		set("expert_used_count", uint32(s.Used))
		if s.ExpertFFN != s.FFN || s.Arch == "gpt-oss" {
			set("expert_feed_forward_length", uint32(s.ExpertFFN))
		}
	}
	set("attention.layer_norm_rms_epsilon", float32(1e-5))
	set("rope.freq_base", s.RopeBase)
	if s.Window > 0 {
		set("attention.sliding_window", uint32(s.Window))
	}
	if s.WindowBase > 0 {
		set("rope.freq_base_swa", s.WindowBase)
	}
	if s.GlobalHeadDim > 0 {
		pattern, kvs := make([]bool, s.Layers), make([]int32, s.Layers)
		for l := range pattern {
			pattern[l], kvs[l] = s.slides(l), int32(s.kvHeads(l))
		}
		set("attention.sliding_window_pattern", pattern)
		set("attention.head_count_kv", kvs)
		for _, key := range []string{"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"} {
			set(key, uint32(s.HeadDim))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		set(key, s.Keys[key])
	}
	return kv
}

// metadata is Metadata with a vocabulary of the true size.
func (s Shape) metadata(name string) *gguf.Metadata {
	kv := s.Metadata(name)
	setVocabulary(kv, s.Arch, s.Vocab)
	return kv
}

// slides reports whether a layer has a window.
func (s Shape) slides(layer int) bool { return s.Window > 0 && (layer+1)%s.Every != 0 }

// headDim and kvHeads are those of a layer.
func (s Shape) headDim(layer int) int {
	if s.GlobalHeadDim > 0 && !s.slides(layer) {
		return s.GlobalHeadDim
	}
	return s.HeadDim
}

func (s Shape) kvHeads(layer int) int {
	if s.GlobalKVHeads > 0 && !s.slides(layer) {
		return s.GlobalKVHeads
	}
	return s.KVHeads
}

// Vector is the content of a tensor that is not random; nil for the others. rope_freqs.weight stops three quarters of the pairs that layers without
// a window rotate.
func (s Shape) Vector(tensor string) []float32 {
	if tensor != ropeFreqs || s.GlobalHeadDim == 0 {
		return nil
	}
	out := make([]float32, s.GlobalHeadDim/2)
	for i := range out {
		if out[i] = 1; i >= len(out)/4 {
			out[i] = 1e30
		}
	}
	return out
}

const ropeFreqs = "rope_freqs.weight"

// pieceBytes is the size of the pieces that are made and written at a time.
const pieceBytes = 4 << 20

// Write streams a model of shape s to w: matrices of type typ (F16 where a row is no multiple of its block), everything from seed.
func Write(w io.Writer, name string, s Shape, typ quant.Type, seed uint64) error {
	return WriteTensors(w, name, s, s.Pure(typ), 0, seed, nil)
}

// WriteTensors streams a model of shape s to w with the tensors that Pure or Mixed list. fileType, unless 0, becomes
// general.file_type. at, unless nil, is told after each piece how many bytes of tensors were written; its error ends the work.
func WriteTensors(w io.Writer, name string, s Shape, tensors []gguf.TensorInfo, fileType int, seed uint64, at func(done int64) error) error {
	kv := s.metadata(name)
	if fileType != 0 {
		kv.Set("general.file_type", uint32(fileType))
	}
	g, err := gguf.NewWriter(w, kv, tensors)
	if err != nil {
		return err
	}
	counted := &counter{w: g, at: at}
	for i, t := range tensors {
		if err := s.writeTensor(counted, t, seed+uint64(i)<<32); err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
	}
	return g.Close()
}

// counter reports how much went through.
type counter struct {
	w    io.Writer
	done int64
	at   func(int64) error
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.done += int64(n)
	if err == nil && c.at != nil {
		err = c.at(c.done)
	}
	return n, err
}

func rowsOf(t gguf.TensorInfo) int {
	rows := 1
	for _, n := range t.Shape[1:] {
		rows *= n
	}
	return rows
}

// Model makes the same model in memory, for tests.
func Model(name string, s Shape, typ quant.Type, seed uint64) (*gguf.Model, error) {
	m := gguf.NewModel(name)
	m.KV = s.metadata(name)
	for i, t := range s.Pure(typ) {
		var b bytes.Buffer
		b.Grow(rowsOf(t) * t.Type.RowBytes(t.Shape[0]))
		if err := s.writeTensor(&b, t, seed+uint64(i)<<32); err != nil {
			return nil, err
		}
		if err := m.Add(&gguf.Tensor{Name: t.Name, Type: t.Type, Shape: t.Shape, Data: b.Bytes(), File: -1}); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// writeTensor writes a tensor of the model.
func (s Shape) writeTensor(w io.Writer, t gguf.TensorInfo, seed uint64) error {
	if v := s.Vector(t.Name); v != nil {
		b := make([]byte, 4*len(v))
		if err := quant.Quantize(quant.F32, b, v, nil); err != nil {
			return err
		}
		_, err := w.Write(b)
		return err
	}
	return writeTensor(w, t.Type, rowsOf(t), t.Shape[0], seed)
}

// writeTensor makes the pieces of a tensor on all CPUs and writes them in order. Vectors are norms: about 1.
func writeTensor(w io.Writer, t quant.Type, rows, cols int, seed uint64) error {
	rb := t.RowBytes(cols)
	per := max(1, pieceBytes/rb)
	sigma := float32(1 / math.Sqrt(float64(cols)))
	const ahead = 4
	buf := make([][]byte, ahead)
	for r := 0; r < rows; r += ahead * per {
		var wg sync.WaitGroup
		for j := range ahead {
			n := min(per, rows-r-j*per)
			if n <= 0 {
				buf[j] = buf[j][:0]
				continue
			}
			if cap(buf[j]) < n*rb {
				buf[j] = make([]byte, n*rb)
			}
			buf[j] = buf[j][:n*rb]
			wg.Add(1)
			go func() {
				defer wg.Done()
				rng := rand.New(rand.NewPCG(seed, uint64(r/per+j)))
				if t == quant.F32 && rows == 1 {
					norms(buf[j], rng)
					return
				}
				quant.RandomBlocks(t, buf[j], rng, sigma)
			}()
		}
		wg.Wait()
		for _, b := range buf {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// norms fills b with float32 around 1.
func norms(b []byte, rng *rand.Rand) {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = float32(1 + 0.1*rng.NormFloat64())
	}
	if err := quant.Quantize(quant.F32, b, v, nil); err != nil {
		panic(err) // finite by construction
	}
}

// Bytes is the size of the tensors' data.
func Bytes(tensors []gguf.TensorInfo) int64 {
	n := int64(0)
	for _, t := range tensors {
		n += int64(rowsOf(t)) * int64(t.Type.RowBytes(t.Shape[0]))
	}
	return n
}

// MinVocab is the smallest vocabulary that models of this package have.
const MinVocab = 512

// Check finds what is wrong with a shape.
func (s Shape) Check() error {
	for _, e := range []struct {
		what string
		n    int
		max  int
	}{{"layers", s.Layers, 4096}, {"hidden", s.Hidden, 1 << 20}, {"ffn", s.FFN, 1 << 22}, {"heads", s.Heads, 1 << 16}, {"KV heads", s.KVHeads, 1 << 16},
		{"head size", s.HeadDim, 1 << 12}, {"vocabulary", s.Vocab, 1 << 24}} {
		if e.n < 1 || e.n > e.max {
			return fmt.Errorf("%s: %d is not in 1..%d", e.what, e.n, e.max)
		}
	}
	switch {
	case s.Heads%s.KVHeads != 0:
		return fmt.Errorf("%d heads cannot share %d KV heads evenly", s.Heads, s.KVHeads)
	case s.Experts > 0 && (s.Used < 1 || s.Used > s.Experts || s.ExpertFFN < 1 || s.Experts > 1<<16 || s.ExpertFFN > 1<<22):
		return fmt.Errorf("%d of %d experts of %d elements", s.Used, s.Experts, s.ExpertFFN)
	case s.Window > 0 && s.Every < 1:
		return fmt.Errorf("a window of %d in all layers but each %d-th", s.Window, s.Every)
	case s.GlobalKVHeads > 0 && s.Heads%s.GlobalKVHeads != 0:
		return fmt.Errorf("%d heads cannot share %d KV heads evenly", s.Heads, s.GlobalKVHeads)
	case s.HeadDim%2 != 0:
		return fmt.Errorf("heads of %d elements cannot be rotated in pairs", s.HeadDim)
	case s.Vocab < MinVocab:
		return fmt.Errorf("a vocabulary of %d has no room for bytes and words; at least %d", s.Vocab, MinVocab)
	}
	return nil
}
