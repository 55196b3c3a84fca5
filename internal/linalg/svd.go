package linalg

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"gonum.org/v1/gonum/lapack/gonum"
	gm "gonum.org/v1/gonum/mat"

	"ck/asm/mat"
)

// Matrix is a matrix by its rows. Reader makes a reader for one goroutine, which writes the elements of row i from column
// from on into dst, as many as it has; from is a multiple of Part.
type Matrix struct {
	Rows, Cols int
	Reader     func() func(i, from int, dst []float64)
}

// Part is what columns are cut at where rows are read in parts: a multiple of the block of each type of weights.
const Part = 256

// Options say how singular values are computed. The values do not depend on Each.
type Options struct {
	Each   Each // nil: on this goroutine
	Width  mat.Width
	Method Method
	At     func(done float64) // is told the share that is done; nil: nobody is
}

// Method is the way to singular values.
type Method int

const (
	Auto   Method = iota // Direct where both sides are at most Small, else ByGram
	Direct               // bidiagonal: small values have the precision of the largest
	ByGram               // eigenvalues of the Gram matrix of the shorter side
)

// Small is the longest side of a matrix that Auto takes Direct for.
const Small = 1024

// Of is the method that Auto takes for a matrix of that shape; others stay as they are.
func (m Method) Of(rows, cols int) Method {
	switch {
	case m != Auto:
		return m
	case max(rows, cols) <= Small:
		return Direct
	}
	return ByGram
}

// Bound is how far a singular value s may be from the true one, for the largest value of the matrix, by a method. By the
// Gram matrix small eigenvalues are off by a few units of rounding u of the largest, c*u*largest². So their root is off
// by c*u*largest²/s at most, and by sqrt(c*u)*largest, 4e-8, where nothing of s is left. Rounding errors have either
// sign and hardly add up: c was 5 at most for sides up to 1,600, and is taken as 16 (TestBound). Both ways add rounding
// errors of the iteration, of the largest value.
func (m Method) Bound(s, largest float64) float64 {
	const u, c, iteration = 0x1p-53, 16, 128
	bound := iteration * u * largest
	if m == Direct || largest == 0 {
		return bound
	}
	return bound + largest*min(math.Sqrt(c*u), c*u*largest/s)
}

// Memory is the bytes that a method takes for a matrix of that shape.
func (m Method) Memory(rows, cols int) int64 {
	short, long := int64(min(rows, cols)), int64(max(rows, cols))
	if m.Of(rows, cols) == Direct {
		return 8 * (2*short*long + 64*(short+long))
	}
	at := strideOf(int(short))
	vectors := int64(2*block + strips(int(short)) + 1)
	return 8 * (short*int64(at) + 2*staged(int(short), int(long)) + vectors*int64(at))
}

// ConvergenceError says that an iteration came to no end.
type ConvergenceError struct{ Rows, Cols int }

func (e *ConvergenceError) Error() string {
	return fmt.Sprintf("singular values of %d x %d: the iteration does not converge", e.Rows, e.Cols)
}

// RangeError says that values are too large or too small for their squares: the largest is outside 1e-60 to 1e60.
type RangeError struct{ Largest float64 }

func (e *RangeError) Error() string {
	return fmt.Sprintf("the largest element is %g: its square has no room in a Gram matrix", e.Largest)
}

// ErrNotFinite says that a matrix has a value that is NaN or infinite.
var ErrNotFinite = errors.New("has values that are not finite")

// SingularValues returns all singular values of a, in descending order, min(Rows, Cols) of them.
func SingularValues(ctx context.Context, a Matrix, opt Options) ([]float64, error) {
	opt = opt.whole()
	if min(a.Rows, a.Cols) == 0 {
		return nil, nil
	}
	if opt.Method.Of(a.Rows, a.Cols) == ByGram {
		values, err := byGram(ctx, a, opt)
		if e := (*RangeError)(nil); opt.Method != Auto || !errors.As(err, &e) {
			return values, err
		}
	}
	d, err := dense(a)
	if err != nil {
		return nil, err
	}
	var svd gm.SVD
	if !svd.Factorize(d, gm.SVDNone) {
		return nil, &ConvergenceError{a.Rows, a.Cols}
	}
	opt.At(1)
	return svd.Values(nil), context.Cause(ctx)
}

// whole gives the options that are not set.
func (o Options) whole() Options {
	if o.Each == nil {
		o.Each = Inline
	}
	if o.At == nil {
		o.At = func(float64) {}
	}
	return o
}

// dense is the whole matrix.
func dense(a Matrix) (*gm.Dense, error) {
	d := gm.NewDense(a.Rows, a.Cols, nil)
	row := a.Reader()
	for i := range a.Rows {
		r := d.RawRowView(i)
		if row(i, 0, r); slices.ContainsFunc(r, func(x float64) bool { return x-x != 0 }) {
			return nil, ErrNotFinite
		}
	}
	return d, nil
}

// byGram takes the roots of the eigenvalues of the Gram matrix.
func byGram(ctx context.Context, a Matrix, opt Options) ([]float64, error) {
	n, long := min(a.Rows, a.Cols), max(a.Rows, a.Cols)
	gram := float64(n) * float64(long) / 2 // products, as the reduction's n³/3 twice: half of them wait for memory
	share := gram / (gram + 2./3*float64(n)*float64(n))
	g := sums{make([]float64, n*strideOf(n)), strideOf(n), opt.Width}
	largest, err := gramOf(ctx, g, a, opt.Each, func(done float64) { opt.At(share * done) })
	switch {
	case err != nil:
		return nil, err
	case largest-largest != 0:
		return nil, ErrNotFinite
	case largest == 0:
		return make([]float64, n), nil
	case largest > 1e60 || largest < 1e-60:
		return nil, &RangeError{largest}
	}
	t := &tridiagonal{ctx: ctx, each: opt.Each, a: g, n: n, at: func(done float64) { opt.At(share + (1-share)*done) }}
	d, e, err := t.reduce()
	if err != nil {
		return nil, err
	}
	if !(gonum.Implementation{}).Dsterf(n, d, e) {
		return nil, &ConvergenceError{a.Rows, a.Cols}
	}
	slices.Sort(d)
	slices.Reverse(d)
	for i, x := range d {
		d[i] = math.Sqrt(max(x, 0)) // below zero by rounding alone
	}
	return d, nil
}

// strideOf is the elements between rows of a Gram matrix: a multiple of Lanes, but no power of two, of which a tile's
// rows would share the lines of a cache.
func strideOf(n int) int {
	n = (n + mat.Lanes - 1) / mat.Lanes * mat.Lanes
	if n%(64*mat.Lanes) == 0 {
		n += mat.Lanes
	}
	return n
}

// staged is the elements of a part of the matrix that is in memory at once.
func staged(short, long int) int64 {
	return int64(short+mat.Columns) * int64(min(stageDepth(short), (long+Part-1)/Part*Part))
}

// stageDepth is the rows of panels that are made at once: 32 MiB of them, and a Part at least.
func stageDepth(short int) int {
	return max(1, 32<<20/8/short/Part) * Part
}

// gramOf adds the Gram matrix of the shorter side to g, on and above the diagonal: each sum is one chain along the longer
// side. It returns the largest magnitude of an element.
func gramOf(ctx context.Context, g sums, a Matrix, each Each, at func(done float64)) (largest float64, err error) {
	x := stages{a: a, across: a.Rows < a.Cols, each: each}
	err = x.all(ctx, func(from int, part panels) error {
		if err := triangle(each, g, part, part, 0); err != nil {
			return err
		}
		at(float64(from+part.rows) / float64(max(a.Rows, a.Cols)))
		return nil
	})
	return x.largest, err
}

// stages reads a matrix once, in panels of as much of it as is in memory at once.
type stages struct {
	a       Matrix
	across  bool // panels are of rows: what is multiplied runs along them; else of columns
	each    Each
	largest float64 // magnitude of an element that was read; NaN where one is

	mu   sync.Mutex
	rows []float64
}

// all calls f with one part after the other.
func (x *stages) all(ctx context.Context, f func(from int, part panels) error) error {
	part, long := panels{n: x.a.Cols}, x.a.Rows
	if x.across {
		part.n, long = long, part.n
	}
	for from := 0; from < long; from += part.rows {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		part.rows = min(stageDepth(part.n), long-from)
		fill := func(p int, panel []float64) { x.columns(panel, p*mat.Columns, from) }
		if !x.across {
			if err := x.read(from, part.rows); err != nil {
				return err
			}
			fill = func(p int, panel []float64) { pack(panel, x.rows, p*mat.Columns, part.n, part.n) }
		}
		if err := part.fill(x.each, fill); err != nil {
			return err
		}
		if err := f(from, part); err != nil {
			return err
		}
	}
	return nil
}

// read reads n whole rows.
func (x *stages) read(from, n int) error {
	cols := x.a.Cols
	x.rows = slices.Grow(x.rows[:0], n*cols)[:n*cols]
	return x.each((n+depth-1)/depth, func(i int) {
		row, end := x.a.Reader(), min((i+1)*depth, n)
		for r := i * depth; r < end; r++ {
			row(from+r, 0, x.rows[r*cols:][:cols])
		}
		x.see(x.rows[i*depth*cols : end*cols])
	})
}

// columns makes a panel of Columns rows of the matrix, from row i on: their columns [from, ...) are the panel's rows.
func (x *stages) columns(panel []float64, i, from int) {
	row, buf := x.a.Reader(), make([]float64, len(panel)/mat.Columns)
	for c := range mat.Columns {
		if i+c >= x.a.Rows {
			clear(buf)
		} else {
			row(i+c, from, buf)
			x.see(buf)
		}
		for r, v := range buf {
			panel[r*mat.Columns+c] = v
		}
	}
}

// see keeps the largest magnitude.
func (x *stages) see(list []float64) {
	top := 0.0
	for _, v := range list {
		if v = math.Abs(v); v > top || v != v {
			top = v // NaN stays: nothing is above it
		}
	}
	x.mu.Lock()
	x.largest = max(x.largest, top)
	x.mu.Unlock()
}
