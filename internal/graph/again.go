package graph

import "slices"

// Layers are the numbers of the layers that the first steps of g have, in their order. The names "blk.N." of steps and weights tell.
func (g *Graph) Layers(steps int) (list []int) {
	layers, last := g.layers(steps), -1
	for _, n := range layers {
		if n > last && n != behind {
			list, last = append(list, n), n
		}
	}
	return list
}

// layers is the layer of each of the first steps of g; below zero: it stands before the first one.
func (g *Graph) layers(steps int) []int {
	list, layer := make([]int, steps), -2
	for i := range list {
		if n, ok := g.layerOf(&g.Steps[i], layer); ok && n > layer {
			layer = n
		}
		list[i] = layer
	}
	return list
}

// Again has the first layers, so many, done again where the backward begins to read them, so that their values need not be kept until then. The first forward
// steps of g are the forward pass, those behind them its loss and backward (Differentiate). What is kept of such a layer is what other layers read, its input
// before all, and what a step of a kind that once names made. Steps that are done again are called "again." and their name; they have the operands, and so the
// bits, that they had. What input i of a kind was is remembered where remembers says so: done again, the step names the value that it read at first.
func (g *Graph) Again(forward, layers int, once func(Op) bool, remembers func(op Op, i int) bool) {
	all := g.Layers(forward)
	x := &again{g: g, layer: g.layers(forward), chosen: all[:min(max(layers, 0), len(all))], by: map[ValueID]int{}, copies: map[ValueID]ValueID{}, remembers: remembers}
	if len(x.chosen) == 0 {
		return
	}
	x.find(forward, once)
	backward := g.Steps[forward:]
	g.Steps = slices.Clone(g.Steps[:forward])
	done := map[int]bool{}
	for _, s := range backward {
		for _, v := range s.In {
			if i, ok := x.by[v]; ok && x.repeat[i] && !done[x.layer[i]] {
				done[x.layer[i]] = true
				x.emit(x.layer[i])
			}
		}
		s.In = x.operands(s.In)
		g.Steps = append(g.Steps, s)
	}
}

// again is the work of Graph.Again.
type again struct {
	g      *Graph
	layer  []int           // of each step of the forward pass
	chosen []int           // layers that are done again
	by     map[ValueID]int // the step that makes a value that is not kept
	repeat []bool          // by step: it is done again
	copies map[ValueID]ValueID

	remembers func(op Op, i int) bool
}

// find finds values that are not kept, and the steps whose values the backward reads, from its own inputs back to what is kept.
func (x *again) find(forward int, once func(Op) bool) {
	g := x.g
	x.repeat = make([]bool, forward)
	for i := range forward {
		if s := &g.Steps[i]; slices.Contains(x.chosen, x.layer[i]) && !once(s.Op) {
			for _, v := range s.Out {
				x.by[v] = i
			}
		}
	}
	for i := range forward {
		for _, v := range g.Steps[i].In {
			if from, ok := x.by[v]; ok && x.layer[from] != x.layer[i] {
				delete(x.by, v)
			}
		}
	}
	for i := len(g.Steps) - 1; i >= 0; i-- {
		if i < forward && !x.repeat[i] {
			continue
		}
		s := &g.Steps[i]
		for j, v := range s.In {
			if from, ok := x.by[v]; ok && (i >= forward || !x.remembers(s.Op, j)) {
				x.repeat[from] = true
			}
		}
	}
}

// emit appends the steps of a layer that are done again, in their order.
func (x *again) emit(layer int) {
	g := x.g
	for i, n := range x.layer {
		if n != layer || !x.repeat[i] {
			continue
		}
		s := g.Steps[i]
		in := x.operands(s.In)
		for j, v := range s.In {
			if x.remembers(s.Op, j) {
				in[j] = v
			}
		}
		s.Name, s.In = "again."+s.Name, in
		out := make([]ValueID, len(s.Out))
		for j, v := range s.Out {
			out[j] = g.NewValue("again."+g.Values[v].Name, g.Width(v))
			g.Values[out[j]].Space = g.Values[v].Space
			if _, ok := x.by[v]; ok {
				x.copies[v] = out[j]
			}
		}
		s.Out = out
		g.Steps = append(g.Steps, s)
	}
}

// operands are values, or what was made of them again.
func (x *again) operands(in []ValueID) []ValueID {
	in = slices.Clone(in)
	for i, v := range in {
		if c, ok := x.copies[v]; ok {
			in[i] = c
		}
	}
	return in
}
