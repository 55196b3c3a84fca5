package step

import (
	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// actKey names a value's activations in one form among what a plan makes once.
type actKey struct {
	v    graph.ValueID
	kind kernel.ActKind
}

// activations is the operand of value v in the form that weights of format f ask for. The item that makes it is emitted at its first use.
func activations(b *plan.Builder, v graph.ValueID, f *kernel.Format) plan.Operand {
	if f.Act == kernel.ActF32 {
		return b.At(v).Share(b.Split(v))
	}
	a := b.Once(actKey{v, f.Act}, func() []plan.Operand {
		g := b.Plan.G.Values[v]
		a := b.Buffer(plan.Buffer{Name: g.Name + "." + f.Act.String(), Width: g.Width, Act: true, Kind: f.Act, Space: g.Space})
		cut, unit := b.RowCut(v, plan.QuantGrain, b.Split(v))
		b.Emit(plan.Item{Do: quantize, Name: g.Name, In: []plan.Operand{b.At(v).Cols(unit)}, Out: []plan.Operand{a.Cols(unit)}, Cut: cut, Space: g.Space})
		return []plan.Operand{a}
	})[0]
	b.Plan.Bufs[a.Buf].Sums |= f.Sums
	return a.Share(b.Split(v))
}

// quantize writes activations in the form that matmuls read.
var quantize = &plan.Kind{Name: "quantize", In: 1, Out: 1,
	Elements: func(p *plan.Plan, it *plan.Item) plan.Elements {
		n := p.Width(it.Out)
		return plan.Elements{N: n, Ops: quantizeOps[p.Bufs[it.Out[0].Buf].Kind], Moved: 6 * n}
	},
}

// quantizeOps is what an element takes by what is made of it (see plan.Elements).
var quantizeOps = map[kernel.ActKind]float64{kernel.ActQ8: 150, kernel.ActQ8K: 100, kernel.ActBF16: 60}

func runQuantize(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	w.Kernels().QuantizeRows(w.Act(it.Out[0]), p.R0, p.R1, p.C0, p.C1, in[p.R0*width:], width)
}
