package main

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"ck/internal/measure"
)

func TestPeak(t *testing.T) {
	d := &rooflineDoc{Peaks: []peakRow{{Kind: measure.F32, Threads: 1, GOPs: 100}, {Kind: measure.F32, Threads: 2, GOPs: 190}, {Kind: measure.Int8, Threads: 2, GOPs: 700},
		{Kind: measure.BF16, Threads: 2, GOPs: 150}}}
	for _, c := range []struct {
		kind string
		n    int
		want float64
	}{{measure.F32, 1, 100}, {measure.F32, 2, 190}, {measure.Int8, 2, 700}, {measure.BF16, 2, 190}, {measure.Int8, 1, 100}, {measure.F32, 3, 0}} {
		if got := d.peak(c.kind, c.n); got != c.want {
			t.Errorf("%s, %d threads: %g, want %g", c.kind, c.n, got, c.want)
		}
	}
}

// A step lies under the slope of the memory or under the peak of its arithmetic, whichever is lower, also where a CPU has no
// instruction of its kind.
func TestPlace(t *testing.T) {
	d := &rooflineDoc{Peaks: []peakRow{{Kind: measure.F32, Threads: 1, GOPs: 100}}, Bandwidth: []bandwidthRow{{Level: measure.DRAM, Threads: 1, GBps: 20}}}
	low := d.place(stepRow{Name: "low", Phase: "p", Ops: 20, Bytes: 10, GOPs: 10, GBps: 5, Kind: measure.Int8}, 1)
	if low.Bound != "memory" || low.Roof != 40 || low.RoofShare != 0.25 || low.ReadPct != 25 || low.PeakPct != 10 {
		t.Errorf("%+v", low)
	}
	high := d.place(stepRow{Name: "high", Phase: "p", Ops: 1000, Bytes: 10, GOPs: 50, GBps: 0.5, Kind: measure.Int8}, 1)
	if high.Bound != measure.Int8 || high.Roof != 100 || math.Abs(high.RoofShare-0.5) > 1e-12 {
		t.Errorf("%+v", high)
	}
	d.Steps, d.OtherTime = []placed{low, high}, []otherTime{{"p", 0.1, 0.2}}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := d.print(&b, true); err != nil || !strings.Contains(b.String(), "high (p) bound\tint8\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// A level that is slower than one further from the core, or with more threads than with fewer, is marked and is no roof.
func TestContradict(t *testing.T) {
	d := &rooflineDoc{Bandwidth: []bandwidthRow{{Level: "L1", Threads: 1, GBps: 200}, {Level: "L3", Threads: 1, GBps: 60}, {Level: measure.DRAM, Threads: 1, GBps: 40},
		{Level: "L1", Threads: 2, GBps: 400}, {Level: "L3", Threads: 2, GBps: 30}, {Level: measure.DRAM, Threads: 2, GBps: 35}}}
	if !contradict(d.Bandwidth) {
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
		if got := d.read(c.level, c.n); got != c.want {
			t.Errorf("%s with %d threads: %g GB/s, want %g", c.level, c.n, got, c.want)
		}
	}
	d.Bandwidth[4].GBps, d.Bandwidth[5].GBps = 90, 70
	if contradict(d.Bandwidth) || d.read("L3", 2) != 90 {
		t.Errorf("after better samples: %+v", d.Bandwidth)
	}
	rows := []latencyRow{{Bytes: 1 << 14, Ns: 1}, {Bytes: 1 << 15, Ns: 9}, {Bytes: 1 << 16, Ns: 4}}
	if wrong := contradictLatency(rows); len(wrong) != 1 || rows[1].SlowerThan != "64 KiB" {
		t.Errorf("%+v", rows)
	}
}
