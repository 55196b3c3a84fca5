package quant

import (
	"encoding/binary"
	"math"
)

// Quantizers of the K types. All search scales (and minima) of the sub-blocks first, in float32; then codes for
// these, with one F16 scale for the super-block; then they choose the codes of the elements again, by the scales as
// they are stored. A sub-block whose stored scale is 0 keeps the codes of the search. For the fields see k.go.

// affineType is how a type with minima, Q2_K, Q4_K or Q5_K, is searched.
type affineType struct {
	size   int   // elements of a sub-block
	n      int32 // largest code of an element
	levels int32 // largest code of a scale or minimum
	plain  affineGrid
	// without importances the weight of x is |x| plus this part of the root mean square of the sub-block
	average float32
	// with importances: the variance in the weights is this multiple of the mean square of the super-block
	variance float32
}

// gridWeighted is the grid of all searches with importances.
var gridWeighted = affineGrid{-0.9, 0.05, 36, false}

var (
	affineQ2K = affineType{16, 3, 15, affineGrid{-0.5, 0.1, 15, true}, 0, 1}
	affineQ4K = affineType{32, 15, 63, affineGrid{-1, 0.1, 20, false}, 1, 2}
	affineQ5K = affineType{32, 31, 63, affineGrid{-0.5, 0.1, 15, false}, 1, 2}
)

// affineBlock is a super-block of a type with minima. The first 256/size elements of the arrays of sub-blocks are in
// use.
type affineBlock struct {
	codes   [256]byte // of the elements
	sc, m   [16]byte  // codes of the scales and minima of sub-blocks
	d, dmin float32   // the scales of these
}

// searchAffineBlock finds the scales, minima and codes of a super-block. weights are the importances, or nil.
func searchAffineBlock(y *affineBlock, x *[256]float32, weights []float32, t *affineType) {
	var scaleBuf, lowBuf, sumBuf [16]float32
	var weightBuf [32]float32
	blocks, w := 256/t.size, weightBuf[:t.size]
	scales, mins, sums := scaleBuf[:blocks], lowBuf[:blocks], sumBuf[:blocks]
	grid, variance := &t.plain, float32(0)
	if weights != nil {
		grid, variance = &gridWeighted, float32(t.variance*squares(x[:])/256)
	}
	for s := range scales {
		sub := x[s*t.size:][:t.size]
		if weights != nil {
			sums[s] = searchWeights(w, sub, weights[s*t.size:][:t.size], variance)
		} else {
			average := float32(t.average * float32(math.Sqrt(float64(squares(sub)/float32(t.size)))))
			for i, v := range sub {
				w[i] = average + abs(v)
			}
		}
		var low float32
		scales[s], low = searchAffine(y.codes[s*t.size:][:t.size], sub, w, t.n, grid)
		mins[s] = -low
	}
	sc, m := y.sc[:blocks], y.m[:blocks]
	if weights != nil {
		y.d = searchPositive(sc, scales, sums, t.levels)
		y.dmin = searchPositive(m, mins, sums, t.levels)
	} else {
		y.d = searchLargest(sc, scales, float32(t.levels))
		y.dmin = searchLargest(m, mins, float32(t.levels))
	}
}

// quantizeAffineCodes chooses the codes of the elements by the scales and minima in y, which are as stored.
func quantizeAffineCodes(y *affineBlock, x *[256]float32, t *affineType) {
	for s := range 256 / t.size {
		scale := y.d * float32(y.sc[s])
		if scale == 0 {
			continue
		}
		low := float32(y.dmin * float32(y.m[s]))
		out := y.codes[s*t.size:][:t.size]
		for i, v := range x[s*t.size:][:t.size] {
			out[i] = byte(max(0, min(t.n, nearest((v+low)/scale))))
		}
	}
}

// pack2 writes the two low bits of codes: element 128*p + 32*k + j at bits 2*k of byte 32*p + j.
func pack2(b []byte, codes *[256]byte) {
	const low = 0x0303030303030303
	for p := range 2 {
		c, q := (*[128]byte)(codes[128*p:]), (*[32]byte)(b[32*p:])
		for j := 0; j < 32; j += 8 {
			v := binary.LittleEndian.Uint64(c[j:]) & low
			v |= binary.LittleEndian.Uint64(c[j+32:]) & low << 2
			v |= binary.LittleEndian.Uint64(c[j+64:]) & low << 4
			v |= binary.LittleEndian.Uint64(c[j+96:]) & low << 6
			binary.LittleEndian.PutUint64(q[j:], v)
		}
	}
}

func quantizeQ2_K(dst []byte, src, weights []float32) {
	var y affineBlock
	for len(src) >= 256 {
		b, x := (*[84]byte)(dst), (*[256]float32)(src)
		searchAffineBlock(&y, x, weights, &affineQ2K)
		storeScalesQ2K(b, &y)
		quantizeAffineCodes(&y, x, &affineQ2K)
		pack2(b[16:80], &y.codes)
		dst, src, weights = dst[84:], src[256:], after(weights, 256)
	}
}

// after is weights[n:], or nil where there are none.
func after(weights []float32, n int) []float32 {
	if weights == nil {
		return nil
	}
	return weights[n:]
}

// packScalesQ4K is the reverse of scalesQ4K.
func packScalesQ4K(b *[12]byte, sc, m []byte) {
	for s := range 4 {
		b[s] = sc[s] | sc[s+4]>>4<<6
		b[s+4] = m[s] | m[s+4]>>4<<6
		b[s+8] = sc[s+4]&15 | m[s+4]<<4
	}
}

// storeScalesQ2K writes the scales and minima in y and sets them to what is stored.
func storeScalesQ2K(b *[84]byte, y *affineBlock) {
	putF16(b[80:], y.d)
	putF16(b[82:], y.dmin)
	y.d, y.dmin = f16(b[80:]), f16(b[82:])
	for s := range y.sc {
		b[s] = y.sc[s] | y.m[s]<<4
		y.sc[s], y.m[s] = b[s]&15, b[s]>>4
	}
}

// storeScalesQ4K writes the scales and minima in y, the first 16 bytes of a block of Q4_K or Q5_K, and sets them to
// what is stored. It makes codes fit where asked to.
func storeScalesQ4K(b *[16]byte, y *affineBlock, fit bool) {
	putF16(b[:], y.d)
	putF16(b[2:], y.dmin)
	y.d, y.dmin = f16(b[:]), f16(b[2:])
	if fit {
		for s := range 8 {
			y.sc[s], y.m[s] = min(63, y.sc[s]), min(63, y.m[s])
		}
	}
	packed := (*[12]byte)(b[4:])
	packScalesQ4K(packed, y.sc[:8], y.m[:8])
	sc, m := scalesQ4K(packed)
	copy(y.sc[:], sc[:])
	copy(y.m[:], m[:])
}

// packQ4K writes the codes of 64 elements as the nibbles of 32 bytes, four times.
func packQ4K(b *[128]byte, codes *[256]byte) {
	for p := range 4 {
		c, q := (*[64]byte)(codes[64*p:]), (*[32]byte)(b[32*p:])
		for j := 0; j < 32; j += 8 {
			low, high := binary.LittleEndian.Uint64(c[j:]), binary.LittleEndian.Uint64(c[j+32:])
			binary.LittleEndian.PutUint64(q[j:], low&nibbles8|high<<4&^nibbles8)
		}
	}
}

// nibbles8 are the low nibbles of eight bytes.
const nibbles8 = 0x0f0f0f0f0f0f0f0f

func quantizeQ4_K(dst []byte, src, weights []float32) {
	var y affineBlock
	for len(src) >= 256 {
		b, x := (*[144]byte)(dst), (*[256]float32)(src)
		searchAffineBlock(&y, x, weights, &affineQ4K)
		// ggml leaves codes modulo 256 as they are with importances.
		storeScalesQ4K((*[16]byte)(b[:]), &y, weights == nil)
		quantizeAffineCodes(&y, x, &affineQ4K)
		packQ4K((*[128]byte)(b[16:]), &y.codes)
		dst, src, weights = dst[144:], src[256:], after(weights, 256)
	}
}

func quantizeQ5_K(dst []byte, src, weights []float32) {
	var y affineBlock
	for len(src) >= 256 {
		b, x := (*[176]byte)(dst), (*[256]float32)(src)
		searchAffineBlock(&y, x, weights, &affineQ5K)
		storeScalesQ4K((*[16]byte)(b[:]), &y, true)
		quantizeAffineCodes(&y, x, &affineQ5K)
		packQ5K((*[160]byte)(b[16:]), &y.codes)
		dst, src, weights = dst[176:], src[256:], after(weights, 256)
	}
}

// packQ5K writes the fifth bits of the codes, then the others as packQ4K does.
func packQ5K(b *[160]byte, codes *[256]byte) {
	for j := 0; j < 32; j += 8 {
		var high uint64
		for k := range 8 {
			high |= binary.LittleEndian.Uint64(codes[32*k+j:]) >> 4 & 0x0101010101010101 << k
		}
		binary.LittleEndian.PutUint64(b[j:], high)
	}
	packQ4K((*[128]byte)(b[32:]), codes)
}

// quantizeSymmetricCodes chooses the codes of the elements, 0..2n-1, by the scales of the 16 sub-blocks as they are
// stored.
func quantizeSymmetricCodes(codes *[256]byte, x *[256]float32, d float32, sc *[16]int8, n int32) {
	for s := range sc {
		scale := d * float32(sc[s])
		if scale == 0 {
			continue
		}
		out := (*[16]byte)(codes[16*s:])
		for i, v := range (*[16]float32)(x[16*s:]) {
			out[i] = byte(max(-n, min(n-1, nearest(v/scale))) + n)
		}
	}
}

// searchBlockQ3K finds the codes of a super-block of Q3_K and of its scales, 0..63, and returns the scale of these.
func searchBlockQ3K(codes *[256]byte, sc *[16]byte, x *[256]float32, weights []float32) float32 {
	var scales, sums, w [16]float32
	if weights != nil {
		variance := float32(2 * squares(x[:]) / 256)
		for s := range scales {
			sub := x[16*s:][:16]
			sums[s] = searchWeights(w[:], sub, weights[16*s:][:16], variance)
			scales[s] = searchSymmetric(codes[16*s:][:16], sub, w[:], 4)
		}
		return searchSymmetric(sc[:], scales[:], sums[:], 32)
	}
	for s := range scales {
		scales[s] = searchSymmetricDescent(codes[16*s:][:16], x[16*s:][:16], 4)
	}
	return scaleCodesQ3K(sc, &scales)
}

// scaleCodesQ3K makes the codes of scales, 0..63, and returns the scale of these.
func scaleCodesQ3K(sc *[16]byte, scales *[16]float32) float32 {
	top := extreme(scales[:])
	if top == 0 {
		clear(sc[:])
		return 0
	}
	r := -32 / top
	for s, v := range scales {
		sc[s] = byte(max(-32, min(31, int8(nearest(float32(r*v))))) + 32)
	}
	return 1 / r
}

// packScalesQ3K is the reverse of scalesQ3K; sc has the offset of 32.
func packScalesQ3K(b *[12]byte, sc *[16]byte) {
	clear(b[:])
	for s, c := range sc {
		b[s%8] |= c & 15 << (s / 8 * 4)
		b[8+s%4] |= c >> 4 << (s / 4 * 2)
	}
}

func quantizeQ3_K(dst []byte, src, weights []float32) {
	var codes [256]byte
	var sc [16]byte
	for len(src) >= 256 {
		b, x := (*[110]byte)(dst), (*[256]float32)(src)
		d := searchBlockQ3K(&codes, &sc, x, weights)
		scales := storeScalesQ3K(b, d, &sc)
		quantizeSymmetricCodes(&codes, x, f16(b[108:]), &scales, 4)
		packQ3K((*[96]byte)(b[:]), &codes)
		dst, src, weights = dst[110:], src[256:], after(weights, 256)
	}
}

// storeScalesQ3K writes the scale d of the codes sc and these, and returns them as they are stored.
func storeScalesQ3K(b *[110]byte, d float32, sc *[16]byte) [16]int8 {
	putF16(b[108:], d)
	packed := (*[12]byte)(b[96:])
	packScalesQ3K(packed, sc)
	return scalesQ3K(packed)
}

// packQ3K writes the third bits of the codes, then the two low ones.
func packQ3K(b *[96]byte, codes *[256]byte) {
	for j := 0; j < 32; j += 8 {
		var high uint64
		for k := range 8 {
			high |= binary.LittleEndian.Uint64(codes[32*k+j:]) >> 2 & 0x0101010101010101 << k
		}
		binary.LittleEndian.PutUint64(b[j:], high)
	}
	pack2(b[32:], codes)
}

func quantizeQ6_K(dst []byte, src, weights []float32) {
	var codes [256]byte
	var scales, w [16]float32
	for len(src) >= 256 {
		b, x := (*[210]byte)(dst), (*[256]float32)(src)
		for s := range scales {
			sub := x[16*s:][:16]
			if weights != nil {
				copy(w[:], weights[16*s:])
			} else {
				for i, v := range sub {
					w[i] = v * v
				}
			}
			scales[s] = searchSymmetric(codes[16*s:][:16], sub, w[:], 32)
		}
		if sc, ok := storeScalesQ6K(b, &scales); ok {
			quantizeSymmetricCodes(&codes, x, f16(b[208:]), &sc, 32)
			packQ6K((*[192]byte)(b[:]), &codes)
		}
		dst, src, weights = dst[210:], src[256:], after(weights, 256)
	}
}

// storeScalesQ6K writes the scales and returns their codes. Where all are negligible the whole block is zero.
func storeScalesQ6K(b *[210]byte, scales *[16]float32) (sc [16]int8, ok bool) {
	top := extreme(scales[:])
	if abs(top) < negligible {
		clear(b[:])
		return sc, false
	}
	r := -128 / top
	for s, v := range scales {
		sc[s] = int8(min(127, nearest(float32(r*v))))
		b[192+s] = byte(sc[s])
	}
	putF16(b[208:], 1/r)
	return sc, true
}

// packQ6K writes the low nibbles and the two high bits of the codes.
func packQ6K(b *[192]byte, codes *[256]byte) {
	const two = 0x0303030303030303
	for p := range 2 {
		c, ql, qh := (*[128]byte)(codes[128*p:]), (*[64]byte)(b[64*p:]), (*[32]byte)(b[128+32*p:])
		for j := 0; j < 32; j += 8 {
			c0, c1 := binary.LittleEndian.Uint64(c[j:]), binary.LittleEndian.Uint64(c[j+32:])
			c2, c3 := binary.LittleEndian.Uint64(c[j+64:]), binary.LittleEndian.Uint64(c[j+96:])
			binary.LittleEndian.PutUint64(ql[j:], c0&nibbles8|c2&nibbles8<<4)
			binary.LittleEndian.PutUint64(ql[j+32:], c1&nibbles8|c3&nibbles8<<4)
			high := c0 >> 4 & two
			high |= c1 >> 4 & two << 2
			high |= c2 >> 4 & two << 4
			high |= c3 >> 4 & two << 6
			binary.LittleEndian.PutUint64(qh[j:], high)
		}
	}
}

func quantizeQ8_K(dst []byte, src, _ []float32) {
	for len(src) >= 256 {
		b, x := (*[292]byte)(dst), (*[256]float32)(src)
		var r, d float32
		if top := extreme(x[:]); top != 0 {
			r = -127 / top
			d = 1 / r
		}
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(d))
		for g := range 16 {
			sum := int32(0)
			for i, v := range (*[16]float32)(x[16*g:]) {
				q := int8(min(127, nearest(float32(r*v))))
				b[4+16*g+i] = byte(q)
				sum += int32(q)
			}
			binary.LittleEndian.PutUint16(b[260+2*g:], uint16(sum))
		}
		dst, src = dst[292:], src[256:]
	}
}
