package walk

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"ck/internal/mover"
)

// A porter is a mover that a test drives.
type porter struct {
	list []mover.Copy
	at   []mover.Ticket
	done int
	dead bool
	full bool
	real mover.Mover // gives tickets
}

func newPorter(t *testing.T) *porter {
	t.Helper()
	th, err := mover.Start(-1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { th.Close() })
	return &porter{real: th.Queue(0)}
}

func (p *porter) Submit(list []mover.Copy) (mover.Ticket, bool) {
	if p.dead || p.full {
		return mover.Ticket{}, false
	}
	t, ok := p.real.Submit([]mover.Copy{{}})
	for !ok {
		t, ok = p.real.Submit([]mover.Copy{{}})
	}
	p.list, p.at = append(p.list, list...), append(p.at, t)
	return t, true
}

func (p *porter) Poll(t mover.Ticket) int {
	for i := range p.done {
		if p.at[i] == t {
			return 1
		}
	}
	return 0
}

func (p *porter) Dead() bool { return p.dead }

// carry completes n copies.
func (p *porter) carry(n int) {
	for ; n > 0 && p.done < len(p.list); n, p.done = n-1, p.done+1 {
		copy(p.list[p.done].Dst, p.list[p.done].Src)
	}
}

// Whatever a mover does, and wherever it dies, a worker reads the right panels, at most as many as the lane holds are on their way, and what did not
// arrive is packed later.
func TestLane(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for trial := range 40 {
		s, want := testSlot(t, 16*400-3, 2048, true)
		m := newPorter(t)
		l := NewLane(0, s.Scratch(), m)
		u, scratch := reader{lane: l}, make([]byte, s.Scratch())
		u.credit = -time.Hour
		rate, dies, rows := r.IntN(3), r.IntN(200), s.Row
		s.Row = func(i int) []byte { // between panels of a chunk too
			if r.IntN(60) == 0 {
				m.carry(rate)
			}
			if dies > 0 {
				dies--
			} else if trial%2 == 0 {
				m.dead = true
			}
			m.full = r.IntN(30) == 0
			return rows(i)
		}
		for range 3 {
			u.walk()
			u.credit = -time.Hour
			if err := readShare(s, &u, 0, s.panels(), scratch, want); err != nil {
				t.Fatalf("trial %d: %v", trial, err)
			}
			if l.n > len(l.moving) {
				t.Fatalf("trial %d: %d chunks are on their way", trial, l.n)
			}
			for p := range s.state {
				if s.state[p].Load() == packed && !bytes.Equal(s.mem[p*s.pb:(p+1)*s.pb], want[p*s.pb:(p+1)*s.pb]) {
					t.Fatalf("trial %d: panel %d is not what it should be", trial, p)
				}
			}
		}
		m.dead = true
		l.Settle()
		if s.Moving() {
			t.Fatalf("trial %d: a dead mover holds panels", trial)
		}
		if trial%2 == 1 && rate > 0 && s.PackedBytes() == 0 {
			t.Errorf("trial %d: nothing arrived", trial)
		}
		u.credit = time.Hour
		if err := readShare(s, &u, 0, s.panels(), scratch, want); err != nil {
			t.Fatal(err)
		}
		if s.Packing() || !bytes.Equal(s.mem, want) {
			t.Errorf("trial %d: not all is packed, or not the right bytes", trial)
		}
	}
}

// A page of the file that cannot be read leaves the panels of a chunk as they were.
func TestLaneFault(t *testing.T) {
	s, want := testSlot(t, 16*40, 256, true)
	m := newPorter(t)
	u, scratch := reader{lane: NewLane(0, s.Scratch(), m)}, make([]byte, s.Scratch())
	rows := s.Row
	s.Row = func(r int) []byte {
		if r > 16*7 {
			panic("no such page")
		}
		return rows(r)
	}
	func() {
		defer func() { recover() }()
		u.touched = true
		s.read(&u, 0, s.panels(), scratch, true)
		t.Error("no fault")
	}()
	if s.Moving() || len(m.list) > 0 {
		t.Errorf("panels are still on their way, %d copies", len(m.list))
	}
	s.Row = rows
	if err := readShare(s, &u, 0, s.panels(), scratch, want); err != nil {
		t.Error(err)
	}
	m.carry(1000)
	u.lane.Settle()
	if s.Packing() || !bytes.Equal(s.mem, want) {
		t.Error("not all panels are in their place")
	}
}

// Panels of another home, and those of a stopped walk, are not moved: of the latter one at most.
func TestLaneLeaves(t *testing.T) {
	s, want := testSlot(t, 16*40, 256, true)
	m := newPorter(t)
	u, scratch := reader{lane: NewLane(1, s.Scratch(), m)}, make([]byte, s.Scratch())
	if err := readShare(s, &u, 0, s.panels(), scratch, want); err != nil || len(m.list) > 0 {
		t.Errorf("%v; %d copies of another home", err, len(m.list))
	}
	if u.moves.Unplaced != s.panels() {
		t.Errorf("%d panels were found unplaced, all of %d were", u.moves.Unplaced, s.panels())
	}
	u.lane = NewLane(0, s.Scratch(), m)
	stop := atomic.Bool{}
	stop.Store(true)
	u.stop = &stop
	if q, _ := s.read(&u, 0, s.panels(), scratch, true); q != 1 || len(m.list) != 1 || len(m.list[0].Dst) != s.pb {
		t.Errorf("stopped: %d panels, %d copies", q, len(m.list))
	}
	u.stop = nil
	if _, w := s.read(&u, 0, s.panels(), scratch, false); &w[0] != &scratch[0] {
		t.Error("a use that may not keep panels moves them")
	}
}

// Fillers share the panels of all slots; those that others have are left.
func TestFiller(t *testing.T) {
	a, wantA := testSlot(t, 16*50-3, 512, true)
	none, _ := testSlot(t, 100, 256, false)
	b, wantB := testSlot(t, 16*3, 1024, true)
	a.Pack(1, 5, nil)
	before := a.PackedBytes()
	slots := []*Slot{a, none, b}
	bytesOf := [2]int{}
	fillers := []*Filler{NewFiller(slots, 0, 2), NewFiller(slots, 1, 2)}
	for i, f := range fillers {
		for n := f.Next(); n > 0; n = f.Next() {
			bytesOf[i] += n
		}
	}
	if a.Packing() || b.Packing() || !bytes.Equal(a.mem, wantA) || !bytes.Equal(b.mem, wantB) {
		t.Error("not all is packed")
	}
	if n := bytesOf[0] + bytesOf[1] + before; n != len(wantA)+len(wantB) || bytesOf[0] == 0 || bytesOf[1] == 0 {
		t.Errorf("fillers packed %d bytes, %d were there, in all %d", bytesOf, before, len(wantA)+len(wantB))
	}
}
