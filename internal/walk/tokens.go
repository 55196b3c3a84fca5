package walk

import (
	"fmt"

	"ck/internal/kernel"
)

// Rows of a prompt are dealt to members in chunks of whole blocks of keys: a block has one writer, and no line of it two. There are two chunks a
// member, one from either end: later rows see more keys (zig-zag, as in ring attention: Brandon et al. 2023, arXiv:2311.09431).

// dealRows makes the batches of members.
func (x *Walker) dealRows() error {
	b, members := x.batch, len(x.arenas)
	if x.dealt == nil {
		x.dealt = make([]Batch, members)
	}
	x.starts = Starts(x.starts[:0], b.Pos, members)
	for m := range x.dealt {
		d := &x.dealt[m]
		d.IDs, d.Pos, d.Seq = d.IDs[:0], d.Pos[:0], d.Seq[:0]
		for _, c := range []int{m, 2*members - 1 - m} {
			lo, hi := x.starts[c], x.starts[c+1]
			d.IDs, d.Pos, d.Seq = append(d.IDs, b.IDs[lo:hi]...), append(d.Pos, b.Pos[lo:hi]...), append(d.Seq, b.Seq[lo:hi]...)
		}
	}
	for i := range b.Pos {
		if b.Seq[i] != b.Seq[0] || int(b.Pos[i]) != int(b.Pos[0])+i {
			return fmt.Errorf("internal error: rows that are dealt to members are not of one prompt")
		}
	}
	return nil
}

// Starts appends where the chunks of rows with positions pos begin, two for each member, and the end: at multiples of a block of keys, the same number of
// blocks in each as far as that goes. Only the first row may lie within a block.
func Starts(dst []int, pos []int32, members int) []int {
	n := len(pos)
	if n == 0 {
		return append(dst, make([]int, 2*members+1)...)
	}
	first := int(pos[0])
	b0, b1 := first/kernel.BlockKeys, (first+n+kernel.BlockKeys-1)/kernel.BlockKeys
	for c := range 2*members + 1 {
		at := (b0 + (b1-b0)*c/(2*members)) * kernel.BlockKeys
		dst = append(dst, min(max(at-first, 0), n))
	}
	return dst
}

// rowOf is the member that has a row of the batch, and its row there.
func (x *Walker) rowOf(row int) (member, at int) {
	members := len(x.dealt)
	for c := range 2 * members {
		lo, hi := x.starts[c], x.starts[c+1]
		if row < lo || row >= hi {
			continue
		}
		if c < members {
			return c, row - lo
		}
		m := 2*members - 1 - c
		return m, x.starts[m+1] - x.starts[m] + row - lo
	}
	return 0, 0
}
