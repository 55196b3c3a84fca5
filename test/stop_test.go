package test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/quant"
)

// A Forward whose context ends within a walk returns before the walk's end and leaves the sequence as it was: what follows has the bits
// that it has when nothing was stopped, panels that were packed meanwhile included.
func TestStoppedForward(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for i, typ := range []quant.Type{quant.Q8_0, quant.Q4_K, quant.F16} {
		path := smallModel(t, typ, 3, 256, 512, 1000)
		m, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		rng := rand.New(rand.NewPCG(uint64(i), 3))
		ids := make([]int32, 150)
		for i := range ids {
			ids[i] = rng.Int32N(1000)
		}
		want := logits(t, m, engine.Options{Threads: 1}, ids)

		e, err := engine.Open(m, engine.Options{Threads: 2, UBatch: 64})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		var left, after atomic.Int64 // items until the end of the context, and since
		var cancel context.CancelFunc
		e.SetHook(func(int, int) {
			switch n := left.Add(-1); {
			case n == 0:
				cancel()
			case n < 0:
				after.Add(1)
			}
		})
		seq, stopped := e.NewSeq(), 0
		for at := 0; at < len(ids); {
			n := min(1+rng.IntN(100), len(ids)-at)
			for range rounds {
				var ctx context.Context
				ctx, cancel = context.WithCancel(context.Background())
				left.Store(1 + rng.Int64N(200))
				after.Store(0)
				err := e.Forward(ctx, seq, ids[at:at+n], engine.Last, func(int, []float32) error { return nil })
				switch {
				case errors.Is(err, context.Canceled):
					stopped++
				case err != nil:
					t.Fatal(err)
				}
				if err != nil && e.Len(seq) != at {
					t.Fatalf("%d positions after a stop, %d before", e.Len(seq), at)
				}
				e.Truncate(seq, at)
				cancel()
			}
			left.Store(0)
			err := e.Forward(context.Background(), seq, ids[at:at+n], engine.All, func(i int, l []float32) error {
				return sameBits(want[at+i:at+i+1], [][]float32{l})
			})
			if err != nil {
				t.Fatalf("%v, rows from %d: %v", typ, at, err)
			}
			at += n
		}
		if stopped == 0 {
			t.Errorf("%v: nothing was stopped", typ)
		}
	}
}

// The walk itself ends, not the prompt after it: of one walk only a few items are begun after the context's end.
func TestForwardStopsWithinAWalk(t *testing.T) {
	m, err := gguf.Open(smallModel(t, quant.Q8_0, 24, 128, 256, 500))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e, err := engine.Open(m, engine.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var items atomic.Int64
	e.SetHook(func(w, i int) {
		if items.Add(1) == 20 {
			cancel()
			time.Sleep(100 * time.Millisecond) // what raises the flag is a goroutine; the other worker waits at a barrier soon
		}
	})
	ids := make([]int32, 400)
	err = e.Forward(ctx, e.NewSeq(), ids, engine.Last, func(int, []float32) error { return nil })
	if n := items.Load(); !errors.Is(err, context.Canceled) || n > 200 {
		t.Errorf("%v after %d items", err, n)
	}
	items.Store(100)
	if err := e.Forward(context.Background(), e.NewSeq(), ids, engine.Last, func(int, []float32) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if n := items.Load() - 100; n < 600 {
		t.Errorf("the whole walk has only %d items: the test shows nothing", n)
	}
}
