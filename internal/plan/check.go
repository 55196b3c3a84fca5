package plan

import (
	"fmt"
	"slices"
)

// A prover looks for workers that meet. Layers ask the same questions over and over; each is answered once.
type prover struct {
	p       *Plan
	answers map[question]answer
	areas   map[covering]int
	held    map[holding]bool
	far     map[BufID]bool // members read each other's copies
	rects   []Rect
	moved   []Rect
	spots   []spot
	open    [2][]spot
}

func newProver(p *Plan) *prover {
	c := &prover{p: p, answers: map[question]answer{}, areas: map[covering]int{}, held: map[holding]bool{}, far: map[BufID]bool{}}
	for i := range p.Items {
		for _, o := range p.Items[i].In {
			if o.Far || p.Bufs[o.Buf].Shared {
				c.far[o.Buf] = true
			}
		}
		for _, o := range p.Items[i].Out {
			if p.Bufs[o.Buf].Shared {
				c.far[o.Buf] = true
			}
		}
	}
	return c
}

// A question is whether two workers meet in a buffer that two items use, or one item twice.
type question struct {
	a, b touch
	same bool // it is one item
	crew Crew
}

// An answer is that worker w in the first item meets worker v in the second, if any two meet: two of the largest scope.
type answer struct {
	w, v  int
	meets bool
	scope Scope
}

// A covering is how much of a buffer all workers together touch.
type covering struct {
	touch touch
	crew  Crew
}

// A spot is a rectangle of a buffer that a worker touches in one of two items.
type spot struct {
	Rect
	worker int
	second bool // of the second item
}

// crew is the plan's workers in a walk of so many rows. Rows see so many chunks of keys that each worker has some: then it reads queries and
// cache, and that is all that the number of chunks decides.
func (c *prover) crew(rows, picks int) Crew {
	return Crew{c.p.Workers, rows, picks, rows * c.p.Workers, c.p.Homes}
}

// A meeting is how a worker in one item touches what another one writes in an earlier one, or writes what it touches there, and the smallest group
// that has both; of several the one with the largest group.
type meeting struct {
	scope Scope
	what  func() error
}

// conflict is the meeting of two items, or of workers within one; nil if there is none. Within one item the workers' shares are compared: nobody
// takes over what another one has begun.
func (c *prover) conflict(a, b *Item, rows, picks int) *meeting {
	p := c.p
	if a != b && p.Workers == 1 {
		return nil // one after the other; that buffers hold what is read is checked apart
	}
	var worst *meeting
	found := func(s Scope, what func() error) {
		if worst == nil || s > worst.scope {
			worst = &meeting{s, what}
		}
	}
	if a != b && a.Cut.Shared && b.Cut.Shared {
		found(p.Homes.top(Home), func() error {
			return fmt.Errorf("%s %s: no barrier since %s %s, which is shared as well", b.Do, b.Name, a.Do, a.Name)
		})
	}
	check := func(x, y []Operand, what string) {
		for _, ox := range x {
			for _, oy := range y {
				if worst != nil && worst.scope == All {
					return
				}
				if ox.Buf != oy.Buf {
					if p.overlap(ox.Buf, oy.Buf) {
						scope := p.Homes.top(Member)
						if c.far[ox.Buf] || c.far[oy.Buf] {
							scope = All
						}
						found(scope, func() error {
							return fmt.Errorf("%s %s: %s and %s share memory", b.Do, b.Name, p.Bufs[ox.Buf].Name, p.Bufs[oy.Buf].Name)
						})
					}
					continue
				}
				if x := c.ask(question{p.touch(a, ox), p.touch(b, oy), a == b, c.crew(rows, picks)}); x.meets {
					found(x.scope, func() error {
						return fmt.Errorf("%s %s: worker %d %s %s that worker %d has in %s %s", b.Do, b.Name, x.v, what, p.Bufs[oy.Buf].Name, x.w, a.Do, a.Name)
					})
				}
			}
		}
	}
	check(a.Out, b.In, "reads")
	check(a.Out, b.Out, "writes")
	check(a.In, b.Out, "writes")
	return worst
}

// ask answers a question.
func (c *prover) ask(q question) answer {
	x, ok := c.answers[q]
	if !ok {
		c.spots = c.spots[:0]
		for w := range q.crew.Workers {
			c.spot(&q.a, w, &q, false)
			c.spot(&q.b, w, &q, true)
		}
		x = c.meeting(&q.crew)
		c.answers[q] = x
	}
	return x
}

// spot lists what worker w touches in one of the items of a question.
func (c *prover) spot(t *touch, w int, q *question, second bool) {
	other := q.b.cut
	if second {
		other = q.a.cut
	}
	if q.same {
		c.rects = t.part(c.rects[:0], w, &q.crew)
	} else {
		c.rects = t.touched(c.rects[:0], w, &q.crew, other)
	}
	home, _, _ := q.crew.Homes.Of(w, q.crew.Workers)
	c.moved = t.copies(c.moved[:0], c.rects, home/q.crew.Homes.Places, &q.crew)
	for _, r := range c.moved {
		if !r.Empty() {
			c.spots = append(c.spots, spot{r, w, second})
		}
	}
}

// meeting finds spots of different workers, one on either item, that have an element in common: those of the largest scope.
//
// It sweeps over the columns, or over the rows if those tell the spots apart, and compares each spot with those of the other item that
// have begun and not ended. Where no two workers meet, few spots are open at a time, and the work is about linear in the workers;
// comparing each with each takes the square, seconds for hundreds of workers.
func (c *prover) meeting(crew *Crew) (found answer) {
	rows, cols := 0, 0
	for i := 1; i < len(c.spots); i++ {
		if c.spots[i].R0 != c.spots[i-1].R0 {
			rows++
		}
		if c.spots[i].C0 != c.spots[i-1].C0 {
			cols++
		}
	}
	if rows > cols {
		for i := range c.spots {
			r := &c.spots[i].Rect
			*r = Rect{r.C0, r.C1, r.R0, r.R1}
		}
	}
	slices.SortFunc(c.spots, func(a, b spot) int { return a.C0 - b.C0 })
	c.open[0], c.open[1] = c.open[0][:0], c.open[1][:0]
	for _, x := range c.spots {
		own, others := &c.open[0], &c.open[1]
		if x.second {
			own, others = others, own
		}
		still := (*others)[:0]
		for _, y := range *others {
			if y.C1 <= x.C0 {
				continue // ended before x, and before all that follow
			}
			still = append(still, y)
			if x.worker == y.worker || !x.meets(y.Rect) {
				continue
			}
			scope := crew.Homes.scope(x.worker, y.worker, crew.Workers)
			if found.meets && scope <= found.scope {
				continue
			}
			if found = (answer{x.worker, y.worker, true, scope}); x.second {
				found.w, found.v = y.worker, x.worker
			}
			if scope == All {
				return found
			}
		}
		*others = still
		*own = append(*own, x)
	}
	return found
}

// overlap reports whether two buffers share memory of the arena.
func (p *Plan) overlap(a, b BufID) bool {
	x, y := &p.Bufs[a], &p.Bufs[b]
	return x.Bytes > 0 && y.Bytes > 0 && x.Shared == y.Shared && x.Offset < y.Offset+y.Bytes && y.Offset < x.Offset+x.Bytes
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
	wrote := make([]touch, len(p.Bufs))
	done := make([]bool, len(p.G.Steps))
	since := 0
	for i := range p.Items {
		it := &p.Items[i]
		if it.Do == Barrier {
			if it.Scope == All {
				since = i + 1
			}
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
		for _, o := range it.In {
			if !c.sees(p.touch(it, o), wrote[o.Buf], rows, picks) {
				return at(fmt.Errorf("%s %s: reads columns of %s that another member wrote", it.Do, it.Name, p.Bufs[o.Buf].Name))
			}
		}
		if p.Workers == 1 {
			since = i // one after the other
		}
		passed, met := Home, false // the largest barrier behind item j, if there is one
		for j := i; j >= since; j-- {
			if x := &p.Items[j]; x.Do == Barrier {
				passed, met = max(passed, x.Scope), true
			} else if m := c.conflict(x, it, rows, picks); m != nil && (!met || m.scope > passed) {
				return at(m.what())
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
			holds[o.Buf], wrote[o.Buf] = o.Val, p.touch(it, o)
		}
		for _, s := range it.Steps {
			done[s] = true
		}
	}
	for s, ok := range done {
		if !ok && s < p.Steps {
			return fmt.Errorf("no item realises step %d %s", s, p.G.Steps[s].Name)
		}
	}
	for _, t := range p.Taps {
		if holds[t.Op.Buf] != t.Op.Val {
			return fmt.Errorf("the tapped value %s is gone in the end", p.G.Values[t.Value].Name)
		}
	}
	if len(p.Items) == 0 || p.Logits != None && holds[p.Logits] == 0 || p.Logits == None && len(p.Taps) == 0 {
		return fmt.Errorf("the plan does not end with the logits")
	}
	return nil
}

// checkOperands is the shape rule of items.
func (p *Plan) checkOperands(it *Item) error {
	k, in := it.Do, it.Do.In
	if it.Add {
		in++
	}
	if len(it.In) != in || len(it.Out) != k.Out || len(it.W) < k.Weights[0] || len(it.W) > k.Weights[1] {
		return fmt.Errorf("%s %s: has %d inputs, %d outputs, %d weights", it.Do, it.Name, len(it.In), len(it.Out), len(it.W))
	}
	if it.Op != nil && len(it.Steps) > 0 {
		if s := &p.G.Steps[it.Steps[0]]; s.Op != it.Op || len(s.W) != len(it.W) {
			return fmt.Errorf("%s %s: is not what step %d asks for", it.Do, it.Name, it.Steps[0])
		}
	}
	if it.Cut.Shared && (!k.Shared || it.Cut.By != Cols) {
		return fmt.Errorf("%s %s: only matmuls are shared, by columns", it.Do, it.Name)
	}
	if it.Cut.Over == Shares && it.Cut.By != Rows {
		return fmt.Errorf("%s %s: only cuts by rows are of shares of the columns", it.Do, it.Name)
	}
	if it.Add && (!k.Adds || len(it.Steps) != 2) {
		return fmt.Errorf("%s %s: a fused residual needs two steps", it.Do, it.Name)
	}
	return nil
}

// covers checks that the workers together write all of the output, or of every member's copy if each does all (that they do not write anything
// twice is conflict's part).
func (c *prover) covers(it *Item, o Operand, rows, picks int) error {
	crew := c.crew(rows, picks)
	k := covering{c.p.touch(it, o), crew}
	area, ok := c.areas[k]
	if !ok {
		for w := range c.p.Workers {
			c.rects = k.touch.part(c.rects[:0], w, &crew)
			for _, r := range c.rects {
				area += r.area()
			}
		}
		c.areas[k] = area
	}
	want := k.touch.whole(&crew).area()
	if it.Cut.Over == Alike {
		want *= c.p.Homes.Members
	}
	if area != want || o.Far {
		return fmt.Errorf("%s %s: writes %d of %d elements of %s", it.Do, it.Name, area, want, c.p.Bufs[o.Buf].Name)
	}
	return nil
}

// A holding is the question whether a reader reads of its member's copy just what the member wrote there.
type holding struct {
	reads, wrote touch
	crew         Crew
}

// sees answers it. What every member wrote for itself is all there, and so is what is shared, when all have written.
func (c *prover) sees(reads, wrote touch, rows, picks int) bool {
	if wrote.shared || wrote.cut.Over == Alike {
		return true
	}
	if reads.far {
		return false
	}
	k := holding{reads, wrote, c.crew(rows, picks)}
	ok, known := c.held[k]
	if !known {
		ok = c.within(&k)
		c.held[k] = ok
	}
	return ok
}

func (c *prover) within(k *holding) bool {
	homes := k.crew.Homes
	for m := range homes.Members {
		var box Rect
		for pass := range 2 {
			for w := range k.crew.Workers {
				if h, _, _ := homes.Of(w, k.crew.Workers); h/homes.Places != m {
					continue
				}
				t := &k.wrote
				if pass == 1 {
					t = &k.reads
				}
				c.rects = t.part(c.rects[:0], w, &k.crew)
				for _, r := range c.rects {
					switch {
					case r.Empty():
					case pass == 0 && box.Empty():
						box = r
					case pass == 0: // a member's workers write a rectangle: their ranges follow each other
						box = Rect{min(box.R0, r.R0), max(box.R1, r.R1), min(box.C0, r.C0), max(box.C1, r.C1)}
					case r.R0 < box.R0 || r.R1 > box.R1 || r.C0 < box.C0 || r.C1 > box.C1:
						return false
					}
				}
			}
		}
	}
	return true
}
