package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Embed looks the rows' tokens up: out[row] = W[token] * Scale. W is [vocabulary, hidden].
type Embed struct{ Scale float32 }

func (Embed) Kind() string         { return "embed" }
func (Embed) Needs(int) graph.Need { return graph.SameRow }

func (Embed) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(0, 1, 1, 1); err != nil {
		return err
	}
	if w := g.Weights[s.W[0]]; w.Cols != g.Width(s.Out[0]) {
		return fmt.Errorf("embedding rows have %d elements, the value %d", w.Cols, g.Width(s.Out[0]))
	} else if w.Rows < g.Vocab {
		return fmt.Errorf("%d embeddings for %d tokens", w.Rows, g.Vocab)
	}
	return nil
}

func (e Embed) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		r.Weight(s.W[0], int(r.In.IDs[row]), out)
		if e.Scale != 0 {
			for i := range out {
				out[i] *= float64(e.Scale)
			}
		}
	})
}

func (Embed) Role(int) graph.Role { return graph.Lookup }

func (Embed) Realise(b *plan.Builder, i int) (int, error) {
	it := b.Item(i, embed)
	it.Cut = plan.Cut{By: plan.Rows}
	b.Finish(it, b.Step(i).Out[0], 0)
	return 0, nil
}

// embed decodes rows of the file form.
var embed = &plan.Kind{Name: "embed", Out: 1, Weights: [2]int{1, 1},
	Elements: func(p *plan.Plan, it *plan.Item) plan.Elements { return plan.Elements{N: p.Width(it.Out), Ops: 230} },
}

func runEmbed(w *walk.Worker, it *plan.Item, p plan.Rect) {
	out, width := w.Floats(it.Out[0])
	decode, scale := w.Lookup(it.W[0]), it.Op.(Embed).Scale
	for r := p.R0; r < p.R1 && !w.Stopped(); r++ {
		row := out[r*width : (r+1)*width]
		decode(int(w.Batch().IDs[r]), row)
		if scale != 0 {
			w.Kernels().Scale(row, row, scale)
		}
	}
}

func (e Embed) Backward(t *graph.Tape, s *graph.Step) error {
	d, w := must(t, s), s.W[0]
	t.GiveWeight(w, t.Do(EmbedGrad{e.Scale, t.Leaf}, "d."+t.G.Weights[w].Name, t.G.Width(d), t.OfWeight(w), []graph.ValueID{d})[0])
	return nil
}
