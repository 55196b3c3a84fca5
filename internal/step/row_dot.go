package step

import (
	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// RowDot is what each row gives to the gradient of a factor of all (Scale): out[row][0] = By * sum over i of x[row][i] * d[row][i].
type RowDot struct{ By float32 }

func (RowDot) Kind() string         { return "row-dot" }
func (RowDot) Needs(int) graph.Need { return graph.SameRow }
func (RowDot) Role(int) graph.Role  { return graph.Vector }

func (RowDot) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 1, 0, 0); err != nil {
		return err
	}
	if g.Width(s.Out[0]) != 1 {
		return s.Arity(1, 1, 0, 0)
	}
	return g.SameWidth(s.In[0], s.In[1])
}

func (c RowDot) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) { out[0] = float64(c.By) * dot64(r.Row(s, 0, row), r.Row(s, 1, row)) })
}

func (RowDot) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, rowDot)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Cols(0), b.At(s.In[1]).Cols(0)}
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

var rowDot = &plan.Kind{Name: "row-dot", In: 2, Out: 1, Elements: dotted}

// dotted is what dots of rows take.
func dotted(p *plan.Plan, it *plan.Item) plan.Elements {
	n := float64(p.Bufs[it.In[0].Buf].Width)
	return plan.Elements{N: n, Ops: 100, Moved: 8 * n}
}

func runRowDot(w *walk.Worker, it *plan.Item, p plan.Rect) {
	x, width := w.Floats(it.In[0])
	d, _ := w.Floats(it.In[1])
	out, _ := w.Floats(it.Out[0])
	by := float64(it.Op.(RowDot).By)
	for r := p.R0; r < p.R1; r++ {
		out[r] = float32(by * dotWide(x[r*width:(r+1)*width], d[r*width:]))
	}
}
