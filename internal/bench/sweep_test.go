package bench

import (
	"slices"
	"strings"
	"testing"

	"ck/internal/topo"
)

// pointsOf are points by Amdahl's law with 20 % serial work, whose rates are known to a share.
func pointsOf(share float64, threads ...int) (out []SweepPoint) {
	for _, n := range threads {
		ts := 100 / (0.2 + 0.8/float64(n))
		out = append(out, SweepPoint{Threads: n, TS: ts, Lo: ts * (1 - share), Hi: ts * (1 + share), N: 3})
	}
	return out
}

func TestSweepFit(t *testing.T) {
	s := SweepPhase{Test: "pp512", Points: pointsOf(0.01, 1, 2, 4, 8)}
	s.fit()
	if s.Knee != 8 || s.Serial == nil || *s.Serial < 0.199 || *s.Serial > 0.201 || s.Points[1].SpeedUp < 1.66 || s.Points[1].SpeedUp > 1.67 {
		t.Errorf("%+v", s)
	}
	if got := s.Summary(); got != "pp512: knee at 8 threads; S = 0.200 (0.194–0.206), at most 5 times the speed of one thread" {
		t.Error(got)
	}
	flat := SweepPhase{Test: "x", Points: []SweepPoint{{Threads: 1, TS: 10, Lo: 10, Hi: 10, N: 1}, {Threads: 2, TS: 10, Lo: 10, Hi: 10, N: 1}}}
	if flat.fit(); flat.Summary() != "x: knee at 1 thread; S = 1.000 (one repetition: nobody knows how far off): more threads gain nothing" {
		t.Error(flat.Summary())
	}
	one := SweepPhase{Test: "x", Points: s.Points[:1]}
	if one.fit(); one.Serial != nil || !strings.Contains(one.Summary(), "no fit") {
		t.Error(one.Summary())
	}
}

// Rates that others disturbed tell neither the knee nor the serial share, and the line says which.
func TestSweepRefuses(t *testing.T) {
	for _, points := range [][]SweepPoint{
		{{Threads: 1, TS: 90000, Lo: 7412, Hi: 103108, N: 3}, {Threads: 2, TS: 88000, Lo: 80000, Hi: 90000, N: 3}},
		{{Threads: 1, TS: 9e6, Lo: 9e6, Hi: 9e6, N: 3}, {Threads: 2, TS: 88000, Lo: 7412, Hi: 103108, N: 3}}, // S is 1 in any case
	} {
		s := SweepPhase{Test: "pp16", Points: points}
		s.fit()
		const want = "pp16: neither knee nor S: 7412.0 to 103108.0 tokens/s with "
		if s.Knee != 0 || s.Serial != nil || !strings.HasPrefix(s.Summary(), want) {
			t.Errorf("%+v\n%s", s, s.Summary())
		}
	}
}

// Repetitions go on where their interval is wide, for a sweep only.
func TestMoreRepetitions(t *testing.T) {
	b := builtinBench(t)
	c := course{r: &Result{}}
	for _, x := range []struct {
		ts   []float64
		want bool
	}{{[]float64{100, 101, 102}, false}, {[]float64{100, 150, 102}, true}, {[]float64{100}, false}} {
		c.r.Samples = nil
		for _, ts := range x.ts {
			c.r.Samples = append(c.r.Samples, Sample{TS: ts})
		}
		if c.wide() != x.want {
			t.Errorf("%v: %v", x.ts, c.wide())
		}
	}
	for _, x := range []struct {
		done, reps, most int
		wide, want       bool
	}{{2, 3, 12, true, false}, {3, 3, 12, false, true}, {3, 3, 12, true, false}, {11, 3, 12, true, false}, {12, 3, 12, true, true}, {3, 3, 0, true, true}} {
		if got := enough(x.done, x.reps, x.most, func() bool { return x.wide }); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
	b.set.Reps, b.set.Most = 2, 5
	told := 0
	b.ev.Repetition = func() { told++ }
	r, err := b.Measure(Test{Gen: 2, Rows: 1})
	if err != nil || len(r.Samples) < 2 || len(r.Samples) > 5 || told != 2 {
		t.Errorf("%d repetitions, told of %d; %v", len(r.Samples), told, err)
	}
}

func TestSweepThreads(t *testing.T) {
	m := topo.Machine{Affinity: make([]int, 20)}
	want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20}
	if got := SweepThreads(m); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	m.Quota.CPUs = 2.5
	if got := SweepThreads(m); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("with a quota: %v", got)
	}
}

func TestTestNames(t *testing.T) {
	for want, x := range map[string]Test{"pp512": {Prompt: 512, Rows: 1}, "tg64x4 @ d4096": {Gen: 64, Rows: 4, Depth: 4096}, "pp8+tg4": {Prompt: 8, Gen: 4, Rows: 1}} {
		if x.String() != want {
			t.Errorf("%s, want %s", x, want)
		}
	}
	if n := (Test{Gen: 64, Rows: 4}).Tokens(); n != 256 {
		t.Errorf("%d tokens", n)
	}
}
