package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// SumRows is the gradient of a bias: out[0][k] = sum over rows of in[row][k]. Rows are summed in blocks of 64, these by a tree within a leaf, leaves by a
// tree.
type SumRows struct{ Leaf int }

func (SumRows) Kind() string         { return "sum-rows" }
func (SumRows) Needs(int) graph.Need { return graph.AllRows }
func (SumRows) Role(int) graph.Role  { return graph.Vector }

func (c SumRows) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if g.Values[s.Out[0]].Space != (graph.Space{Fixed: 1}) || c.Leaf < 1 {
		return fmt.Errorf("a sum of %d rows, leaves of %d", g.Values[s.Out[0]].Space.Fixed, c.Leaf)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (SumRows) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(_ int, out []float64) {
		for _, row := range r.Vals[s.In[0]] {
			for k, x := range row {
				out[k] += x
			}
		}
	})
}

func (SumRows) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, sumRows)
	it.Cut = plan.ColCut(b.Plan.G.Width(s.Out[0]), sumGrain)
	it.In = []plan.Operand{b.At(s.In[0]).Cols(sumGrain)}
	b.Finish(it, s.Out[0], sumGrain)
	return 0, nil
}

// sumGrain is how many columns of a sum over rows belong together: lines.
const sumGrain = 64

var sumRows = &plan.Kind{Name: "sum-rows", In: 1, Out: 1, Ops: 40}

func runSumRows(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	n := p.C1 - p.C0
	overRows(w, w.Rows(w.Space(it.In[0])), it.Op.(SumRows).Leaf, out[p.C0:p.C1], func(r int, sum []float32) {
		w.Kernels().Add(sum, sum, in[r*width+p.C0:][:n])
	})
}

// rowBlock is how many rows are summed in one chain.
const rowBlock = 64

// overRows sums what each of so many rows adds, to y: blocks of rows in a chain, blocks of a leaf by a tree, leaves by a tree.
func overRows(w *walk.Worker, rows, leaf int, y []float32, add func(r int, sum []float32)) {
	n, leaves := len(y), max(1, rows/leaf)
	blocks := (leaf + rowBlock - 1) / rowBlock
	room := w.Singles((levels(leaves) + levels(2*blocks) + 1) * n)
	deep := room[levels(leaves)*n:]
	addLeaves(w.Kernels().Add, 0, leaves, room, n, y, n, 1, n, func(l int, y []float32, _ int) {
		addBlocks(w, 0, blocks, deep, y, func(b int, sum []float32) {
			clear(sum)
			for r := b * rowBlock; r < min((b+1)*rowBlock, leaf); r++ {
				add(l*leaf+r, sum)
			}
		})
	})
}

// addBlocks makes the sum of blocks [lo, hi), cut in halves of which the first is the larger, in y.
func addBlocks(w *walk.Worker, lo, hi int, room, y []float32, block func(b int, sum []float32)) {
	if hi-lo == 1 {
		block(lo, y)
		return
	}
	n, mid := len(y), (lo+hi+1)/2
	addBlocks(w, lo, mid, room, y, block)
	addBlocks(w, mid, hi, room[n:], room[:n], block)
	w.Kernels().Add(y, y, room[:n])
}
