package step

import (
	"fmt"
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// NormGrad is the gradient of RMSNorm by its input. Inputs: x, and dy, that of its result. With s = 1 / sqrt(mean(x^2) + Eps) of a group of n and g = dy * w it
// is s*g - s^3 * x * mean(x*g). The second output is s of each group.
type NormGrad struct{ Of Norm }

func (NormGrad) Kind() string         { return "rmsnorm-grad" }
func (NormGrad) Needs(int) graph.Need { return graph.SameRow }
func (NormGrad) Role(int) graph.Role  { return graph.Vector }

func (n NormGrad) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 2, 0, 1); err != nil {
		return err
	}
	if err := n.Of.Check(g, &graph.Step{In: s.In[:1], Out: s.Out[:1], W: s.W}); err != nil {
		return err
	}
	if width := g.Width(s.In[0]); g.Width(s.Out[1]) != width/n.Of.GroupOf(width) {
		return fmt.Errorf("%d scales of %d groups", g.Width(s.Out[1]), width/n.Of.GroupOf(width))
	}
	return g.SameWidth(s.In[0], s.In[1])
}

func (n NormGrad) Ref(r *graph.Ref, s *graph.Step) {
	group := n.Of.GroupOf(r.G.Width(s.In[0]))
	var w []float64
	if len(s.W) > 0 {
		w = r.Vector(s.W[0])
	}
	r.Each(s, 0, func(row int, out []float64) {
		x, dy := r.Row(s, 0, row), r.Row(s, 1, row)
		for k := 0; k < len(x); k += group {
			sum, dot := 0.0, 0.0
			for i := range group {
				g := dy[k+i]
				if w != nil {
					g *= w[i]
				}
				out[k+i] = g
				sum, dot = sum+x[k+i]*x[k+i], dot+x[k+i]*g
			}
			scale := 1 / math.Sqrt(sum/float64(group)+float64(n.Of.Eps))
			for i := range group {
				out[k+i] = scale*out[k+i] - scale*scale*scale*x[k+i]*dot/float64(group)
			}
			if scales := r.Vals[s.Out[1]][row]; scales != nil {
				scales[k/group] = scale
			}
		}
	})
}

func (n NormGrad) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, normGrad)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Cols(0), b.At(s.In[1]).Cols(0)}
	b.FinishAll(it, s.Out, 0)
	return 0, nil
}

var normGrad = &plan.Kind{Name: "rmsnorm-grad", In: 2, Out: 2, Weights: [2]int{0, 1}, Ops: 200}

func runNormGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(NormGrad)
	x, width := w.Floats(it.In[0])
	dy, _ := w.Floats(it.In[1])
	out, _ := w.Floats(it.Out[0])
	scales, groups := w.Floats(it.Out[1])
	group := op.Of.GroupOf(width)
	var weight []float32
	if len(it.W) > 0 {
		weight = w.Vector(it.W[0])
	}
	for r := p.R0; r < p.R1; r++ {
		for h := range groups {
			at := r*width + h*group
			v, g, dst := x[at:at+group], dy[at:at+group], out[at:at+group]
			s := w.Kernels().NormScale(v, op.Of.Eps)
			if scales[r*groups+h] = s; weight != nil {
				w.Kernels().Mul(dst, g, weight)
			} else {
				copy(dst, g)
			}
			dot := 0.0 // a wide sum
			for i := range v {
				dot += float64(v[i]) * float64(dst[i])
			}
			w.Kernels().Scale(dst, dst, s)
			f := -float32(float64(s) * float64(s) * float64(s) * dot / float64(group))
			w.Kernels().AddScaled(dst, v, f)
		}
	}
}

// NormWeight is the gradient of RMSNorm by its weight: out[0][i] = sum over rows and groups of dy * x * s. Inputs: x, dy, and s of each group, which NormGrad
// makes. Groups of a row are summed in their order; rows as by SumRows.
type NormWeight struct{ Group, Leaf int }

func (NormWeight) Kind() string         { return "rmsnorm-weight" }
func (NormWeight) Needs(int) graph.Need { return graph.AllRows }
func (NormWeight) Role(int) graph.Role  { return graph.Vector }

func (n NormWeight) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(3, 1, 0, 0); err != nil {
		return err
	}
	group, groups := g.Width(s.Out[0]), g.Width(s.In[2])
	if g.Values[s.Out[0]].Space != (graph.Space{Fixed: 1}) || group*groups != g.Width(s.In[0]) || n.Leaf < 1 {
		return fmt.Errorf("%d groups of %d of %d elements", groups, group, g.Width(s.In[0]))
	}
	return g.SameWidth(s.In[0], s.In[1])
}

func (NormWeight) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(_ int, out []float64) {
		for row, x := range r.Vals[s.In[0]] {
			dy, scales := r.Row(s, 1, row), r.Row(s, 2, row)
			for i := range x {
				out[i%len(out)] += dy[i] * x[i] * scales[i/len(out)]
			}
		}
	})
}

// Realise cuts columns, of groups together the same ones of each.
func (NormWeight) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, normWeight)
	it.Cut = plan.ColCut(b.Plan.G.Width(s.Out[0]), sumGrain)
	it.In = []plan.Operand{b.At(s.In[0]).Whole(), b.At(s.In[1]).Whole(), b.At(s.In[2]).Whole()}
	b.Finish(it, s.Out[0], sumGrain)
	return 0, nil
}

var normWeight = &plan.Kind{Name: "rmsnorm-weight", In: 3, Out: 1, Ops: 80}

func runNormWeight(w *walk.Worker, it *plan.Item, p plan.Rect) {
	x, width := w.Floats(it.In[0])
	dy, _ := w.Floats(it.In[1])
	scales, groups := w.Floats(it.In[2])
	out, group := w.Floats(it.Out[0])
	n := p.C1 - p.C0
	var room [sumGrain * 64]float32
	for c := p.C0; c < p.C1; c += len(room) {
		n = min(len(room), p.C1-c)
		product := room[:n]
		overRows(w, w.Rows(w.Space(it.In[0])), it.Op.(NormWeight).Leaf, out[c:c+n], func(r int, sum []float32) {
			for h := range groups {
				at := r*width + h*group + c
				w.Kernels().Mul(product, dy[at:at+n], x[at:at+n])
				w.Kernels().AddScaled(sum, product, scales[r*groups+h])
			}
		})
	}
}
