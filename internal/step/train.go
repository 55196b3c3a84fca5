package step

import (
	"maps"
	"slices"

	"ck/internal/graph"
)

// Train turns a model's graph into one that trains: the logits become the loss of each picked row (CrossEntropy), and the gradients of all weights are
// results: it returns the terms of each. So are choices of experts, which differences of the loss must not change. A walk has rows rows, of which leaf are a leaf (graph.Tape). Errors name the step that has no backward
// (*graph.NoBackwardError). Weights that are frozen (nil: none is) have no gradient.
func Train(g *graph.Graph, rows, leaf int, frozen func(graph.WeightID) bool) (gradients map[graph.WeightID][]graph.ValueID, err error) {
	space := g.Values[g.Logits].Space
	loss, d := g.NewValue("loss", 1), g.NewValue("d."+g.Values[g.Logits].Name, g.Width(g.Logits))
	g.Values[loss].Space, g.Values[d].Space = space, space
	logits := g.Logits
	forward := len(g.Steps)
	g.Add(CrossEntropy{}, "loss", []graph.ValueID{logits}, []graph.ValueID{loss, d})
	t, err := graph.Differentiate(g, forward, logits, d, rows, leaf, Add{}, frozen)
	if err != nil {
		return nil, err
	}
	g.Logits = loss
	gradients = t.Weights()
	for _, w := range slices.Sorted(maps.Keys(gradients)) {
		g.Results = append(g.Results, gradients[w]...)
	}
	for i := range g.Steps {
		if _, ok := g.Steps[i].Op.(Route); ok {
			g.Results = append(g.Results, g.Steps[i].Out[0])
		}
	}
	return gradients, g.Check()
}

// Again has the first layers of a graph that trains (Train), so many, done again before their backward: see graph.Graph.Again. forward is how many steps it had
// before. Choices of experts are kept: rows stay where they were sent. So are the keys and values that caches have: attention reads them there again.
func Again(g *graph.Graph, forward, layers int) error {
	once := func(op graph.Op) bool { _, ok := op.(Route); return ok }
	g.Again(forward, layers, once, func(op graph.Op, i int) bool { _, ok := op.(Attend); return ok && i > 0 })
	return g.Check()
}
