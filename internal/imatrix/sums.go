package imatrix

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"ck/internal/graph"
	"ck/internal/team"
	"ck/internal/walk"
)

// source is a value of the graph that matrices multiply, and what is gathered of it.
type source struct {
	value      graph.ValueID
	width      int
	matrices   []string  // that multiply it
	sums       []float64 // of squares, by column
	covariance []float64 // the upper triangle of XᵀX, in rows of width; nil if nobody asked
	wanted     []string  // those of them whose covariance was asked for
}

// Products of two float32 are exact in float64, so that a fused multiplication changes no bit. Every sum is one chain
// over the rows, and belongs to one worker at a time: cuts by columns change no bit either.

// sumColumns is how many columns a worker takes at once: their sums and four rows of them stay in its first cache.
const sumColumns = 1024

// adder adds rows to sources on a team.
type adder struct {
	team   *team.Team
	panels []float64 // of the present covariance, see pack
}

// add adds the rows of views, one of each source. When ctx ends it stops, with its error; the sums are of no use
// then.
func (a *adder) add(ctx context.Context, sources []*source, view func(graph.ValueID) walk.View) error {
	type task struct {
		s      *source
		c0, c1 int
	}
	var tasks []task
	for _, s := range sources {
		for c := 0; c < s.width; c += sumColumns {
			tasks = append(tasks, task{s, c, min(c+sumColumns, s.width)})
		}
	}
	err := a.each(ctx, len(tasks), func(i int) {
		t := tasks[i]
		x := view(t.s.value)
		addSquares(t.s.sums[t.c0:t.c1], x.Data[t.c0:], x.Rows, x.Width)
	})
	if err != nil {
		return err
	}
	for _, s := range sources {
		if s.covariance != nil {
			if err := a.addCovariance(ctx, s, view(s.value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// each calls f for 0 to n-1, each once, on all workers.
func (a *adder) each(ctx context.Context, n int, f func(i int)) error {
	var next atomic.Int64
	err := a.team.Run(func(int) {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			f(i)
		}
	})
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// addSquares adds to sums the squares of the columns of rows that lie width apart.
func addSquares(sums []float64, x []float32, rows, width int) {
	n := len(sums)
	r := 0
	for ; r+4 <= rows; r += 4 {
		x0, x1, x2, x3 := x[r*width:][:n], x[(r+1)*width:][:n], x[(r+2)*width:][:n], x[(r+3)*width:][:n]
		for j, s := range sums {
			v0, v1, v2, v3 := float64(x0[j]), float64(x1[j]), float64(x2[j]), float64(x3[j])
			s += v0 * v0
			s += v1 * v1
			s += v2 * v2
			s += v3 * v3
			sums[j] = s
		}
	}
	for ; r < rows; r++ {
		for j, v := range x[r*width:][:n] {
			sums[j] += float64(v) * float64(v)
		}
	}
}

// Covariances are made in tiles of 4 rows and 2 columns, which stay in registers while they go down the rows of X. X
// lies in panels of 4 columns for that: [panel][row][4]; what stands where there is no column is multiplied, and not
// stored.
const (
	panelColumns = 4
	groupPanels  = 8 // panels that a worker goes through with each panel of columns: they stay in its second cache
)

// addCovariance adds the products of all pairs of columns of x.
func (a *adder) addCovariance(ctx context.Context, s *source, x walk.View) error {
	panels := (x.Width + panelColumns - 1) / panelColumns
	size := x.Rows * panelColumns
	if len(a.panels) < panels*size {
		a.panels = make([]float64, panels*size)
	}
	panel := func(p int) []float64 { return a.panels[p*size:][:size] }
	if err := a.each(ctx, panels, func(p int) { pack(panel(p), x, p*panelColumns) }); err != nil {
		return err
	}
	groups := (panels + groupPanels - 1) / groupPanels
	return a.each(ctx, groups, func(g int) { // the first has the most to do
		first, end := g*groupPanels, min((g+1)*groupPanels, panels)
		for q := first; q < panels && ctx.Err() == nil; q++ {
			for p := first; p <= min(q, end-1); p++ {
				addTile(s, p*panelColumns, q*panelColumns, 0, panel(p), panel(q))
				addTile(s, p*panelColumns, q*panelColumns, 2, panel(p), panel(q))
			}
		}
	})
}

// pack copies columns c, c+1, … of x to a panel.
func pack(panel []float64, x walk.View, c int) {
	n := min(panelColumns, x.Width-c)
	for r := range x.Rows {
		to := panel[r*panelColumns:][:panelColumns]
		for j, v := range x.Data[r*x.Width+c:][:n] {
			to[j] = float64(v)
		}
	}
}

// addTile adds to the 4 rows from i on, in the 2 columns from j+half on, the products of the panels a and b, row by
// row.
func addTile(s *source, i, j, half int, a, b []float64) {
	j += half
	if j >= s.width {
		return
	}
	var c [panelColumns][2]float64
	rows, columns := min(panelColumns, s.width-i), min(2, s.width-j)
	for r := range rows {
		copy(c[r][:columns], s.covariance[(i+r)*s.width+j:])
	}
	c00, c01, c10, c11, c20, c21, c30, c31 := c[0][0], c[0][1], c[1][0], c[1][1], c[2][0], c[2][1], c[3][0], c[3][1]
	for at := 0; at+panelColumns <= len(a); at += panelColumns {
		x, y := (*[panelColumns]float64)(a[at:]), (*[2]float64)(b[at+half:])
		y0, y1 := y[0], y[1]
		c00 += x[0] * y0
		c01 += x[0] * y1
		c10 += x[1] * y0
		c11 += x[1] * y1
		c20 += x[2] * y0
		c21 += x[2] * y1
		c30 += x[3] * y0
		c31 += x[3] * y1
	}
	c = [panelColumns][2]float64{{c00, c01}, {c10, c11}, {c20, c21}, {c30, c31}}
	for r := range rows {
		copy(s.covariance[(i+r)*s.width+j:], c[r][:columns])
	}
}

// mirror fills the lower triangle of the covariance.
func (s *source) mirror() {
	n := s.width
	for i := range n {
		for j := range i {
			s.covariance[i*n+j] = s.covariance[j*n+i]
		}
	}
}

// InputsError says that inputs of a matrix are too large or no numbers.
type InputsError struct {
	Tensor string
	Column int
	Sum    float64 // of squares
}

func (e *InputsError) Error() string {
	return fmt.Sprintf("tensor %s: squares of its inputs in column %d add up to %g; the model overflows on this text",
		e.Tensor, e.Column, e.Sum)
}

// check looks for sums that no file can hold.
func (s *source) check() error {
	for i, x := range s.sums {
		if !(x <= math.MaxFloat32) {
			return &InputsError{s.matrices[0], i, x}
		}
	}
	return nil
}
