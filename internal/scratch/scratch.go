// Package scratch makes models that know nothing yet: weights drawn from a seed in a given shape, with a vocabulary that was learned from data.
//
// A row of weights depends on the seed, the tensor's name and its number alone, and is drawn when it is read: models of any size take no memory, and the
// bytes are the same for any number of threads.
package scratch

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"ck/internal/bpe"
	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/synth"
)

// Control tokens of all vocabularies made here. EndOfText ends a document and stands before every text; EndOfTurn ends what somebody says.
const (
	EndOfText   = "<|endoftext|>"
	StartOfTurn = "<|im_start|>"
	EndOfTurn   = "<|im_end|>"
)

// spread is the standard deviation of weights (Radford et al., Language Models are Unsupervised Multitask Learners, 2019, and the code of GPT-2).
const spread = 0.02

// Archs are the architectures of models made here, by general.architecture.
var Archs = []string{"llama", "qwen2", "qwen3"}

// Own is what a shape of one's own has beside its sizes: the norms and biases of its architecture.
func Own(arch string) synth.Shape {
	return synth.Shape{Arch: arch, QKVBias: arch == "qwen2", QKNorm: arch == "qwen3"}
}

// Check is an error for a shape that cannot be begun with.
func Check(s synth.Shape) error {
	switch {
	case !slices.Contains(Archs, s.Arch):
		return fmt.Errorf("architecture %q: cannot be trained from scratch; choose one of %s", s.Arch, strings.Join(Archs, ", "))
	case s.Experts > 0:
		return fmt.Errorf("a mixture of %d experts cannot be trained from scratch; choose a shape without", s.Experts)
	case s.Vocab > bpe.MaxVocab:
		return fmt.Errorf("a vocabulary of %d tokens, limit is %d", s.Vocab, bpe.MaxVocab)
	case s.Context < 1 || s.Context > maxContext:
		return fmt.Errorf("a context of %d positions is not in 1..%d", s.Context, maxContext)
	case !(s.RopeBase >= 1 && s.RopeBase <= math.MaxFloat32):
		return fmt.Errorf("a rotation with the base %g, wanted 1 or more", s.RopeBase)
	}
	s.Vocab = max(s.Vocab, synth.MinVocab) // which bounds random models alone: Learn knows what a vocabulary needs
	return s.Check()
}

// maxContext is the largest number of positions.
const maxContext = 1 << 24

// Options say what a model is made of, beside its shape.
type Options struct {
	Name string     // general.name
	Type quant.Type // of the matrices: F32, F16 or BF16; norms and biases are F32
	Seed uint64
	Raw  bool // ckrun sends prompts as they are, unless it is told otherwise (metadata ck.prompt.default)
}

// Model is a model of shape s, but for its vocabulary: AddVocabulary.
//
// Weights are normal with a standard deviation of 0.02; of the two matrices of a layer that write into the residual it is 0.02 / sqrt(2 * layers), so
// that the residual behind all layers is no larger for more of them. Norms are 1, biases 0.
func Model(s synth.Shape, o Options) (*gguf.Model, error) {
	if err := Check(s); err != nil {
		return nil, err
	}
	fileType, ok := map[quant.Type]uint32{quant.F32: 0, quant.F16: 1, quant.BF16: 32}[o.Type] // llama.h, enum llama_ftype
	if !ok {
		return nil, fmt.Errorf("weights of %v cannot be trained; choose F32, F16 or BF16", o.Type)
	}
	m := gguf.NewModel(o.Name)
	m.KV = s.Metadata(o.Name)
	m.KV.Set("general.name", o.Name)
	m.KV.Set("general.file_type", fileType)
	if o.Raw {
		m.KV.Set("ck.prompt.default", "raw")
	}
	for _, info := range s.Tensors() {
		t := &gguf.Tensor{Name: info.Name, Type: quant.F32, Shape: info.Shape, File: -1}
		switch {
		case len(info.Shape) > 1:
			t.Type, t.Make = o.Type, drawn(info, o, deviation(s, info.Name))
		case strings.HasSuffix(info.Name, ".bias"):
			t.Data = make([]byte, 4*info.Shape[0])
		default:
			for range info.Shape[0] {
				t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(1))
			}
		}
		if err := m.Add(t); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// AddVocabulary gives a model the keys of a vocabulary, which must have the model's number of tokens.
func AddVocabulary(m *gguf.Model, v *bpe.Vocabulary) error {
	if n := m.Tensor("token_embd.weight").Rows(); n != v.Size() {
		return fmt.Errorf("the model has %d tokens, the vocabulary %d", n, v.Size())
	}
	for _, k := range v.Keys() {
		m.KV.Set(k.Name, k.Value)
	}
	if id, ok := v.Tokenizer().TokenID(EndOfTurn); ok {
		m.KV.Set("tokenizer.ggml.eot_token_id", uint32(id))
	}
	return nil
}

// deviation is the standard deviation of a matrix.
func deviation(s synth.Shape, name string) float64 {
	if strings.HasSuffix(name, ".attn_output.weight") || strings.HasSuffix(name, ".ffn_down.weight") {
		return spread / math.Sqrt(2*float64(s.Layers))
	}
	return spread
}

// drawn draws the rows of a matrix: the same values for any type, each rounded once. Several goroutines may call it.
func drawn(info gguf.TensorInfo, o Options, sigma float64) func(dst []byte, r int) {
	cols := info.Shape[0]
	pool := sync.Pool{New: func() any {
		x := make([]float32, cols)
		return &x
	}}
	return func(dst []byte, r int) {
		x := pool.Get().(*[]float32)
		defer pool.Put(x)
		draw(*x, o.Seed, info.Name, r, sigma)
		if err := quant.Quantize(o.Type, dst, *x, nil); err != nil {
			panic(err) // finite by construction
		}
	}
}

// draw fills x with normal numbers.
func draw(x []float32, seed uint64, name string, row int, sigma float64) {
	h := sha256.Sum256(fmt.Appendf(nil, "ck scratch 1 %d %s %d", seed, name, row))
	rng := rand.New(rand.NewPCG(binary.LittleEndian.Uint64(h[:]), binary.LittleEndian.Uint64(h[8:])))
	for i := range x {
		x[i] = float32(sigma * rng.NormFloat64())
	}
}

// A Part is tensors of one kind.
type Part struct {
	Name       string `json:"part"`
	Tensors    int    `json:"tensors"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"`
}

// parts are the kinds, and what the names of their tensors have in them; the first that fits counts.
var parts = [][2]string{{"embedding", "token_embd"}, {"norms", "norm"}, {"attention", ".attn_"}, {"feed-forward", ".ffn_"}, {"output", "output."}}

// Parts are the parts of a model, and all of it behind them.
func Parts(m *gguf.Model) []Part {
	list := make([]Part, len(parts)+1)
	all := &list[len(parts)]
	for i, p := range parts {
		list[i].Name = p[0]
	}
	all.Name = "all"
	for _, t := range m.Tensors {
		i := slices.IndexFunc(parts, func(p [2]string) bool { return strings.Contains(t.Name, p[1]) })
		for _, p := range []*Part{&list[i], all} {
			p.Tensors++
			p.Parameters += int64(t.Rows()) * int64(t.Cols())
			p.Bytes += t.Bytes()
		}
	}
	return slices.DeleteFunc(list, func(p Part) bool { return p.Tensors == 0 })
}
