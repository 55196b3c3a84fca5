package walk

import (
	"sync/atomic"

	"ck/internal/plan"
)

// A share is what nobody has begun of a worker's part of a shared item: units [lo, hi) of the item with number gen. A word with another
// number means that the part is whole. Shared items have a barrier between them, so no worker looks at the word for another item, and
// a worker that comes late, or not before the others have done its part, needs no preparation.
type share struct {
	v atomic.Uint64 // gen, lo, hi: 22, 21, 21 bits
	_ [120]byte
}

const (
	shareBits = 21
	shareMask = 1<<shareBits - 1
)

// take claims units of item gen of a part that began as [lo, hi): from its begin for its owner, from its end for others, a quarter of
// the rest in multiples of grain. It returns an empty range when nothing is left.
func (s *share) take(gen uint64, lo, hi, grain int, owner bool) (int, int) {
	gen &= 1<<(64-2*shareBits) - 1
	for {
		v := s.v.Load()
		a, b := lo, hi
		if v>>(2*shareBits) == gen {
			a, b = int(v>>shareBits&shareMask), int(v&shareMask)
		}
		if a >= b {
			return 0, 0
		}
		n := min(max(1, (b-a)/4/grain)*grain, b-a)
		from, to := a, a+n
		if owner {
			a += n
		} else {
			from, to = b-n, b
			b -= n
		}
		if s.v.CompareAndSwap(v, gen<<(2*shareBits)|uint64(a)<<shareBits|uint64(b)) {
			return from, to
		}
	}
}

// shareGrain is the least that is claimed at once, in bytes of weights times rows: a claim costs little beside that.
const shareGrain = 64 << 10

// shared does item i with what worker w claims of it: of its own part first, then of those of workers 1, 2, 4, ... further on: to look at
// every word, each in a cache line that another core wrote, would cost all workers of a large machine more than the rest of the step.
// Each part still has as many helpers as there are powers of two.
// Units are panels.
func (x *Walker) shared(i int, wk *worker, w int) {
	it := &x.Plan.Items[i]
	rows := x.rows(it.Picked)
	if rows == 0 {
		return
	}
	s := x.w.Slots[it.W[0]]
	pr, width, unit := s.Format.PanelRows, x.Plan.Bufs[it.Out[0].Buf].Width, it.Out[0].Unit
	tile := s.Format.Tile(rows)
	grain := max(1, shareGrain/(rows*pr*s.Format.Type.RowBytes(s.Cols)*tile)) * tile
	gen := x.runs*uint64(len(x.Plan.Items)) + uint64(i)
	for n := 0; n < x.Plan.Workers; n = max(1, 2*n) {
		of := (w + n) % x.Plan.Workers
		lo, hi := plan.Share(it.Cut.N, of, x.Plan.Workers)
		lo, hi = lo*unit/pr, (min(hi*unit, width)+pr-1)/pr
		for {
			from, to := x.shares[of].take(gen, lo, hi, grain, n == 0)
			if from == to {
				break
			}
			x.matmul(it, wk, from*pr, min(to*pr, width))
		}
	}
}
