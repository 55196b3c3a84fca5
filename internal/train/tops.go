package train

import "math/bits"

// tops adds the sums of replicas up: by the tree of their numbers, and the terms of each parameter, part by part.
type tops struct {
	sums  []*Sum
	room  [][][]float32 // by replica and worker: for what is added below the top
	whole [][][]float32 // by replica and parameter: gradients, whole in the parts that the replica owns
}

// newTops makes tops of as many sums as there are replicas.
func newTops(sums []*Sum) *tops {
	t := &tops{sums: sums}
	for _, s := range sums {
		var room [][]float32
		for range s.net.opt.Team.Size() {
			room = append(room, make([]float32, part*2*bits.Len(uint(len(sums)-1))))
		}
		t.room, t.whole = append(t.room, room), append(t.whole, make([][]float32, len(s.net.Params)))
	}
	return t
}

// add makes the gradients that replica r owns, in the memory of its sum. Of the others' it reads the parts that it owns, which nobody else does then.
func (t *tops) add(r int) ([][]float32, error) {
	s := t.sums[r]
	var first []int // term of each parameter
	at := 0
	for i, p := range s.net.Params {
		t.whole[r][i] = s.last[at]
		first = append(first, at)
		at += len(p.gradients)
	}
	return t.whole[r], s.net.shardBy(t.whole[r], r, len(t.sums), func(w, i, lo, hi int) {
		add := s.net.opt.Table.Add
		sum := t.whole[r][i][lo:hi]
		for k := range s.net.Params[i].gradients {
			term := s.last[first[i]+k][lo:hi]
			t.tree(0, len(t.sums), first[i]+k, lo, hi, term, t.room[r][w])
			if k > 0 {
				add(sum, sum, term)
			}
		}
	})
}

// tree writes the sum of a part of a term over replicas [from, to) to dst, and returns it; of one replica it is where it was.
func (t *tops) tree(from, to, term, lo, hi int, dst, room []float32) []float32 {
	if to-from == 1 {
		return t.sums[from].last[term][lo:hi]
	}
	mid := (from + to) / 2
	a := t.tree(from, mid, term, lo, hi, room[:hi-lo], room[min(2*part, len(room)):])
	b := t.tree(mid, to, term, lo, hi, room[part:][:hi-lo], room[min(2*part, len(room)):])
	t.sums[0].net.opt.Table.Add(dst, a, b)
	return dst
}
