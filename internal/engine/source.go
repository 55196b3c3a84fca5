package engine

import (
	"fmt"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// source shows a model to package arch.
type source struct {
	*gguf.Metadata
	m *gguf.Model
}

func (s source) Shape(name string) (int, int, bool) {
	t := s.m.Tensor(name)
	if t == nil {
		return 0, 0, false
	}
	return t.Rows(), t.Cols(), true
}

func (s source) Experts(name string) int {
	t := s.m.Tensor(name)
	switch {
	case t == nil:
		return 0
	case len(t.Shape) > 2:
		return t.Shape[2]
	}
	return 1
}

func (s source) Tensors() []string { return s.m.Names() }

// vectorElems bounds what Vector decodes: norms, biases, rope factors.
const vectorElems = 1 << 22

func (s source) Vector(name string) ([]float32, error) {
	t := s.m.Tensor(name)
	if t == nil {
		return nil, fmt.Errorf("tensor %s: is missing", name)
	}
	if !decodable(t.Type) {
		return nil, fmt.Errorf("tensor %s: type %s cannot be decoded", name, t.Type)
	}
	return s.m.Decode(t, vectorElems)
}

// decodable reports whether weights of the type can be used.
func decodable(t quant.Type) bool {
	switch t {
	case quant.I8, quant.I16, quant.I32, quant.I64, quant.F64, quant.Q8_1, quant.Q8_K:
		return false
	}
	return t.Known()
}
