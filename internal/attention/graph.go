// Package attention measures where a model looks and how its hidden states move: attention weights by layer and head,
// and what the model would say if it ended at each layer. All comes from the taps of one pass over a text.
package attention

import (
	"fmt"
	"strconv"
	"strings"

	"ck/internal/graph"
	"ck/internal/step"
)

// layout is where the values of a model's graph stand.
type layout struct {
	heads   []heads         // the attention steps, in their order
	streams []graph.ValueID // the hidden states: before the first layer, then behind each
	exits   []graph.ValueID // the logits that the model would give behind each layer; the last are its own
}

// heads is an attention step.
type heads struct {
	layer int
	op    step.Attend
	cache graph.Cache
	q, k  graph.ValueID
}

// AddExits gives a graph the logits of a model that ended earlier: behind each layer but the last the steps that make
// logits, applied to its hidden states (the "logit lens"). It is a change of engine.Options; see Gather.
func AddExits(g *graph.Graph) error {
	streams, err := streamsOf(g)
	if err != nil {
		return err
	}
	tail := tailOf(g)
	if len(tail) == 0 {
		return fmt.Errorf("nothing stands behind the last layer")
	}
	for n, x := range streams[1 : len(streams)-1] {
		add := func(op graph.Op, name string, in []graph.ValueID, w []graph.WeightID, width int) graph.ValueID {
			name = exitName(n, name)
			v := g.NewValue(name, width)
			g.Values[v].Picked = true
			g.Add(op, name, in, []graph.ValueID{v}, w...)
			return v
		}
		now := map[graph.ValueID]graph.ValueID{streams[len(streams)-1]: add(step.Pick{}, "pick", []graph.ValueID{x}, nil, g.Width(x))}
		for _, s := range tail {
			if len(s.Out) != 1 {
				return fmt.Errorf("step %s has %d results", s.Name, len(s.Out))
			}
			in := make([]graph.ValueID, len(s.In))
			for i, v := range s.In {
				to, ok := now[v]
				if !ok {
					return fmt.Errorf("step %s reads %s, which is not made of the last layer's hidden states",
						s.Name, g.Values[v].Name)
				}
				in[i] = to
			}
			now[s.Out[0]] = add(s.Op, s.Name, in, s.W, g.Width(s.Out[0]))
		}
	}
	return nil
}

// exitName is the name of a step of the exit behind layer n.
func exitName(n int, name string) string { return fmt.Sprintf("exit.%d.%s", n, name) }

// layerOf is the layer that a step belongs to; false for steps before and behind all layers.
func layerOf(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	return n, err == nil
}

// tailOf is the steps behind the last layer that make the logits.
func tailOf(g *graph.Graph) []graph.Step {
	from := 0
	for i := range g.Steps {
		if _, ok := layerOf(g.Steps[i].Name); ok {
			from = i + 1
		}
	}
	var tail []graph.Step
	for _, s := range g.Steps[from:] {
		if !strings.HasPrefix(s.Name, "exit.") {
			tail = append(tail, s)
		}
	}
	return tail
}

// streamsOf finds the hidden states between layers: what one layer, or the embedding, writes and the next one, or the
// tail, reads. There must be one such value at each border.
func streamsOf(g *graph.Graph) ([]graph.ValueID, error) {
	layers := 0
	for i := range g.Steps {
		if n, ok := layerOf(g.Steps[i].Name); ok {
			layers = max(layers, n+1)
		}
	}
	const nobody = -2                    // rows that were picked are the same states
	writer := make([]int, len(g.Values)) // -1: before the layers
	for i := range g.Steps {
		n, ok := layerOf(g.Steps[i].Name)
		if _, pick := g.Steps[i].Op.(step.Pick); pick {
			n = nobody
		} else if !ok {
			n = -1
		}
		for _, v := range g.Steps[i].Out {
			writer[v] = n
		}
	}
	streams := make([]graph.ValueID, layers+1)
	found := make([]int, layers+1)
	cross := func(border int, in []graph.ValueID) {
		for _, v := range in {
			if writer[v] == border-1 && (found[border] == 0 || streams[border] != v) {
				streams[border] = v
				found[border]++
			}
		}
	}
	for i := range g.Steps {
		if n, ok := layerOf(g.Steps[i].Name); ok {
			cross(n, g.Steps[i].In)
		}
	}
	for _, s := range tailOf(g) {
		cross(layers, s.In)
	}
	for n, count := range found {
		if count != 1 {
			return nil, fmt.Errorf("%d values cross from layer %d to the next one; hidden states can be told where one does",
				count, n-1)
		}
	}
	return streams, nil
}

// layoutOf finds what Gather looks at in a graph that AddExits has changed.
func layoutOf(g *graph.Graph) (*layout, error) {
	l := &layout{}
	var err error
	if l.streams, err = streamsOf(g); err != nil {
		return nil, err
	}
	for i := range g.Steps {
		s := &g.Steps[i]
		op, ok := s.Op.(step.Attend)
		if !ok {
			continue
		}
		n, _ := layerOf(s.Name)
		l.heads = append(l.heads, heads{n, op, g.Caches[op.Cache], s.In[0], s.In[1]})
	}
	if len(l.heads) == 0 {
		return nil, fmt.Errorf("the model has no attention")
	}
	logits := g.Values[g.Logits].Name
	for n := range len(l.streams) - 2 {
		v, ok := g.Find(exitName(n, logits))
		if !ok {
			return nil, fmt.Errorf("the graph has no exit behind layer %d", n)
		}
		l.exits = append(l.exits, v)
	}
	l.exits = append(l.exits, g.Logits)
	return l, nil
}

// values are all values that are looked at.
func (l *layout) values() []graph.ValueID {
	var list []graph.ValueID
	for _, h := range l.heads {
		list = append(list, h.q, h.k)
	}
	return append(append(list, l.streams...), l.exits...)
}
