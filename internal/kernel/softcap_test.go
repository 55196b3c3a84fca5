package kernel

import (
	"math"
	"testing"

	"ck/internal/isa"
)

// Soft caps of all lengths against float64, on every tier; what is not finite is NaN and changes no neighbour.
func TestSoftcap(t *testing.T) {
	for _, tier := range isa.Available(isa.Detect()) {
		tbl := attnOf(tier)
		var s AttnScratch
		for _, n := range []int{0, 1, 63, 64, 65, 511, 512, 513, 1100} {
			x, want := make([]float32, n), make([]float64, n)
			for i := range x {
				x[i] = float32(math.Sin(float64(i))) * float32(math.Pow(10, float64(i%7)-3))
				want[i] = 30 * math.Tanh(float64(x[i])/30)
			}
			if n > 62 {
				x[3], x[17], x[n-1] = float32(math.Inf(1)), float32(math.NaN()), float32(math.Inf(-1))
				want[3], want[17], want[n-1] = math.NaN(), math.NaN(), math.NaN()
			}
			tbl.Softcap(&s, x, 30)
			for i, v := range x {
				if math.IsNaN(want[i]) != (v != v) || math.Abs(float64(v)-want[i]) > 30*0x1p-21 {
					t.Errorf("%v: %d of %d is %v, expected %v", tier, i, n, v, want[i])
				}
			}
		}
	}
}
