package step

import (
	"fmt"
	"math"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Experts is a Matmul of routed rows, each with the matrix of the expert that it was sent to: out[row, j] = W[ids[row, j]] * in[row, j]
// (+ bias[ids[row, j]], the weight [experts, outputs] after it). The second input is the ids of Route. Slices as in Matmul.
type Experts struct {
	Slices int
	// Factors: each expert's product has a factor before the bias is added, that of the last weight [1, experts].
	Factors bool
}

// weights are the bias and the factors of a step, where it has them.
func (x Experts) weights(w []graph.WeightID) (bias, factors graph.WeightID) {
	bias, factors = -1, -1
	if w = w[1:]; x.Factors {
		factors, w = w[len(w)-1], w[:len(w)-1]
	}
	if len(w) > 0 {
		bias = w[0]
	}
	return
}

func (Experts) Kind() string { return "experts" }

func (Experts) Needs(i int) graph.Need {
	if i == 1 {
		return graph.SentRow
	}
	return graph.SameRow
}

// Role of the second weight, the bias, is a vector.
func (Experts) Role(i int) graph.Role { return Matmul{}.Role(i) }

// SliceCount is the number of slices of K, for Explain.
func (x Experts) SliceCount() int { return x.Slices }

func (x Experts) Check(g *graph.Graph, s *graph.Step) error {
	least := 1
	if x.Factors {
		least = 2
	}
	if err := s.Arity(2, 1, least, least+1); err != nil {
		return err
	}
	bias, factors := x.weights(s.W)
	w, space := g.Weights[s.W[0]], g.Values[s.In[0]].Space
	switch {
	case w.Experts < 1 || w.Rows%w.Experts != 0:
		return fmt.Errorf("%s has %d rows for %d experts", w.Name, w.Rows, w.Experts)
	case w.Cols != g.Width(s.In[0]) || w.Each() != g.Width(s.Out[0]):
		return fmt.Errorf("%s is %d of [%d, %d], input %d wide, output %d", w.Name, w.Experts, w.Each(), w.Cols, g.Width(s.In[0]), g.Width(s.Out[0]))
	case space.Route == 0 || space != g.Values[s.Out[0]].Space || space.Used != g.Width(s.In[1]):
		return fmt.Errorf("%s and %s are not rows of the same choice of experts", g.Values[s.In[0]].Name, g.Values[s.Out[0]].Name)
	case x.Slices < 1 || w.Cols%x.Slices != 0:
		return fmt.Errorf("%d slices of %d elements", x.Slices, w.Cols)
	}
	if bias >= 0 {
		if b := g.Weights[bias]; b.Rows != w.Experts || b.Cols != w.Each() {
			return fmt.Errorf("bias %s is [%d, %d], %d experts have %d outputs", b.Name, b.Rows, b.Cols, w.Experts, w.Each())
		}
	}
	if factors >= 0 {
		if f := g.Weights[factors]; f.Rows != 1 || f.Cols != w.Experts {
			return fmt.Errorf("factors %s are [%d, %d] for %d experts", f.Name, f.Rows, f.Cols, w.Experts)
		}
	}
	return nil
}

func (x Experts) Ref(r *graph.Ref, s *graph.Step) {
	w := r.G.Weights[s.W[0]]
	each, used := w.Each(), r.G.Values[s.Out[0]].Space.Used
	ofBias, ofFactors := x.weights(s.W)
	row, bias, factor := make([]float64, w.Cols), make([]float64, each), 1.0
	by := make([][]int, w.Experts) // routed rows
	r.Each(s, 0, func(i int, _ []float64) {
		e := int(r.Row(s, 1, i/used)[i%used])
		by[e] = append(by[e], i)
	})
	for e, rows := range by {
		if len(rows) == 0 {
			continue
		}
		if ofBias >= 0 {
			r.Weight(ofBias, e, bias)
		}
		if ofFactors >= 0 {
			factor = r.Vector(ofFactors)[e]
		}
		for n := range each {
			r.Weight(s.W[0], e*each+n, row)
			for _, i := range rows {
				r.Vals[s.Out[0]][i][n] = dot64(row, r.Row(s, 0, i))*factor + bias[n]
			}
		}
	}
}

// Realise cuts columns of all experts at panel edges: so workers have equal parts, whatever experts the rows chose. Every member has a part of every
// expert.
func (x Experts) Realise(b *plan.Builder, i int) (int, error) {
	g, s, m := b.Plan.G, b.Step(i), Matmul{x.Slices}
	f, err := m.format(b, i)
	if err != nil {
		return 0, err
	}
	it := b.Item(i, experts)
	var in plan.Operand
	if from, ok := sender(b, s.In[0]); ok {
		var direct bool
		if in, direct = sent(b, from, f); direct {
			it.Steps = append(it.Steps, from)
		}
	} else {
		in = activations(b, s.In[0], f)
	}
	it.In = []plan.Operand{in, b.At(s.In[1]).Whole()}
	if b.ByK(i) {
		m.sum(b, it, s.Out[0])
		return 0, nil
	}
	unit := m.unit(b, i, f)
	it.Cut = plan.ColCut(g.Width(s.Out[0]), unit)
	it.Cut.Over = b.Dealt(s.Out[0])
	b.Finish(it, s.Out[0], unit)
	return 0, nil
}

// chosen is how many of the experts rows choose together, if they choose evenly and apart from each other.
func chosen(experts, used, rows int) float64 {
	n := float64(experts)
	return n * -math.Expm1(float64(rows)*math.Log1p(-min(float64(used)/n, 1-1e-12)))
}

// experts multiplies the panels of each expert with the rows that were sent to it.
var experts = &plan.Kind{Name: "experts", In: 2, Out: 1, Weights: [2]int{1, 3}, Group: plan.Products, Named: true, Shared: true, Work: expertsWork}

// partialExperts multiplies a member's part of the experts' K; sumExperts adds those of all members up, with factors and bias.
var (
	partialExperts = &plan.Kind{Name: "partial-experts", In: 2, Out: 1, Weights: [2]int{1, 3}, Group: plan.Products, Named: true, Shared: true, Work: expertsWork}
	sumExperts     = &plan.Kind{Name: "sum-experts", In: 2, Out: 1, Weights: [2]int{1, 3}, Elements: summed}
)

func expertsWork(p *plan.Plan, it *plan.Item, l plan.Load) plan.Work {
	m, f := p.G.Weights[it.W[0]], p.Formats[it.W[0]]
	rows := l.RowsOf(it)
	work := plan.Work{Ops: 2 * float64(m.Each()) * float64(m.Cols) * float64(rows), Kind: f.Act.Arithmetic()}
	bytes := float64(walk.PanelsBytes(m, f))
	if f.Direct || bytes == 0 {
		bytes = float64(m.Rows) * float64(f.Type.RowBytes(m.Cols))
	}
	read := chosen(m.Experts, it.Space.Used, rows/it.Space.Used)
	if l.Experts != nil {
		read = l.Experts[it.Space.Route-1]
	}
	work.Bytes = bytes * read / float64(m.Experts)
	return work
}

// runExperts computes output columns [p.C0, p.C1) of all routed rows, C0 at a panel's edge, expert by expert.
func runExperts(w *walk.Worker, it *plan.Item, p plan.Rect) {
	_, width := w.Floats(it.Out[0])
	op := it.Op.(Experts)
	ofBias, ofFactors := op.weights(it.W)
	each := w.Graph().Weights[it.W[0]].Each()
	eachExpert(w, it, p, op.Slices, func(e int, y []float32) {
		var bias []float32
		if ofBias >= 0 {
			bias = w.Vector(ofBias)[e*each : (e+1)*each]
		}
		if ofFactors < 0 {
			multiply(w, it, e, p, y, bias)
			return
		}
		multiply(w, it, e, p, y, nil)
		for r := w.Matmul.M0; r < w.Matmul.M1; r++ {
			scaleExpert(w, ofFactors, e, bias, p.C0, y[r*width+p.C0:r*width+p.C1])
		}
	})
}

// runPartialExperts computes columns [p.C0, p.C1) of the member's part of the products.
func runPartialExperts(w *walk.Worker, it *plan.Item, p plan.Rect) {
	eachExpert(w, it, p, it.Op.(Experts).Slices/w.Members(), func(e int, y []float32) { multiply(w, it, e, p, y, nil) })
}

// eachExpert calls product with each expert that has rows, when w.Matmul has these, and where the outputs of its row 0 lie.
func eachExpert(w *walk.Worker, it *plan.Item, p plan.Rect, slices int, product func(e int, y []float32)) {
	out, width := w.Floats(it.Out[0])
	x := w.Act(it.In[0])
	start := w.Routing(it.Space, it.In[1]).Start
	one := !w.Sent(it.In[0]) // a row that all its experts read
	for e := range min(w.Graph().Weights[it.W[0]].Experts, len(start)-1) {
		m0, m1 := int(start[e]), int(start[e+1])
		if m0 == m1 {
			continue
		}
		if w.Stopped() {
			return
		}
		y := out
		if one {
			y, m0, m1 = out[m0*width:], 0, 1
		}
		w.Matmul = kernel.Matmul{Slices: slices, X: x, M0: m0, M1: m1, YStride: width}
		product(e, y)
	}
}

// runSumExperts adds up what all members have of routed rows, then multiplies by the factor, if there are factors, and adds the bias.
func runSumExperts(w *walk.Worker, it *plan.Item, p plan.Rect) {
	out, width := w.Floats(it.Out[0])
	ofBias, ofFactors := it.Op.(Experts).weights(it.W)
	start := w.Routing(it.Space, it.In[1]).Start
	parts, e := w.Copies(it.In[0]), 0
	for r := p.R0; r < p.R1; r++ {
		for int(start[e+1]) <= r {
			e++
		}
		addUp(w, parts, r*width+p.C0, r*width+p.C1, func(at int, sum []float32) {
			var bias []float32
			if ofBias >= 0 {
				bias = w.Vector(ofBias)[e*width : (e+1)*width]
			}
			scaleExpert(w, ofFactors, e, bias, at-r*width, sum)
			copy(out[at:], sum)
		})
	}
}

// scaleExpert multiplies outputs from column c on by the factor of expert e, if there are factors, and adds the bias of all columns, which may be nil.
func scaleExpert(w *walk.Worker, factors graph.WeightID, e int, bias []float32, c int, out []float32) {
	if factors >= 0 {
		w.Kernels().Scale(out, out, w.Vector(factors)[e])
	}
	if bias != nil {
		w.Kernels().Add(out, out, bias[c:c+len(out)])
	}
}
