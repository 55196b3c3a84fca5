package measure

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ck/asm/roof"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/team"
	"ck/internal/topo"
)

func teamOf(t *testing.T, n int) *team.Team {
	t.Helper()
	tm, err := team.New(make([]int, n), team.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tm.Close)
	return tm
}

func TestLevels(t *testing.T) {
	m := topo.Machine{CPUs: make([]topo.CPU, 8), MemTotal: 8 << 30, MemFree: 8 << 30, L1d: topo.Cache{Bytes: 32 << 10, CPUs: 1}, L2: topo.Cache{Bytes: 1 << 20, CPUs: 1}, L3: topo.Cache{Bytes: 32 << 20, CPUs: 8}}
	want := []Level{{"L1", 16 << 10}, {"L2", 512 << 10}, {"L3", 2 << 20}, {"DRAM", 40 << 20}}
	if got := Levels(m, 8); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Levels(m, 64); got[2].Bytes != 2<<20 { // no more than 8 CPUs share an L3 cache
		t.Errorf("%v", got)
	}
	if got := Levels(topo.Machine{}, 2); len(got) != 1 || got[0] != (Level{"DRAM", WorkerBytes}) {
		t.Errorf("unknown caches: %v", got)
	}
}

func TestReadLevel(t *testing.T) {
	for _, n := range []int{12 << 10, 256 << 10} {
		r, err := ReadLevel(t.Context(), teamOf(t, 1), Level{"L", n}, 2)
		if err != nil || r.N < 2 || r.Best < 1e8 || r.Best > 1e14 || math.Abs(r.Best-r.Max) > 1e-9*r.Max || r.Loop == "" {
			t.Errorf("%d bytes: %+v, %v", n, r, err)
		}
	}
	if r, err := ReadLevel(t.Context(), teamOf(t, 1), Level{DRAM, 2 * leastBytes}, 2); err != nil || r.N < 2 || r.Best < 1e8 || r.Loop == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := ReadLevel(t.Context(), teamOf(t, 1), Level{DRAM, 0}, 2); err == nil {
		t.Error("DRAM is measured without memory")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, l := range []Level{{"L", 12 << 10}, {DRAM, leastBytes}} {
		if _, err := ReadLevel(ended, teamOf(t, 1), l, 1000); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, interrupted: %v", l.Name, err)
		}
	}
	if _, err := PeakRates(ended, teamOf(t, 1), 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("peaks, interrupted: %v", err)
	}
}

// A small set is faster than a large one, and waiting for a load takes longer than a cycle.
func TestLatency(t *testing.T) {
	near, err := LatencyNs(t.Context(), 16<<10)
	if err != nil {
		t.Fatal(err)
	}
	far, err := LatencyNs(t.Context(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	if near.Best < 0.2 || far.Best < 2*near.Best {
		t.Errorf("16 KiB: %g ns, 64 MiB: %g ns", near.Best, far.Best)
	}
	if _, err := LatencyNs(t.Context(), 64); err == nil {
		t.Error("one line has no next one")
	}
}

func TestPeakRates(t *testing.T) {
	rates, err := PeakRates(t.Context(), teamOf(t, 1), 1)
	if err != nil || len(rates) == 0 {
		t.Fatal(rates, err)
	}
	for _, r := range rates {
		if r.Best < 1e8 {
			t.Errorf("%+v", r)
		}
	}
	for loop, want := range map[string]string{"vpdpbusd zmm": Int8, "vpmaddubsw+vpmaddwd+vpaddd ymm": Int8, "vdpbf16ps zmm": BF16, "vfmadd231ps ymm": F32, "go float32": F32} {
		if got := kindOf(loop); got != want {
			t.Errorf("%s: %s", loop, got)
		}
	}
	for kind := range peakLoops {
		if p := peakLoop(kind); p != &roof.Peaks[0] && kindOf(p.Name) != kind && kind != BF16 {
			t.Errorf("%s is measured with %s", kind, p.Name)
		}
	}
}

func TestBarrierAndAllReduce(t *testing.T) {
	tm := teamOf(t, 2)
	if s, err := Barrier(t.Context(), tm); err != nil || s.Best <= 0 || s.Best > 1e9 {
		t.Errorf("barrier %+v, %v", s, err)
	}
	f := isa.Detect()
	if s, err := AllReduce(t.Context(), tm, kernel.For(isa.Best(f), f), 1000); err != nil || s.Best <= 0 || s.Best > 1e9 {
		t.Errorf("allreduce %+v, %v", s, err)
	}
}

func TestTicks(t *testing.T) {
	all, busy, steal := cpuTicks("cpu  100 1 20 1000 30 4 5 6 50 0\ncpu0 1 1 1 1\n")
	if all != 1166 || busy != 130 || steal != 6 {
		t.Errorf("%d %d %d", all, busy, steal)
	}
	if all, _, _ := cpuTicks("cpu a b"); all != 0 {
		t.Error("no numbers")
	}
	if n := (Noise{Steal: 0.02, OtherLoad: 0.5, MajorFaults: 3}).Reasons(); len(n) != 3 {
		t.Errorf("%q", n)
	}
	if n := (Noise{MinorFaults: 100, Preempted: 2}).Reasons(); len(n) != 0 {
		t.Errorf("%q", n)
	}
}

func TestHost(t *testing.T) {
	s, err := topo.Inspect(os.DirFS("/"), true)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(s)
	if h.CPU == "" || h.CPUs < 1 || h.Cores < 1 || h.Kernel == "" || len(h.BinaryHash) != 64 || len(h.Lines()) != 5 {
		t.Errorf("%+v", h)
	}
}

// Files that differ in size, or in a place that is looked at, have different hashes.
func TestModelHash(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hash := func(paths ...string) string {
		t.Helper()
		h, err := ModelHash(paths)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	big := make([]byte, hashEvery+3*hashPiece+17)
	a := write("a", big)
	same := write("same", big)
	big[len(big)-1] = 1
	end := write("end", big)
	big[len(big)-1], big[hashEvery+5] = 0, 1
	middle := write("middle", big)
	short := write("short", make([]byte, 10))
	empty := write("empty", nil)
	if hash(a) != hash(same) || hash(a) == hash(end) || hash(a) == hash(middle) || hash(a) == hash(short) || hash(short) == hash(empty) || hash(a, short) == hash(short, a) {
		t.Error("hashes do not tell files apart")
	}
	if hash() != "" {
		t.Error("a hash of nothing")
	}
	if _, err := ModelHash([]string{filepath.Join(dir, "none")}); err == nil {
		t.Error("no file, no error")
	}
}

// Where counters can be had they count; where not, the reason is said.
func TestCounters(t *testing.T) {
	tm := teamOf(t, 2)
	defer tm.Hold()()
	c, err := NewCounters(tm)
	if err != nil {
		t.Log(err)
		return
	}
	defer c.Close()
	before, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	var sums [2]uint64
	if err := tm.Run(func(w int) {
		for i := range uint64(1 << 20) {
			sums[w] ^= i
		}
	}); err != nil {
		t.Fatal(err)
	}
	after, err := c.Read()
	if d := after.Minus(before); err != nil || d.Instructions < 1<<20 {
		t.Errorf("%+v, %v", d, err)
	}
}
