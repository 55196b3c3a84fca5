package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Pairwise is the definition of conflict: every rectangle of every worker in one item against every one of every other worker in the
// other. It takes the square of the workers.
func (p *Plan) Pairwise(a, b *Item, rows, picks int) error {
	if a != b && p.Workers == 1 {
		return nil
	}
	if a != b && a.Cut.Shared && b.Cut.Shared {
		return fmt.Errorf("both are shared")
	}
	c := newProver(p).crew(rows, picks)
	touched := func(it, other *Item, o Operand, w int) []Rect {
		t := p.touch(it, o)
		if it == other {
			return t.part(nil, w, &c)
		}
		return t.touched(nil, w, &c, other.Cut)
	}
	check := func(x, y []Operand) error {
		for _, ox := range x {
			for _, oy := range y {
				if ox.Buf != oy.Buf {
					if p.overlap(ox.Buf, oy.Buf) {
						return fmt.Errorf("buffers %d and %d share memory", ox.Buf, oy.Buf)
					}
					continue
				}
				for w := range p.Workers {
					for v := range p.Workers {
						if v == w {
							continue
						}
						for _, r := range touched(a, b, ox, w) {
							for _, s := range touched(b, a, oy, v) {
								if r.meets(s) {
									return fmt.Errorf("worker %d's %v and worker %d's %v meet in buffer %d", w, r, v, s, ox.Buf)
								}
							}
						}
					}
				}
			}
		}
		return nil
	}
	if err := check(a.Out, b.In); err != nil {
		return err
	}
	if err := check(a.Out, b.Out); err != nil {
		return err
	}
	return check(a.In, b.Out)
}

// Conflicts is what plans are built and checked with; it remembers its answers from one call to the next.
func (p *Plan) Conflicts() func(a, b *Item, rows, picks int) error { return newProver(p).conflict }

// SampleRows are the numbers of rows that plans are built and checked for.
func (p *Plan) SampleRows() []int { return p.sampleRows() }

// Sweeping finds a meeting of random rectangles just where comparing each with each does, and what it finds is one.
func TestMeeting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := prover{}
	found := 0
	for range 20000 {
		workers, side := 1+rng.IntN(6), 1+rng.IntN(30)
		span := func() (lo, hi int) { // sometimes empty, often long
			lo = rng.IntN(side)
			return lo, lo + rng.IntN(1+rng.IntN(side))
		}
		var list []spot
		for range rng.IntN(10) {
			x := spot{worker: rng.IntN(workers), second: rng.IntN(2) == 0}
			x.R0, x.R1 = span()
			x.C0, x.C1 = span()
			if rng.IntN(4) == 0 {
				x.R0, x.R1 = 0, side
			}
			if rng.IntN(4) == 0 {
				x.C0, x.C1 = 0, side
			}
			if !x.Empty() {
				list = append(list, x)
			}
		}
		pairs := map[[2]int]bool{}
		for _, x := range list {
			for _, y := range list {
				if !x.second && y.second && x.worker != y.worker && x.meets(y.Rect) {
					pairs[[2]int{x.worker, y.worker}] = true
				}
			}
		}
		c.spots = append(c.spots[:0], list...)
		x := c.meeting()
		if x.meets != (len(pairs) > 0) || x.meets && !pairs[[2]int{x.w, x.v}] {
			t.Fatalf("%v: found %+v; there are %v", list, x, pairs)
		}
		if x.meets {
			found++
		}
	}
	if found < 2000 || found > 18000 {
		t.Errorf("%d of 20000 cases meet: the cases are no good", found)
	}
}
