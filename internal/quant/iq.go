package quant

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"sync"

	"ck/asm/half"
)

// The IQ types: 8 (4 for IQ3) elements at a time are a point of a grid, held as the index of the point
// (ggml-common.h). Fields:
//
//	IQ2_XXS: d f16; 8 of {4 indices u8; u32: 4 signs of 7 bits, scale of 4}            d*(0.5+sc)/4 * grid
//	IQ2_XS:  d f16; qs[32] u16, index of 9 bits, signs of 7; scales[8], 2 nibbles      d*(0.5+sc)/4 * grid
//	IQ2_S:   d f16; qs[32], signs[32]; qh[8], bits 8..9 of 4 indices; scales[8]        d*(0.5+sc)/4 * grid
//	IQ3_XXS: d f16; qs[64]; 8 u32: 4 signs of 7 bits, scale of 4                       d*(0.5+sc)/2 * grid
//	IQ3_S:   d f16; qs[64]; qh[8], bit 8 of 8 indices; signs[32]; scales[4], 2 nibbles d*(1+2*sc) * grid
//	IQ1_S:   d f16; qs[32]; qh[8] u16: bits 8..10 of 4 indices, scale of 3, shift      d*(2*sc+1) * (grid +- 1/8)
//	IQ1_M:   qs[32]; qh[16]: bits 8..10 and shift of 2 indices; scales[4] u16: 4 scales
//	         of 3 bits and a nibble of d f16                                           d*(2*sc+1) * (grid +- 1/8)
//	IQ4_NL:  d f16; qs[16], nibbles as in Q4_0                                         d * values[q]
//	IQ4_XS:  d f16; scales_h u16; scales_l[4], 8 scales of 6 bits; qs[128]             d*(sc-32) * values[q]
//
// Signs of 7 bits are those of the first 7 elements; the eighth makes the number of minus signs even.

// valuesIQ4 are the levels of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl).
var valuesIQ4 = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// Levels of the grids, in the order of the codes.
var (
	levelsIQ1    = []int8{-1, 0, 1}
	levelsIQ2    = []int8{8, 25, 43}
	levelsIQ3XXS = []int8{4, 12, 20, 28, 36, 44, 52, 62}
	levelsIQ3S   = []int8{1, 3, 5, 7, 9, 11, 13, 15}
)

// The grids, unpacked when first used.
var (
	gridIQ1    = sync.OnceValue(func() *[2048][8]int8 { return (*[2048][8]int8)(unpackGrid8(packedIQ1, levelsIQ1)) })
	gridIQ2XXS = sync.OnceValue(func() *[256][8]int8 { return (*[256][8]int8)(unpackGrid8(packedIQ2XXS, levelsIQ2)) })
	gridIQ2XS  = sync.OnceValue(func() *[512][8]int8 { return (*[512][8]int8)(unpackGrid8(packedIQ2XS, levelsIQ2)) })
	gridIQ2S   = sync.OnceValue(func() *[1024][8]int8 { return (*[1024][8]int8)(unpackGrid8(packedIQ2S, levelsIQ2)) })
	gridIQ3XXS = sync.OnceValue(func() *[256][4]int8 {
		return (*[256][4]int8)(unpackGrid4(packedIQ3XXS,
			levelsIQ3XXS))
	})
	gridIQ3S = sync.OnceValue(func() *[512][4]int8 { return (*[512][4]int8)(unpackGrid4(packedIQ3S, levelsIQ3S)) })
)

// unpackGrid8 unpacks a grid of 8 elements a point: element j is the level at bits 2*j of the point's code.
func unpackGrid8(packed string, levels []int8) (grid [][8]int8) {
	for _, code := range unpackCodes(packed) {
		var p [8]int8
		for j := range p {
			p[j] = levels[code>>(2*j)&3]
		}
		grid = append(grid, p)
	}
	return grid
}

// unpackGrid4 unpacks a grid of 4 elements a point: element j is the level at bits 3*j of the point's code.
func unpackGrid4(packed string, levels []int8) (grid [][4]int8) {
	for _, code := range unpackCodes(packed) {
		var p [4]int8
		for j := range p {
			p[j] = levels[code>>(3*j)&7]
		}
		grid = append(grid, p)
	}
	return grid
}

// unpackCodes returns the codes of a packed grid: their differences are in base64, as varints.
func unpackCodes(packed string) (codes []uint64) {
	b, err := base64.RawStdEncoding.DecodeString(packed)
	if err != nil {
		panic("quant: packed grid: " + err.Error())
	}
	for code := uint64(0); len(b) > 0; {
		delta, n := binary.Uvarint(b)
		code, b = code+delta, b[n:]
		codes = append(codes, code)
	}
	return codes
}

// signs7 completes 7 signs by the eighth, which makes their number even (ggml-common.h, ksigns_iq2xs).
func signs7(s uint32) byte {
	s &= 127
	return byte(s | uint32(bits.OnesCount32(s))<<7)
}

// signed8 is y[j] = d*p[j], negated where bit j of signs is set.
func signed8(y *[8]float32, d float32, p *[8]int8, signs byte) {
	for j, v := range p {
		minus := -int8(signs >> j & 1)
		y[j] = d * float32(v^minus-minus)
	}
}

// signed4x2 is signed8 for a point made of two of 4 elements.
func signed4x2(y *[8]float32, d float32, p, q *[4]int8, signs byte) {
	for j, v := range p {
		minus := -int8(signs >> j & 1)
		y[j] = d * float32(v^minus-minus)
	}
	for j, v := range q {
		minus := -int8(signs >> (j + 4) & 1)
		y[j+4] = d * float32(v^minus-minus)
	}
}

// shifted8 is y[j] = d*(p[j]+delta).
func shifted8(y *[8]float32, d float32, p *[8]int8, delta float32) {
	for j, v := range p {
		y[j] = d * (float32(v) + delta)
	}
}

func decodeIQ2_XXS(dst []float32, src []byte) {
	grid := gridIQ2XXS()
	for len(dst) >= 256 {
		b, y := (*[66]byte)(src), (*[256]float32)(dst)
		d := f16(b[:])
		for s := range 8 {
			q := b[2+8*s:][:8]
			aux := binary.LittleEndian.Uint32(q[4:])
			dl := d * (0.5 + float32(aux>>28)) * 0.25
			for l := range 4 {
				signed8((*[8]float32)(y[32*s+8*l:]), dl, &grid[q[l]], signs7(aux>>(7*l)))
			}
		}
		dst, src = dst[256:], src[66:]
	}
}

func decodeIQ2_XS(dst []float32, src []byte) {
	grid := gridIQ2XS()
	for len(dst) >= 256 {
		b, y := (*[74]byte)(src), (*[256]float32)(dst)
		d, scales := f16(b[:]), b[66:]
		for i := range 32 {
			q := binary.LittleEndian.Uint16(b[2+2*i:])
			dl := d * (0.5 + float32(scales[i/4]>>(i%4/2*4)&15)) * 0.25
			signed8((*[8]float32)(y[8*i:]), dl, &grid[q&511], signs7(uint32(q>>9)))
		}
		dst, src = dst[256:], src[74:]
	}
}

func decodeIQ2_S(dst []float32, src []byte) {
	grid := gridIQ2S()
	for len(dst) >= 256 {
		b, y := (*[82]byte)(src), (*[256]float32)(dst)
		d, qs, signs, qh, scales := f16(b[:]), b[2:34], b[34:66], b[66:74], b[74:82]
		for i, q := range qs {
			index := int(q) | int(qh[i/4]>>(i%4*2)&3)<<8
			dl := d * (0.5 + float32(scales[i/4]>>(i%4/2*4)&15)) * 0.25
			signed8((*[8]float32)(y[8*i:]), dl, &grid[index], signs[i])
		}
		dst, src = dst[256:], src[82:]
	}
}

func decodeIQ3_XXS(dst []float32, src []byte) {
	grid := gridIQ3XXS()
	for len(dst) >= 256 {
		b, y := (*[98]byte)(src), (*[256]float32)(dst)
		d := f16(b[:])
		for s := range 8 {
			q := b[2+8*s:][:8]
			aux := binary.LittleEndian.Uint32(b[66+4*s:])
			dl := d * (0.5 + float32(aux>>28)) * 0.5
			for l := range 4 {
				signed4x2((*[8]float32)(y[32*s+8*l:]), dl, &grid[q[2*l]], &grid[q[2*l+1]], signs7(aux>>(7*l)))
			}
		}
		dst, src = dst[256:], src[98:]
	}
}

func decodeIQ3_S(dst []float32, src []byte) {
	grid := gridIQ3S()
	for len(dst) >= 256 {
		b, y := (*[110]byte)(src), (*[256]float32)(dst)
		d, qs, qh, signs, scales := f16(b[:]), b[2:66], b[66:74], b[74:106], b[106:110]
		for i, s := range signs {
			h := int(qh[i/4]) >> (i % 4 * 2)
			p, q := &grid[int(qs[2*i])|h&1<<8], &grid[int(qs[2*i+1])|h&2<<7]
			dl := d * float32(1+2*(scales[i/8]>>(i/4%2*4)&15))
			signed4x2((*[8]float32)(y[8*i:]), dl, p, q, s)
		}
		dst, src = dst[256:], src[110:]
	}
}

func decodeIQ1_S(dst []float32, src []byte) {
	grid := gridIQ1()
	for len(dst) >= 256 {
		b, y := (*[50]byte)(src), (*[256]float32)(dst)
		d := f16(b[:])
		for i, q := range b[2:34] {
			h := binary.LittleEndian.Uint16(b[34+i/4*2:])
			index := int(q) | int(h>>(i%4*3)&7)<<8
			dl := d * float32(h>>12&7*2+1)
			shifted8((*[8]float32)(y[8*i:]), dl, &grid[index], shiftIQ1(h>>15))
		}
		dst, src = dst[256:], src[50:]
	}
}

// shiftIQ1 is what the elements of an IQ1 point are shifted by: -1/8 where the low bit of minus is set, else 1/8.
func shiftIQ1(minus uint16) float32 {
	return [2]float32{0.125, -0.125}[minus&1]
}

// scaleIQ1M assembles the scale of an IQ1_M block from the high nibbles of its four words.
func scaleIQ1M(sc *[8]byte) float32 {
	return half.F16ToF32(uint16(sc[1]>>4) | uint16(sc[3]>>4)<<4 | uint16(sc[5]>>4)<<8 | uint16(sc[7]>>4)<<12)
}

func decodeIQ1_M(dst []float32, src []byte) {
	grid := gridIQ1()
	for len(dst) >= 256 {
		b, y := (*[56]byte)(src), (*[256]float32)(dst)
		qh, sc := b[32:48], (*[8]byte)(b[48:])
		d := scaleIQ1M(sc)
		for i, q := range b[:32] {
			h := uint16(qh[i/2] >> (i % 2 * 4))
			index := int(q) | int(h&7)<<8
			w := binary.LittleEndian.Uint16(sc[i/8*2:]) // 4 scales of 3 bits, one for two points
			dl := d * float32(w>>(i%8/2*3)&7*2+1)
			shifted8((*[8]float32)(y[8*i:]), dl, &grid[index], shiftIQ1(h>>3))
		}
		dst, src = dst[256:], src[56:]
	}
}

func decodeIQ4_NL(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[18]byte)(src), (*[32]float32)(dst)
		d := f16(b[:])
		for j, q := range b[2:] {
			y[j] = d * valuesIQ4[q&15]
			y[j+16] = d * valuesIQ4[q>>4]
		}
		dst, src = dst[32:], src[18:]
	}
}

func decodeIQ4_XS(dst []float32, src []byte) {
	for len(dst) >= 256 {
		b, y := (*[136]byte)(src), (*[256]float32)(dst)
		d, high := f16(b[:]), binary.LittleEndian.Uint16(b[2:])
		for s := range 8 {
			sc := b[4+s/2]>>(s%2*4)&15 | byte(high>>(2*s)&3)<<4
			dl := d * float32(int(sc)-32)
			out := (*[32]float32)(y[32*s:])
			for j, q := range (*[16]byte)(b[8+16*s:]) {
				out[j] = dl * valuesIQ4[q&15]
				out[j+16] = dl * valuesIQ4[q>>4]
			}
		}
		dst, src = dst[256:], src[136:]
	}
}

func scaleIQ1_S(b []byte, sigma float32)   { randomScale(b, sigma/7.200) }
func scaleIQ2_XXS(b []byte, sigma float32) { randomScale(b, sigma/53.36) }
func scaleIQ2_XS(b []byte, sigma float32)  { randomScale(b, sigma/55.90) }
func scaleIQ2_S(b []byte, sigma float32)   { randomScale(b, sigma/56.39) }
func scaleIQ3_XXS(b []byte, sigma float32) { randomScale(b, sigma/142.4) }
func scaleIQ3_S(b []byte, sigma float32)   { randomScale(b, sigma/140.2) }
func scaleIQ4_NL(b []byte, sigma float32)  { randomSignedScale(b, sigma/67.44) }
func scaleIQ4_XS(b []byte, sigma float32)  { randomSignedScale(b, sigma/1246) }

func scaleIQ1_M(b []byte, sigma float32) {
	h := half.F32ToF16(sigma / 7.200 * jitter(b[48]))
	for i := range 4 {
		high := &b[49+2*i]
		*high = *high&15 | byte(h>>(4*i))<<4
	}
}
