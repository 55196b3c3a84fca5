package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Dropout is out = x / (1 - P) where an element is kept, else x * 0: each is dropped with probability P (Srivastava et al. 2014), a multiple of 2^-32. Where
// nothing is drawn (graph.Draw) it is out = x.
//
// The mask is a function of seed, step, row of the global batch, Place and column alone. So it does not depend on who computes it or
// when: the backward makes it again.
type Dropout struct {
	P     float64 // from 0 to MaxDropout
	Place int     // in the net: others have other masks
}

// MaxDropout is the largest share that is not all.
const MaxDropout = 1 - 1.0/(1<<32)

func (Dropout) Kind() string         { return "dropout" }
func (Dropout) Needs(int) graph.Need { return graph.SameRow }
func (Dropout) Role(int) graph.Role  { return graph.Vector }

// Columns of the output depend on the same ones of every input.
func (Dropout) Columns(int) int { return 1 }

func (c Dropout) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if !(c.P >= 0 && c.P <= MaxDropout) {
		return fmt.Errorf("a share of %g", c.P)
	}
	if sp := g.Values[s.In[0]].Space; sp.Route != 0 || sp.Fixed != 0 {
		return fmt.Errorf("%s has no row for each token", g.Values[s.In[0]].Name)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

// threshold is the first of 32 random bits with which an element is kept.
func (c Dropout) threshold() uint64 { return uint64(c.P*(1<<32) + 0.5) }

// key is where the random bits of a row of the walk begin: 64 for each pair of columns, the lower half for the first of the two.
func (c Dropout) key(d *graph.Draw, row int) uint64 {
	return mix(mix(mix(mix(d.Seed)^d.Step)^uint64(c.Place)) ^ (d.Row + uint64(row)))
}

func (c Dropout) Ref(r *graph.Ref, s *graph.Step) {
	d, picked := &r.In.Draw, r.G.Values[s.In[0]].Space.Picked
	r.Each(s, 0, func(row int, out []float64) {
		x := r.Row(s, 0, row)
		if picked {
			row = int(r.In.Pick[row])
		}
		key := c.key(d, row)
		for i := range out {
			if out[i] = x[i]; d.On {
				draw := mix(key+uint64(i/2)*gamma) >> (i % 2 * 32) & (1<<32 - 1)
				if out[i] /= 1 - c.P; draw < c.threshold() {
					out[i] = x[i] * 0
				}
			}
		}
	})
}

func (Dropout) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, dropout)
	return 0, nil
}

// dropout has memory of its own: what adapters drop of, others read at the same time.
var dropout = &plan.Kind{Name: "dropout", In: 1, Out: 1, Ops: 130}

func runDropout(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op, b, picked := it.Op.(Dropout), w.Batch(), w.Space(it.In[0]).Picked
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	for r := p.R0; r < p.R1 && !w.Stopped(); r++ {
		row, i, j := r, r*width+p.C0, r*width+p.C1
		if picked {
			row = int(b.Pick[r])
		}
		if !b.Draw.On {
			copy(out[i:j], in[i:j])
			continue
		}
		op.drop(out[i:j], in[i:j], &b.Draw, row, p.C0)
	}
}

// drop makes columns [from, from+len(out)) of a row of the walk.
func (c Dropout) drop(out, in []float32, d *graph.Draw, row, from int) {
	const half = 1<<32 - 1
	key, limit, by := c.key(d, row)+uint64(from/2)*gamma, c.threshold(), [2]float32{float32(1 / (1 - c.P)), 0}
	in = in[:len(out)]
	if from%2 == 1 && len(out) > 0 {
		out[0] = in[0] * by[(mix(key)>>32-limit)>>63]
		out, in, key = out[1:], in[1:], key+gamma
	}
	for ; len(out) >= 4; out, in, key = out[4:], in[4:], key+gamma+gamma {
		v, w := mix(key), mix(key+gamma)
		out[0] = in[0] * by[(v&half-limit)>>63]
		out[1] = in[1] * by[(v>>32-limit)>>63]
		out[2] = in[2] * by[(w&half-limit)>>63]
		out[3] = in[3] * by[(w>>32-limit)>>63]
	}
	for i := range out {
		out[i] = in[i] * by[(mix(key+uint64(i/2)*gamma)>>(i%2*32)&half-limit)>>63]
	}
}

// Backward drops the gradients of what was dropped.
func (c Dropout) Backward(t *graph.Tape, s *graph.Step) error {
	v := s.In[0]
	t.Give(v, t.Do(c, "d."+s.Name, t.G.Width(v), t.G.Values[v].Space, []graph.ValueID{must(t, s)})[0])
	return nil
}

// gamma is what the state of SplitMix64 grows by, mix what it makes of a state (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195).
const gamma = 0x9E3779B97F4A7C15

func mix(z uint64) uint64 {
	z += gamma
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Dropped puts dropout into a graph: of the embedding, and of what blocks add to the residual stream, attention as well as feed-forward. It returns how many
// places there are. This is embd_pdrop and resid_pdrop of GPT-2 in Hugging Face's transformers (modeling_gpt2.py), and the dropout of llama2.c's training
// (model.py: of tok_embeddings, resid_dropout of attention, that of the feed-forward); both drop probabilities of attention too, which this does not.
//
// An Add of x and what is computed from x is such an addition, also where both are of picked rows.
func Dropped(g *graph.Graph, p float64) (places int) {
	steps := g.Steps
	g.Steps = nil
	made := make([]int, len(g.Values)) // by value: the step that makes it
	for i := range steps {
		for _, v := range steps[i].Out {
			made[v] = i
		}
	}
	drop := func(name string, from, to graph.ValueID) {
		g.Add(Dropout{p, places}, name, []graph.ValueID{from}, []graph.ValueID{to})
		places++
	}
	value := func(of graph.ValueID, name string) graph.ValueID {
		v := g.NewValue(g.Values[of].Name+name, g.Width(of))
		g.Values[v].Space = g.Values[of].Space
		return v
	}
	for _, s := range steps {
		switch s.Op.(type) {
		case Embed:
			if x := s.Out[0]; places == 0 { // the stream's; others are of layers
				whole := value(x, ".whole")
				s.Out = []graph.ValueID{whole}
				g.Steps = append(g.Steps, s)
				drop(s.Name+".dropped", whole, x)
				continue
			}
		case Add:
			for side, y := range s.In {
				if x := s.In[1-side]; behind(steps, made, x, y) {
					dropped := value(y, ".dropped")
					drop(steps[made[y]].Name+".dropped", y, dropped)
					s.In = append([]graph.ValueID(nil), s.In...)
					s.In[side] = dropped
					break
				}
			}
		}
		g.Steps = append(g.Steps, s)
	}
	return places
}

// behind reports whether y is computed from x, or from what x was picked from. made is by value the step that makes it.
func behind(steps []graph.Step, made []int, x, y graph.ValueID) bool {
	if x == y {
		return false
	}
	if s := &steps[made[x]]; s.Op == (Pick{}) {
		x = s.In[0]
	}
	seen := map[graph.ValueID]bool{}
	var from func(v graph.ValueID) bool
	from = func(v graph.ValueID) bool {
		if v == x || seen[v] || made[v] <= made[x] {
			return v == x
		}
		seen[v] = true
		for _, in := range steps[made[v]].In {
			if from(in) {
				return true
			}
		}
		return false
	}
	return from(y)
}
