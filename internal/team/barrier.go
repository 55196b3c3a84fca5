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

// A barrier counts arrivals; the last one starts the next generation. The state holds the generation above two flags.
type barrier struct {
	n       uint32
	_       [124]byte
	arrived atomic.Uint32
	_       [124]byte
	state   word
}

const (
	broken     = 1 // a worker failed: nobody waits any more
	someoneOut = 2 // a worker has returned from its function: a barrier can no longer be complete
	generation = 4
)

// reset prepares for a Run. No worker is at the barrier then.
func (b *barrier) reset() {
	b.arrived.Store(0)
	b.state.v.And(^uint32(broken | someoneOut))
}

// wait returns ok when all n workers have arrived. Otherwise the barrier is broken, or left: a worker is out already.
func (b *barrier) wait(rounds int) (ok, left bool) {
	s := b.state.v.Load()
	if s&(broken|someoneOut) != 0 {
		return false, s&broken == 0
	}
	if b.n == 1 {
		return true, false
	}
	if b.arrived.Add(1) == b.n {
		b.arrived.Store(0) // before the generation: who goes on may arrive at the next barrier at once
		b.state.v.Add(generation)
		b.state.wake()
		return true, false
	}
	now := b.state.await(s, rounds)
	if now/generation != s/generation {
		return now&broken == 0, false
	}
	return false, now&broken == 0
}

// leave notes that a worker has returned from its function, and wakes those who wait in vain.
func (b *barrier) leave() {
	if b.state.v.Load()&someoneOut == 0 {
		b.state.v.Or(someoneOut)
		b.state.wake()
	}
}

// breakUp lets all waiters go, now and for the rest of the Run.
func (b *barrier) breakUp() {
	b.state.v.Or(broken)
	b.state.wake()
}
