package walk

import (
	"sync"
	"sync/atomic"
	"testing"

	"ck/internal/plan"
)

// TestShareClaims: whoever comes when, or not at all, each unit of an item is claimed once, and in multiples of the grain.
func TestShareClaims(t *testing.T) {
	const workers = 4
	parts := make([]claims, workers)
	gen := uint64(1<<22 - 50) // numbers come round
	for _, units := range []int{0, 1, 3, 4, 5, 64, 1000, 20000} {
		for _, grain := range []int{1, 2, 7, 5000} {
			for missing := -1; missing < workers; missing++ {
				gen++
				seen := make([]atomic.Uint32, units)
				var wg sync.WaitGroup
				for w := range workers {
					if w == missing {
						continue
					}
					wg.Go(func() {
						for n := range workers {
							of := (w + n) % workers
							lo, hi := plan.Deal(units, of, workers)
							for {
								a, b := parts[of].take(gen, lo, hi, grain, n == 0)
								if a == b {
									break
								}
								if n := b - a; n%grain != 0 && n > grain {
									t.Errorf("a claim of %d units, grain %d", n, grain)
								}
								for i := a; i < b; i++ {
									seen[i].Add(1)
								}
							}
						}
					})
				}
				wg.Wait()
				for i := range seen {
					if n := seen[i].Load(); n != 1 {
						t.Fatalf("%d units, grain %d, worker %d missing: unit %d claimed %d times", units, grain, missing, i, n)
					}
				}
			}
		}
	}
}
