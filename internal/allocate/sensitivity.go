package allocate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/quant"
	"ck/internal/walk"
)

// ReadsOf is what the engine reads on a tier: the panels of a matrix, of experts those that a token uses, of an
// embedding that is no output matrix a row.
func ReadsOf(m *gguf.Model, tier isa.Tier, features isa.Features) (Reads, error) {
	arch, _, err := m.KV.String("general.architecture")
	if err != nil {
		return nil, err
	}
	all, _, err := m.KV.Int(arch + ".expert_count")
	if err != nil {
		return nil, err
	}
	used, _, err := m.KV.Int(arch + ".expert_used_count")
	if err != nil {
		return nil, err
	}
	tbl := kernel.For(tier, features)
	return func(t *gguf.Tensor, typ quant.Type) int64 {
		rows, cols := t.Rows(), t.Cols()
		if t.Name == "token_embd.weight" && m.Tensor("output.weight") != nil {
			return int64(typ.RowBytes(cols))
		}
		n := int64(rows) * int64(typ.RowBytes(cols))
		if f := tbl.Format(typ, false); f.PanelBytes(cols) > 0 {
			n = int64(walk.PanelsBytes(weightOf(t), f))
		}
		if len(t.Shape) > 2 && all > 0 {
			n = n * used / all
		}
		return n
	}, nil
}

// weightOf is a tensor as graphs have it.
func weightOf(t *gguf.Tensor) graph.Weight {
	w := graph.Weight{Name: t.Name, Rows: t.Rows(), Cols: t.Cols()}
	if len(t.Shape) == 3 {
		w.Experts = t.Shape[2]
	}
	return w
}

// Classes lists the classes of tensors in their order.
func Classes(tensors []Tensor) (names []string) {
	for _, t := range tensors {
		if !slices.Contains(names, t.Class) {
			names = append(names, t.Class)
		}
	}
	return names
}

// probeError is the error with which a class is tried: large enough for the divergence to stand out of rounding,
// small enough to be in proportion to it.
const probeError = 0.01

// Probe is a class that is tried by itself.
type Probe struct {
	Class      string  `json:"class"`
	Type       string  `json:"type"`
	Error      float64 `json:"error"` // summed over the class
	Divergence float64 `json:"divergence"`
}

// Sensitivity is the divergence for an error of one.
func (p *Probe) Sensitivity() float64 {
	return p.Divergence / max(p.Error, math.SmallestNonzeroFloat64)
}

// Try quantizes all tensors of a class to the type whose error is nearest to a probe's, and evaluates the model with
// them.
func Try(ctx context.Context, m *gguf.Model, tensors []Tensor, class string, importance Importance, f isa.Features,
	workers int,
	evaluate func(*gguf.Model) (float64, error)) (Probe, error) {
	p := Probe{Class: class}
	name := probeType(tensors, class)
	if name == "" {
		return p, fmt.Errorf("no type fits all tensors of class %s", class)
	}
	p.Type = name
	with := map[string]*gguf.Tensor{}
	for i := range tensors {
		t := &tensors[i]
		if t.Class != class {
			continue
		}
		o := t.option(name)
		p.Error += o.Error
		q, err := quantized(ctx, m, m.Tensor(t.Name), o.Type, importance, f, workers)
		if err != nil {
			return p, err
		}
		with[t.Name] = q
	}
	var err error
	p.Divergence, err = evaluate(m.With(with))
	return p, err
}

// probeType is the type that all tensors of a class have whose mean error is nearest to a probe's, as factors.
func probeType(tensors []Tensor, class string) (best string) {
	var least float64
	var of []*Tensor
	for i := range tensors {
		if tensors[i].Class == class {
			of = append(of, &tensors[i])
		}
	}
	for _, o := range of[0].Options {
		sum, ok := 0.0, true
		for _, t := range of {
			if x := t.option(o.Name); x != nil {
				sum += x.Error
			} else {
				ok = false
			}
		}
		d := math.Abs(math.Log(max(sum, 1e-300) / float64(len(of)) / probeError))
		if ok && (best == "" || d < least) {
			best, least = o.Name, d
		}
	}
	return best
}

// quantized is a tensor in another type, in memory.
func quantized(ctx context.Context, m *gguf.Model, t *gguf.Tensor, typ quant.Type, importance Importance,
	f isa.Features, workers int) (*gguf.Tensor, error) {
	rows, cols, size := t.Rows(), t.Cols(), typ.RowBytes(t.Cols())
	out := &gguf.Tensor{Name: t.Name, Type: typ, Shape: t.Shape, Data: make([]byte, rows*size), File: -1}
	w := importance(t)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for n := range workers {
		wg.Go(func() {
			x, e, rowsOf := make([]float32, cols), quant.NewEncoder(typ, f), t.Reader()
			errs[n] = m.Guard(func() error {
				for r := n; r < rows; r += workers {
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					quant.Decode(t.Type, x, rowsOf.Row(r))
					row := w
					if w != nil && len(t.Shape) > 2 {
						row = w[r/t.Shape[1]*cols:][:cols]
					}
					if err := e.Encode(out.Data[r*size:(r+1)*size], x, row); err != nil {
						return fmt.Errorf("tensor %s: row %d: %w", t.Name, r, err)
					}
				}
				return nil
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
