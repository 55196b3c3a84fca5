package step

import (
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Weigh is out = x * sigmoid(gate): a whole row by one gate, which is one element wide.
type Weigh struct{}

func (Weigh) Kind() string         { return "weigh" }
func (Weigh) Needs(int) graph.Need { return graph.SameRow }
func (Weigh) Role(int) graph.Role  { return graph.Vector }

// Columns of the output depend on the same ones of x and all of the gate.
func (Weigh) Columns(i int) int { return 1 - min(i, 1) }

func (Weigh) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 1, 0, 0); err != nil {
		return err
	}
	if g.Width(s.In[1]) != 1 {
		return g.SameWidth(s.In[0], s.In[1])
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (Weigh) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		f := 1 / (1 + math.Exp(-r.Row(s, 1, row)[0]))
		for i, x := range r.Row(s, 0, row) {
			out[i] = x * f
		}
	})
}

func (Weigh) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, weigh)
	var unit int
	it.Cut, unit = b.RowCut(s.In[0], min(plan.QuantGrain, b.Plan.G.Width(s.In[0])), b.Dealt(s.Out[0]))
	it.In = []plan.Operand{b.At(s.In[0]).Cols(unit), b.At(s.In[1]).Whole()}
	if it.Cut.By == plan.Rows && it.Cut.Over == plan.Alike {
		it.In[1] = it.In[1].Cols(0)
	}
	b.Finish(it, s.Out[0], unit)
	return 0, nil
}

var weigh = &plan.Kind{Name: "weigh", In: 2, Out: 1, Ops: 40, InPlace: func(_ *plan.Item, in int) bool { return in == 0 }}

func runWeigh(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	gate, _ := w.Floats(it.In[1])
	out, _ := w.Floats(it.Out[0])
	for r := p.R0; r < p.R1; r++ {
		i, j := r*width+p.C0, r*width+p.C1
		w.Kernels().Scale(out[i:j], in[i:j], float32(1/(1+math.Exp(-float64(gate[r])))))
	}
}
