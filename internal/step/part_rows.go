package step

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// PartRows is out[r] = in[From + r]: some rows of a value, as many as the output has in every walk (graph.Space.Fixed).
type PartRows struct{ From int }

func (PartRows) Kind() string         { return "part-rows" }
func (PartRows) Needs(int) graph.Need { return graph.AllRows }
func (PartRows) Role(int) graph.Role  { return graph.Vector }

func (c PartRows) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	if c.From < 0 || g.Values[s.Out[0]].Space.Fixed < 1 {
		return fmt.Errorf("rows from %d on of %s, of which there are %d", c.From, g.Values[s.In[0]].Name, g.Values[s.Out[0]].Space.Fixed)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (c PartRows) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) { copy(out, r.Row(s, 0, c.From+row)) })
}

func (PartRows) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, partRows)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Whole()}
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

var partRows = &plan.Kind{Name: "part-rows", In: 1, Out: 1, Ops: 40}

func runPartRows(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	from := it.Op.(PartRows).From
	copy(out[p.R0*width:p.R1*width], in[(from+p.R0)*width:])
}

// PlaceRows is out[From + r] = in[r]: the other way round. Other rows are those of the second input, or zeros without one.
type PlaceRows struct{ From int }

func (PlaceRows) Kind() string        { return "place-rows" }
func (PlaceRows) Role(int) graph.Role { return graph.Vector }

func (PlaceRows) Needs(i int) graph.Need {
	if i == 1 {
		return graph.SameRow
	}
	return graph.AllRows
}

func (c PlaceRows) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(max(1, min(len(s.In), 2)), 1, 0, 0); err != nil {
		return err
	}
	if c.From < 0 || g.Values[s.In[0]].Space.Fixed < 1 || len(s.In) > 1 && g.Values[s.In[1]].Space != g.Values[s.Out[0]].Space {
		return fmt.Errorf("%d rows of %s from %d on", g.Values[s.In[0]].Space.Fixed, g.Values[s.In[0]].Name, c.From)
	}
	return g.SameWidth(append(s.In[:len(s.In):len(s.In)], s.Out[0])...)
}

func (c PlaceRows) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		switch n := row - c.From; {
		case n >= 0 && n < len(r.Vals[s.In[0]]):
			copy(out, r.Row(s, 0, n))
		case len(s.In) > 1:
			copy(out, r.Row(s, 1, row))
		}
	})
}

func (PlaceRows) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, firstRows)
	it.Cut = plan.Cut{By: plan.Rows}
	if it.In = []plan.Operand{b.At(s.In[0]).Whole()}; len(s.In) > 1 {
		it.Do, it.In = moreRows, append(it.In, b.At(s.In[1]).Cols(0))
	}
	b.Finish(it, s.Out[0], 0)
	return 0, nil
}

// firstRows has zeros in all other rows, moreRows those that are there.
var (
	firstRows = &plan.Kind{Name: "first-rows", In: 1, Out: 1, Ops: 20}
	moreRows  = &plan.Kind{Name: "more-rows", In: 2, Out: 1, Ops: 20, InPlace: func(_ *plan.Item, in int) bool { return in == 1 }}
)

func runPlaceRows(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	from := it.Op.(PlaceRows).From
	to := from + w.Rows(w.Space(it.In[0]))
	if len(it.In) == 1 {
		clear(out[p.R0*width : p.R1*width])
	} else if before, _ := w.Floats(it.In[1]); &before[0] != &out[0] { // somebody still reads it
		copy(out[p.R0*width:p.R1*width], before[p.R0*width:])
	}
	if r0, r1 := max(p.R0, from), min(p.R1, to); r0 < r1 {
		copy(out[r0*width:r1*width], in[(r0-from)*width:])
	}
}
