package graph

import (
	"fmt"
	"math"
)

// Attend is causal softmax attention over the rows' own sequence: inputs q [Heads*D], k [KVHeads*D], v [KVHeads*Dv], output
// [Heads*Dv]. The keys and values of the rows are remembered in cache Cache; earlier rows' are read from there. Head h reads
// KV head h/(Heads/KVHeads). (Vaswani et al. 2017; grouped queries: Ainslie et al. 2023, arXiv:2305.13245)
type Attend struct {
	Cache int // index in Graph.Caches
	Heads int
	Scale float64 // of the scores
}

func (Attend) Kind() string { return "attend" }

func (Attend) Needs(i int) Need {
	if i == 0 {
		return SameRow
	}
	return AllRows
}

func (a Attend) Check(g *Graph, s *Step) error {
	if err := arity(s, 3, 1, 0, 0); err != nil {
		return err
	}
	if a.Cache < 0 || a.Cache >= len(g.Caches) {
		return fmt.Errorf("no cache %d", a.Cache)
	}
	c := g.Caches[a.Cache]
	if c.KVHeads < 1 || a.Heads%c.KVHeads != 0 {
		return fmt.Errorf("%d heads over %d KV heads", a.Heads, c.KVHeads)
	}
	for _, x := range []struct {
		v ValueID
		n int
	}{{s.In[0], a.Heads * c.D}, {s.In[1], c.KVHeads * c.D}, {s.In[2], c.KVHeads * c.Dv}, {s.Out[0], a.Heads * c.Dv}} {
		if g.Width(x.v) != x.n {
			return fmt.Errorf("%s is %d wide, wants %d", g.Values[x.v].Name, g.Width(x.v), x.n)
		}
	}
	return nil
}

func (a Attend) Ref(r *Ref, s *Step) {
	c := r.G.Caches[a.Cache]
	group := a.Heads / c.KVHeads
	keys, vals := r.Vals[s.In[1]], r.Vals[s.In[2]]
	r.each(s, 0, func(row int, out []float64) {
		q := r.in(s, 0, row)
		for h := range a.Heads {
			kv := h / group
			score := make([]float64, len(keys))
			top := math.Inf(-1)
			for j := range keys {
				score[j] = math.Inf(-1)
				if r.sees(row, j, c.Window) {
					score[j] = a.Scale * dot64(q[h*c.D:(h+1)*c.D], keys[j][kv*c.D:(kv+1)*c.D])
					top = max(top, score[j])
				}
			}
			sum := 0.0
			o := out[h*c.Dv : (h+1)*c.Dv]
			for j := range keys {
				p := math.Exp(score[j] - top)
				if p == 0 {
					continue
				}
				sum += p
				for d := range o {
					o[d] += p * vals[j][kv*c.Dv+d]
				}
			}
			for d := range o {
				o[d] /= sum
			}
		}
	})
}

// sees is the mask: the same sequence, not later, inside the window.
func (r *Ref) sees(row, key, window int) bool {
	in := &r.In
	if in.Seq[row] != in.Seq[key] || in.Pos[key] > in.Pos[row] {
		return false
	}
	return window == 0 || in.Pos[key] > in.Pos[row]-int32(window)
}
