package step

import (
	"fmt"
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// GLUGrad is the gradient of GLU by gate and up. Inputs: gate, up, and that of the result.
type GLUGrad struct{ Act Activation }

func (u GLUGrad) Kind() string       { return u.Act.String() + "-mul-grad" }
func (GLUGrad) Needs(int) graph.Need { return graph.SameRow }
func (GLUGrad) Role(int) graph.Role  { return graph.Vector }

func (GLUGrad) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(3, 2, 0, 0); err != nil {
		return err
	}
	return g.SameWidth(s.In[0], s.In[1], s.In[2], s.Out[0], s.Out[1])
}

// slopes are the derivatives of the gated unit by gate and by up.
func (a Activation) slopes(x, up float64) (byGate, byUp float64) {
	switch a {
	case GELU:
		c := math.Sqrt(2 / math.Pi)
		th := math.Tanh(c * (x + 0.044715*x*x*x))
		return ((1+th)/2 + x/2*(1-th*th)*c*(1+3*0.044715*x*x)) * up, x / 2 * (1 + th)
	case Clamped:
		g, u := min(x, clampLimit), min(max(up, -clampLimit), clampLimit)
		sig := 1 / (1 + math.Exp(-clampSlope*g))
		byGate, byUp = sig*(1+clampSlope*g*(1-sig))*(1+u), g*sig
		if x > clampLimit {
			byGate = 0
		}
		if u != up {
			byUp = 0
		}
		return byGate, byUp
	}
	sig := 1 / (1 + math.Exp(-x))
	return sig * (1 + x*(1-sig)) * up, x * sig
}

func (u GLUGrad) Ref(r *graph.Ref, s *graph.Step) {
	for row, d := range r.Vals[s.In[2]] {
		gate, up := r.Vals[s.Out[0]][row], r.Vals[s.Out[1]][row]
		for i := range d {
			byGate, byUp := u.Act.slopes(r.Row(s, 0, row)[i], r.Row(s, 1, row)[i])
			if gate != nil {
				gate[i] = d[i] * byGate
			}
			if up != nil {
				up[i] = d[i] * byUp
			}
		}
	}
}

func (GLUGrad) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, gluGrad)
	it.Cut = plan.Cut{By: plan.Rows}
	for _, v := range s.In {
		it.In = append(it.In, b.At(v).Cols(0))
	}
	b.FinishAll(it, s.Out, 0)
	return 0, nil
}

var gluGrad = &plan.Kind{Name: "glu-grad", In: 3, Out: 2, Ops: 200}

func runGLUGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	act := it.Op.(GLUGrad).Act
	gate, width := w.Floats(it.In[0])
	up, _ := w.Floats(it.In[1])
	d, _ := w.Floats(it.In[2])
	dGate, _ := w.Floats(it.Out[0])
	dUp, _ := w.Floats(it.Out[1])
	var ones, unit [256]float32
	for i := range ones {
		ones[i] = 1
	}
	for at, end := p.R0*width, p.R1*width; at < end; {
		n := min(len(ones), end-at)
		if act != SiLU {
			for i := at; i < at+n; i++ {
				a, b := act.slopes(float64(gate[i]), float64(up[i]))
				dGate[i], dUp[i] = d[i]*float32(a), d[i]*float32(b)
			}
			at += n
			continue
		}
		w.Kernels().SiLUMul(unit[:n], gate[at:at+n], ones[:n]) // x * sigmoid
		for i, y := range unit[:n] {
			x, sig := gate[at+i], float32(0.5)
			if x != 0 {
				sig = y / x
			}
			dGate[at+i], dUp[at+i] = d[at+i]*up[at+i]*float32(sig+y*(1-sig)), d[at+i]*y
		}
		at += n
	}
}

// SoftcapGrad is the gradient of Softcap. Inputs: its result y, and the gradient of that: dx = dy * (1 - (y/Cap)^2).
type SoftcapGrad struct{ Cap float32 }

func (SoftcapGrad) Kind() string         { return "softcap-grad" }
func (SoftcapGrad) Needs(int) graph.Need { return graph.SameRow }
func (SoftcapGrad) Role(int) graph.Role  { return graph.Vector }

func (c SoftcapGrad) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 1, 0, 0); err != nil {
		return err
	}
	if !(c.Cap > 0) {
		return fmt.Errorf("a cap of %g", c.Cap)
	}
	return g.SameWidth(s.In[0], s.In[1], s.Out[0])
}

func (c SoftcapGrad) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		y, d := r.Row(s, 0, row), r.Row(s, 1, row)
		for i := range out {
			f := y[i] / float64(c.Cap)
			out[i] = d[i] * (1 - f*f)
		}
	})
}

func (SoftcapGrad) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, softcapGrad)
	return 0, nil
}

var softcapGrad = &plan.Kind{Name: "softcap-grad", In: 2, Out: 1, Ops: 60, InPlace: anyInput}

func runSoftcapGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	c := it.Op.(SoftcapGrad).Cap
	each(w, it, p, func(out, y, d []float32) {
		for i := range out {
			f := y[i] / c
			out[i] = d[i] * (1 - float32(f*f))
		}
	})
}

// ActivateGrad is the gradient of Activate. Inputs: its input, and the gradient of its result.
type ActivateGrad struct{ Of Activate }

func (a ActivateGrad) Kind() string       { return a.Of.Kind() + "-grad" }
func (ActivateGrad) Needs(int) graph.Need { return graph.SameRow }
func (ActivateGrad) Role(int) graph.Role  { return graph.Vector }

func (a ActivateGrad) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 1, 0, 0); err != nil {
		return err
	}
	return g.SameWidth(s.In[0], s.In[1], s.Out[0])
}

// slope is the derivative.
func (a Activate) slope(x float64) float64 {
	f := a.XIELU
	switch {
	case f == nil:
		return 2 * max(x, 0)
	case x > 0:
		return 2*float64(f.AlphaP)*x + float64(f.Beta)
	case x > float64(f.Eps): // the exponential is constant there
		return -float64(f.AlphaN) + float64(f.Beta)
	}
	return math.Expm1(x)*float64(f.AlphaN) + float64(f.Beta)
}

func (a ActivateGrad) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		x, d := r.Row(s, 0, row), r.Row(s, 1, row)
		for i := range out {
			out[i] = d[i] * a.Of.slope(x[i])
		}
	})
}

func (ActivateGrad) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, activateGrad)
	return 0, nil
}

var activateGrad = &plan.Kind{Name: "activate-grad", In: 2, Out: 1, Ops: 1000, InPlace: anyInput}

func runActivateGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(ActivateGrad)
	each(w, it, p, func(out, x, d []float32) {
		for i := range out {
			out[i] = d[i] * float32(op.Of.slope(float64(x[i])))
		}
	})
}

// ColumnsGrad is the gradient of Columns: that of the part in its columns, zeros elsewhere.
type ColumnsGrad struct{ From int }

func (ColumnsGrad) Kind() string         { return "columns-grad" }
func (ColumnsGrad) Needs(int) graph.Need { return graph.SameRow }
func (ColumnsGrad) Role(int) graph.Role  { return graph.Vector }

func (c ColumnsGrad) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if from, to := c.From, c.From+g.Width(s.In[0]); from < 0 || to > g.Width(s.Out[0]) {
		return fmt.Errorf("columns %d to %d of %d", from, to, g.Width(s.Out[0]))
	}
	return nil
}

func (c ColumnsGrad) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) { copy(out[c.From:], r.Row(s, 0, row)) })
}

func (ColumnsGrad) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, columnsGrad)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Cols(0)}
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

var columnsGrad = &plan.Kind{Name: "columns-grad", In: 1, Out: 1, Ops: 40}

func runColumnsGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, n := w.Floats(it.In[0])
	out, width := w.Floats(it.Out[0])
	from := it.Op.(ColumnsGrad).From
	for r := p.R0; r < p.R1; r++ {
		row := out[r*width : (r+1)*width]
		clear(row)
		copy(row[from:], in[r*n:(r+1)*n])
	}
}
