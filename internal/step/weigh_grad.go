package step

import (
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// WeighGrad is the gradient of Weigh by its gate, one element: g * (1-g) * sum over i of x[i] * d[i] with g = sigmoid(gate). Inputs: x, the gate, and d, that of
// the result.
type WeighGrad struct{}

func (WeighGrad) Kind() string         { return "weigh-grad" }
func (WeighGrad) Needs(int) graph.Need { return graph.SameRow }
func (WeighGrad) Role(int) graph.Role  { return graph.Vector }

func (WeighGrad) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(3, 1, 0, 0); err != nil {
		return err
	}
	if err := g.SameWidth(s.In[1], s.Out[0]); err != nil {
		return err
	}
	return g.SameWidth(s.In[0], s.In[2])
}

func (WeighGrad) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		f := 1 / (1 + math.Exp(-r.Row(s, 1, row)[0]))
		out[0] = f * (1 - f) * dot64(r.Row(s, 0, row), r.Row(s, 2, row))
	})
}

func (WeighGrad) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, weighGrad)
	it.Cut = plan.Cut{By: plan.Rows}
	for _, v := range s.In {
		it.In = append(it.In, b.At(v).Cols(0))
	}
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

var weighGrad = &plan.Kind{Name: "weigh-grad", In: 3, Out: 1, Elements: dotted}

func runWeighGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	x, width := w.Floats(it.In[0])
	gate, _ := w.Floats(it.In[1])
	d, _ := w.Floats(it.In[2])
	out, _ := w.Floats(it.Out[0])
	for r := p.R0; r < p.R1; r++ {
		f := 1 / (1 + math.Exp(-float64(gate[r])))
		out[r] = float32(f * (1 - f) * dotWide(x[r*width:(r+1)*width], d[r*width:]))
	}
}

// Backward weighs the gradient by the same gate.
func (Weigh) Backward(t *graph.Tape, s *graph.Step) error {
	x, gate, d := s.In[0], s.In[1], must(t, s)
	if t.Needs(gate) {
		t.Give(gate, t.Do(WeighGrad{}, "d."+t.G.Values[gate].Name, 1, t.G.Values[gate].Space, []graph.ValueID{x, gate, d})[0])
	}
	if t.Needs(x) {
		t.Give(x, t.Do(Weigh{}, "d."+s.Name, t.G.Width(x), t.G.Values[x].Space, []graph.ValueID{d, gate})[0])
	}
	return nil
}
