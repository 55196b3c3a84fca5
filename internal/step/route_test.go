package step

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func choose(t Route, logits, bias []float64) (ids, weights []float64) {
	n := len(logits)
	ids, weights = make([]float64, t.Used), make([]float64, t.Used)
	t.choose(make([]float64, n), make([]float64, n), logits, bias, nil, ids, weights)
	return ids, weights
}

// Of equal scores the lower id is chosen; NaN is chosen last, and ids are those of experts whatever comes in.
func TestRouteTies(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		logits []float64
		want   string
	}{
		{[]float64{1, 3, 3, 2, 3}, "[1 2 4]"},
		{[]float64{0, 0, 0, 0}, "[0 1 2]"},
		{[]float64{-5, -5, 7, -5}, "[2 0 1]"},
		{[]float64{nan, 1, nan, 2, 3}, "[4 3 1]"},
		{[]float64{1, nan, nan, nan}, "[0 1 2]"},
		{[]float64{-inf, -inf, 1, -inf}, "[2 0 1]"},
	} {
		ids, _ := choose(Route{Used: 3, Gate: SoftmaxChosen}, c.logits, nil)
		if c.want != fmt.Sprint(ids) {
			t.Errorf("%v: %v, want %s", c.logits, ids, c.want)
		}
		for _, gate := range []Gate{Softmax, Sigmoid, SoftmaxChosen} {
			for _, groups := range []int{0, len(c.logits)} {
				ids, _ := choose(Route{Used: 3, Gate: gate, Groups: groups, GroupsUsed: 3}, c.logits, nil)
				for j, id := range ids {
					if !(id >= 0 && int(id) < len(c.logits)) || slices.Contains(ids[:j], id) {
						t.Errorf("%v, %v, %d groups: ids %v", c.logits, gate, groups, ids)
					}
				}
			}
		}
	}
}

// The choice is that of a plain sort, weights are those of the formulas; the bias decides on the choice alone.
func TestRouteChoice(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 200 {
		const experts, used, groups, open = 12, 4, 4, 2
		logits, bias := make([]float64, experts), make([]float64, experts)
		for i := range logits {
			logits[i], bias[i] = rng.NormFloat64(), 0.3*rng.NormFloat64()
		}
		op := Route{Used: used, Gate: Gate(rng.IntN(3)), Norm: rng.IntN(2) == 0, Scale: 2.5, Groups: groups, GroupsUsed: open}
		ids, weights := choose(op, logits, bias)
		score := func(e int) float64 {
			switch op.Gate {
			case Sigmoid:
				return 1 / (1 + math.Exp(-logits[e]))
			case SoftmaxChosen:
				return logits[e]
			}
			sum := 0.0
			for _, x := range logits {
				sum += math.Exp(x)
			}
			return math.Exp(logits[e]) / sum
		}
		// Groups by the sum of their two best, then all experts of the open ones.
		order := make([]int, groups)
		worth := make([]float64, groups)
		for g := range groups {
			order[g] = g
			var in []float64
			for e := g * 3; e < g*3+3; e++ {
				in = append(in, score(e)+bias[e])
			}
			slices.Sort(in)
			worth[g] = in[1] + in[2]
		}
		slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, worth[b]-worth[a])) })
		var list []int
		for _, g := range order[:open] {
			list = append(list, 3*g, 3*g+1, 3*g+2)
		}
		slices.SortFunc(list, func(a, b int) int { return int(math.Copysign(1, score(b)+bias[b]-score(a)-bias[a])) })
		sum := 0.0
		for j := range used {
			w := score(list[j])
			if op.Gate == SoftmaxChosen {
				w = math.Exp(w)
			}
			sum += w
		}
		for j, id := range ids {
			w := score(list[j])
			if op.Gate == SoftmaxChosen {
				w = math.Exp(w) / sum
			} else if op.Norm {
				w /= sum
			}
			if int(id) != list[j] || math.Abs(weights[j]-2.5*w) > 1e-12 {
				t.Fatalf("%+v: %v with %v, want %v with %v at %d", op, ids, weights, list[:used], 2.5*w, j)
			}
		}
	}
}

// Where the scores of all that were chosen are next to nothing, Norm divides by 1e-20 instead of their sum, which the gradient then does not go through.
func TestRouteTinySums(t *testing.T) {
	op := Route{Used: 2, Gate: Sigmoid, Norm: true}
	logits, d := []float64{-60, -58, -70}, []float64{0.5, -2}
	ids, weights := choose(op, logits, nil)
	got := make([]float64, 3)
	op.slopes(got, nil, logits, ids, d, nil, make([]float64, 3), make([]float64, 4))
	for j, id := range ids {
		s := 1 / (1 + math.Exp(-logits[int(id)]))
		if want := s / 1e-20; math.Abs(weights[j]-want) > 1e-12*want {
			t.Errorf("expert %v: the weight is %v, want %v", id, weights[j], want)
		}
		if want := d[j] * s * (1 - s) / 1e-20; math.Abs(got[int(id)]-want) > 1e-12*math.Abs(want) {
			t.Errorf("expert %v: the gradient is %v, want %v", id, got[int(id)], want)
		}
	}
	if got[2] != 0 {
		t.Errorf("an expert that was not chosen has the gradient %v", got[2])
	}
}
