package step

import (
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// SwiGLU is out = silu(gate) * up, silu(x) = x / (1 + e^-x). (Shazeer 2020, arXiv:2002.05202)
type SwiGLU struct{}

func (SwiGLU) Kind() string         { return "silu-mul" }
func (SwiGLU) Needs(int) graph.Need { return graph.SameRow }

func (SwiGLU) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 1, 0, 0); err != nil {
		return err
	}
	return g.SameWidth(s.In[0], s.In[1], s.Out[0])
}

func (SwiGLU) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		gate, up := r.Row(s, 0, row), r.Row(s, 1, row)
		for i := range out {
			out[i] = gate[i] / (1 + math.Exp(-gate[i])) * up[i]
		}
	})
}

func (SwiGLU) Role(int) graph.Role { return graph.Vector }

func (SwiGLU) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, swiglu)
	return 0, nil
}

// swiglu is silu(gate) * up.
var swiglu = &plan.Kind{Name: "silu-mul", In: 2, Out: 1, Named: true, Ops: 85, InPlace: anyInput}

func runSwiGLU(w *walk.Worker, it *plan.Item, p plan.Rect) {
	each(w, it, p, func(out, gate, up []float32) { w.Kernels().SiLUMul(out, gate, up) })
}
