package train

import (
	"math/bits"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/kv"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/walk"
)

// Memory is what training takes, in bytes.
type Memory struct {
	Values  int64 // of weights, float32
	Moments int64
	Panels  int64 // of matrices and their transposes
	Walk    int64 // buffers: activations that the backward reads, gradients
	Sums    int64 // gradients of walks that wait for others
	Cache   int64 // keys and values of a walk
	Decode  int64 // the largest frozen matrix in float32, while its panels are made
	Rest    int64 // stacks, and what the collector has not freed yet
}

// Garbage is what may wait for the collector beside n bytes that are held: little, for these are arrays that it need not look into.
func Garbage(n int64) int64 { return max(leastGarbage, n/garbageShare) }

const (
	leastGarbage = 4 << 20
	garbageShare = 50
)

// GarbagePercent is Garbage as debug.SetGCPercent takes it: the collector counts each replica's slab of keys and values whole, of which pages become resident
// as they are written.
func GarbagePercent(n int64, replicas int) int {
	return int(min(100, max(1, 100*Garbage(n)/(n+int64(replicas)*kv.SlabBytes))))
}

// A Part is a part of the memory.
type Part struct {
	Name, Of string
	Bytes    int64
}

// Parts are all of it.
func (m Memory) Parts() []Part {
	return []Part{{"values", "weights in float32", m.Values}, {"moments", "of the optimizer", m.Moments},
		{"panels", "matrices and their transposes, as they are multiplied", m.Panels}, {"buffers", "of a walk: activations, gradients", m.Walk},
		{"sums", "gradients of walks that wait for others", m.Sums}, {"keys and values", "of a walk", m.Cache},
		{"decoding", "the largest frozen matrix, while panels are made of it", m.Decode},
		{"rest", "stacks, and what waits to be freed", m.Rest}}
}

// Total is all of it.
func (m Memory) Total() (n int64) {
	for _, p := range m.Parts() {
		n += p.Bytes
	}
	return n
}

// Times is what so many replicas take together: values and moments are there once, and so is the matrix that is decoded.
func (m Memory) Times(replicas int) Memory {
	n := int64(replicas)
	all := Memory{Values: m.Values, Moments: m.Moments, Panels: n * m.Panels, Walk: n * m.Walk, Sums: n * m.Sums, Cache: n * m.Cache, Decode: m.Decode}
	all.Rest = Garbage(all.Total())
	return all
}

// Estimate is what a net of a graph, which it extends, and its training take, and the operations of a step; nothing is taken. workers is how many there will
// be.
func Estimate(g *graph.Graph, opt NetOptions, workers, batch int, optimizer string) (Memory, float64, error) {
	var m Memory
	x, err := opt.extend(g)
	if err != nil {
		return m, 0, err
	}
	frozen, gradients := x.frozen, x.gradients
	f := opt.Table.Format(opt.Type, opt.Type == quant.F32)
	terms := int64(0)
	for i, w := range g.Weights {
		id, n := graph.WeightID(i), 4*int64(w.Rows)*int64(w.Cols)
		roles, rests := g.Roles(id), frozen != nil && frozen(id) && !w.Turned
		if !w.Turned && !(rests && roles[graph.Matrix] && !roles[graph.Lookup]) {
			m.Values += n
		} else if !w.Turned {
			m.Decode = max(m.Decode, n)
		}
		if terms += n * int64(len(gradients[id])); len(gradients[id]) > 0 && optimizer == "adamw" {
			m.Moments += 2 * n
		}
		if roles[graph.Matrix] {
			m.Panels += int64(walk.PanelsBytes(w, f))
		}
	}
	if walks := batch / opt.Leaves; walks > 1 {
		m.Sums = terms * int64(bits.Len(uint(walks)))
	}
	p, err := buildPlan(g, opt, workers, f)
	if err != nil {
		return m, 0, err
	}
	m.Walk = int64(p.Arena)
	for _, c := range g.Caches {
		m.Cache += 4 * int64(c.KVHeads) * int64(c.D+c.Dv) * int64(opt.Leaf*opt.Leaves+64*opt.Leaves)
	}
	m.Rest = Garbage(m.Total())
	return m, opt.operations(p) * float64(batch/opt.Leaves), nil
}

// Load describes a walk, whose leaves are one sequence each.
func (opt NetOptions) Load() plan.Load {
	rows := opt.Leaf * opt.Leaves
	return plan.Load{Rows: rows, Picks: rows, Keys: float64(opt.Leaf) / 2}
}

// operations are those of a walk.
func (opt NetOptions) operations(p *plan.Plan) (ops float64) {
	for i := range p.Items {
		ops += p.Work(i, opt.Load()).Ops
	}
	return ops
}

// Operations are those of a walk, as the plan's items say them; a multiplication and an addition are two.
func (n *Net) Operations() float64 { return n.opt.operations(n.walk.Plan) }

// Load describes a walk to what measures it.
func (n *Net) Load() plan.Load { return n.opt.Load() }

// Look has a hook look on at the walks that follow; nil: nobody does.
func (n *Net) Look(h walk.Hook) { n.walk.Hook = h }

// PlanOf is the plan by which a net of a graph, which it extends, would walk; nothing is taken.
func PlanOf(g *graph.Graph, opt NetOptions, workers int) (*plan.Plan, error) {
	if _, err := opt.extend(g); err != nil {
		return nil, err
	}
	return buildPlan(g, opt, workers, opt.Table.Format(opt.Type, opt.Type == quant.F32))
}

// extend puts adapters, dropout, the balance of experts, the backward and what is done again for it into a graph.
func (opt NetOptions) extend(g *graph.Graph) (x extended, err error) {
	if opt.LoRA != nil {
		if x.frozen, err = opt.LoRA.adapt(g, opt.Dropout); err != nil {
			return x, err
		}
	} else if opt.Dropout != 0 {
		step.Dropped(g, opt.Dropout)
	}
	if err = opt.balance(g); err != nil {
		return x, err
	}
	x.weights = len(g.Weights)
	if x.gradients, err = step.Train(g, opt.Leaf*opt.Leaves, opt.Leaf, x.frozen); err != nil {
		return x, err
	}
	return x, step.Again(g, opt.Recompute)
}

// extended is what a graph with its backward has.
type extended struct {
	frozen    func(graph.WeightID) bool // nil: no weight is
	gradients map[graph.WeightID][]graph.ValueID
	weights   int // of the forward pass: transposes are behind them
}

// buildPlan lays a training graph out.
func buildPlan(g *graph.Graph, opt NetOptions, workers int, f *kernel.Format) (*plan.Plan, error) {
	rows := max(opt.Leaf*opt.Leaves, 17) // a plan of many
	return plan.Build(g, plan.Machine{Workers: workers, MaxRows: rows, MaxPicks: rows, Taps: g.Results, Format: func(id graph.WeightID) *kernel.Format {
		if g.Roles(id)[graph.Matrix] {
			return f
		}
		return nil
	}})
}
