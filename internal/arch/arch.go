// Package arch turns the hyperparameters of a model file into a graph. An architecture is one row of the table and, where it
// differs in more than flags, one file.
package arch

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"ck/internal/graph"
)

// Source is what an architecture may ask of a model file: metadata under GGUF keys, shapes of tensors under GGUF names, and the
// contents of small vectors. A key of another type than is asked for is an error, not an absent one.
type Source interface {
	String(key string) (v string, ok bool, err error)
	Int(key string) (v int64, ok bool, err error)
	Float(key string) (v float64, ok bool, err error)
	Bools(key string) (v []bool, ok bool, err error)
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

// Build makes the graph of the model in src and checks every value and every shape in it. Errors name the metadata key or the tensor.
// notes say which defaults the file relies on, a line each.
func Build(src Source) (g *graph.Graph, notes []string, err error) {
	name, ok, err := src.String("general.architecture")
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, fmt.Errorf("general.architecture: the key is missing; is this a language model?")
	}
	build, ok := architectures[name]
	if !ok {
		return nil, nil, fmt.Errorf("general.architecture: %.100q is not supported; ck knows %s, and mistral, whose files say llama", name, strings.Join(Names(), ", "))
	}
	h := &hparams{src: src, arch: name}
	if n := h.size("expert_count"); n > 0 {
		return nil, nil, fmt.Errorf("%s.expert_count: %d experts; mixtures of experts are not supported in this version", name, n)
	}
	if !h.has("token_embd.weight") {
		return nil, nil, fmt.Errorf("tensor token_embd.weight: is missing; a file with a vocabulary alone has nothing to run")
	}
	g, err = build(h)
	if h.err != nil {
		err = h.err // what came first
	}
	if err != nil {
		return nil, nil, err
	}
	g.Arch = name
	if err := g.Check(); err != nil {
		return nil, nil, err
	}
	return g, h.notes, nil
}

// hparams reads hyperparameters and keeps the first error, so that a builder reads as one column.
type hparams struct {
	src   Source
	arch  string
	err   error
	notes []string // of defaults that were taken
}

// given is what the file says under a key of the table, if it is there and sound.
func (h *hparams) given(name string) (v float64, ok bool) {
	k, full := keyNamed(name), h.arch+"."+name
	var err error
	if k.Integer {
		var n int64
		n, ok, err = h.src.Int(full)
		v = float64(n)
	} else {
		v, ok, err = h.src.Float(full)
	}
	if err != nil {
		h.fail(err)
		return k.sound(), true
	}
	if !ok {
		return 0, false
	}
	if err := k.Check(v); err != nil {
		h.fail(fmt.Errorf("%s: %w", full, err))
		return k.sound(), true
	}
	return v, true
}

// float is the value of a key of the table, or its default.
func (h *hparams) float(name string) float64 {
	v, ok := h.given(name)
	if ok {
		return v
	}
	k := keyNamed(name)
	if k.Default == nil {
		h.fail(fmt.Errorf("%s.%s: the key is missing; %s", h.arch, name, Remedy))
		return k.sound()
	}
	v = k.Default(h.float)
	if k.Why != "" {
		h.note(name, Text(v), k.Why)
	}
	if err := k.Check(v); err != nil { // computed from other keys
		h.fail(fmt.Errorf("%s.%s: is missing, and what follows from other keys %w", h.arch, name, err))
		return k.sound()
	}
	return v
}

// size is the value of an integer key of the table, or its default.
func (h *hparams) size(name string) int { return int(h.float(name)) }

// str is the value of a key that is text, "" where the file has none.
func (h *hparams) str(name string) string {
	s, _, err := h.src.String(h.arch + "." + name)
	if err != nil {
		h.fail(err)
	}
	return s
}

// bools is the value of a key that is a list of bools, and whether the file has it.
func (h *hparams) bools(name string) ([]bool, bool) {
	v, ok, err := h.src.Bools(h.arch + "." + name)
	if err != nil {
		h.fail(err)
	}
	return v, ok
}

// relied notes that the file has no key of that name, which is no number.
func (h *hparams) relied(name string) { h.note(name, words[name].says, words[name].why) }

func (h *hparams) note(name, says, why string) {
	line := fmt.Sprintf("%s.%s: not in the file, taken as %s: %s", h.arch, name, says, why)
	if !slices.Contains(h.notes, line) {
		h.notes = append(h.notes, line)
	}
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
