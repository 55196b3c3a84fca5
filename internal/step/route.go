package step

import (
	"fmt"
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Gate is the function that makes the weights of experts from the logits of a router.
type Gate uint8

const (
	Softmax       Gate = iota // over all experts
	Sigmoid                   // of each expert by itself
	SoftmaxChosen             // over the chosen experts; they are chosen by their logits
)

func (g Gate) String() string { return [...]string{"softmax", "sigmoid", "softmax-chosen"}[g] }

// Route chooses Used of the experts for each row: from the router's logits [experts] it makes their ids [Used], the best first, and their
// weights [Used]. (Shazeer et al. 2017, arXiv:1701.06538)
//
// A weight, if there is one, is a bias [experts] that is added to the scores for the choice alone. Of equal scores the lower id is better. With
// Groups the experts are chosen from the GroupsUsed groups of the largest sum of two scores (DeepSeek-AI 2024, arXiv:2412.19437). Norm divides the
// weights by their sum; Scale, unless it is 0, multiplies them.
type Route struct {
	Used               int
	Gate               Gate
	Norm               bool
	Scale              float32
	Groups, GroupsUsed int
	// Factors: the last weight is a factor of each expert [experts], which multiplies its weights at the end.
	Factors bool
	// Balance is the factor of the load-balancing term of training (see Balance); 0: there is none.
	Balance float32
}

func (Route) Kind() string         { return "route" }
func (Route) Needs(int) graph.Need { return graph.SameRow }
func (Route) Role(int) graph.Role  { return graph.Vector }

func (t Route) Check(g *graph.Graph, s *graph.Step) error {
	least := 0
	if t.Factors {
		least = 1
	}
	if err := s.Arity(1, 2, least, least+1); err != nil {
		return err
	}
	experts := g.Width(s.In[0])
	switch {
	case t.Used < 1 || t.Used > experts:
		return fmt.Errorf("%d of %d experts", t.Used, experts)
	case experts > 1<<24:
		return fmt.Errorf("%d experts; ids are float32, which count to %d", experts, 1<<24)
	case t.Groups > 0 && (experts%t.Groups != 0 || t.GroupsUsed < 1 || t.GroupsUsed > t.Groups || t.GroupsUsed*(experts/t.Groups) < t.Used):
		return fmt.Errorf("%d of %d groups of %d experts, of which %d are used", t.GroupsUsed, t.Groups, experts, t.Used)
	}
	for _, id := range s.W {
		if w := g.Weights[id]; w.Rows != 1 || w.Cols != experts {
			return fmt.Errorf("%s is [%d, %d], %d experts", w.Name, w.Rows, w.Cols, experts)
		}
	}
	for _, v := range s.Out {
		if g.Width(v) != t.Used || g.Values[v].Space != g.Values[s.In[0]].Space {
			return fmt.Errorf("%s is %d wide, %d experts are used", g.Values[v].Name, g.Width(v), t.Used)
		}
	}
	return nil
}

func (t Route) Ref(r *graph.Ref, s *graph.Step) {
	bias, factors := t.vectors(len(s.W), func(i int) []float64 { return r.Vector(s.W[i]) })
	n := r.G.Width(s.In[0])
	scores, choice := make([]float64, n), make([]float64, n)
	r.Each(s, 0, func(row int, ids []float64) {
		t.choose(scores, choice, r.Row(s, 0, row), bias, factors, ids, r.Vals[s.Out[1]][row])
	})
}

// vectors are the bias and the factors among n weights; nil: there are none.
func (t Route) vectors(n int, get func(i int) []float64) (bias, factors []float64) {
	if t.Factors {
		n--
		factors = get(n)
	}
	if n > 0 {
		bias = get(0)
	}
	return bias, factors
}

// choose writes ids and weights of a row; scores and choice are room for a number of each expert. A score that is no number is the worst, so that
// there are ids whatever the logits are.
func (t Route) choose(scores, choice, logits, bias, factors, ids, weights []float64) {
	t.score(scores, logits)
	for i, x := range scores {
		if bias != nil {
			x += bias[i]
		}
		if x != x {
			x = math.Inf(-1)
		}
		choice[i] = x
	}
	t.leaveGroups(choice)
	sum := 0.0
	for j := range ids {
		best := -1
		for e, x := range choice {
			if x == x && (best < 0 || x > choice[best]) {
				best = e
			}
		}
		ids[j], weights[j] = float64(best), scores[best]
		choice[best] = math.NaN() // gone
		sum += weights[j]
	}
	if t.Gate == SoftmaxChosen {
		sum = softmax(weights, weights)
	}
	for j := range weights {
		if t.Norm {
			weights[j] /= max(sum, 1e-20) // all may be zero
		}
		if t.Scale != 0 {
			weights[j] *= float64(t.Scale)
		}
		if factors != nil {
			weights[j] *= factors[int(ids[j])]
		}
	}
}

// score makes what experts are weighed by.
func (t Route) score(scores, logits []float64) {
	switch t.Gate {
	case Softmax:
		softmax(scores, logits)
	case Sigmoid:
		for i, x := range logits {
			scores[i] = 1 / (1 + math.Exp(-x))
		}
	case SoftmaxChosen:
		copy(scores, logits)
	}
}

// softmax writes e^x over their sum, and returns the new sum, 1.
func softmax(dst, x []float64) float64 {
	most, sum := math.Inf(-1), 0.0
	for _, v := range x {
		most = max(most, v)
	}
	for i, v := range x {
		dst[i] = math.Exp(v - most)
		sum += dst[i]
	}
	for i := range dst {
		dst[i] /= sum
	}
	return 1
}

// leaveGroups takes the experts of the groups that are not used out of the choice.
func (t Route) leaveGroups(choice []float64) {
	if t.Groups <= 1 || t.Groups == t.GroupsUsed {
		return
	}
	n := len(choice) / t.Groups
	sum := func(g int) float64 { // of its two best
		a, b := math.Inf(-1), math.Inf(-1)
		for _, x := range choice[g*n : (g+1)*n] {
			switch {
			case x > a:
				a, b = x, a
			case x > b:
				b = x
			}
		}
		if n == 1 {
			return a
		}
		return a + b
	}
	for range t.Groups - t.GroupsUsed {
		worst, least := -1, math.Inf(1)
		for g := range t.Groups { // of equal ones the higher goes first
			if x := sum(g); choice[g*n] == choice[g*n] && (worst < 0 || x <= least) {
				worst, least = g, x
			}
		}
		for i := worst * n; i < (worst+1)*n; i++ {
			choice[i] = math.NaN()
		}
	}
}

func (Route) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, route)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Whole()}
	if b.Plan.Class == plan.Many {
		it.In[0] = it.In[0].Cols(0)
	}
	b.FinishAll(it, s.Out, 0)
	return 0, nil
}

// route chooses experts, in float64: it is little beside what they do.
var route = &plan.Kind{Name: "route", In: 1, Out: 2, Weights: [2]int{0, 2}, Named: true,
	Elements: func(p *plan.Plan, it *plan.Item) plan.Elements {
		return plan.Elements{N: p.Width(it.In), Ops: 2500}
	},
}

func runRoute(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, experts := w.Floats(it.In[0])
	ids, used := w.Floats(it.Out[0])
	weights, _ := w.Floats(it.Out[1])
	op := it.Op.(Route)
	room := w.Doubles(5*experts + 2*used)
	take := func(n int) (x []float64) { x, room = room[:n], room[n:]; return x }
	scores, choice, logits, chosen, shares := take(experts), take(experts), take(experts), take(used), take(used)
	bias, factors := op.vectors(len(it.W), func(i int) []float64 {
		v := take(experts)
		widen(v, w.Vector(it.W[i]))
		return v
	})
	for r := p.R0; r < p.R1; r++ {
		widen(logits, in[r*experts:])
		op.choose(scores, choice, logits, bias, factors, chosen, shares)
		for j := range chosen {
			ids[r*used+j], weights[r*used+j] = float32(chosen[j]), float32(shares[j])
		}
	}
	w.Count(it.Steps[0], ids[p.R0*used:p.R1*used])
}

func widen(dst []float64, x []float32) {
	for i := range dst {
		dst[i] = float64(x[i])
	}
}
