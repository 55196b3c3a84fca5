package graph

import (
	"fmt"
	"math"
)

// Rope is a table of rotary frequencies: pair i turns by position * InvFreq[i]; cos and sin are multiplied by Scale (yarn's
// attention factor). (Su et al. 2021, arXiv:2104.09864)
type Rope struct {
	InvFreq []float64
	Scale   float64
}

// Rotate turns the first 2*len(InvFreq) elements of each head of D elements by the row's position. Pairs are (2i, 2i+1), or
// (i, i+n) where Neox is set.
type Rotate struct {
	Table int // index in Graph.Ropes
	D     int // head size
	Neox  bool
}

func (Rotate) Kind() string   { return "rope" }
func (Rotate) Needs(int) Need { return SameRow }

func (t Rotate) Check(g *Graph, s *Step) error {
	if err := arity(s, 1, 1, 0, 0); err != nil {
		return err
	}
	if t.Table < 0 || t.Table >= len(g.Ropes) {
		return fmt.Errorf("no rope table %d", t.Table)
	}
	if t.D <= 0 || g.Width(s.In[0])%t.D != 0 || 2*len(g.Ropes[t.Table].InvFreq) > t.D {
		return fmt.Errorf("heads of %d in %d elements, %d pairs", t.D, g.Width(s.In[0]), len(g.Ropes[t.Table].InvFreq))
	}
	return sameWidth(g, s.In[0], s.Out[0])
}

func (t Rotate) Ref(r *Ref, s *Step) {
	rope := r.G.Ropes[t.Table]
	n := len(rope.InvFreq)
	r.each(s, 0, func(row int, out []float64) {
		x := r.in(s, 0, row)
		copy(out, x)
		for h := 0; h < len(x); h += t.D {
			for i, f := range rope.InvFreq {
				a := float64(r.In.Pos[row]) * f
				c, sn := math.Cos(a)*rope.Scale, math.Sin(a)*rope.Scale
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
