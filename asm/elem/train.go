package elem

import (
	"math"
	"slices"
	"unsafe"

	"ck/asm/half"
)

// AdamW is the numbers of a step of AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2), in the order in which kernels have
// them. Step t, counted from 1.
type AdamW struct {
	Scale        float32 // of gradients
	Beta1, Beta2 float32
	Rest1, Rest2 float32 // 1 - Beta1, 1 - Beta2
	Rate         float32 // the learning rate / (1 - Beta1^t)
	Root         float32 // 1 / sqrt(1 - Beta2^t)
	Eps          float32
	Keep         float32 // 1 - the learning rate * the decay
}

// step is one element: each operation rounds.
func (k *AdamW) step(x, m, v *float32, g float32) {
	g = float32(g * k.Scale)
	a := float32(*m*k.Beta1) + float32(g*k.Rest1)
	b := float32(*v*k.Beta2) + float32(float32(g*g)*k.Rest2)
	*m, *v = a, b
	*x = float32(*x*k.Keep) - float32(a*k.Rate)/(float32(float32(math.Sqrt(float64(b)))*k.Root)+k.Eps)
}

// Step changes values x and moments m, v by gradients g. All widths give the same bits.
func (k *AdamW) Step(w Width, x, m, v, g []float32) {
	n := len(x)
	m, v, g = m[:n], v[:n], g[:n]
	i := 0
	if w != Go && n >= 16 {
		i = n &^ 15
		var a Args
		a.Dst, a.A, a.B, a.C, a.D, a.N = ptr(x), ptr(m), ptr(v), ptr(g), unsafe.Pointer(k), i
		run(w, opAdamW, &a)
	}
	for ; i < n; i++ {
		k.step(&x[i], &m[i], &v[i], g[i])
	}
}

// PairBF16 is dst[i] = a[i] and b[i] rounded to bfloat16, a in the lower half. All widths give the same bits.
func PairBF16(w Width, dst []uint32, a, b []float32) {
	n := len(dst)
	a, b = a[:n], b[:n]
	i := 0
	if w != Go && n >= 16 {
		i = n &^ 15
		var k Args
		k.Dst, k.A, k.B, k.N = unsafe.Pointer(&dst[0]), ptr(a), ptr(b), i
		run(w, opPairBF16, &k)
	}
	for ; i < n; i++ {
		dst[i] = uint32(half.F32ToBF16(a[i])) | uint32(half.F32ToBF16(b[i]))<<16
	}
}

// Max is the greatest of x, which is not empty; any of them where one is NaN.
func Max(w Width, x []float32) float32 {
	top, i := x[0], 0
	if w != Go && len(x) >= 16 {
		l := [Lanes]float32(x)
		i = len(x) &^ 15
		var k Args
		k.Dst, k.A, k.N = ptr(l[:]), ptr(x), i
		run(w, opMax, &k)
		top = slices.Max(l[:])
	}
	for _, v := range x[i:] {
		top = max(top, v)
	}
	return top
}

// Exp is dst[i] = e^(a[i] - top), where a[i] is at most top + 0.1: within 2 ulp; results below 2^-125 are zero, of NaN it is NaN.
func Exp(w Width, dst, a []float32, top float32) {
	if w != Go {
		vec(w, opExp, dst, a, nil, top)
		return
	}
	for i, x := range a[:len(dst)] {
		dst[i] = float32(math.Exp(float64(x - top)))
		if dst[i] < 0x1p-125 {
			dst[i] = 0
		}
	}
}

// Sum64 is the sum of x in float64, SumSquares64 that of the squares. Lane l takes elements 16j+l in ascending order; then lanes l and
// l+8, l+4, l+2, l+1 are added. All widths give the same bits: squares of float32 are exact in float64.
func Sum64(w Width, x []float32) float64 {
	return sum64(w, opSum64, x, func(x float64) float64 { return x })
}

// SumSquares64 is the sum of squares; see Sum64.
func SumSquares64(w Width, x []float32) float64 {
	return sum64(w, opSumSq64, x, func(x float64) float64 { return x * x })
}

func sum64(w Width, o op, x []float32, of func(float64) float64) float64 {
	var l [Lanes]float64
	i := 0
	if w != Go && len(x) >= 16 {
		i = len(x) &^ 15
		var k Args
		k.Dst, k.A, k.N = unsafe.Pointer(&l), ptr(x), i
		run(w, o, &k)
	}
	for ; i < len(x); i++ {
		l[i&15] += of(float64(x[i]))
	}
	for n := Lanes / 2; n > 0; n /= 2 {
		for j := range n {
			l[j] += l[j+n]
		}
	}
	return l[0]
}
