package linalg

import (
	"context"
	"math"

	"ck/asm/mat"
)

// block is the columns that are reduced before the rest of the matrix is brought up to date: one pass over it for all of
// them. Their vectors, twice as many rows, should stay in the second cache.
const block = 32

// tridiagonal reduces symmetric matrices to tridiagonal form by Householder reflections, in blocks: half of the work is
// the product of the matrix and a vector, bound by memory, half is the update of rank 2*block behind each block, bound
// by arithmetic. See Golub, Van Loan, Matrix Computations, 8.3.1; Dongarra, Hammarling, Sorensen 1989.
type tridiagonal struct {
	ctx   context.Context
	each  Each
	a     sums // [n][stride]: on and above the diagonal; it is overwritten
	n     int
	v, w  [][]float64 // [block][stride] of the current block: the reflections, and A times them
	parts [][]float64 // [strips][stride]: the product of the strips and a vector
	zero  []float64   // [stride]
	none  []float64   // [2*block] zeros: factors of rows that are not added
	left  panels      // -v, -w as panels
	right panels      // w, v

	at func(done float64)
}

// reduce returns the diagonal, and what stands beside it.
func (t *tridiagonal) reduce() (d, e []float64, err error) {
	t.begin()
	d, e = make([]float64, t.n), make([]float64, max(0, t.n-1))
	for begin := 0; begin < t.n-1; begin += block {
		count := min(block, t.n-1-begin)
		for k := range count {
			if t.ctx.Err() != nil {
				return nil, nil, context.Cause(t.ctx)
			}
			i := begin + k
			row := t.a.data[i*t.a.stride:][:t.a.stride]
			t.update(row, i, k)
			d[i] = row[i]
			var tau float64
			if e[i], tau = t.reflection(row, i+1, k); tau != 0 {
				err = t.multiply(i+1, k, tau)
			}
			if err != nil {
				return nil, nil, err
			}
		}
		if err := t.apply(begin+count, count); err != nil {
			return nil, nil, err
		}
		if t.at != nil {
			left := float64(t.n-begin-count) / float64(t.n)
			t.at(1 - left*left*left)
		}
	}
	if t.n > 0 {
		d[t.n-1] = t.a.data[(t.n-1)*t.a.stride+t.n-1]
	}
	return d, e, nil
}

func (t *tridiagonal) begin() {
	rows := func(n int) [][]float64 {
		list, data := make([][]float64, n), make([]float64, n*t.a.stride)
		for i := range list {
			list[i] = data[i*t.a.stride:][:t.a.stride]
		}
		return list
	}
	t.v, t.w, t.parts, t.zero = rows(block), rows(block), rows(strips(t.n)), make([]float64, t.a.stride)
	t.none = make([]float64, 2*block)
}

// down is the multiple of Lanes at or below i: rows are aligned there. What stands before i is multiplied by zeros.
func down(i int) int { return i &^ (mat.Lanes - 1) }

// add adds c[r] times row r of list to y, from column from on, four rows a pass, and returns the products of the rows
// with x.
func (t *tridiagonal) add(y, x []float64, list [][]float64, c []float64, from int) (dots [2 * block]float64) {
	for r := 0; r < len(list); r += 4 {
		var rows [4][]float64
		var factors [4]float64
		for k := range rows {
			rows[k] = t.zero[from:]
			if r+k < len(list) {
				rows[k], factors[k] = list[r+k][from:], c[r+k]
			}
		}
		sums := mat.Rows(t.a.width, y[from:], x[from:], &rows, &factors)
		copy(dots[r:], sums[:min(4, len(list)-r)])
	}
	return dots
}

// vectors lists the first k of v, then of w.
func (t *tridiagonal) vectors(k int) [][]float64 {
	return append(append(make([][]float64, 0, 2*k), t.v[:k]...), t.w[:k]...)
}

// update brings row i up to date with the k reflections of the block before it.
func (t *tridiagonal) update(row []float64, i, k int) {
	var c [2 * block]float64
	for q := range k {
		c[q], c[k+q] = -t.w[q][i], -t.v[q][i]
	}
	t.add(row, t.zero, t.vectors(k), c[:2*k], down(i))
}

// reflection makes v[k] of a row from column i on, and returns what the row becomes: one value, with zeros behind it.
func (t *tridiagonal) reflection(row []float64, i, k int) (beta, tau float64) {
	v := t.v[k]
	clear(v[:i])
	copy(v[i:], row[i:t.n])
	clear(v[t.n:])
	clear(t.w[k])
	alpha := v[i]
	v[i] = 0
	norm := math.Sqrt(t.add(t.parts[0], v, [][]float64{v}, t.none, down(i))[0])
	if norm == 0 {
		clear(v)
		return alpha, 0
	}
	beta = -math.Copysign(math.Hypot(alpha, norm), alpha)
	scale := 1 / (alpha - beta)
	for j := i + 1; j < t.n; j++ {
		v[j] *= scale
	}
	v[i] = 1
	return beta, (beta - alpha) / beta
}

// strips is the parts of a product with n rows: of the same number of elements, each with sums of its own.
func strips(n int) int { return max(1, min(n/128, 32)) }

// multiply makes w[k] of v[k] for the rows from i on: tau times (A - V Wᵀ - W Vᵀ) v, less what is along v.
func (t *tridiagonal) multiply(i, k int, tau float64) error {
	v, w, from := t.v[k], t.w[k], down(i)
	rows := t.n - i
	count := strips(rows)
	begin := func(s int) int { // strip s of a triangle begins where so much of it lies before
		return i + int(float64(rows)*(1-math.Sqrt(1-float64(s)/float64(count))))&^3
	}
	strip := func(s int) {
		end := t.n
		if s+1 < count {
			end = begin(s + 1)
		}
		t.strip(t.parts[s], v, begin(s), end)
	}
	if count == 1 {
		strip(0)
	} else if err := t.each(count, strip); err != nil {
		return err
	}
	var ones, c [2 * block]float64
	for s := range count {
		ones[s] = 1
	}
	t.add(w, t.zero, t.parts[:count], ones[:count], from)
	list := t.vectors(k)
	dots := t.add(t.parts[0], v, list, t.none, from)
	for q := range k {
		c[q], c[k+q] = -dots[k+q], -dots[q]
	}
	t.add(w, t.zero, list, c[:2*k], from)
	clear(w[:i])
	clear(w[t.n:])
	for j := i; j < t.n; j++ {
		w[j] *= tau
	}
	along := -tau / 2 * t.add(t.parts[0], v, [][]float64{w}, t.none, from)[0]
	t.add(w, t.zero, [][]float64{v}, []float64{along}, from)
	return nil
}

// strip makes y the part of A v that the rows [begin, end) of the triangle have: each element counts for its row and,
// beside the diagonal, for its column.
func (t *tridiagonal) strip(y, v []float64, begin, end int) {
	clear(y)
	one := func(r, from, to int) { // row r, columns [from, to)
		row := t.a.data[r*t.a.stride:]
		sum := 0.0
		for j := from; j < to; j++ {
			sum = math.FMA(row[j], v[j], sum)
			if j > r {
				y[j] = math.FMA(row[j], v[r], y[j])
			}
		}
		y[r] += sum
	}
	var rows [4][]float64
	var factors [4]float64
	for r := begin; r < end; r += 4 {
		from := min(down(r+4+mat.Lanes-1), t.n)
		for k := range min(4, end-r) {
			one(r+k, r+k, from)
		}
		if end-r < 4 {
			for k := range end - r {
				one(r+k, from, t.n)
			}
			return
		}
		for k := range rows {
			rows[k], factors[k] = t.a.data[(r+k)*t.a.stride+from:][:t.n-from], v[r+k]
		}
		sums := mat.Rows(t.a.width, y[from:t.n], v[from:t.n], &rows, &factors)
		for k := range rows {
			y[r+k] += sums[k]
		}
	}
}

// apply brings the rows from i on up to date with all reflections of a block: A - V Wᵀ - W Vᵀ.
func (t *tridiagonal) apply(i, count int) error {
	first := i / mat.Columns
	fill := func(x *panels, lists [2][][]float64, sign float64) error {
		x.n, x.rows = t.n, 2*count
		return x.fill(t.each, func(p int, panel []float64) {
			if p < first {
				return
			}
			c := p * mat.Columns
			for r := range 2 * count {
				from, to := lists[r/count][r%count][c:min(c+mat.Columns, t.n)], panel[r*mat.Columns:][:mat.Columns]
				for j, x := range from {
					to[j] = sign * x
				}
				clear(to[len(from):])
			}
		})
	}
	if err := fill(&t.left, [2][][]float64{t.v[:count], t.w[:count]}, -1); err != nil {
		return err
	}
	if err := fill(&t.right, [2][][]float64{t.w[:count], t.v[:count]}, 1); err != nil {
		return err
	}
	return triangle(t.each, t.a, t.left, t.right, first)
}
