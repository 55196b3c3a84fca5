package step

import (
	"ck/internal/graph"
)

// An Adapter is a matrix with a product of low rank beside it: W*x becomes W*x + by * B*(A*x), A [rank, inputs], B [outputs, rank]. (Hu et al. 2021,
// arXiv:2106.09685)
type Adapter struct {
	W, A, B graph.WeightID
}

// Names of an adapter's matrices follow on the matrix's, as in llama.cpp's files.
const (
	AdapterA = ".lora_a"
	AdapterB = ".lora_b"
)

// Adapt puts adapters of a rank beside the matmuls whose matrix match chooses. A matrix that several steps multiply has one adapter.
func Adapt(g *graph.Graph, rank int, by float32, match func(w graph.Weight) bool) (list []Adapter) {
	steps := g.Steps
	g.Steps = nil
	for _, s := range steps {
		if _, ok := s.Op.(Matmul); !ok || !match(g.Weights[s.W[0]]) {
			g.Steps = append(g.Steps, s)
			continue
		}
		w := g.Weights[s.W[0]]
		a := Adapter{s.W[0], g.NewWeight(w.Label()+AdapterA, rank, w.Cols), g.NewWeight(w.Label()+AdapterB, w.Rows, rank)}
		out := s.Out[0]
		value := func(name string, width int) graph.ValueID {
			v := g.NewValue(g.Values[out].Name+name, width)
			g.Values[v].Space = g.Values[out].Space
			return v
		}
		base, low, high, scaled := value(".base", w.Rows), value(".low", rank), value(".high", w.Rows), value(".scaled", w.Rows)
		x := s.In[0]
		s.Out = []graph.ValueID{base}
		g.Steps = append(g.Steps, s)
		g.Add(Matmul{Slices: 1}, s.Name+AdapterA, []graph.ValueID{x}, []graph.ValueID{low}, a.A)
		g.Add(Matmul{Slices: 1}, s.Name+AdapterB, []graph.ValueID{low}, []graph.ValueID{high}, a.B)
		g.Add(Scale{By: by}, s.Name+".scaled", []graph.ValueID{high}, []graph.ValueID{scaled})
		g.Add(Add{}, s.Name+".adapted", []graph.ValueID{base, scaled}, []graph.ValueID{out})
		known := false
		for _, x := range list {
			known = known || x == a
		}
		if !known {
			list = append(list, a)
		}
	}
	return list
}
