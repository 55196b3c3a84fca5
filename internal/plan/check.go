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
	rects   []Rect
	spots   []spot
	open    [2][]spot
}

func newProver(p *Plan) *prover {
	return &prover{p: p, answers: map[question]answer{}, areas: map[covering]int{}}
}

// A question is whether two workers meet in a buffer that two items use, or one item twice.
type question struct {
	a, b touch
	same bool // it is one item
	crew Crew
}

// An answer is that worker w in the first item meets worker v in the second, if any two meet.
type answer struct {
	w, v  int
	meets bool
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
	return Crew{c.p.Workers, rows, picks, rows * c.p.Workers}
}

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
				if x := c.ask(question{p.touch(a, ox), p.touch(b, oy), a == b, c.crew(rows, picks)}); x.meets {
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
		c.spots = c.spots[:0]
		for w := range q.crew.Workers {
			c.spot(&q.a, w, &q, false)
			c.spot(&q.b, w, &q, true)
		}
		x = c.meeting()
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
	for _, r := range c.rects {
		if !r.Empty() {
			c.spots = append(c.spots, spot{r, w, second})
		}
	}
}

// meeting finds spots of different workers, one on either item, that have an element in common.
//
// It sweeps over the columns, or over the rows if those tell the spots apart, and compares each spot with those of the other item that
// have begun and not ended. Where no two workers meet, few spots are open at a time, and the work is about linear in the workers;
// comparing each with each takes the square, seconds for hundreds of workers.
func (c *prover) meeting() answer {
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
	if it.Add && (k.Group != Products || len(it.Steps) != 2) {
		return fmt.Errorf("%s %s: a fused residual needs two steps", it.Do, it.Name)
	}
	return nil
}

// covers checks that the workers together write all of the output (that they do not write anything twice is conflict's part).
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
	if want := k.touch.whole(&crew).area(); area != want {
		return fmt.Errorf("%s %s: writes %d of %d elements of %s", it.Do, it.Name, area, want, c.p.Bufs[o.Buf].Name)
	}
	return nil
}
