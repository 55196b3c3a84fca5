package train

import (
	"math/bits"

	"ck/internal/graph"
	"ck/internal/kernel"
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
}

// Total is all of it.
func (m Memory) Total() int64 { return m.Values + m.Moments + m.Panels + m.Walk + m.Sums + m.Cache }

// Estimate is what a net of a graph, which it extends, and its training take, and the operations of a step; nothing is taken. workers is how many there will
// be.
func Estimate(g *graph.Graph, opt NetOptions, workers, batch int, optimizer string) (Memory, float64, error) {
	var m Memory
	var frozen func(graph.WeightID) bool
	if opt.LoRA != nil {
		var err error
		if frozen, err = opt.LoRA.adapt(g); err != nil {
			return m, 0, err
		}
	}
	gradients, err := step.Train(g, opt.Leaf*opt.Leaves, opt.Leaf, frozen)
	if err != nil {
		return m, 0, err
	}
	f := opt.Table.Format(opt.Type, opt.Type == quant.F32)
	terms := int64(0)
	for i, w := range g.Weights {
		id, n := graph.WeightID(i), 4*int64(w.Rows)*int64(w.Cols)
		roles, rests := g.Roles(id), frozen != nil && frozen(id) && !w.Turned
		if !w.Turned && !(rests && roles[graph.Matrix] && !roles[graph.Lookup]) {
			m.Values += n
		}
		if terms += n * int64(len(gradients[id])); !w.Turned && !rests && optimizer == "adamw" {
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
	ops := 0.0
	rows := opt.Leaf * opt.Leaves
	for i := range p.Items {
		ops += p.Work(i, plan.Load{Rows: rows, Picks: rows, Keys: float64(opt.Leaf) / 2}).Ops
	}
	return m, ops * float64(batch/opt.Leaves), nil
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
