package measure

import (
	"errors"
	"testing"
	"time"
)

// A warm-up ends when two runs agree; where none do, it takes no longer than the first run and one repetition.
func TestWarm(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name       string
		repetition float64
		times      []time.Duration // the last one goes on
		runs       int
	}{
		{"steady", 4, []time.Duration{100 * ms, 100 * ms}, 2},
		{"packs first", 4, []time.Duration{500 * ms, 100 * ms, 101 * ms}, 3},
		{"a long prompt that never agrees", 1, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, 2},
		{"four runs are a repetition", 4, []time.Duration{100 * ms, 110 * ms, 95 * ms, 80 * ms, 120 * ms, 90 * ms, 110 * ms}, 5},
		{"short runs may take a while", 1, []time.Duration{ms, 2 * ms, 1 * ms, 2 * ms, 1 * ms, 1 * ms}, 6},
	} {
		runs := 0
		err := Warm(c.repetition, func() (time.Duration, error) {
			d := c.times[min(runs, len(c.times)-1)]
			runs++
			return d, nil
		})
		if err != nil || runs != c.runs {
			t.Errorf("%s: %d runs, want %d; %v", c.name, runs, c.runs, err)
		}
	}
	stop := errors.New("stop")
	if err := Warm(1, func() (time.Duration, error) { return 0, stop }); err != stop {
		t.Error(err)
	}
}
