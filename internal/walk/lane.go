package walk

import (
	"ck/internal/mover"
)

// A Lane is where a worker packs panels that a mover then copies to their place: chunks of a ring, in the order in which they are done. The worker reads
// the chunk, as it would scratch, and does not wait for memory that is new. While all chunks wait for the mover there is no lane.
type Lane struct {
	home   int // whose panels
	mover  mover.Mover
	ring   []byte
	size   int // of a chunk
	moving []moving
	first  int // of moving
	n      int // that are moving
	copy   [1]mover.Copy
}

// moving is panels [p, q) of a slot that are on their way.
type moving struct {
	slot   *Slot
	p, q   int
	ticket mover.Ticket
}

// LaneBytes is the memory of a lane for a walk over slots of which the largest scratch is so large.
func LaneBytes(scratch int) int { return laneChunks(scratch) * scratch }

// laneChunks is how many chunks a lane has: a helper falls behind while it takes new memory, 0.5 ms for 2 MiB.
func laneChunks(size int) int { return min(max(2, 2<<20/size), 8) }

// NewLane makes a lane for a worker of a home, whose copies m makes. Scratch is the size of the largest that a slot needs (Slot.Scratch).
func NewLane(home, scratch int, m mover.Mover) *Lane {
	n := laneChunks(scratch)
	return &Lane{home: home, mover: m, ring: make([]byte, n*scratch), size: scratch, moving: make([]moving, n)}
}

// Settle ends what is complete: its panels are packed. Panels that a dead mover has left are what they were.
func (l *Lane) Settle() {
	for l.n > 0 {
		m := &l.moving[l.first]
		dead := l.mover.Dead() // before Poll: what is complete then is all that ever will be
		switch {
		case l.mover.Poll(m.ticket) == 1:
			for p := m.p; p < m.q; p++ {
				m.slot.stand(p)
			}
		case dead:
			m.slot.giveBack(m.p, m.q)
		default:
			return
		}
		m.slot = nil
		l.first, l.n = (l.first+1)%len(l.moving), l.n-1
	}
}

// room is the next chunk; nil: all are on their way.
func (l *Lane) room() []byte {
	l.Settle()
	if l.n == len(l.moving) || l.mover.Dead() {
		return nil
	}
	i := (l.first + l.n) % len(l.moving)
	return l.ring[i*l.size : (i+1)*l.size]
}

// send has panels [p, q) of a slot, which lie in the chunk that room has returned, moved to their place.
func (l *Lane) send(s *Slot, p, q int, chunk []byte) {
	l.copy[0] = mover.Copy{Dst: s.mem[p*s.pb : q*s.pb], Src: chunk}
	t, ok := l.mover.Submit(l.copy[:])
	if !ok {
		s.giveBack(p, q)
		return
	}
	l.moving[(l.first+l.n)%len(l.moving)] = moving{s, p, q, t}
	l.n++
}

// lend packs panels from p on, up to end, into a chunk of the worker's lane and has them moved. It returns p and nothing where there is no chunk, or another
// worker packs panel p.
func (s *Slot) lend(u *reader, p, end, p1 int) (q int, w []byte) {
	room := u.lane.room()
	if room == nil {
		return p, nil
	}
	for q = p; q < end && (q+1-p)*s.pb <= len(room) && (s.state[q].CompareAndSwap(used, busy) || s.state[q].CompareAndSwap(filed, busy)); q++ {
	}
	if q == p {
		return p, nil
	}
	at, sent := p, false
	defer func() {
		if !sent { // a page of the file cannot be read
			s.giveBack(p, q)
		}
	}()
	if !u.touched {
		s.touch(u, p, p1)
	}
	for ; at < q && !(at > p && u.stopped()); at++ {
		s.pack(u, room[(at-p)*s.pb:(at-p+1)*s.pb], at)
	}
	s.giveBack(at, q)
	q, sent = at, true
	u.lane.send(s, p, q, room[:(q-p)*s.pb])
	return q, room[:(q-p)*s.pb]
}

// giveBack ends the claim of panels [p, q), which were not packed.
func (s *Slot) giveBack(p, q int) {
	for ; p < q; p++ {
		s.state[p].Store(used)
	}
}

// A Filler packs panels to stay, in the order of slots, beside the workers: an even part of each slot's.
type Filler struct {
	slots []*Slot
	i, n  int
	at, p int
	begun bool
	u     reader
}

// NewFiller makes filler i of n.
func NewFiller(slots []*Slot, i, n int) *Filler { return &Filler{slots: slots, i: i, n: n} }

// fillTouch is how many panels a filler has mapped at once.
const fillTouch = 16

// Next packs a panel and returns its bytes; 0: there is none left.
func (f *Filler) Next() int {
	for ; f.at < len(f.slots); f.at, f.begun = f.at+1, false {
		s := f.slots[f.at]
		if s.mem == nil || s.Mapped() {
			continue
		}
		all := s.panels()
		end := all * (f.i + 1) / f.n
		if !f.begun {
			f.p, f.begun = all*f.i/f.n, true
			f.u.touched = false
		}
		for f.p < end {
			p := f.p
			f.p++
			if s.state[p].Load() >= busy {
				continue
			}
			if (p-all*f.i/f.n)%fillTouch == 0 {
				f.u.touched = false
			}
			if !f.u.touched {
				s.touch(&f.u, p, min(p+fillTouch, end))
			}
			s.state[p].CompareAndSwap(filed, used)
			if s.keep(&f.u, p) {
				return s.pb
			}
		}
	}
	return 0
}
