package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Outer is the gradient of a matrix: out[n][k] = sum over rows of dy[row][n] * x[row][k]. The inputs are dy with rows and columns changed (Turn), and x. The
// sum over the rows of a leaf is one chain; those of leaves are added by a tree. The weight is the matrix itself, whose form says the arithmetic.
type Outer struct{ Leaf int }

func (Outer) Kind() string         { return "outer" }
func (Outer) Needs(int) graph.Need { return graph.AllRows }
func (Outer) Role(int) graph.Role  { return graph.Matrix }

func (o Outer) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 1, 1, 1); err != nil {
		return err
	}
	w, rows := g.Weights[s.W[0]], g.Width(s.In[0])
	if g.Values[s.Out[0]].Space.Fixed != w.Rows || g.Width(s.Out[0]) != w.Cols || g.Values[s.In[0]].Space.Fixed != w.Rows || g.Width(s.In[1]) != w.Cols {
		return fmt.Errorf("%s is [%d, %d]", w.Name, w.Rows, w.Cols)
	}
	if o.Leaf < 1 || rows%o.Leaf != 0 || g.Values[s.In[1]].Space.Fixed != 0 {
		return fmt.Errorf("%d rows in leaves of %d", rows, o.Leaf)
	}
	return nil
}

func (Outer) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(n int, out []float64) {
		for row, dy := range r.Row(s, 0, n) {
			for k, x := range r.Row(s, 1, row) {
				out[k] += dy * x
			}
		}
	})
}

// Realise cuts the columns at panels: of the columns of x, which become panels as they are, with the rows as K.
func (o Outer) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	f, err := b.Format(s.W[0])
	if err != nil {
		return 0, err
	}
	rows := b.Plan.G.Width(s.In[0])
	if f.Direct || f.Act != kernel.ActF32 && f.Act != kernel.ActBF16 {
		return 0, fmt.Errorf("products of %v are for weights of F32 or BF16", f.Type)
	}
	if o.Leaf != rows && o.Leaf%f.GroupK != 0 {
		return 0, fmt.Errorf("leaves of %d rows cut groups of %d", o.Leaf, f.GroupK)
	}
	it := b.Item(i, outer)
	it.In = []plan.Operand{activations(b, s.In[0], f).Whole(), b.At(s.In[1]).Whole()}
	it.Cut = plan.ColCut(b.Plan.G.Width(s.Out[0]), f.PanelRows)
	b.Finish(it, s.Out[0], f.PanelRows)
	return 0, nil
}

var outer = &plan.Kind{Name: "outer", In: 2, Out: 1, Weights: [2]int{1, 1}, Group: plan.Products, Work: func(p *plan.Plan, it *plan.Item, l plan.Load) plan.Work {
	m, f := p.G.Weights[it.W[0]], p.Formats[it.W[0]]
	return plan.Work{Ops: 2 * float64(m.Rows) * float64(m.Cols) * float64(l.Rows), Kind: f.Act.Arithmetic()}
}}

// outerRows is how many rows of a result are made at a time: the sums of leaves that wait for each other stay in the cache.
const outerRows = 256

func runOuter(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(Outer)
	f := w.Slot(it.W[0]).Format
	dy := *w.Act(it.In[0])
	x, wide := w.Floats(it.In[1])
	out, width := w.Floats(it.Out[0])
	rows, leaves, size := w.Rows(it.Space), dy.K/op.Leaf, f.PanelBytes(op.Leaf)
	panels := w.Bytes(leaves * size)
	sums := w.Singles(levels(leaves) * outerRows * f.PanelRows)
	for c := p.C0; c < p.C1; c += f.PanelRows {
		n := min(f.PanelRows, p.C1-c)
		for l := range leaves {
			w.Kernels().PackTurned(f, panels[l*size:(l+1)*size], op.Leaf, n, func(row int) []float32 { return x[(l*op.Leaf+row)*wide+c:] })
		}
		for m0 := 0; m0 < rows && !w.Stopped(); m0 += outerRows {
			m1 := min(m0+outerRows, rows)
			addLeaves(w.Kernels().Add, 0, leaves, sums, outerRows*f.PanelRows, out[m0*width+c:], width, m1-m0, n, func(l int, y []float32, stride int) {
				part := dy
				w.Matmul = kernel.Matmul{W: panels[l*size : (l+1)*size], N: n, K: op.Leaf, K0: l * op.Leaf, Slices: 1, X: rowsOf(&part, m0, m1), M1: m1 - m0, Y: y, YStride: stride}
				f.Matmul(w.Scratch, &w.Matmul)
			})
		}
	}
}

// rowsOf makes a float act that of rows [m0, m1) alone.
func rowsOf(a *kernel.Act, m0, m1 int) *kernel.Act {
	if a.M = m1 - m0; a.Kind == kernel.ActF32 {
		a.F = a.F[m0*a.FS:]
	} else {
		a.H = a.H[m0*a.Kp:]
	}
	return a
}

// levels is how many sums wait while so many leaves, a power of two, are added by their tree.
func levels(leaves int) (n int) {
	for ; leaves > 1; leaves /= 2 {
		n++
	}
	return n
}

// addLeaves makes the tree sum of leaves [lo, hi) in y: rows of n elements, stride apart. leaf makes that of one. Sums that wait lie in room, size floats each.
func addLeaves(add func(dst, a, b []float32), lo, hi int, room []float32, size int, y []float32, stride, rows, n int, leaf func(l int, y []float32, stride int)) {
	if hi-lo == 1 {
		leaf(lo, y, stride)
		return
	}
	mid, right := (lo+hi)/2, room[:rows*n]
	addLeaves(add, lo, mid, room, size, y, stride, rows, n, leaf)
	addLeaves(add, mid, hi, room[size:], size, right, n, rows, n, leaf)
	for r := range rows {
		dst := y[r*stride:][:n]
		add(dst, dst, right[r*n:(r+1)*n])
	}
}
