package step

import (
	"fmt"
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Activate is the activation of feed-forwards without a gate: out = max(x, 0)^2 (So et al. 2021, arXiv:2109.08668), or xIELU where that is set.
type Activate struct{ XIELU *XIELU }

// XIELU are the numbers of xIELU (Huang and Schlag 2024, arXiv:2411.13010): AlphaP*x^2 + Beta*x above zero, else AlphaN*(e^min(x, Eps) - 1 - x) + Beta*x.
type XIELU struct{ AlphaP, AlphaN, Beta, Eps float32 }

func (f *XIELU) of(x float64) float64 {
	if x > 0 {
		return float64(f.AlphaP)*x*x + float64(f.Beta)*x
	}
	return (math.Expm1(min(x, float64(f.Eps)))-x)*float64(f.AlphaN) + float64(f.Beta)*x
}

func (a Activate) Kind() string {
	if a.XIELU != nil {
		return "xielu"
	}
	return "relu2"
}

func (Activate) Needs(int) graph.Need { return graph.SameRow }
func (Activate) Role(int) graph.Role  { return graph.Vector }

// Columns of the output depend on the same ones of every input.
func (Activate) Columns(int) int { return 1 }

func (a Activate) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if f := a.XIELU; f != nil {
		if sum := f.AlphaP + f.AlphaN + f.Beta + f.Eps; sum-sum != 0 || f.Eps > 0 {
			return fmt.Errorf("xielu of %+v", *f)
		}
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (a Activate) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		for i, x := range r.Row(s, 0, row) {
			if a.XIELU != nil {
				out[i] = a.XIELU.of(x)
			} else {
				out[i] = max(x, 0) * max(x, 0)
			}
		}
	})
}

func (a Activate) Realise(b *plan.Builder, i int) (int, error) {
	if a.XIELU != nil {
		elementwise(b, i, xielu)
	} else {
		elementwise(b, i, relu2)
	}
	return 0, nil
}

var (
	relu2 = &plan.Kind{Name: "relu2", In: 1, Out: 1, Named: true, Ops: 60, InPlace: anyInput}
	// xielu is in float64, in Go.
	xielu = &plan.Kind{Name: "xielu", In: 1, Out: 1, Named: true, Ops: 2000, InPlace: anyInput}
)

func runReLU2(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	for r := p.R0; r < p.R1; r++ {
		dst := out[r*width+p.C0 : r*width+p.C1]
		for i, x := range in[r*width+p.C0:][:len(dst)] {
			x = max(x, 0) // NaN stays
			dst[i] = x * x
		}
	}
}

func runXIELU(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	f := it.Op.(Activate).XIELU
	for r := p.R0; r < p.R1; r++ {
		dst := out[r*width+p.C0 : r*width+p.C1]
		for i, x := range in[r*width+p.C0:][:len(dst)] {
			dst[i] = float32(f.of(float64(x)))
		}
	}
}

func (a Activate) Backward(t *graph.Tape, s *graph.Step) error {
	v := s.In[0]
	t.Give(v, t.Do(ActivateGrad{a}, "d."+s.Name, t.G.Width(v), t.G.Values[v].Space, []graph.ValueID{v, must(t, s)})[0])
	return nil
}
