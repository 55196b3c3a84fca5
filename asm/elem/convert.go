package elem

import (
	"math"

	"ck/asm/half"
)

// F32ToF16 rounds src to IEEE halves, nearest even; NaN stays NaN, quiet.
func F32ToF16(w Width, dst []uint16, src []float32) {
	n := len(dst)
	if w == Go {
		for i, v := range src[:n] {
			dst[i] = half.F32ToF16(v)
		}
		return
	}
	narrow(w, opF32ToF16, dst, src[:n])
}

// F32ToBF16 rounds src to bfloat16, nearest even; NaN stays NaN, quiet.
func F32ToBF16(w Width, dst []uint16, src []float32) {
	n := len(dst)
	if w == Go {
		for i, v := range src[:n] {
			dst[i] = half.F32ToBF16(v)
		}
		return
	}
	narrow(w, opF32ToBF16, dst, src[:n])
}

// F16ToF32 widens src exactly; a signalling NaN becomes quiet.
func F16ToF32(w Width, dst []float32, src []uint16) {
	n := len(dst)
	if w == Go {
		for i, h := range src[:n] {
			dst[i] = half.F16ToF32(h)
		}
		return
	}
	widen(w, opF16ToF32, dst, src[:n])
}

// BF16ToF32 widens src exactly.
func BF16ToF32(w Width, dst []float32, src []uint16) {
	n := len(dst)
	if w == Go {
		for i, h := range src[:n] {
			dst[i] = math.Float32frombits(uint32(h) << 16)
		}
		return
	}
	widen(w, opBF16ToF32, dst, src[:n])
}

func narrow(w Width, o op, dst []uint16, src []float32) {
	var k Args
	k.Dst, k.A, k.N = ptr(dst), ptr(src), len(src)&^15
	if k.N > 0 {
		run(w, o, &k)
	}
	if n := len(src) & 15; n > 0 {
		var p [16]float32
		var q [16]uint16
		i := k.N
		copy(p[:], src[i:])
		k.Dst, k.A, k.N = ptr(q[:]), ptr(p[:]), 16
		run(w, o, &k)
		copy(dst[i:], q[:n])
	}
}

func widen(w Width, o op, dst []float32, src []uint16) {
	var k Args
	k.Dst, k.A, k.N = ptr(dst), ptr(src), len(src)&^15
	if k.N > 0 {
		run(w, o, &k)
	}
	if n := len(src) & 15; n > 0 {
		var p [16]uint16
		var q [16]float32
		i := k.N
		copy(p[:], src[i:])
		k.Dst, k.A, k.N = ptr(q[:]), ptr(p[:]), 16
		run(w, o, &k)
		copy(dst[i:], q[:n])
	}
}

// Q8 quantizes blocks of 32 elements: amax = max |x|, d[b] = amax/127, q = nearest even(x * (127/amax)), sum[b] = sum of q.
//
// A block with amax < 1e-30 has d = 0 and q = 0; a block that holds an infinity or NaN has that in d, and q = 0. len(x) is a
// multiple of 32; q has len(x) elements, d and sum one per block. All widths give the same bits.
func Q8(w Width, q []int8, d []float32, sum []int32, x []float32) {
	nb := len(x) / 32
	q, d, sum = q[:32*nb], d[:nb], sum[:nb]
	if w != Go {
		if nb > 0 {
			var k Args
			k.Dst, k.A, k.D, k.Sum, k.N = ptr(q), ptr(x), ptr(d), ptr(sum), 32*nb
			run(w, opQ8, &k)
		}
		return
	}
	for b := range nb {
		d[b] = quantBlock(q[32*b:][:32], x[32*b:][:32])
		s := int32(0)
		for _, v := range q[32*b:][:32] {
			s += int32(v)
		}
		sum[b] = s
	}
}

// Q8K quantizes blocks of 256 elements as Q8 does those of 32; sum has 16 entries per block, of 16 elements each.
func Q8K(w Width, q []int8, d []float32, sum []int32, x []float32) {
	nb := len(x) / 256
	q, d, sum = q[:256*nb], d[:nb], sum[:16*nb]
	if w != Go {
		if nb > 0 {
			var k Args
			k.Dst, k.A, k.D, k.Sum, k.N = ptr(q), ptr(x), ptr(d), ptr(sum), 256*nb
			run(w, opQ8K, &k)
		}
		return
	}
	for b := range nb {
		d[b] = quantBlock(q[256*b:][:256], x[256*b:][:256])
	}
	for j := range sum {
		s := int32(0)
		for _, v := range q[16*j:][:16] {
			s += int32(v)
		}
		sum[j] = s
	}
}

// quantBlock quantizes one block and returns its scale.
func quantBlock(q []int8, x []float32) float32 {
	var m uint32 // |x| compared as bits: NaN is largest
	for _, v := range x {
		m = max(m, math.Float32bits(v)&0x7fffffff)
	}
	amax := math.Float32frombits(m)
	if amax < 1e-30 || m >= 0x7f800000 {
		clear(q)
		if amax < 1e-30 {
			return 0
		}
		return amax / 127
	}
	id := 127 / amax
	for i, v := range x {
		q[i] = int8(math.RoundToEven(float64(v * id)))
	}
	return amax / 127
}
