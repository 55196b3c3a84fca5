package main

import (
	"reflect"
	"testing"

	"ck/internal/bench"
	"ck/internal/measure"
	"ck/internal/picture"
	"ck/internal/probe"
)

// The chart shows the roofs of all threads, what contradictions hide, and the steps by phase; text of others is escaped.
func TestChart(t *testing.T) {
	d := &bench.Roofline{Host: measure.Host{CPU: "a\x1bCPU"}, Model: "m\x1b", Tests: []string{"pp8+tg2"},
		Steps:     []bench.PlacedStep{{StepRow: bench.StepRow{Phase: "b", Name: "x", GOPs: 5, Share: 0.5}, Intensity: 2, RoofShare: 0.25}},
		OtherTime: []bench.OtherTime{{Phase: "a", Barrier: 0.1, Other: 0.2}, {Phase: "b"}}}
	d.Peaks = []probe.PeakRate{{Kind: measure.F32, Threads: 1, GOPs: 100}, {Kind: measure.F32, Threads: 2, GOPs: 190}, {Kind: measure.Int8, Threads: 2, GOPs: 700}}
	d.Bandwidth = []probe.Bandwidth{{Level: "L1", Threads: 2, GBps: 400}, {Level: "L2", Threads: 2, GBps: 30, SlowerThan: "L1"}, {Level: measure.DRAM, Threads: 1, GBps: 20},
		{Level: measure.DRAM, Threads: 2, GBps: 35}}
	want := &picture.Roofline{Title: `m\x1b under the roofs of this machine`, Subtitle: `a\x1bCPU, 2 threads; pp8+tg2`, Threads: 2,
		Levels: []picture.Level{{Name: "L1", GBps: 400}, {Name: "L2"}, {Name: "L3"}}, Memory: picture.Level{Name: "DRAM", GBps: 35}, One: picture.Level{Name: "DRAM", GBps: 20}, OneTop: 100,
		Ceilings: []picture.Ceiling{{Name: "INT8", GOPs: 700}, {Name: "BF16", GOPs: 190}, {Name: "F32", GOPs: 190}}, Remarks: []string{"L2 is not drawn: it was slower than L1"},
		Phases: []picture.Phase{{Name: "a", Barrier: 0.1, Other: 0.2}, {Name: "b", Steps: []picture.Step{{Name: "x", Intensity: 2, GOPs: 5, Share: 0.5, RoofShare: 0.25}}}}}
	if got := chart(d); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
