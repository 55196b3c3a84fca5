package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Outer is the gradient of a matrix: out[n][k] = sum over rows of dy[row][n] * x[row][k]. The inputs are dy with rows and columns changed (Turn), and x. The
// sum over the rows of a leaf is one chain, or a chain for every Part rows of it, which are added one after the other; those of leaves are added by a tree. The
// weight is the matrix itself, whose form says the arithmetic. A third input is what the sum goes on from: all rows are of one leaf then.
type Outer struct{ Leaf, Part int }

func (Outer) Kind() string        { return "outer" }
func (Outer) Role(int) graph.Role { return graph.Matrix }

func (Outer) Needs(i int) graph.Need {
	if i == 2 {
		return graph.SameRow
	}
	return graph.AllRows
}

func (o Outer) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(max(2, min(len(s.In), 3)), 1, 1, 1); err != nil {
		return err
	}
	w, rows := g.Weights[s.W[0]], g.Width(s.In[0])
	if len(s.In) > 2 && (rows != o.Leaf || g.Values[s.In[2]].Space != g.Values[s.Out[0]].Space || g.Width(s.In[2]) != w.Cols) {
		return fmt.Errorf("%s is no sum that %d rows of one leaf go on from", g.Values[s.In[2]].Name, rows)
	}
	if g.Values[s.Out[0]].Space.Fixed != w.Rows || g.Width(s.Out[0]) != w.Cols || g.Values[s.In[0]].Space.Fixed != w.Rows || g.Width(s.In[1]) != w.Cols {
		return fmt.Errorf("%s is [%d, %d]", w.Name, w.Rows, w.Cols)
	}
	if fixed := g.Values[s.In[1]].Space.Fixed; o.Leaf < 1 || o.Part < 0 || rows%o.Leaf != 0 || fixed != 0 && fixed != rows {
		return fmt.Errorf("%d rows in leaves of %d", rows, o.Leaf)
	}
	return nil
}

func (Outer) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(n int, out []float64) {
		if len(s.In) > 2 {
			copy(out, r.Row(s, 2, n))
		}
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
	if o.Part > 0 && o.Part < o.Leaf && o.Part%f.GroupK != 0 {
		return 0, fmt.Errorf("parts of %d rows cut groups of %d", o.Part, f.GroupK)
	}
	it := b.Item(i, outer)
	it.In = []plan.Operand{activations(b, s.In[0], f).Whole(), b.At(s.In[1]).Whole()}
	if len(s.In) > 2 {
		it.Do, it.In = outerOnto, append(it.In, b.At(s.In[2]).Cols(f.PanelRows))
	}
	it.Cut = plan.ColCut(b.Plan.G.Width(s.Out[0]), f.PanelRows)
	b.Finish(it, s.Out[0], f.PanelRows)
	return 0, nil
}

// outerOnto goes on from a sum.
var (
	outer     = &plan.Kind{Name: "outer", In: 2, Out: 1, Weights: [2]int{1, 1}, Group: plan.Products, Work: outerWork}
	outerOnto = &plan.Kind{Name: "outer-onto", In: 3, Out: 1, Weights: [2]int{1, 1}, Group: plan.Products, Work: outerWork,
		InPlace: func(_ *plan.Item, in int) bool { return in == 2 }}
)

func outerWork(p *plan.Plan, it *plan.Item, _ plan.Load) plan.Work {
	m, f := p.G.Weights[it.W[0]], p.Formats[it.W[0]]
	return plan.Work{Ops: 2 * float64(m.Rows) * float64(m.Cols) * float64(p.Bufs[it.In[0].Buf].Width), Kind: f.Act.Arithmetic()}
}

// outerRows is how many rows of a result are made at a time: the sums of leaves that wait for each other stay in the cache.
const outerRows = 256

func runOuter(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(Outer)
	f := w.Slot(it.W[0]).Format
	dy := *w.Act(it.In[0])
	x, wide := w.Floats(it.In[1])
	out, width := w.Floats(it.Out[0])
	part := op.Leaf
	if op.Part > 0 {
		part = min(part, op.Part)
	}
	rows, leaves, size := w.Rows(it.Space), dy.K/op.Leaf, op.Leaf/part*f.PanelBytes(part)+f.PanelBytes(op.Leaf%part)
	if len(it.In) > 2 {
		if before, _ := w.Floats(it.In[2]); &before[0] != &out[0] { // somebody still reads it
			for r := range rows {
				copy(out[r*width+p.C0:r*width+p.C1], before[r*width+p.C0:])
			}
		}
	}
	panels := w.Bytes(leaves * size)
	sums := w.Singles(levels(leaves) * outerRows * f.PanelRows)
	for c := p.C0; c < p.C1; c += f.PanelRows {
		n := min(f.PanelRows, p.C1-c)
		parts := func(l int, use func(r, k int, panel []byte)) { // of a leaf: rows [r, r+k) of the walk
			to := panels[l*size:]
			for r := 0; r < op.Leaf; r += part {
				k := min(part, op.Leaf-r)
				use(l*op.Leaf+r, k, to[:f.PanelBytes(k)])
				to = to[f.PanelBytes(k):]
			}
		}
		for l := range leaves {
			parts(l, func(r, k int, panel []byte) {
				w.Kernels().PackTurned(f, panel, k, n, func(row int) []float32 { return x[(r+row)*wide+c:] })
			})
		}
		for m0 := 0; m0 < rows && !w.Stopped(); m0 += outerRows {
			m1 := min(m0+outerRows, rows)
			addLeaves(w.Kernels().Add, 0, leaves, sums, outerRows*f.PanelRows, out[m0*width+c:], width, m1-m0, n, func(l int, y []float32, stride int) {
				parts(l, func(r, k int, panel []byte) {
					act := dy
					w.Matmul = kernel.Matmul{W: panel, N: n, K: k, K0: r, Slices: 1, X: rowsOf(&act, m0, m1), M1: m1 - m0, Y: y, YStride: stride,
						Add: r > l*op.Leaf || len(it.In) > 2}
					f.Matmul(w.Scratch, &w.Matmul)
				})
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
