package step

import (
	"fmt"
	"unsafe"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Turn changes rows and columns: out[k][row] = in[row][k]. The output has a fixed number of rows, the width of the input, and an element for each row of
// the walk.
type Turn struct{}

func (Turn) Kind() string         { return "turn" }
func (Turn) Needs(int) graph.Need { return graph.AllRows }
func (Turn) Role(int) graph.Role  { return graph.Vector }

func (Turn) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if n := g.Values[s.Out[0]].Space.Fixed; n != g.Width(s.In[0]) {
		return fmt.Errorf("%d rows of %d columns", n, g.Width(s.In[0]))
	}
	return nil
}

func (Turn) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(k int, out []float64) {
		for row := range out {
			out[row] = r.Row(s, 0, row)[k]
		}
	})
}

// Realise cuts the output by rows, in blocks of a cache line of the input.
func (Turn) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, turn)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Whole()}
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

var turn = &plan.Kind{Name: "turn", In: 1, Out: 1, Ops: 60}

func runTurn(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, rows := w.Floats(it.Out[0])
	f := w.Kernels().Plain()
	const block = 64 // rows of a panel, which is the transpose of them
	panel := w.Singles(block * block)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&panel[0])), 4*len(panel))
	for k := p.R0; k < p.R1 && !w.Stopped(); k += block {
		n := min(block, p.R1-k)
		for r0 := 0; r0 < rows; r0 += block {
			m := min(block, rows-r0)
			f.Pack(bytes[:f.PanelBytes(n)], n, m, func(r int) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&in[(r0+r)*width+k])), 4*n) })
			for i := range n {
				copy(out[(k+i)*rows+r0:][:m], panel[i*block:])
			}
		}
	}
}
