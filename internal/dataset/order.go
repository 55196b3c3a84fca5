package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"sort"
)

// A Slot is T tokens: sequences one behind the other, each from position 0 on, then padding. No sequence is in two slots.
type Slot struct {
	IDs  []int32 // [T]; 0 in padding
	Pos  []int32 // [T]; of the token in its sequence; 0 in padding
	Seq  []int32 // [T]; 0, 1, 2, … in the slot; -1: padding
	Loss []bool  // [T]; the token is to be predicted from those before it in its sequence; never the first of one
}

// packing says which sequences are in which slot.
type packing struct {
	members []int32 // sequences, slot by slot
	starts  []int   // of each slot in members, and the end
}

func (p *packing) slots() int { return max(0, len(p.starts)-1) }

// dice are numbers that depend on the seed and the epoch alone. The permutation is our own for the standard library does not promise to keep its.
type dice struct{ pcg *rand.PCG }

func newDice(seed uint64, epoch int) dice { return dice{rand.NewPCG(seed, uint64(epoch))} }

// below is a number from 0 to below n. Its bias is n / 2^64.
func (d dice) below(n int) int {
	hi, _ := bits.Mul64(d.pcg.Uint64(), uint64(n))
	return int(hi)
}

// perm is a permutation of n numbers.
func (d dice) perm(n int) []int32 {
	p := inOrder(n)
	for i := n - 1; i > 0; i-- {
		j := d.below(i + 1)
		p[i], p[j] = p[j], p[i]
	}
	return p
}

func inOrder(n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(i)
	}
	return p
}

// pack puts sequences into slots in an order: each into the first slot that has room.
func (s *Set) pack(l *list, order []int32) packing {
	slotOf := inOrder(len(order)) // of order[i]
	n := len(order)
	if s.opt.Pack {
		n = 0
		r := newRooms(len(order), s.opt.Tokens)
		for i, seq := range order {
			slotOf[i] = int32(r.take(len(l.at(int(seq)))))
			n = max(n, int(slotOf[i])+1)
		}
	}
	return group(order, slotOf, n)
}

// group makes a packing of n slots from the slot of each sequence.
func group(order, slotOf []int32, n int) packing {
	p := packing{make([]int32, len(order)), make([]int, n+1)}
	for _, k := range slotOf {
		p.starts[k+1]++
	}
	for k := range n {
		p.starts[k+1] += p.starts[k]
	}
	at := append([]int(nil), p.starts...)
	for i, k := range slotOf {
		p.members[at[k]] = order[i]
		at[k]++
	}
	return p
}

// rooms are the free tokens of slots as a tree of maxima: the first slot with room is found in log n steps.
type rooms struct {
	most []int32 // node 1 is the root, 2i and 2i+1 are below i
	n    int     // leaves, a power of two
}

func newRooms(slots, tokens int) rooms {
	n := 1 << bits.Len(uint(max(slots, 1)-1))
	r := rooms{make([]int32, 2*n), n}
	for i := range r.most {
		r.most[i] = int32(tokens)
	}
	return r
}

// take takes so many tokens of the first slot that has them. There are as many slots as sequences: one has.
func (r *rooms) take(tokens int) int {
	i := 1
	for i < r.n {
		if i *= 2; int(r.most[i]) < tokens {
			i++
		}
	}
	slot := i - r.n
	r.most[i] -= int32(tokens)
	for i /= 2; i > 0; i /= 2 {
		r.most[i] = max(r.most[2*i], r.most[2*i+1])
	}
	return slot
}

// packed is the packing of an epoch: sequences in an order of dice. Of first-fit the last slots are those that nothing small was left
// for; so the slots are dealt in an order of dice too.
func (s *Set) packed(epoch int) packing {
	d := newDice(s.opt.Seed, epoch)
	p := s.pack(&s.train, d.perm(len(s.train.ends)))
	if !s.opt.Pack {
		return p
	}
	q := packing{make([]int32, 0, len(p.members)), make([]int, 1, len(p.starts))}
	for _, k := range d.perm(p.slots()) {
		q.members = append(q.members, p.members[p.starts[k]:p.starts[k+1]]...)
		q.starts = append(q.starts, len(q.members))
	}
	return q
}

// epochPacking is packed, remembered. s.mu is held.
func (s *Set) epochPacking(epoch int) *packing {
	if s.epoch != epoch {
		s.recent, s.epoch = s.packed(epoch), epoch
	}
	return &s.recent
}

// upTo adds epochs until what is asked for is known. s.mu is held.
func (s *Set) upTo(known func() bool) {
	for !known() {
		e := len(s.ends)
		size := len(s.train.ends)
		if s.opt.Pack {
			size = s.epochPacking(e).slots()
		}
		s.ends = append(s.ends, s.before(e)+size)
	}
}

// before is the number of slots before an epoch.
func (s *Set) before(epoch int) int {
	if epoch == 0 {
		return 0
	}
	return s.ends[epoch-1]
}

// Slots is the number of slots of an epoch, counted from 0.
func (s *Set) Slots(epoch int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upTo(func() bool { return len(s.ends) > epoch })
	return s.ends[epoch] - s.before(epoch)
}

// Place is the epoch that slot n of the run is of, and the slot's number there; all counted from 0.
func (s *Set) Place(n int) (epoch, slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place(n)
}

func (s *Set) place(n int) (epoch, slot int) {
	if n < 0 {
		panic(fmt.Sprintf("dataset: slot %d", n))
	}
	s.upTo(func() bool { return len(s.ends) > 0 && s.ends[len(s.ends)-1] > n })
	epoch = sort.SearchInts(s.ends, n+1)
	return epoch, n - s.before(epoch)
}

// Slot is slot n of the run, counted from 0: a function of the data, the options and n alone. The first slot of an epoch packs it: some 100 ns for
// each sequence.
func (s *Set) Slot(n int) Slot {
	s.mu.Lock()
	epoch, k := s.place(n)
	p := *s.epochPacking(epoch)
	s.mu.Unlock()
	return s.fill(&s.train, &p, k)
}

// ValSlot is slot i of what is held out. Its order is that of the files.
func (s *Set) ValSlot(i int) Slot { return s.fill(&s.val, &s.valPack, i) }

// Padding is a slot of padding alone.
func (s *Set) Padding() Slot { return s.fill(&s.train, &packing{starts: []int{0, 0}}, 0) }

// fill makes slot k of a packing.
func (s *Set) fill(l *list, p *packing, k int) Slot {
	T := s.opt.Tokens
	out := Slot{make([]int32, T), make([]int32, T), make([]int32, T), make([]bool, T)}
	i := 0
	for seq, member := range p.members[p.starts[k]:p.starts[k+1]] {
		for pos, w := range l.at(int(member)) {
			out.IDs[i], out.Pos[i], out.Seq[i], out.Loss[i] = token(w), int32(pos), int32(seq), w < 0
			i++
		}
	}
	for ; i < T; i++ {
		out.Seq[i] = -1
	}
	return out
}

// sum makes the hash of what slots depend on. The 1 is the version of the order.
func (s *Set) sum() {
	h := sha256.New()
	fmt.Fprintf(h, "ck dataset 1 %d %v %d\n", s.opt.Tokens, s.opt.Pack, s.opt.Seed)
	for _, l := range []*list{&s.train, &s.val} {
		fmt.Fprintf(h, "%d %d\n", len(l.ends), len(l.words))
		_ = l.write(h) // hashes take all
	}
	h.Sum(s.hash[:0])
}

// write writes the ends as int64 and the words as int32, little-endian.
func (l *list) write(w io.Writer) error {
	b := make([]byte, 0, 1<<16)
	flush := func(least int) (err error) {
		if len(b) > least {
			_, err = w.Write(b)
			b = b[:0]
		}
		return err
	}
	for _, e := range l.ends {
		b = binary.LittleEndian.AppendUint64(b, uint64(e))
		if err := flush(1<<16 - 8); err != nil {
			return err
		}
	}
	for _, x := range l.words {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
		if err := flush(1<<16 - 8); err != nil {
			return err
		}
	}
	return flush(0)
}
