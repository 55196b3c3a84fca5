// Package arch turns the hyperparameters of a model file into a graph. An architecture is one row of the table and, where it
// differs in more than flags, one file.
package arch

import (
	"fmt"
	"sort"
	"strings"

	"ck/internal/graph"
)

// Source is what an architecture may ask of a model file: metadata under GGUF keys, shapes of tensors under GGUF names, and the
// contents of small vectors.
type Source interface {
	String(key string) (string, bool)
	Int(key string) (int64, bool)
	Float(key string) (float64, bool)
	Bools(key string) ([]bool, bool)
	Shape(tensor string) (rows, cols int, ok bool)
	Vector(tensor string) ([]float32, error)
}

// architectures maps general.architecture to the builder of its graph.
var architectures = map[string]func(*hparams) (*graph.Graph, error){
	"llama": dense{}.build, // also mistral, which GGUF files call llama
	"qwen2": dense{neox: true}.build,
	"qwen3": dense{neox: true, qkNorm: true}.build,
}

// Names lists the architectures that Build knows.
func Names() []string {
	var n []string
	for k := range architectures {
		n = append(n, k)
	}
	sort.Strings(n)
	return n
}

// Build makes the graph of the model in src and checks every shape in it. Errors name the metadata key or the tensor.
func Build(src Source) (*graph.Graph, error) {
	name, ok := src.String("general.architecture")
	if !ok {
		return nil, fmt.Errorf("general.architecture: the key is missing; is this a language model?")
	}
	build, ok := architectures[name]
	if !ok {
		return nil, fmt.Errorf("general.architecture: %q is not supported; ck knows %s, and mistral, whose files say llama", name, strings.Join(Names(), ", "))
	}
	h := &hparams{src: src, arch: name}
	if n := h.size("expert_count", 0); n > 0 {
		return nil, fmt.Errorf("%s.expert_count: %d experts; mixtures of experts are not supported in this version", name, n)
	}
	if !h.has("token_embd.weight") {
		return nil, fmt.Errorf("tensor token_embd.weight: is missing; a file with a vocabulary alone has nothing to run")
	}
	g, err := build(h)
	if err == nil {
		err = h.err
	}
	if err != nil {
		return nil, err
	}
	g.Arch = name
	if err := g.Check(); err != nil {
		return nil, err
	}
	return g, nil
}

// hparams reads hyperparameters and keeps the first error, so that a builder reads as one column.
type hparams struct {
	src  Source
	arch string
	err  error
}

// limit is the largest sensible value of a size: it keeps products of two within an int.
const limit = 1 << 30

// need is a required size.
func (h *hparams) need(key string) int {
	if n, ok := h.opt(key); ok {
		return n
	}
	h.fail(fmt.Errorf("%s.%s: the key is missing", h.arch, key))
	return 1
}

// size is a size with a default.
func (h *hparams) size(key string, def int) int {
	if n, ok := h.opt(key); ok {
		return n
	}
	return def
}

func (h *hparams) opt(key string) (int, bool) {
	n, ok := h.src.Int(h.arch + "." + key)
	if !ok {
		return 0, false
	}
	if n < 0 || n > limit {
		h.fail(fmt.Errorf("%s.%s: %d is out of range (0 to %d)", h.arch, key, n, limit))
		return 1, true
	}
	return int(n), true
}

func (h *hparams) float(key string, def float64) float64 {
	if f, ok := h.src.Float(h.arch + "." + key); ok {
		return f
	}
	return def
}

func (h *hparams) str(key string) string {
	s, _ := h.src.String(h.arch + "." + key)
	return s
}

func (h *hparams) fail(err error) {
	if h.err == nil {
		h.err = err
	}
}

// has reports whether the file has the tensor.
func (h *hparams) has(tensor string) bool {
	_, _, ok := h.src.Shape(tensor)
	return ok
}

// weight adds the tensor to the graph with the shape that the file gives it; the shape rules judge it.
func (h *hparams) weight(g *graph.Graph, tensor string) graph.WeightID {
	rows, cols, ok := h.src.Shape(tensor)
	if !ok {
		h.fail(fmt.Errorf("tensor %s: is missing", tensor))
	}
	return g.NewWeight(tensor, rows, cols)
}

// withBias is the weight NAME.weight and, where the file has it, NAME.bias.
func (h *hparams) withBias(g *graph.Graph, name string) []graph.WeightID {
	w := []graph.WeightID{h.weight(g, name+".weight")}
	if h.has(name + ".bias") {
		w = append(w, h.weight(g, name+".bias"))
	}
	return w
}
