package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(a, b, tol float64) bool { return math.Abs(a-b) <= tol*max(1, math.Abs(b)) }

func TestSummarize(t *testing.T) {
	s := Summarize([]float64{3, 1, 2, 5, 4})
	if s.N != 5 || s.Median != 3 || s.Lo != 1 || s.Hi != 5 || !near(s.Level, 0.9375, 1e-12) || s.Mean != 3 || !near(s.Stddev, math.Sqrt(2.5), 1e-12) ||
		s.Min != 1 || s.Max != 5 {
		t.Errorf("%+v", s)
	}
	// Of 20 samples the interval is the 6th to the 15th, level 0.9586 (tables of the sign test).
	var v []float64
	for i := range 20 {
		v = append(v, float64(i+1))
	}
	if s := Summarize(v); s.Lo != 6 || s.Hi != 15 || !near(s.Level, 0.95861, 1e-4) || s.Median != 10.5 {
		t.Errorf("%+v", s)
	}
	if s := Summarize([]float64{100, 101, 99, 100.5, 60, 100}); !slices.Equal(s.OutlierIndex, []int{4}) {
		t.Errorf("outliers %v", s.OutlierIndex)
	}
	if s := Summarize([]float64{100, 100, 100, 100, 101}); len(s.OutlierIndex) != 0 {
		t.Errorf("one percent is no outlier: %v", s.OutlierIndex)
	}
	if s := Summarize([]float64{7}); s.Median != 7 || s.Lo != 7 || s.Hi != 7 || s.Level != 0 {
		t.Errorf("%+v", s)
	}
	if s := Summarize(nil); s.N != 0 {
		t.Errorf("%+v", s)
	}
}

// The interval holds the true median as often as its level says.
func TestIntervalCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{5, 11, 30} {
		hits, level, rounds := 0, 0.0, 20000
		for range rounds {
			v := make([]float64, n)
			for i := range v {
				v[i] = rng.ExpFloat64()
			}
			s := Summarize(v)
			if level = s.Level; s.Lo <= math.Ln2 && math.Ln2 <= s.Hi {
				hits++
			}
		}
		if got := float64(hits) / float64(rounds); math.Abs(got-level) > 0.006 {
			t.Errorf("%d samples: the interval holds the median in %.4f of cases, promised %.4f", n, got, level)
		}
	}
}

func TestRankTest(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 2.0 / 252},
		{[]float64{6, 7, 8, 9, 10}, []float64{1, 2, 3, 4, 5}, 2.0 / 252},
		{[]float64{1, 2, 3}, []float64{4, 5}, 2.0 / 10},
		{[]float64{1, 3, 5}, []float64{2, 4, 6}, 14.0 / 20}, // U = 3: 7 of 20 arrangements on each side
		{[]float64{1, 1, 1}, []float64{1, 1, 1}, 1},
		{[]float64{1, 1, 2}, []float64{1, 2, 2}, 1}, // doubled ranks 4 4 4 10 10 10: no choice of three is nearer to the mean
		{nil, []float64{1}, 1},
	} {
		if p := RankTest(c.a, c.b); !near(p, c.want, 1e-12) {
			t.Errorf("%v %v: p = %g, want %g", c.a, c.b, p, c.want)
		}
	}
}

// The exact test and the approximation agree where both can be had, and false alarms are as rare as promised.
func TestRankTestIsCalibrated(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func(n int, shift float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = rng.NormFloat64() + shift
		}
		return v
	}
	alarms, found, rounds := 0, 0, 4000
	for range rounds {
		if RankTest(draw(8, 0), draw(8, 0)) < 0.05 {
			alarms++
		}
		if RankTest(draw(8, 0), draw(8, 3)) < 0.05 {
			found++
		}
	}
	if r := float64(alarms) / float64(rounds); r < 0.02 || r > 0.06 {
		t.Errorf("false alarms in %.3f of cases at 0.05", r)
	}
	if r := float64(found) / float64(rounds); r < 0.95 {
		t.Errorf("a shift of 3 deviations is found in %.3f of cases only", r)
	}
	a, b := draw(50, 0), draw(60, 0.3)
	ranks, sum := doubledRanks(append(slices.Clone(a), b...)), 0
	for _, r := range ranks[:50] {
		sum += r
	}
	exact, approx := exactRankSum(ranks, 50, sum), normalRankSum(ranks, 50, sum)
	if !near(approx, exact, 0.01) {
		t.Errorf("approximation %g, exact %g", approx, exact)
	}
}

func TestAmdahl(t *testing.T) {
	workers := []int{1, 2, 4, 8}
	var times []float64
	for _, n := range workers {
		times = append(times, 10*(0.1+0.9/float64(n)))
	}
	s, t1, ok := Amdahl(workers, times)
	if !ok || !near(s, 0.1, 1e-9) || !near(t1, 10, 1e-9) {
		t.Errorf("S = %g, t1 = %g, %v", s, t1, ok)
	}
	if s, _, ok := Amdahl([]int{1, 2}, []float64{10, 4}); !ok || s != 0 {
		t.Errorf("faster than linear: S = %g, %v", s, ok)
	}
	if _, _, ok := Amdahl([]int{2, 2}, []float64{1, 1}); ok {
		t.Error("one number of workers is no fit")
	}
	if k := Knee([]int{1, 2, 4, 8}, []float64{10, 19, 20, 20.5}, 0.95); k != 4 {
		t.Errorf("knee at %d", k)
	}
	if k := Knee(nil, nil, 0.95); k != 0 {
		t.Errorf("knee %d of nothing", k)
	}
}

// Exact times leave no doubt about the serial share, wide intervals leave it open.
func TestAmdahlRange(t *testing.T) {
	workers := []int{1, 2, 4, 8}
	times := make([]float64, len(workers))
	for i, n := range workers {
		times[i] = 0.2 + 0.8/float64(n)
	}
	if lo, hi, ok := AmdahlRange(workers, times, times); !ok || math.Abs(lo-0.2) > 1e-9 || math.Abs(hi-0.2) > 1e-9 {
		t.Errorf("exact: %g to %g, %v", lo, hi, ok)
	}
	fast, slow := slices.Clone(times), slices.Clone(times)
	for i := range times {
		fast[i], slow[i] = times[i]/1.1, times[i]*1.1
	}
	if lo, hi, ok := AmdahlRange(workers, fast, slow); !ok || lo > 0.17 || lo < 0.05 || hi < 0.23 || hi > 0.4 {
		t.Errorf("10 %%: %g to %g, %v", lo, hi, ok)
	}
	// What a busy machine gave for two threads.
	if lo, hi, ok := AmdahlRange([]int{1, 2}, []float64{1.0 / 103108, 1.0 / 90000}, []float64{1.0 / 7412, 1.0 / 80000}); !ok || hi-lo < 0.9 {
		t.Errorf("7412 to 103108: %g to %g, %v", lo, hi, ok)
	}
	if _, _, ok := AmdahlRange([]int{3}, []float64{1}, []float64{1}); ok {
		t.Error("one number of workers is no fit")
	}
	if _, _, ok := AmdahlRange(nil, nil, nil); ok {
		t.Error("nothing is no fit")
	}
}
