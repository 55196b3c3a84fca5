package step

import (
	"fmt"
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Softcap is out = Cap * tanh(x / Cap), which keeps values within Cap (Gemma team 2024, arXiv:2408.00118, section 2). An infinity has no result
// that says what happened: it becomes NaN.
type Softcap struct{ Cap float32 }

func (Softcap) Kind() string         { return "softcap" }
func (Softcap) Needs(int) graph.Need { return graph.SameRow }

func (c Softcap) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if !(c.Cap > 0) || math.IsInf(float64(c.Cap), 0) {
		return fmt.Errorf("a cap of %g", c.Cap)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (c Softcap) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		for i, x := range r.Row(s, 0, row) {
			out[i] = softcap(x, float64(c.Cap))
		}
	})
}

// softcap is bound * tanh(x / bound).
func softcap(x, bound float64) float64 {
	if x-x != 0 {
		return math.NaN()
	}
	return bound * math.Tanh(x/bound)
}

func (Softcap) Role(int) graph.Role { return graph.Vector }

// Columns of the output depend on the same ones of every input.
func (Softcap) Columns(int) int { return 1 }

func (Softcap) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, bounded)
	return 0, nil
}

// bounded keeps values within the cap; its cost is stated: about SiLU's.
var bounded = &plan.Kind{Name: "softcap", In: 1, Out: 1, Ops: 90, InPlace: anyInput}

func runSoftcap(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	bound := it.Op.(Softcap).Cap
	for r := p.R0; r < p.R1; r++ {
		row := out[r*width+p.C0 : r*width+p.C1]
		copy(row, in[r*width+p.C0:])
		w.Kernels().Softcap(w.Attn, row, bound)
	}
}

func (c Softcap) Backward(t *graph.Tape, s *graph.Step) error {
	v := s.In[0]
	t.Give(v, t.Do(SoftcapGrad(c), "d."+s.Name, t.G.Width(v), t.G.Values[v].Space, []graph.ValueID{s.Out[0], must(t, s)})[0])
	return nil
}
