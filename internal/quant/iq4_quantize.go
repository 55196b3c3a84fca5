package quant

import (
	"encoding/binary"
	"math"
)

// codeIQ4 is the code of the level nearest to x, the upper one of two at the same distance. The distances are
// compared as float32 has them.
func codeIQ4(x float32) byte {
	if x <= valuesIQ4[0] {
		return 0
	}
	if x >= valuesIQ4[15] {
		return 15
	}
	low, high := 0, 15
	for high-low > 1 {
		if mid := (low + high) / 2; x < valuesIQ4[mid] {
			high = mid
		} else {
			low = mid
		}
	}
	if x-valuesIQ4[high-1] < valuesIQ4[high]-x {
		return byte(high - 1)
	}
	return byte(high)
}

// searchSumsIQ4 gives the sums of w*v*x and w*v*v over the levels v nearest to multiples of 1/r.
func searchSumsIQ4(x, w *[32]float32, r float32) (xv, vv float32) {
	for i, e := range x {
		v := valuesIQ4[codeIQ4(float32(r*e))]
		xv += float32(w[i] * v * e)
		vv += float32(w[i] * v * v)
	}
	return xv, vv
}

// searchIQ4 returns the d that makes the sum of w*(x - d*v)^2 small, where v are levels.
//
// For given levels the best d is xv/vv, and it lowers the sum by xv*xv/vv. By that it compares the steps that give
// the element of largest magnitude the value 127, first, and -134 to -120.
func searchIQ4(x, w *[32]float32) (d float32) {
	top := extreme(x[:])
	if abs(top) < 1e-15 {
		return 0
	}
	xv, vv := searchSumsIQ4(x, w, 1/(-top/valuesIQ4[0]))
	if vv > 0 {
		d = xv / vv
	}
	best := d * xv
	for k := -7; k <= 7; k++ {
		xv, vv = searchSumsIQ4(x, w, (float32(k)+valuesIQ4[0])/top)
		if vv > 0 && xv*xv > best*vv {
			d = xv / vv
			best = d * xv
		}
	}
	return finiteOrInf(d)
}

// finiteOrInf is d, or infinity for NaN: sums overflowed, and the scale in F16 has to show it.
func finiteOrInf(d float32) float32 {
	if d != d {
		return float32(math.Inf(1))
	}
	return d
}

// unheldOrZero is the scale of a sub-block for which the search found none: 0, or infinity where sums overflowed, for
// which top has to be more than any scale in F16 holds.
func unheldOrZero(top float32) float32 {
	if top > 1e12 {
		return float32(math.Inf(1))
	}
	return 0
}

// weightsIQ makes the weights w of the elements x: from their importances, where large elements count more, else
// plain + x*x. Callers convert the variance explicitly, after a division too: by a power of two it is a product for
// the compiler, which could be fused.
func weightsIQ(w, x, importance []float32, variance, plain float32) {
	if importance == nil {
		for i, v := range x {
			w[i] = plain + float32(v*v)
		}
		return
	}
	for i, v := range x {
		w[i] = float32(importance[i] * float32(math.Sqrt(float64(variance+float32(v*v)))))
	}
}

// packIQ4 writes the codes of x at step 1/r.
func packIQ4(b *[16]byte, x *[32]float32, r float32) {
	for j := range b {
		b[j] = codeIQ4(float32(r*x[j])) | codeIQ4(float32(r*x[j+16]))<<4
	}
}

func quantizeIQ4_NL(dst []byte, src, weights []float32) {
	var w [32]float32
	for len(src) >= 32 {
		b, x := (*[18]byte)(dst), (*[32]float32)(src)
		weightsIQ(w[:], x[:], weights, float32(squares(x[:])*(2./32)), 0)
		d := searchIQ4(x, &w)
		putF16(b[:], d)
		packIQ4((*[16]byte)(b[2:]), x, reciprocal(d))
		dst, src, weights = dst[18:], src[32:], after(weights, 32)
	}
}

// quantizeIQ4_XS gives the sub-block whose scale has the largest magnitude the code -32. The codes of elements are
// those of the super-block's scale before it is rounded to F16.
func quantizeIQ4_XS(dst []byte, src, weights []float32) {
	var w [32]float32
	var scales [8]float32
	for len(src) >= 256 {
		b, x := (*[136]byte)(dst), (*[256]float32)(src)
		variance := float32(squares(x[:]) * (2. / 256))
		var top float32
		for s := range scales {
			sub := (*[32]float32)(x[32*s:])
			weightsIQ(w[:], sub[:], after(weights, 32*s), variance, 0)
			scales[s] = searchIQ4(sub, &w)
			if abs(scales[s]) > abs(top) {
				top = scales[s]
			}
		}
		sc := storeScalesIQ4XS(b, -top/32, &scales)
		for s, r := range sc {
			packIQ4((*[16]byte)(b[8+16*s:]), (*[32]float32)(x[32*s:]), r)
		}
		dst, src, weights = dst[136:], src[256:], after(weights, 256)
	}
}

// storeScalesIQ4XS writes d and the codes of the scales by it, -32..31, and returns the reciprocals of the scales
// that these give.
func storeScalesIQ4XS(b *[136]byte, d float32, scales *[8]float32) (rs [8]float32) {
	putF16(b[:], d)
	r := reciprocal(d)
	var high uint16
	clear(b[4:8])
	for s, scale := range scales {
		l := max(-32, min(31, nearest(float32(r*scale))))
		rs[s] = reciprocal(float32(d * float32(l)))
		b[4+s/2] |= byte(l+32) & 15 << (s % 2 * 4)
		high |= uint16(l+32) >> 4 << (2 * s)
	}
	binary.LittleEndian.PutUint16(b[2:], high)
	return rs
}
