package quant

import "math"

// Searches of the scales of blocks, as ggml's quantizers make them, in the order of their operations: each is the
// definition that a faster version is held against. All of them weigh the squared error of an element by its weight
// w. Products that are added to are rounded first, see legacy.go.
//
//	searchSymmetric         d*(q-n), q in 0..2n-1        tries nineteen steps
//	searchSymmetricDescent  d*(q-n), q in 0..2n-1        starts from one step and improves code by code; the weights are x*x
//	searchAffine            d*q + m, q in 0..n, m <= 0   tries steps of a grid
//	searchPositive          d*q, q in 0..n               for scales: tries nine steps, then improves code by code
//	searchLargest           d*q, q in 0..n               for scales: one step, from the largest

// negligible is the magnitude below which a block is taken as zero.
const negligible = 1e-15

// nearest rounds x to an integer, ties to even: the sum has no bits for the fraction. As in ggml it is defined for
// every x, but right only to magnitudes of 2^22.
func nearest(x float32) int32 {
	return int32(math.Float32bits(float32(x)+0x1.8p23)&0x7fffff) - 0x400000
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// squares is the sum of the squares of x.
func squares(x []float32) (sum float32) {
	for _, v := range x {
		sum += float32(v * v)
	}
	return sum
}

// searchWeights makes the weights w of the elements x from their importances: large elements count more. variance is
// that of the elements around. It returns the sum of the weights.
func searchWeights(w, x, importance []float32, variance float32) (sum float32) {
	for i, v := range x {
		w[i] = float32(importance[i] * float32(math.Sqrt(float64(variance+float32(v*v)))))
		sum += w[i]
	}
	return sum
}

// symmetricCode is the multiple of 1/r that is nearest to x, of -n..n-1.
func symmetricCode(x, r float32, n int32) int32 { return max(-n, min(n-1, nearest(float32(r*x)))) }

// searchSymmetricCodes sets the codes of step 1/r.
func searchSymmetricCodes(codes []byte, x []float32, r float32, n int32) {
	for i, v := range x {
		codes[i] = byte(symmetricCode(v, r, n) + n)
	}
}

// searchSymmetricSums gives the sums of w*x*q and w*q*q over the codes of step 1/r.
func searchSymmetricSums(x, w []float32, r float32, n int32) (xq, qq float32) {
	for i, v := range x {
		q := float32(symmetricCode(v, r, n))
		xq += float32(w[i] * v * q)
		qq += float32(w[i] * q * q)
	}
	return xq, qq
}

// searchSymmetric makes the sum of w*(x - d*(q-n))^2 small: it sets the codes q, 0..2n-1, and returns d.
//
// For given codes the best d is xq/qq, and it lowers the sum by xq*xq/qq, where xq is the sum of w*x*(q-n) and qq
// that of w*(q-n)^2. The step that gives the element of largest magnitude the level -n is compared by that with those
// that give it -n-0.9 to -n+0.9.
func searchSymmetric(codes []byte, x, w []float32, n int32) float32 {
	top := extreme(x)
	if abs(top) < negligible {
		clear(codes)
		return 0
	}
	r := float32(-n) / top
	searchSymmetricCodes(codes, x, r, n)
	var d float32
	xq, qq := searchSymmetricSums(x, w, r, n)
	if qq != 0 {
		d = xq / qq
	}
	best := d * xq
	for k := int32(-9); k <= 9; k++ {
		if k == 0 {
			continue
		}
		r = -(float32(n) + float32(0.1*float32(k))) / top
		xq, qq = searchSymmetricSums(x, w, r, n)
		if qq > 0 && xq*xq > best*qq {
			searchSymmetricCodes(codes, x, r, n)
			d = xq / qq
			best = d * xq
		}
	}
	return d
}

// searchSymmetricDescent makes the sum of x*x*(x - d*(q-n))^2 small: it sets the codes q, 0..2n-1, and returns d.
//
// It starts from the step that gives the element of largest magnitude the level -n. Then, up to five times, it goes
// over the elements: each gets the code nearest to it by the best d of the others, where that lowers the sum.
func searchSymmetricDescent(codes []byte, x []float32, n int32) float32 {
	top := extreme(x)
	if abs(top) < negligible {
		clear(codes)
		return 0
	}
	r := float32(-n) / top
	var xq, qq float32
	for i, v := range x {
		c := symmetricCode(v, r, n)
		codes[i] = byte(c + n)
		w, q := v*v, float32(c)
		xq += float32(w * v * q)
		qq += float32(w * q * q)
	}
	for range 5 {
		changed := false
		for i, v := range x {
			c := int32(codes[i]) - n
			w, q := v*v, float32(c)
			// The sums without this element, then with another code.
			xo := xq - float32(w*v*q)
			if !(xo > 0) {
				continue
			}
			qo := qq - float32(w*q*q)
			other := max(-n, min(n-1, nearest(v*qo/xo)))
			if other == c {
				continue
			}
			q = float32(other)
			xo += float32(w * v * q)
			qo += float32(w * q * q)
			if qo > 0 && xo*xo*qq > xq*xq*qo {
				codes[i] = byte(other + n)
				xq, qq, changed = xo, qo, true
			}
		}
		if !changed {
			break
		}
	}
	if !(qq > 0) {
		return 0
	}
	return xq / qq
}

// affineGrid says which steps searchAffine tries: those that divide the extent of the elements into n+first,
// n+first+step, ... parts, last+1 of them.
type affineGrid struct {
	first, step float32
	last        int32
	absolute    bool // minimise the weighted magnitude of the error in place of its square
}

// searchAffineCodes sets the codes of step 1/r from low.
func searchAffineCodes(codes []byte, x []float32, r, low float32, n int32) {
	for i, v := range x {
		codes[i] = byte(max(0, min(n, nearest(float32(r*(v-low))))))
	}
}

// searchAffineError is the weighted sum of the errors, or squared errors, of scale*q + low.
func searchAffineError(codes []byte, x, w []float32, scale, low float32, absolute bool) (sum float32) {
	for i, v := range x {
		diff := float32(scale*float32(codes[i])) + low - v
		if absolute {
			diff = abs(diff)
		} else {
			diff *= diff
		}
		sum += float32(w[i] * diff)
	}
	return sum
}

// searchAffine makes the sum of w*(x - scale*q - low)^2, or of w*|x - scale*q - low|, small: it sets the codes q,
// 0..n, and returns scale and low, which is not above 0. x has 32 elements at most.
//
// It compares the codes that divide the extent of the elements, and 0, into n parts with those of the grid, of which
// each gets the scale and low of the weighted regression. A better low is also what the next steps of the grid start
// from: ggml does that, and other codes would win without.
func searchAffine(codes []byte, x, w []float32, n int32, g *affineGrid) (scale, low float32) {
	low, high := extent(x)
	sumW, sumX := w[0], float32(w[0]*x[0])
	for i, v := range x[1:] {
		sumW += w[i+1]
		sumX += float32(w[i+1] * v)
	}
	low = min(low, 0)
	if high == low {
		clear(codes)
		return 0, low
	}
	r := float32(n) / (high - low)
	scale = 1 / r
	searchAffineCodes(codes, x, r, low, n)
	best := searchAffineError(codes, x, w, scale, low, g.absolute)

	var buf [32]byte
	trial := buf[:len(x)]
	for k := range g.last + 1 {
		r = (g.first + float32(g.step*float32(k)) + float32(n)) / (high - low)
		searchAffineCodes(trial, x, r, low, n)
		var sumQ, sumQQ, sumXQ float32
		for i, v := range x {
			q := float32(trial[i])
			wq := float32(w[i] * q)
			sumQ += wq
			sumQQ += float32(wq * q)
			sumXQ += float32(wq * v)
		}
		det := float32(sumW*sumQQ) - float32(sumQ*sumQ)
		if !(det > 0) {
			continue
		}
		s := (float32(sumW*sumXQ) - float32(sumX*sumQ)) / det
		m := (float32(sumQQ*sumX) - float32(sumQ*sumXQ)) / det
		if m > 0 {
			m, s = 0, sumXQ/sumQQ
		}
		if e := searchAffineError(trial, x, w, s, m, g.absolute); e < best {
			copy(codes, trial)
			best, scale, low = e, s, m
		}
	}
	return scale, low
}

// searchPositive makes the sum of w*(x - d*q)^2 small, for x that are not negative: it sets the codes q, 0..n, and
// returns d.
//
// The step that gives the largest element the code n is compared with those that give it n-0.4 to n+0.4. Then the
// codes of the best one are improved as in searchSymmetricDescent. Negative x, which regressions give where weights
// are 0, have codes modulo 256, as in ggml.
func searchPositive(codes []byte, x, w []float32, n int32) float32 {
	var top float32
	for _, v := range x {
		if !(top > v) {
			top = v
		}
	}
	if top < negligible {
		clear(codes)
		return 0
	}
	r := float32(n) / top
	var best float32
	d := 1 / r
	for i, v := range x {
		diff := v - float32(d*float32(byte(nearest(float32(r*v)))))
		best += float32(w[i] * diff * diff)
	}
	for k := int32(-4); k <= 4; k++ {
		if k == 0 {
			continue
		}
		rk := (float32(0.1*float32(k)) + float32(n)) / top
		dk := 1 / rk
		var e float32
		for i, v := range x {
			diff := v - float32(dk*float32(min(n, nearest(float32(rk*v)))))
			e += float32(w[i] * diff * diff)
		}
		if e < best {
			best, r = e, rk
		}
	}
	return searchPositiveDescent(codes, x, w, r, n)
}

// searchPositiveDescent is the second half of searchPositive, from the codes of step 1/r.
func searchPositiveDescent(codes []byte, x, w []float32, r float32, n int32) float32 {
	var xq, qq float32
	for i, v := range x {
		c := min(n, nearest(float32(r*v)))
		codes[i] = byte(c)
		q := float32(c)
		xq += float32(w[i] * v * q)
		qq += float32(w[i] * q * q)
	}
	for range 5 {
		changed := false
		for i, v := range x {
			q := float32(codes[i])
			xo := xq - float32(w[i]*v*q)
			qo := qq - float32(w[i]*q*q)
			if !(xo > 0 && qo > 0) {
				continue
			}
			other := min(n, nearest(v*qo/xo))
			if other == int32(codes[i]) {
				continue
			}
			q = float32(other)
			xo += float32(w[i] * v * q)
			qo += float32(w[i] * q * q)
			if xo*xo*qq > xq*xq*qo {
				codes[i] = byte(other)
				xq, qq, changed = xo, qo, true
			}
		}
		if !changed {
			break
		}
	}
	if !(qq > 0) {
		return 0
	}
	return xq / qq
}

// searchLargest sets the codes q of x that are nearest to multiples of the largest element's n-th part, which it
// returns. Without a positive element all are 0. Negative x have codes modulo 256, as in ggml.
func searchLargest(codes []byte, x []float32, n float32) float32 {
	var top float32
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	if top == 0 {
		clear(codes)
		return 0
	}
	r := n / top
	for i, v := range x {
		codes[i] = byte(nearest(float32(r * v)))
	}
	return top / n
}
