package linalg

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	gm "gonum.org/v1/gonum/mat"

	"ck/asm/mat"
)

const (
	// oversampling is the directions that are followed beside those asked for.
	oversampling = 16
	// powers is how often the directions are multiplied by A and by Aᵀ: the share of a direction of value s falls by
	// (s/s1)^(2*powers+1) against that of the largest.
	powers = 6
	// least is the value, for the largest, below which directions are rounding errors.
	least = 1e-6
)

// Leading returns about the k largest singular values of a with their vectors: left[i] has a value for each row, right[i]
// for each column. They come from a randomized range finder with a fixed seed (Halko, Martinsson, Tropp 2011): values
// are never too large; where the spectrum is flat, vectors are a mixture of those of near values. Vectors of one side
// are orthonormal; those of values below 1e-6 of the largest are zeros.
func Leading(ctx context.Context, a Matrix, k int, opt Options) (values []float64, left, right [][]float64, err error) {
	opt = opt.whole()
	k = min(k, a.Rows, a.Cols)
	l := &leading{ctx, a, opt, min(k+oversampling, a.Rows, a.Cols), 0, nil, nil}
	rng := rand.New(rand.NewPCG(0x5eed, 0x1ead))
	q := l.matrix(a.Cols)
	for i := range q.data {
		q.data[i] = rng.NormFloat64()
	}
	for range powers {
		if q, err = l.turn(q); err != nil {
			return nil, nil, nil, err
		}
	}
	if q, err = l.orthonormal(q); err != nil {
		return nil, nil, nil, err
	}
	y, err := l.times(q, true)
	if err != nil {
		return nil, nil, nil, err
	}
	return l.vectors(y, q, k)
}

// leading is one search.
type leading struct {
	ctx   context.Context
	a     Matrix
	opt   Options
	width int // directions
	done  int // passes over the matrix

	scratch, other []float64
}

// matrix makes one of n rows.
func (l *leading) matrix(n int) sums {
	return sums{make([]float64, n*l.width), l.width, l.opt.Width}
}

// turn is Aᵀ A q, with directions made orthonormal before each product.
func (l *leading) turn(q sums) (sums, error) {
	for _, across := range []bool{true, false} {
		basis, err := l.orthonormal(q)
		if err != nil {
			return q, err
		}
		if q, err = l.times(basis, across); err != nil {
			return q, err
		}
	}
	return q, nil
}

// times is A q, or Aᵀ q where A is not read across.
func (l *leading) times(q sums, across bool) (sums, error) {
	n := l.a.Cols
	if across {
		n = l.a.Rows
	}
	c := l.matrix(n)
	x := stages{a: l.a, across: across, each: l.opt.Each}
	err := x.all(l.ctx, func(from int, part panels) error {
		other, err := l.pack(&l.scratch, q.data[from*l.width:], part.rows)
		if err != nil {
			return err
		}
		return product(l.opt.Each, c, part, other)
	})
	if err == nil && x.largest-x.largest != 0 {
		err = ErrNotFinite
	}
	l.done++
	l.opt.At(float64(l.done) / (2*powers + 1))
	return c, err
}

// pack makes panels of the first rows of a matrix of directions, in memory that is kept.
func (l *leading) pack(memory *[]float64, rows []float64, n int) (panels, error) {
	x := panels{n: l.width, rows: n, data: *memory}
	err := x.fill(l.opt.Each, func(p int, panel []float64) { pack(panel, rows, p*mat.Columns, l.width, l.width) })
	*memory = x.data
	return x, err
}

// orthonormal makes the columns of y orthonormal, twice, by the eigenvectors of yᵀy. Directions that are rounding errors
// become zeros.
func (l *leading) orthonormal(y sums) (sums, error) {
	for range 2 {
		values, vectors, err := l.axes(y)
		if err != nil {
			return y, err
		}
		for i, v := range values {
			scale := 0.0
			if v > least*values[0] {
				scale = 1 / v
			}
			for r := range l.width {
				vectors.data[r*l.width+i] *= scale
			}
		}
		if y, err = l.turned(y, vectors); err != nil {
			return y, err
		}
	}
	return y, nil
}

// axes is the singular values of y, descending, and its right vectors as columns: from the eigenvectors of yᵀy.
func (l *leading) axes(y sums) ([]float64, sums, error) {
	n := l.width
	g, err := l.cross(y, y)
	if err != nil {
		return nil, g, err
	}
	var eigen gm.EigenSym
	if !eigen.Factorize(gm.NewSymDense(n, g.data), true) {
		return nil, g, &ConvergenceError{l.a.Rows, l.a.Cols}
	}
	values := eigen.Values(nil)
	slices.Reverse(values)
	var v gm.Dense
	eigen.VectorsTo(&v)
	for i, x := range values {
		values[i] = math.Sqrt(max(0, x))
		for r := range n {
			g.data[r*n+i] = v.At(r, n-1-i)
		}
	}
	return values, g, nil
}

// cross is xᵀy.
func (l *leading) cross(x, y sums) (sums, error) {
	g, n := l.matrix(l.width), l.width
	rows := len(y.data) / n
	for from := 0; from < rows; from += stageDepth(n) {
		part := min(stageDepth(n), rows-from)
		a, err := l.pack(&l.scratch, x.data[from*n:], part)
		if err != nil {
			return g, err
		}
		b, err := l.pack(&l.other, y.data[from*n:], part)
		if err == nil {
			err = product(l.opt.Each, g, a, b)
		}
		if err != nil {
			return g, err
		}
	}
	return g, nil
}

// turned is y v.
func (l *leading) turned(y, v sums) (sums, error) {
	n := l.width
	rows := len(y.data) / n
	c := l.matrix(rows)
	x := Matrix{rows, n, func() func(i, from int, dst []float64) {
		return func(i, from int, dst []float64) { copy(dst, y.data[i*n+from:]) }
	}}
	s := stages{a: x, across: true, each: l.opt.Each}
	return c, s.all(l.ctx, func(from int, part panels) error {
		other, err := l.pack(&l.scratch, v.data[from*n:], part.rows)
		if err != nil {
			return err
		}
		return product(l.opt.Each, c, part, other)
	})
}

// vectors are the first k values and vectors of y qᵀ, where q is orthonormal: those of Qᵀy for an orthonormal basis Q of y.
func (l *leading) vectors(y, q sums, k int) (values []float64, left, right [][]float64, err error) {
	basis, err := l.orthonormal(y)
	if err != nil {
		return nil, nil, nil, err
	}
	small, err := l.cross(basis, y)
	if err != nil {
		return nil, nil, nil, err
	}
	n := l.width
	var svd gm.SVD
	if !svd.Factorize(gm.NewDense(n, n, small.data), gm.SVDThin) {
		return nil, nil, nil, &ConvergenceError{l.a.Rows, l.a.Cols}
	}
	var u, v gm.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	if y, err = l.turned(basis, sums{u.RawMatrix().Data, n, y.width}); err == nil {
		q, err = l.turned(q, sums{v.RawMatrix().Data, n, y.width})
	}
	if err != nil {
		return nil, nil, nil, err
	}
	values = svd.Values(nil)[:k]
	for i, x := range values {
		left, right = append(left, l.column(y, i)), append(right, l.column(q, i))
		if x <= least*values[0] {
			values[i] = 0
			clear(left[i])
			clear(right[i])
		}
	}
	return values, left, right, nil
}

func (l *leading) column(x sums, i int) []float64 {
	c := make([]float64, len(x.data)/l.width)
	for r := range c {
		c[r] = x.data[r*l.width+i]
	}
	return c
}
