package graph

import (
	"fmt"
	"math"
)

// Norm is RMSNorm over groups of Group elements (0: the whole row; the head size for q/k norms):
// out = x / sqrt(mean(x^2) + Eps) * w. The weight has Group elements. (Zhang and Sennrich 2019, arXiv:1910.07467)
type Norm struct {
	Eps   float32
	Group int
}

func (Norm) Kind() string   { return "rmsnorm" }
func (Norm) Needs(int) Need { return SameRow }

// GroupOf is the number of elements that are normalised together in a row of the given width.
func (n Norm) GroupOf(width int) int {
	if n.Group == 0 {
		return width
	}
	return n.Group
}

func (n Norm) Check(g *Graph, s *Step) error {
	if err := arity(s, 1, 1, 1, 1); err != nil {
		return err
	}
	group := n.GroupOf(g.Width(s.In[0]))
	if w := g.Weights[s.W[0]]; w.Cols != group || w.Rows != 1 || g.Width(s.In[0])%group != 0 {
		return fmt.Errorf("groups of %d of %d elements, weight [%d, %d]", group, g.Width(s.In[0]), w.Rows, w.Cols)
	}
	return sameWidth(g, s.In[0], s.Out[0])
}

func (n Norm) Ref(r *Ref, s *Step) {
	w := r.vector(s.W[0])
	r.each(s, 0, func(row int, out []float64) {
		x := r.in(s, 0, row)
		for k := 0; k < len(x); k += len(w) {
			sum := 0.0
			for _, v := range x[k : k+len(w)] {
				sum += v * v
			}
			scale := 1 / math.Sqrt(sum/float64(len(w))+float64(n.Eps))
			for i := range w {
				out[k+i] = x[k+i] * scale * w[i]
			}
		}
	})
}
