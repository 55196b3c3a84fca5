package train

import (
	"math"
	"math/rand/v2"
	"slices"

	"ck/internal/step"
)

// A GradientCheck compares the gradient of a parameter with differences of the loss, in a random direction.
type GradientCheck struct {
	Name       string
	Gradient   float64 // along the direction, of length 1
	Difference float64 // (loss(+h) - loss(-h)) / 2h, h so small that rows choose the same experts
	Error      float64 // their difference, relative to the larger
	Noise      float64 // what of it the rounding of losses to float32 may be
}

// Bad reports whether the two differ by more than rounding and 5 %: a difference has an error of h^2 itself.
func (c GradientCheck) Bad() bool { return !(c.Error <= 0.05+4*c.Noise) }

// choices is the experts that rows of the last walk chose.
func (n *Net) choices() (ids []float32) {
	for i := range n.G.Steps {
		s := &n.G.Steps[i]
		if r, ok := s.Op.(step.Route); ok {
			v, _ := n.walk.Tap(s.Out[0])
			ids = append(ids, v.Data[:len(n.batch.IDs)*r.Used]...)
		}
	}
	return ids
}

// CheckGradients compares all parameters over leaves, as many as a walk has; values are as before when it ends. each is called behind each.
func (n *Net) CheckGradients(leaves []Leaf, seed uint64, each func(GradientCheck) error) error {
	targets := 0
	for i := range leaves {
		targets += leaves[i].Targets()
	}
	share := 1 / float64(max(1, targets))
	loss := func() (float64, error) {
		losses, err := n.Walk(leaves, share, nil)
		if err != nil {
			return 0, err
		}
		sum := n.Balance() * share
		for _, l := range losses {
			sum += l * share
		}
		return sum, nil
	}
	first, err := loss()
	if err != nil {
		return err
	}
	chosen := n.choices()
	s := NewSum(n)
	s.Begin(1)
	s.Add()
	var gradients [][]float32
	for _, g := range s.Gradients() {
		gradients = append(gradients, append([]float32(nil), g...))
	}
	rng := rand.New(rand.NewPCG(seed, 11))
	for i, p := range n.Params {
		old := append([]float32(nil), p.Value...)
		dir, size, norm, c := make([]float64, len(old)), 0.0, 0.0, GradientCheck{Name: p.Label()}
		for j, v := range old {
			dir[j] = rng.NormFloat64()
			size, norm = size+dir[j]*dir[j], norm+float64(v)*float64(v)
		}
		size = math.Sqrt(size)
		for j := range dir {
			dir[j] /= size
			c.Gradient += dir[j] * float64(gradients[i][j])
		}
		h := 1e-2 * math.Sqrt(norm)
		at := func(by float64) (float64, error) {
			for j := range old {
				p.Value[j] = float32(float64(old[j]) + by*dir[j])
			}
			if err := n.Renew(); err != nil {
				return 0, err
			}
			return loss()
		}
		for same, least := false, h*1e-4; err == nil && !same; h /= 4 {
			var up, down float64
			if up, err = at(h); err == nil {
				same = slices.Equal(chosen, n.choices())
				down, err = at(-h)
				same = same && slices.Equal(chosen, n.choices())
			}
			c.Difference, c.Noise = (up-down)/(2*h), math.Abs(first)*2e-6/(2*h)
			same = same || h < least
		}
		copy(p.Value, old)
		if err != nil {
			return err
		}
		most := max(math.Abs(c.Gradient), math.Abs(c.Difference))
		if most > 0 {
			c.Error, c.Noise = math.Abs(c.Gradient-c.Difference)/most, c.Noise/most
		}
		if err := each(c); err != nil {
			return err
		}
	}
	return n.Renew()
}
