// Package measure takes the figures that claims are judged by from a model's weights.
package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	lanes "ck/asm/mat"
	"ck/internal/correlate"
	"ck/internal/entropy"
	"ck/internal/inspect"
	"ck/internal/linalg"
	"ck/internal/spectra"
	"ck/internal/spectrum"
	"ck/internal/verdict"
)

// Options say how weights are measured.
type Options struct {
	Workers int
	Width   lanes.Width
	Memory  int64              // bytes that may be taken; 0: any
	All     bool               // every matrix, of large models too
	At      func(done float64) // is told the share that is done; nil: nobody is
}

// Left is a matrix that could not be measured.
type Left struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

const (
	wholeWeights = 32 << 20 // of a model with no more weights in layers every matrix is decomposed
	narrowest    = 16       // shorter side: the routers of experts and the filters of convolutions are no matrices here
	lowRank      = 0.05     // of the shorter side: the rank that claims are about
	sparse       = 0.01     // of the elements: the largest of the rest
	sideBySide   = 1024     // matrices with a shorter side up to it are measured a worker each
)

// Weights adds the figures of matrices and of pairs of layers to f. It returns the matrices whose values cannot be
// measured. Figures do not depend on the number of workers.
func Weights(ctx context.Context, m *inspect.Model, list []inspect.Matrix, f *verdict.Figures, opt Options) ([]Left, error) {
	if opt.At == nil {
		opt.At = func(float64) {}
	}
	chosen := layered(list)
	whole := len(chosen)
	if !opt.All {
		chosen = sample(chosen)
	}
	if len(chosen) < whole {
		f.Sample = fmt.Sprintf("%d of %d matrices: first, middle and last layer of each class", len(chosen), whole)
	}
	if err := check(chosen, opt.Memory); err != nil {
		return nil, err
	}
	r := &run{ctx: ctx, m: m, opt: opt, list: chosen, found: make([]verdict.Matrix, len(chosen)), why: make([]string, len(chosen))}
	if err := r.pairs(list, f); err != nil {
		return nil, err
	}
	if err := r.matrices(); err != nil {
		return nil, err
	}
	left := r.left
	for i, why := range r.why {
		switch {
		case why == "":
			f.Matrices = append(f.Matrices, r.found[i])
		case !slices.ContainsFunc(left, func(l Left) bool { return l.Name == chosen[i].Name }):
			left = append(left, Left{chosen[i].Name, why})
		}
	}
	return left, nil
}

// layered picks the matrices of layers; all, where no name has a layer.
func layered(list []inspect.Matrix) []inspect.Matrix {
	wide := slices.DeleteFunc(slices.Clone(list), func(x inspect.Matrix) bool { return min(x.Rows, x.Cols) < narrowest })
	in := slices.DeleteFunc(slices.Clone(wide), func(x inspect.Matrix) bool { return x.Layer < 0 })
	if len(in) == 0 {
		return wide
	}
	return in
}

// sample picks the first, middle and last layer of each class and of these one expert, where there are many weights.
func sample(list []inspect.Matrix) []inspect.Matrix {
	weights := int64(0)
	layers := map[string][]int{}
	for i := range list {
		x := &list[i]
		weights += x.Size()
		if !slices.Contains(layers[x.Class], x.Layer) {
			layers[x.Class] = append(layers[x.Class], x.Layer)
		}
	}
	if weights <= wholeWeights {
		return list
	}
	for _, l := range layers {
		slices.Sort(l)
	}
	return slices.DeleteFunc(slices.Clone(list), func(x inspect.Matrix) bool {
		l := layers[x.Class]
		return x.Slice > 0 || x.Layer != l[0] && x.Layer != l[len(l)/2] && x.Layer != l[len(l)-1]
	})
}

// need is the bytes that a matrix takes: its decomposition, or its rest beside directions of both sides.
func need(x *inspect.Matrix) int64 {
	rows, cols := int64(x.Rows), int64(x.Cols)
	return max(linalg.Auto.Memory(x.Rows, x.Cols), 4*rows*cols+4*8*(rows+cols)*int64(rank(x)+16))
}

func check(list []inspect.Matrix, memory int64) error {
	for i := range list {
		if n := need(&list[i]); memory > 0 && n > memory {
			return &spectra.MemoryError{Name: list[i].Name, Need: n, Given: memory}
		}
	}
	return nil
}

// rank is that of the claims for a matrix.
func rank(x *inspect.Matrix) int { return int(math.Ceil(lowRank * float64(min(x.Rows, x.Cols)))) }

// run measures a model.
type run struct {
	ctx   context.Context
	m     *inspect.Model
	opt   Options
	list  []inspect.Matrix
	found []verdict.Matrix
	why   []string // a matrix has no figures
	left  []Left   // matrices that no pair has
}

// pairShare is the share of the work that pairs are taken for.
const pairShare = 0.2

// pairs compares layers that follow each other, all of them: one pass over the weights does.
func (r *run) pairs(list []inspect.Matrix, f *verdict.Figures) error {
	groups, _ := correlate.Groups(slices.DeleteFunc(slices.Clone(list), func(x inspect.Matrix) bool { return min(x.Rows, x.Cols) < narrowest }))
	layers := 0
	for i := range list {
		layers = max(layers, list[i].Layer+1)
	}
	classes, err := correlate.Of(r.ctx, r.m, groups, correlate.Options{Workers: r.opt.Workers, Width: r.opt.Width,
		At: func(done float64) { r.opt.At(pairShare * done) }})
	if err != nil {
		return err
	}
	for i := range classes {
		c := &classes[i]
		for _, p := range c.Pairs {
			if p.Second != p.First+1 { // a layer between them could not be measured, or is of another shape
				continue
			}
			pair := verdict.Pair{Class: c.Name, Layer: p.Second, Layers: layers, Correlation: p.Correlation, Left: p.Left, Between: -1}
			if p.Between != nil {
				pair.Between = *p.Between
			}
			f.Pairs = append(f.Pairs, pair)
		}
		if len(c.Failed) > 0 {
			r.left = append(r.left, failed(groups[i], c)...)
		}
	}
	return nil
}

// failed says where the matrices of a class are not finite that correlate left out.
func failed(g []inspect.Matrix, c *correlate.Class) (left []Left) {
	for i := range g {
		if !slices.Contains(c.Names, g[i].Name) {
			left = append(left, Left{g[i].Name, inspect.WhereNotFinite(&g[i])})
		}
	}
	return left
}

// matrices measures small matrices side by side, large ones one after the other.
func (r *run) matrices() error {
	order := make([]int, len(r.list))
	for i := range order {
		order[i] = i
	}
	small := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return min(r.list[i].Rows, r.list[i].Cols) > sideBySide })
	large := slices.DeleteFunc(order, func(i int) bool { return min(r.list[i].Rows, r.list[i].Cols) <= sideBySide })
	side := r.opt.Workers
	for _, i := range small { // as many side by side as there is memory for
		if r.opt.Memory > 0 {
			side = min(side, int(max(1, r.opt.Memory/need(&r.list[i]))))
		}
	}
	// The largest first: the last ones then end together.
	slices.SortStableFunc(small, func(a, b int) int { return cmp.Compare(r.list[b].Size(), r.list[a].Size()) })
	done := r.progress()
	err := r.m.Each(r.ctx, len(small), side, func(k int) error {
		defer done(small[k])
		return r.matrix(small[k], linalg.Inline)
	})
	if err != nil {
		return err
	}
	for _, i := range large {
		if err := r.m.Guard(func() error { return r.matrix(i, r.m.Workers(r.ctx, r.opt.Workers)) }); err != nil {
			return err
		}
		done(i)
	}
	return nil
}

// matrix takes the figures of one.
func (r *run) matrix(i int, each linalg.Each) error {
	x := &r.list[i]
	v := verdict.Matrix{Name: x.Name, Class: x.Class, Rows: x.Rows, Cols: x.Cols}
	v.Bits = entropy.HistogramBits(x.Rows, x.Cols, x.Reader().Row)
	if v.Bits != v.Bits {
		r.why[i] = inspect.WhereNotFinite(x)
		return nil
	}
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	opt := linalg.Options{Each: each, Width: r.opt.Width}
	values, err := linalg.SingularValues(r.ctx, x.Floats(), opt)
	if err == nil && values[0] == 0 {
		r.why[i] = "is zero"
		return nil
	}
	if err == nil {
		v.Energy = spectrum.Kept(values, rank(x))
		v.Outliers, err = r.outliers(x, opt)
	}
	var scale *linalg.RangeError
	var end *linalg.ConvergenceError
	if errors.As(err, &scale) || errors.As(err, &end) {
		r.why[i], err = err.Error(), nil
	}
	r.found[i] = v
	return err
}

// outliers is the share of the energy that a low rank and the largest elements of the rest carry.
func (r *run) outliers(x *inspect.Matrix, opt linalg.Options) (float64, error) {
	values, left, right, err := linalg.Leading(r.ctx, x.Floats(), rank(x), opt)
	if err != nil {
		return 0, err
	}
	rest := make([]float32, x.Rows*x.Cols)
	all, remains := make([]float64, x.Rows), make([]float64, x.Rows) // energies of rows
	const rows = 16                                                  // of a task
	err = opt.Each((x.Rows+rows-1)/rows, func(task int) {
		reader, row := x.Reader(), make([]float64, x.Cols)
		for i := task * rows; i < min((task+1)*rows, x.Rows) && r.ctx.Err() == nil; i++ {
			reader.Row64(i, row)
			all[i] = energy(row)
			for k, s := range values {
				take(row, s*left[k][i], right[k])
			}
			remains[i] = energy(row)
			for j, v := range row {
				rest[i*x.Cols+j] = float32(v)
			}
		}
	})
	if err == nil && r.ctx.Err() != nil {
		err = context.Cause(r.ctx)
	}
	if err != nil {
		return 0, err
	}
	o, err := spectrum.OutliersOf(spectrum.Rows{Rows: x.Rows, Cols: x.Cols, Row: func(i int, dst []float32) { copy(dst, rest[i*x.Cols:]) }}, sparse, 0)
	return 1 - (1-o.Energy)*sum(remains)/sum(all), err
}

// take subtracts f times y from x.
func take(x []float64, f float64, y []float64) {
	y = y[:len(x)]
	for i := range x {
		x[i] -= float64(f * y[i])
	}
}

func energy(x []float64) (e float64) {
	for _, v := range x {
		e += float64(v * v)
	}
	return e
}

func sum(x []float64) (s float64) {
	for _, v := range x {
		s += v
	}
	return s
}
