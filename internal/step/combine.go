package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Combine adds what the experts of a row made, in the order of the row's choice: out[row] = sum over j of weights[row, j] * in[row, j]. The
// second input is the ids of Route, the third its weights; without it they are all 1.
type Combine struct{}

func (Combine) Kind() string        { return "combine" }
func (Combine) Role(int) graph.Role { return graph.Vector }

// Columns of the output depend on the same ones of what the experts made.
func (Combine) Columns(i int) int { return 1 - min(i, 1) }

func (Combine) Needs(i int) graph.Need {
	if i == 0 {
		return graph.SentRows
	}
	return graph.SameRow
}

func (Combine) Check(g *graph.Graph, s *graph.Step) error {
	if len(s.In) != 2 && len(s.In) != 3 || len(s.Out) != 1 || len(s.W) != 0 {
		return s.Arity(3, 1, 0, 0)
	}
	from, to := g.Values[s.In[0]].Space, g.Values[s.Out[0]].Space
	if from.Route == 0 || to.Route != 0 || from.Picked != to.Picked || from.Used != g.Width(s.In[1]) {
		return fmt.Errorf("combines %s to %s", g.Values[s.In[0]].Name, g.Values[s.Out[0]].Name)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (Combine) Ref(r *graph.Ref, s *graph.Step) {
	used := r.G.Values[s.In[0]].Space.Used
	r.Each(s, 0, func(row int, out []float64) {
		for j := range used {
			f := 1.0
			if len(s.In) == 3 {
				f = r.Row(s, 2, row)[j]
			}
			for i, x := range r.Row(s, 0, row*used+j) {
				out[i] += f * x
			}
		}
	})
}

func (Combine) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, combine)
	if len(s.In) == 2 {
		it.Do = gather
	}
	var unit int
	it.Cut, unit = b.RowCut(s.In[0], min(plan.QuantGrain, b.Plan.G.Width(s.In[0])), b.Dealt(s.Out[0]))
	it.In = []plan.Operand{b.At(s.In[0]).Cols(unit)}
	if it.Cut.By == plan.Rows {
		it.In[0] = it.In[0].Share(over(it.Cut.Over == plan.Shares)) // a row's experts lie anywhere
	}
	for _, v := range s.In[1:] {
		it.In = append(it.In, b.At(v).Whole())
	}
	b.Finish(it, s.Out[0], unit)
	return 0, nil
}

// combine adds the weighted results of experts, gather those that are weighted already.
var (
	combine = &plan.Kind{Name: "combine", In: 3, Out: 1, Elements: combined}
	gather  = &plan.Kind{Name: "gather", In: 2, Out: 1, Elements: combined}
)

// combined is what a row of results takes: each of its experts is read once.
func combined(p *plan.Plan, it *plan.Item) plan.Elements {
	n := float64(p.Bufs[it.Out[0].Buf].Width)
	used := float64(p.Bufs[it.In[0].Buf].Space.Used)
	return plan.Elements{N: n * used, Ops: 40, Moved: 4 * n * (used + 1)}
}

func runCombine(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	space := w.Space(it.In[0])
	at, used := w.Routing(space, it.In[1]).At, space.Used
	var weights []float32
	if len(it.In) == 3 {
		weights, _ = w.Floats(it.In[2])
	}
	for r := p.R0; r < p.R1; r++ {
		dst := out[r*width+p.C0 : r*width+p.C1]
		for j := range used {
			x, f := in[int(at[r*used+j])*width+p.C0:][:len(dst)], float32(1)
			if weights != nil {
				f = weights[r*used+j]
			}
			if j == 0 {
				w.Kernels().Scale(dst, x, f)
			} else {
				w.Kernels().AddScaled(dst, x, f)
			}
		}
	}
}
