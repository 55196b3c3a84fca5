// Package distance says how far the weights of two models are apart, tensor by tensor.
package distance

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// Tensor is the distance of a tensor of B from that of the same name of A.
type Tensor struct {
	Name     string
	A, B     quant.Type
	Shape    []int
	Elements int64
	RMSE     float64 // root of the mean of the squared differences
	Max      float64 // the largest difference
	SNR      float64 // of A's values to the differences, in decibels; infinite where there is none
}

// Report is the distance of models.
type Report struct {
	Tensors      []Tensor
	OnlyA, OnlyB []string // names of tensors that the other model lacks
}

// ShapeError says that tensors of one name have different shapes: they are of different models.
type ShapeError struct {
	Name string
	A, B []int
}

func (e *ShapeError) Error() string {
	return fmt.Sprintf("tensor %s: is %v in one model and %v in the other; compare files of one model", e.Name, e.A,
		e.B)
}

// sums are those over the elements of a chunk.
type sums struct{ signal, noise, max float64 }

// Of compares all tensors that both models have, through workers goroutines. The sums are over fixed chunks in their
// order: the same for any number of workers. at is told how many elements of A are done.
func Of(ctx context.Context, a, b *gguf.Model, workers int, at func(elements int64)) (*Report, error) {
	r := &Report{}
	var pairs [][2]*gguf.Tensor
	for _, t := range a.Tensors {
		o := b.Tensor(t.Name)
		switch {
		case o == nil:
			r.OnlyA = append(r.OnlyA, t.Name)
		case !slices.Equal(t.Shape, o.Shape):
			return nil, &ShapeError{t.Name, t.Shape, o.Shape}
		default:
			pairs = append(pairs, [2]*gguf.Tensor{t, o})
		}
	}
	for _, t := range b.Tensors {
		if a.Tensor(t.Name) == nil {
			r.OnlyB = append(r.OnlyB, t.Name)
		}
	}
	done := int64(0)
	for _, p := range pairs {
		t, err := ofTensor(ctx, a, b, p, workers)
		if err != nil {
			return nil, err
		}
		r.Tensors = append(r.Tensors, t)
		done += t.Elements
		at(done)
	}
	return r, nil
}

// chunkElems is the elements of a chunk, about.
const chunkElems = 1 << 16

// ofTensor compares a tensor.
func ofTensor(ctx context.Context, a, b *gguf.Model, p [2]*gguf.Tensor, workers int) (Tensor, error) {
	rows, cols := p[0].Rows(), p[0].Cols()
	each := max(1, chunkElems/cols)
	chunks := make([]sums, (rows+each-1)/each)
	var mu sync.Mutex
	var failed error
	next := 0
	var wg sync.WaitGroup
	for range max(1, min(workers, len(chunks))) {
		wg.Go(func() {
			x, y := make([]float32, each*cols), make([]float32, each*cols)
			xRows, yRows := p[0].Reader(), p[1].Reader()
			err := a.Guard(func() error {
				return b.Guard(func() error {
					for {
						mu.Lock()
						i := next
						next++
						stop := failed != nil
						mu.Unlock()
						if i >= len(chunks) || stop {
							return nil
						}
						if ctx.Err() != nil {
							return context.Cause(ctx)
						}
						from, to := i*each, min((i+1)*each, rows)
						decode(x, p[0], xRows, from, to)
						decode(y, p[1], yRows, from, to)
						chunks[i] = compare(x[:(to-from)*cols], y[:(to-from)*cols])
					}
				})
			})
			mu.Lock()
			if failed == nil {
				failed = err
			}
			mu.Unlock()
		})
	}
	wg.Wait()
	var all sums
	for _, c := range chunks {
		all.signal, all.noise, all.max = all.signal+c.signal, all.noise+c.noise, math.Max(all.max, c.max)
	}
	n := int64(rows) * int64(cols)
	return Tensor{Name: p[0].Name, A: p[0].Type, B: p[1].Type, Shape: p[0].Shape, Elements: n,
		RMSE: math.Sqrt(all.noise / float64(n)), Max: all.max,
		SNR: 10 * math.Log10(all.signal/all.noise)}, failed
}

// decode is rows of a tensor, in GGUF's order.
func decode(dst []float32, t *gguf.Tensor, rows *gguf.Reader, from, to int) {
	cols := t.Cols()
	for r := from; r < to; r++ {
		quant.Decode(t.Type, dst[(r-from)*cols:(r-from+1)*cols], rows.Row(r))
	}
}

// compare sums up a chunk. NaN where one of the values is none, or infinite.
func compare(x, y []float32) (s sums) {
	for i, v := range x {
		d := math.Abs(float64(v) - float64(y[i]))
		s.signal += float64(v) * float64(v)
		s.noise += d * d
		s.max = math.Max(s.max, d)
	}
	return s
}
