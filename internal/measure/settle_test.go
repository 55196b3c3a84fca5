package measure

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// Samples end when the best of them agree, and go on, within bounds, where they do not.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name    string
		samples int
		low     bool
		values  []float64 // the last one goes on
		n       int
		stable  bool
		best    float64
	}{
		{"quiet", 5, HighIsBest, []float64{100}, 5, true, 100},
		{"disturbed at first", 3, HighIsBest, []float64{50, 60, 99, 98, 100}, 5, true, 100},
		{"slow ones do not matter", 5, HighIsBest, []float64{100, 40, 99, 30, 98}, 5, true, 100},
		{"one lucky sample", 3, HighIsBest, []float64{100, 130, 101, 100}, 12, false, 130},
		{"times", 3, LowIsBest, []float64{9, 3, 3.01, 3.02}, 4, true, 3},
		{"times that never agree", 3, LowIsBest, []float64{9, 8, 7, 6, 5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5}, 12, false, 1.5},
		{"one is asked for", 1, HighIsBest, []float64{7, 8}, 1, true, 7},
	} {
		n := 0
		s, err := Settle(t.Context(), c.samples, c.low, func() (float64, error) {
			n++
			return c.values[min(n, len(c.values))-1], nil
		})
		if err != nil || s.N != c.n || s.Stable != c.stable || s.Best != c.best {
			t.Errorf("%s: %d samples, stable %v, best %g, %v; want %d, %v, %g", c.name, s.N, s.Stable, s.Best, err, c.n, c.stable, c.best)
		}
	}
	ended, end := context.WithCancel(t.Context())
	if _, err := Settle(ended, 5, LowIsBest, func() (float64, error) { end(); return 1, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	stop := errors.New("stop")
	if _, err := Settle(t.Context(), 5, LowIsBest, func() (float64, error) { return 0, stop }); err != stop {
		t.Errorf("%v", err)
	}
}

func TestBetter(t *testing.T) {
	a, b := Series{Best: 1, Noise: Noise{OtherLoad: 1}}, Series{Best: 2, Noise: Noise{MajorFaults: 3}}
	for _, x := range [][2]Series{{a, b}, {b, a}} {
		if s := Better(x[0], x[1], HighIsBest); s.Best != 2 || s.Noise.OtherLoad != 0.5 || s.Noise.MajorFaults != 3 {
			t.Errorf("%+v", s)
		}
		if s := Better(x[0], x[1], LowIsBest); s.Best != 1 {
			t.Errorf("%+v", s)
		}
	}
}

// No level can be slower than one further from the core; what is about as fast is no contradiction.
func TestContradictions(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  []int
	}{{[]float64{400, 200, 90, 50}, []int{-1, -1, -1, -1}}, {[]float64{400, 200, 40, 50}, []int{-1, -1, 3, -1}}, {[]float64{400, 200, 49, 50}, []int{-1, -1, -1, -1}},
		{[]float64{30, 200, 90, 50}, []int{1, -1, -1, -1}}, {nil, []int{}}} {
		if got := Contradictions(c.rates, RatesApart); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.rates, got, c.want)
		}
	}
}
