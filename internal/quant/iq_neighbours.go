package quant

import (
	"math"
	"slices"
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
	near   []uint16 // the lists: the length, then numbers of points by distance, those of one distance ascending

	// For vectors, made when first used: Index and Near of Block of asm/quant.
	vectors   sync.Once
	places    []int32
	nearCodes []uint16
}

// forVectors makes places and nearCodes.
func (g *lattice) forVectors() {
	g.vectors.Do(func() {
		moved := map[int32]int32{} // where lists were and are
		for at := 0; at < len(g.near); {
			list := g.near[at+1:][:g.near[at]]
			moved[int32(^at)] = int32(^len(g.nearCodes))
			g.nearCodes = append(g.nearCodes, uint16(len(list)))
			for _, p := range list {
				g.nearCodes = append(g.nearCodes, uint16(g.code(g.levels[g.dim*int(p):])))
			}
			// The last is seldom the best, so that seldom several are.
			last := g.nearCodes[len(g.nearCodes)-1]
			g.nearCodes = append(g.nearCodes, slices.Repeat([]uint16{last}, lanes.NearPad)...)
			at += 1 + len(list)
		}
		g.places = slices.Clone(g.index)
		for code, at := range g.index {
			if at < 0 {
				g.places[code] = moved[at]
			}
		}
	})
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
				g.near = append(g.near, uint16(p))
			}
		}
	}
	g.near[start] = uint16(len(g.near) - start - 1)
}

// code is the code of levels.
func (g *lattice) code(levels []int8) (code int) {
	for j, l := range levels[:g.dim] {
		code |= int(l) << (g.bits * j)
	}
	return code
}

// searchNeighbour is the number of the point in the list of the code that makes the sum of w*(scale*values[level] - x)^2 smallest; of
// several the first, and the first of all where no sum is finite.
func searchNeighbour(g *lattice, code int, x, w []float32, scale float32, values *[8]float32) int {
	list := g.near[^g.index[code]:]
	list = list[1:][:list[0]]
	best, number := float32(math.MaxFloat32), list[0]
	for _, p := range list {
		var sum float32
		for i, l := range g.levels[int(p)*g.dim:][:g.dim] {
			diff := float32(scale*values[l&7]) - x[i]
			sum += float32(w[i] * diff * diff)
		}
		if sum < best {
			best, number = sum, p
		}
	}
	return int(number)
}
