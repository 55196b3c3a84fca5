package step

import (
	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Activate is out = max(x, 0)^2: the activation of feed-forwards without a gate. (So et al. 2021, arXiv:2109.08668)
type Activate struct{}

func (Activate) Kind() string         { return "relu2" }
func (Activate) Needs(int) graph.Need { return graph.SameRow }
func (Activate) Role(int) graph.Role  { return graph.Vector }

func (Activate) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (Activate) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		for i, x := range r.Row(s, 0, row) {
			out[i] = max(x, 0) * max(x, 0)
		}
	})
}

func (Activate) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, relu2)
	return 0, nil
}

var relu2 = &plan.Kind{Name: "relu2", In: 1, Out: 1, Named: true, Ops: 60, InPlace: anyInput}

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
