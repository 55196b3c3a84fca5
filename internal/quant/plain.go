package quant

import (
	"encoding/binary"
	"math"
)

// F16ToF32 converts an IEEE 754 half to float32, exactly; a signalling NaN becomes quiet.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	bits := uint32(h&0x7fff) << 13
	if bits >= 0x7c00<<13 {
		if bits > 0x7c00<<13 {
			bits |= 0x200 << 13
		}
		return math.Float32frombits(sign | 0x7f800000 | bits)
	}
	// The exponent fields differ in bias by 112; the product is exact and also normalizes subnormal halves.
	const scale = 1 << 112
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(bits)*scale))
}

// F32ToF16 converts a float32 to an IEEE 754 half, rounding to nearest even; too large values become infinite, NaN stays NaN
// (quiet, upper payload kept).
func F32ToF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	bits &= 0x7fffffff
	switch {
	case bits > 0x7f800000:
		return sign | 0x7e00 | uint16(bits>>13&0x3ff)
	case bits >= 0x477ff000: // 65520, half way between the largest half and 2^16
		return sign | 0x7c00
	case bits >= 0x38800000: // 2^-14, the smallest normal half
		bits += 0xfff + bits>>13&1
		return sign | uint16(bits>>13-112<<10)
	}
	// Subnormal: adding 0.5, whose unit in the last place is 2^-24, makes the hardware round to a multiple of 2^-24.
	return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)-math.Float32bits(0.5))
}

// BF16ToF32 converts a bfloat16 to float32, exactly; the bits of a NaN are kept.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 converts a float32 to bfloat16, rounding to nearest even; NaN stays NaN (quiet, upper payload kept).
func F32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// f16 reads a little-endian half.
func f16(b []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(b)) }

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeF64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

func decodeI8(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int8(src[i]))
	}
}

func decodeI16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int16(binary.LittleEndian.Uint16(src[2*i:])))
	}
}

func decodeI32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int32(binary.LittleEndian.Uint32(src[4*i:])))
	}
}

func decodeI64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int64(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

// putF16 writes a little-endian half.
func putF16(b []byte, f float32) { binary.LittleEndian.PutUint16(b, F32ToF16(f)) }

func quantizeF32(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

func quantizeF16(dst []byte, src []float32) {
	for i, v := range src {
		putF16(dst[2*i:], v)
	}
}

func quantizeBF16(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(v))
	}
}

// scaleF64 takes the random bytes as a uniform number in [-1, 1), whose deviation is 1/sqrt(3).
func scaleF64(b []byte, sigma float32) {
	u := float64(int64(binary.LittleEndian.Uint64(b))) / (1 << 63)
	binary.LittleEndian.PutUint64(b, math.Float64bits(u*float64(sigma)*math.Sqrt(3)))
}
