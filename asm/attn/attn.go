// Package attn holds the inner loops of attention over one block of 64 keys and values of one head.
//
// Three kernels make one step of online softmax (Milakov and Gimelshein 2018) for a tile of queries that share the head:
//
//	Scores   S[i][j] = chain over d ascending of fma(K[d][j], Q[i][d], S), from 0
//	Softmax  m' = max(m, max_j S[i][j]); alpha = exp2(m - m'); P[i][j] = exp2(S[i][j] - m') in place of S; sum = sum*alpha + P
//	PV       O[i][:] = O[i][:]*alpha, then fma(P[i][j], V[j][:], O[i][:]) for j ascending in [J0, J1)
//
// K has its keys across the lanes, [d][64]; V is [64][16*NV]. So every score and every output is one chain in a lane of its own,
// and neither the number of queries nor the width of the vectors can change its bits. Sums are kept in 16 lanes: lane l takes
// ((P[l] + P[l+16]) + (P[l+32] + P[l+48])), added as fma(sum, alpha, that).
//
// exp2(x) for x <= 0: 0 for x < -125; else n = nearest even(x), a polynomial of degree 6 in x-n (error 5e-9 before rounding), and
// n added to the exponent.
package attn

import (
	"math"
	"unsafe"
)

// BlockKeys is the number of positions of a block.
const BlockKeys = 64

// Layout of a query's state, in float32: running maximum, alpha of the last Softmax, sum in 16 lanes, output.
const (
	StateMax   = 0
	StateAlpha = 1
	StateSum   = 16
	StateOut   = 32
)

// Args are the operands of the kernels; strides in bytes.
type Args struct {
	K       unsafe.Pointer // [D][64] elements
	V       unsafe.Pointer // [64][16*NV] elements
	Q       unsafe.Pointer // float32, query 0; scaled so that scores are base-2 logarithms
	QStride int            // from query to query
	S       unsafe.Pointer // float32 [M][64]: scores, then weights
	O       unsafe.Pointer // states of the queries
	OStride int            // from state to state
	D       int            // elements of a key
	NV      int            // vectors of 16 elements of a value
	VStride int            // from value to value
	J0, J1  int            // PV: keys [J0, J1); Scores: those and perhaps others of the block
	M       int            // queries; Scores and PV kernels in assembly are made for one M
	Pf      unsafe.Pointer // bytes to prefetch while Scores reads K or PV reads V, as many as these
	// Quantized blocks: scales as float32, KS [D/32][64], VS [64][VSStride/4]; an element is float(q)*scale, rounded.
	KS, VS   unsafe.Pointer
	VSStride int
	// Cap kernels: -2*log2(e)/c and c*log2(e) for the bound c of scores.
	CapIn, CapOut float32
}

// Type is the type of the elements of K and V.
type Type uint8

const (
	F32 Type = iota
	F16
	BF16
	Q8 // int8
	Q4 // nibbles; has no Scores and PV
	numTypes
)

// Width selects a family of instructions; W256 (AVX2, FMA, F16C) and W512 (AVX-512 F, BW, DQ, VL) only where Built is true.
type Width uint8

const (
	Go Width = iota
	W256
	W512
)

// MaxTile is the largest number of queries of one call.
const MaxTile = 8

// Kernels are the kernels of one type and width. Scores and PV have an entry for each size of a tile that exists (index 0 is
// never used).
type Kernels struct {
	Scores, PV [MaxTile + 1]func(*Args)
	Softmax    func(*Args)

	// Cap turns plain scores x of M queries into base-2 logarithms of capped ones, c*tanh(x/c)*log2(e), as
	// sign(x) * CapOut*(1-e)/(1+e), e = exp2(CapIn*|x|); the absolute error is below c*2^-22.
	Cap func(*Args)

	// Q8 and Q4 decode whole blocks to float32 at O. DecodeK: K [D][64]; Q4: byte 16b+j of a key holds elements 32b+j (low
	// nibble) and 32b+16+j, and all 32 rows of a block of O are written. DecodeV: V as NV consecutive blocks of 32 elements.
	DecodeK, DecodeV func(*Args)
}

// For returns the kernels of a type and a width. In Go only F32 has Scores and PV: blocks of other types are decoded first.
func For(w Width, t Type) *Kernels {
	if w == Go {
		return &goKernels[t]
	}
	return &built[w-W256][t]
}

var goKernels = [numTypes]Kernels{
	F32: {
		Scores:  [MaxTile + 1]func(*Args){8: scoresGo, 4: scoresGo, 2: scoresGo, 1: scoresGo},
		PV:      [MaxTile + 1]func(*Args){8: pvGo, 4: pvGo, 2: pvGo, 1: pvGo},
		Softmax: softmaxGo,
		Cap:     capGo,
	},
	Q8: {DecodeK: decodeK8Go, DecodeV: decodeV8Go},
	Q4: {DecodeK: decodeK4Go, DecodeV: decodeV4Go},
}

func floats(p unsafe.Pointer, byteOff, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(p, byteOff)), n)
}

func scoresGo(a *Args) {
	k := floats(a.K, 0, a.D*BlockKeys)
	for i := range a.M {
		s := floats(a.S, 4*BlockKeys*i, BlockKeys)
		clear(s)
		for d, q := range floats(a.Q, i*a.QStride, a.D) {
			for j, x := range k[BlockKeys*d:][:BlockKeys] {
				s[j] += float32(x * q)
			}
		}
	}
}

func softmaxGo(a *Args) {
	for i := range a.M {
		s, st := floats(a.S, 4*BlockKeys*i, BlockKeys), floats(a.O, i*a.OStride, StateOut)
		m := st[StateMax]
		for _, x := range s {
			m = max(m, x)
		}
		alpha := Exp2(st[StateMax] - m)
		st[StateMax], st[StateAlpha] = m, alpha
		for j, x := range s {
			s[j] = Exp2(x - m)
		}
		for l := range 16 {
			st[StateSum+l] = float32(st[StateSum+l]*alpha) + ((s[l] + s[l+16]) + (s[l+32] + s[l+48]))
		}
	}
}

func capGo(a *Args) {
	s := floats(a.S, 0, a.M*BlockKeys)
	for i, x := range s {
		e := Exp2(a.CapIn * float32(math.Abs(float64(x))))
		s[i] = float32(math.Copysign(float64(a.CapOut*((1-e)/(1+e))), float64(x)))
	}
}

func pvGo(a *Args) {
	n := 16 * a.NV
	for i := range a.M {
		p, st := floats(a.S, 4*BlockKeys*i, BlockKeys), floats(a.O, i*a.OStride, StateOut+n)
		o := st[StateOut:]
		for d := range o {
			o[d] *= st[StateAlpha]
		}
		for j := a.J0; j < a.J1; j++ {
			for d, x := range floats(a.V, j*a.VStride, n) {
				o[d] += float32(x * p[j])
			}
		}
	}
}

func decodeK8Go(a *Args) {
	k, o := unsafe.Slice((*int8)(a.K), a.D*BlockKeys), floats(a.O, 0, a.D*BlockKeys)
	for d := range a.D {
		scale := floats(a.KS, d/32*4*BlockKeys, BlockKeys)
		for j, q := range k[d*BlockKeys:][:BlockKeys] {
			o[d*BlockKeys+j] = float32(q) * scale[j]
		}
	}
}

func decodeK4Go(a *Args) {
	blocks := (a.D + 31) / 32
	k, o := unsafe.Slice((*byte)(a.K), blocks*16*BlockKeys), floats(a.O, 0, blocks*32*BlockKeys)
	for r := range 16 * blocks {
		b, e := r/16, r%16
		scale := floats(a.KS, b*4*BlockKeys, BlockKeys)
		for j, q := range k[r*BlockKeys:][:BlockKeys] {
			o[(32*b+e)*BlockKeys+j] = float32(int(q&15)-8) * scale[j]
			o[(32*b+e+16)*BlockKeys+j] = float32(int(q>>4)-8) * scale[j]
		}
	}
}

func decodeV8Go(a *Args) {
	v, scale, o := unsafe.Slice((*int8)(a.V), a.NV*32), floats(a.VS, 0, a.NV), floats(a.O, 0, a.NV*32)
	for i, q := range v {
		o[i] = float32(q) * scale[i/32]
	}
}

func decodeV4Go(a *Args) {
	v, scale, o := unsafe.Slice((*byte)(a.V), a.NV*16), floats(a.VS, 0, a.NV), floats(a.O, 0, a.NV*32)
	for i, q := range v {
		b, e := i/16, i%16
		o[32*b+e] = float32(int(q&15)-8) * scale[b]
		o[32*b+e+16] = float32(int(q>>4)-8) * scale[b]
	}
}

// Exp2 is 2^x rounded to float32 for x <= 0, and 0 for x < -125, where the kernels' exp2 is 0 too; it has the same bits on every
// width and is what merges of partial results use.
func Exp2(x float32) float32 {
	switch {
	case x == 0: // one of the two arguments of each merge
		return 1
	case x < -125:
		return 0
	}
	return float32(math.Exp2(float64(x)))
}

// StoreKeys writes eight keys of d elements of 16 bits, stride elements apart from src on, to consecutive positions of a block
// [d][64], the first at dst.
func StoreKeys(w Width, dst, src []uint16, stride, d int) {
	_, _ = dst[(d-1)*BlockKeys+7], src[7*stride+d-1]
	whole := 0
	if w != Go && d >= 8 {
		whole = d &^ 7
		storeKeys(&Args{K: unsafe.Pointer(&dst[0]), V: unsafe.Pointer(&src[0]), VStride: 2 * stride, D: whole})
	}
	for i := range 8 {
		for e := whole; e < d; e++ {
			dst[e*BlockKeys+i] = src[i*stride+e]
		}
	}
}
