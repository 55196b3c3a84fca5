package entropy

import (
	"context"
	"math"
	"sync"

	"ck/internal/entropycode"
	"ck/internal/gguf"
	"ck/internal/quant"
)

// Full is the parts of a tensor, what a coder makes of it, and its values in 256 bins.
type Full struct {
	Tensor
	Coded     float64 // bits a weight by entropycode, as ckquant --compress stores it
	Histogram float64 // bits of HistogramBits; NaN where a value is not finite
}

// FullOf measures one tensor, through workers goroutines.
func FullOf(ctx context.Context, m *gguf.Model, t *gguf.Tensor, workers int) (Full, error) {
	parts, err := ofTensor(ctx, m, t, workers)
	if err != nil {
		return Full{}, err
	}
	out := Full{Tensor: parts}
	rowBytes := int(t.Bytes()) / t.Rows()
	each := max(1, chunkBytes/rowBytes)
	h, coded := newHistogram(), int64(0)
	var mu sync.Mutex
	err = chunks(ctx, m, t, workers, each, func() func(rows []byte) {
		var own histogram = *newHistogram()
		var coder entropycode.Coder
		var x []float32
		var buf []byte
		return func(rows []byte) {
			if cap(x) < each*t.Cols() {
				x = make([]float32, each*t.Cols())
			}
			values := x[:len(rows)/rowBytes*t.Cols()]
			quant.Decode(t.Type, values, rows)
			own.see(values)
			buf = coder.Append(buf[:0], t.Type, rows)
			mu.Lock()
			h.lo, h.hi, h.bad = min(h.lo, own.lo), max(h.hi, own.hi), h.bad || own.bad
			coded += int64(len(buf))
			mu.Unlock()
		}
	})
	if err != nil {
		return out, err
	}
	out.Coded = 8 * float64(coded) / float64(out.Weights)
	if h.bad {
		out.Histogram = math.NaN()
		return out, nil
	}
	err = chunks(ctx, m, t, workers, each, func() func(rows []byte) {
		own := &histogram{lo: h.lo, hi: h.hi}
		x := make([]float32, each*t.Cols())
		return func(rows []byte) {
			values := x[:len(rows)/rowBytes*t.Cols()]
			quant.Decode(t.Type, values, rows)
			clear(own.counts[:])
			own.add(values)
			mu.Lock()
			for i, n := range own.counts {
				h.counts[i] += n
			}
			mu.Unlock()
		}
	})
	out.Histogram = h.bits()
	return out, err
}

// chunks deals chunks of so many rows to workers; each makes its own f, which is told the bytes of one chunk after the
// other.
func chunks(ctx context.Context, m *gguf.Model, t *gguf.Tensor, workers, each int, f func() func(rows []byte)) error {
	var mu sync.Mutex
	var failed error
	next := 0
	var wg sync.WaitGroup
	for range max(1, min(workers, (t.Rows()+each-1)/each)) {
		wg.Go(func() {
			own, rows := f(), t.Reader()
			err := m.Guard(func() error {
				for {
					mu.Lock()
					from, stop := next, failed != nil
					next += each
					mu.Unlock()
					if from >= t.Rows() || stop {
						return nil
					}
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					own(rows.Rows(from, min(each, t.Rows()-from)))
				}
			})
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return failed
}
