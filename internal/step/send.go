package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Send gives each row to the experts that it chose: out[row, j] = in[row], times the j-th of the weights where they are the third input. The
// second input is the ids of Route.
type Send struct{}

func (Send) Kind() string        { return "send" }
func (Send) Role(int) graph.Role { return graph.Vector }

func (Send) Needs(int) graph.Need { return graph.SentRow }

func (Send) Check(g *graph.Graph, s *graph.Step) error {
	if len(s.In) != 2 && len(s.In) != 3 || len(s.Out) != 1 || len(s.W) != 0 {
		return s.Arity(2, 1, 0, 0)
	}
	from, to := g.Values[s.In[0]].Space, g.Values[s.Out[0]].Space
	if from.Route != 0 || to.Route == 0 || to.Picked != from.Picked || to.Used != g.Width(s.In[1]) {
		return fmt.Errorf("sends %s to %s", g.Values[s.In[0]].Name, g.Values[s.Out[0]].Name)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (Send) Ref(r *graph.Ref, s *graph.Step) {
	used := r.G.Values[s.Out[0]].Space.Used
	r.Each(s, 0, func(row int, out []float64) {
		copy(out, r.Row(s, 0, row/used))
		if len(s.In) == 3 {
			f := r.Row(s, 2, row/used)[row%used]
			for i := range out {
				out[i] *= f
			}
		}
	})
}

// Realise copies rows as they are, unless only experts read them: those ask for activations (see sent).
func (Send) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	if lazy(b, s) {
		return 0, nil
	}
	it := b.Item(i, send)
	if len(s.In) == 3 {
		it.Do = sendScaled
	}
	it.Cut = plan.Cut{By: plan.Rows}
	for _, v := range s.In {
		it.In = append(it.In, b.At(v).Whole())
	}
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

// lazy tells whether the result of a Send is read as activations alone.
func lazy(b *plan.Builder, s *graph.Step) bool {
	if len(s.In) != 2 {
		return false
	}
	readers := 0
	for i := range b.Plan.G.Steps {
		x := &b.Plan.G.Steps[i]
		if _, ok := x.Op.(Experts); ok && x.In[0] == s.Out[0] {
			readers++
		}
	}
	return readers == b.Uses(s.Out[0])
}

// sender is the step that sends the rows of v, if it is lazy.
func sender(b *plan.Builder, v graph.ValueID) (step int, ok bool) {
	for i := range b.Plan.G.Steps {
		s := &b.Plan.G.Steps[i]
		if _, ok := s.Op.(Send); ok && s.Out[0] == v {
			return i, lazy(b, s)
		}
	}
	return 0, false
}

// sentKey names sent activations among what a plan makes once.
type sentKey struct {
	v    graph.ValueID
	kind kernel.ActKind
}

// sent is the operand of the activations of rows that step i sends: quantized once and copied. Where there is one row, that one is read by all its
// experts: nothing is copied, and no item realises the step by itself (direct).
func sent(b *plan.Builder, i int, f *kernel.Format) (o plan.Operand, direct bool) {
	s := b.Step(i)
	var from plan.Operand
	if f.Act == kernel.ActF32 {
		from = b.At(s.In[0]).Whole()
	} else {
		from = activations(b, s.In[0], f)
	}
	if b.Plan.Class == plan.One && !b.Machine.Separate {
		return from, true
	}
	a := b.Once(sentKey{s.Out[0], f.Act}, func() []plan.Operand {
		g := b.Plan.G.Values[s.Out[0]]
		it := b.Item(i, send)
		buf := plan.Buffer{Name: g.Name, Width: g.Width, Space: g.Space}
		if f.Act != kernel.ActF32 {
			it.Do, buf.Name, buf.Act, buf.Kind = sendAct, g.Name+"."+f.Act.String(), true, f.Act
		}
		a := b.Buffer(buf)
		it.Cut = plan.Cut{By: plan.Rows}
		it.In = []plan.Operand{from, b.At(s.In[1]).Whole()}
		it.Out = []plan.Operand{a.Cols(0)}
		b.Emit(it)
		return []plan.Operand{a}
	})[0]
	if f.Act != kernel.ActF32 {
		b.Plan.Bufs[a.Buf].Sums |= f.Sums
	}
	return a.Whole(), false
}

// send copies rows, sendScaled copies and scales them, sendAct copies activations.
var (
	send       = &plan.Kind{Name: "send", In: 2, Out: 1, Ops: 40}
	sendScaled = &plan.Kind{Name: "send-scaled", In: 3, Out: 1, Ops: 60}
	sendAct    = &plan.Kind{Name: "send-quantized", In: 2, Out: 1,
		Elements: func(p *plan.Plan, it *plan.Item) plan.Elements {
			n := p.Width(it.Out)
			return plan.Elements{N: n, Ops: 30, Moved: 3 * n}
		},
	}
)

func runSend(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	from := w.Routing(it.Space, it.In[1]).From
	for r := p.R0; r < p.R1; r++ {
		copy(out[r*width:(r+1)*width], in[int(from[r])/it.Space.Used*width:])
	}
}

func runSendScaled(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	weights, used := w.Floats(it.In[2])
	from := w.Routing(it.Space, it.In[1]).From
	for r := p.R0; r < p.R1; r++ {
		i := int(from[r])
		w.Kernels().Scale(out[r*width:(r+1)*width], in[i/used*width:][:width], weights[i])
	}
}

func runSendAct(w *walk.Worker, it *plan.Item, p plan.Rect) {
	w.Act(it.Out[0]).CopyRows(p.R0, p.R1, w.Act(it.In[0]), w.Routing(it.Space, it.In[1]).From, it.Space.Used)
}
