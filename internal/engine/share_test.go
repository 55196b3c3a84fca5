package engine

import (
	"context"
	"math"
	"slices"
	"testing"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// fillCache takes all of the cache that there is.
func fillCache(t *testing.T, e *Engine) {
	t.Helper()
	seq := e.NewSeq()
	for err := error(nil); err == nil && e.Len(seq) < 10_000; {
		err = e.Forward(context.Background(), seq, make([]int32, 512), None, nil)
	}
}

// Two engines that share a limit take no more of it together than one alone may.
func TestShare(t *testing.T) {
	m := small(t)
	const limit = 6 << 20
	for _, engines := range []int{1, 2, 3} {
		sum := int64(0)
		for range engines {
			e := open(t, m, Options{Threads: 1, MemLimit: limit, Share: engines})
			logits(t, e)
			fillCache(t, e)
			sum += e.PackedBytes() + e.CacheUsedBytes() + e.BufferBytes()
		}
		if sum > limit || sum < limit/2 {
			t.Errorf("%d engines take %s of %s", engines, mib(sum), mib(limit))
		}
	}
}

// What taps keep of a walk is accounted for: within a small limit walks are smaller, values are the same, and when the
// tap has ended walks are as large as before.
func TestTapWithinLimit(t *testing.T) {
	m := small(t)
	ids := make([]int32, 300)
	for i := range ids {
		ids[i] = int32(11*i%3000 + 1)
	}
	var want []uint32
	smaller := 0
	for _, limit := range []int64{0, 4 << 20, 8 << 20, 12 << 20, 16 << 20} {
		e := open(t, m, Options{Threads: 2, MemLimit: limit})
		before := e.ubatch()
		var values []graph.ValueID
		for i, v := range e.Graph.Values {
			if !v.Space.Picked {
				values = append(values, graph.ValueID(i))
			}
		}
		var seen []uint32
		e.SetTap(&Tap{Values: values, Stop: true, See: func(_ *walk.Batch, view func(graph.ValueID) walk.View) error {
			for _, f := range view(values[len(values)/2]).Data {
				seen = append(seen, math.Float32bits(f))
			}
			return nil
		}})
		if err := e.Forward(context.Background(), e.NewSeq(), ids, None, nil); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = seen
		}
		if !slices.Equal(seen, want) {
			t.Errorf("limit of %s: other values", mib(limit))
		}
		fillCache(t, e)
		p, err := e.Plan(plan.Many)
		if err != nil {
			t.Fatal(err)
		}
		tapped := e.ubatch()
		if n := e.PackedBytes() + e.CacheUsedBytes() + int64(p.Arena); limit > 0 && n > limit {
			t.Errorf("limit of %s: %s are taken in walks of %d rows, without a tap of %d", mib(limit), mib(n), tapped, before)
		}
		if tapped < before {
			smaller++
		}
		e.SetTap(nil)
		if e.ubatch() != before {
			t.Errorf("limit of %s: walks of %d rows when the tap has ended, %d before", mib(limit), e.ubatch(), before)
		}
	}
	if smaller == 0 {
		t.Error("no limit makes walks smaller")
	}
}
