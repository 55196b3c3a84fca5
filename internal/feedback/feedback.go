// Package feedback chooses the codes of quantized rows column by column, and lets the columns to come make up for the
// error of those that are done, as far as their inputs go together (Frantar, Ashkboos, Hoefler, Alistarh: GPTQ,
// 2023). Format, scales and decoder stay those of the block types: what it writes loads everywhere.
//
// What is made small is the error of the output of a matrix W over its calibration inputs X: (W-Q) H (W-Q)ᵀ, summed
// over rows, with the covariance H = XᵀX. For each row: the scales of a block are searched on its weights as
// corrected until there, weighed by the diagonal of H; then each column takes its nearest code, and its error,
// divided by U[j,j], is taken from the columns k behind it, times U[j,k]. U is the upper triangular matrix with H⁻¹ =
// UᵀU.
package feedback

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"

	"ck/internal/quant"
)

// Damping is the part of the mean of H's diagonal that is added to it: directions that calibration never showed are
// no free choice.
const Damping = 0.01

// batch is the columns whose corrections are applied one by one; those behind them get the corrections of a batch at
// once.
const batch = 256

// Encoder quantizes rows of one matrix. Several goroutines may use it, each with a Buffer of its own.
type Encoder struct {
	typ        quant.Type
	cols       int
	u          []float32 // cols × cols, by rows, upper triangle
	importance []float32 // of the columns, for the search of scales
	levels     []float32
	a, b       byte // two codes of neighbouring levels, the first of smallest magnitude
}

// Buffer is the memory of a goroutine.
type Buffer struct {
	x, e          blas32.General
	value, step   [2][256]float32
	codes         [256]byte
	errorsOfBatch []float32
}

// New prepares the quantization of a matrix to t. h is the covariance of its inputs, cols × cols, by rows; it is
// overwritten. Columns that were never seen have no say.
func New(t quant.Type, h []float64, cols int) (*Encoder, error) {
	if len(h) != cols*cols {
		panic(fmt.Sprintf("feedback: a covariance of %d values for %d columns", len(h), cols))
	}
	e := &Encoder{typ: t, cols: cols, levels: t.Levels()}
	if e.levels == nil {
		return nil, fmt.Errorf("%v has no codes that can be chosen one by one; take %s, or --method search", t,
			"Q2_K to Q6_K, Q4_0 to Q8_0, IQ4_NL or IQ4_XS")
	}
	for i, l := range e.levels {
		if math.Abs(float64(l)) < math.Abs(float64(e.levels[e.a])) {
			e.a = byte(i)
		}
	}
	if e.b = e.a + 1; int(e.b) == len(e.levels) {
		e.b = e.a - 1
	}
	var sum float64
	e.importance = make([]float32, cols)
	for j := range cols {
		d := h[j*cols+j]
		if d < 0 || d-d != 0 {
			return nil, fmt.Errorf("the covariance of column %d is %g", j, d)
		}
		e.importance[j] = float32(d)
		sum += d
	}
	if sum == 0 {
		return nil, fmt.Errorf("the covariance is zero: the calibration never reached this matrix")
	}
	damp := Damping * sum / float64(cols)
	for j := range cols {
		h[j*cols+j] += damp
	}
	return e, e.factor(h)
}

// factor makes U of H. With H = R Rᵀ, R upper triangular, U is R⁻¹. R is the Cholesky factor of H with rows and
// columns in reverse, read backwards; LAPACK makes that.
func (e *Encoder) factor(h []float64) error {
	n := e.cols
	for i := range n * n / 2 {
		h[i], h[n*n-1-i] = h[n*n-1-i], h[i]
	}
	// The reverse of the symmetric H is symmetric; its lower factor L gives R[i,j] = L[n-1-i, n-1-j].
	l, ok := lapack64.Potrf(blas64.Symmetric{N: n, Stride: n, Data: h, Uplo: blas.Lower})
	if !ok {
		return fmt.Errorf("the covariance of %d columns is not positive definite, for all its damping; take more "+
			"text", n)
	}
	l.Diag = blas.NonUnit
	if !lapack64.Trtri(l) {
		return fmt.Errorf("the factor of the covariance of %d columns has no inverse; take more text", n)
	}
	e.u = make([]float32, n*n)
	for i := range n {
		for j := i; j < n; j++ {
			e.u[i*n+j] = float32(h[(n-1-i)*n+n-1-j])
		}
	}
	return nil
}

// Encode quantizes rows of x, which it overwrites, to dst.
func (e *Encoder) Encode(dst []byte, x []float32, buf *Buffer) error {
	rows := len(x) / e.cols
	rowBytes := e.typ.RowBytes(e.cols)
	buf.x = blas32.General{Rows: rows, Cols: e.cols, Stride: e.cols, Data: x}
	for from := 0; from < e.cols; from += batch {
		to := min(from+batch, e.cols)
		buf.e = blas32.General{Rows: rows, Cols: to - from, Stride: to - from, Data: buf.errors(rows * (to - from))}
		for r := range rows {
			row := x[r*e.cols:][:e.cols]
			if err := e.columns(dst[r*rowBytes:][:rowBytes], row, buf.e.Data[r*(to-from):][:to-from], from, to,
				buf); err != nil {
				return fmt.Errorf("row %d: %w", r, err)
			}
		}
		if to < e.cols {
			rest := blas32.General{Rows: rows, Cols: e.cols - to, Stride: e.cols, Data: x[to:]}
			u := blas32.General{Rows: to - from, Cols: e.cols - to, Stride: e.cols, Data: e.u[from*e.cols+to:]}
			blas32.Gemm(blas.NoTrans, blas.NoTrans, -1, buf.e, u, 1, rest)
		}
	}
	return nil
}

// errors is memory for the errors of a batch.
func (b *Buffer) errors(n int) []float32 {
	if cap(b.errorsOfBatch) < n {
		b.errorsOfBatch = make([]float32, n)
	}
	return b.errorsOfBatch[:n]
}

// columns quantizes the columns [from, to) of a row and corrects those behind each within the batch; errs gets the
// errors, each divided by its U[j,j].
func (e *Encoder) columns(dst []byte, row, errs []float32, from, to int, buf *Buffer) error {
	elems, size := e.typ.BlockElems(), e.typ.BlockBytes()
	for at := from; at < to; at += elems {
		block := dst[at/elems*size:][:size]
		x := row[at : at+elems]
		if err := quant.Quantize(e.typ, block, x, e.importance[at:at+elems]); err != nil {
			return err
		}
		e.grid(block, elems, buf)
		for i := range elems {
			j := at + i
			code := e.nearest(row[j], buf.value[0][i], buf.step[0][i])
			buf.codes[i] = code
			value := buf.value[0][i] + float32(buf.step[0][i]*e.levels[code])
			u := e.u[j*e.cols:][:to]
			diff := (row[j] - value) / u[j]
			errs[j-from] = diff
			for k := j + 1; k < to; k++ {
				row[k] -= float32(diff * u[k])
			}
		}
		quant.SetCodes(e.typ, block, buf.codes[:elems])
	}
	return nil
}

// grid finds what the elements of a block can be: value[0] + step[0]*level. It decodes the block with two codes
// throughout.
func (e *Encoder) grid(block []byte, elems int, buf *Buffer) {
	for i, code := range []byte{e.a, e.b} {
		for j := range elems {
			buf.codes[j] = code
		}
		quant.SetCodes(e.typ, block, buf.codes[:elems])
		quant.Decode(e.typ, buf.value[i][:elems], block)
	}
	for j := range elems {
		step := (buf.value[1][j] - buf.value[0][j]) / (e.levels[e.b] - e.levels[e.a])
		buf.step[0][j] = step
		buf.value[0][j] -= float32(step * e.levels[e.a])
	}
}

// nearest is the code whose value is nearest to x.
func (e *Encoder) nearest(x, low, step float32) byte {
	if step == 0 {
		return e.a
	}
	l := (x - low) / step
	if n := len(e.levels); e.levels[n-1]-e.levels[0] == float32(n-1) { // all one apart
		return byte(max(0, min(n-1, int(math.RoundToEven(float64(l-e.levels[0]))))))
	}
	best := 0
	for i, v := range e.levels {
		if math.Abs(float64(v-l)) < math.Abs(float64(e.levels[best]-l)) {
			best = i
		}
	}
	return byte(best)
}

// Error is the error of the output over the calibration inputs, relative to the output: the sum over rows of (w-q) H
// (w-q)ᵀ, over that of w H wᵀ. w and q are rows of cols columns, h as New takes it, undamped.
func Error(w, q []float32, h []float64, cols int) float64 {
	var wrong, all float64
	d := make([]float64, cols)
	hd := make([]float64, cols)
	form := func(v []float64) float64 {
		blas64.Symv(1, blas64.Symmetric{N: cols, Stride: cols, Data: h, Uplo: blas.Upper},
			blas64.Vector{N: cols, Data: v, Inc: 1}, 0,
			blas64.Vector{N: cols, Data: hd, Inc: 1})
		return blas64.Dot(blas64.Vector{N: cols, Data: v, Inc: 1}, blas64.Vector{N: cols, Data: hd, Inc: 1})
	}
	for r := range len(w) / cols {
		for j := range d {
			d[j] = float64(w[r*cols+j]) - float64(q[r*cols+j])
		}
		wrong += form(d)
		for j := range d {
			d[j] = float64(w[r*cols+j])
		}
		all += form(d)
	}
	return wrong / all
}
