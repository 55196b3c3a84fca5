package quant

import (
	"encoding/binary"
	"math"
)

// The types with blocks of 32 elements and one scale (ggml-common.h). Their fields, in order:
//
//	Q4_0: d f16; qs[16], element j in the low nibble of qs[j], j+16 in the high one          d*(q-8)
//	Q4_1: d, m f16; qs[16]                                                                  d*q + m
//	Q5_0: d f16; qh u32, bit j is bit 4 of element j; qs[16]                                d*(q-16)
//	Q5_1: d, m f16; qh u32; qs[16]                                                          d*q + m
//	Q8_0: d f16; qs[32] int8                                                                d*q
//	Q8_1: d, s f16; qs[32] int8; s is d times the sum of qs                                 d*q
//
// A product that is added to is converted explicitly, float32(a*b)+c, which keeps compilers for machines with fused
// multiply-add from fusing: ggml's values are those of two roundings.

func decodeQ4_0(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[18]byte)(src), (*[32]float32)(dst)
		d := f16(b[:])
		for j, q := range b[2:] {
			y[j] = float32(int(q&15)-8) * d
			y[j+16] = float32(int(q>>4)-8) * d
		}
		dst, src = dst[32:], src[18:]
	}
}

func decodeQ4_1(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[20]byte)(src), (*[32]float32)(dst)
		d, m := f16(b[:]), f16(b[2:])
		for j, q := range b[4:] {
			y[j] = float32(float32(q&15)*d) + m
			y[j+16] = float32(float32(q>>4)*d) + m
		}
		dst, src = dst[32:], src[20:]
	}
}

func decodeQ5_0(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[22]byte)(src), (*[32]float32)(dst)
		d, h := f16(b[:]), binary.LittleEndian.Uint32(b[2:])
		for j, q := range b[6:] {
			y[j] = float32(int(q&15|byte(h>>j<<4&16))-16) * d
			y[j+16] = float32(int(q>>4|byte(h>>(j+12)&16))-16) * d
		}
		dst, src = dst[32:], src[22:]
	}
}

func decodeQ5_1(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[24]byte)(src), (*[32]float32)(dst)
		d, m, h := f16(b[:]), f16(b[2:]), binary.LittleEndian.Uint32(b[4:])
		for j, q := range b[8:] {
			y[j] = float32(float32(q&15|byte(h>>j<<4&16))*d) + m
			y[j+16] = float32(float32(q>>4|byte(h>>(j+12)&16))*d) + m
		}
		dst, src = dst[32:], src[24:]
	}
}

func decodeQ8_0(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[34]byte)(src), (*[32]float32)(dst)
		d := f16(b[:])
		for j, q := range b[2:] {
			y[j] = float32(int8(q)) * d
		}
		dst, src = dst[32:], src[34:]
	}
}

func decodeQ8_1(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[36]byte)(src), (*[32]float32)(dst)
		d := f16(b[:])
		for j, q := range b[4:] {
			y[j] = float32(int8(q)) * d
		}
		dst, src = dst[32:], src[36:]
	}
}

// reciprocal is 1/d, or 0 where that is not finite: the scale is then 0 in F16 as well.
func reciprocal(d float32) float32 {
	if r := 1 / d; r-r == 0 {
		return r
	}
	return 0
}

// nearestAway rounds x to an integer, ties away from zero; the sum is exact in float64.
func nearestAway(x float32) int32 { return int32(float64(x) + math.Copysign(0.5, float64(x))) }

// extreme is the element of x with the largest magnitude, the first of several.
func extreme(x []float32) (v float32) {
	var mag uint32
	for _, e := range x {
		if m := math.Float32bits(e) &^ (1 << 31); m > mag { // the bits of magnitudes order as they do
			mag, v = m, e
		}
	}
	return v
}

// extent is the smallest and the largest element of x; of zeros of both signs, the first.
func extent(x []float32) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, e := range x[1:] {
		if e < lo {
			lo = e
		}
		if e > hi {
			hi = e
		}
	}
	return lo, hi
}

func quantizeQ4_0(dst []byte, src, weights []float32) {
	if weights != nil {
		quantizeWeighted(dst, src, weights, 4, false)
		return
	}
	for len(src) >= 32 {
		b, x := (*[18]byte)(dst), (*[32]float32)(src)
		d := extreme(x[:]) / -8
		r := reciprocal(d)
		putF16(b[:], d)
		for j := range 16 {
			lo := min(15, int32(float32(x[j]*r)+8.5))
			hi := min(15, int32(float32(x[j+16]*r)+8.5))
			b[2+j] = byte(lo | hi<<4)
		}
		dst, src = dst[18:], src[32:]
	}
}

func quantizeQ4_1(dst []byte, src, weights []float32) {
	if weights != nil {
		quantizeWeighted(dst, src, weights, 4, true)
		return
	}
	for len(src) >= 32 {
		b, x := (*[20]byte)(dst), (*[32]float32)(src)
		low, high := extent(x[:])
		d := (high - low) / 15
		r := reciprocal(d)
		putF16(b[:], d)
		putF16(b[2:], low)
		for j := range 16 {
			lo := min(15, int32(float32((x[j]-low)*r)+0.5))
			hi := min(15, int32(float32((x[j+16]-low)*r)+0.5))
			b[4+j] = byte(lo | hi<<4)
		}
		dst, src = dst[20:], src[32:]
	}
}

func quantizeQ5_0(dst []byte, src, weights []float32) {
	if weights != nil {
		quantizeWeighted(dst, src, weights, 5, false)
		return
	}
	for len(src) >= 32 {
		b, x := (*[22]byte)(dst), (*[32]float32)(src)
		d := extreme(x[:]) / -16
		r := reciprocal(d)
		putF16(b[:], d)
		var h uint32
		for j := range 16 {
			lo := uint32(min(31, int32(float32(x[j]*r)+16.5)))
			hi := uint32(min(31, int32(float32(x[j+16]*r)+16.5)))
			b[6+j] = byte(lo&15 | hi<<4)
			h |= lo>>4&1<<j | hi>>4&1<<(j+16)
		}
		binary.LittleEndian.PutUint32(b[2:], h)
		dst, src = dst[22:], src[32:]
	}
}

func quantizeQ5_1(dst []byte, src, weights []float32) {
	if weights != nil {
		quantizeWeighted(dst, src, weights, 5, true)
		return
	}
	for len(src) >= 32 {
		b, x := (*[24]byte)(dst), (*[32]float32)(src)
		low, high := extent(x[:])
		d := (high - low) / 31
		r := reciprocal(d)
		putF16(b[:], d)
		putF16(b[2:], low)
		var h uint32
		for j := range 16 {
			lo := uint32(int32(float32((x[j]-low)*r) + 0.5))
			hi := uint32(int32(float32((x[j+16]-low)*r) + 0.5))
			b[8+j] = byte(lo&15 | hi<<4)
			h |= lo>>4&1<<j | hi>>4&1<<(j+16)
		}
		binary.LittleEndian.PutUint32(b[4:], h)
		dst, src = dst[24:], src[32:]
	}
}

func quantizeQ8_0(dst []byte, src, _ []float32) {
	for len(src) >= 32 {
		b, x := (*[34]byte)(dst), (*[32]float32)(src)
		e := extreme(x[:])
		d := max(e, -e) / 127
		r := reciprocal(d)
		putF16(b[:], d)
		for j, v := range x {
			b[2+j] = byte(nearestAway(v * r))
		}
		dst, src = dst[34:], src[32:]
	}
}

func quantizeQ8_1(dst []byte, src, _ []float32) {
	for len(src) >= 32 {
		b, x := (*[36]byte)(dst), (*[32]float32)(src)
		d := abs(extreme(x[:])) / 127
		r := reciprocal(d)
		sum := int32(0)
		for j, v := range x {
			q := nearestAway(v * r)
			b[4+j] = byte(q)
			sum += q
		}
		putF16(b[:], d)
		putF16(b[2:], float32(sum)*d)
		dst, src = dst[36:], src[32:]
	}
}

// quantizeWeighted is the quantizer of Q4_0, Q4_1, Q5_0 and Q5_1 with importances; src is a whole row. bits are those
// of an element; with minimum, the type has one.
func quantizeWeighted(dst []byte, src, weights []float32, bits int, minimum bool) {
	quantizeWeightedBlocks(dst, src, weights, squares(src)/float32(len(src)), bits, minimum)
}

// quantizeWeightedBlocks quantizes blocks of a row whose mean square is variance.
func quantizeWeightedBlocks(dst []byte, src, weights []float32, variance float32, bits int, minimum bool) {
	var w [32]float32
	var codes [32]byte
	for len(src) >= 32 {
		x := src[:32]
		searchWeights(w[:], x, weights[:32], variance)
		if minimum {
			d, low := searchAffine(codes[:], x, w[:], 1<<bits-1, &gridWeighted)
			putF16(dst, d)
			putF16(dst[2:], low)
			dst = dst[4:]
		} else {
			putF16(dst, searchSymmetric(codes[:], x, w[:], 1<<(bits-1)))
			dst = dst[2:]
		}
		dst = packLegacy(dst, &codes, bits)
		src, weights = src[32:], weights[32:]
	}
}

// packLegacy writes the fifth bits of codes, if they have any, and the others, and returns what is behind.
func packLegacy(b []byte, codes *[32]byte, bits int) []byte {
	if bits == 5 {
		var h uint32
		for j := 0; j < 32; j += 8 { // bits 4 of eight bytes to the highest byte, by a product
			v := binary.LittleEndian.Uint64(codes[j:]) >> 4 & 0x0101010101010101
			h |= uint32(v*0x0102040810204080>>56) << j
		}
		binary.LittleEndian.PutUint32(b, h)
		b = b[4:]
	}
	packNibbles32(b[:16], codes[:])
	return b[16:]
}

// packNibbles32 writes codes j and j+16 as the nibbles of byte j.
func packNibbles32(b, codes []byte) {
	for j := 0; j < 16; j += 8 {
		low, high := binary.LittleEndian.Uint64(codes[j:]), binary.LittleEndian.Uint64(codes[j+16:])
		binary.LittleEndian.PutUint64(b[j:], low&nibbles8|high<<4&^nibbles8)
	}
}

func scaleQ4_0(b []byte, sigma float32) { randomSignedScale(b, sigma/4.637) }
func scaleQ5_0(b []byte, sigma float32) { randomSignedScale(b, sigma/9.247) }

func scaleQ4_1(b []byte, sigma float32) {
	d := randomScale(b, sigma/4.610)
	putF16(b[2:], -7.5*d)
}

func scaleQ5_1(b []byte, sigma float32) {
	d := randomScale(b, sigma/9.233)
	putF16(b[2:], -15.5*d)
}

func scaleQ8_0(b []byte, sigma float32) {
	randomScale(b, sigma/73.90)
	noMin8(b[2:34])
}

func scaleQ8_1(b []byte, sigma float32) {
	d := randomScale(b, sigma/73.90)
	noMin8(b[4:36])
	sum := 0
	for _, q := range b[4:36] {
		sum += int(int8(q))
	}
	putF16(b[2:], d*float32(sum))
}
