package graph

import "fmt"

// Embed looks the rows' tokens up: out[row] = W[token] * Scale. W is [vocabulary, hidden].
type Embed struct{ Scale float32 }

func (Embed) Kind() string   { return "embed" }
func (Embed) Needs(int) Need { return SameRow }

func (Embed) Check(g *Graph, s *Step) error {
	if err := arity(s, 0, 1, 1, 1); err != nil {
		return err
	}
	if w := g.Weights[s.W[0]]; w.Cols != g.Width(s.Out[0]) {
		return fmt.Errorf("embedding rows have %d elements, the value %d", w.Cols, g.Width(s.Out[0]))
	}
	return nil
}

func (e Embed) Ref(r *Ref, s *Step) {
	r.each(s, 0, func(row int, out []float64) {
		r.Weight(s.W[0], int(r.In.IDs[row]), out)
		if e.Scale != 0 {
			for i := range out {
				out[i] *= float64(e.Scale)
			}
		}
	})
}

// Pick keeps the rows whose logits are wanted: out[i] = in[pick[i]].
type Pick struct{}

func (Pick) Kind() string   { return "pick" }
func (Pick) Needs(int) Need { return PickRow }

func (Pick) Check(g *Graph, s *Step) error {
	if err := arity(s, 1, 1, 0, 0); err != nil {
		return err
	}
	if g.Values[s.In[0]].Picked || !g.Values[s.Out[0]].Picked {
		return fmt.Errorf("picks from %s to %s", g.Values[s.In[0]].Name, g.Values[s.Out[0]].Name)
	}
	return sameWidth(g, s.In[0], s.Out[0])
}

func (Pick) Ref(r *Ref, s *Step) {
	r.each(s, 0, func(row int, out []float64) { copy(out, r.in(s, 0, int(r.In.Pick[row]))) })
}
