package step

import (
	"cmp"
	"fmt"
	"slices"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// EmbedGrad is the gradient of an embedding: out[token] = Scale * sum of in over the rows of that token, within a leaf in the order of the rows, leaves by a
// tree.
type EmbedGrad struct {
	Scale float32
	Leaf  int
}

func (EmbedGrad) Kind() string         { return "embed-grad" }
func (EmbedGrad) Needs(int) graph.Need { return graph.AllRows }
func (EmbedGrad) Role(int) graph.Role  { return graph.Vector }

func (e EmbedGrad) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if n := g.Values[s.Out[0]].Space.Fixed; n < g.Vocab || e.Leaf < 1 {
		return fmt.Errorf("%d rows for %d tokens", n, g.Vocab)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (e EmbedGrad) by() float32 {
	if e.Scale == 0 {
		return 1
	}
	return e.Scale
}

func (e EmbedGrad) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(token int, out []float64) {
		for row, id := range r.In.IDs {
			if int(id) == token {
				for k, x := range r.Row(s, 0, row) {
					out[k] += float64(e.by()) * x
				}
			}
		}
	})
}

func (EmbedGrad) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, embedGrad)
	it.Cut = plan.ColCut(b.Plan.G.Width(s.Out[0]), sumGrain)
	it.In = []plan.Operand{b.At(s.In[0]).Cols(sumGrain)}
	b.Finish(it, s.Out[0], sumGrain)
	return 0, nil
}

var embedGrad = &plan.Kind{Name: "embed-grad", In: 1, Out: 1, Ops: 100}

func runEmbedGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(EmbedGrad)
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	n, ids := p.C1-p.C0, w.Batch().IDs
	for t := range w.Rows(it.Space) {
		clear(out[t*width+p.C0:][:n])
	}
	order := w.Ints(len(ids))
	for r := range order {
		order[r] = int32(r)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(ids[a], ids[b]), cmp.Compare(a, b)) })
	leaves := max(1, len(ids)/op.Leaf)
	room := w.Singles(levels(leaves) * n)
	for i := 0; i < len(order) && !w.Stopped(); {
		j, id := i, ids[order[i]]
		for j < len(order) && ids[order[j]] == id {
			j++
		}
		rows := order[i:j]
		addLeaves(w.Kernels().Add, 0, leaves, room, n, out[int(id)*width+p.C0:][:n], n, 1, n, func(l int, y []float32, _ int) {
			clear(y)
			for _, r := range rows {
				if int(r)/op.Leaf == l {
					w.Kernels().AddScaled(y, in[int(r)*width+p.C0:][:n], op.by())
				}
			}
		})
		i = j
	}
}
