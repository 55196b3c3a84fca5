package train

import (
	"fmt"
	"io"

	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/quant"
)

// TypeError says that a matrix of the model cannot be trained.
type TypeError struct {
	Tensor string
	Type   quant.Type
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("tensor %s: weights of type %s stay what they are; take the model in float weights (ckquant convert IN OUT --type bf16)", e.Tensor, e.Type)
}

// Trainable reports whether the values of all weights can be written as they came: as floats. Errors are *TypeError.
func Trainable(m *gguf.Model) error {
	for _, t := range m.Tensors {
		switch t.Type {
		case quant.F32, quant.F16, quant.BF16, quant.I32, quant.I64:
		default:
			return &TypeError{t.Name, t.Type}
		}
	}
	return nil
}

// WriteModel writes the model that m was, with the values of the net, or its adapters added, in the types that its tensors had.
func (n *Net) WriteModel(w io.Writer, m *gguf.Model) error {
	if n.opt.LoRA != nil {
		a, err := n.Adapter(m)
		if err != nil {
			return err
		}
		return Merge(w, m, a, quant.BF16)
	}
	params := map[string][]*Param{}
	for _, p := range n.Params {
		params[p.Name] = append(params[p.Name], p)
	}
	return write(w, m, func(t *gguf.Tensor) ([]float32, error) {
		parts := params[t.Name]
		if len(parts) == 0 {
			return nil, nil
		}
		if parts[0].Of == 0 {
			return parts[0].Value, nil
		}
		v := make([]float32, t.Rows()*t.Cols())
		if err := load(m, graph.Weight{Name: t.Name, Rows: t.Rows(), Cols: t.Cols()}, v); err != nil { // rows that nobody reads stay
			return nil, err
		}
		for _, p := range parts {
			p.place(v)
		}
		return v, nil
	})
}

// Header lays out the file that Merge writes of a model that Merged made.
func Header(m *gguf.Model) (*gguf.Header, error) { return gguf.NewHeader(m.KV, infos(m)) }

func infos(m *gguf.Model) (list []gguf.TensorInfo) {
	for _, t := range m.Tensors {
		list = append(list, gguf.TensorInfo{Name: t.Name, Type: t.Type, Shape: t.Shape})
	}
	return list
}

// write writes a model whose tensors have other values, where values (nil: nowhere) has some, in the types that they had.
func write(w io.Writer, m *gguf.Model, values func(t *gguf.Tensor) ([]float32, error)) error {
	out, err := gguf.NewWriter(w, m.KV, infos(m))
	if err != nil {
		return err
	}
	return m.Guard(func() error {
		for _, t := range m.Tensors {
			var v []float32
			if values != nil {
				var err error
				if v, err = values(t); err != nil {
					return err
				}
			}
			r, row := t.Reader(), make([]byte, t.Type.RowBytes(t.Cols()))
			for i := range t.Rows() {
				b := row
				if v == nil { // nothing that is trained, such as factors of a rotation
					b = r.Row(i)
				} else if err := quant.Quantize(t.Type, row, v[i*t.Cols():(i+1)*t.Cols()], nil); err != nil {
					return fmt.Errorf("tensor %s: %w", t.Name, err)
				}
				if _, err := out.Write(b); err != nil {
					return err
				}
			}
		}
		return out.Close()
	})
}
