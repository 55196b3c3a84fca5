package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Types with elements of 4-bit floats, E2M1 (OCP Microscaling Formats v1.0, 2023, 5.3.3). Their fields, in order:
//
//	MXFP4: e E8M0; qs[16], nibbles as in Q4_0                                  2^(e-127) * E2M1
//	NVFP4: d[4] UE4M3, a scale for 16 elements each; qs[32], 8 bytes of those, element j in the low
//	       nibble of byte j, j+8 in the high one                               d * E2M1
//
// The levels below are twice those of E2M1, to be integers, and the scales half as large.

var valuesFP4 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// e8m0Half is 2^(e-128). The code 255, which OCP calls NaN, is 2^127, as in ggml.
func e8m0Half(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x200000 << e) // subnormal
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// ue4m3Half is half of the UE4M3 number x: bits 3..6 are the exponent with bias 7, bits 0..2 the mantissa. As in ggml bit 7 is
// ignored and the NaN code 0x7f is 0 (though 0xff is not).
func ue4m3Half(x byte) float32 {
	if x == 0x7f {
		return 0
	}
	x &= 0x7f
	if x < 8 {
		return float32(x) / 1024 // subnormal: multiples of 2^-9, halved
	}
	return math.Float32frombits((uint32(x) + (127-7-1)<<3) << 20)
}

func decodeMXFP4(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[17]byte)(src), (*[32]float32)(dst)
		d := e8m0Half(b[0])
		for j, q := range b[1:] {
			y[j] = valuesFP4[q&15] * d
			y[j+16] = valuesFP4[q>>4] * d
		}
		dst, src = dst[32:], src[17:]
	}
}

func decodeNVFP4(dst []float32, src []byte) {
	for len(dst) >= 64 {
		b, y := (*[36]byte)(src), (*[64]float32)(dst)
		for s, scale := range b[:4] {
			d := ue4m3Half(scale)
			out := (*[16]float32)(y[16*s:])
			for j, q := range (*[8]byte)(b[4+8*s:]) {
				out[j] = valuesFP4[q&15] * d
				out[j+8] = valuesFP4[q>>4] * d
			}
		}
		dst, src = dst[64:], src[36:]
	}
}

// nearestFP4 is the code of the level times d that is nearest to x, of several the first.
func nearestFP4(x, d float32) (code byte) {
	best := abs(x) // of level 0
	for c, v := range valuesFP4 {
		if e := abs(float32(v*d) - x); e < best {
			best, code = e, byte(c)
		}
	}
	return code
}

// codeE8M0 is the power of two that brings the magnitude to 4 or more, but below 8, of which 6 is the largest level.
func codeE8M0(top float32) byte {
	if !(top > 0) {
		return 0
	}
	// As ggml does, by the logarithm in float32: it rounds magnitudes just below a power of two up to that.
	log := float32(math.Log2(float64(top)))
	return byte(max(0, int32(math.Floor(float64(log)))+127-2))
}

func quantizeMXFP4(dst []byte, src, _ []float32) {
	for len(src) >= 32 {
		b, x := (*[17]byte)(dst), (*[32]float32)(src)
		b[0] = codeE8M0(abs(extreme(x[:])))
		d := e8m0Half(b[0])
		for j := range 16 {
			b[1+j] = nearestFP4(x[j], d) | nearestFP4(x[j+16], d)<<4
		}
		dst, src = dst[17:], src[32:]
	}
}

// toUE4M3 is the UE4M3 number that is nearest to x >= 0; of two the larger. What would become 256 or more becomes 448, the
// largest one: ggml takes the exponent of the numbers between as overflow.
func toUE4M3(x float32) byte {
	if x < 1.0/64 { // subnormal: multiples of 2^-9, rounded within themselves
		return byte(min(7, int32(float32(x*512)+0.5)))
	}
	code := (math.Float32bits(x)+1<<19)>>20 - (127-7)<<3
	if code >= 15<<3 {
		return 0x7e
	}
	return byte(code)
}

// quantizeNVFP4 takes as scales what brings the largest magnitude to the largest level, 6. There is no scale for the
// tensor: the magnitudes above 6*448 become that.
func quantizeNVFP4(dst []byte, src, _ []float32) {
	for len(src) >= 64 {
		b, x := (*[36]byte)(dst), (*[64]float32)(src)
		for s := range 4 {
			sub := (*[16]float32)(x[16*s:])
			b[s] = toUE4M3(abs(extreme(sub[:])) / 6)
			d := ue4m3Half(b[s])
			for j := range 8 {
				b[4+8*s+j] = nearestFP4(sub[j], d) | nearestFP4(sub[j+8], d)<<4
			}
		}
		dst, src = dst[36:], src[64:]
	}
}

// rmsFP4 is the root mean square of the levels.
const rmsFP4 = 5.852

// scaleMXFP4 takes the power of two next to the deviation.
func scaleMXFP4(b []byte, sigma float32) {
	e := math.Float32bits(sigma/rmsFP4*jitter(b[0])*math.Sqrt2) >> 23 & 255
	b[0] = byte(min(e+1, 254))
}

// scaleNVFP4 takes the nearest scales, 2^-9 at least: there is no scale for the tensor to bring them into range.
func scaleNVFP4(b []byte, sigma float32) {
	for s, r := range b[:4] {
		d := 2 * sigma / rmsFP4 * jitter(r)
		if d < 1./64 { // subnormal: multiples of 2^-9
			b[s] = byte(max(1, d*512+0.5))
			continue
		}
		b[s] = byte(min(0x7e, (math.Float32bits(d)+1<<19)>>20-(127-7)<<3))
	}
}

// FP4Values are what the codes of MXFP4 and NVFP4 stand for, doubled: E2M1.
func FP4Values() *[16]int8 { return &codeValuesFP4 }

var codeValuesFP4 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// FP4Blocks rewrites blocks of MXFP4 as len(dst)/18 blocks of half the scale as bfloat16, which is exact, and the codes as they are. It panics when
// len(dst) is not that of whole blocks, or when src is too short for them.
func FP4Blocks(t Type, dst, src []byte) {
	if t != MXFP4 {
		panic(fmt.Sprintf("quant: %v is not MXFP4", t))
	}
	checkRewrite(t, dst, src, 18, 32)
	for len(dst) > 0 {
		binary.LittleEndian.PutUint16(dst, uint16(math.Float32bits(e8m0Half(src[0]))>>16))
		copy(dst[2:18], src[1:17])
		dst, src = dst[18:], src[17:]
	}
}

// miniScales are UE4M3 numbers, halved and times 2^-11, as numbers with 5 bits of exponent (bias 31) and 3 of mantissa, which hold the subnormal
// ones as normal; 0 where the number is 0.
var miniScales = func() (of [256]byte) {
	for x := range of {
		if d := ue4m3Half(byte(x)); d > 0 {
			of[x] = byte(math.Float32bits(d/2048)>>20 - (127-31)<<3)
		}
	}
	return of
}()

// FP4Codes rewrites blocks of NVFP4 as len(dst)/CodeBytes blocks of the fields of Codes, which is exact: D is 2048, the scales are those of
// miniScales, and the indices are in the order of elements. src has whole blocks of 64, and may end before the last block of dst does: what is
// missing is zeros. It panics when len(dst) is not a multiple of CodeBytes, or when src is longer or more than a block shorter.
func FP4Codes(t Type, dst, src []byte) {
	blocks := len(dst) / CodeBytes
	if t != NVFP4 || len(dst)%CodeBytes != 0 || len(src)%36 != 0 || len(src) > 144*blocks || len(src) <= 144*(blocks-1) {
		panic(fmt.Sprintf("quant: %d bytes of %v to be rewritten as %d", len(src), t, len(dst)))
	}
	for len(dst) > 0 {
		b := (*[CodeBytes]byte)(dst)
		clear(b[:])
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(2048))
		for j := range min(16, len(src)/9) {
			from := (*[36]byte)(src[j/4*36:])
			q := binary.LittleEndian.Uint64(from[4+j%4*8:])
			if b[4+j] = miniScales[from[j%4]]; b[4+j] == 0 {
				continue // of a scale of zero: element 0 is zero, whatever the scale
			}
			binary.LittleEndian.PutUint64(b[20+8*j:], pairUp(q)|pairUp(q>>4)<<32)
		}
		dst, src = dst[CodeBytes:], src[min(144, len(src)):]
	}
}

// pairUp makes four bytes of the low nibbles of eight, neighbours together.
func pairUp(q uint64) uint64 {
	q &= 0x0f0f0f0f0f0f0f0f
	q = (q | q>>4) & 0x00ff00ff00ff00ff
	q = (q | q>>8) & 0x0000ffff0000ffff
	return (q | q>>16) & 0xffffffff
}
