package step

import (
	"maps"
	"slices"

	"ck/internal/graph"
)

// LossRows is how many rows have logits at a time, at most, where they need not have them together; and the gradient of the output matrix is summed in a chain of
// as many rows of a leaf, and these one after the other. With 128 rows a weight is multiplied 256 times each time its gradient goes through memory.
const LossRows = 128

// lossParts makes the loss and its gradient part by part of the rows: logits, loss, and the backward of both, so that the next part has their memory. Leaves are
// added by their tree, as within a product (Outer): bits do not depend on how many a part has.
type lossParts struct {
	t    *graph.Tape
	head []graph.Step // from the product with the output matrix to the logits
	in   graph.ValueID
	leaf int // rows
	each int // leaves that are one part; 0: a leaf is several

	loss, d graph.ValueID // of the rows so far; below zero: of none
	last    graph.ValueID // the loss of all rows
}

// headOf is the last steps of a forward pass, from the product with the output matrix on, if nothing but elementwise steps follows it. Nil: something else
// does, or there is a bias.
func headOf(g *graph.Graph) []graph.Step {
	v := g.Logits
	for i := len(g.Steps) - 1; i >= 0; i-- {
		s := &g.Steps[i]
		if len(s.Out) != 1 || s.Out[0] != v || len(s.In) != 1 {
			return nil
		}
		switch s.Op.(type) {
		case Matmul:
			if len(s.W) != 1 {
				return nil
			}
			return slices.Clone(g.Steps[i:])
		case Softcap, Scale:
			if len(s.W) > 0 {
				return nil
			}
		default:
			return nil
		}
		v = s.In[0]
	}
	return nil
}

// newLossParts chooses the leaves of a part: those that take the least memory. Logits and what is made of them take 12 bytes an element; where the output matrix
// is trained, parts of leaves have gradients of it that wait for each other.
func newLossParts(t *graph.Tape, head []graph.Step) *lossParts {
	p := &lossParts{t: t, head: head, in: head[0].In[0], leaf: t.Leaf, loss: -1, d: -1}
	w := t.G.Weights[head[0].W[0]]
	leaves, best := t.Rows/t.Leaf, 0
	for each := 1; each <= leaves; each *= 2 {
		rows := each * t.Leaf
		if each == 1 {
			rows = min(rows, LossRows)
		}
		bytes := 12 * rows * w.Rows
		if t.Trains(head[0].W[0]) {
			bytes += 4 * levels(leaves/each) * w.Rows * w.Cols
		}
		if best == 0 || bytes < best {
			best = bytes
			if p.each = each; rows < t.Leaf {
				p.each = 0
			}
		}
	}
	return p
}

// all makes loss of all rows, gives the gradients of the head's weights, and returns the gradient of what goes into it; below zero: nobody wants it.
func (p *lossParts) all(loss graph.ValueID) (d graph.ValueID, err error) {
	t := p.t
	p.last = loss
	gradients, err := p.leaves(0, t.Rows/p.leaf)
	t.Leaf, t.Part, t.Onto = p.leaf, 0, nil
	for _, w := range slices.Sorted(maps.Keys(gradients)) {
		t.GiveWeight(w, gradients[w])
	}
	return p.d, err
}

// leaves makes the rows of leaves [lo, hi) and returns the gradients of the head's weights of these.
func (p *lossParts) leaves(lo, hi int) (sums map[graph.WeightID]graph.ValueID, err error) {
	t := p.t
	switch {
	case hi-lo == p.each:
		return p.rows(lo*p.leaf, (hi-lo)*p.leaf, p.leaf, nil)
	case hi-lo == 1:
		for r := 0; r < p.leaf; r += LossRows {
			n := min(LossRows, p.leaf-r)
			if sums, err = p.rows(lo*p.leaf+r, n, n, sums); err != nil {
				return nil, err
			}
		}
		return sums, nil
	}
	mid := (lo + hi) / 2
	if sums, err = p.leaves(lo, mid); err != nil {
		return nil, err
	}
	right, err := p.leaves(mid, hi)
	if err != nil {
		return nil, err
	}
	for _, w := range slices.Sorted(maps.Keys(sums)) {
		x := t.G.Weights[w]
		sums[w] = t.Do(Add{}, "d."+x.Name, x.Cols, t.OfWeight(w), []graph.ValueID{sums[w], right[w]})[0]
	}
	return sums, nil
}

// rows makes the part of n rows from one on, in leaves of so many. onto is what gradients of weights go on from; nil: they begin.
func (p *lossParts) rows(from, n, leaf int, onto map[graph.WeightID]graph.ValueID) (sums map[graph.WeightID]graph.ValueID, err error) {
	t, g, space := p.t, p.t.G, graph.Space{Fixed: n}
	first := len(g.Steps)
	x := t.Do(PartRows{from}, g.Values[p.in].Name, g.Width(p.in), space, []graph.ValueID{p.in})[0]
	v := x
	for _, s := range p.head {
		v = t.Do(s.Op, s.Name, g.Width(s.Out[0]), space, []graph.ValueID{v}, s.W...)[0]
	}
	t.Forward(first)
	end := len(g.Steps)
	loss, d := t.Value("loss", 1, space), t.Value("d."+g.Values[g.Logits].Name, g.Width(v), space)
	g.Add(CrossEntropy{from}, "loss", []graph.ValueID{v}, []graph.ValueID{loss, d})
	t.Leaf, t.Part, t.Onto = leaf, LossRows, onto
	t.Give(v, d)
	if err := t.Back(first+1, end); err != nil {
		return nil, err
	}
	sums = map[graph.WeightID]graph.ValueID{}
	for w, terms := range t.Take() {
		sums[w] = terms[0]
	}
	to := p.last
	if from+n < t.Rows {
		to = t.Value("loss", 1, g.Values[p.in].Space)
	}
	p.loss = p.place(from, loss, p.loss, to)
	if dx, ok := t.Of(x); ok {
		p.d = p.place(from, dx, p.d, t.Value("d."+g.Values[p.in].Name, g.Width(p.in), g.Values[p.in].Space))
	}
	return sums, nil
}

// place appends the step that has value to be v from a row on, and before elsewhere.
func (p *lossParts) place(from int, v, before, to graph.ValueID) graph.ValueID {
	in := []graph.ValueID{v}
	if before >= 0 {
		in = append(in, before)
	}
	p.t.G.Add(PlaceRows{from}, p.t.G.Values[to].Name, in, []graph.ValueID{to})
	return to
}
