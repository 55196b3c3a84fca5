package imatrix

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"ck/internal/graph"
	"ck/internal/linalg"
	"ck/internal/team"
	"ck/internal/walk"
)

// source is a value of the graph that matrices multiply, and what is gathered of it.
type source struct {
	value      graph.ValueID
	width      int
	matrices   []string     // that multiply it
	sums       []float64    // of squares, by column; of experts, expert by expert
	covariance *linalg.Gram // XᵀX; nil if nobody asked
	wanted     []string     // those of them whose covariance was asked for

	// Of what experts multiply: how many there are, the value of the ids that say which rows are whose, and how many rows each had.
	experts int
	ids     graph.ValueID
	counts  []int64
}

// Products of two float32 are exact in float64, so that a fused multiplication changes no bit. Every sum is one chain
// over the rows, and belongs to one worker at a time: cuts by columns change no bit either.

// sumColumns is how many columns a worker takes at once: their sums and four rows of them stay in its first cache.
const sumColumns = 1024

// adder adds rows to sources on a team.
type adder struct {
	team    *team.Team
	scratch linalg.Scratch
}

// add adds the rows of views, one of each source. When ctx ends it stops, with its error; the sums are of no use
// then.
func (a *adder) add(ctx context.Context, sources []*source, view func(graph.ValueID) walk.View) error {
	type task struct {
		s      *source
		c0, c1 int
	}
	var tasks []task
	routes := map[*source]*walk.Routing{}
	for _, s := range sources {
		if s.experts > 0 {
			routes[s] = walk.RoutingOf(view(s.ids).Data)
		}
		for c := 0; c < s.width; c += sumColumns {
			tasks = append(tasks, task{s, c, min(c+sumColumns, s.width)})
		}
	}
	err := a.each(ctx, len(tasks), func(i int) {
		t := tasks[i]
		x := view(t.s.value)
		r := routes[t.s]
		if r == nil {
			addSquares(t.s.sums[t.c0:t.c1], x.Data[t.c0:], x.Rows, x.Width)
			return
		}
		for e := range min(t.s.experts, len(r.Start)-1) {
			from, to := int(r.Start[e]), int(r.Start[e+1])
			if from == to {
				continue
			}
			addSquares(t.s.sums[e*t.s.width:][t.c0:t.c1], x.Data[from*x.Width+t.c0:], to-from, x.Width)
			if t.c0 == 0 {
				t.s.counts[e] += int64(to - from)
			}
		}
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

// addCovariance adds the products of all pairs of columns of x.
func (a *adder) addCovariance(ctx context.Context, s *source, x walk.View) error {
	return s.covariance.Add(func(n int, f func(int)) error { return a.each(ctx, n, f) }, &a.scratch, x.Data, x.Rows, x.Width)
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
			if s.experts > 0 {
				i %= s.width
			}
			return &InputsError{s.matrices[0], i, x}
		}
	}
	return nil
}
