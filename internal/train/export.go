package train

import (
	"fmt"
	"io"

	"ck/internal/gguf"
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
	values := map[string][]float32{}
	for _, p := range n.Params {
		values[p.Name] = p.Value
	}
	return write(w, m, values)
}

// write writes a model whose tensors have other values, where these are given, in the types that they had.
func write(w io.Writer, m *gguf.Model, values map[string][]float32) error {
	var infos []gguf.TensorInfo
	for _, t := range m.Tensors {
		infos = append(infos, gguf.TensorInfo{Name: t.Name, Type: t.Type, Shape: t.Shape})
	}
	out, err := gguf.NewWriter(w, m.KV, infos)
	if err != nil {
		return err
	}
	return m.Guard(func() error {
		for _, t := range m.Tensors {
			v, r, row := values[t.Name], t.Reader(), make([]byte, t.Type.RowBytes(t.Cols()))
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
