package graph

import "math"

// Add is out = a + b: the residual connection.
type Add struct{}

func (Add) Kind() string   { return "add" }
func (Add) Needs(int) Need { return SameRow }

func (Add) Check(g *Graph, s *Step) error {
	if err := arity(s, 2, 1, 0, 0); err != nil {
		return err
	}
	return sameWidth(g, s.In[0], s.In[1], s.Out[0])
}

func (Add) Ref(r *Ref, s *Step) {
	r.each(s, 0, func(row int, out []float64) {
		a, b := r.in(s, 0, row), r.in(s, 1, row)
		for i := range out {
			out[i] = a[i] + b[i]
		}
	})
}

// SwiGLU is out = silu(gate) * up, silu(x) = x / (1 + e^-x). (Shazeer 2020, arXiv:2002.05202)
type SwiGLU struct{}

func (SwiGLU) Kind() string   { return "silu-mul" }
func (SwiGLU) Needs(int) Need { return SameRow }

func (SwiGLU) Check(g *Graph, s *Step) error {
	if err := arity(s, 2, 1, 0, 0); err != nil {
		return err
	}
	return sameWidth(g, s.In[0], s.In[1], s.Out[0])
}

func (SwiGLU) Ref(r *Ref, s *Step) {
	r.each(s, 0, func(row int, out []float64) {
		gate, up := r.in(s, 0, row), r.in(s, 1, row)
		for i := range out {
			out[i] = gate[i] / (1 + math.Exp(-gate[i])) * up[i]
		}
	})
}
