package graph

import "sync"

// Input is the rows that a reference run computes: token, position and sequence of each, and which rows' logits are wanted.
type Input struct {
	IDs  []int32
	Pos  []int32
	Seq  []int32
	Pick []int32 // indices of rows, ascending
	// Reach is how long the sequence of a row becomes; nil: as long as its rows here make it.
	Reach []int32
	// Target is the token that should follow each row, below zero: none counts; Share is what each of these counts in the loss (step.CrossEntropy).
	Target []int32
	Share  float64
	Draw   Draw
}

// Draw says which random numbers a walk draws (step.Dropout): a function of these alone. The zero Draw draws none.
type Draw struct {
	On   bool
	Seed uint64
	Step uint64 // of training
	Row  uint64 // of the global batch, which is the walk's first
}

// Ref runs a graph in float64, as plainly as possible: it keeps every value, has no cache, and reads all earlier rows instead.
type Ref struct {
	G      *Graph
	In     Input
	Weight func(w WeightID, row int, dst []float64) // row of a weight, Cols values; called by several goroutines
	Vals   [][][]float64                            // [value][row] of Width values; nil where nobody needs the row
	want   [][]bool
}

// Interpret runs the graph and returns the logits of the picked rows.
func Interpret(g *Graph, in Input, weight func(w WeightID, row int, dst []float64)) [][]float64 {
	return Evaluate(g, in, weight).Vals[g.Logits]
}

// Evaluate runs the graph and keeps the rows of all values that the logits of the picked rows, and other results, need. Transposed weights are read from the
// tensor's own.
func Evaluate(g *Graph, in Input, weight func(w WeightID, row int, dst []float64)) *Ref {
	r := &Ref{G: g, In: in, Weight: turning(g, weight), Vals: make([][][]float64, len(g.Values)), want: make([][]bool, len(g.Values))}
	for v := range g.Values {
		n := g.Values[v].Space.Rows(len(in.IDs), len(in.Pick))
		r.Vals[v], r.want[v] = make([][]float64, n), make([]bool, n)
	}
	for i := range r.want[g.Logits] {
		r.want[g.Logits][i] = true
	}
	for _, v := range g.Results {
		for i := range r.want[v] {
			r.want[v][i] = true
		}
	}
	for i := len(g.Steps) - 1; i >= 0; i-- {
		r.demand(&g.Steps[i])
	}
	for i := range g.Steps {
		s := &g.Steps[i]
		for _, v := range s.Out {
			for row, w := range r.want[v] {
				if w {
					r.Vals[v][row] = make([]float64, g.Width(v))
				}
			}
		}
		s.Op.Ref(r, s)
	}
	return r
}

// turning reads rows of transposed weights too.
func turning(g *Graph, weight func(w WeightID, row int, dst []float64)) func(w WeightID, row int, dst []float64) {
	var once sync.Mutex
	whole := map[WeightID][][]float64{}
	return func(w WeightID, row int, dst []float64) {
		x := g.Weights[w]
		if !x.Turned {
			weight(w, row, dst)
			return
		}
		once.Lock()
		m := whole[w]
		if m == nil {
			own := g.Use(x.Turn())
			for i := range x.Turn().Rows {
				m = append(m, make([]float64, x.Each()))
				weight(own, i, m[i])
			}
			whole[w] = m
		}
		once.Unlock()
		expert := row / x.Each()
		for i := range dst {
			dst[i] = m[expert*len(dst)+i][row%x.Each()]
		}
	}
}

// demand marks the rows of the step's inputs that the wanted rows of its outputs read.
func (r *Ref) demand(s *Step) {
	for _, o := range s.Out {
		for row, w := range r.want[o] {
			if !w {
				continue
			}
			for i, v := range s.In {
				switch s.Op.Needs(i) {
				case SameRow:
					r.want[v][row] = true
				case PickRow:
					r.want[v][r.In.Pick[row]] = true
				case SentRow:
					r.want[v][row/r.used(s.Out[0])] = true
				case SentRows:
					used := r.used(v)
					for j := range used {
						r.want[v][row*used+j] = true
					}
				case AllRows:
					for j := range r.want[v] {
						r.want[v][j] = true
					}
				}
			}
		}
	}
}

// used is how many rows a value has for each row of the walk. Those of row r are r*used and on: here, not in walks, which sort them.
func (r *Ref) used(v ValueID) int { return r.G.Values[v].Space.Used }

// Each calls f for every wanted row of output o of the step.
func (r *Ref) Each(s *Step, o int, f func(row int, out []float64)) {
	for row, out := range r.Vals[s.Out[o]] {
		if out != nil {
			f(row, out)
		}
	}
}

// Row is row `row` of input i.
func (r *Ref) Row(s *Step, i, row int) []float64 { return r.Vals[s.In[i]][row] }

// Vector is a weight of one row.
func (r *Ref) Vector(w WeightID) []float64 {
	v := make([]float64, r.G.Weights[w].Cols)
	r.Weight(w, 0, v)
	return v
}

// Sees is the mask of causal attention: the same sequence, not later, inside the window of a cache.
func (r *Ref) Sees(row, key int, c Cache) bool {
	in := &r.In
	return in.Seq[row] == in.Seq[key] && in.Pos[key] <= in.Pos[row] && c.sees(int(in.Pos[row]), int(in.Pos[key]))
}

// Reach is how long the sequence of a row becomes.
func (r *Ref) Reach(row int) int {
	if r.In.Reach != nil {
		return int(r.In.Reach[row])
	}
	n := int32(0)
	for i, s := range r.In.Seq {
		if s == r.In.Seq[row] {
			n = max(n, r.In.Pos[i]+1)
		}
	}
	return int(n)
}

// sees reports whether a row at pos sees an earlier position: the definition of windows, of which First is the consequence.
func (c Cache) sees(pos, earlier int) bool {
	switch {
	case c.Window == 0:
		return true
	case c.Chunked:
		return pos/c.Window == earlier/c.Window
	}
	return pos-earlier < c.Window
}
