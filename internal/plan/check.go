package plan

import (
	"fmt"
	"slices"

	"ck/internal/graph"
)

// rect is the part of a buffer that one worker touches: rows [r0, r1), columns [c0, c1).
type rect struct{ r0, r1, c0, c1 int }

func (a rect) empty() bool { return a.r0 >= a.r1 || a.c0 >= a.c1 }

func (a rect) meets(b rect) bool {
	return !a.empty() && !b.empty() && a.r0 < b.r1 && b.r0 < a.r1 && a.c0 < b.c1 && b.c0 < a.c1
}

// A use is all that decides which part of a buffer each worker touches in an item.
type use struct {
	cut       Cut
	picked    bool // the item's rows are the picked ones
	unit      int  // the operand's columns per unit of the cut
	all       bool // the operand is all of the buffer
	width     int  // of the buffer
	bufPicked bool // the buffer's rows are the picked ones
	cache     bool // the buffer is a cache
	parts     bool // the buffer holds partial results
}

func (p *Plan) use(it *Item, o Operand) use {
	b := &p.Bufs[o.Buf]
	return use{it.Cut, it.Picked, o.Unit, o.All, b.Width, b.Picked, b.Cache != 0, b.Parts}
}

// A crew is the workers and rows of a walk.
type crew struct{ workers, rows, picks int }

// whole is all of the buffer.
func (u *use) whole(c crew) rect { return rect{0, pickRows(u.bufPicked, c.rows, c.picks), 0, u.width} }

// regions appends to dst what worker w touches.
func (u *use) regions(dst []rect, w int, c crew) []rect {
	n := pickRows(u.picked, c.rows, c.picks)
	whole := u.whole(c)
	switch u.cut.By {
	case Rows:
		lo, hi := Share(n, w, c.workers)
		switch {
		case lo >= hi:
			return dst
		case u.all:
			return append(dst, whole)
		}
		return append(dst, rect{lo, hi, 0, whole.c1})
	case Cols:
		lo, hi := Share(u.cut.N, w, c.workers)
		switch {
		case lo >= hi:
			return dst
		case u.all:
			return append(dst, whole)
		}
		return append(dst, rect{0, whole.r1, lo * u.unit, min(hi*u.unit, whole.c1)})
	case Tiles:
		tiles := (n + TileRows - 1) / TileRows
		lo, hi := Share(u.cut.N*tiles, w, c.workers)
		for h := 0; lo < hi; lo = (h + 1) * tiles {
			h = lo / tiles
			t0, t1 := lo%tiles, min(hi-h*tiles, tiles)
			r := rect{t0 * TileRows, min(t1*TileRows, n), h * u.unit, (h + 1) * u.unit}
			if u.cache {
				r.r0, r.r1 = 0, n // earlier rows' keys
			}
			dst = append(dst, r)
		}
		return dst
	default: // Split: the number of chunks is known to the walk alone; each worker has parts of its own
		if u.all {
			return append(dst, whole)
		}
		return append(dst, rect{0, n, w, w + 1})
	}
}

// touched is regions for the sake of comparing with another item: what reads all of a Parts buffer reads the columns that Split
// writes; where that one is cut otherwise, a tile's rows stand for all rows, since where tiles fall depends on the number of rows, and
// the answer must hold for all of them; of a shared item every worker may touch everything.
func (u *use) touched(dst []rect, w int, c crew, other Cut) []rect {
	if u.cut.Shared {
		return append(dst, u.whole(c))
	}
	n := len(dst)
	dst = u.regions(dst, w, c)
	for i := n; i < len(dst); i++ {
		r := &dst[i]
		if u.cut.By == Tiles && other != u.cut {
			r.r0, r.r1 = 0, pickRows(u.picked, c.rows, c.picks)
		}
		if u.parts && u.all {
			r.c1 = max(r.c1, c.workers)
		}
	}
	return dst
}

// A prover looks for workers that meet. Layers ask the same questions over and over; each is answered once.
type prover struct {
	p       *Plan
	answers map[question]answer
	areas   map[covering]int
	rects   []rect
	claims  []claim
	open    [2][]claim
}

func newProver(p *Plan) *prover {
	return &prover{p: p, answers: map[question]answer{}, areas: map[covering]int{}}
}

// A question is whether two workers meet in a buffer that two items use, or one item twice.
type question struct {
	a, b use
	same bool // it is one item
	crew crew
}

// An answer is that worker w in the first item meets worker v in the second, if any two meet.
type answer struct {
	w, v  int
	meets bool
}

// A covering is how much of a buffer all workers together touch.
type covering struct {
	use  use
	crew crew
}

// A claim is a rectangle of a buffer that a worker touches in one of two items.
type claim struct {
	rect
	worker int
	second bool // of the second item
}

// crew is the plan's workers in a walk of so many rows.
func (c *prover) crew(rows, picks int) crew { return crew{c.p.Workers, rows, picks} }

// conflict says how a worker in item b touches what another worker writes in item a, or writes what another one touches there; nil
// if none does. Within one item the workers' shares are compared: nobody takes over what another one has begun.
func (c *prover) conflict(a, b *Item, rows, picks int) error {
	p := c.p
	if a != b && p.Workers == 1 {
		return nil // one after the other; that buffers hold what is read is checked apart
	}
	if a != b && a.Cut.Shared && b.Cut.Shared {
		return fmt.Errorf("%s %s: no barrier since %s %s, which is shared as well", b.Do, b.Name, a.Do, a.Name)
	}
	check := func(x, y []Operand, what string) error {
		for _, ox := range x {
			for _, oy := range y {
				if ox.Buf != oy.Buf {
					if p.overlap(ox.Buf, oy.Buf) {
						return fmt.Errorf("%s %s: %s and %s share memory", b.Do, b.Name, p.Bufs[ox.Buf].Name, p.Bufs[oy.Buf].Name)
					}
					continue
				}
				if x := c.ask(question{p.use(a, ox), p.use(b, oy), a == b, c.crew(rows, picks)}); x.meets {
					return fmt.Errorf("%s %s: worker %d %s %s that worker %d has in %s %s", b.Do, b.Name, x.v, what, p.Bufs[oy.Buf].Name, x.w, a.Do, a.Name)
				}
			}
		}
		return nil
	}
	if err := check(a.Out, b.In, "reads"); err != nil {
		return err
	}
	if err := check(a.Out, b.Out, "writes"); err != nil {
		return err
	}
	return check(a.In, b.Out, "writes")
}

// ask answers a question.
func (c *prover) ask(q question) answer {
	x, ok := c.answers[q]
	if !ok {
		c.claims = c.claims[:0]
		for w := range q.crew.workers {
			c.claim(&q.a, w, &q, false)
			c.claim(&q.b, w, &q, true)
		}
		x = c.meeting()
		c.answers[q] = x
	}
	return x
}

// claim lists what worker w touches in one of the items of a question.
func (c *prover) claim(u *use, w int, q *question, second bool) {
	other := q.b.cut
	if second {
		other = q.a.cut
	}
	if q.same {
		c.rects = u.regions(c.rects[:0], w, q.crew)
	} else {
		c.rects = u.touched(c.rects[:0], w, q.crew, other)
	}
	for _, r := range c.rects {
		if !r.empty() {
			c.claims = append(c.claims, claim{r, w, second})
		}
	}
}

// meeting finds claims of different workers, one on either item, that have an element in common.
//
// It sweeps over the columns, or over the rows if those tell the claims apart, and compares each claim with those of the other item that
// have begun and not ended. Where no two workers meet, few claims are open at a time, and the work is about linear in the workers;
// comparing each with each takes the square, seconds for hundreds of workers.
func (c *prover) meeting() answer {
	rows, cols := 0, 0
	for i := 1; i < len(c.claims); i++ {
		if c.claims[i].r0 != c.claims[i-1].r0 {
			rows++
		}
		if c.claims[i].c0 != c.claims[i-1].c0 {
			cols++
		}
	}
	if rows > cols {
		for i := range c.claims {
			r := &c.claims[i].rect
			*r = rect{r.c0, r.c1, r.r0, r.r1}
		}
	}
	slices.SortFunc(c.claims, func(a, b claim) int { return a.c0 - b.c0 })
	c.open[0], c.open[1] = c.open[0][:0], c.open[1][:0]
	for _, x := range c.claims {
		own, others := &c.open[0], &c.open[1]
		if x.second {
			own, others = others, own
		}
		still := (*others)[:0]
		for _, y := range *others {
			if y.c1 <= x.c0 {
				continue // ended before x, and before all that follow
			}
			still = append(still, y)
			if x.worker == y.worker || !x.meets(y.rect) {
				continue
			}
			if x.second {
				return answer{y.worker, x.worker, true}
			}
			return answer{x.worker, y.worker, true}
		}
		*others = still
		*own = append(*own, x)
	}
	return answer{}
}

// overlap reports whether two buffers share memory of the arena.
func (p *Plan) overlap(a, b BufID) bool {
	x, y := &p.Bufs[a], &p.Bufs[b]
	return x.Bytes > 0 && y.Bytes > 0 && x.Offset < y.Offset+y.Bytes && y.Offset < x.Offset+x.Bytes
}

// arities are the numbers of inputs and outputs of each realisation, and of weights (from, to).
var arities = [codes]struct{ in, out, w0, w1 int }{
	Embed: {0, 1, 1, 1}, Angles: {0, 2, 0, 0}, Norm: {1, 1, 1, 1}, Quant: {1, 1, 0, 0}, Matmul: {1, 1, 1, 2}, Rope: {3, 1, 0, 0},
	Store: {2, 1, 0, 0}, Attend: {2, 1, 0, 0}, AttendChunks: {2, 1, 0, 0}, AttendMerge: {1, 1, 0, 0}, SwiGLU: {2, 1, 0, 0},
	Add: {2, 1, 0, 0}, Pick: {1, 1, 0, 0},
}

// Check proves a plan: every item has its operands; every buffer holds, when it is read, the version that the reader wants, whole;
// no worker touches what another one writes unless a barrier stands between; every step of the graph is realised; the logits are
// what the plan ends with. It holds for the plan's number of workers, and is asked for walks of one row, of a few and many tiles, and
// of MaxRows rows.
func (p *Plan) Check() error {
	c := newProver(p)
	for _, rows := range append([]int{1}, p.sampleRows()...) {
		if err := c.checkRows(rows, min(rows, p.MaxPicks)); err != nil {
			return fmt.Errorf("%d rows, %d workers: %w", rows, p.Workers, err)
		}
	}
	return nil
}

// sampleRows are the row counts at which conflicts are looked for: the largest, and those at which tiles begin to be dealt otherwise.
func (p *Plan) sampleRows() []int {
	out := []int{p.MaxRows}
	for _, r := range []int{TileRows, TileRows + 1, 2*TileRows + 1, 3*TileRows + 1} {
		if r < p.MaxRows {
			out = append(out, r)
		}
	}
	return out
}

func (c *prover) checkRows(rows, picks int) error {
	p := c.p
	holds := make([]int, len(p.Bufs)) // version in each buffer; 0: nothing
	done := make([]bool, len(p.G.Steps))
	since := 0
	for i := range p.Items {
		it := &p.Items[i]
		if it.Do == Barrier {
			since = i + 1
			continue
		}
		at := func(err error) error { return fmt.Errorf("item %d: %w", i, err) }
		if err := p.checkOperands(it); err != nil {
			return at(err)
		}
		for _, o := range it.In {
			if holds[o.Buf] != o.Val {
				return at(fmt.Errorf("%s %s: reads version %d of %s, which holds %d", it.Do, it.Name, o.Val, p.Bufs[o.Buf].Name, holds[o.Buf]))
			}
		}
		if p.Workers == 1 {
			since = i // one after the other
		}
		for j := since; j <= i; j++ {
			if err := c.conflict(&p.Items[j], it, rows, picks); err != nil {
				return at(err)
			}
		}
		for _, o := range it.Out {
			if err := c.covers(it, o, rows, picks); err != nil {
				return at(err)
			}
			for b := range holds {
				if p.overlap(BufID(b), o.Buf) {
					holds[b] = 0
				}
			}
			holds[o.Buf] = o.Val
		}
		for _, s := range it.Steps {
			done[s] = true
		}
	}
	for s, ok := range done {
		if !ok {
			return fmt.Errorf("no item realises step %d %s", s, p.G.Steps[s].Name)
		}
	}
	if len(p.Items) == 0 || holds[p.Logits] == 0 {
		return fmt.Errorf("the plan does not end with the logits")
	}
	return nil
}

// checkOperands is the shape rule of items.
func (p *Plan) checkOperands(it *Item) error {
	a := arities[it.Do]
	in := a.in
	if it.Add {
		in++
	}
	if len(it.In) != in || len(it.Out) != a.out || len(it.W) < a.w0 || len(it.W) > a.w1 || it.Bias != (len(it.W) == 2) {
		return fmt.Errorf("%s %s: has %d inputs, %d outputs, %d weights", it.Do, it.Name, len(it.In), len(it.Out), len(it.W))
	}
	if it.Op != nil && len(it.Steps) > 0 {
		if s := &p.G.Steps[it.Steps[0]]; s.Op != it.Op || it.Do != Store && it.Do != Attend && it.Do != AttendChunks && it.Do != AttendMerge && len(s.W) != len(it.W) {
			return fmt.Errorf("%s %s: is not what step %d asks for", it.Do, it.Name, it.Steps[0])
		}
	}
	if it.Cut.Shared && (it.Do != Matmul || it.Cut.By != Cols) {
		return fmt.Errorf("%s %s: only matmuls are shared, by columns", it.Do, it.Name)
	}
	if _, fused := it.Op.(graph.Matmul); it.Add && (!fused || len(it.Steps) != 2) {
		return fmt.Errorf("%s %s: a fused residual needs two steps", it.Do, it.Name)
	}
	return nil
}

// covers checks that the workers together write all of the output (that they do not write anything twice is conflict's part).
func (c *prover) covers(it *Item, o Operand, rows, picks int) error {
	buf := &c.p.Bufs[o.Buf]
	if buf.Parts {
		return nil
	}
	k := covering{c.p.use(it, o), c.crew(rows, picks)}
	area, ok := c.areas[k]
	if !ok {
		for w := range c.p.Workers {
			c.rects = k.use.regions(c.rects[:0], w, k.crew)
			for _, r := range c.rects {
				if !r.empty() {
					area += (r.r1 - r.r0) * (r.c1 - r.c0)
				}
			}
		}
		c.areas[k] = area
	}
	if want := pickRows(buf.Picked, rows, picks) * buf.Width; area != want {
		return fmt.Errorf("%s %s: writes %d of %d elements of %s", it.Do, it.Name, area, want, buf.Name)
	}
	return nil
}
