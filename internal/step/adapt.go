package step

import (
	"ck/internal/graph"
)

// An Adapter is a matrix with a product of low rank beside it: W*x becomes W*x + by * B*(A*x), A [rank, inputs], B [outputs, rank]. (Hu et al. 2021,
// arXiv:2106.09685) A tensor that is several matrices has one A, and its B is as many parts as the tensor.
type Adapter struct {
	W graph.WeightID // the matrix, or the first of the tensor's
	A graph.WeightID
}

// Names of an adapter's matrices follow on the matrix's, as in llama.cpp's files.
const (
	AdapterA = ".lora_a"
	AdapterB = ".lora_b"
)

// Adapt puts adapters of a rank beside the matmuls whose matrix match chooses. A tensor that several steps multiply has one adapter. Where drop is not 0, each
// A reads dropout of x, as lora_dropout of PEFT has it: W*x + by * B*(A*dropout(x)).
func Adapt(g *graph.Graph, rank int, by float32, drop float64, match func(w graph.Weight) bool) (list []Adapter) {
	type product struct {
		x graph.ValueID
		a graph.WeightID
	}
	lows := map[product]graph.ValueID{} // A*x, which the parts of a tensor share
	steps := g.Steps
	g.Steps = nil
	for _, s := range steps {
		if _, ok := s.Op.(Matmul); !ok || !match(g.Weights[s.W[0]]) {
			g.Steps = append(g.Steps, s)
			continue
		}
		w := g.Weights[s.W[0]]
		a := Adapter{s.W[0], g.NewWeight(w.Name+AdapterA, rank, w.Cols)}
		b := g.Use(graph.Weight{Name: w.Name + AdapterB, Rows: w.Rows, Cols: rank, From: w.From, Of: w.Of})
		out := s.Out[0]
		value := func(name string, width int) graph.ValueID {
			v := g.NewValue(g.Values[out].Name+name, width)
			g.Values[v].Space = g.Values[out].Space
			return v
		}
		base, high, scaled := value(".base", w.Rows), value(".high", w.Rows), value(".scaled", w.Rows)
		x := s.In[0]
		s.Out = []graph.ValueID{base}
		g.Steps = append(g.Steps, s)
		low, made := lows[product{x, a.A}]
		if !made {
			low = value(".low", rank)
			lows[product{x, a.A}] = low
			if drop != 0 {
				dropped := g.NewValue(s.Name+".dropped", w.Cols)
				g.Values[dropped].Space = g.Values[x].Space
				g.Add(Dropout{drop, len(lows) - 1}, s.Name+".dropped", []graph.ValueID{x}, []graph.ValueID{dropped})
				x = dropped
			}
			g.Add(Matmul{Slices: 1}, s.Name+AdapterA, []graph.ValueID{x}, []graph.ValueID{low}, a.A)
		}
		g.Add(Matmul{Slices: 1}, s.Name+AdapterB, []graph.ValueID{low}, []graph.ValueID{high}, b)
		g.Add(Scale{By: by}, s.Name+".scaled", []graph.ValueID{high}, []graph.ValueID{scaled})
		g.Add(Add{}, s.Name+".adapted", []graph.ValueID{base, scaled}, []graph.ValueID{out})
		known := false
		for _, x := range list {
			known = known || x.A == a.A
		}
		if !known {
			list = append(list, a)
		}
	}
	return list
}
