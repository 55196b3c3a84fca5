package train

// A Sum adds the gradients of walks up: by the tree of their numbers, as the leaves within a walk. While it has n walks it keeps at most log2(n) sums that
// wait.
type Sum struct {
	net   *Net
	waits [][][]float32 // by level: of 2^level walks each, by term; nil: none
	spare [][][]float32
	walks int
	of    int         // walks that there will be
	last  [][]float32 // of all walks, where their number is a power of two
	whole [][]float32 // by parameter
}

// NewSum makes a sum for the gradients of a net.
func NewSum(n *Net) *Sum { return &Sum{net: n} }

// Begin begins a sum of so many walks, a power of two.
func (s *Sum) Begin(walks int) {
	for i, w := range s.waits {
		if w != nil {
			s.spare = append(s.spare, w)
		}
		s.waits[i] = nil
	}
	s.walks, s.of, s.last = 0, walks, nil
}

// Add adds the gradients of the net's last walk.
func (s *Sum) Add() {
	terms := s.net.gradients()
	if s.of == 1 { // they stay where they are
		s.last = terms
		return
	}
	kept := s.room()
	s.each(terms, func(i, lo, hi int) { copy(kept[i][lo:hi], terms[i][lo:hi]) })
	level := 0
	for n := s.walks; n&1 == 1; n, level = n>>1, level+1 {
		early := s.waits[level]
		s.each(kept, func(i, lo, hi int) { s.net.opt.Table.Add(early[i][lo:hi], early[i][lo:hi], kept[i][lo:hi]) })
		s.spare = append(s.spare, kept)
		kept, s.waits[level] = early, nil
	}
	for len(s.waits) <= level {
		s.waits = append(s.waits, nil)
	}
	s.waits[level], s.last = kept, kept
	s.walks++
}

// Gradients are those of all walks together, by parameter. Terms are added in their order.
func (s *Sum) Gradients() [][]float32 {
	s.whole = s.whole[:0]
	at := 0
	for _, p := range s.net.Params {
		first := s.last[at]
		for range p.gradients[1:] {
			at++
			more := s.last[at]
			s.each([][]float32{first}, func(_, lo, hi int) { s.net.opt.Table.Add(first[lo:hi], first[lo:hi], more[lo:hi]) })
		}
		at++
		s.whole = append(s.whole, first)
	}
	return s.whole
}

// room is memory for terms.
func (s *Sum) room() [][]float32 {
	if n := len(s.spare); n > 0 {
		r := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return r
	}
	var r [][]float32
	for _, p := range s.net.Params {
		for range p.gradients {
			r = append(r, make([]float32, len(p.Value)))
		}
	}
	return r
}

func (s *Sum) each(of [][]float32, f func(i, lo, hi int)) { s.net.each(of, f) }

// part is how many values are taken together: sums over them do not depend on workers.
const part = 4096

// each calls f with parts of lists of numbers, each of which one worker gets: whole ones, and rests.
func (n *Net) each(of [][]float32, f func(i, lo, hi int)) {
	size := n.opt.Team.Size()
	_ = n.opt.Team.Run(func(w int) { // f computes; it cannot fail
		unit := 0
		for i := range of {
			for lo := 0; lo < len(of[i]); lo += part {
				if unit%size == w {
					f(i, lo, min(lo+part, len(of[i])))
				}
				unit++
			}
		}
	})
}
