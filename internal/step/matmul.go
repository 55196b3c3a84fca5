package step

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Matmul is out[row][n] = sum over k of W[n][k] * x[row][k] (+ bias[n], the second weight).
//
// Slices is a property of the model's shape, not of a machine: the sum over K is taken as Slices equal parts, each one chain in
// ascending K, added as a fixed tree ((s0+s1)+(s2+s3))+…; so the K of attention output and FFN down can belong to nodes without
// changing a bit (Slices rule: SlicesFor).
type Matmul struct{ Slices int }

func (Matmul) Kind() string         { return "matmul" }
func (Matmul) Needs(int) graph.Need { return graph.SameRow }

func (m Matmul) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 1, 2); err != nil {
		return err
	}
	w := g.Weights[s.W[0]]
	if w.Cols != g.Width(s.In[0]) || w.Rows != g.Width(s.Out[0]) {
		return fmt.Errorf("%s is [%d, %d], input %d wide, output %d", w.Name, w.Rows, w.Cols, g.Width(s.In[0]), g.Width(s.Out[0]))
	}
	if len(s.W) == 2 {
		if b := g.Weights[s.W[1]]; b.Rows != 1 || b.Cols != w.Rows {
			return fmt.Errorf("bias %s is [%d, %d], %d outputs", b.Name, b.Rows, b.Cols, w.Rows)
		}
	}
	if m.Slices < 1 || w.Cols%m.Slices != 0 {
		return fmt.Errorf("%d slices of %d elements", m.Slices, w.Cols)
	}
	return nil
}

func (Matmul) Ref(r *graph.Ref, s *graph.Step) {
	w := r.G.Weights[s.W[0]]
	var bias []float64
	if len(s.W) == 2 {
		bias = r.Vector(s.W[1])
	}
	// Weight rows are dealt to the CPUs, for the sake of tests with large shapes; every output is computed by one of them.
	var wg sync.WaitGroup
	workers := min(runtime.NumCPU(), max(1, w.Rows*w.Cols>>16))
	for i := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			wr := make([]float64, w.Cols)
			for n := w.Rows * i / workers; n < w.Rows*(i+1)/workers; n++ {
				r.Weight(s.W[0], n, wr)
				r.Each(s, 0, func(row int, out []float64) {
					out[n] = dot64(wr, r.Row(s, 0, row))
					if bias != nil {
						out[n] += bias[n]
					}
				})
			}
		}()
	}
	wg.Wait()
}

// dot64 is the sum of a[i]*b[i], in four chains for the sake of test time.
func dot64(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + s2 + s3
}

// SlicesFor is the number of K slices of a projection whose K belongs to nodes: the largest power of two ≤ 8 for which slices
// are equal, whole blocks of 256, and, where groups > 0, whole groups (heads that share a KV head); else 1.
func SlicesFor(k, groups int) int {
	for s := 8; s > 1; s /= 2 {
		if k%(256*s) == 0 && groups%s == 0 {
			return s
		}
	}
	return 1
}

// SliceCount is the number of slices of K, for Explain.
func (m Matmul) SliceCount() int { return m.Slices }

// Role of the second weight, the bias, is a vector.
func (Matmul) Role(i int) graph.Role {
	if i == 0 {
		return graph.Matrix
	}
	return graph.Vector
}

// Realise cuts output columns at panel edges. Where the next step adds a residual and nobody else reads the product, the sum is
// made in the epilogue: the same operation on the same numbers.
func (m Matmul) Realise(b *plan.Builder, i int) (int, error) {
	g, s := b.Plan.G, b.Step(i)
	f, err := b.Format(s.W[0])
	if err != nil {
		return 0, err
	}
	if cols := g.Weights[s.W[0]].Cols; m.Slices > 1 && cols/m.Slices%f.GroupK != 0 {
		return 0, fmt.Errorf("slices of %d elements cut groups of %d", cols/m.Slices, f.GroupK)
	}
	it := b.Item(i, matmul)
	it.In = []plan.Operand{activations(b, s.In[0], f)}
	out, more := s.Out[0], 0
	if i+1 < len(g.Steps) && b.Uses(out) == 1 && !b.Machine.Separate {
		next := &g.Steps[i+1]
		if _, ok := next.Op.(Add); ok && next.In[1] == out && next.In[0] != out {
			it.Add, it.Steps, more = true, []int{i, i + 1}, 1
			out = next.Out[0]
			it.Name += "+residual"
		}
	}
	unit := m.unit(b, i, f)
	it.Cut = plan.ColCut(g.Width(out), unit)
	if it.Add {
		it.In = append(it.In, b.At(g.Steps[i+1].In[0]).Cols(unit))
	}
	b.Finish(it, out, unit)
	return more, nil
}

// unit chooses the columns per unit: whole KV heads for q, k, v where panels allow it and heads divide over the workers, so
// that for few rows everything up to attention stays with one worker; blocks of QuantGrain where there are enough of them, so that
// activation and quantization need no barrier; else single panels.
func (Matmul) unit(b *plan.Builder, i int, f *kernel.Format) int {
	s := b.Step(i)
	width, workers, panel := b.Plan.G.Width(s.Out[0]), b.Machine.Workers, f.PanelRows
	if b.Machine.Separate {
		return panel
	}
	if c, ok := headsOf(b.Plan.G, s.Out[0], i); ok && width%c == 0 {
		if unit := width / c; unit%panel == 0 && c%workers == 0 {
			return unit
		}
	}
	const grain = plan.QuantGrain
	if n := width / grain; grain%panel == 0 && (n >= 16*workers || n%workers == 0 && n > 0 && width%grain == 0) {
		return grain
	}
	return panel
}

// headsOf finds the number of KV heads if value v goes, through norms and rotations only, into an attention step.
func headsOf(g *graph.Graph, v graph.ValueID, from int) (int, bool) {
	for i := from + 1; i < len(g.Steps); i++ {
		s := &g.Steps[i]
		if !slices.Contains(s.In, v) {
			continue
		}
		switch op := s.Op.(type) {
		case Norm:
			if op.Group == 0 {
				return 0, false
			}
			v = s.Out[0]
		case Rotate, Scale:
			v = s.Out[0]
		case Attend:
			return g.Caches[op.Cache].KVHeads, true
		default:
			return 0, false
		}
	}
	return 0, false
}

// matmul multiplies panels with activations, with bias and residual where they are fused.
var matmul = &plan.Kind{Name: "matmul", In: 1, Out: 1, Weights: [2]int{1, 2}, Group: plan.Products, Named: true, Shared: true,
	InPlace: func(it *plan.Item, in int) bool { return it.Add && in == 1 },
	Work: func(p *plan.Plan, it *plan.Item, l plan.Load) plan.Work {
		m, f := p.G.Weights[it.W[0]], p.Formats[it.W[0]]
		rows := l.RowsOf(it)
		work := plan.Work{Ops: 2 * float64(m.Rows) * float64(m.Cols) * float64(rows), Kind: f.Act.Arithmetic()}
		if rows > 0 {
			if work.Bytes = float64(walk.PanelsBytes(m, f)); f.Direct || work.Bytes == 0 {
				work.Bytes = float64(m.Rows) * float64(f.Type.RowBytes(m.Cols))
			}
		}
		return work
	},
}

// runMatmul computes output columns [p.C0, p.C1) of all rows, C0 at a panel's edge.
func runMatmul(w *walk.Worker, it *plan.Item, p plan.Rect) {
	rows := w.Rows(it.Space)
	out, width := w.Floats(it.Out[0])
	s := w.Slot(it.W[0])
	m := &w.Matmul
	*m = kernel.Matmul{N: p.C1 - p.C0, K: s.Cols, Slices: it.Op.(Matmul).Slices, M1: rows, Y: out[p.C0:], YStride: width, Add: it.Add}
	var bias []float32
	if len(it.W) == 2 {
		bias = w.Vector(it.W[1])
		m.Bias = bias[p.C0:p.C1]
	}
	if it.Add {
		if res, _ := w.Floats(it.In[1]); &res[0] != &out[0] { // others still read the residual: it has a buffer of its own
			for r := range rows {
				copy(out[r*width+p.C0:r*width+p.C1], res[r*width+p.C0:])
			}
		}
	}
	m.X = w.Act(it.In[0])
	if s.Format.Direct {
		m.Row = w.FileRows(s, p.C0)
		s.Format.Matmul(w.Scratch, m)
		return
	}
	pr := s.Format.PanelRows
	w.Panels(s, p.C0/pr, (p.C1+pr-1)/pr, func(from, to int, panels []byte) {
		n0 := from * pr
		m.W, m.N, m.Y = panels, min(to*pr, p.C1)-n0, out[n0:]
		if bias != nil {
			m.Bias = bias[n0 : n0+m.N]
		}
		s.Format.Matmul(w.Scratch, m)
	})
}
