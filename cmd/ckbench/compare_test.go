package main

import (
	"math/rand/v2"
	"testing"
)

// noisy is a result with drifting roofs: tokens/s follow the roof, which differs by 15 %.
func noisy(rng *rand.Rand, level float64, threads int) *result {
	r := sampleResult()
	r.Threads = threads
	for range 5 {
		roof := 0.85 + 0.15*rng.Float64()
		share := level * (1 + 0.01*rng.NormFloat64())
		r.Samples = append(r.Samples, sample{TS: 100 * share * roof, Share: share})
	}
	return r
}

func TestCompare(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	wrong := 0
	for range 200 {
		old := noisy(rng, 0.8, 2)
		if c := compareOne(old, noisy(rng, 0.7, 2), false, 0.05, 0.05); c.Verdict != "regression" || c.What != "share of roof" {
			t.Fatalf("12 %% slower: %+v", c)
		}
		if c := compareOne(old, noisy(rng, 0.8, 2), false, 0.05, 0.05); c.Verdict == "regression" {
			wrong++
		}
		if c := compareOne(old, noisy(rng, 0.95, 2), false, 0.05, 0.05); c.Verdict != "faster" {
			t.Fatalf("faster: %+v", c)
		}
	}
	if wrong > 0 {
		t.Errorf("%d of 200 repeats are taken for regressions of 5 %%", wrong)
	}
	// Fewer threads: the share of their own roof is higher, but the rate fell.
	old, slow := noisy(rng, 0.8, 2), noisy(rng, 0.9, 1)
	for i := range slow.Samples {
		slow.Samples[i].TS /= 2
	}
	list, unpaired := compareResults([]*result{old}, []*result{slow}, false, 0.05, 0.05)
	if len(list) != 1 || len(unpaired) != 0 || list[0].Verdict != "regression" || list[0].What != "tokens/s" {
		t.Errorf("fewer threads: %+v, %v", list, unpaired)
	}
	// With several numbers of threads on a side, each meets its own.
	list, unpaired = compareResults([]*result{old, slow}, []*result{slow, noisy(rng, 0.8, 4)}, false, 0.05, 0.05)
	if len(list) != 1 || len(unpaired) != 1 || list[0].OldThreads != 1 || list[0].Verdict != "same" {
		t.Errorf("%+v, %v", list, unpaired)
	}
	if c := compareOne(sampleResult(), old, false, 0.05, 0.05); c.Verdict != "no samples" {
		t.Errorf("%+v", c)
	}
}

func TestParseShare(t *testing.T) {
	for s, want := range map[string]float64{"5%": 0.05, "0.05": 0.05, " 12.5 %": 0.125, "0": 0} {
		if got, err := parseShare("--fail-on", s); err != nil || got != want {
			t.Errorf("%q: %g, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "x", "-1%", "100%", "NaN", "1"} {
		if got, err := parseShare("--fail-on", s); err == nil {
			t.Errorf("%q: %g", s, got)
		}
	}
}
