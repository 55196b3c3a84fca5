package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// PickGrad is the gradient of Pick: the gradient of a picked row where it was picked from, zeros elsewhere.
type PickGrad struct{}

func (PickGrad) Kind() string         { return "pick-grad" }
func (PickGrad) Needs(int) graph.Need { return graph.AllRows }
func (PickGrad) Role(int) graph.Role  { return graph.Vector }

func (PickGrad) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if in, out := g.Values[s.In[0]].Space, g.Values[s.Out[0]].Space; in != (graph.Space{Picked: true}) || out != (graph.Space{}) {
		return fmt.Errorf("from %s to %s", g.Values[s.In[0]].Name, g.Values[s.Out[0]].Name)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (PickGrad) Ref(r *graph.Ref, s *graph.Step) {
	for i, row := range r.In.Pick {
		if out := r.Vals[s.Out[0]][row]; out != nil {
			copy(out, r.Row(s, 0, i))
		}
	}
}

func (PickGrad) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, pickGrad)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Whole()}
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

var pickGrad = &plan.Kind{Name: "pick-grad", In: 1, Out: 1, Ops: 40}

func runPickGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	clear(out[p.R0*width : p.R1*width])
	for i, row := range w.Batch().Pick {
		if r := int(row); r >= p.R0 && r < p.R1 {
			copy(out[r*width:(r+1)*width], in[i*width:])
		}
	}
}
