package train

import (
	"fmt"
	"math"

	"ck/asm/elem"
)

// Optimizer says how gradients change values.
type Optimizer struct {
	Name         string // adamw or sgd
	Beta1, Beta2 float64
	Eps          float64
	Decay        float64 // of matrices, a step and unit of the rate (Loshchilov and Hutter 2019, arXiv:1711.05101)
	Clip         float64 // the norm of all gradients together is at most this; 0: any
}

// Check says what of it makes no sense.
func (o Optimizer) Check() error {
	in := func(x, lo, hi float64) bool { return x >= lo && x < hi }
	switch {
	case o.Name != "adamw" && o.Name != "sgd":
		return fmt.Errorf("optimizer %q: expected adamw or sgd", o.Name)
	case o.Name == "adamw" && (!in(o.Beta1, 0, 1) || !in(o.Beta2, 0, 1)):
		return fmt.Errorf("beta1 %g, beta2 %g: expected 0 to below 1", o.Beta1, o.Beta2)
	case o.Name == "adamw" && !(o.Eps > 0 && o.Eps < 1):
		return fmt.Errorf("eps %g: expected above 0 and below 1", o.Eps)
	case !in(o.Decay, 0, 1e3) || !in(o.Clip, 0, math.MaxFloat64):
		return fmt.Errorf("decay %g, clip %g: expected 0 or more", o.Decay, o.Clip)
	}
	return nil
}

// Schedule is the learning rate by step.
type Schedule struct {
	Kind   string  // constant, linear, cosine, or wsd: constant with a linear end
	Rate   float64 // the highest
	Floor  float64 // the last one's share of it
	Warmup int     // steps that the rate grows for
	Steps  int     // in all
	End    float64 // wsd: the share of the steps in which it falls
}

// Check says what of it makes no sense.
func (s Schedule) Check() error {
	switch s.Kind {
	case "constant", "linear", "cosine", "wsd":
	default:
		return fmt.Errorf("schedule %q: expected constant, linear, cosine or wsd", s.Kind)
	}
	switch {
	case !(s.Rate > 0 && s.Rate < 1e3):
		return fmt.Errorf("a learning rate of %g: expected above 0", s.Rate)
	case s.Steps < 1 || s.Warmup < 0 || s.Warmup > s.Steps:
		return fmt.Errorf("%d steps, of which %d of warm-up", s.Steps, s.Warmup)
	case !(s.Floor >= 0 && s.Floor <= 1) || !(s.End >= 0 && s.End <= 1):
		return fmt.Errorf("floor %g, end %g: expected 0 to 1", s.Floor, s.End)
	}
	return nil
}

// At is the rate of step n, counted from 0.
func (s Schedule) At(n int) float64 {
	if n < s.Warmup {
		return s.Rate * float64(n+1) / float64(s.Warmup)
	}
	from := s.Warmup
	if s.Kind == "wsd" {
		from = max(from, s.Steps-int(math.Round(float64(s.Steps)*s.End)))
	}
	if s.Kind == "constant" || n < from {
		return s.Rate
	}
	left := 1 - float64(n-from)/float64(max(1, s.Steps-from)) // 1 at first
	if s.Kind == "cosine" {
		left = (1 - math.Cos(math.Pi*left)) / 2
	}
	return s.Rate * (s.Floor + (1-s.Floor)*left)
}

// squares writes the sums of squares of the gradients that replica r owns: of parts, in float64.
func (n *Net) squares(gradients [][]float32, r, replicas int, sums [][]float64) error {
	return n.shard(gradients, r, replicas, func(i, lo, hi int) {
		sums[i][lo/part] = n.opt.Table.SumSquares64(gradients[i][lo:hi])
	})
}

// norm is the Euclidean norm of all gradients, of the sums of squares of their parts, in their order.
func norm(sums [][]float64) float64 {
	all := 0.0
	for _, s := range sums {
		for _, x := range s {
			all += x
		}
	}
	return math.Sqrt(all)
}

// Moments are what AdamW keeps of a parameter.
type Moments struct{ M, V []float32 }

// update changes the values that replica r owns by gradients, which are multiplied by scale first: step t, counted from 1, at a rate.
func (n *Net) update(o Optimizer, gradients [][]float32, moments []Moments, r, replicas, t int, rate float64, scale float32) error {
	adamw := elem.AdamW{
		Scale: scale, Beta1: float32(o.Beta1), Beta2: float32(o.Beta2), Rest1: float32(1 - o.Beta1), Rest2: float32(1 - o.Beta2),
		Rate: float32(rate / (1 - math.Pow(o.Beta1, float64(t)))), Root: float32(1 / math.Sqrt(1-math.Pow(o.Beta2, float64(t)))), Eps: float32(o.Eps), Keep: 1,
	}
	decays := adamw
	decays.Keep = float32(1 - rate*o.Decay)
	plain := float32(rate)
	return n.shard(gradients, r, replicas, func(i, lo, hi int) {
		p, k := n.Params[i], &adamw
		if p.Matrix() {
			k = &decays
		}
		v, g := p.Value[lo:hi], gradients[i][lo:hi]
		if o.Name == "adamw" {
			n.opt.Table.AdamW(k, v, moments[i].M[lo:hi], moments[i].V[lo:hi], g)
			return
		}
		for j, x := range g {
			v[j] = float32(v[j]*k.Keep) - float32(plain*float32(x*scale))
		}
	})
}
