package bench

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/plan"
)

// nobody is told what happens.
var nobody = Events{Info: func(string) {}, Warn: func(string) {}, Repetition: func() {}}

// builtinBench measures the built-in model with one worker and no roofs.
func builtinBench(t *testing.T) *Runner {
	t.Helper()
	m, err := generate.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	facts, err := FactsOf(m)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(m.Weights, engine.Options{Threads: 1, UBatch: engine.UBatchDefault})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	b, err := New(context.Background(), facts, e, Settings{NoRoof: true, Reps: 3, UBatch: engine.UBatchDefault}, nobody)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// Where little memory is left, there are no roofs, and a note says so.
func TestNoRoomForRoofs(t *testing.T) {
	m, err := generate.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e, err := engine.Open(m.Weights, engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.Machine.MemTotal, e.Machine.MemFree = 1<<30, 30<<20
	b, err := New(t.Context(), Facts{}, e, Settings{UBatch: 512}, nobody)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.roofs != nil || !strings.Contains(strings.Join(b.notes, "\n"), "the roofs are not measured") {
		t.Errorf("roofs %v, notes %q", b.roofs, b.notes)
	}
}

// stories260K has five layers of width 64, eight heads, four KV heads of 8, a feed-forward width of 172, 512 tokens; all in F16.
const (
	layerWeights = 64*64 + 2*32*64 + 64*64 + 3*172*64
	headWeights  = 512 * 64
)

func TestWork(t *testing.T) {
	b := builtinBench(t)
	w, err := b.work(Test{Gen: 10, Rows: 1, Depth: 5})
	if err != nil {
		t.Fatal(err)
	}
	if want := 10 * 2.0 * (5*layerWeights + headWeights); w.ops != want || w.kind != "f32" {
		t.Errorf("ten tokens take %g operations of %s, want %g", w.ops, w.kind, want)
	}
	// Panels have 64 Rows: 172 become 192, 32 become 64. Keys and values: 5 layers of 2*4*8 halves at 10.5 positions on average.
	panels := 2.0 * (5*(64*64+2*64*64+64*64+2*192*64+64*172) + headWeights)
	if want := 10 * (panels + 10.5*5*2*4*8*2); math.Abs(w.bytes-want) > 0.05*want {
		t.Errorf("ten tokens read %g bytes, want about %g", w.bytes, want)
	}
	p, err := b.work(Test{Prompt: 100, Rows: 1})
	if err != nil {
		t.Fatal(err)
	}
	// Only one row of the prompt is wanted: nothing behind the last attention is computed for the others, as far as the plan knows.
	most, least := 2.0*(100*5*layerWeights+headWeights), 2.0*(100*4*layerWeights+headWeights)
	if p.ops > most || p.ops < least {
		t.Errorf("a prompt takes %g operations, want %g to %g", p.ops, least, most)
	}
	if s := w.least(w.bytes, 1e30); math.Abs(s-1) > 1e-9 { // all bytes in a second
		t.Errorf("%g s under the read roof", s)
	}
	if s := w.least(1e30, w.ops); math.Abs(s-1) > 1e-9 {
		t.Errorf("%g s under the peak", s)
	}
}

func TestMeasure(t *testing.T) {
	b := builtinBench(t)
	for _, x := range []Test{{Prompt: 20, Rows: 1}, {Gen: 3, Rows: 4, Depth: 6}, {Prompt: 8, Gen: 2, Rows: 1}} {
		done := 0
		b.ev.Repetition = func() { done++ }
		r, err := b.Measure(x)
		if err != nil {
			t.Fatal(err)
		}
		if done != 3 || len(r.Samples) != 3 || r.TS.N != 3 || r.TS.Median <= 0 || r.Test != x.String() || r.GBps <= 0 || r.GOPs <= 0 {
			t.Errorf("%s: %+v", x, r)
		}
		for _, s := range r.Samples {
			if want := float64(x.Tokens()) / (float64(s.Ns) / 1e9); math.Abs(s.TS-want) > 1e-6*want || s.Share != 0 {
				t.Errorf("%s: %g tokens/s in %d ns", x, s.TS, s.Ns)
			}
		}
	}
}

// Variants run in turn with the engine, each as often as it, and leave its sequences as they were.
func TestMeasureVariants(t *testing.T) {
	b := builtinBench(t)
	if _, err := b.Measure(Test{Gen: 2, Rows: 1}); err != nil {
		t.Fatal(err)
	}
	off := []engine.Ablation{}
	for _, name := range []string{"prefetch", "fuse", "huge", "pack", "all"} {
		a, ok := engine.ParseAblation(name)
		if !ok {
			t.Fatal(name)
		}
		off = append(off, a)
	}
	if _, err := b.vary(off); err != nil {
		t.Fatal(err)
	}
	for _, x := range []Test{{Prompt: 20, Rows: 1}, {Gen: 3, Rows: 2, Depth: 6}} {
		done := 0
		b.ev.Repetition = func() { done++ }
		rs, err := b.MeasureAll(x)
		if err != nil {
			t.Fatal(err)
		}
		if len(rs) != 1+len(b.variants) || done != 3*len(rs) || len(b.variants) < 4 {
			t.Fatalf("%s: %d results, %d variants, %d repetitions", x, len(rs), len(b.variants), done)
		}
		for i, r := range rs {
			if r.Test != x.String() || len(r.Samples) != 3 || (r.Worth == nil) != (i == 0) || i > 0 && r.Ablate != b.variants[i-1].without.String() {
				t.Errorf("%s %s: %+v", x, r.Ablate, r)
			}
			if packed := r.Ablate != "pack" && r.Ablate != "all"; r.Packed != packed {
				t.Errorf("%s: packed %v", r.Ablate, r.Packed)
			}
			for j, s := range r.Samples {
				if i == 0 {
					continue
				}
				if want := rs[0].Samples[j].TS / s.TS; s.Worth != want || r.Worth.Lo > s.Worth || s.Worth > r.Worth.Hi {
					t.Errorf("%s %s: repetition %d is worth %g of %g to %g, want %g", x, r.Ablate, j, s.Worth, r.Worth.Lo, r.Worth.Hi, want)
				}
			}
		}
	}
	if n := b.e.CacheUsedBytes(); n != 0 {
		t.Errorf("%d bytes of the cache are in use", n)
	}
}

// The steps' shares add up to all of the time, every matmul has its work, and the folded stacks hold the same nanoseconds.
func TestProfile(t *testing.T) {
	b := builtinBench(t)
	phases, err := b.profilePhases(Test{Prompt: 20, Gen: 4, Rows: 1})
	if err != nil || len(phases) != 2 {
		t.Fatal(len(phases), err)
	}
	for i, x := range phases {
		if want := []int{3, 12}[i]; x.profile.Walks != want {
			t.Errorf("%s: %d walks, want %d", x.phase, x.profile.Walks, want)
		}
		share, ops := 0.0, 0.0
		for _, s := range b.stepRows(x) {
			share += s.Share
			if s.Name != "attn attend" {
				ops += s.Ops
			}
		}
		if math.Abs(share-1) > 1e-9 {
			t.Errorf("%s: shares add up to %g", x.phase, share)
		}
		if want := 2.0 * (5*layerWeights + headWeights); i == 1 && ops != want {
			t.Errorf("%s: %g operations, want %g", x.phase, ops, want)
		}
		var out bytes.Buffer
		if err := x.profile.Fold(&out, "root"); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for line := range strings.Lines(out.String()) {
			at := strings.LastIndexByte(line, ' ')
			var ns int64
			if _, err := fmt.Sscan(line[at+1:], &ns); err != nil || !strings.HasPrefix(line, "root;worker 0;") {
				t.Fatalf("%q: %v", line, err)
			}
			sum += float64(ns)
		}
		steps := 0.0
		for _, s := range x.profile.Steps(x.walk) {
			steps += s.Time * 1e9 * float64(x.profile.Walks)
		}
		if sum <= 0 || math.Abs(sum-steps) > 1e-6*steps {
			t.Errorf("%s: folded %g ns, steps %g", x.phase, sum, steps)
		}
	}
	if b.plans[plan.Many] == nil || b.plans[plan.One] == nil {
		t.Error("plans of both phases")
	}
}
