package measure

import (
	"sync"

	"ck/internal/inspect"
)

// progress returns what any goroutine tells that a matrix is done.
func (r *run) progress() func(i int) {
	var mu sync.Mutex
	total, done := 0.0, 0.0
	for i := range r.list {
		total += work(&r.list[i])
	}
	return func(i int) {
		mu.Lock()
		defer mu.Unlock()
		done += work(&r.list[i])
		r.opt.At(pairShare + (1-pairShare)*done/total)
	}
}

// work is about what a matrix costs: both sides once, the shorter one twice.
func work(x *inspect.Matrix) float64 {
	return float64(x.Size()) * float64(min(x.Rows, x.Cols))
}
