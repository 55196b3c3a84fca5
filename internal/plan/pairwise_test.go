package plan

import (
	"math/rand/v2"
	"testing"
)

// Pairwise is the definition of conflict: every rectangle of every worker in one item against every one of every other worker in the
// other. It takes the square of the workers.
func (p *Plan) Pairwise(a, b *Item, rows, picks int) (scope Scope, meets bool) {
	if a != b && p.Workers == 1 {
		return 0, false
	}
	c := newProver(p).crew(rows, picks)
	home := func(w int) int { h, _, _ := p.Homes.Of(w, p.Workers); return h }
	found := func(v, w int) {
		s := All // the largest name of the smallest group
		switch {
		case home(v)/p.Homes.Places != home(w)/p.Homes.Places:
		case home(v) != home(w) && p.Homes.Members > 1:
			s = Member
		case home(v) == home(w) && p.Homes.Places > 1:
			s = Home
		case home(v) == home(w) && p.Homes.Members > 1:
			s = Member
		}
		scope, meets = max(scope, s), true
	}
	if a != b && a.Cut.Shared && b.Cut.Shared {
		found(0, 0)
	}
	far := newProver(p).far
	touched := func(it, other *Item, o Operand, w int) (out []Rect) {
		t := p.touch(it, o)
		list := t.touched(nil, w, &c, other.Cut)
		if it == other {
			list = t.part(nil, w, &c)
		}
		copies := []int{home(w) / p.Homes.Places}
		switch {
		case p.Bufs[o.Buf].Shared:
			copies = []int{0}
		case o.Far:
			copies = nil
			for m := range p.Homes.Members {
				copies = append(copies, m)
			}
		}
		for _, m := range copies {
			for _, r := range list {
				r.R0, r.R1 = r.R0+1e6*m, r.R1+1e6*m
				out = append(out, r)
			}
		}
		return out
	}
	check := func(x, y []Operand) {
		for _, ox := range x {
			for _, oy := range y {
				if ox.Buf != oy.Buf {
					if p.overlap(ox.Buf, oy.Buf) {
						if found(0, 0); far[ox.Buf] || far[oy.Buf] {
							found(0, p.Workers-1)
						} else if p.Homes.Places > 1 {
							scope = max(scope, p.Homes.top(Member))
						}
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
									found(v, w)
								}
							}
						}
					}
				}
			}
		}
	}
	check(a.Out, b.In)
	check(a.Out, b.Out)
	check(a.In, b.Out)
	return scope, meets
}

// Needed lists the scopes of barriers that item i+1 needs between it and earlier ones, behind all the barriers that stand before item i.
func (p *Plan) Needed(i int) (scopes []Scope) {
	if i+1 >= len(p.Items) || p.Workers == 1 {
		return nil
	}
	passed := Scope(0)
	met := false
	for j := i; j >= 0 && !(met && passed == All); j-- {
		if p.Items[j].Do == Barrier {
			if j < i {
				passed, met = max(passed, p.Items[j].Scope), true
			}
			continue
		}
		for _, rows := range p.sampleRows() {
			if s, meets := p.Pairwise(&p.Items[j], &p.Items[i+1], rows, min(rows, p.MaxPicks)); meets && (!met || s > passed) {
				scopes = append(scopes, s)
			}
		}
	}
	return scopes
}

// Conflicts is what plans are built and checked with; it remembers its answers from one call to the next.
func (p *Plan) Conflicts() func(a, b *Item, rows, picks int) (Scope, bool) {
	c := newProver(p)
	return func(a, b *Item, rows, picks int) (Scope, bool) {
		if m := c.conflict(a, b, rows, picks); m != nil {
			return m.scope, true
		}
		return 0, false
	}
}

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
		homes := Homes{1, 1 + rng.IntN(min(2, workers))}
		if workers >= 4 && rng.IntN(2) == 0 {
			homes.Members = 2
		}
		crew := Crew{Workers: workers, Homes: homes}
		x := c.meeting(&crew)
		most := Home
		for pair := range pairs {
			most = max(most, homes.scope(pair[0], pair[1], workers))
		}
		if x.meets && x.scope != most {
			t.Fatalf("%v: found scope %v of %v; there are %v", list, x.scope, homes, pairs)
		}
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
