package walk

import (
	"sync"
	"time"

	"ck/internal/team"
)

// A Link stands in for the link between homes on a machine that has one: workers wait as long as meetings and reads over it would take. What it does not
// know: that reading goes on beside arithmetic, keys and values, what caches keep.
type Link struct {
	Latency time.Duration // of a meeting of workers of several homes
	Rate    float64       // bytes a second that all workers of a home together read from others; 0: at once
	Homes   []int         // of each worker
}

// workers is how many are at the home of worker w.
func (l *Link) workers(w int) (n int) {
	for _, h := range l.Homes {
		if h == l.Homes[w] {
			n++
		}
	}
	return n
}

// meets waits for a meeting of workers of several homes.
func (w *Worker) meets() {
	if l := w.x.Link; l != nil {
		team.Spin(l.Latency - overshoot())
	}
}

// far waits for bytes that lie at a home, if that is another one.
func (w *Worker) far(home, bytes int) {
	if l := w.x.Link; l != nil && l.Rate > 0 && home != l.Homes[w.number] {
		team.Spin(time.Duration(float64(bytes*l.workers(w.number))/l.Rate*1e9) - overshoot())
	}
}

// overshoot is how much longer a Spin takes than it was asked to: 0.1 us, which a meeting of 0.5 us would show.
var overshoot = sync.OnceValue(func() time.Duration {
	const n, each = 200, time.Microsecond
	best := time.Hour
	for range 5 {
		start := time.Now()
		for range n {
			team.Spin(each)
		}
		best = min(best, time.Since(start)/n)
	}
	return max(0, best-each)
})
