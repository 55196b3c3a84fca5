package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Scale is out = By * x. A weight [1], if there is one, multiplies as well; a second one, of the row's width, is added to the product.
type Scale struct{ By float32 }

func (Scale) Kind() string         { return "scale" }
func (Scale) Needs(int) graph.Need { return graph.SameRow }
func (Scale) Role(int) graph.Role  { return graph.Vector }

// Columns of the output depend on the same ones of every input.
func (Scale) Columns(int) int { return 1 }

func (c Scale) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 2); err != nil {
		return err
	}
	if c.By-c.By != 0 {
		return fmt.Errorf("a factor of %v", c.By)
	}
	if len(s.W) > 0 {
		if w := g.Weights[s.W[0]]; w.Rows != 1 || w.Cols != 1 {
			return fmt.Errorf("%s is [%d, %d], expected one element", w.Name, w.Rows, w.Cols)
		}
	}
	if len(s.W) > 1 {
		if w := g.Weights[s.W[1]]; w.Rows != 1 || w.Cols != g.Width(s.Out[0]) {
			return fmt.Errorf("bias %s is [%d, %d], rows have %d elements", w.Name, w.Rows, w.Cols, g.Width(s.Out[0]))
		}
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (c Scale) Ref(r *graph.Ref, s *graph.Step) {
	by := float64(c.By)
	if len(s.W) > 0 {
		by *= r.Vector(s.W[0])[0]
	}
	var bias []float64
	if len(s.W) > 1 {
		bias = r.Vector(s.W[1])
	}
	r.Each(s, 0, func(row int, out []float64) {
		for i, x := range r.Row(s, 0, row) {
			out[i] = x * by
			if bias != nil {
				out[i] += bias[i]
			}
		}
	})
}

func (Scale) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, scale)
	return 0, nil
}

var scale = &plan.Kind{Name: "scale", In: 1, Out: 1, Weights: [2]int{0, 2}, Ops: 40, InPlace: anyInput}

func runScale(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	by := it.Op.(Scale).By
	if len(it.W) > 0 {
		by *= w.Vector(it.W[0])[0]
	}
	for r := p.R0; r < p.R1; r++ {
		i, j := r*width+p.C0, r*width+p.C1
		w.Kernels().Scale(out[i:j], in[i:j], by)
		if len(it.W) > 1 {
			w.Kernels().Add(out[i:j], out[i:j], w.Vector(it.W[1])[p.C0:p.C1])
		}
	}
}

func (c Scale) Backward(t *graph.Tape, s *graph.Step) error {
	v, d := s.In[0], must(t, s)
	give := func(w graph.WeightID, d graph.ValueID) {
		t.GiveWeight(w, t.Do(SumRows{t.Leaf}, "d."+t.G.Weights[w].Name, t.G.Width(d), t.OfWeight(w), []graph.ValueID{d})[0])
	}
	if len(s.W) > 0 && t.Trains(s.W[0]) {
		give(s.W[0], t.Do(RowDot(c), "d."+s.Name+".rows", 1, t.G.Values[v].Space, []graph.ValueID{v, d})[0])
	}
	if len(s.W) > 1 && t.Trains(s.W[1]) {
		give(s.W[1], d)
	}
	if t.Needs(v) {
		t.Give(v, t.Do(c, "d."+s.Name, t.G.Width(v), t.G.Values[v].Space, []graph.ValueID{d}, s.W[:min(len(s.W), 1)]...)[0])
	}
	return nil
}
