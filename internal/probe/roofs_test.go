package probe

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ck/internal/measure"
	"ck/internal/topo"
)

func TestPeak(t *testing.T) {
	d := &Roofs{Peaks: []PeakRate{{Kind: measure.F32, Threads: 1, GOPs: 100}, {Kind: measure.F32, Threads: 2, GOPs: 190}, {Kind: measure.Int8, Threads: 2, GOPs: 700},
		{Kind: measure.BF16, Threads: 2, GOPs: 150}}}
	for _, c := range []struct {
		kind string
		n    int
		want float64
	}{{measure.F32, 1, 100}, {measure.F32, 2, 190}, {measure.Int8, 2, 700}, {measure.BF16, 2, 190}, {measure.Int8, 1, 100}, {measure.F32, 3, 0}} {
		if got := d.Peak(c.kind, c.n); got != c.want {
			t.Errorf("%s, %d threads: %g, want %g", c.kind, c.n, got, c.want)
		}
	}
}

// A level that is slower than one further from the core, or with more threads than with fewer, is marked and is no roof.
func TestContradict(t *testing.T) {
	d := &Roofs{Bandwidth: []Bandwidth{{Level: "L1", Threads: 1, GBps: 200}, {Level: "L3", Threads: 1, GBps: 60}, {Level: measure.DRAM, Threads: 1, GBps: 40},
		{Level: "L1", Threads: 2, GBps: 400}, {Level: "L3", Threads: 2, GBps: 30}, {Level: measure.DRAM, Threads: 2, GBps: 35}}}
	if !Contradict(d.Bandwidth) {
		t.Error("nothing was found")
	}
	var got []string
	for _, r := range d.Bandwidth {
		got = append(got, r.SlowerThan)
	}
	if want := []string{"", "", "", "", measure.DRAM, "DRAM with 1 thread"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, c := range []struct {
		level string
		n     int
		want  float64
	}{{"L1", 2, 400}, {"L3", 1, 60}, {"L3", 2, 0}, {measure.DRAM, 2, 40}, {"L2", 2, 0}, {"L1", 3, 0}} {
		if got := d.Read(c.level, c.n); got != c.want {
			t.Errorf("%s with %d threads: %g GB/s, want %g", c.level, c.n, got, c.want)
		}
	}
	d.Bandwidth[4].GBps, d.Bandwidth[5].GBps = 90, 70
	if Contradict(d.Bandwidth) || d.Read("L3", 2) != 90 {
		t.Errorf("after better samples: %+v", d.Bandwidth)
	}
	rows := []Latency{{Bytes: 1 << 14, Ns: 1}, {Bytes: 1 << 15, Ns: 9}, {Bytes: 1 << 16, Ns: 4}}
	if wrong := ContradictLatency(rows); len(wrong) != 1 || rows[1].SlowerThan != "64 KiB" {
		t.Errorf("%+v", rows)
	}
}

// Doubts name what did not settle, what disturbed, and what cannot be.
func TestDoubts(t *testing.T) {
	calm := measure.Series{Stable: true}
	loose := measure.Series{Summary: measure.Summary{N: 20, Min: 1, Max: 123.4}}
	if got := Doubts([]Named{{"a", "ns", calm}}, UpperBound); len(got) != 0 {
		t.Errorf("calm: %q", got)
	}
	list := []Named{{"a", "ns", loose}, {"b", "ns", loose}, {"c", "ns", loose}, {"d", "ns", loose}, {"e", "ns", loose}}
	want := "the best samples do not agree to 3 %: a (20 samples, 1.00–123.4 ns), b (20 samples, 1.00–123.4 ns), c (20 samples, 1.00–123.4 ns), 2 more; measure again when nothing else runs"
	if got := Doubts(list, UpperBound); len(got) != 1 || got[0] != want {
		t.Errorf("loose: %q, want %q", got, want)
	}
	d := &Roofs{Peaks: []PeakRate{{Instruction: "fma", Threads: 1, GOPs: 100, Samples: calm}, {Instruction: "fma", Threads: 2, GOPs: 50, Samples: calm}},
		Bandwidth: []Bandwidth{{Level: "L2", Threads: 1, SlowerThan: "L3", Samples: calm}}}
	got := d.Doubts()
	if len(got) != 2 || got[0] != "fma with 2 threads: was slower than with 1 thread, which cannot be; measure again when nothing else runs" ||
		!strings.HasPrefix(got[1], "L2 with 1 thread: was slower than L3, which cannot be; it is no roof") {
		t.Errorf("%q", got)
	}
}

// Where memory is too small to tell it from the caches, nothing is measured, and the error says what to do.
func TestNoRoom(t *testing.T) {
	var room *RoomError
	_, err := Bandwidths(t.Context(), topo.Machine{Affinity: []int{0}, MemTotal: 1 << 30, MemFree: 30 << 20}, 1, 1)
	if !errors.As(err, &room) || !strings.Contains(err.Error(), "name fewer threads") {
		t.Errorf("%v", err)
	}
}
