// Package elem holds operations on one row of float32: norms, sums, activations, rotary embedding, conversions, quantization.
//
// Every function takes the width of the vectors it may use: Go (portable, also the definition), W256 (AVX2, FMA, F16C) or W512
// (AVX-512 F, BW, DQ, VL). W256 and W512 give the same bits for any length: 256-bit code computes sixteen lanes as two halves,
// and a tail goes through a padded copy. Go agrees within rounding, because it does not fuse multiply-adds; functions without
// one (Add, Mul, Scale, MulScale, conversions, quantization) agree in all bits. Destinations may be the same slices as sources,
// not overlap them otherwise.
package elem

import (
	"math"
	"unsafe"
)

// Width selects a family of instructions; W256 and W512 only where Built is true and the CPU has them.
type Width uint8

const (
	Go Width = iota
	W256
	W512
)

// Args are the operands of one kernel call; pointers may be to float32, 16-bit or int8 elements. N is a multiple of the kernel's
// step: 16 elements, 32 for Q8, 256 for Q8K. Callers set field by field: the compiler makes a composite literal beside its place and
// copies it at once, in loads wider than the stores just made, which wait for those (10 ns of a call).
type Args struct {
	Dst, A, B, C unsafe.Pointer
	D, Sum       unsafe.Pointer // quantization: scales (float32) and sums (int32)
	N            int
	S            float32
	T            float32
}

// op names a kernel; the generator writes the dispatch of each width.
type op uint8

const (
	opAdd op = iota
	opMul
	opScale
	opMulScale
	opAddScaled
	opBlend
	opDiv
	opSumSq
	opSiLU
	opGELU
	opRopeNeox
	opRopePair
	opF32ToF16
	opF16ToF32
	opF32ToBF16
	opBF16ToF32
	opQ8
	opQ8K
	opAdamW
	opPairBF16
	opMax
	opExp
	opSum64
	opSumSq64
)

func ptr[T any](x []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }

// vec runs o over dst, a and b (b may be nil), its tail in padded copies.
func vec(w Width, o op, dst, a, b []float32, s float32) {
	n := len(dst)
	a = a[:n]
	if b != nil {
		b = b[:n]
	}
	var k Args
	k.Dst, k.A, k.B, k.N, k.S = ptr(dst), ptr(a), ptr(b), n&^15, s
	if k.N > 0 {
		run(w, o, &k)
	}
	if n &= 15; n > 0 {
		var p, q [16]float32
		i := k.N
		copy(p[:], a[i:])
		if b != nil {
			copy(q[:], b[i:])
		}
		k.Dst, k.A, k.B, k.N = ptr(p[:]), ptr(p[:]), ptr(q[:]), 16
		run(w, o, &k)
		copy(dst[i:], p[:n])
	}
}

// Add is dst[i] = a[i] + b[i].
func Add(w Width, dst, a, b []float32) {
	if w != Go {
		vec(w, opAdd, dst, a, b, 0)
		return
	}
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// Mul is dst[i] = a[i] * b[i].
func Mul(w Width, dst, a, b []float32) {
	if w != Go {
		vec(w, opMul, dst, a, b, 0)
		return
	}
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

// Scale is dst[i] = a[i] * s.
func Scale(w Width, dst, a []float32, s float32) {
	if w != Go {
		vec(w, opScale, dst, a, nil, s)
		return
	}
	for i := range dst {
		dst[i] = a[i] * s
	}
}

// MulScale is dst[i] = (a[i] * s) * b[i].
func MulScale(w Width, dst, a, b []float32, s float32) {
	if w != Go {
		vec(w, opMulScale, dst, a, b, s)
		return
	}
	for i := range dst {
		dst[i] = float32(a[i]*s) * b[i]
	}
}

// AddScaled is dst[i] = fma(b[i], s, a[i]).
func AddScaled(w Width, dst, a, b []float32, s float32) {
	if w != Go {
		vec(w, opAddScaled, dst, a, b, s)
		return
	}
	for i := range dst {
		dst[i] = float32(b[i]*s) + a[i]
	}
}

// Lanes is the number of running sums of SumSquares.
const Lanes = 16

// SumSquares is the sum of x[i]^2. Lane l takes elements 16j+l in ascending order with one fma each; then lanes l and l+8, l+4,
// l+2, l+1 are added. The relative error is below (n/16 + 5) * 2^-24.
func SumSquares(w Width, x []float32) float32 {
	var l [Lanes]float32
	if w != Go {
		var k Args
		k.Dst, k.A, k.N = ptr(l[:]), ptr(x), len(x)&^15
		if k.N > 0 {
			run(w, opSumSq, &k)
		}
		if n := len(x) & 15; n > 0 {
			var p [16]float32
			copy(p[:], x[k.N:])
			k.A, k.N = ptr(p[:]), 16
			run(w, opSumSq, &k)
		}
	} else {
		for i, v := range x {
			l[i&15] += float32(v * v)
		}
	}
	return Fold(&l)
}

// Fold adds sixteen lanes in the fixed order: l and l+8, then l+4, l+2, l+1.
func Fold(l *[Lanes]float32) float32 {
	a, b, c, d := l[0]+l[8], l[1]+l[9], l[2]+l[10], l[3]+l[11]
	e, f, g, h := l[4]+l[12], l[5]+l[13], l[6]+l[14], l[7]+l[15]
	return ((a + e) + (c + g)) + ((b + f) + (d + h))
}

// SiLUMul is dst[i] = silu(g[i]) * u[i], silu(x) = x*sigmoid(x) = x*n/(1+e) with e = exp(-|x|), n = 1 or, for x < 0, e.
//
// silu is within 4 ulp, or within 2^-110 where e is below 2^-125 and counts as zero; it is x for +Inf, NaN for NaN and for
// -Inf, which is -Inf times zero and must not pass for nothing: a sum that overflowed shows in the result. u may be nil (ones).
func SiLUMul(w Width, dst, g, u []float32) {
	if u == nil {
		ungated(SiLUMul, w, dst, g)
		return
	}
	if w != Go {
		vec(w, opSiLU, dst, g, u, 0)
		return
	}
	for i := range dst {
		x := gate(g[i])
		dst[i] = float32(x*sigmoid(x)) * u[i]
	}
}

var ones = func() (x [256]float32) {
	for i := range x {
		x[i] = 1
	}
	return x
}()

// ungated is f with ones for u.
func ungated(f func(w Width, dst, g, u []float32), w Width, dst, g []float32) {
	for len(dst) > 0 {
		n := min(len(dst), len(ones))
		f(w, dst[:n], g[:n], ones[:n])
		dst, g = dst[n:], g[n:]
	}
}

// Constants of the tanh form of GELU, 0.5*x*(1+tanh(sqrt(2/pi)*(x+0.044715*x^3))) = x*sigmoid(2*sqrt(2/pi)*(x+0.044715*x^3)).
const (
	geluA = 1.5957691216057308    // 2*sqrt(2/pi)
	geluB = geluA * 0.04471499999 // the cubic term's
)

// GELUMul is dst[i] = gelu(g[i]) * u[i] with the tanh form of GELU (Hendrycks and Gimpel 2016, section 2).
//
// gelu is within 8 ulp or 2^-31 of the exact value; +Inf, -Inf and NaN as in SiLUMul. u may be nil (ones).
func GELUMul(w Width, dst, g, u []float32) {
	if u == nil {
		ungated(GELUMul, w, dst, g)
		return
	}
	if w != Go {
		vec(w, opGELU, dst, g, u, 0)
		return
	}
	for i := range dst {
		x := gate(g[i])
		dst[i] = float32(x*sigmoid(x*(geluA+geluB*x*x))) * u[i]
	}
}

// GELUErfMul is dst[i] = gelu(g[i]) * u[i] with the exact form of GELU, x/2*(1+erf(x/sqrt(2))), rounded once; u may be nil (ones). It
// is scalar on every width, some 20 ns per element.
func GELUErfMul(dst, g, u []float32) {
	for i := range dst {
		x := gate(g[i])
		y := float32(x * 0.5 * math.Erfc(-x/math.Sqrt2))
		if u != nil {
			y *= u[i]
		}
		dst[i] = y
	}
}

// gate is x from -128 on, below which the product of all gates is zero; NaN for -Inf.
func gate(x float32) float64 {
	if math.IsInf(float64(x), -1) {
		return math.NaN()
	}
	return max(-128, float64(x))
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// Rope rotates the first 2*len(cos) elements of a head's row x in place by the angles whose cosines and sines are given; the
// others stay. neox pairs element i with i+len(cos), otherwise 2i with 2i+1. For a pair (a, b):
//
//	a' = fma(a, cos, -(b*sin)),  b' = fma(b, cos, a*sin)
func Rope(w Width, x, cos, sin []float32, neox bool) {
	h := len(cos)
	sin, x = sin[:h], x[:2*h]
	if w == Go {
		for i, c := range cos {
			j, k := 2*i, 2*i+1
			if neox {
				j, k = i, i+h
			}
			a, b, s := x[j], x[k], sin[i]
			x[j] = float32(a*c) - float32(b*s)
			x[k] = float32(b*c) + float32(a*s)
		}
		return
	}
	n := h &^ 15
	t := h - n
	var p [4][16]float32 // first half, second half, cos, sin of the tail
	copy(p[2][:], cos[n:])
	copy(p[3][:], sin[n:])
	var k, tail Args
	k.B, k.C, k.N = ptr(cos), ptr(sin), n
	tail.B, tail.C, tail.N = ptr(p[2][:]), ptr(p[3][:]), 16
	if neox {
		lo, hi := x[:h], x[h:]
		if n > 0 {
			k.A, k.Dst = ptr(lo), ptr(hi)
			run(w, opRopeNeox, &k)
		}
		if t > 0 {
			copy(p[0][:], lo[n:])
			copy(p[1][:], hi[n:])
			tail.A, tail.Dst = ptr(p[0][:]), ptr(p[1][:])
			run(w, opRopeNeox, &tail)
			copy(lo[n:], p[0][:t])
			copy(hi[n:], p[1][:t])
		}
		return
	}
	if n > 0 {
		k.Dst = ptr(x)
		run(w, opRopePair, &k)
	}
	if t > 0 {
		var q [32]float32
		copy(q[:], x[2*n:])
		tail.Dst = ptr(q[:])
		run(w, opRopePair, &tail)
		copy(x[2*n:], q[:2*t])
	}
}

// Blend is dst[i] = fma(b[i], t, a[i]*s): the merge of two partial attention outputs.
func Blend(w Width, dst, a, b []float32, s, t float32) {
	if w == Go {
		for i := range dst {
			dst[i] = float32(b[i]*t) + float32(a[i]*s)
		}
		return
	}
	n := len(dst)
	a, b = a[:n], b[:n]
	var k Args
	k.Dst, k.A, k.B, k.N, k.S, k.T = ptr(dst), ptr(a), ptr(b), n&^15, s, t
	if k.N > 0 {
		run(w, opBlend, &k)
	}
	if n &= 15; n > 0 {
		var p, q [16]float32
		i := k.N
		copy(p[:], a[i:])
		copy(q[:], b[i:])
		k.Dst, k.A, k.B, k.N = ptr(p[:]), ptr(p[:]), ptr(q[:]), 16
		run(w, opBlend, &k)
		copy(dst[i:], p[:n])
	}
}

// Div is dst[i] = a[i] / s.
func Div(w Width, dst, a []float32, s float32) {
	if w != Go {
		vec(w, opDiv, dst, a, nil, s)
		return
	}
	for i := range dst {
		dst[i] = a[i] / s
	}
}
