package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ck/internal/quant"
)

// wantKept is attention in float64 for row r, head g, of the largest scores alone.
func (c *attnCase) wantKept(r, g int, share float64) []float64 {
	type seen struct {
		p     int
		score float64
	}
	var all []seen
	for p := max(0, int(c.Lo[r])); p < int(c.Hi[r]); p++ {
		x := 0.0
		for d := range c.f.D {
			x += float64(c.Q[r*c.QStride+g*c.f.D+d]) * float64(c.k[p][d])
		}
		if x *= float64(c.Scale); c.Softcap != 0 {
			x = float64(c.Softcap) * math.Tanh(x/float64(c.Softcap))
		}
		all = append(all, seen{p, x})
	}
	slices.SortStableFunc(all, func(a, b seen) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	n := int(math.Ceil(share * float64(len(all))))
	out := make([]float64, c.f.Dv)
	sum := 0.0
	if c.Sinks != nil {
		sum = math.Exp(float64(c.Sinks[g]))
	}
	for _, s := range all[:max(1, n)] {
		sum += math.Exp(s.score)
	}
	for _, s := range all[:max(1, n)] {
		for d := range out {
			out[d] += math.Exp(s.score) / sum * float64(c.v[s.p][d])
		}
	}
	return out
}

// TestAttendKept holds it against its definition: shares from one position to all, with positions whose keys are equal.
func TestAttendKept(t *testing.T) {
	for _, typ := range kvTypes {
		for i, s := range []attnShape{{16, 24, 150, 3, 2, 0}, {64, 64, 70, 70, 1, 20}, {40, 8, 200, 2, 3, 0}, {8, 16, 1, 1, 1, 0}} {
			for _, share := range []float64{1e-9, 0.05, 0.5, 0.999, 1} {
				f := kvFormat(t, vectorTiers()[0], typ, s.d, s.dv)
				c := newCase(t, f, rand.New(rand.NewPCG(3, uint64(i))), s.n, s.rows, s.g, true)
				for p := 2; p < s.n; p += 3 { // every third key is the one before
					f.Store(c.kb[p/BlockKeys], c.vb[p/BlockKeys], p%BlockKeys, c.k[p-1], c.v[p])
					f.Load(c.kb[p/BlockKeys], c.vb[p/BlockKeys], p%BlockKeys, c.k[p], c.v[p])
					f.Load(c.kb[(p-1)/BlockKeys], c.vb[(p-1)/BlockKeys], (p-1)%BlockKeys, c.k[p-1], c.v[p-1])
				}
				c.causal(s.n, s.window)
				switch i {
				case 1:
					c.Softcap = 2
				case 2:
					c.Sinks = randRow(rand.New(rand.NewPCG(5, 5)), s.g)
				}
				t.Run(fmt.Sprint(typ, "/", s, "/", share), func(t *testing.T) {
					f.AttendKept(new(AttnScratch), &c.Attend, share)
					for r := range c.Rows {
						for g := range c.G {
							for d, want := range c.wantKept(r, g, share) {
								if got := c.O[r*c.OStride+g*f.Dv+d]; !(math.Abs(float64(got)-want) <= 1e-6) {
									t.Fatalf("row %d head %d element %d: %g, want %g", r, g, d, got, want)
								}
							}
						}
					}
					if share == 1 && (typ == quant.F32 || typ == quant.F16) {
						f.Attend(new(AttnScratch), &c.Attend)
						c.checkWant(t)
					}
				})
			}
		}
	}
}

// A position that is not a number is not dropped in silence.
func TestAttendKeptNaN(t *testing.T) {
	f := kvFormat(t, vectorTiers()[0], quant.F32, 8, 8)
	c := newCase(t, f, rand.New(rand.NewPCG(3, 3)), 20, 1, 1, false)
	c.causal(20, 0)
	c.Q[3] = float32(math.NaN())
	f.AttendKept(new(AttnScratch), &c.Attend, 0.1)
	if !math.IsNaN(float64(c.O[0])) {
		t.Errorf("output %v", c.O[:8])
	}
}
