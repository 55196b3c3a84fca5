package step

import (
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Activation is the function of a gate.
type Activation uint8

const (
	SiLU Activation = iota // x / (1 + e^-x)
	GELU                   // x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), the tanh form of Hendrycks and Gimpel 2016, arXiv:1606.08415
	// Clamped is that of gpt-oss (OpenAI 2025, arXiv:2508.10925): x / (1 + e^-1.702x) of a gate that is 7 at most, times 1 + up, up kept within 7.
	Clamped
)

// The constants of Clamped.
const (
	clampLimit = 7
	clampSlope = 1.702
)

func (a Activation) String() string { return [...]string{"silu", "gelu", "clamped"}[a] }

// ref is the gated unit in float64.
func (a Activation) ref(x, up float64) float64 {
	switch a {
	case GELU:
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) * up
	case Clamped:
		x, up = min(x, clampLimit), min(max(up, -clampLimit), clampLimit)
		return x / (1 + math.Exp(-clampSlope*x)) * (1 + up)
	}
	return x / (1 + math.Exp(-x)) * up
}

// GLU is out = Act(gate) * up, or what Clamped says: the gated linear unit. (Shazeer 2020, arXiv:2002.05202)
type GLU struct{ Act Activation }

func (u GLU) Kind() string       { return u.Act.String() + "-mul" }
func (GLU) Needs(int) graph.Need { return graph.SameRow }
func (GLU) Role(int) graph.Role  { return graph.Vector }

// Columns of the output depend on the same ones of every input.
func (GLU) Columns(int) int { return 1 }

func (GLU) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 1, 0, 0); err != nil {
		return err
	}
	return g.SameWidth(s.In[0], s.In[1], s.Out[0])
}

func (u GLU) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		gate, up := r.Row(s, 0, row), r.Row(s, 1, row)
		for i := range out {
			out[i] = u.Act.ref(gate[i], up[i])
		}
	})
}

func (u GLU) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, [...]*plan.Kind{SiLU: siluMul, GELU: geluMul, Clamped: clampedMul}[u.Act])
	return 0, nil
}

var (
	siluMul = &plan.Kind{Name: "silu-mul", In: 2, Out: 1, Named: true, Ops: 85, InPlace: anyInput}
	geluMul = &plan.Kind{Name: "gelu-mul", In: 2, Out: 1, Named: true, Ops: 85, InPlace: anyInput}
	// clampedMul is silu-mul of 1.702 * gate and (1 + up) / 1.702.
	clampedMul = &plan.Kind{Name: "clamped-mul", In: 2, Out: 1, Named: true, Ops: 250, InPlace: anyInput}
)

func runSiLUMul(w *walk.Worker, it *plan.Item, p plan.Rect) {
	each(w, it, p, func(out, gate, up []float32) { w.Kernels().SiLUMul(out, gate, up) })
}

func runGELUMul(w *walk.Worker, it *plan.Item, p plan.Rect) {
	each(w, it, p, func(out, gate, up []float32) { w.Kernels().GELUMul(out, gate, up) })
}

func runClampedMul(w *walk.Worker, it *plan.Item, p plan.Rect) {
	each(w, it, p, func(out, gate, up []float32) {
		var g, u [256]float32
		for len(out) > 0 {
			n := min(len(out), len(g))
			for i := range n {
				g[i] = clampSlope * min(gate[i], clampLimit)
				u[i] = (1 + min(max(up[i], -clampLimit), clampLimit)) * float32(1/clampSlope)
			}
			w.Kernels().SiLUMul(out[:n], g[:n], u[:n])
			out, gate, up = out[n:], gate[n:], up[n:]
		}
	})
}

func (u GLU) Backward(t *graph.Tape, s *graph.Step) error {
	var out []graph.ValueID
	for _, v := range s.In {
		out = append(out, t.Value("d."+t.G.Values[v].Name, t.G.Width(v), t.G.Values[v].Space))
	}
	t.G.Add(GLUGrad(u), s.Name, []graph.ValueID{s.In[0], s.In[1], must(t, s)}, out)
	t.Give(s.In[0], out[0])
	t.Give(s.In[1], out[1])
	return nil
}
