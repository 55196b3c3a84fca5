package pause

import (
	"testing"
	"time"
)

// best is the time of Spin(n), the least of many: other programs do not come between all of them.
func best(n int) time.Duration {
	b := time.Hour
	for range 50 {
		start := time.Now()
		Spin(n)
		b = min(b, time.Since(start))
	}
	return b
}

// A hint must take time, but not so much that a spin loop of some thousands becomes a sleep.
func TestSpinTakesTime(t *testing.T) {
	const n = 1000
	best := best(n)
	if best < n*time.Nanosecond/2 || best > n*time.Microsecond {
		t.Errorf("%d hints take %v", n, best)
	}
	t.Logf("one hint takes %v/%d", best, n)
}

// No hints take no time: less than a fifth of a thousand, clock and call included. (A loop that counts down past zero would not end.)
func TestSpinNothing(t *testing.T) {
	some := best(1000)
	for _, n := range []int{0, -1, -1 << 62} {
		if none := best(n); none > some/5 {
			t.Errorf("Spin(%d) takes %v, Spin(1000) %v", n, none, some)
		}
	}
}

func BenchmarkSpin(b *testing.B) {
	for range b.N {
		Spin(1)
	}
}
