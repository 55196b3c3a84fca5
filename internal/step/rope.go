package step

import (
	"fmt"
	"math"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Rotate turns the first 2*len(InvFreq) elements of each head of D elements by the row's position. Pairs are (2i, 2i+1), or
// (i, i+n) where Neox is set.
type Rotate struct {
	Table int // index in graph.Graph.Ropes
	D     int // head size
	Neox  bool
	Back  bool // the other way, for gradients
}

func (Rotate) Kind() string         { return "rope" }
func (Rotate) Needs(int) graph.Need { return graph.SameRow }

func (t Rotate) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if t.Table < 0 || t.Table >= len(g.Ropes) {
		return fmt.Errorf("no rope table %d", t.Table)
	}
	if long := g.Ropes[t.Table].Long; long != nil && len(long) != len(g.Ropes[t.Table].InvFreq) {
		return fmt.Errorf("%d pairs in long sequences, %d in others", len(long), len(g.Ropes[t.Table].InvFreq))
	}
	if t.D <= 0 || g.Width(s.In[0])%t.D != 0 || 2*len(g.Ropes[t.Table].InvFreq) > t.D {
		return fmt.Errorf("heads of %d in %d elements, %d pairs", t.D, g.Width(s.In[0]), len(g.Ropes[t.Table].InvFreq))
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (t Rotate) Ref(r *graph.Ref, s *graph.Step) {
	rope := r.G.Ropes[t.Table]
	n := len(rope.InvFreq)
	r.Each(s, 0, func(row int, out []float64) {
		x, freq := r.Row(s, 0, row), rope.InvFreq
		if rope.IsLong(r.Reach(row)) {
			freq = rope.Long
		}
		copy(out, x)
		for h := 0; h < len(x); h += t.D {
			for i, f := range freq {
				a := float64(r.In.Pos[row]) * f
				c, sn := math.Cos(a)*rope.Scale, math.Sin(a)*rope.Scale
				if t.Back {
					sn = -sn
				}
				i0, i1 := h+2*i, h+2*i+1
				if t.Neox {
					i0, i1 = h+i, h+i+n
				}
				out[i0] = x[i0]*c - x[i1]*sn
				out[i1] = x[i0]*sn + x[i1]*c
			}
		}
	})
}

func (Rotate) Role(int) graph.Role { return graph.Vector }

// Columns of the output depend on those of the same head.
func (t Rotate) Columns(int) int { return t.D }

// Realise turns heads in place, or into a buffer of their own where others still read the input.
func (t Rotate) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	a := t.angles(b)
	it := b.Item(i, rope)
	cut, unit := b.RowCut(s.In[0], t.D, b.Dealt(s.Out[0]))
	it.Cut = cut
	it.In = []plan.Operand{b.At(s.In[0]).Cols(unit), a[0].Whole(), a[1].Whole()}
	if cut.By == plan.Rows && cut.Over == plan.Alike {
		it.In[1], it.In[2] = a[0].Cols(0), a[1].Cols(0)
	}
	b.Finish(it, s.Out[0], unit)
	return 0, nil
}

// anglesKey names the angles of a rope table among what a plan makes once.
type anglesKey struct {
	table int
	back  bool
}

// angles is the pair of buffers cos, sin of the table, made once per walk.
func (t Rotate) angles(b *plan.Builder) []plan.Operand {
	return b.Once(anglesKey{t.Table, t.Back}, func() []plan.Operand {
		n := len(b.Plan.G.Ropes[t.Table].InvFreq)
		a := []plan.Operand{b.Buffer(plan.Buffer{Name: "cos", Width: n}), b.Buffer(plan.Buffer{Name: "sin", Width: n})}
		// At the head of the list, before the first barrier, where nothing waits for it.
		it := plan.Item{Do: angles, Name: fmt.Sprintf("rope%d", t.Table), Table: t.Table, Cut: plan.Cut{By: plan.Rows},
			Out: []plan.Operand{a[0].Cols(0), a[1].Cols(0)}}
		if t.Back {
			it.Do = anglesBack
		}
		b.EmitFirst(it)
		return a
	})
}

// angles makes cos and sin of the rows' positions for a rope table, anglesBack those of the other way.
var (
	angles     = &plan.Kind{Name: "angles", Out: 2, Elements: anglesElements}
	anglesBack = &plan.Kind{Name: "angles-back", Out: 2, Elements: anglesElements}
)

// anglesElements are sines and cosines in Go.
func anglesElements(p *plan.Plan, it *plan.Item) plan.Elements {
	return plan.Elements{N: p.Width(it.Out), Ops: 1500}
}

func runAngles(w *walk.Worker, it *plan.Item, p plan.Rect) {
	cos, width := w.Floats(it.Out[0])
	sin, _ := w.Floats(it.Out[1])
	table := &w.Graph().Ropes[it.Table]
	for r := p.R0; r < p.R1; r++ {
		freq := table.InvFreq
		if table.IsLong(w.Cache().Reach(w.Batch().Seq[r])) {
			freq = table.Long
		}
		kernel.RopeAngles(cos[r*width:(r+1)*width], sin[r*width:(r+1)*width], int(w.Batch().Pos[r]), freq, table.Scale)
		if it.Do == anglesBack {
			w.Kernels().Scale(sin[r*width:(r+1)*width], sin[r*width:(r+1)*width], -1)
		}
	}
}

// rope turns heads by the angles.
var rope = &plan.Kind{Name: "rope", In: 3, Out: 1, Named: true, Ops: 70,
	InPlace: func(_ *plan.Item, in int) bool { return in == 0 },
}

func runRope(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(Rotate)
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	cos, n := w.Floats(it.In[1])
	sin, _ := w.Floats(it.In[2])
	for r := p.R0; r < p.R1; r++ {
		dst := out[r*width : (r+1)*width]
		if &in[0] != &out[0] {
			copy(dst[p.C0:p.C1], in[r*width+p.C0:])
		}
		for c := p.C0; c < p.C1; c += op.D {
			w.Kernels().Rope(dst[c:c+op.D], cos[r*n:(r+1)*n], sin[r*n:(r+1)*n], op.Neox)
		}
	}
}

// Backward turns the other way.
func (t Rotate) Backward(tape *graph.Tape, s *graph.Step) error {
	v, d := s.In[0], must(tape, s)
	t.Back = !t.Back
	tape.Give(v, tape.Do(t, "d."+s.Name, tape.G.Width(v), tape.G.Values[v].Space, []graph.ValueID{d})[0])
	return nil
}
