package step

import (
	"fmt"
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Temper is out = x * (1 + Beta * ln(1 + floor((position + Offset) / Length))): queries of far positions are made larger, so that softmax over many
// keys stays as sharp. (Nakanishi 2025, arXiv:2501.19399; Llama 4, Ministral 3)
type Temper struct {
	Beta           float64
	Length, Offset int
}

func (Temper) Kind() string         { return "temper" }
func (Temper) Needs(int) graph.Need { return graph.SameRow }
func (Temper) Role(int) graph.Role  { return graph.Vector }

// Columns of the output depend on the same ones of every input.
func (Temper) Columns(int) int { return 1 }

func (t Temper) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if t.Length < 1 || t.Offset < 0 || t.Beta-t.Beta != 0 || g.Values[s.In[0]].Space != (graph.Space{}) {
		return fmt.Errorf("a length of %d, an offset of %d, a factor of %v", t.Length, t.Offset, t.Beta)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

// at is the factor at a position.
func (t Temper) at(pos int32) float64 {
	return 1 + t.Beta*math.Log(1+math.Floor(float64(int(pos)+t.Offset)/float64(t.Length)))
}

func (t Temper) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		f := t.at(r.In.Pos[row])
		for i, x := range r.Row(s, 0, row) {
			out[i] = x * f
		}
	})
}

func (Temper) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, temper)
	return 0, nil
}

var temper = &plan.Kind{Name: "temper", In: 1, Out: 1, Ops: 40, InPlace: anyInput}

func runTemper(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	for r := p.R0; r < p.R1; r++ {
		i, j := r*width+p.C0, r*width+p.C1
		w.Kernels().Scale(out[i:j], in[i:j], float32(it.Op.(Temper).at(w.Batch().Pos[r])))
	}
}

// Backward multiplies by the same factors.
func (t Temper) Backward(tape *graph.Tape, s *graph.Step) error {
	v := s.In[0]
	tape.Give(v, tape.Do(t, "d."+s.Name, tape.G.Width(v), tape.G.Values[v].Space, []graph.ValueID{must(tape, s)})[0])
	return nil
}
