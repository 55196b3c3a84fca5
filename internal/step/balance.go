package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Balance is the load-balancing term of a choice of experts: a row that counts in the loss adds By * E * sum over the E experts of f[e] * p[e] to it. p is the
// router's probabilities of that row; f[e] is the share that chose expert e of those rows of the leaf that count. Where the load is even this is By times the
// experts that a row uses. Inputs: the router's logits [experts], and the ids [used] that were chosen. Outputs: what the row adds [1], and the gradient of the
// loss by the logits [experts], where each row that counts has its share (graph.Input.Share). It goes through p alone: f is a count.
//
// (Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6, for one expert a row; each of several counts, as in the Mixtral of Hugging Face's transformers,
// load_balancing_loss_func.) Both take f and p over what a device computes at once. Here it is the leaf, so that the gradients do not depend on that. The
// probabilities of Sigmoid are the scores over their sum (DeepSeek-AI 2024, arXiv:2412.19437, equation 19), those of the others the softmax of all logits.
type Balance struct {
	By   float32
	Gate Gate
	Leaf int
}

// Balanced has all choices of experts of a graph balanced when it is trained, and returns how many there are.
func Balanced(g *graph.Graph, by float32) (routes int) {
	for i := range g.Steps {
		if r, ok := g.Steps[i].Op.(Route); ok {
			r.Balance = by
			g.Steps[i].Op = r
			routes++
		}
	}
	return routes
}

func (Balance) Kind() string        { return "balance" }
func (Balance) Role(int) graph.Role { return graph.Vector }

func (Balance) Needs(i int) graph.Need {
	if i == 1 {
		return graph.AllRows
	}
	return graph.SameRow
}

func (c Balance) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 2, 0, 0); err != nil {
		return err
	}
	if c.Leaf < 1 || g.Width(s.Out[0]) != 1 || g.Values[s.In[0]].Space != g.Values[s.In[1]].Space {
		return fmt.Errorf("of %s, %s is %d wide, leaves of %d", g.Values[s.In[0]].Name, g.Values[s.Out[0]].Name, g.Width(s.Out[0]), c.Leaf)
	}
	return g.SameWidth(s.In[0], s.Out[1])
}

func (c Balance) Ref(r *graph.Ref, s *graph.Step) {
	n, picked := r.G.Width(s.In[0]), r.G.Values[s.In[0]].Space.Picked
	counts := func(row int) bool {
		if picked {
			row = int(r.In.Pick[row])
		}
		return r.In.Target[row] >= 0
	}
	shares, p, unused := make([]float64, n), make([]float64, n), make([]float64, n)
	for row, loss := range r.Vals[s.Out[0]] {
		if row%c.Leaf == 0 {
			clear(shares)
			all := 0.0
			for i := row; i < min(row+c.Leaf, len(r.Vals[s.In[1]])); i++ {
				if counts(i) {
					all++
					for _, id := range r.Row(s, 1, i) {
						shares[int(id)]++
					}
				}
			}
			for e := range shares {
				shares[e] /= max(all, 1)
			}
		}
		d := r.Vals[s.Out[1]][row]
		if loss == nil && d == nil || !counts(row) {
			continue
		}
		if d == nil {
			d = unused
		}
		sum := c.slopes(d, p, r.Row(s, 0, row), shares, r.In.Share)
		if loss != nil {
			loss[0] = sum
		}
	}
}

// slopes is what a row adds to the loss; it writes the gradient by the logits to d. p is room for a number of each expert.
func (c Balance) slopes(d, p, logits, shares []float64, share float64) float64 {
	sum := 1.0 // of the scores
	if c.Gate == Sigmoid {
		Route{Gate: Sigmoid}.score(p, logits)
		sum = 0
		for _, s := range p {
			sum += s
		}
		sum = max(sum, 1e-20)
	} else {
		softmax(p, logits)
	}
	mean := 0.0
	for e, s := range p {
		mean += shares[e] * s / sum
	}
	by := float64(c.By) * float64(len(p))
	for e, s := range p {
		d[e] = share * by * s / sum * (shares[e] - mean)
		if c.Gate == Sigmoid {
			d[e] *= 1 - s
		}
	}
	return by * mean
}

func (Balance) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, balance)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Cols(0), b.At(s.In[1]).Whole()}
	b.FinishAll(it, s.Out, 0)
	return 0, nil
}

var balance = &plan.Kind{Name: "balance", In: 2, Out: 2,
	Elements: func(p *plan.Plan, it *plan.Item) plan.Elements {
		return plan.Elements{N: p.Width(it.In), Ops: 2500}
	},
}

// runBalance counts choices for itself, of each leaf that the part has rows of.
func runBalance(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(Balance)
	logits, experts := w.Floats(it.In[0])
	ids, used := w.Floats(it.In[1])
	loss, _ := w.Floats(it.Out[0])
	out, _ := w.Floats(it.Out[1])
	b, space := w.Batch(), w.Space(it.In[0])
	rows := w.Rows(space)
	counts := func(r int) bool {
		if space.Picked {
			r = int(b.Pick[r])
		}
		return b.Target[r] >= 0
	}
	room := w.Doubles(4 * experts)
	x, prob, d, shares := room[:experts], room[experts:2*experts], room[2*experts:3*experts], room[3*experts:4*experts]
	for r, leaf := p.R0, -1; r < p.R1; r++ {
		if r/op.Leaf != leaf {
			leaf = r / op.Leaf
			clear(shares)
			all := 0
			for i := leaf * op.Leaf; i < min((leaf+1)*op.Leaf, rows); i++ {
				if counts(i) {
					all++
					for _, id := range ids[i*used : (i+1)*used] {
						shares[int(id)]++
					}
				}
			}
			for e := range shares {
				shares[e] /= float64(max(all, 1))
			}
		}
		if !counts(r) {
			loss[r] = 0
			clear(out[r*experts : (r+1)*experts])
			continue
		}
		widen(x, logits[r*experts:])
		loss[r] = float32(op.slopes(d, prob, x, shares, float64(b.Share)))
		narrow(out[r*experts:], d)
	}
}
