package plan

import "ck/internal/graph"

// Axis is the direction in which an item is cut over workers.
type Axis uint8

const (
	Rows  Axis = iota // a unit is a row
	Cols              // all rows of some columns; a unit is Operand.Unit columns
	Tiles             // attention: a unit is (KV head, tile of TileRows rows), heads first
	Split             // attention: a unit is (KV head, chunk of keys of a row), see Crew.Chunk
)

func (a Axis) String() string { return [...]string{"rows", "cols", "tiles", "chunks"}[a] }

// TileRows is the number of rows of an attention tile.
const TileRows = 32

// Over says how an item is shared by members.
type Over uint8

const (
	Alike  Over = iota // every member does all of it, for itself
	Dealt              // units are dealt to members first
	Shares             // of a cut by rows: every member does its equal share of the columns, of all rows
)

// Cut says how an item is dealt to workers: each home takes a range of its units, of which each of its workers takes one (see Deal). Of a shared
// item that is where each worker begins; who is done takes over what others of its home have not begun, so any of them may touch all of it.
type Cut struct {
	By     Axis
	N      int // units of Cols; KV heads of Tiles and Split; unused for Rows
	Shared bool
	Over   Over
}

// Deal is the range of n units that worker w of workers takes.
func Deal(n, w, workers int) (lo, hi int) { return n * w / workers, n * (w + 1) / workers }

// Crew is who walks over what: the workers and their homes; the rows of the walk, and those that are picked; the chunks of keys that all rows see
// together.
type Crew struct {
	Workers, Rows, Picks, Chunks int
	Homes                        Homes
}

// rows is the number of rows of an item or buffer.
func (c *Crew) rows(s graph.Space) int { return s.Rows(c.Rows, c.Picks) }

// Rect is a part of a buffer: rows [R0, R1), columns [C0, C1), in the unit in which operands count columns.
type Rect struct{ R0, R1, C0, C1 int }

// Empty reports whether there is nothing in it.
func (a Rect) Empty() bool { return a.R0 >= a.R1 || a.C0 >= a.C1 }

func (a Rect) area() int {
	if a.Empty() {
		return 0
	}
	return (a.R1 - a.R0) * (a.C1 - a.C0)
}

func (a Rect) meets(b Rect) bool {
	return !a.Empty() && !b.Empty() && a.R0 < b.R1 && b.R0 < a.R1 && a.C0 < b.C1 && b.C0 < a.C1
}

// A touch is all that decides which part of a buffer each worker touches in an item. Items of the same layers have the same touches.
type touch struct {
	cut      Cut
	space    graph.Space // what the item goes over
	unit     int         // the operand's columns per unit of the cut
	all      bool        // the operand is all of the buffer
	mine     bool        // it is the member's share of all rows
	far      bool        // it is the copies of all members
	shared   bool        // the buffer is one for all members
	width    int         // of the buffer
	bufSpace graph.Space // what the buffer has rows for
	cache    bool        // the buffer is a cache
	parts    bool        // the buffer holds partial results
}

func (p *Plan) touch(it *Item, o Operand) touch {
	b := &p.Bufs[o.Buf]
	return touch{it.Cut, it.Space, o.Unit, o.All, o.Mine, o.Far, b.Shared, b.Width, b.Space, b.Cache != 0, b.Parts != 0}
}

// Part appends to dst what worker w of a crew touches of operand o in item it: at most three rectangles. It is the one place that knows what
// a cut means: the walk computes just the parts of each item's first output that it gets from here, and Check proves that these, and what they
// read, are free of conflicts.
func (p *Plan) Part(dst []Rect, it *Item, o Operand, w int, c Crew) []Rect {
	t := p.touch(it, o)
	return t.part(dst, w, &c)
}

// units is the number of units that an item is cut into.
func (t *touch) units(c *Crew) int {
	switch t.cut.By {
	case Rows:
		return c.rows(t.space)
	case Tiles:
		return t.cut.N * t.tiles(c)
	case Split:
		return t.cut.N * c.Chunks
	}
	return t.cut.N
}

// tiles is the number of tiles of a head.
func (t *touch) tiles(c *Crew) int { return (c.rows(t.space) + TileRows - 1) / TileRows }

// whole is all of the buffer. Partial results are one row: a column for each head and chunk.
func (t *touch) whole(c *Crew) Rect {
	if t.parts {
		return Rect{0, 1, 0, t.width * c.Chunks}
	}
	return Rect{0, c.rows(t.bufSpace), 0, t.width}
}

// deal is the units that a home takes.
func (t *touch) deal(home int, c *Crew) (lo, hi int) {
	h, units := c.Homes, t.units(c)
	if t.cut.By != Split || h.Places == 1 || units == 0 {
		return h.deal(units, home, t.cut.Over)
	}
	lo, hi = 0, units
	if t.cut.Over == Dealt {
		lo, hi = Deal(units, home/h.Places, h.Members)
	}
	heads, place := (hi-lo)/c.Chunks, home%h.Places
	return lo + heads*h.before(place, c.Chunks), lo + heads*h.before(place+1, c.Chunks)
}

// before is how many of so many chunks the places in front of one have. Places take chunks in turn, so that keys stay where they are as a text grows.
func (h Homes) before(place, chunks int) int {
	return place*(chunks/h.Places) + min(place, chunks%h.Places)
}

// Chunk is the KV head and the chunk of unit u of an item that is cut into those (Split).
func (c *Crew) Chunk(cut Cut, u int) (head, chunk int) {
	h, heads := c.Homes, cut.N
	if h.Places == 1 {
		return u / c.Chunks, u % c.Chunks
	}
	if cut.Over == Dealt {
		heads /= h.Members
	}
	head = u / (heads * c.Chunks) * heads
	for u, place := u%(heads*c.Chunks), 0; ; place++ {
		n := h.before(place+1, c.Chunks) - h.before(place, c.Chunks)
		if u < heads*n {
			return head + u/n, u%n*h.Places + place
		}
		u -= heads * n
	}
}

func (t *touch) part(dst []Rect, w int, c *Crew) []Rect {
	home, w0, w1 := c.Homes.Of(w, c.Workers)
	lo, hi := t.deal(home, c)
	a, b := Deal(hi-lo, w-w0, w1-w0)
	return t.rects(dst, home, lo+a, lo+b, c)
}

// rects is units [lo, hi) of a home.
func (t *touch) rects(dst []Rect, home, lo, hi int, c *Crew) []Rect {
	if lo >= hi {
		return dst
	}
	whole := t.whole(c)
	c0, c1 := Deal(whole.C1, home/c.Homes.Places, c.Homes.Members)
	switch {
	case t.all:
		return append(dst, whole)
	case t.mine:
		return append(dst, Rect{0, whole.R1, c0, c1})
	case t.cut.By == Rows && t.cut.Over == Shares:
		return append(dst, Rect{lo, hi, c0, c1})
	}
	switch t.cut.By {
	case Rows:
		return append(dst, Rect{lo, hi, 0, whole.C1})
	case Cols:
		return append(dst, Rect{0, whole.R1, lo * t.unit, min(hi*t.unit, whole.C1)})
	case Split:
		return append(dst, Rect{0, 1, lo, hi})
	}
	// Tiles: the rest of a head, whole heads, the begin of a head.
	n, tiles := c.rows(t.space), t.tiles(c)
	for lo < hi {
		h, t0 := lo/tiles, lo%tiles
		heads, t1 := 1, min(hi-h*tiles, tiles)
		if t0 == 0 && t1 == tiles {
			heads = (hi - lo) / tiles
		}
		r := Rect{t0 * TileRows, min(t1*TileRows, n), h * t.unit, (h + heads) * t.unit}
		if t.cache {
			r.R0, r.R1 = 0, n // earlier rows' keys
		}
		dst = append(dst, r)
		lo = (h+heads-1)*tiles + t1
	}
	return dst
}

// touched is part for the sake of comparing with another item. Where that one is cut otherwise, a tile's rows stand for all rows: where tiles
// fall depends on the number of rows, and the answer must hold for all of them. Of a shared item every worker may touch everything that is its
// home's.
func (t *touch) touched(dst []Rect, w int, c *Crew, other Cut) []Rect {
	if t.cut.Shared {
		home, _, _ := c.Homes.Of(w, c.Workers)
		lo, hi := t.deal(home, c)
		return t.rects(dst, home, lo, hi, c)
	}
	n := len(dst)
	dst = t.part(dst, w, c)
	if t.cut.By == Tiles && other != t.cut {
		for i := n; i < len(dst); i++ {
			dst[i].R0, dst[i].R1 = 0, c.rows(t.space)
		}
	}
	return dst
}

// copies appends rectangles of copies of the buffer, each behind the other: those that a worker of the member touches.
func (t *touch) copies(dst, rects []Rect, member int, c *Crew) []Rect {
	from, to := member, member+1
	switch {
	case t.shared:
		from, to = 0, 1
	case t.far:
		from, to = 0, c.Homes.Members
	}
	for m := from; m < to; m++ {
		at := m << 40 // behind all rows
		for _, r := range rects {
			dst = append(dst, Rect{r.R0 + at, r.R1 + at, r.C0, r.C1})
		}
	}
	return dst
}
