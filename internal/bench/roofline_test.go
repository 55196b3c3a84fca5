package bench

import (
	"math"
	"testing"

	"ck/internal/measure"
	"ck/internal/probe"
)

// A step lies under the slope of the memory or under the peak of its arithmetic, whichever is lower, also where a CPU has no
// instruction of its kind.
func TestPlace(t *testing.T) {
	d := &Roofline{Roofs: probe.Roofs{Peaks: []probe.PeakRate{{Kind: measure.F32, Threads: 1, GOPs: 100}}, Bandwidth: []probe.Bandwidth{{Level: measure.DRAM, Threads: 1, GBps: 20}}}}
	low := d.place(StepRow{Name: "low", Phase: "p", Ops: 20, Bytes: 10, GOPs: 10, GBps: 5, Kind: measure.Int8}, 1)
	if low.Bound != "memory" || low.Roof != 40 || low.RoofShare != 0.25 || low.ReadPct != 25 || low.PeakPct != 10 {
		t.Errorf("%+v", low)
	}
	high := d.place(StepRow{Name: "high", Phase: "p", Ops: 1000, Bytes: 10, GOPs: 50, GBps: 0.5, Kind: measure.Int8}, 1)
	if high.Bound != measure.Int8 || high.Roof != 100 || math.Abs(high.RoofShare-0.5) > 1e-12 {
		t.Errorf("%+v", high)
	}
}
