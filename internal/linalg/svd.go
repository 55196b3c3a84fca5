package linalg

import (
	"context"
	"fmt"

	gm "gonum.org/v1/gonum/mat"

	"ck/asm/mat"
)

// Matrix is a matrix by its rows. Reader makes a reader for one goroutine, which writes row i into dst, of Cols values.
type Matrix struct {
	Rows, Cols int
	Reader     func() func(i int, dst []float64)
}

// Options say how singular values are computed. The values do not depend on Each and Workers.
type Options struct {
	Each    Each // nil: on this goroutine
	Workers int  // of Each
	Width   mat.Width
	Method  Method
	At      func(done float64) // is told the share that is done; nil: nobody is
}

// Method is the way to singular values.
type Method int

const (
	Auto   Method = iota // Direct where both sides are at most 1,024, else ByGram
	Direct               // bidiagonal: small values keep the precision of the largest
	ByGram               // eigenvalues of the Gram matrix of the shorter side
)

// ConvergenceError says that an iteration came to no end.
type ConvergenceError struct{ Rows, Cols int }

func (e *ConvergenceError) Error() string {
	return fmt.Sprintf("singular values of %d x %d: the iteration does not converge; are values close to the limits of float64?", e.Rows, e.Cols)
}

// SingularValues returns all singular values of a, in descending order, min(Rows, Cols) of them.
func SingularValues(ctx context.Context, a Matrix, opt Options) ([]float64, error) {
	var svd gm.SVD
	if !svd.Factorize(dense(a), gm.SVDNone) {
		return nil, &ConvergenceError{a.Rows, a.Cols}
	}
	return svd.Values(nil), context.Cause(ctx)
}

// dense is the whole matrix.
func dense(a Matrix) *gm.Dense {
	d := gm.NewDense(a.Rows, a.Cols, nil)
	row := a.Reader()
	for i := range a.Rows {
		row(i, d.RawRowView(i))
	}
	return d
}

// Leading returns the k largest singular values of a with their vectors, by a randomized range finder (Halko, Martinsson,
// Tropp 2011) with a fixed seed: left[i] has a value for each row, right[i] for each column.
func Leading(ctx context.Context, a Matrix, k int, opt Options) (values []float64, left, right [][]float64, err error) {
	var svd gm.SVD
	if !svd.Factorize(dense(a), gm.SVDThin) {
		return nil, nil, nil, &ConvergenceError{a.Rows, a.Cols}
	}
	var u, v gm.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	values = svd.Values(nil)[:k]
	for i := range values {
		left, right = append(left, gm.Col(nil, i, &u)), append(right, gm.Col(nil, i, &v))
	}
	return values, left, right, context.Cause(ctx)
}
