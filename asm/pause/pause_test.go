package pause

import (
	"testing"
	"time"
)

// A hint must take time, but not so much that a spin loop of some thousands becomes a sleep.
func TestSpinTakesTime(t *testing.T) {
	const n = 1000
	best := time.Hour
	for range 20 {
		start := time.Now()
		Spin(n)
		best = min(best, time.Since(start))
	}
	if best < n*time.Nanosecond/2 || best > n*time.Microsecond {
		t.Errorf("%d hints take %v", n, best)
	}
	t.Logf("one hint takes %v/%d", best, n)
}

func TestSpinNothing(t *testing.T) {
	for _, n := range []int{0, -1, -1 << 62} {
		Spin(n)
	}
}

func BenchmarkSpin(b *testing.B) {
	for range b.N {
		Spin(1)
	}
}
