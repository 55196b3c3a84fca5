package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Columns is out = in[From : From + width of out]: a part of what a fused matrix makes, such as the queries of queries, keys and values.
type Columns struct{ From int }

func (Columns) Kind() string         { return "columns" }
func (Columns) Needs(int) graph.Need { return graph.SameRow }
func (Columns) Role(int) graph.Role  { return graph.Vector }

func (c Columns) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if from, to := c.From, c.From+g.Width(s.Out[0]); from < 0 || to > g.Width(s.In[0]) {
		return fmt.Errorf("columns %d to %d of %d", from, to, g.Width(s.In[0]))
	}
	return nil
}

func (c Columns) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) { copy(out, r.Row(s, 0, row)[c.From:]) })
}

// Realise cuts prompts by rows. Of few rows each worker copies its columns of the result, which others may have made.
func (Columns) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, columns)
	it.In = []plan.Operand{b.At(s.In[0]).Whole()}
	unit := 0
	if b.Plan.Class == plan.Many {
		it.Cut, it.In[0] = plan.Cut{By: plan.Rows}, it.In[0].Cols(0)
	} else {
		unit = min(plan.QuantGrain, b.Plan.G.Width(s.Out[0]))
		it.Cut = plan.ColCut(b.Plan.G.Width(s.Out[0]), unit)
	}
	b.Finish(it, s.Out[0], unit)
	return 0, nil
}

var columns = &plan.Kind{Name: "columns", In: 1, Out: 1, Ops: 40}

func runColumns(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, wide := w.Floats(it.In[0])
	out, width := w.Floats(it.Out[0])
	from := it.Op.(Columns).From
	for r := p.R0; r < p.R1; r++ {
		copy(out[r*width+p.C0:r*width+p.C1], in[r*wide+from+p.C0:])
	}
}

func (c Columns) Backward(t *graph.Tape, s *graph.Step) error {
	v := s.In[0]
	t.Give(v, t.Do(ColumnsGrad(c), "d."+s.Name, t.G.Width(v), t.G.Values[v].Space, []graph.ValueID{must(t, s)})[0])
	return nil
}
