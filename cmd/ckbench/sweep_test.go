package main

import (
	"slices"
	"strings"
	"testing"

	"ck/internal/topo"
)

func TestSweepFit(t *testing.T) {
	s := sweepPhase{Test: "pp512"}
	for _, n := range []int{1, 2, 4, 8} {
		s.Points = append(s.Points, sweepPoint{Threads: n, TS: 100 / (0.2 + 0.8/float64(n))})
	}
	s.fit()
	if s.Knee != 8 || s.Serial == nil || *s.Serial < 0.199 || *s.Serial > 0.201 || s.Points[1].SpeedUp < 1.66 || s.Points[1].SpeedUp > 1.67 {
		t.Errorf("%+v", s)
	}
	if got := s.summary(); got != "pp512: knee at 8 threads; S = 0.200, at most 5 times the speed of one thread" {
		t.Error(got)
	}
	flat := sweepPhase{Test: "x", Points: []sweepPoint{{Threads: 1, TS: 10}, {Threads: 2, TS: 10}}}
	if flat.fit(); flat.summary() != "x: knee at 1 thread; S = 1.000: more threads gain nothing" {
		t.Error(flat.summary())
	}
	one := sweepPhase{Test: "x", Points: s.Points[:1]}
	if one.fit(); one.Serial != nil || !strings.Contains(one.summary(), "no fit") {
		t.Error(one.summary())
	}
}

func TestSweepThreads(t *testing.T) {
	m := topo.Machine{Affinity: make([]int, 20)}
	want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20}
	if got := sweepThreads(m); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	m.Quota.CPUs = 2.5
	if got := sweepThreads(m); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("with a quota: %v", got)
	}
}
