package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"ck/internal/graph"
	"ck/internal/quant"
	"ck/internal/walk"
)

// TestTap looks at hidden states and at the input of a matmul through Forward: every position once, in order, the same bits whether the prompt
// is cut or not and whether the walk goes on or stops there; logits keep their bits. Without a tap nobody is called any more.
func TestTap(t *testing.T) {
	ids := make([]int32, 50)
	for i := range ids {
		ids[i] = int32(11*i%500 + 1)
	}
	var want [2][]uint32 // by value
	var logits []uint32
	for _, opt := range []Options{{Threads: 1}, {Threads: 2, UBatch: 20}, {Threads: 2, UBatch: 1}} {
		e := open(t, tiny(t, quant.Q8_0), opt)
		var values []graph.ValueID
		for _, name := range []string{"blk.0.ffn_norm", "blk.1.attn_residual"} {
			v, ok := e.Graph.Find(name)
			if !ok {
				t.Fatalf("no value %s among %v", name, e.Graph.Values)
			}
			values = append(values, v)
		}
		for _, stop := range []bool{false, true} {
			var seen [2][]uint32
			next := int32(0)
			e.SetTap(&Tap{Values: values, Stop: stop, See: func(b *walk.Batch, view func(graph.ValueID) walk.View) error {
				for _, p := range b.Pos {
					if p != next {
						t.Errorf("position %d, expected %d", p, next)
					}
					next++
				}
				for i, v := range values {
					x := view(v)
					if x.Rows != len(b.IDs) || x.Width != 256 {
						t.Errorf("a view of %d x %d for %d rows", x.Rows, x.Width, len(b.IDs))
					}
					for _, f := range x.Data {
						seen[i] = append(seen[i], math.Float32bits(f))
					}
				}
				return nil
			}})
			calls, got := 0, []uint32(nil)
			err := e.Forward(context.Background(), e.NewSeq(), ids, All, func(_ int, l []float32) error {
				calls++
				for _, f := range l {
					got = append(got, math.Float32bits(f))
				}
				return nil
			})
			if err != nil || next != 50 || calls != map[bool]int{false: 50, true: 0}[stop] {
				t.Errorf("%+v, stop %v: %v, %d positions seen, logits of %d rows", opt, stop, err, next, calls)
			}
			if logits == nil {
				want, logits = seen, got
			}
			if !slices.Equal(seen[0], want[0]) || !slices.Equal(seen[1], want[1]) || !stop && !slices.Equal(got, logits) {
				t.Errorf("%+v, stop %v: other bits", opt, stop)
			}
		}
		enough := errors.New("enough")
		e.SetTap(&Tap{Values: values, See: func(*walk.Batch, func(graph.ValueID) walk.View) error { return enough }})
		seq := e.NewSeq()
		if err := e.Forward(context.Background(), seq, ids, Last, none); !errors.Is(err, enough) || e.Len(seq) != 0 {
			t.Errorf("%v, %d positions", err, e.Len(seq))
		}
		e.SetTap(nil)
		if err := e.Forward(context.Background(), e.NewSeq(), ids, Last, none); err != nil {
			t.Error(err)
		}
	}
}
