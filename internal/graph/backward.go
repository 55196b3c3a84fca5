package graph

import (
	"fmt"
	"slices"
)

// Differentiable is a kind of step with a backward.
type Differentiable interface {
	Op
	// Backward appends to the tape the steps that make, of the gradients of the step's outputs, those of its inputs and of its weights.
	Backward(t *Tape, s *Step) error
}

// A Tape is the backward of a graph in the making. It is more of the graph: the gradient of a value is a value of the same rows and width, that of a
// weight one of the weight's rows. Sums over rows go leaf by leaf: a leaf is Leaf rows of the walk, and a walk has Rows of them, a power of two of leaves.
// Those of leaves are added by a tree of their numbers, so that walks of fewer leaves, added by that tree, make the same bits.
type Tape struct {
	G          *Graph
	Rows, Leaf int
	// Part is how many rows of a leaf the gradient of a matrix is summed over in one chain; 0: all of them. Onto is sums that gradients of weights go on from.
	Part int
	Onto map[WeightID]ValueID

	sum     Op                     // adds two values
	frozen  func(WeightID) bool    // weights that get no gradient
	needs   []bool                 // by value of the forward: a weight that is not frozen is behind it
	grads   []ValueID              // of values; none: -1
	turned  map[ValueID]ValueID    // see Once
	weights map[WeightID][]ValueID // terms of gradients of weights
}

// A NoBackwardError says which step cannot be differentiated.
type NoBackwardError struct {
	Step, Kind string
	Why        string // "" where the kind has none at all
}

func (e *NoBackwardError) Error() string {
	why := e.Why
	if why == "" {
		why = "no backward yet"
	}
	return fmt.Sprintf("step %s: %s has %s", e.Step, e.Kind, why)
}

// NewTape begins the backward of a graph that has only its forward pass yet, or what of it stands before the loss. rows is the number of rows of every walk, leaf
// those of a leaf; sum is the kind of step that adds two values. Weights that are frozen (nil: none is) get no gradient.
func NewTape(g *Graph, rows, leaf int, sum Op, frozen func(WeightID) bool) (*Tape, error) {
	if n := rows / max(1, leaf); leaf < 1 || rows%leaf != 0 || n&(n-1) != 0 {
		return nil, fmt.Errorf("internal error: %d rows in leaves of %d", rows, leaf)
	}
	if frozen == nil {
		frozen = func(WeightID) bool { return false }
	}
	t := &Tape{G: g, Rows: rows, Leaf: leaf, sum: sum, frozen: frozen, turned: map[ValueID]ValueID{}, weights: map[WeightID][]ValueID{}}
	t.Forward(0)
	return t, nil
}

// Forward says that the steps from first on, which were appended, are more of the forward pass.
func (t *Tape) Forward(first int) {
	t.needs = append(t.needs, make([]bool, len(t.G.Values)-len(t.needs))...)
	for i := range t.G.Steps[first:] {
		s := &t.G.Steps[first+i]
		needs := slices.ContainsFunc(s.In, t.Needs) || slices.ContainsFunc(s.W, t.Trains)
		for _, v := range s.Out {
			t.needs[v] = needs
		}
	}
}

// Back appends the backward of steps [first, end), the last one first, of what the gradients of their outputs are by then.
func (t *Tape) Back(first, end int) error {
	for i := end - 1; i >= first; i-- {
		s := t.G.Steps[i] // a copy: the list grows
		if !slices.ContainsFunc(s.Out, func(v ValueID) bool { _, ok := t.Of(v); return ok && t.Needs(v) }) {
			continue
		}
		d, ok := s.Op.(Differentiable)
		if !ok {
			return &NoBackwardError{Step: s.Name, Kind: s.Op.Kind()}
		}
		if err := d.Backward(t, &s); err != nil {
			return err
		}
	}
	return nil
}

// Take is the gradients of weights that were given since it was called last: they are not the tape's any more.
func (t *Tape) Take() map[WeightID][]ValueID {
	w := t.weights
	t.weights = map[WeightID][]ValueID{}
	return w
}

// Needs reports whether the gradient of a value of the forward is wanted: a weight that is not frozen is behind it. Trains reports whether one is not frozen.
func (t *Tape) Needs(v ValueID) bool   { return t.needs[v] }
func (t *Tape) Trains(w WeightID) bool { return !t.frozen(w) }

// Weights are the gradients of weights: the terms that add up to them. A weight that is used twice has two. They are not added here: a walk's terms are
// trees of leaves, and so are those of several walks, but their sum is none.
func (t *Tape) Weights() map[WeightID][]ValueID { return t.weights }

// Of is the gradient of a value as far as the steps behind have given it; false: nothing depends on it.
func (t *Tape) Of(v ValueID) (ValueID, bool) {
	if int(v) >= len(t.grads) || t.grads[v] < 0 {
		return 0, false
	}
	return t.grads[v], true
}

// Give adds d to the gradient of a value, in the order of the calls.
func (t *Tape) Give(v, d ValueID) {
	for len(t.grads) < len(t.G.Values) {
		t.grads = append(t.grads, -1)
	}
	if old, ok := t.Of(v); ok {
		d = t.Do(t.sum, "d."+t.G.Values[v].Name, t.G.Width(v), t.G.Values[v].Space, []ValueID{old, d})[0]
	}
	t.grads[v] = d
}

// GiveWeight adds terms to the gradient of a weight; none where a step reads it and the gradient is zero whatever it is.
func (t *Tape) GiveWeight(w WeightID, d ...ValueID) { t.weights[w] = append(t.weights[w], d...) }

// Do appends a step with an output of the width and space, and more outputs of other widths with the same space.
func (t *Tape) Do(op Op, name string, width int, space Space, in []ValueID, w ...WeightID) []ValueID {
	v := t.Value(name, width, space)
	t.G.Add(op, name, in, []ValueID{v}, w...)
	return []ValueID{v}
}

// Value adds a value.
func (t *Tape) Value(name string, width int, space Space) ValueID {
	v := t.G.NewValue(name, width)
	t.G.Values[v].Space = space
	return v
}

// OfWeight is the space of the gradient of a weight.
func (t *Tape) OfWeight(w WeightID) Space { return Space{Fixed: t.G.Weights[w].Rows} }

// Turned is value v with rows and columns changed: a row for each column of v, with an element for each row that v has in the walk. It is made once.
func (t *Tape) Turned(v ValueID, turn Op) ValueID {
	x, ok := t.turned[v]
	if !ok {
		name := t.G.Values[v].Name + ".T"
		x = t.Do(turn, name, t.G.Values[v].Space.Rows(t.Rows, t.Rows), Space{Fixed: t.G.Width(v)}, []ValueID{v})[0]
		t.turned[v] = x
	}
	return x
}

// Transpose is the transpose of a matrix, or of that of each expert, as a weight.
func (t *Tape) Transpose(w WeightID) WeightID { return t.G.Use(t.G.Weights[w].Turn()) }
