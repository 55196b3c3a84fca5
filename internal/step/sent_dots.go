package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// SentDots is the gradient by the weights of Combine and Send: out[row, j] = sum over i of x[row][i] * y[row, j][i]. The second input is routed rows, the third
// the ids of Route.
type SentDots struct{}

func (SentDots) Kind() string        { return "sent-dots" }
func (SentDots) Role(int) graph.Role { return graph.Vector }

func (SentDots) Needs(i int) graph.Need {
	if i == 1 {
		return graph.SentRows
	}
	return graph.SameRow
}

func (SentDots) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(3, 1, 0, 0); err != nil {
		return err
	}
	if from, to := g.Values[s.In[1]].Space, g.Values[s.In[0]].Space; from.Route == 0 || to.Route != 0 || from.Picked != to.Picked || from.Used != g.Width(s.In[2]) {
		return fmt.Errorf("%s with %s", g.Values[s.In[0]].Name, g.Values[s.In[1]].Name)
	}
	if err := g.SameWidth(s.In[2], s.Out[0]); err != nil {
		return err
	}
	return g.SameWidth(s.In[0], s.In[1])
}

func (SentDots) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		for j := range out {
			out[j] = dot64(r.Row(s, 0, row), r.Row(s, 1, row*len(out)+j))
		}
	})
}

func (SentDots) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, sentDots)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Cols(0), b.At(s.In[1]).Whole(), b.At(s.In[2]).Whole()} // a row's experts lie anywhere
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

var sentDots = &plan.Kind{Name: "sent-dots", In: 3, Out: 1,
	Elements: func(p *plan.Plan, it *plan.Item) plan.Elements {
		n := float64(p.Bufs[it.In[0].Buf].Width) * float64(p.Bufs[it.In[1].Buf].Space.Used)
		return plan.Elements{N: n, Ops: 100, Moved: 8 * n}
	},
}

func runSentDots(w *walk.Worker, it *plan.Item, p plan.Rect) {
	x, width := w.Floats(it.In[0])
	y, _ := w.Floats(it.In[1])
	out, used := w.Floats(it.Out[0])
	at := w.Routing(w.Space(it.In[1]), it.In[2]).At
	for r := p.R0; r < p.R1; r++ {
		for j := range used {
			out[r*used+j] = float32(dotWide(x[r*width:(r+1)*width], y[int(at[r*used+j])*width:]))
		}
	}
}

// dotWide is the sum of a[i]*b[i] in float64.
func dotWide(a, b []float32) (sum float64) {
	b = b[:len(a)]
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

// Backward sends the gradient to the experts as Send does, times their weights.
func (Combine) Backward(t *graph.Tape, s *graph.Step) error {
	y, d := s.In[0], must(t, s)
	in := append([]graph.ValueID{d}, s.In[1:]...)
	t.Give(y, t.Do(Send{}, "d."+t.G.Values[y].Name, t.G.Width(y), t.G.Values[y].Space, in)[0])
	giveWeights(t, s, d, y)
	return nil
}

// Backward adds the gradients of a row's experts up as Combine does.
func (Send) Backward(t *graph.Tape, s *graph.Step) error {
	x, d := s.In[0], must(t, s)
	if t.Needs(x) {
		in := append([]graph.ValueID{d}, s.In[1:]...)
		t.Give(x, t.Do(Combine{}, "d."+t.G.Values[x].Name, t.G.Width(x), t.G.Values[x].Space, in)[0])
	}
	giveWeights(t, s, x, d)
	return nil
}

// giveWeights gives the weights of a step's experts, if it has some, their gradient: dots of x with routed rows.
func giveWeights(t *graph.Tape, s *graph.Step, x, routed graph.ValueID) {
	if len(s.In) == 3 && t.Needs(s.In[2]) {
		w := s.In[2]
		t.Give(w, t.Do(SentDots{}, "d."+t.G.Values[w].Name, t.G.Width(w), t.G.Values[w].Space, []graph.ValueID{x, routed, s.In[1]})[0])
	}
}
