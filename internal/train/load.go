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

// load decodes a tensor.
func load(m *gguf.Model, w graph.Weight, dst []float32) error {
	t := m.Tensor(w.Name)
	if t == nil || t.Rows()*t.Cols() != len(dst) {
		return fmt.Errorf("tensor %s: is missing, or not of %d elements", w.Name, len(dst))
	}
	return m.Guard(func() error {
		r := t.Reader()
		for i := range t.Rows() {
			quant.Decode(t.Type, dst[i*t.Cols():(i+1)*t.Cols()], r.Row(i))
		}
		if i := NotFinite(dst); i >= 0 {
			return fmt.Errorf("tensor %s: element %d is %v", w.Name, i, dst[i])
		}
		return nil
	})
}
