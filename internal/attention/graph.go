// Package attention measures where a model looks and how its hidden states move: attention weights by layer and head,
// and what the model would say if it ended at each layer. All comes from the taps of one pass over a text.
package attention

import (
	"fmt"
	"slices"

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
	layer int // counted by attention steps
	op    step.Attend
	cache graph.Cache
	q, k  graph.ValueID
}

// Exits are the logits of a model that ended earlier: behind each layer but the last the steps that make logits,
// applied to its hidden states (the "logit lens").
type Exits struct{ l layout }

// Add gives a graph its exits: a change of engine.Options, before Gather.
func (x *Exits) Add(g *graph.Graph) error {
	stages, err := g.Stages()
	if err != nil {
		return err
	}
	if len(stages) < 3 {
		return fmt.Errorf("%d stages: the model has no layers, or nothing behind them", len(stages))
	}
	x.l = layout{}
	for _, s := range stages[1:] {
		x.l.streams = append(x.l.streams, s.In)
	}
	if err := x.l.findHeads(g); err != nil {
		return err
	}
	tail := slices.Clone(g.Steps[stages[len(stages)-1].First:])
	for n, v := range x.l.streams[1 : len(x.l.streams)-1] {
		if err := x.l.addExit(g, tail, n, v); err != nil {
			return err
		}
	}
	x.l.exits = append(x.l.exits, g.Logits)
	return nil
}

// addExit adds the steps of the tail, which reads the last of the streams, to the hidden states behind layer n.
func (l *layout) addExit(g *graph.Graph, tail []graph.Step, n int, stream graph.ValueID) error {
	add := func(op graph.Op, name string, in []graph.ValueID, w []graph.WeightID, width int) graph.ValueID {
		name = fmt.Sprintf("exit.%d.%s", n, name)
		v := g.NewValue(name, width)
		g.Values[v].Space.Picked = true
		g.Add(op, name, in, []graph.ValueID{v}, w...)
		return v
	}
	last := l.streams[len(l.streams)-1]
	now := map[graph.ValueID]graph.ValueID{last: add(step.Pick{}, "pick", []graph.ValueID{stream}, nil, g.Width(stream))}
	for _, s := range tail {
		if len(s.Out) != 1 {
			return fmt.Errorf("step %s has %d results", s.Name, len(s.Out))
		}
		in := make([]graph.ValueID, len(s.In))
		for i, v := range s.In {
			in[i] = now[v] // the border has one value alone
		}
		now[s.Out[0]] = add(s.Op, s.Name, in, s.W, g.Width(s.Out[0]))
	}
	l.exits = append(l.exits, now[g.Logits])
	return nil
}

// findHeads finds the attention steps.
func (l *layout) findHeads(g *graph.Graph) error {
	for i := range g.Steps {
		s := &g.Steps[i]
		if op, ok := s.Op.(step.Attend); ok {
			if len(s.W) > 0 {
				return fmt.Errorf("step %s: weights beside sinks are not looked at", s.Name)
			}
			l.heads = append(l.heads, heads{len(l.heads), op, g.Caches[op.Cache], s.In[0], s.In[1]})
		}
	}
	if len(l.heads) == 0 {
		return fmt.Errorf("the model has no attention")
	}
	return nil
}

// values are all values that are looked at.
func (l *layout) values() []graph.ValueID {
	var list []graph.ValueID
	for _, h := range l.heads {
		list = append(list, h.q, h.k)
	}
	return append(append(list, l.streams...), l.exits...)
}
