package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Pick keeps the rows whose logits are wanted: out[i] = in[pick[i]].
type Pick struct{}

func (Pick) Kind() string         { return "pick" }
func (Pick) Needs(int) graph.Need { return graph.PickRow }

func (Pick) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if in, out := g.Values[s.In[0]].Space, g.Values[s.Out[0]].Space; in != (graph.Space{}) || out != (graph.Space{Picked: true}) {
		return fmt.Errorf("picks from %s to %s", g.Values[s.In[0]].Name, g.Values[s.Out[0]].Name)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (Pick) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) { copy(out, r.Row(s, 0, int(r.In.Pick[row]))) })
}

func (Pick) Role(int) graph.Role { return graph.Vector }

// Columns of the output depend on the same ones of every input.
func (Pick) Columns(int) int { return 1 }

func (Pick) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, pick)
	it.Cut = b.RowsCut(s.In[0], b.Dealt(s.Out[0]))
	it.In = []plan.Operand{b.At(s.In[0]).Share(over(it.Cut.Over == plan.Shares))}
	it.In[0].Far = b.Tokens() // a member has some of the rows
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

// pick copies the rows whose logits are wanted.
var pick = &plan.Kind{Name: "pick", In: 1, Out: 1, Ops: 40}

func runPick(w *walk.Worker, it *plan.Item, p plan.Rect) {
	dst, width := w.Floats(it.Out[0])
	for r := p.R0; r < p.R1; r++ {
		src, row := w.Picked(it.In[0], r)
		copy(dst[r*width+p.C0:r*width+p.C1], src[row*width+p.C0:])
	}
}

func (Pick) Backward(t *graph.Tape, s *graph.Step) error {
	d, v := must(t, s), s.In[0]
	t.Give(v, t.Do(PickGrad{}, "d."+t.G.Values[v].Name, t.G.Width(v), t.G.Values[v].Space, []graph.ValueID{d})[0])
	return nil
}
