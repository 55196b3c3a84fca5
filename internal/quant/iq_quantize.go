package quant

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// Quantizers of the IQ2 and IQ3 types. The elements of a sub-block are taken as magnitudes and signs. A search by
// steps gives the magnitudes levels; points that are not of the grid move to one near them. A level l stands for the
// odd number 2*l+1 times the scale of the sub-block, which itself becomes an odd multiple, at most 31, of the scale
// of the super-block. For the fields see iq.go.

// oddValues are what the levels stand for.
var oddValues = [8]float32{1, 3, 5, 7, 9, 11, 13, 15}

// gridType is how an IQ2 or IQ3 type is searched.
type gridType struct {
	size int     // elements of a sub-block
	even bool    // of 8 elements an even number is negative
	zero float32 // a sub-block of smaller magnitudes is taken as zero
	// with importances: the variance in the weights is this multiple of the mean square of the super-block
	variance float32
	plain    float32 // without: the part of that variance which is added to x*x
	tries    int32   // steps tried to either side of the one that gives the largest magnitude the highest level
	step     float32 // their distance
	refine   refine
}

// refine says which points of a sub-block are chosen again, once the scale is known.
type refine byte

const (
	refineMoved refine = iota // those that had left the grid
	refineAny                 // all, if any had left the grid
	refineAll                 // all
)

var (
	gridTypeIQ2XXS = gridType{32, true, 1e-15, 1, 0, 6, 0.1, refineAll}
	gridTypeIQ2XS  = gridType{16, true, 1e-15, 1, 0, 9, 0.1, refineMoved}
	gridTypeIQ2S   = gridType{16, false, 1e-8, 2, 0.25, 9, 0.1, refineMoved}
	gridTypeIQ3XXS = gridType{32, true, 1e-8, 2, 0, 15, 0.2, refineMoved}
	// ggml takes zeros alone as zero. Under 6e-38 the reciprocals of the steps overflow.
	gridTypeIQ3S = gridType{32, false, 6e-38, 2, 0, 9, 0.2, refineAny}
)

// gridBlock is a sub-block in the search. The first size elements are in use, and as many signs and points as they
// have.
type gridBlock struct {
	x          [32]float32 // magnitudes; one of 8 is a negative one where the number of signs had to be made even
	w, root    [32]float32 // weights and their roots
	signs      [4]byte
	levels     [32]int8 // the best so far
	trial      [32]int8
	moved      [8]bool // points of levels that were not of the grid
	trialMoved [8]bool
	free       [32]byte // codes of a search without a grid
}

// searchSigns splits the elements into magnitudes and signs. Where their number has to be even and is not, the
// element of 8 with the smallest w*x*x gets the wrong sign.
func searchSigns(s *gridBlock, x []float32, even bool) {
	for i, v := range x {
		p := &s.signs[i/8]
		if i%8 == 0 {
			*p = 0
		}
		s.x[i] = v
		if !(v >= 0) {
			s.x[i] = -v
			*p |= 1 << (i % 8)
		}
	}
	if !even {
		return
	}
	for k := range len(x) / 8 {
		if bits.OnesCount8(s.signs[k])%2 == 0 {
			continue
		}
		least, at := s.w[8*k]*x[8*k]*x[8*k], 8*k
		for i := 8*k + 1; i < 8*k+8; i++ {
			if e := s.w[i] * x[i] * x[i]; e < least {
				least, at = e, i
			}
		}
		s.x[at] = -s.x[at]
		s.signs[k] ^= 1 << (at % 8)
	}
}

// searchPoint sets the levels of the point at element i that are nearest to x at step 1/r, or those of the grid's
// point near to it that has the smallest error at the scale. It reports whether the point was not of the grid.
func searchPoint(s *gridBlock, g *lattice, levels []int8, i int, r, scale float32) (moved bool) {
	x := s.x[i:][:g.dim]
	levels = levels[i:][:g.dim]
	for j, v := range x {
		levels[j] = int8(max(0, min(g.top, nearest(0.5*(float32(r*v)-1)))))
	}
	code := g.code(levels)
	if g.index[code] >= 0 {
		return false
	}
	g.unpack(levels, searchNeighbour(g, code, x, s.root[i:][:g.dim], scale, &oddValues))
	return true
}

// searchSums gives the sums of w*x*q and w*q*q over levels that stand for q.
func searchSums(s *gridBlock, levels []int8) (xq, qq float32) {
	for i, l := range levels {
		q := oddValues[l&7]
		xq += float32(s.w[i] * s.x[i] * q)
		qq += float32(s.w[i] * q * q)
	}
	return xq, qq
}

// searchGrid makes the sum of w*(x - d*q)^2 small: it sets the levels, which stand for q, and returns d.
//
// For given levels the best d is xq/qq, and it lowers the sum by xq*xq/qq. By that it compares steps around the one
// that gives top the highest level; then it chooses points again at the best d. Where no step has a finite positive
// sum, d starts as given.
func searchGrid(s *gridBlock, t *gridType, g *lattice, top, d float32) float32 {
	clear(s.levels[:])
	for p := range s.moved {
		s.moved[p] = t.refine != refineMoved
	}
	highest := float32(2*g.top + 1)
	var best float32
	for k := -t.tries; k <= t.tries; k++ {
		r := (highest + float32(t.step*float32(k))) / top
		scale := 1 / r
		for i := 0; i < t.size; i += g.dim {
			s.trialMoved[i/g.dim] = searchPoint(s, g, s.trial[:], i, r, scale)
		}
		xq, qq := searchSums(s, s.trial[:t.size])
		if qq > 0 && xq*xq > best*qq {
			d = xq / qq
			best = d * xq
			s.levels, s.moved = s.trial, s.trialMoved
		}
	}
	return searchGridAgain(s, t, g, d)
}

// searchGridAgain is the second half of searchGrid, at the best d of the first.
func searchGridAgain(s *gridBlock, t *gridType, g *lattice, d float32) float32 {
	points := t.size / g.dim
	if !(t.refine == refineAll || slices.Contains(s.moved[:points], true)) || !(d > 0) {
		return d
	}
	r := 1 / d
	for p := range points {
		if t.refine != refineMoved || s.moved[p] {
			searchPoint(s, g, s.levels[:], p*g.dim, r, d)
		}
	}
	if xq, qq := searchSums(s, s.levels[:t.size]); qq > 0 {
		d = xq / qq
	}
	return d
}

// openGridBlock readies a sub-block for the search. weights are the importances from its first element on, or nil;
// sum is that of the squares in the super-block. It returns the largest magnitude and the first d; where there is
// nothing to search, none is true and d is the scale.
func openGridBlock(s *gridBlock, t *gridType, g *lattice, x, weights []float32, sum float32) (top, d float32,
	none bool) {
	x = x[:t.size]
	variance := float32(float32(t.variance*sum) / 256)
	weightsIQ(s.w[:], x, weights, variance, float32(t.plain*variance))
	for i, w := range s.w[:t.size] {
		s.root[i] = float32(math.Sqrt(float64(w)))
	}
	searchSigns(s, x, t.even)
	top = s.x[0]
	for _, v := range s.x[1:t.size] {
		if !(top > v) {
			top = v
		}
	}
	d = top / float32(2*g.top+1)
	none = top < t.zero
	if t.refine == refineAll && !none { // starts from the best d without a grid
		d = searchPositive(s.free[:t.size], s.x[:t.size], s.w[:t.size], g.top+2)
		top = d * float32(g.top+1)
		none = !(top > 0)
	}
	if none {
		clear(s.levels[:])
		clear(s.signs[:])
		d = unheldOrZero(largest(x))
	}
	return top, d, none
}

// searchGridBlock finds levels, signs and scale of a sub-block; for the arguments see openGridBlock.
func searchGridBlock(s *gridBlock, t *gridType, g *lattice, x, weights []float32, sum float32) float32 {
	top, d, none := openGridBlock(s, t, g, x, weights, sum)
	if none {
		return d
	}
	return closeGridBlock(s, searchGrid(s, t, g, top, d))
}

// closeGridBlock makes the scale positive, by the signs.
func closeGridBlock(s *gridBlock, d float32) float32 {
	if d < 0 {
		d = -d
		for k := range s.signs {
			s.signs[k] = ^s.signs[k]
		}
	}
	return finiteOrInf(d)
}

// point is the number of the grid's point p of a sub-block.
func (s *gridBlock) point(g *lattice, p int) int { return int(g.index[g.code(s.levels[p*g.dim:])]) }

// searchOdd makes the scales odd multiples, (2*c+1)*d for c in 0..n, of which the largest is exact. It returns d: 0,
// with all c, where the scales are zero or too small for the reciprocal of d.
func searchOdd(codes []byte, scales []float32, n int32) float32 {
	var top float32
	for _, s := range scales {
		top = max(top, s)
	}
	d := top / float32(2*n+1)
	r := 1 / d
	if r-r != 0 {
		clear(codes)
		return 0
	}
	for i, s := range scales {
		codes[i] = byte(max(0, min(n, nearest(0.5*(float32(r*s)-1)))))
	}
	return d
}

// packNibbles writes codes, two to a byte.
func packNibbles(b, codes []byte) {
	for i := range b {
		b[i] = codes[2*i] | codes[2*i+1]<<4
	}
}

// packSigns7 joins the signs of 32 elements, 7 bits of 8 each.
func packSigns7(signs *[4]byte) (v uint32) {
	for k, s := range signs {
		v |= uint32(s&127) << (7 * k)
	}
	return v
}

// gridForm is a type whose sub-blocks are points of a grid.
type gridForm struct {
	t       Type
	search  *gridType
	lattice func() *lattice
	bytes   int
}

// gridForms are the forms, by type; those of other types are zero.
var gridForms = [...]gridForm{
	IQ2_XXS: {IQ2_XXS, &gridTypeIQ2XXS, latticeIQ2XXS, 66},
	IQ2_XS:  {IQ2_XS, &gridTypeIQ2XS, latticeIQ2XS, 74},
	IQ2_S:   {IQ2_S, &gridTypeIQ2S, latticeIQ2S, 82},
	IQ3_XXS: {IQ3_XXS, &gridTypeIQ3XXS, latticeIQ3XXS, 98},
	IQ3_S:   {IQ3_S, &gridTypeIQ3S, latticeIQ3S, 110},
}

// store writes a super-block. The calls are direct, so that callers keep the sub-blocks on their stacks.
func (f *gridForm) store(b []byte, s []gridBlock, scales []float32, g *lattice) {
	switch f.t {
	case IQ2_XXS:
		storeIQ2XXS(b, s, scales, g)
	case IQ2_XS:
		storeIQ2XS(b, s, scales, g)
	case IQ2_S:
		storeIQ2S(b, s, scales, g)
	case IQ3_XXS:
		storeIQ3XXS(b, s, scales, g)
	case IQ3_S:
		storeIQ3S(b, s, scales, g)
	}
}

func quantizeIQ2_XXS(dst []byte, src, weights []float32) {
	gridForms[IQ2_XXS].quantize(dst, src, weights)
}
func quantizeIQ2_XS(dst []byte, src, weights []float32) {
	gridForms[IQ2_XS].quantize(dst, src, weights)
}
func quantizeIQ2_S(dst []byte, src, weights []float32) { gridForms[IQ2_S].quantize(dst, src, weights) }
func quantizeIQ3_XXS(dst []byte, src, weights []float32) {
	gridForms[IQ3_XXS].quantize(dst, src, weights)
}
func quantizeIQ3_S(dst []byte, src, weights []float32) { gridForms[IQ3_S].quantize(dst, src, weights) }

func (f *gridForm) quantize(dst []byte, src, weights []float32) {
	g, size := f.lattice(), f.search.size
	var blocks [16]gridBlock
	var scales [16]float32
	n := 256 / size
	for len(src) >= 256 {
		sum := squares(src[:256])
		for i := range n {
			scales[i] = searchGridBlock(&blocks[i], f.search, g, src[size*i:], after(weights, size*i), sum)
		}
		f.store(dst[:f.bytes], blocks[:n], scales[:n], g)
		dst, src, weights = dst[f.bytes:], src[256:], after(weights, 256)
	}
}

func storeIQ2XXS(b []byte, s []gridBlock, scales []float32, g *lattice) {
	var codes [8]byte
	for i := range s {
		q := b[2+8*i:][:8]
		for p := range 4 {
			q[p] = byte(s[i].point(g, p))
		}
		binary.LittleEndian.PutUint32(q[4:], packSigns7(&s[i].signs))
	}
	d := searchOdd(codes[:], scales, 15)
	if d == 0 {
		clear(b)
	}
	putF16(b, d)
	for i, c := range codes {
		b[9+8*i] |= c << 4
	}
}

func storeIQ2XS(b []byte, s []gridBlock, scales []float32, g *lattice) {
	var codes [16]byte
	for i := range s {
		for p := range 2 {
			binary.LittleEndian.PutUint16(b[2+4*i+2*p:], uint16(s[i].point(g, p))|uint16(s[i].signs[p]&127)<<9)
		}
	}
	d := searchOdd(codes[:], scales, 15)
	if d == 0 {
		clear(b)
	}
	putF16(b, d)
	packNibbles(b[66:], codes[:])
}

func storeIQ2S(b []byte, s []gridBlock, scales []float32, g *lattice) {
	var codes [16]byte
	qs, signs, qh := b[2:34], b[34:66], b[66:74]
	clear(qh)
	for i := range s {
		for p := range 2 {
			at, n := 2*i+p, s[i].point(g, p)
			qs[at], signs[at] = byte(n), s[i].signs[p]
			qh[at/4] |= byte(n >> 8 << (at % 4 * 2))
		}
	}
	d := searchOdd(codes[:], scales, 15)
	putF16(b, d*0.9875)
	packNibbles(b[74:], codes[:])
}

func storeIQ3XXS(b []byte, s []gridBlock, scales []float32, g *lattice) {
	var codes [8]byte
	for i := range s {
		for p := range 8 {
			b[2+8*i+p] = byte(s[i].point(g, p))
		}
		binary.LittleEndian.PutUint32(b[66+4*i:], packSigns7(&s[i].signs))
	}
	d := searchOdd(codes[:], scales, 15)
	if d == 0 {
		clear(b)
	}
	putF16(b, d*1.0125)
	for i, c := range codes {
		b[69+4*i] |= c << 4
	}
}

func storeIQ3S(b []byte, s []gridBlock, scales []float32, g *lattice) {
	var codes [8]byte
	qh := b[66:74]
	clear(qh)
	for i := range s {
		for p := range 8 {
			n := s[i].point(g, p)
			b[2+8*i+p] = byte(n)
			qh[i] |= byte(n >> 8 << p)
		}
		copy(b[74+4*i:], s[i].signs[:])
	}
	d := searchOdd(codes[:], scales, 15)
	putF16(b, d*1.033)
	packNibbles(b[106:], codes[:])
}
