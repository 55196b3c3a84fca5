package entropy

import (
	"math"
	"testing"
)

// Bins are of one width, the largest value is in the last, and an outlier takes bits from all others.
func TestHistogramBits(t *testing.T) {
	of := func(values ...float32) float64 {
		return HistogramBits(2, len(values)/2, func(i int, dst []float32) { copy(dst, values[i*len(values)/2:]) })
	}
	ramp := make([]float32, 1024)
	for i := range ramp {
		ramp[i] = float32(i)
	}
	outlier := append([]float32{}, ramp...)
	outlier[1023] = 1023 * 256 // all others share one bin of its width
	for _, c := range []struct {
		name string
		got  float64
		want float64
	}{
		{"ramp", of(ramp...), 8},
		{"equal", of(3, 3, 3, 3), 0},
		{"halves", of(0, 0, 1, 1), 1},
		{"signs", of(-1, -1, -1, 1), 0.75*math.Log2(4./3) + 0.25*2},
		{"outlier", of(outlier...), -1023./1024*math.Log2(1023./1024) + 1./1024*10},
	} {
		if math.Abs(c.got-c.want) > 1e-3 {
			t.Errorf("%s: %g bits, expected %g", c.name, c.got, c.want)
		}
	}
	if got := of(1, 2, 3, float32(math.NaN())); !math.IsNaN(got) {
		t.Errorf("NaN: %g bits", got)
	}
	if got := of(1, 2, 3, float32(math.Inf(1))); !math.IsNaN(got) {
		t.Errorf("infinite: %g bits", got)
	}
}
