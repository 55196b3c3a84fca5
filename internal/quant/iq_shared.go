package quant

import "math"

// Parts of the searches that the quantizers of the IQ types share with others. Products that are added to are rounded first, see
// legacy.go.

// nearest rounds x to an integer, ties to even: the sum has no bits for the fraction. As in ggml it is defined for every x, but right
// only to magnitudes of 2^22.
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

// after is weights[n:], or nil where there are none.
func after(weights []float32, n int) []float32 {
	if weights == nil {
		return nil
	}
	return weights[n:]
}

// searchPositive makes the sum of w*(x - d*q)^2 small: it sets the codes q, 0..n, and returns d. Negative x have codes modulo 256, as in
// ggml.
//
// The step that gives the largest element the code n is compared with those that give it n-0.4 to n+0.4. Then each element, up to five
// times, gets the code nearest to it by the best d of the others, where that lowers the sum.
func searchPositive(codes []byte, x, w []float32, n int32) float32 {
	var top float32
	for _, v := range x {
		if !(top > v) {
			top = v
		}
	}
	if top < 1e-15 {
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
