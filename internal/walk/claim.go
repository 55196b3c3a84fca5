package walk

import (
	"sync/atomic"

	"ck/internal/kernel"
	"ck/internal/plan"
)

// claims are what nobody has begun of a worker's part of a shared item: panels [lo, hi) of the item with number gen. A word with another
// number means that the part is whole. Shared items have a barrier between them, so no worker looks at the word for another item. A worker may
// come late, or find its part done: nothing to prepare.
type claims struct {
	v atomic.Uint64 // gen, lo, hi: 22, 21, 21 bits
	_ [120]byte
}

const (
	claimBits = 21
	claimMask = 1<<claimBits - 1
)

// take claims panels of item gen of a part that began as [lo, hi): from its begin for its owner, from its end for others, a quarter of
// the rest in multiples of grain. It returns an empty range when nothing is left.
func (s *claims) take(gen uint64, lo, hi, grain int, owner bool) (int, int) {
	gen &= 1<<(64-2*claimBits) - 1
	for {
		v := s.v.Load()
		a, b := lo, hi
		if v>>(2*claimBits) == gen {
			a, b = int(v>>claimBits&claimMask), int(v&claimMask)
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
		if s.v.CompareAndSwap(v, gen<<(2*claimBits)|uint64(a)<<claimBits|uint64(b)) {
			return from, to
		}
	}
}

// claimBytes is the least that is claimed at once, in bytes of weights times rows: a claim costs little beside that.
const claimBytes = 64 << 10

// ClaimGrain is the number of panels of a matrix [_, cols] that is claimed at once for so many rows: whole tiles of the kernels.
func ClaimGrain(f *kernel.Format, cols, rows int) int {
	tile := f.Tile(rows)
	return max(1, claimBytes/(rows*f.PanelRows*f.Type.RowBytes(cols)*tile)) * tile
}

// shared does item i with what worker w claims of it: of its own part first, then of those of workers 1, 2, 4, ... further on of its home: to look at
// every word, each in a cache line that another core wrote, would cost all workers of a large machine more than the rest of the step.
// Each part still has as many helpers as there are powers of two. What belongs to another home lies in far memory.
func (x *Walker) shared(i int, wk *Worker, w int) {
	it := &x.Plan.Items[i]
	rows := wk.Rows(it.Space)
	if rows == 0 {
		return
	}
	s := wk.Slot(it.W[0])
	if it.Space.Used > 0 {
		rows = 1 // panels of each expert are read in one piece: they are not to be short
	}
	base := s.R0 % s.Format.PanelRows // of the columns where panels begin
	pr, grain := s.Format.PanelRows, ClaimGrain(s.Format, s.Cols, rows)
	gen := x.runs*uint64(len(x.Plan.Items)) + uint64(i)
	_, w0, w1 := x.Plan.Homes.Of(w, x.Plan.Workers)
	x.look(i, wk, w)
	for n := 0; n < w1-w0; n = max(1, 2*n) {
		of := w0 + (w-w0+n)%(w1-w0)
		wk.part = x.Plan.Part(wk.part[:0], it, it.Out[0], of, x.crew(wk.member))
		for _, r := range wk.part {
			lo, hi := (r.C0-base)/pr, (r.C1-base+pr-1)/pr
			for {
				from, to := x.claims[of].take(gen, lo, hi, grain, n == 0)
				if from == to {
					break
				}
				if wk.upTo = 0; n == 0 {
					wk.upTo = r.C1
				}
				x.routines[i](wk, it, plan.Rect{R0: r.R0, R1: r.R1, C0: base + from*pr, C1: min(base+to*pr, r.C1)})
			}
		}
	}
}
