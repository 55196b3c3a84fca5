// Package correlate says how alike the layers of a model are, class by class: cosines and correlations of all pairs,
// common subspaces, and what coding a layer from its neighbours would save. It prints nothing.
package correlate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	lanes "ck/asm/mat"
	"ck/internal/inspect"
	"ck/internal/linalg"
	"ck/internal/spectrum"
)

// Options say what is measured.
type Options struct {
	Workers  int
	Width    lanes.Width
	Subspace int  // leading directions of each layer that are compared; 0: none
	Codes    bool // measure the bits that codes save

	Journal *inspect.Journal
	At      func(done float64) // is told the share that is done; nil: nobody is
}

// Class is the layers of a class of matrices of one shape.
type Class struct {
	Name   string   `json:"class"`
	Shape  [2]int   `json:"shape"` // rows, columns
	Layers []int    `json:"layers"`
	Names  []string `json:"tensors"`
	Failed []string `json:"errors,omitempty"` // of layers that are left out

	Cosine      [][]float64 `json:"cosine"`      // [layer][layer]
	Correlation [][]float64 `json:"correlation"` // Pearson's
	Pairs       []Pair      `json:"pairs"`       // of layers that follow each other
}

// Pair is a layer and the one before it. Shares are of the second one's energy.
type Pair struct {
	First       int      `json:"first"`
	Second      int      `json:"second"`
	Cosine      float64  `json:"cosine"`
	Correlation float64  `json:"correlation"`
	Left        float64  `json:"left"`                    // behind the best multiple of the first
	Between     *float64 `json:"left_between,omitempty"`  // behind the best mix of the first and of the layer after the second
	Gaussian    float64  `json:"gaussian_bits"`           // per weight, saved by coding from the first: -1/2 log2(1-r²), at most 32
	Measured    *float64 `json:"measured_bits,omitempty"` // by codes of the difference
	Overlap     *float64 `json:"overlap,omitempty"`       // mean squared cosine of the principal angles of leading input directions
	Largest     *float64 `json:"largest_cosine,omitempty"`
	Random      *float64 `json:"random_overlap,omitempty"` // what random directions have
}

// mostBits bounds what coding from an equal layer saves.
const mostBits = 32

// Groups sorts matrices by class, shape and expert; those of no layer and classes of one layer are left out.
func Groups(list []inspect.Matrix) (groups [][]inspect.Matrix, alone []inspect.Left) {
	type key struct {
		class      string
		slice      int
		rows, cols int
	}
	by := map[key][]inspect.Matrix{}
	var order []key
	for _, x := range list {
		if x.Layer < 0 {
			alone = append(alone, inspect.Left{Name: x.Name, Why: "is of no layer"})
			continue
		}
		k := key{x.Class, x.Slice, x.Rows, x.Cols}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], x)
	}
	for _, k := range order {
		g := by[k]
		if len(g) < 2 {
			alone = append(alone, inspect.Left{Name: g[0].Name, Why: "is the only one of its class and shape"})
			continue
		}
		slices.SortStableFunc(g, func(a, b inspect.Matrix) int { return cmp.Compare(a.Layer, b.Layer) })
		groups = append(groups, g)
	}
	return groups, alone
}

// Of measures each group of Groups.
func Of(ctx context.Context, m *inspect.Model, groups [][]inspect.Matrix, opt Options) ([]Class, error) {
	list := make([]Class, len(groups))
	total, done := 0.0, 0.0
	for _, g := range groups {
		total += float64(len(g)) * float64(g[0].Size())
	}
	for i, g := range groups {
		size := float64(len(g)) * float64(g[0].Size())
		r := &run{ctx: ctx, m: m, opt: opt, at: func(share float64) {
			if opt.At != nil {
				opt.At((done + share*size) / total)
			}
		}}
		if err := r.class(g, &list[i]); err != nil {
			return nil, err
		}
		done += size
		r.at(0)
	}
	return list, nil
}

// run measures one class.
type run struct {
	ctx context.Context
	m   *inspect.Model
	opt Options
	at  func(share float64)
}

// nameOf is a group's: its class, and its expert.
func nameOf(g []inspect.Matrix) string {
	if g[0].Slice > 0 || g[0].Name != g[0].Tensor.Name {
		return fmt.Sprintf("%s[%d]", g[0].Class, g[0].Slice)
	}
	return g[0].Class
}

func (r *run) class(g []inspect.Matrix, c *Class) error {
	name := nameOf(g)
	if r.opt.Journal.Found(fmt.Sprint(name, g[0].Rows, g[0].Cols), c) {
		return nil
	}
	*c = Class{Name: name, Shape: [2]int{g[0].Rows, g[0].Cols}}
	all, err := r.products(g, 0.2)
	if err != nil {
		return err
	}
	var good []int // of g
	for i := range g {
		if v := all.at(i, i); v-v != 0 {
			c.Failed = append(c.Failed, fmt.Sprintf("%s: %s", g[i].Name, inspect.WhereNotFinite(&g[i])))
			continue
		}
		good = append(good, i)
		c.Layers, c.Names = append(c.Layers, g[i].Layer), append(c.Names, g[i].Name)
	}
	for _, i := range good {
		var cos, cor []float64
		for _, j := range good {
			cos, cor = append(cos, all.cosine(i, j)), append(cor, all.correlation(i, j))
		}
		c.Cosine, c.Correlation = append(c.Cosine, cos), append(c.Correlation, cor)
	}
	for k := 1; k < len(good); k++ {
		i, j := good[k-1], good[k]
		p := Pair{First: g[i].Layer, Second: g[j].Layer, Cosine: all.cosine(i, j), Correlation: all.correlation(i, j)}
		p.Left = max(0, 1-p.Cosine*p.Cosine)
		if x := 1 - p.Correlation*p.Correlation; x > 0 {
			p.Gaussian = min(mostBits, -math.Log2(x)/2)
		} else {
			p.Gaussian = mostBits
		}
		if k+1 < len(good) {
			left := all.between(i, good[k+1], j)
			p.Between = &left
		}
		c.Pairs = append(c.Pairs, p)
	}
	if err := r.measured(g, good, c); err != nil {
		return err
	}
	if err := r.subspaces(g, good, c); err != nil {
		return err
	}
	return r.opt.Journal.Keep(fmt.Sprint(name, g[0].Rows, g[0].Cols), c)
}

// gram is sums of products of n layers' elements, with a last column of ones.
type gram struct {
	n    int
	sums []float64 // [n+1][n+1]
}

func (g *gram) at(i, j int) float64 {
	if i > j {
		i, j = j, i
	}
	return g.sums[i*(g.n+1)+j]
}

func (g *gram) cosine(i, j int) float64 {
	d := math.Sqrt(g.at(i, i)) * math.Sqrt(g.at(j, j))
	if d == 0 {
		return 0
	}
	return max(-1, min(1, g.at(i, j)/d))
}

func (g *gram) correlation(i, j int) float64 {
	n := g.at(g.n, g.n)
	cov := func(i, j int) float64 { return g.at(i, j) - g.at(i, g.n)*g.at(j, g.n)/n }
	d := math.Sqrt(max(0, cov(i, i))) * math.Sqrt(max(0, cov(j, j)))
	if d == 0 {
		return 0
	}
	return max(-1, min(1, cov(i, j)/d))
}

// between is the share of j's energy behind the best mix of i and k.
func (g *gram) between(i, k, j int) float64 {
	if g.at(j, j) == 0 {
		return 0
	}
	a := mat.NewSymDense(2, []float64{g.at(i, i), g.at(i, k), g.at(i, k), g.at(k, k)})
	b := mat.NewVecDense(2, []float64{g.at(i, j), g.at(k, j)})
	var chol mat.Cholesky
	var x mat.VecDense
	if !chol.Factorize(a) || chol.SolveVecTo(&x, b) != nil { // both are multiples of one
		c := max(math.Abs(g.cosine(i, j)), math.Abs(g.cosine(k, j)))
		return max(0, 1-c*c)
	}
	return max(0, 1-mat.Dot(&x, b)/g.at(j, j))
}

// chunk is about the elements of a layer that are added up at once.
const chunk = 1 << 16

// products adds up the products of all pairs of layers in one pass: chunks of rows, whose sums are added in their order.
func (r *run) products(g []inspect.Matrix, share float64) (*gram, error) {
	n, rows, cols := len(g), g[0].Rows, g[0].Cols
	each := max(1, chunk/cols)
	count := (rows + each - 1) / each
	all := &gram{n, make([]float64, (n+1)*(n+1))}
	const batch = 64 // chunks whose sums are in memory
	parts := make([][]float64, batch)
	for from := 0; from < count; from += batch {
		here := min(batch, count-from)
		err := r.m.Each(r.ctx, here, r.opt.Workers, func(k int) error {
			part := linalg.Gram{N: n + 1, Width: r.opt.Width, Sums: make([]float64, (n+1)*(n+1))}
			first := (from + k) * each
			err := addRows(&part, g, first, min(first+each, rows))
			parts[k] = part.Sums
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, p := range parts[:here] {
			for i, v := range p {
				all.sums[i] += v
			}
		}
		r.at(share * float64(from+here) / float64(count))
	}
	return all, nil
}

// addRows adds the rows [from, to) of all layers, side by side as columns, and one of ones.
func addRows(part *linalg.Gram, g []inspect.Matrix, from, to int) error {
	n, cols := len(g), g[0].Cols
	x, row := make([]float32, cols*(n+1)), make([]float32, cols)
	for k := range cols {
		x[k*(n+1)+n] = 1
	}
	readers := make([]*inspect.Reader, n)
	for i := range g {
		readers[i] = g[i].Reader()
	}
	var scratch linalg.Scratch
	for i := from; i < to; i++ {
		for l, reader := range readers {
			reader.Row(i, row)
			for k, v := range row {
				x[k*(n+1)+l] = v
			}
		}
		if err := part.Add(linalg.Inline, &scratch, x, cols, n+1); err != nil {
			return err
		}
	}
	return nil
}

// measured adds the bits that codes save, pair by pair.
func (r *run) measured(g []inspect.Matrix, good []int, c *Class) error {
	if !r.opt.Codes {
		return nil
	}
	return r.m.Each(r.ctx, len(c.Pairs), r.opt.Workers, func(k int) error {
		p, err := spectrum.Correlate(r.rows(&g[good[k]]), r.rows(&g[good[k+1]]))
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		bits := min(mostBits, p.Measured)
		c.Pairs[k].Measured = &bits
		return err
	})
}

// rows is a matrix as spectrum reads it, for one goroutine; its rows end with the context.
func (r *run) rows(x *inspect.Matrix) spectrum.Rows {
	reader := x.Reader()
	return spectrum.Rows{Rows: x.Rows, Cols: x.Cols, Row: func(i int, dst []float32) {
		if r.ctx.Err() != nil { // what is computed then is thrown away
			clear(dst)
			return
		}
		reader.Row(i, dst)
	}}
}

// subspaces compares the leading input directions of layers that follow each other.
func (r *run) subspaces(g []inspect.Matrix, good []int, c *Class) error {
	k := min(r.opt.Subspace, c.Shape[0], c.Shape[1])
	if k == 0 || len(good) < 2 {
		return nil
	}
	var before [][]float64
	for n, i := range good {
		if err := r.ctx.Err(); err != nil {
			return context.Cause(r.ctx)
		}
		opt := linalg.Options{Each: r.m.Workers(r.ctx, r.opt.Workers), Width: r.opt.Width}
		_, _, right, err := linalg.Leading(r.ctx, g[i].Floats(), k, opt)
		if err != nil {
			return err
		}
		if n > 0 {
			p := &c.Pairs[n-1]
			angles, err := spectrum.Angles(before, right)
			if err != nil {
				return err
			}
			sum, largest := 0.0, 0.0
			for _, a := range angles {
				x := math.Cos(a)
				sum, largest = sum+x*x, max(largest, x)
			}
			overlap, random := sum/float64(k), float64(k)/float64(c.Shape[1])
			p.Overlap, p.Largest, p.Random = &overlap, &largest, &random
		}
		before = right
		r.at(0.2 + 0.8*float64(n+1)/float64(len(good)))
	}
	return nil
}
