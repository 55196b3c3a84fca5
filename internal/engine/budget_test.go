package engine

import (
	"bufio"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/topo"
	"ck/internal/walk"
)

// small is a model of 4 layers, 3.3 MiB of panels, 1 KiB of cache a position.
func small(t *testing.T) *gguf.Model {
	t.Helper()
	s := synth.Shape{Arch: "llama", Layers: 4, Hidden: 256, FFN: 512, Heads: 4, KVHeads: 1, HeadDim: 64, Vocab: 4000, Context: 1 << 20, RopeBase: 1e4}
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	if err := errors.Join(synth.Write(w, "small", s, quant.Q8_0, 3), w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	m, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func open(t *testing.T, m *gguf.Model, opt Options) *Engine {
	t.Helper()
	e, err := Open(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// logits are those of 40 rows, over and over until all panels are packed that there is room for.
func logits(t *testing.T, e *Engine) []uint32 {
	t.Helper()
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(7*i + 1)
	}
	var bits []uint32
	for range 500 {
		seq, next := e.NewSeq(), 0
		bits = bits[:0]
		err := e.Forward(context.Background(), seq, ids, All, func(i int, row []float32) error {
			if i != next {
				t.Fatalf("row %d, expected %d", i, next)
			}
			next++
			for _, x := range row {
				bits = append(bits, math.Float32bits(x))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Drop(seq)
		if e.PackedBytes() >= e.mem.kept*9/10 {
			break
		}
	}
	return bits
}

// note is the first note that begins so.
func note(e *Engine, begin string) string {
	i := slices.IndexFunc(e.Notes, func(s string) bool { return strings.HasPrefix(s, begin) })
	if i < 0 {
		return ""
	}
	return e.Notes[i]
}

// Panels get what the cache leaves; what has none computes the same bits from the file.
func TestPanelsThatFit(t *testing.T) {
	m := small(t)
	full := open(t, m, Options{Threads: 2})
	want, panels := logits(t, full), full.mem.panels
	if !full.Packed() || full.PackedBytes() < panels*9/10 {
		t.Fatalf("without a limit %d of %d bytes are packed", full.PackedBytes(), panels)
	}
	buffers := open(t, m, Options{Threads: 2, MemLimit: 2 << 20, Context: 600, UBatch: 2 * picksMin}).mem.buffers
	for _, part := range []int64{0, 3, 6, 9} { // tenths
		limit := panels*part/10 + 650<<10 + buffers
		e := open(t, m, Options{Threads: 2, MemLimit: limit, Context: 600, UBatch: 2 * picksMin})
		if got := logits(t, e); !slices.Equal(got, want) {
			t.Errorf("%d tenths of the panels: other bits", part)
		}
		if n := e.PackedBytes(); n < e.mem.kept*9/10 || n > e.mem.kept || e.mem.kept > panels*part/10+100<<10 || e.mem.kept < panels*part/10-1200<<10 || e.Packed() {
			t.Errorf("%d tenths of %d bytes: %d are packed (%s)", part, panels, n, note(e, "weights"))
		}
		if e.WeightBytes() == 0 || (part > 0) != strings.Contains(note(e, "weights"), "matrices, ") {
			t.Errorf("%d tenths: %q", part, note(e, "weights"))
		}
	}
}

// The cache has what it was promised, and no more than there is; what cannot fit is said before anything is taken.
func TestCacheThatFits(t *testing.T) {
	m := small(t)
	e := open(t, m, Options{Threads: 1, MemLimit: 4 << 20, Context: 2000})
	seq := e.NewSeq()
	err := e.Forward(context.Background(), seq, make([]int32, 2000), None, nil)
	if err != nil {
		t.Errorf("2000 positions were promised: %v", err)
	}
	_, err = Open(m, Options{Threads: 1, MemLimit: 4 << 20, Context: 8000})
	var me *MemoryError
	if !errors.As(err, &me) || !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "--mem-limit 4.0 MiB: buffers of walks take 0.3 MiB, the KV cache at least 7.8 MiB; raise it to 8.1 MiB, use ") {
		t.Errorf("8 MiB of cache in a limit of 4: %v", err)
	}
	if _, err = Open(m, Options{Threads: 1, MemLimit: 1000}); !errors.As(err, &me) {
		t.Errorf("a limit below one block of the cache: %v", err)
	}
}

// --mem-limit bounds panels, cache and buffers together, whatever is asked for; the bits stay.
func TestLimitBoundsAll(t *testing.T) {
	m := small(t)
	want := logits(t, open(t, m, Options{Threads: 2}))
	for _, limit := range []int64{1 << 20, 2 << 20, 4 << 20, 8 << 20} {
		e := open(t, m, Options{Threads: 2, MemLimit: limit})
		if !slices.Equal(logits(t, e), want) {
			t.Errorf("limit of %s: other bits", mib(limit))
		}
		seq := e.NewSeq() // until the cache is full
		for err := error(nil); err == nil && e.Len(seq) < 10_000; {
			err = e.Forward(context.Background(), seq, make([]int32, 512), Last, func(int, []float32) error { return nil })
		}
		for _, c := range []plan.Class{plan.One, plan.Few, plan.Many} {
			p, err := e.plan(c, e.picks, e.tableFormat(matrices(e)))
			if err != nil || int64(p.Arena) > e.BufferBytes() {
				t.Errorf("limit of %s: class %v has buffers of %d bytes, accounted for are %d; %v", mib(limit), c, p.Arena, e.BufferBytes(), err)
			}
		}
		if n := e.PackedBytes() + e.CacheUsedBytes() + e.BufferBytes(); n > limit || n < limit/2 && limit <= 4<<20 {
			t.Errorf("limit of %s: %s panels, %s cache, %s buffers", mib(limit), mib(e.PackedBytes()), mib(e.CacheUsedBytes()), mib(e.BufferBytes()))
		}
	}
}

// matrices are the weights that have slots.
func matrices(e *Engine) []bool {
	m := make([]bool, len(e.weights.Slots))
	for i, s := range e.weights.Slots {
		m[i] = s != nil
	}
	return m
}

// In a small cgroup prompts go in smaller walks and logits in fewer rows, the account keeps to the limit, and the bits stay.
func TestSmallMachine(t *testing.T) {
	m := small(t)
	want := logits(t, open(t, m, Options{Threads: 1}))
	for _, left := range []int64{34 << 20, 30 << 20, 27 << 20, 25 << 20, 20 << 20, 0} {
		e := open(t, m, Options{Threads: 1, UBatch: 2048})
		e.Machine.MemTotal, e.Machine.MemFree = 8<<30, 4<<30
		e.Machine.Limits = []topo.MemLimit{{Group: "/a", Max: 64 << 20, Left: left}}
		e.Notes, e.walkers = nil, map[form]*walk.Walker{}
		err := e.load()
		var me *MemoryError
		if left <= 25<<20 {
			if !errors.As(err, &me) || !strings.Contains(err.Error(), "left of the limit of 64 MiB of cgroup /a") {
				t.Errorf("%d MiB left: %v", left>>20, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%d MiB left: %v", left>>20, err)
			continue
		}
		p, err := e.buildPlan(plan.Many)
		if err != nil {
			t.Fatal(err)
		}
		buffers := int64(p.Arena) - 4*int64(e.Graph.Vocab)*int64(p.MaxPicks-e.picks)
		if sum := e.mem.kept + e.mem.cache + buffers + programBytes; sum > left || e.opt.UBatch >= 2048 || note(e, "prompts go in walks of") == "" {
			t.Errorf("%d MiB left, %d MiB taken: %+v, walks of %d rows, %d of logits", left>>20, sum>>20, e.mem, e.opt.UBatch, e.picks)
		}
		if !slices.Equal(logits(t, e), want) {
			t.Errorf("%d MiB left: other bits", left>>20)
		}
		t.Logf("%d MiB left: %q", left>>20, e.Notes)
	}
}

// Workers beyond those that the quota pays for do not spin (package team holds what Quota means).
func TestQuotaReachesTheTeam(t *testing.T) {
	for _, c := range []struct {
		quota   float64
		granted int
	}{{0.5, 1}, {1.5, 1}, {2.5, 2}, {0, 4}} {
		m := topo.Machine{Affinity: []int{0, 1, 2, 3}, Quota: topo.Quota{CPUs: c.quota}}
		cpus, _ := m.Workers()
		e := &Engine{granted: len(cpus), layout: plan.NewLayout(&graph.Graph{}, plan.OneHome)}
		if got := e.teamOptions(true); got.Quota != c.granted || !got.Pin {
			t.Errorf("a quota of %v CPUs: %+v, expected %d that spin", c.quota, got, c.granted)
		}
	}
	if e := open(t, small(t), Options{Threads: 3}); e.granted > runtime.NumCPU() || e.teamOptions(false).Quota != e.granted {
		t.Errorf("%d granted", e.granted)
	}
}
