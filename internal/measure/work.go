package measure

import (
	"strings"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Walk describes walks for the account of their work.
type Walk struct {
	Rows, Picks int
	Keys        float64 // positions that a row sees, on average
	CacheReads  float64 // how often the keys are read: once by each row, or by each tile of rows of one sequence
	CacheBytes  float64 // of one position, all layers together
}

// Work is what has to be read from memory and computed at least.
type Work struct {
	Bytes float64 // weights and cache; activations stay in caches
	Ops   float64 // a multiplication and an addition are two
	Kind  string  // of the arithmetic: Int8, BF16 or F32
}

// ItemWork is the work of item i of a plan.
func ItemWork(p *plan.Plan, i int, w Walk) Work {
	it := &p.Items[i]
	rows := w.Rows
	if it.Picked {
		rows = w.Picks
	}
	switch it.Do {
	case plan.Matmul:
		m := p.G.Weights[it.W[0]]
		f := p.Formats[it.W[0]]
		n := float64(m.Rows) * float64(m.Cols)
		work := Work{Ops: 2 * n * float64(rows), Kind: kindOfAct(f.Act)}
		if rows > 0 {
			if work.Bytes = float64(walk.PanelsBytes(m.Rows, m.Cols, f)); f.Direct || work.Bytes == 0 {
				work.Bytes = float64(m.Rows) * float64(f.Type.RowBytes(m.Cols))
			}
		}
		return work
	case plan.Attend, plan.AttendChunks:
		c := p.G.Caches[it.Cache]
		heads := float64(it.Op.(graph.Attend).Heads)
		keys := w.Keys
		if c.Window > 0 {
			keys = min(keys, float64(c.Window))
		}
		return Work{Bytes: w.CacheBytes / float64(len(p.G.Caches)) * keys * w.CacheReads, Ops: 2 * heads * float64(c.D+c.Dv) * keys * float64(rows), Kind: F32}
	}
	return Work{Kind: F32}
}

func kindOfAct(a kernel.ActKind) string {
	switch a {
	case kernel.ActQ8, kernel.ActQ8K:
		return Int8
	case kernel.ActBF16:
		return BF16
	}
	return F32
}

// PlanWork adds up a plan: everything that is read, and the operations of its matmuls, which is what peaks are compared with. Kind is the
// kind of most operations.
func PlanWork(p *plan.Plan, w Walk) Work {
	var sum Work
	ops := map[string]float64{}
	for i := range p.Items {
		work := ItemWork(p, i, w)
		sum.Bytes += work.Bytes
		if p.Items[i].Do == plan.Matmul {
			sum.Ops += work.Ops
			ops[work.Kind] += work.Ops
		}
	}
	sum.Kind = F32
	for _, k := range []string{Int8, BF16} {
		if ops[k] > ops[sum.Kind] {
			sum.Kind = k
		}
	}
	return sum
}

// Label names an item without its layer: "ffn_down+residual" for all layers' ones. Barriers are "barrier".
func Label(it *plan.Item) string {
	name := it.Name
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		if _, after, ok := strings.Cut(rest, "."); ok {
			name = after
		}
	}
	switch it.Do {
	case plan.Barrier:
		return "barrier"
	case plan.Matmul, plan.Norm, plan.Rope, plan.SwiGLU:
		return name // says what is done
	}
	if name == it.Do.String() || name == "" {
		return it.Do.String()
	}
	return name + " " + it.Do.String()
}
