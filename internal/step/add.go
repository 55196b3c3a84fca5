package step

import (
	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Add is out = a + b: the residual connection.
type Add struct{}

func (Add) Kind() string         { return "add" }
func (Add) Needs(int) graph.Need { return graph.SameRow }

func (Add) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 1, 0, 0); err != nil {
		return err
	}
	return g.SameWidth(s.In[0], s.In[1], s.Out[0])
}

func (Add) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		a, b := r.Row(s, 0, row), r.Row(s, 1, row)
		for i := range out {
			out[i] = a[i] + b[i]
		}
	})
}

func (Add) Role(int) graph.Role { return graph.Vector }

// Columns of the output depend on the same ones of every input.
func (Add) Columns(int) int { return 1 }

func (Add) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, add)
	return 0, nil
}

// elementwise lays out a step whose output's elements read the same elements of the inputs.
func elementwise(b *plan.Builder, i int, k *plan.Kind) {
	s := b.Step(i)
	it := b.Item(i, k)
	var unit int
	it.Cut, unit = b.RowCut(s.In[0], min(plan.QuantGrain, b.Plan.G.Width(s.In[0])), b.Dealt(s.Out[0]))
	for _, v := range s.In {
		it.In = append(it.In, b.At(v).Cols(unit))
	}
	b.Finish(it, s.Out[0], unit)
}

// anyInput says that each input's memory may become the output's.
func anyInput(*plan.Item, int) bool { return true }

// add adds rows.
var add = &plan.Kind{Name: "add", In: 2, Out: 1, Ops: 40, InPlace: anyInput}

func runAdd(w *walk.Worker, it *plan.Item, p plan.Rect) {
	each(w, it, p, func(out, a, b []float32) { w.Kernels().Add(out, a, b) })
}

// each calls f with the part's elements of the output and of both inputs, row by row.
func each(w *walk.Worker, it *plan.Item, p plan.Rect, f func(out, a, b []float32)) {
	a, width := w.Floats(it.In[0])
	b, _ := w.Floats(it.In[1])
	out, _ := w.Floats(it.Out[0])
	for r := p.R0; r < p.R1; r++ {
		i, j := r*width+p.C0, r*width+p.C1
		f(out[i:j], a[i:j], b[i:j])
	}
}

func (Add) Backward(t *graph.Tape, s *graph.Step) error {
	d := must(t, s)
	t.Give(s.In[0], d)
	t.Give(s.In[1], d)
	return nil
}
