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

	// Output is the mean square of the error of the outputs over that of A's outputs, for the inputs that Options.Inputs
	// tells: (A-B) H (A-B)ᵀ over A H Aᵀ, with the covariance H of the inputs, or its diagonal. Negative: not told.
	Output float64
}

// Inputs is what is known of the inputs of a matrix of n columns.
type Inputs struct {
	Squares    []float64 // [n] of each column, up to a factor
	Covariance []float64 // [n][n], in place of Squares; nil: inputs are taken as independent
}

// Options are what Of may have beside two models.
type Options struct {
	Workers int
	At      func(elements int64)               // is told how many elements of A are done; nil: nobody is
	Inputs  func(tensor string, n int) *Inputs // of a tensor of n columns; nil, or nil for a tensor: not known
	Shapes  bool                               // tensors of different shapes are listed, not refused
	Match   func(tensor string) bool           // which tensors are compared; nil: all
}

// Report is the distance of models.
type Report struct {
	Tensors      []Tensor
	OnlyA, OnlyB []string // names of tensors that the other model lacks
	Shapes       []*ShapeError
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
type sums struct {
	signal, noise, max float64
	out, outNoise      float64 // of the outputs
}

// Of compares all tensors that both models have. The sums are over fixed chunks in their order: the same for any number
// of workers.
func Of(ctx context.Context, a, b *gguf.Model, opt Options) (*Report, error) {
	r := &Report{}
	var pairs [][2]*gguf.Tensor
	matches := func(t *gguf.Tensor) bool { return opt.Match == nil || opt.Match(t.Name) }
	for _, t := range a.Tensors {
		o := b.Tensor(t.Name)
		switch {
		case !matches(t):
		case o == nil:
			r.OnlyA = append(r.OnlyA, t.Name)
		case !slices.Equal(t.Shape, o.Shape):
			if r.Shapes = append(r.Shapes, &ShapeError{t.Name, t.Shape, o.Shape}); !opt.Shapes {
				return nil, r.Shapes[0]
			}
		default:
			pairs = append(pairs, [2]*gguf.Tensor{t, o})
		}
	}
	for _, t := range b.Tensors {
		if a.Tensor(t.Name) == nil && matches(t) {
			r.OnlyB = append(r.OnlyB, t.Name)
		}
	}
	done := int64(0)
	for _, p := range pairs {
		t, err := ofTensor(ctx, a, b, p, opt)
		if err != nil {
			return nil, err
		}
		r.Tensors = append(r.Tensors, t)
		if done += t.Elements; opt.At != nil {
			opt.At(done)
		}
	}
	return r, nil
}

// chunkElems is the elements of a chunk, about.
const chunkElems = 1 << 16

// ofTensor compares a tensor.
func ofTensor(ctx context.Context, a, b *gguf.Model, p [2]*gguf.Tensor, opt Options) (Tensor, error) {
	rows, cols := p[0].Rows(), p[0].Cols()
	var inputs *Inputs
	if opt.Inputs != nil {
		inputs = opt.Inputs(p[0].Name, cols)
	}
	each := max(1, chunkElems/cols)
	chunks := make([]sums, (rows+each-1)/each)
	var mu sync.Mutex
	var failed error
	next := 0
	var wg sync.WaitGroup
	for range max(1, min(opt.Workers, len(chunks))) {
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
						if inputs != nil {
							inputs.outputs(&chunks[i], x[:(to-from)*cols], y[:(to-from)*cols], cols)
						}
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
		all.out, all.outNoise = all.out+c.out, all.outNoise+c.outNoise
	}
	output := -1.0
	if inputs != nil && all.out > 0 {
		output = all.outNoise / all.out
	}
	n := int64(rows) * int64(cols)
	return Tensor{Name: p[0].Name, A: p[0].Type, B: p[1].Type, Shape: p[0].Shape, Elements: n,
		RMSE: math.Sqrt(all.noise / float64(n)), Max: all.max,
		SNR: 10 * math.Log10(all.signal/all.noise), Output: output}, failed
}

// outputs adds the squares of the outputs of rows of A, and of their errors.
func (in *Inputs) outputs(s *sums, x, y []float32, cols int) {
	d := make([]float64, cols)
	v := make([]float64, cols)
	for at := 0; at < len(x); at += cols {
		for j := range cols {
			v[j] = float64(x[at+j])
			d[j] = v[j] - float64(y[at+j])
		}
		s.out += in.square(v)
		s.outNoise += in.square(d)
	}
}

// square is the mean square of the output of a row, up to a factor.
func (in *Inputs) square(w []float64) (sum float64) {
	if in.Covariance == nil {
		for j, x := range w {
			sum += float64(float64(x*x) * in.Squares[j])
		}
		return sum
	}
	n := len(w)
	for i, x := range w {
		part := 0.0
		for j, h := range in.Covariance[i*n : (i+1)*n] {
			part += float64(h * w[j])
		}
		sum += float64(x * part)
	}
	return sum
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
