package entropy

import "math"

// HistogramBits is the entropy of a matrix's values in 256 bins of one width from the smallest to the largest value, in
// bits, as "3.6 bits of entropy" is counted in what is published on weights. It depends on the largest outlier: the same
// values beside a larger one fall into fewer bins. Row writes row i, of cols values, into dst; it is asked for each row
// twice. A matrix of equal values has 0 bits, one with a value that is not finite NaN.
func HistogramBits(rows, cols int, row func(i int, dst []float32)) float64 {
	x := make([]float32, cols)
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range rows {
		row(i, x)
		for _, v := range x {
			if v-v != 0 {
				return math.NaN()
			}
			lo, hi = min(lo, float64(v)), max(hi, float64(v))
		}
	}
	if !(hi > lo) {
		return 0
	}
	counts := make([]int64, 256)
	scale := 256 / (hi - lo)
	for i := range rows {
		row(i, x)
		for _, v := range x {
			counts[min(255, int((float64(v)-lo)*scale))]++
		}
	}
	return Bits(counts)
}
