// Package half converts between float32 and the 16-bit floats of weights and caches, IEEE 754 halves and bfloat16, one number at a time: the
// definition that kernels in assembly are held to.
package half

import "math"

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
