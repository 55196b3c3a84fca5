package quant

import (
	"math"
	"sync"

	lanes "ck/asm/quant"
)

// lattice is a grid as quantizers use it: by levels, 0 for the lowest, in place of values. A code holds the levels of one point, element
// 0 lowest, like the codes in iq_grids.go. A code that is no point of the grid has a list of the points nearest to it.
type lattice struct {
	dim    int      // elements of a point
	bits   int      // bits of a level in a code
	top    int32    // the highest level
	levels []int8   // dim levels of each point
	index  []int32  // of each code: the number of its point, or the complement of where its list begins in near
	near   []uint16 // the lists, as Block of asm/quant wants them: codes by distance, those of one distance ascending
}

// The grids as lattices, made when first used. The lists hold the points of the one, two or three smallest distances, as in ggml.
var (
	latticeIQ1    = sync.OnceValue(func() *lattice { return newLattice(packedIQ1, 8, 2, 2, 3) })
	latticeIQ2XXS = sync.OnceValue(func() *lattice { return newLattice(packedIQ2XXS, 8, 2, 2, 2) })
	latticeIQ2XS  = sync.OnceValue(func() *lattice { return newLattice(packedIQ2XS, 8, 2, 2, 2) })
	latticeIQ2S   = sync.OnceValue(func() *lattice { return newLattice(packedIQ2S, 8, 2, 2, 1) })
	latticeIQ3XXS = sync.OnceValue(func() *lattice { return newLattice(packedIQ3XXS, 4, 3, 7, 2) })
	latticeIQ3S   = sync.OnceValue(func() *lattice { return newLattice(packedIQ3S, 4, 3, 7, 3) })
)

// newLattice makes the lattice of a packed grid whose points have dim elements of the levels 0..top, bits each. The lists hold the points
// of so many distances.
func newLattice(packed string, dim, bits int, top int32, distances int) *lattice {
	g := &lattice{dim: dim, bits: bits, top: top, index: make([]int32, 1<<(dim*bits))}
	levels := make([]int8, dim)
	for i, code := range unpackCodes(packed) {
		g.unpack(levels, int(code))
		g.levels = append(g.levels, levels...)
		g.index[code] = int32(i) + 1 // 0 is for codes without a point so far
	}
	distance := make([]uint8, len(g.levels)/dim)
	for code := range g.index {
		if g.index[code] > 0 {
			g.index[code]--
			continue
		}
		if g.unpack(levels, code) > int8(top) {
			continue // no code of a quantizer
		}
		g.index[code] = int32(^len(g.near))
		g.measure(distance, levels)
		g.list(distance, distances)
	}
	return g
}

// unpack sets the levels of a code and returns the highest.
func (g *lattice) unpack(levels []int8, code int) (highest int8) {
	for j := range levels {
		levels[j] = int8(code >> (g.bits * j) & (1<<g.bits - 1))
		highest = max(highest, levels[j])
	}
	return highest
}

// measure sets the squared distance of each point from levels, at most 4*7*7.
func (g *lattice) measure(distance []uint8, levels []int8) {
	for p := range distance {
		var sum uint8
		for j, l := range g.levels[p*g.dim:][:len(levels)] {
			sum += uint8((l - levels[j]) * (l - levels[j]))
		}
		distance[p] = sum
	}
}

// list adds a list of the points that have one of the n smallest distances.
func (g *lattice) list(distance []uint8, n int) {
	var points [256]int // of each distance
	for _, d := range distance {
		points[d]++
	}
	start := len(g.near)
	g.near = append(g.near, 0)
	for d := 0; d < len(points) && n > 0; d++ {
		if points[d] == 0 {
			continue
		}
		n--
		for p, e := range distance {
			if int(e) == d {
				g.near = append(g.near, uint16(g.code(g.levels[p*g.dim:])))
			}
		}
	}
	g.near[start] = uint16(len(g.near) - start - 1)
	last := g.near[len(g.near)-1] // seldom the best, so that seldom several are
	for range lanes.NearPad {
		g.near = append(g.near, last)
	}
}

// code is the code of levels.
func (g *lattice) code(levels []int8) (code int) {
	for j, l := range levels[:g.dim] {
		code |= int(l) << (g.bits * j)
	}
	return code
}

// searchNeighbour is the code in the list of a code whose point makes the sum of w*(scale*values[level] - x)^2
// smallest; of several the first, and the first of all where no sum is finite. What an element adds to the sum comes
// out of a table of its levels. No element takes from it, so a sum that is too large halfway stays so.
func searchNeighbour(g *lattice, code int, x, w []float32, scale float32, values *[8]float32) int {
	list := g.near[^g.index[code]:]
	list = list[1:][:list[0]]
	var adds [8][8]float32
	for i := range g.dim {
		for l, v := range values[:g.top+1] {
			diff := float32(scale*v) - x[i]
			adds[i][l] = w[i] * diff * diff
		}
	}
	best, nearest := float32(math.MaxFloat32), list[0]
	for _, c := range list {
		var sum float32
		if g.dim == 4 {
			sum = adds[0][c&7] + adds[1][c>>3&7] + adds[2][c>>6&7] + adds[3][c>>9&7]
		} else {
			sum = adds[0][c&3] + adds[1][c>>2&3] + adds[2][c>>4&3] + adds[3][c>>6&3]
			if sum >= best {
				continue
			}
			sum = sum + adds[4][c>>8&3] + adds[5][c>>10&3] + adds[6][c>>12&3] + adds[7][c>>14&3]
		}
		if sum < best {
			best, nearest = sum, c
		}
	}
	return int(nearest)
}
