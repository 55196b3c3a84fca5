package train

import (
	"fmt"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/quant"
)

// Open makes a net of a model, whose weights become float32. Errors are *engine.ModelError, with a *graph.NoBackwardError within where a step cannot be
// trained.
func Open(m *gguf.Model, opt NetOptions) (*Net, error) {
	g, _, err := engine.GraphOf(m)
	if err != nil {
		return nil, err
	}
	n, err := NewNet(g, opt, func(w graph.Weight, dst []float32) error { return load(m, w, dst) })
	if err != nil {
		return nil, &engine.ModelError{Path: m.Path, Err: err}
	}
	return n, nil
}

// load decodes a weight: a tensor, or a part of one.
func load(m *gguf.Model, w graph.Weight, dst []float32) error {
	t := m.Tensor(w.Name)
	if t == nil {
		return fmt.Errorf("tensor %s: is missing", w.Name)
	}
	size := w.TensorRows() * w.Cols
	if vector := w.Of > 0 && t.Rows() == 1; vector {
		size = w.Of
	}
	if n := t.Rows() * t.Cols(); n != size {
		return fmt.Errorf("tensor %s: has %d elements, expected %d", w.Name, n, size)
	}
	return m.Guard(func() error {
		r := t.Reader()
		switch {
		case w.Of == 0:
			for i := range t.Rows() {
				quant.Decode(t.Type, dst[i*t.Cols():(i+1)*t.Cols()], r.Row(i))
			}
		case t.Rows() == 1:
			whole := make([]float32, w.Of)
			quant.Decode(t.Type, whole, r.Row(0))
			copy(dst, whole[w.From:])
		default:
			for i := range w.Rows {
				quant.Decode(t.Type, dst[i*w.Cols:(i+1)*w.Cols], r.Row(w.TensorRow(i)))
			}
		}
		if i := NotFinite(dst); i >= 0 {
			return fmt.Errorf("tensor %s: element %d is %v", w.Label(), i, dst[i])
		}
		return nil
	})
}

// place writes a parameter's values to where they are in the tensor's, of which it may be a part.
func (p *Param) place(tensor []float32) {
	switch {
	case p.Of == 0:
		copy(tensor, p.Value)
	case p.Rows == 1 && len(tensor) == p.Of:
		copy(tensor[p.From:], p.Value)
	default:
		for r := range p.Rows {
			copy(tensor[p.TensorRow(r)*p.Cols:], p.Value[r*p.Cols:(r+1)*p.Cols])
		}
	}
}
