package measure

import (
	"context"
	"slices"
	"time"
)

// A Series is the samples of one figure of the machine. The figure is the best of them, since whatever disturbs makes a sample worse; the
// others say how far it can be trusted.
type Series struct {
	Best float64 `json:"-"`
	Summary
	Noise  Noise `json:"noise"`
	Stable bool  `json:"stable"` // the best samples agree to 3 %
}

// Scale changes the unit.
func (s Series) Scale(by float64) Series {
	s.OutlierIndex = slices.Clone(s.OutlierIndex)
	for _, v := range []*float64{&s.Best, &s.Median, &s.Lo, &s.Hi, &s.Mean, &s.Stddev, &s.Min, &s.Max} {
		*v *= by
	}
	return s
}

// Which end of the samples is the best one.
const (
	HighIsBest = false // rates
	LowIsBest  = true  // times
)

const (
	settleAgree = 0.03            // how near to the best the third best sample must be
	settleMost  = 4               // times as many samples as asked for, after which it ends
	settleTime  = 2 * time.Second // after which it ends, when there are as many as asked for
)

// Settle takes samples of one figure, as many as asked for, then more until the best three agree to 3 %: at most four times as many, and
// no more after two seconds. It stops between samples when ctx ends.
func Settle(ctx context.Context, samples int, low bool, sample func() (float64, error)) (Series, error) {
	var v []float64
	watch := StartWatch()
	for {
		if ctx.Err() != nil {
			return Series{}, context.Cause(ctx)
		}
		x, err := sample()
		if err != nil {
			return Series{}, err
		}
		v = append(v, x)
		stable := agree(v, min(3, samples), low)
		if len(v) >= samples && (stable || len(v) >= settleMost*samples || time.Since(watch.at) > settleTime) {
			s := Series{Summary: Summarize(v), Noise: watch.Stop(), Stable: stable}
			if s.Best = s.Max; low {
				s.Best = s.Min
			}
			return s, nil
		}
	}
}

// agree reports whether the best n samples lie within 3 %.
func agree(v []float64, n int, low bool) bool {
	if len(v) < n {
		return false
	}
	s := slices.Clone(v)
	slices.Sort(s)
	if low {
		return s[n-1] <= s[0]*(1+settleAgree)
	}
	return s[len(s)-n] >= s[len(s)-1]*(1-settleAgree)
}

// Better is the series with the better figure of two of the same, with the noise of both.
func Better(a, b Series, low bool) Series {
	noise := Together([]Noise{a.Noise, b.Noise})
	if (b.Best < a.Best) == low && a.Best != b.Best {
		a = b
	}
	a.Noise = noise
	return a
}

// How many times as fast what cannot be faster may be measured; more is a contradiction. Latencies follow the clock, which changes between
// two sets.
const (
	RatesApart     = 1.05
	LatenciesApart = 1.15
)

// Contradictions finds figures that others contradict. The rates are those of memory levels, the nearest to the core first, none of which
// can be slower than one further away, as far as two measurements tell (apart). For each rate it gives the index of the fastest such one,
// -1 where there is none.
func Contradictions(rates []float64, apart float64) []int {
	out := make([]int, len(rates))
	for i, r := range rates {
		out[i] = -1
		for j := i + 1; j < len(rates); j++ {
			if rates[j] > r*apart && (out[i] < 0 || rates[j] > rates[out[i]]) {
				out[i] = j
			}
		}
	}
	return out
}
