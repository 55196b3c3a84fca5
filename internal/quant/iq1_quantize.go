package quant

import (
	"encoding/binary"
	"math"
)

// Quantizers of the IQ1 types. The sorted elements of a sub-block are split in three: the lowest get the level 0, the highest 2, those
// between 1. All splits are compared, with the levels standing for -1, 0 and 1 plus a shift and minus it. Then points that are not of the
// grid move to one near them. As in the IQ2 types a sub-block's scale is an odd multiple, at most 15, of the super-block's.

// shiftedValuesIQ1 are what the levels stand for with the shift added and subtracted.
var shiftedValuesIQ1 = [2][8]float32{
	{-0.875, 0.125, 1.125},
	{-1.125, -0.125, 0.875},
}

// squareDifferencesIQ1 are the differences of the squares of neighbouring values: the lower one's minus the upper one's.
var squareDifferencesIQ1 = [2][2]float32{{0.75, -1.25}, {1.25, -0.75}}

// ternaryBlock is a sub-block in the search: 32 elements of IQ1_S, 16 of IQ1_M.
type ternaryBlock struct {
	order  [32]byte // the elements by value
	levels [32]int8
	minus  [4]byte // of each point: 1 where the shift is subtracted
	points [4]int  // their numbers
}

// searchOrder sorts the elements by value; equal ones keep their order.
func searchOrder(s *ternaryBlock, x []float32) {
	for i, v := range x {
		j := i
		for ; j > 0 && v < x[s.order[j-1]]; j-- {
			s.order[j] = s.order[j-1]
		}
		s.order[j] = byte(i)
	}
}

// ternarySplit is the best split so far: levels 0 up to low, 1 up to high, then 2, in the order of the values.
type ternarySplit struct {
	low, high int
	shift     int     // which shifts the points have; below 0 as long as there is no split: the weights are 0 or infinite
	d, score  float32 // the scale, and by how much it lowers the error
}

// consider takes the split if it is better than the best one. xq and qq are its sums of w*x*q and w*q*q.
func (b *ternarySplit) consider(low, high, shift int, xq, qq float32) {
	if qq > 0 && xq*xq > b.score*qq {
		d := xq / qq
		*b = ternarySplit{low, high, shift, d, d * xq}
	}
}

// searchOrderSums are the sums of w*x and w over the first elements by value.
func searchOrderSums(s *ternaryBlock, x, w []float32) (sumX, sumW [33]float32) {
	for j, i := range s.order[:32] {
		sumX[j+1] = sumX[j] + float32(w[i]*x[i])
		sumW[j+1] = sumW[j] + w[i]
	}
	return sumX, sumW
}

// searchSplitIQ1S finds the best split of 32 elements, all points shifted alike: 0 for plus, 1 for minus.
func searchSplitIQ1S(s *ternaryBlock, x, w []float32) ternarySplit {
	sumX, sumW := searchOrderSums(s, x, w)
	best := ternarySplit{shift: -1, score: -math.MaxFloat32}
	for low := range sumX {
		for high := low; high < len(sumX); high++ {
			midX, midW := sumX[high]-sumX[low], sumW[high]-sumW[low]
			endX, endW := sumX[32]-sumX[high], sumW[32]-sumW[high]
			for shift := range 2 {
				v := &shiftedValuesIQ1[shift]
				xq := float32(sumX[low]*v[0]) + float32(midX*v[1]) + float32(endX*v[2])
				qq := float32(sumW[low]*v[0]*v[0]) + float32(midW*v[1]*v[1]) + float32(endW*v[2]*v[2])
				best.consider(low, high, shift, xq, qq)
			}
		}
	}
	return best
}

// halfSums are the sums of w*x and w over the first elements by value, those of one half of the sub-block alone.
type halfSums struct{ x, w [17]float32 }

// searchHalf gives the sums of w*x*q and w*q*q of a split. All points are counted as the highest value first. Those below high, and again
// those below low, are one less: the square changes by the differences.
func searchHalf(h *halfSums, low, high, shift int) (xq, qq float32) {
	top, diff := shiftedValuesIQ1[shift][2], &squareDifferencesIQ1[shift]
	xq = float32(h.x[16]*top) - (h.x[low] + h.x[high])
	qq = float32(h.w[16]*top*top) + float32(h.w[low]*diff[0]) + float32(h.w[high]*diff[1])
	return xq, qq
}

// searchHalfSums are those of both halves.
func searchHalfSums(s *ternaryBlock, x, w []float32) (halves [2]halfSums) {
	for j, i := range s.order[:16] {
		for h := range halves {
			sums := &halves[h]
			sums.x[j+1], sums.w[j+1] = sums.x[j], sums.w[j]
		}
		own := &halves[i/8]
		own.x[j+1] += float32(w[i] * x[i])
		own.w[j+1] += w[i]
	}
	return halves
}

// searchSplitIQ1M finds the best split of 16 elements, two points that are shifted each by itself: bit 1 of the shift
// is set where the shift is subtracted from the first, bit 0 for the second.
func searchSplitIQ1M(s *ternaryBlock, x, w []float32) ternarySplit {
	halves := searchHalfSums(s, x, w)
	best := ternarySplit{shift: -1, score: -math.MaxFloat32}
	for low := range 17 {
		for high := low; high < 17; high++ {
			var xq, qq [2][2]float32 // by half and shift
			for h := range halves {
				for shift := range 2 {
					xq[h][shift], qq[h][shift] = searchHalf(&halves[h], low, high, shift)
				}
			}
			for shift := range 4 {
				best.consider(low, high, shift, xq[0][shift>>1]+xq[1][shift&1], qq[0][shift>>1]+qq[1][shift&1])
			}
		}
	}
	return best
}

// searchTernary finds the levels of a split and the points near them, and returns the scale. A negative one turns levels and shifts round.
// s.minus is that of the split.
func searchTernary(s *ternaryBlock, g *lattice, x, w []float32, split *ternarySplit) float32 {
	for j, i := range s.order[:len(x)] {
		s.levels[i] = 0
		if j >= split.low {
			s.levels[i] = 1
		}
		if j >= split.high {
			s.levels[i] = 2
		}
	}
	d := split.d
	if d < 0 {
		d = -d
		for i, l := range s.levels {
			s.levels[i] = 2 - l
		}
		for k := range s.minus {
			s.minus[k] ^= 1
		}
	}
	moved := false
	for k := range len(x) / 8 {
		code := g.code(s.levels[8*k:])
		s.points[k] = int(g.index[code])
		if s.points[k] < 0 {
			moved = true
			code = searchNeighbour(g, code, x[8*k:], w[8*k:], d, &shiftedValuesIQ1[s.minus[k]])
			s.points[k] = int(g.index[code])
		}
	}
	if moved {
		var xq, qq float32
		for k := range len(x) / 8 {
			xq, qq = searchAddSums(xq, qq, x[8*k:], w[8*k:], g.levels[8*s.points[k]:][:8], &shiftedValuesIQ1[s.minus[k]], 1)
		}
		if xq > 0 && qq > 0 {
			d = xq / qq
		}
	}
	return finiteOrInf(d)
}

// searchAddSums adds to the sums of w*x*q and w*q*q those of a point, where q is n times what a level stands for.
func searchAddSums(xq, qq float32, x, w []float32, levels []int8, values *[8]float32, n float32) (float32, float32) {
	for j, l := range levels {
		q := values[l&7] * n
		xq += float32(w[j] * q * x[j])
		qq += float32(w[j] * q * q)
	}
	return xq, qq
}

// largest is the largest magnitude of x.
func largest(x []float32) (top float32) {
	for _, v := range x {
		top = max(top, abs(v))
	}
	return top
}

// blockIQ1 is a super-block of IQ1_S or IQ1_M in the search.
type blockIQ1 struct {
	w      [256]float32
	subs   [16]ternaryBlock
	splits [16]ternarySplit
	none   [16]bool // nothing to search
	scales [16]float32
	codes  [16]byte
	minus  [32]byte // of each point
	points [32]int
}

// searchOpenIQ1 readies the sub-blocks, of size elements, for the search for splits. One of smaller magnitudes than
// least is taken as zero.
func searchOpenIQ1(y *blockIQ1, x *[256]float32, weights []float32, size int, least float32) {
	variance := float32(float32(2*squares(x[:])) / 256)
	weightsIQ(y.w[:], x[:], weights, variance, 0)
	for i := range 256 / size {
		sub := x[size*i:][:size]
		y.none[i] = largest(sub) < least
		searchOrder(&y.subs[i], sub)
	}
}

// searchCloseIQ1 finds points and scales by the splits.
func searchCloseIQ1(y *blockIQ1, g *lattice, x *[256]float32, size int) {
	clear(y.scales[:])
	clear(y.minus[:])
	clear(y.points[:])
	points := size / 8
	for i := range 256 / size {
		s, split, sub := &y.subs[i], &y.splits[i], x[size*i:][:size]
		switch {
		case y.none[i]:
			continue
		case split.shift < 0:
			y.scales[i] = unheldOrZero(largest(sub))
			continue
		case size == 32:
			m := byte(split.shift)
			s.minus = [4]byte{m, m, m, m}
		default:
			s.minus = [4]byte{byte(split.shift >> 1), byte(split.shift & 1)}
		}
		y.scales[i] = searchTernary(s, g, sub, y.w[size*i:][:size], split)
		copy(y.minus[points*i:], s.minus[:points])
		copy(y.points[points*i:], s.points[:points])
	}
}

// quantizeIQ1_S needs weights.
func quantizeIQ1_S(dst []byte, src, weights []float32) {
	g := latticeIQ1()
	var y blockIQ1
	for len(src) >= 256 {
		x := (*[256]float32)(src)
		searchOpenIQ1(&y, x, weights, 32, leastIQ1S)
		for i := range 8 {
			if !y.none[i] {
				y.splits[i] = searchSplitIQ1S(&y.subs[i], x[32*i:][:32], y.w[32*i:][:32])
			}
		}
		storeIQ1S((*[50]byte)(dst), &y, g, x)
		dst, src, weights = dst[50:], src[256:], after(weights, 256)
	}
}

// Sub-blocks of smaller magnitudes are taken as zero.
const (
	leastIQ1S = 1e-12
	leastIQ1M = 1e-7
)

// storeIQ1S ends the search and writes the super-block. Its scale is 9/8 of what the largest scale asks for, as in
// ggml.
func storeIQ1S(b *[50]byte, y *blockIQ1, g *lattice, x *[256]float32) {
	searchCloseIQ1(y, g, x, 32)
	clear(b[:])
	d := searchOdd(y.codes[:8], y.scales[:8], 7)
	if d != 0 {
		putF16(b[:], d*1.125)
	}
	for i, c := range y.codes[:8] {
		var h uint16
		for k, p := range y.points[4*i:][:4] {
			b[2+4*i+k] = byte(p)
			h |= uint16(p>>8) << (3 * k)
		}
		if d != 0 {
			h |= uint16(c)<<12 | uint16(y.minus[4*i])<<15
		}
		binary.LittleEndian.PutUint16(b[34+2*i:], h)
	}
}

// searchScaleIQ1M is the scale of the super-block that is best for the codes of all, d if there is none.
func searchScaleIQ1M(y *blockIQ1, g *lattice, x *[256]float32, d float32) float32 {
	var xq, qq float32
	for k, p := range y.points {
		n := float32(2*y.codes[k/2] + 1)
		xq, qq = searchAddSums(xq, qq, x[8*k:], y.w[8*k:], g.levels[8*p:][:8], &shiftedValuesIQ1[y.minus[k]], n)
	}
	if qq > 0 {
		return xq / qq
	}
	return d
}

func quantizeIQ1_M(dst []byte, src, weights []float32) {
	g := latticeIQ1()
	var y blockIQ1
	for len(src) >= 256 {
		x := (*[256]float32)(src)
		searchOpenIQ1(&y, x, weights, 16, leastIQ1M)
		for i := range 16 {
			if !y.none[i] {
				y.splits[i] = searchSplitIQ1M(&y.subs[i], x[16*i:][:16], y.w[16*i:][:16])
			}
		}
		storeIQ1M((*[56]byte)(dst), &y, g, x)
		dst, src, weights = dst[56:], src[256:], after(weights, 256)
	}
}

// storeIQ1M ends the search and writes the super-block. It stores 1.1125 times the best scale, as ggml does.
func storeIQ1M(b *[56]byte, y *blockIQ1, g *lattice, x *[256]float32) {
	searchCloseIQ1(y, g, x, 16)
	clear(b[:])
	qh, sc := b[32:48], b[48:56]
	for k, p := range y.points {
		b[k] = byte(p)
		qh[k/2] |= byte(p>>8) << (k % 2 * 4)
	}
	d := searchOdd(y.codes[:], y.scales[:], 7)
	if d == 0 {
		return
	}
	for k, m := range y.minus {
		qh[k/2] |= m << (k%2*4 + 3)
	}
	var f [2]byte
	putF16(f[:], searchScaleIQ1M(y, g, x, d)*1.1125)
	d16 := binary.LittleEndian.Uint16(f[:])
	for i := range 4 {
		c := y.codes[4*i:][:4]
		v := uint16(c[0]) | uint16(c[1])<<3 | uint16(c[2])<<6 | uint16(c[3])<<9
		binary.LittleEndian.PutUint16(sc[2*i:], v|d16>>(4*i)<<12)
	}
}
