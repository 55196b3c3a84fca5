package entropy

import "math"

// bins is how many bins published figures have.
const bins = 256

// histogram counts values in bins of one width from the smallest to the largest value.
type histogram struct {
	lo, hi float64
	bad    bool // a value is not finite
	counts [bins]int64
}

func newHistogram() *histogram { return &histogram{lo: math.Inf(1), hi: math.Inf(-1)} }

// see widens the span, which must be done before add.
func (h *histogram) see(x []float32) {
	for _, v := range x {
		if v-v != 0 {
			h.bad = true
			return
		}
		h.lo, h.hi = min(h.lo, float64(v)), max(h.hi, float64(v))
	}
}

// add counts values.
func (h *histogram) add(x []float32) {
	if h.bad || !(h.hi > h.lo) {
		return
	}
	scale := bins / (h.hi - h.lo)
	for _, v := range x {
		h.counts[min(bins-1, int((float64(v)-h.lo)*scale))]++
	}
}

// bits is the entropy of the bins; NaN where a value is not finite.
func (h *histogram) bits() float64 {
	if h.bad {
		return math.NaN()
	}
	return Bits(h.counts[:])
}

// HistogramBits is the entropy of a matrix's values in 256 bins of one width from the smallest to the largest value, in
// bits, as "3.6 bits of entropy" is counted in what is published on weights. It depends on the largest outlier: the same
// values beside a larger one fall into fewer bins. Row writes row i, of cols values, into dst; it is asked for each row
// twice. A matrix of equal values has 0 bits, one with a value that is not finite NaN.
func HistogramBits(rows, cols int, row func(i int, dst []float32)) float64 {
	x, h := make([]float32, cols), newHistogram()
	for _, f := range []func([]float32){h.see, h.add} {
		for i := range rows {
			row(i, x)
			f(x)
		}
	}
	return h.bits()
}
