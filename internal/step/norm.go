package step

import (
	"fmt"
	"math"
	"slices"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Norm is RMSNorm over groups of Group elements (0: the whole row; the head size for q/k norms):
// out = x / sqrt(mean(x^2) + Eps) * w. The weight has Group elements; without one w is 1. (Zhang and Sennrich 2019, arXiv:1910.07467)
type Norm struct {
	Eps   float32
	Group int
}

func (Norm) Kind() string         { return "rmsnorm" }
func (Norm) Needs(int) graph.Need { return graph.SameRow }

// GroupOf is the number of elements that are normalised together in a row of the given width.
func (n Norm) GroupOf(width int) int {
	if n.Group == 0 {
		return width
	}
	return n.Group
}

func (n Norm) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 1); err != nil {
		return err
	}
	group := n.GroupOf(g.Width(s.In[0]))
	if len(s.W) == 0 {
		if g.Width(s.In[0])%group != 0 {
			return fmt.Errorf("groups of %d of %d elements", group, g.Width(s.In[0]))
		}
		return g.SameWidth(s.In[0], s.Out[0])
	}
	if w := g.Weights[s.W[0]]; w.Cols != group || w.Rows != 1 || g.Width(s.In[0])%group != 0 {
		return fmt.Errorf("groups of %d of %d elements, weight [%d, %d]", group, g.Width(s.In[0]), w.Rows, w.Cols)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (n Norm) Ref(r *graph.Ref, s *graph.Step) {
	group := n.GroupOf(r.G.Width(s.In[0]))
	w := slices.Repeat([]float64{1}, group)
	if len(s.W) > 0 {
		w = r.Vector(s.W[0])
	}
	r.Each(s, 0, func(row int, out []float64) {
		x := r.Row(s, 0, row)
		for k := 0; k < len(x); k += group {
			sum := 0.0
			for _, v := range x[k : k+group] {
				sum += v * v
			}
			scale := 1 / math.Sqrt(sum/float64(group)+float64(n.Eps))
			for i := range w {
				out[k+i] = x[k+i] * scale * w[i]
			}
		}
	})
}

func (Norm) Role(int) graph.Role { return graph.Vector }

// Columns of the output depend on those of the same group, if there are groups.
func (n Norm) Columns(int) int { return n.Group }

// Realise cuts whole rows by rows for prompts; for few rows every worker sums the whole row and writes its columns. Groups are cut as the
// producer was, where it kept them together.
func (n Norm) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, rmsnorm)
	x, width, unit := b.At(s.In[0]), b.Plan.G.Width(s.In[0]), 0
	switch {
	case n.GroupOf(width) != width:
		it.Cut, unit = b.RowCut(s.In[0], n.Group, b.Dealt(s.Out[0]))
		it.In = []plan.Operand{x.Cols(unit)}
	case b.Plan.Class == plan.Many || b.Machine.Separate:
		it.Cut, it.In = plan.Cut{By: plan.Rows}, []plan.Operand{x.Cols(0)}
	default:
		unit = plan.QuantGrain
		it.Cut, it.In = plan.ColCut(width, unit), []plan.Operand{x.Whole()}
	}
	b.Finish(it, s.Out[0], unit)
	return 0, nil
}

// rmsnorm normalises whole rows or groups.
var rmsnorm = &plan.Kind{Name: "rmsnorm", In: 1, Out: 1, Weights: [2]int{0, 1}, Named: true,
	InPlace: func(_ *plan.Item, in int) bool { return in == 0 },
	Elements: func(p *plan.Plan, it *plan.Item) plan.Elements {
		e := plan.Streamed(p, it, 90)
		if width := p.Bufs[it.Out[0].Buf].Width; it.Op.(Norm).GroupOf(width) != width {
			e.Ops = 180
		}
		e.Whole = it.In[0].All // every worker sums the whole row
		return e
	},
}

func runNorm(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(Norm)
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	tbl, group := w.Kernels(), op.GroupOf(width)
	var weight []float32
	if len(it.W) > 0 {
		weight = w.Vector(it.W[0])
	}
	for r := p.R0; r < p.R1; r++ {
		row, dst := in[r*width:(r+1)*width], out[r*width:(r+1)*width]
		if group == width {
			s := tbl.NormScale(row, op.Eps)
			if weight == nil {
				tbl.Scale(dst[p.C0:p.C1], row[p.C0:p.C1], s)
			} else {
				tbl.MulScale(dst[p.C0:p.C1], row[p.C0:p.C1], weight[p.C0:p.C1], s)
			}
			continue
		}
		for c := p.C0; c < p.C1; c += group {
			s := tbl.NormScale(row[c:c+group], op.Eps)
			if weight == nil {
				tbl.Scale(dst[c:c+group], row[c:c+group], s)
			} else {
				tbl.MulScale(dst[c:c+group], row[c:c+group], weight, s)
			}
		}
	}
}

func (n Norm) Backward(t *graph.Tape, s *graph.Step) error {
	x, d := s.In[0], must(t, s)
	width, space := t.G.Width(x), t.G.Values[x].Space
	dx, scales := t.Value("d."+t.G.Values[x].Name, width, space), t.Value(s.Name+".scales", width/n.GroupOf(width), space)
	t.G.Add(NormGrad{n}, s.Name, []graph.ValueID{x, d}, []graph.ValueID{dx, scales}, s.W...)
	t.Give(x, dx)
	if len(s.W) > 0 && t.Trains(s.W[0]) {
		w := s.W[0]
		t.GiveWeight(w, t.Do(NormWeight{n.Group, t.Leaf}, "d."+t.G.Weights[w].Name, n.GroupOf(width), t.OfWeight(w), []graph.ValueID{x, d, scales})[0])
	}
	return nil
}
