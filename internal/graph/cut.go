package graph

import (
	"fmt"
	"strconv"
	"strings"
)

// Stage is a run of steps that only the residual stream enters and leaves: a layer, what stands before the
// first, or what stands behind the last.
type Stage struct {
	First, End int     // of its steps
	In         ValueID // the stream at its begin; of the first stage, which begins with tokens, nothing
	Out        ValueID // at its end; of the last stage the logits
}

// Stages cuts the graph at the borders of its layers, which the names "blk.N." of steps and weights tell.
func (g *Graph) Stages() ([]Stage, error) {
	var list []Stage
	layer := -2
	for i := range g.Steps {
		switch n, ok := g.layerOf(&g.Steps[i], layer); {
		case !ok || n == layer:
		case n < layer:
			return nil, fmt.Errorf("step %s: is of layer %d, behind steps of layer %d", g.Steps[i].Name, n, layer)
		default:
			layer = n
			list = append(list, Stage{First: i})
		}
	}
	for i := range list {
		list[i].End, list[i].Out = len(g.Steps), g.Logits
		if i == 0 {
			continue
		}
		v, err := g.crossing(list[i].First)
		if err != nil {
			return nil, err
		}
		list[i].In, list[i-1].Out, list[i-1].End = v, v, list[i].First
	}
	return list, nil
}

// behind is the number of what stands behind all layers.
const behind = 1 << 30

// layerOf is the layer of a step that follows those of layer before; what names no layer and has no weight goes
// with its predecessor.
func (g *Graph) layerOf(s *Step, before int) (n int, ok bool) {
	names := []string{s.Name}
	for _, w := range s.W {
		names = append(names, g.Weights[w].Name)
	}
	for _, name := range names {
		if rest, found := strings.CutPrefix(name, "blk."); found {
			number, _, _ := strings.Cut(rest, ".")
			if n, err := strconv.Atoi(number); err == nil {
				return n, true
			}
		}
	}
	switch {
	case before < 0:
		return -1, true
	case len(s.W) > 0:
		return behind, true
	}
	return 0, false
}

// crossing is the one value that steps from i on read and earlier ones write.
func (g *Graph) crossing(i int) (ValueID, error) {
	written := make([]bool, len(g.Values))
	for j := range g.Steps[:i] {
		for _, v := range g.Steps[j].Out {
			written[v] = true
		}
	}
	found := ValueID(-1)
	for j := range g.Steps[i:] {
		for _, v := range g.Steps[i+j].In {
			switch {
			case !written[v] || v == found:
			case found >= 0:
				return 0, fmt.Errorf(
					"step %s and those behind it read %s and %s from before; a layer can only be cut off at one value",
					g.Steps[i].Name, g.Values[found].Name, g.Values[v].Name)
			default:
				found = v
			}
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("step %s and those behind it read nothing from before", g.Steps[i].Name)
	}
	return found, nil
}

// Cut is the graph of a stage alone. Its values keep their ids, and its result is the stage's. What enters it is
// read by read, a step like that of an embedding, from a matrix of that name: the ids of a walk are rows of it.
func (g *Graph) Cut(s Stage, read Op, name string, rows int) (*Graph, error) {
	c := *g
	c.Steps, c.Weights, c.Logits = nil, nil, s.Out
	if s.First > 0 {
		c.Vocab = rows
		c.Add(read, name, nil, []ValueID{s.In}, c.NewWeight(name, rows, g.Width(s.In)))
	}
	for _, x := range g.Steps[s.First:s.End] {
		w := make([]WeightID, len(x.W))
		for i, id := range x.W {
			w[i] = c.Use(g.Weights[id])
		}
		c.Add(x.Op, x.Name, x.In, x.Out, w...)
	}
	return &c, c.Check()
}
