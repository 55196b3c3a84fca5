package engine

import (
	"slices"

	"ck/internal/graph"
	"ck/internal/step"
	"ck/internal/walk"
)

// countChoices makes room to count which experts are chosen, where the model has some.
func (e *Engine) countChoices() {
	if e.Graph.Routes == 0 {
		return
	}
	e.read = map[int]*expertsRead{}
	e.choices = make([][]uint64, len(e.Graph.Steps))
	for i := range e.Graph.Steps {
		if s := &e.Graph.Steps[i]; isRoute(s) {
			e.choices[i] = make([]uint64, e.Graph.Width(s.In[0]))
		}
	}
}

func isRoute(s *graph.Step) bool {
	_, ok := s.Op.(step.Route)
	return ok
}

// Choice is how often the experts of a layer were chosen since the engine was opened.
type Choice struct {
	Name   string   // of the step
	Used   int      // experts of a row
	Counts []uint64 // by expert
}

// Choices are those of all layers with experts, first to last. No walk may run meanwhile.
func (e *Engine) Choices() (out []Choice) {
	for i, c := range e.choices {
		if c != nil {
			s := &e.Graph.Steps[i]
			out = append(out, Choice{s.Name, s.Op.(step.Route).Used, slices.Clone(c)})
		}
	}
	return out
}

// expertsRead is of walks of equally many rows.
type expertsRead struct {
	walks  int
	chosen []int // by choice: experts that had rows, over all these walks
}

// noteExperts counts those that the last Run of w has read.
func (e *Engine) noteExperts(w *walk.Walker, rows int) {
	if e.Graph.Routes == 0 {
		return
	}
	x := e.read[rows]
	if x == nil {
		x = &expertsRead{chosen: make([]int, e.Graph.Routes)}
		e.read[rows] = x
	}
	x.walks++
	for i := range x.chosen {
		x.chosen[i] += w.Chosen(i + 1)
	}
}

// ExpertsRead is plan.Load.Experts of walks of so many rows since the engine was opened, as they were; nil if there were none, or no experts.
func (e *Engine) ExpertsRead(rows int) []float64 {
	x := e.read[rows]
	if x == nil {
		return nil
	}
	n := make([]float64, len(x.chosen))
	for i, c := range x.chosen {
		n[i] = float64(c) / float64(x.walks)
	}
	return n
}

// WeightBytes is the size of all weights as they are read: panels, or file rows where there are none.
func (e *Engine) WeightBytes() int64 {
	return e.weightBytes(func(graph.WeightID) (int, int) { return 1, 1 })
}

// TokenBytes is what one token reads of the weights: of experts those that it uses.
func (e *Engine) TokenBytes() int64 {
	used := map[graph.WeightID]int{}
	for i := range e.Graph.Steps {
		s := &e.Graph.Steps[i]
		for _, w := range s.W {
			used[w] = max(1, e.Graph.Values[s.Out[0]].Space.Used)
		}
	}
	return e.weightBytes(func(w graph.WeightID) (int, int) {
		if n := e.Graph.Weights[w].Experts; n > 0 {
			return used[w], n
		}
		return 1, 1
	})
}

// weightBytes adds up weights, of each so many parts of as many.
func (e *Engine) weightBytes(share func(graph.WeightID) (part, of int)) int64 {
	n := 0
	for i, slots := range e.weights.Slots {
		part, of := share(graph.WeightID(i))
		for h, s := range slots {
			if b := s.PanelsBytes(); b > 0 && (s.Mapped() || e.keep[i][h] != nil) {
				n += b / of * part
			} else {
				n += s.Rows / of * part * s.Format.Type.RowBytes(s.Cols)
			}
		}
	}
	return int64(n)
}
