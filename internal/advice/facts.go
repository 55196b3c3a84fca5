package advice

import (
	"ck/internal/cost"
	"ck/internal/measure"
)

// factsOf describes the machine.
func factsOf(x Machine) MachineFacts {
	bw, why := x.ReadBandwidth()
	if x.Why != "" {
		why = x.Why
	}
	f := MachineFacts{Name: x.Name, Sockets: x.Sockets, Nodes: x.Nodes, Cores: x.Cores, ISA: x.ISA, Tier: x.Kernels().String(), Read: bw, Why: why,
		Theory: x.TheoryBandwidth(), PeakOps: map[string]float64{}, BoundOps: map[string]float64{}, MemoryCap: x.Limit}
	bound := x.Bound()
	for _, k := range []string{measure.Int8, measure.BF16, measure.F32} {
		f.PeakOps[k], f.BoundOps[k] = x.Peak(x.Kernels(), k, x.Cores), bound.Peak[k]
	}
	return f
}

// memoryOf says what is needed and whether it fits into so many bytes.
func memoryOf(m *cost.Model, mem cost.Memory, limit int64) MemoryFacts {
	f := MemoryFacts{File: mem.File, Panels: mem.Panels, KVPosition: mem.KVPosition, KV: mem.KV, Activations: mem.Activations,
		Need: mem.Need(true), NeedFile: mem.Need(false), Budget: mem.Budget(true), BudgetFile: mem.Budget(false)}
	for _, p := range mem.Parts {
		f.Parts = append(f.Parts, PartFacts(p))
	}
	for _, l := range m.CacheLayouts() {
		f.Layouts = append(f.Layouts, LayoutFacts{l.Layout, l.Heads, l.Bytes})
	}
	if limit > 0 {
		packed, file := f.Budget <= limit, f.BudgetFile <= limit
		f.Fits, f.FileFits = &packed, &file
	}
	return f
}

// placementOf cuts weights and heads over the memory nodes.
func placementOf(m *cost.Model, mem cost.Memory, x Machine) []PlacementFacts {
	_, heads := m.Heads()
	var out []PlacementFacts
	share := func(n, i int) int { return n*(i+1)/x.Nodes - n*i/x.Nodes }
	for i := range x.Nodes {
		p := PlacementFacts{Node: i, Cores: share(x.Cores, i), Weights: mem.Panels / int64(x.Nodes), KV: mem.KV / int64(x.Nodes), Memory: x.Limit / int64(x.Nodes)}
		if heads >= x.Nodes {
			p.KVHeads = share(heads, i)
			p.KV = mem.KV / int64(heads) * int64(p.KVHeads)
		}
		out = append(out, p)
	}
	return out
}

// opsUnit is the unit of a kind's operations, of which a multiplication and an addition are two: floating-point ones, or integer ones.
func opsUnit(kind string) string {
	if kind == measure.Int8 {
		return "OP/s"
	}
	return "FLOP/s"
}
