package train

import "unsafe"

// A Sum adds the gradients of walks up: by the tree of their numbers, as the leaves within a walk. While it has n walks it keeps at most log2(n) sums that
// wait.
type Sum struct {
	net   *Net
	waits [][][]float32 // by level: of 2^level walks each, by term; nil: none
	spare [][][]float32
	walks int
	of    int         // walks that there will be
	last  [][]float32 // of all walks, where their number is a power of two
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
func (s *Sum) Add() error {
	terms := s.net.gradients()
	if s.of == 1 { // they stay where they are
		s.last = terms
		return nil
	}
	kept, err := s.room()
	if err != nil {
		return err
	}
	if err := s.net.each(terms, func(i, lo, hi int) { copy(kept[i][lo:hi], terms[i][lo:hi]) }); err != nil {
		return err
	}
	level := 0
	for n := s.walks; n&1 == 1; n, level = n>>1, level+1 {
		early := s.waits[level]
		if err := s.net.each(kept, func(i, lo, hi int) { s.net.opt.Table.Add(early[i][lo:hi], early[i][lo:hi], kept[i][lo:hi]) }); err != nil {
			return err
		}
		s.spare = append(s.spare, kept)
		kept, s.waits[level] = early, nil
	}
	for len(s.waits) <= level {
		s.waits = append(s.waits, nil)
	}
	s.waits[level], s.last = kept, kept
	s.walks++
	return nil
}

// Gradients are those of all walks together, by parameter. Terms are added in their order.
func (s *Sum) Gradients() [][]float32 {
	all, _ := newTops([]*Sum{s}).add(0) // it adds: it cannot fail
	return all
}

// room is memory for terms.
func (s *Sum) room() ([][]float32, error) {
	if n := len(s.spare); n > 0 {
		r := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return r, nil
	}
	size := 0
	for _, p := range s.net.Params {
		size += len(p.gradients) * len(p.Value)
	}
	b, err := s.net.take("sums", 4*size)
	if err != nil {
		return nil, err
	}
	all := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), size)
	var r [][]float32
	for _, p := range s.net.Params {
		for range p.gradients {
			r = append(r, all[:len(p.Value):len(p.Value)])
			all = all[len(p.Value):]
		}
	}
	return r, nil
}

// part is how many values are taken together: sums over them do not depend on workers.
const part = 4096

// each calls f with parts of lists of numbers, each of which one worker gets: whole ones, and rests. Errors are panics of f.
func (n *Net) each(of [][]float32, f func(i, lo, hi int)) error { return n.shard(of, 0, 1, f) }

// parts is how many parts lists of numbers have.
func parts(of [][]float32) (count int) {
	for _, v := range of {
		count += (len(v) + part - 1) / part
	}
	return count
}

// shard is each for the parts that replica r of so many owns: an even share of all, those of the first lists first.
func (n *Net) shard(of [][]float32, r, replicas int, f func(i, lo, hi int)) error {
	return n.shardBy(of, r, replicas, func(_, i, lo, hi int) { f(i, lo, hi) })
}

// shardBy is shard, and tells f which worker calls it.
func (n *Net) shardBy(of [][]float32, r, replicas int, f func(w, i, lo, hi int)) error {
	size, all := n.opt.Team.Size(), parts(of)
	from, to := all*r/replicas, all*(r+1)/replicas
	return n.opt.Team.Run(func(w int) {
		unit := 0
		for i := range of {
			for lo := 0; lo < len(of[i]); lo += part {
				if unit >= from && unit < to && (unit-from)%size == w {
					f(w, i, lo, min(lo+part, len(of[i])))
				}
				unit++
			}
		}
	})
}
