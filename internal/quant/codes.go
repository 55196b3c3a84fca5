package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
)

// Blocks rewritten, exactly, in one of two forms that kernels read: codes (Codes) and Q8_0 blocks (ToQ8_0). Every
// weight is rewritten once, when a model is first used; functions work on 8 or 16 elements at a time, the nibbles of
// a word, and take 0.2 to 0.4 ns an element (BenchmarkCodes, Zen 5).

// CodeBytes is the size of a block of codes, 256 elements. Its fields, in order:
//
//	D f32; scales[16] int8; indices[128], element 2*i in the low nibble of byte i, 2*i+1 in the high one
//
// Element i is D*scales[i/16]*CodeValues[index of i].
const CodeBytes = 4 + 16 + 128

// CodeValues are the values that the indices of Codes stand for, none of them -128; nil for types that have no codes.
// They are not to be changed.
func CodeValues(t Type) *[16]int8 { return t.row().values }

// Codes rewrites blocks of 256 elements of type t, one of those that have CodeValues, as len(dst)/CodeBytes blocks of
// codes.
//
// The products D*scale*value are exact in float32, in any order, and bit for bit what Decode gives: the F16 scale has
// 11 significant bits, an integer scale 5, a value 7, and no product is subnormal or overflows. If the F16 scale is
// not finite, D is not either. Codes panics when len(dst) is not a multiple of CodeBytes, when src is too short for
// it, or when the type has no codes; extra bytes in src are ignored. It allocates nothing but the grids of the IQ
// types, once.
func Codes(t Type, dst, src []byte) {
	r := t.row()
	if r.values == nil {
		panic(fmt.Sprintf("quant: %v has no codes", t))
	}
	checkRewrite(t, dst, src, CodeBytes, 256)
	r.rewrite(dst, src)
}

// ToQ8_0 rewrites blocks of type t (IQ4_NL, Q1_0, Q2_0) as len(dst)/34 blocks of Q8_0 with the same elements, bit for
// bit, and the same F16 scales; no element is -128. It panics when len(dst) is not that of whole blocks of either
// type, when src is too short for it, or when the type is another; extra bytes in src are ignored. It allocates
// nothing.
func ToQ8_0(t Type, dst, src []byte) {
	r := t.row()
	if r.rewrite == nil || r.values != nil {
		panic(fmt.Sprintf("quant: %v is not rewritten as Q8_0", t))
	}
	checkRewrite(t, dst, src, 34, 32)
	r.rewrite(dst, src)
}

// checkRewrite panics unless dst has room for whole blocks of size bytes, elems elements each, and src has these
// elements.
func checkRewrite(t Type, dst, src []byte, size, elems int) {
	if len(dst)%size != 0 {
		panic(fmt.Sprintf("quant: %v: %d bytes to rewrite to, a block has %d", t, len(dst), size))
	}
	checkSizes(t, len(dst)/size*elems, len(src))
}

// The values of codes. In the IQ types with grids, bits 0 to 2 of an index are the number of the level and bit 3 is
// the sign (IQ1: the shift), so that the signs of 8 elements are a mask over their indices. Values of indices that no
// block has are 0.
var (
	codeValuesQ3K    = [16]int8{-4, -3, -2, -1, 0, 1, 2, 3}
	codeValuesIQ1    = [16]int8{-7, 1, 9, 8: -9, -1, 7} // 8*level+1, 8*level-1
	codeValuesIQ2    = [16]int8{8, 25, 43, 8: -8, -25, -43}
	codeValuesIQ3XXS = [16]int8{4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}
	codeValuesIQ3S   = [16]int8{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}
	codeValuesIQ4    = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	codeValuesTQ     = [16]int8{-1, 0, 1, 2}
)

// The grids as indices, built when first used: element j of a point is the number of its level in bits 4*j.
var (
	indicesIQ1    = sync.OnceValue(func() *[2048]uint32 { return (*[2048]uint32)(unpackIndices(packedIQ1, 8, 2)) })
	indicesIQ2XXS = sync.OnceValue(func() *[256]uint32 { return (*[256]uint32)(unpackIndices(packedIQ2XXS, 8, 2)) })
	indicesIQ2XS  = sync.OnceValue(func() *[512]uint32 { return (*[512]uint32)(unpackIndices(packedIQ2XS, 8, 2)) })
	indicesIQ2S   = sync.OnceValue(func() *[1024]uint32 { return (*[1024]uint32)(unpackIndices(packedIQ2S, 8, 2)) })
	indicesIQ3XXS = sync.OnceValue(func() *[256]uint32 { return (*[256]uint32)(unpackIndices(packedIQ3XXS, 4, 3)) })
	indicesIQ3S   = sync.OnceValue(func() *[512]uint32 { return (*[512]uint32)(unpackIndices(packedIQ3S, 4, 3)) })
)

// unpackIndices spreads the codes of a packed grid: n level numbers of width bits become nibbles.
func unpackIndices(packed string, n, width int) (grid []uint32) {
	for _, code := range unpackCodes(packed) {
		var w uint32
		for j := range n {
			w |= uint32(code>>(width*j)) & (1<<width - 1) << (4 * j)
		}
		grid = append(grid, w)
	}
	return grid
}

// signBits spreads bit j of a byte of signs to bit 3 of nibble j.
var signBits = sync.OnceValue(func() *[256]uint32 {
	var t [256]uint32
	for s := range t {
		for j := range 8 {
			t[s] |= uint32(s) >> j & 1 << (4*j + 3)
		}
	}
	return &t
})

// signBits7 is signBits of signs7.
var signBits7 = sync.OnceValue(func() *[128]uint32 {
	var t [128]uint32
	for s := range t {
		t[s] = signBits()[signs7(uint32(s))]
	}
	return &t
})

// A codeBlock is one block of codes.
type codeBlock = [CodeBytes]byte

func putD(c *codeBlock, d float32) { binary.LittleEndian.PutUint32(c[:], math.Float32bits(d)) }

// put8 stores the indices of elements 8*i to 8*i+7, the first in the lowest nibble.
func put8(c *codeBlock, i int, indices uint32) {
	binary.LittleEndian.PutUint32(c[20+4*i:], indices)
}

// deal deals the low nibbles of 8 bytes to the low half of a word and the high ones to the high half, in order.
func deal(x uint64) uint64 {
	// Each step exchanges the middle two of four neighbours: nibbles, bytes, pairs of bytes.
	t := (x ^ x>>4) & 0x00f0_00f0_00f0_00f0
	x ^= t ^ t<<4
	t = (x ^ x>>8) & 0x0000_ff00_0000_ff00
	x ^= t ^ t<<8
	t = (x ^ x>>16) & 0x0000_0000_ffff_0000
	return x ^ t ^ t<<16
}

const (
	ones   = 0x0101010101010101 // of bytes
	low4   = 0x0f * ones
	pairs2 = 0x33 * ones // the low two bits of each nibble
)

func codesQ3_K(dst, src []byte) {
	for len(dst) >= CodeBytes {
		b, c := (*[110]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[108:]))
		low, high := binary.LittleEndian.Uint64(b[96:]), uint64(binary.LittleEndian.Uint32(b[104:])) // see scalesQ3K
		for i := range 2 {
			h := high>>(4*i)&0x03030303 | high>>(4*i+2)&0x03030303<<32
			sc := low>>(4*i)&low4 | h<<4
			binary.LittleEndian.PutUint64(c[4+8*i:], (sc+0x60*ones)^0x80*ones) // sc-32 in each byte
		}
		for i := range 4 { // elements 8*i to 8*i+7 of every 32
			hmask := binary.LittleEndian.Uint64(b[8*i:])
			for half := range 2 {
				q := binary.LittleEndian.Uint64(b[32+32*half+8*i:])
				// Bits 0 and 4 of a byte of h are those of the 32 elements number 0 and 2 of this half, after a shift
				// by one 1 and 3.
				h := hmask >> (4 * half)
				even := deal(q&pairs2 | h&ones<<2 | h&(4*ones)<<4)
				odd := deal(q>>2&pairs2 | h&(2*ones)<<1 | h&(8*ones)<<3)
				put8(c, 16*half+i, uint32(even))
				put8(c, 16*half+4+i, uint32(odd))
				put8(c, 16*half+8+i, uint32(even>>32))
				put8(c, 16*half+12+i, uint32(odd>>32))
			}
		}
		dst, src = dst[CodeBytes:], src[110:]
	}
}

func codesIQ4_XS(dst, src []byte) {
	for len(dst) >= CodeBytes {
		b, c := (*[136]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[:]))
		high := binary.LittleEndian.Uint16(b[2:])
		for s := range 8 {
			sc := b[4+s/2]>>(s%2*4)&15 | byte(high>>(2*s)&3)<<4
			c[4+2*s], c[5+2*s] = sc-32, sc-32
			for i := range 2 {
				q := deal(binary.LittleEndian.Uint64(b[8+16*s+8*i:]))
				put8(c, 4*s+i, uint32(q))
				put8(c, 4*s+2+i, uint32(q>>32))
			}
		}
		dst, src = dst[CodeBytes:], src[136:]
	}
}

func codesIQ2_XXS(dst, src []byte) {
	grid, signs := indicesIQ2XXS(), signBits7()
	for len(dst) >= CodeBytes {
		b, c := (*[66]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[:])/8)
		for s := range 8 {
			q := b[2+8*s:][:8]
			aux := binary.LittleEndian.Uint32(q[4:])
			sc := byte(aux>>28*2 + 1)
			c[4+2*s], c[5+2*s] = sc, sc
			for l := range 4 {
				put8(c, 4*s+l, grid[q[l]]|signs[aux>>(7*l)&127])
			}
		}
		dst, src = dst[CodeBytes:], src[66:]
	}
}

// oddScales stores 2*n+1 for each of 16 nibbles n, those of a byte the low one first.
func oddScales(c *codeBlock, scales *[8]byte) {
	for i, s := range scales {
		c[4+2*i], c[5+2*i] = s&15*2+1, s>>4*2+1
	}
}

func codesIQ2_XS(dst, src []byte) {
	grid, signs := indicesIQ2XS(), signBits7()
	for len(dst) >= CodeBytes {
		b, c := (*[74]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[:])/8)
		oddScales(c, (*[8]byte)(b[66:]))
		for i := range 32 {
			q := binary.LittleEndian.Uint16(b[2+2*i:])
			put8(c, i, grid[q&511]|signs[q>>9])
		}
		dst, src = dst[CodeBytes:], src[74:]
	}
}

func codesIQ2_S(dst, src []byte) {
	grid, signs := indicesIQ2S(), signBits()
	for len(dst) >= CodeBytes {
		b, c := (*[82]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[:])/8)
		oddScales(c, (*[8]byte)(b[74:]))
		qs, minus, qh := b[2:34], b[34:66], b[66:74]
		for i, q := range qs {
			put8(c, i, grid[int(q)|int(qh[i/4]>>(i%4*2)&3)<<8]|signs[minus[i]])
		}
		dst, src = dst[CodeBytes:], src[82:]
	}
}

func codesIQ3_XXS(dst, src []byte) {
	grid, signs := indicesIQ3XXS(), signBits7()
	for len(dst) >= CodeBytes {
		b, c := (*[98]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[:])/4)
		for s := range 8 {
			q := b[2+8*s:][:8]
			aux := binary.LittleEndian.Uint32(b[66+4*s:])
			sc := byte(aux>>28*2 + 1)
			c[4+2*s], c[5+2*s] = sc, sc
			for l := range 4 {
				put8(c, 4*s+l, grid[q[2*l]]|grid[q[2*l+1]]<<16|signs[aux>>(7*l)&127])
			}
		}
		dst, src = dst[CodeBytes:], src[98:]
	}
}

func codesIQ3_S(dst, src []byte) {
	grid, signs := indicesIQ3S(), signBits()
	for len(dst) >= CodeBytes {
		b, c := (*[110]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[:]))
		qs, qh, minus, scales := b[2:66], b[66:74], b[74:106], b[106:110]
		for i, s := range scales {
			lo, hi := s&15*2+1, s>>4*2+1
			c[4+4*i], c[5+4*i], c[6+4*i], c[7+4*i] = lo, lo, hi, hi
		}
		for i, s := range minus {
			h := int(qh[i/4]) >> (i % 4 * 2)
			put8(c, i, grid[int(qs[2*i])|h&1<<8]|grid[int(qs[2*i+1])|h&2<<7]<<16|signs[s])
		}
		dst, src = dst[CodeBytes:], src[110:]
	}
}

const shift8 = 0x8888_8888 // bit 3 of 8 indices, the shift of an IQ1 point

func codesIQ1_S(dst, src []byte) {
	grid := indicesIQ1()
	for len(dst) >= CodeBytes {
		b, c := (*[50]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[:])/8)
		for s := range 8 {
			q, h := b[2+4*s:][:4], uint32(binary.LittleEndian.Uint16(b[34+2*s:]))
			sc := byte(h>>12&7*2 + 1)
			c[4+2*s], c[5+2*s] = sc, sc
			for l := range 4 {
				put8(c, 4*s+l, grid[uint32(q[l])|h>>(3*l)&7<<8]|h>>15*shift8)
			}
		}
		dst, src = dst[CodeBytes:], src[50:]
	}
}

func codesIQ1_M(dst, src []byte) {
	grid := indicesIQ1()
	for len(dst) >= CodeBytes {
		b, c := (*[56]byte)(src), (*codeBlock)(dst)
		sc := (*[8]byte)(b[48:])
		putD(c, scaleIQ1M(sc)/8)
		for i := range 16 {
			h := uint32(b[32+i])
			w := binary.LittleEndian.Uint16(sc[i/4*2:])
			c[4+i] = byte(w>>(i%4*3)&7*2 + 1)
			put8(c, 2*i, grid[uint32(b[2*i])|h&7<<8]|h>>3&1*shift8)
			put8(c, 2*i+1, grid[uint32(b[2*i+1])|h>>4&7<<8]|h>>7*shift8)
		}
		dst, src = dst[CodeBytes:], src[56:]
	}
}

// digits8 is the digits of 8 bytes of TQ1_0 (see ternary): words[n] has digit n of byte j in bits 4*j.
func digits8(x uint64) (words [5]uint32) {
	// Bytes of even and of odd number in lanes of 16 bits: once a lane is multiplied by 3 its digit stands above the
	// byte.
	const bytes, digit = 0x00ff_00ff_00ff_00ff, 0x0300_0300_0300_0300
	even, odd := x&bytes, x>>8&bytes
	for n := range words {
		even, odd = even*3, odd*3
		w := even&digit>>8 | odd&digit>>4
		w = (w | w>>8) & 0x0000_ffff_0000_ffff
		words[n] = uint32(w | w>>16)
		even, odd = even&bytes, odd&bytes
	}
	return words
}

func codesTQ1_0(dst, src []byte) {
	for len(dst) >= CodeBytes {
		b, c := (*[54]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[52:]))
		unitScales(c)
		for i := range 4 {
			for n, w := range digits8(binary.LittleEndian.Uint64(b[8*i:])) {
				put8(c, 4*n+i, w)
			}
		}
		for i := range 2 {
			for n, w := range digits8(binary.LittleEndian.Uint64(b[32+8*i:])) {
				put8(c, 20+2*n+i, w)
			}
		}
		w := digits8(uint64(binary.LittleEndian.Uint32(b[48:])))
		put8(c, 30, w[0]|w[1]<<16)
		put8(c, 31, w[2]|w[3]<<16)
		dst, src = dst[CodeBytes:], src[54:]
	}
}

// unitScales stores 16 scales of 1.
func unitScales(c *codeBlock) {
	binary.LittleEndian.PutUint64(c[4:], ones)
	binary.LittleEndian.PutUint64(c[12:], ones)
}

func codesTQ2_0(dst, src []byte) {
	for len(dst) >= CodeBytes {
		b, c := (*[66]byte)(src), (*codeBlock)(dst)
		putD(c, f16(b[64:]))
		unitScales(c)
		for i := range 8 { // 8 bytes: elements of 4 times 32, as in Q3_K
			q := binary.LittleEndian.Uint64(b[8*i:])
			even, odd := deal(q&pairs2), deal(q>>2&pairs2)
			at := i/4*16 + i%4
			put8(c, at, uint32(even))
			put8(c, at+4, uint32(odd))
			put8(c, at+8, uint32(even>>32))
			put8(c, at+12, uint32(odd>>32))
		}
		dst, src = dst[CodeBytes:], src[66:]
	}
}

func q8FromIQ4_NL(dst, src []byte) {
	for len(dst) >= 34 {
		b, c := (*[18]byte)(src), (*[34]byte)(dst)
		c[0], c[1] = b[0], b[1]
		for j, q := range b[2:] {
			c[2+j] = byte(codeValuesIQ4[q&15])
			c[18+j] = byte(codeValuesIQ4[q>>4])
		}
		dst, src = dst[34:], src[18:]
	}
}

func q8FromQ1_0(dst, src []byte) {
	for len(dst) >= 4*34 {
		b := (*[18]byte)(src)
		for k := range 4 {
			c := (*[34]byte)(dst[34*k:])
			c[0], c[1] = b[0], b[1]
			for i, q := range b[2+4*k:][:4] {
				// Bit j of q is left in byte j, then made 1 there; 1 and 0 become 1 and -1.
				x := uint64(q) * ones & 0x8040_2010_0804_0201
				x = (x + 0x7f*ones) >> 7 & ones
				binary.LittleEndian.PutUint64(c[2+8*i:], ^(x * 0xfe))
			}
		}
		dst, src = dst[4*34:], src[18:]
	}
}

func q8FromQ2_0(dst, src []byte) {
	for len(dst) >= 2*34 {
		b := (*[18]byte)(src)
		for k := range 2 {
			c := (*[34]byte)(dst[34*k:])
			c[0], c[1] = b[0], b[1]
			for i := range 4 {
				// The 16 bits are spread to a pair in each byte.
				x := uint64(binary.LittleEndian.Uint16(b[2+8*k+2*i:]))
				x = (x | x<<24) & 0x0000_00ff_0000_00ff
				x = (x | x<<12) & 0x000f_000f_000f_000f
				x = (x | x<<6) & (3 * ones)
				binary.LittleEndian.PutUint64(c[2+8*i:], (x+0x7f*ones)^0x80*ones) // x-1 in each byte
			}
		}
		dst, src = dst[2*34:], src[18:]
	}
}
