package step

import (
	"maps"
	"slices"

	"ck/internal/graph"
)

// Train turns a model's graph into one that trains: the logits become the loss of each picked row (CrossEntropy), and the gradients of all weights are
// results: it returns the terms of each. So are choices of experts, which differences of the loss must not change. A walk has rows rows, of which leaf are a leaf (graph.Tape). Errors name the step that has no backward
// (*graph.NoBackwardError). Weights that are frozen (nil: none is) have no gradient. Logits are made of some rows at a time (lossParts).
func Train(g *graph.Graph, rows, leaf int, frozen func(graph.WeightID) bool) (gradients map[graph.WeightID][]graph.ValueID, err error) {
	space := g.Values[g.Logits].Space
	loss, d := g.NewValue("loss", 1), graph.ValueID(0)
	g.Values[loss].Space = space
	forward, v := len(g.Steps), g.Logits
	head := headOf(g)
	if head != nil {
		forward, v = forward-len(head), head[0].In[0]
		g.Steps = g.Steps[:forward:forward]
	}
	t, err := graph.NewTape(g, rows, leaf, Add{}, frozen)
	if err != nil {
		return nil, err
	}
	if head != nil {
		if d, err = newLossParts(t, head).all(loss); err != nil {
			return nil, err
		}
	} else {
		d = t.Value("d."+g.Values[v].Name, g.Width(v), space)
		g.Add(CrossEntropy{}, "loss", []graph.ValueID{v}, []graph.ValueID{loss, d})
	}
	if t.Needs(v) {
		t.Give(v, d)
		if err := t.Back(0, forward); err != nil {
			return nil, err
		}
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

// Again has the first layers of a graph that trains (Train), so many, done again before their backward: see graph.Graph.Again. Choices of experts are kept: rows
// stay where they were sent. So are the keys and values that caches have: attention reads them there again.
func Again(g *graph.Graph, layers int) error {
	forward := slices.IndexFunc(g.Steps, func(s graph.Step) bool {
		switch s.Op.(type) {
		case PartRows, CrossEntropy:
			return true
		}
		return false
	})
	once := func(op graph.Op) bool { _, ok := op.(Route); return ok }
	g.Again(forward, layers, once, func(op graph.Op, i int) bool { _, ok := op.(Attend); return ok && i > 0 })
	return g.Check()
}
