package team

import (
	"sync/atomic"

	"ck/asm/pause"
)

// A word is a number that threads wait upon. Value and sleepers have cache lines of their own (two, for the adjacent-line prefetcher).
type word struct {
	v        atomic.Uint32
	_        [124]byte
	sleepers atomic.Uint32
	_        [124]byte
}

// safepointRounds is how many PAUSEs pass between two Safepoints of a spinning worker: below a microsecond on all cores.
const safepointRounds = 16

// await returns the value once it is no longer old, after at most rounds PAUSEs of spinning and then sleep.
func (x *word) await(old uint32, rounds int) uint32 {
	for i := range rounds {
		if v := x.v.Load(); v != old {
			return v
		}
		pause.Spin(1)
		if i%safepointRounds == safepointRounds-1 {
			Safepoint()
		}
	}
	x.sleepers.Add(1)
	v := x.v.Load()
	for v == old {
		futexWait(&x.v, old)
		v = x.v.Load()
	}
	x.sleepers.Add(^uint32(0))
	return v
}

// wake must follow a change of the value. No sleeper is missed: await counts itself before it looks at the value for the last time,
// and the kernel looks again before it sleeps.
func (x *word) wake() {
	if x.sleepers.Load() != 0 {
		futexWake(&x.v)
	}
}

// A Level says who meets at a barrier.
type Level uint8

const (
	Home   Level = iota // the workers of one home
	Member              // the workers of all homes of a member
	All
)

func (l Level) String() string { return [...]string{"home", "member", "all"}[l] }

// fanIn is how many workers of a home add themselves to one counter. A line that many cores write to takes each of them in turn: 112 of
// them 5.6 µs.
const fanIn = 8

// A barrier is a tree of counters: workers, homes, members, all. Whoever completes a counter goes on to the one above. At the top of the level
// that meets, the last one starts the next generation of every home below. The state of a home, on which its workers wait, holds the
// generation above the number of kicks above a flag.
type barrier struct {
	seats  []seat
	counts []*count
	homes  []word
	off    atomic.Bool // broken is on its way to all homes
}

// A seat is where a worker arrives.
type seat struct {
	home int
	leaf *count
	top  [All + 1]*count // of each level
}

// A count counts arrivals.
type count struct {
	arrived atomic.Uint32
	_       [124]byte
	out     atomic.Bool   // a worker below has returned from its function: the count can no longer be complete
	met     atomic.Uint32 // how often it was complete as the top of a level
	n       uint32
	up      *count
	lo, hi  int // the homes below
	_       [88]byte
}

const (
	broken     = 1       // a worker failed: nobody waits any more
	kick       = 2       // added when a worker has returned from its function: who waits looks whether it waits in vain
	generation = 1 << 12 // kicks are one for each home at most
)

// newBarrier makes a barrier of homes with so many workers each, places homes a member.
func newBarrier(homes []int, places int) *barrier {
	b := &barrier{homes: make([]word, len(homes))}
	tops := make([]*count, len(homes))
	for h, workers := range homes {
		var leaves []*count
		for n := (workers + fanIn - 1) / fanIn; len(leaves) < n; {
			i := len(leaves)
			c := &count{n: uint32(workers*(i+1)/n - workers*i/n), lo: h, hi: h + 1}
			for range c.n {
				b.seats = append(b.seats, seat{home: h, leaf: c})
			}
			leaves = append(leaves, c)
		}
		b.counts = append(b.counts, leaves...)
		tops[h] = b.over(leaves)
	}
	members := make([]*count, 0, len(homes)/places)
	for h := 0; h < len(homes); h += places {
		members = append(members, b.over(tops[h:h+places]))
	}
	all := b.over(members)
	for i := range b.seats {
		s := &b.seats[i]
		s.top = [...]*count{tops[s.home], members[s.home/places], all}
	}
	return b
}

// over is the count of several; of one it is that one.
func (b *barrier) over(below []*count) *count {
	if len(below) == 1 {
		return below[0]
	}
	c := &count{n: uint32(len(below)), lo: below[0].lo, hi: below[len(below)-1].hi}
	for _, x := range below {
		x.up = c
	}
	b.counts = append(b.counts, c)
	return c
}

// reset prepares for a Run. No worker is at the barrier then.
func (b *barrier) reset() {
	for _, c := range b.counts {
		c.arrived.Store(0)
		c.out.Store(false)
	}
	b.off.Store(false)
	for h := range b.homes {
		b.homes[h].v.And(^uint32(generation - 1))
	}
}

// wait returns ok when all workers of the level have arrived. Otherwise the barrier is broken, or left: a worker of them is out already.
func (b *barrier) wait(w int, l Level, rounds int) (ok, left bool) {
	x := &b.seats[w]
	state, top := &b.homes[x.home], x.top[l]
	s := state.v.Load()
	if s&broken != 0 {
		return false, false
	}
	if top.out.Load() {
		return false, !b.off.Load()
	}
	if len(b.seats) == 1 {
		return true, false
	}
	met := top.met.Load()
	for c := x.leaf; c.arrived.Add(1) == c.n; c = c.up {
		c.arrived.Store(0) // before the generation: who goes on may arrive at the next barrier at once
		if c == top {
			top.met.Add(1) // before anyone can leave
			for h := c.lo; h < c.hi; h++ {
				b.homes[h].v.Add(generation)
				b.homes[h].wake()
			}
			return true, false
		}
	}
	for {
		now := state.await(s, rounds)
		switch {
		case now/generation != s/generation:
			return now&broken == 0, false
		case now&broken != 0:
			return false, false
		case top.out.Load() && top.met.Load() == met: // if not, the next generation is on its way to this home
			return false, !b.off.Load()
		}
		s = now
	}
}

// leave notes that worker w has returned from its function, and wakes those who wait in vain. The first one of a home does.
func (b *barrier) leave(w int) {
	x := &b.seats[w]
	if x.top[Home].out.Load() || x.top[Home].out.Swap(true) {
		return
	}
	x.top[Member].out.Store(true)
	x.top[All].out.Store(true)
	for h := range b.homes {
		b.homes[h].v.Add(kick)
		b.homes[h].wake()
	}
}

// breakUp lets all waiters go, now and for the rest of the Run.
func (b *barrier) breakUp() {
	b.off.Store(true) // before anyone can leave because of it
	for h := range b.homes {
		b.homes[h].v.Or(broken)
		b.homes[h].wake()
	}
}
