package quant

import (
	"slices"
	"unsafe"

	lanes "ck/asm/quant"
)

// gridRoom is the sub-blocks of a group in a search of points of a grid.
type gridRoom struct {
	blocks  [16]gridBlock
	tops    [16]float32
	ds      [16]float32
	best    [16]float32
	none    [16]bool // nothing to search
	found   [16]bool // a step was better than nothing
	r, step lanes.Row
}

// grid quantizes to an IQ2 or IQ3 type, 16 sub-blocks at a time: one or two super-blocks.
func (e *Encoder) grid(dst []byte, src, imatrix []float32) {
	f := &gridForms[e.t]
	g, m := f.lattice(), e.room
	b := &m.block
	b.N = f.search.size
	b.Index, b.Near = unsafe.Pointer(&g.index[0]), unsafe.Pointer(&g.near[0])
	subs := 256 / f.search.size
	for at := 0; at < len(src); at += 16 * f.search.size {
		supers := min(16/subs, (len(src)-at)/256)
		for i := range 16 {
			m.grid.none[i] = true
		}
		for k := range supers {
			x := src[at+256*k:][:256]
			e.gridOpen(f, g, x, e.columns(imatrix, at+256*k, 256), subs*k)
		}
		e.gridSearch(f.search, g)
		for k := range supers {
			out := dst[(at/256+k)*f.bytes:][:f.bytes]
			f.store(out, m.grid.blocks[subs*k:][:subs], m.grid.ds[subs*k:][:subs], g)
		}
	}
}

// gridOpen readies the sub-blocks of a super-block, from lane l on.
func (e *Encoder) gridOpen(f *gridForm, g *lattice, x, weights []float32, l int) {
	m, b := &e.room.grid, &e.room.block
	sum, size := squares(x), f.search.size
	for i := range 256 / size {
		s := &m.blocks[l+i]
		m.tops[l+i], m.ds[l+i], m.none[l+i] = openGridBlock(s, f.search, g, x[size*i:], after(weights, size*i), sum)
		for j := range size {
			b.X[j][l+i], b.W[j][l+i], b.Root[j][l+i] = s.x[j], s.w[j], s.root[j]
		}
	}
}

// gridPoints takes the elements of all lanes to points, by the steps 1/r and the scales in the room.
func (e *Encoder) gridPoints(g *lattice, r, scale *lanes.Row) {
	b := &e.room.block
	b.R, b.Scale = *r, *scale
	if g.dim == 4 {
		b.Run(e.width, lanes.Grid4)
	} else {
		b.Run(e.width, lanes.Grid8)
	}
}

// gridSearch is searchGrid in all lanes: it leaves levels and signs in the blocks and the scales in ds.
func (e *Encoder) gridSearch(t *gridType, g *lattice) {
	m, b := &e.room.grid, &e.room.block
	m.best, m.found = [16]float32{}, [16]bool{}
	highest := float32(2*g.top + 1)
	var r, scale lanes.Row
	for k := -t.tries; k <= t.tries; k++ {
		for l := range r {
			r[l] = (highest + float32(t.step*float32(k))) / m.tops[l]
			scale[l] = 1 / r[l]
		}
		e.gridPoints(g, &r, &scale)
		for l := range r {
			xq, qq := b.SumX[l], b.SumW[l]
			if qq > 0 && xq*xq > m.best[l]*qq && !m.none[l] {
				m.ds[l] = xq / qq
				m.best[l] = m.ds[l] * xq
				m.r[l], m.step[l], m.found[l] = r[l], scale[l], true
			}
		}
	}
	e.gridPoints(g, &m.r, &m.step) // the best ones again
	for l := range m.blocks {
		if m.none[l] {
			continue
		}
		s := &m.blocks[l]
		clear(s.levels[:])
		for p := range s.moved {
			s.moved[p] = t.refine != refineMoved
		}
		if m.found[l] {
			for p := range t.size / g.dim {
				e.gridPoint(s, g, p, l)
				s.moved[p] = b.Moved[p][l] != 0
			}
		}
		m.r[l] = 1 / m.ds[l]
	}
	e.gridAgain(t, g)
}

// gridPoint takes the levels of a point of lane l.
func (e *Encoder) gridPoint(s *gridBlock, g *lattice, p, l int) {
	g.unpack(s.levels[p*g.dim:][:g.dim], int(e.room.block.Code[p][l]))
}

// gridAgain is searchGridAgain in all lanes, and what comes behind it.
func (e *Encoder) gridAgain(t *gridType, g *lattice) {
	m := &e.room.grid
	scale := lanes.Row(m.ds)
	e.gridPoints(g, &m.r, &scale)
	points := t.size / g.dim
	for l := range m.blocks {
		if m.none[l] {
			continue
		}
		s, d := &m.blocks[l], m.ds[l]
		if (t.refine == refineAll || slices.Contains(s.moved[:points], true)) && d > 0 {
			for p := range points {
				if t.refine != refineMoved || s.moved[p] {
					e.gridPoint(s, g, p, l)
				}
			}
			if xq, qq := searchSums(s, s.levels[:t.size]); qq > 0 {
				d = xq / qq
			}
		}
		m.ds[l] = closeGridBlock(s, d)
	}
}
