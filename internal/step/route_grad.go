package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// RouteGrad is the gradient of Route by the router's logits [experts]. Inputs: the logits, the ids [used] that were chosen, and the gradient of their weights
// [used]. The choice does not depend on the logits as far as gradients see: nothing goes through it, nor to a bias that only it reads. With factors, the one
// weight, there is a second output [experts]: what a row gives to the gradient of each.
type RouteGrad struct{ Of Route }

func (RouteGrad) Kind() string         { return "route-grad" }
func (RouteGrad) Needs(int) graph.Need { return graph.SameRow }
func (RouteGrad) Role(int) graph.Role  { return graph.Vector }

func (t RouteGrad) Check(g *graph.Graph, s *graph.Step) error {
	n := 0
	if t.Of.Factors {
		n = 1
	}
	if err := s.Arity(3, 1+n, n, n); err != nil {
		return err
	}
	for _, v := range s.In[1:] {
		if g.Width(v) != t.Of.Used {
			return fmt.Errorf("%s is %d wide, %d experts are used", g.Values[v].Name, g.Width(v), t.Of.Used)
		}
	}
	for _, w := range s.W {
		if g.Weights[w].Cols != g.Width(s.In[0]) {
			return fmt.Errorf("%s has %d factors for %d experts", g.Weights[w].Name, g.Weights[w].Cols, g.Width(s.In[0]))
		}
	}
	return g.SameWidth(append([]graph.ValueID{s.In[0]}, s.Out...)...)
}

func (t RouteGrad) Ref(r *graph.Ref, s *graph.Step) {
	var factors []float64
	if len(s.W) > 0 {
		factors = r.Vector(s.W[0])
	}
	scores, unused, weights := make([]float64, r.G.Width(s.In[0])), make([]float64, r.G.Width(s.In[0])), make([]float64, 2*t.Of.Used)
	for row, d := range r.Vals[s.Out[0]] {
		given := unused
		if len(s.Out) > 1 && r.Vals[s.Out[1]][row] != nil {
			given = r.Vals[s.Out[1]][row]
		}
		if d == nil {
			d = unused
		}
		t.Of.slopes(d, given, r.Row(s, 0, row), r.Row(s, 1, row), r.Row(s, 2, row), factors, scores, weights)
	}
}

// slopes writes to dl what the gradient by the logits is, and to given, where there are factors, what goes to these; d is that of the weights. scores and room,
// of 2*Used, are room.
func (t Route) slopes(dl, given, logits, ids, d, factors, scores, room []float64) {
	t.score(scores, logits)
	w, g := room[:t.Used], room[t.Used:]
	sum := 0.0
	for j, id := range ids {
		w[j] = scores[int(id)]
		sum += w[j]
	}
	if t.Gate == SoftmaxChosen {
		sum = softmax(w, w)
	}
	by, scale := 1.0, 1.0
	if t.Norm {
		by = max(sum, 1e-20)
	}
	if t.Scale != 0 {
		scale = float64(t.Scale)
	}
	clear(dl)
	if factors != nil {
		clear(given)
	}
	dot := 0.0
	for j, id := range ids {
		g[j] = d[j] * scale
		if factors != nil {
			given[int(id)] = g[j] * w[j] / by
			g[j] *= factors[int(id)]
		}
		dot += g[j] * w[j]
	}
	if t.Norm && t.Gate != SoftmaxChosen { // of w/sum by w
		for j := range g {
			if sum > 1e-20 {
				g[j] -= dot / by
			}
			g[j] /= by
		}
		if dot = 0; t.Gate == Softmax {
			for j := range g {
				dot += g[j] * w[j]
			}
		}
	}
	for j, id := range ids {
		e := int(id)
		switch t.Gate {
		case Softmax:
			dl[e] = g[j] * w[j]
		case Sigmoid:
			dl[e] = g[j] * w[j] * (1 - w[j])
		case SoftmaxChosen:
			dl[e] = w[j] * (g[j] - dot)
		}
	}
	if t.Gate == Softmax {
		for e, s := range scores {
			dl[e] -= s * dot
		}
	}
}

func (t RouteGrad) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, routeGrad)
	if t.Of.Factors {
		it.Do = routeFactorsGrad
	}
	it.Cut = plan.Cut{By: plan.Rows}
	for _, v := range s.In {
		it.In = append(it.In, b.At(v).Cols(0))
	}
	b.FinishAll(it, s.Out, 0)
	return 0, nil
}

// routeGrad is in float64, as route is; routeFactorsGrad has the factors' as well.
var (
	routeGrad        = &plan.Kind{Name: "route-grad", In: 3, Out: 1, Elements: routeSlopes}
	routeFactorsGrad = &plan.Kind{Name: "route-factors-grad", In: 3, Out: 2, Weights: [2]int{1, 1}, Elements: routeSlopes}
)

func routeSlopes(p *plan.Plan, it *plan.Item) plan.Elements {
	return plan.Elements{N: p.Width(it.In), Ops: 2500}
}

func runRouteGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	logits, experts := w.Floats(it.In[0])
	ids, used := w.Floats(it.In[1])
	d, _ := w.Floats(it.In[2])
	out, _ := w.Floats(it.Out[0])
	op := it.Op.(RouteGrad).Of
	room := w.Doubles(5*experts + 4*used)
	take := func(n int) (x []float64) { x, room = room[:n], room[n:]; return x }
	x, scores, dl, given, factors := take(experts), take(experts), take(experts), take(experts), take(experts)
	chosen, slope, weights := take(used), take(used), take(2*used)
	if len(it.W) == 0 {
		factors = nil
	} else {
		widen(factors, w.Vector(it.W[0]))
	}
	for r := p.R0; r < p.R1; r++ {
		widen(x, logits[r*experts:])
		widen(chosen, ids[r*used:])
		widen(slope, d[r*used:])
		op.slopes(dl, given, x, chosen, slope, factors, scores, weights)
		narrow(out[r*experts:], dl)
		if len(it.Out) > 1 {
			to, _ := w.Floats(it.Out[1])
			narrow(to[r*experts:], given)
		}
	}
}

func narrow(dst []float32, x []float64) {
	for i, v := range x {
		dst[i] = float32(v)
	}
}

// Backward goes through the weights of the chosen experts, and through the probabilities of all where the load is balanced.
func (t Route) Backward(tape *graph.Tape, s *graph.Step) error {
	logits, g := s.In[0], tape.G
	n, space, factors := g.Width(logits), g.Values[logits].Space, graph.WeightID(-1)
	biases := s.W
	if t.Factors {
		factors, biases = s.W[len(s.W)-1], s.W[:len(s.W)-1]
	}
	for _, w := range biases {
		if tape.Trains(w) {
			tape.GiveWeight(w) // only the choice reads it
		}
	}
	if d, ok := tape.Of(s.Out[1]); ok {
		out := []graph.ValueID{tape.Value("d."+g.Values[logits].Name, n, space)}
		var w []graph.WeightID
		if factors >= 0 {
			out, w = append(out, tape.Value("d."+s.Name+".factors", n, space)), append(w, factors)
		}
		g.Add(RouteGrad{t}, s.Name, []graph.ValueID{logits, s.Out[0], d}, out, w...)
		tape.Give(logits, out[0])
		if factors >= 0 && tape.Trains(factors) {
			tape.GiveWeight(factors, tape.Do(SumRows{tape.Leaf}, "d."+g.Weights[factors].Name, n, tape.OfWeight(factors), out[1:2])[0])
		}
	}
	if t.Balance != 0 {
		out := []graph.ValueID{tape.Value(s.Name+".balance", 1, space), tape.Value("d."+s.Name+".balance", n, space)}
		g.Add(Balance{By: t.Balance, Gate: t.Gate, Leaf: tape.Leaf}, s.Name+".balance", []graph.ValueID{logits, s.Out[0]}, out)
		g.Results = append(g.Results, out[0])
		tape.Give(logits, out[1])
	}
	return nil
}
