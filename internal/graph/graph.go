// Package graph says what a model computes: a list of steps over values of shape [rows, width].
//
// A row is one token on its way through the model. The graph knows no thread, no data type, no cache, no instruction set, and no kind of
// step: those are package step. Interpret runs any graph in float64.
package graph

import "fmt"

// ValueID names a value of the graph.
type ValueID int

// Value is a quantity of shape [rows, Width]. Values are written once.
type Value struct {
	Name  string
	Width int
	Space Space
}

// Space says what a value has rows for. The zero Space is the rows of the walk.
type Space struct {
	// Picked: the rows of the walk whose logits are wanted, not every row (see step.Pick).
	Picked bool
	// Route is 1 + the number of a choice of experts (see step.Route): the value has Used rows for each row of the walk or each picked one, a
	// row for each expert that it chose. 0: it has one.
	Route, Used int
	// Fixed is the number of rows of every walk, such as those of a weight whose gradient a value is; 0: it depends on the walk.
	Fixed int
}

// Rows is the number of rows that a value of the space has in a walk of so many rows and picked ones.
func (s Space) Rows(rows, picks int) int {
	switch {
	case s.Fixed > 0:
		return s.Fixed
	case s.Picked:
		rows = picks
	}
	return rows * max(1, s.Used)
}

// WeightID names a weight of the graph.
type WeightID int

// Weight is a tensor of the model: a matrix [Rows, Cols], or a vector where Rows is 1. It may be a part of one.
type Weight struct {
	Name       string // the GGUF tensor name, "blk.0.attn_q.weight"
	Rows, Cols int
	// Experts is the number of matrices of equal size that the rows are, one after the other, where experts have one each; else 0.
	Experts int
	// From and Of say which part of a tensor it is that has the outputs of several projections one after the other, such as those of queries, keys
	// and values: of the Of rows of each matrix those from From on, of the Of elements of a vector those. Of is 0 for a whole tensor.
	From, Of int
	// Turned: the weight is the transpose of the tensor.
	Turned bool
}

// TensorRow is the tensor's row that row r of a matrix is.
func (w Weight) TensorRow(r int) int {
	if w.Of == 0 {
		return r
	}
	return r/w.Each()*w.Of + w.From + r%w.Each()
}

// TensorRows is the number of rows of the tensor of a matrix.
func (w Weight) TensorRows() int {
	if w.Of == 0 {
		return w.Rows
	}
	return max(1, w.Experts) * w.Of
}

// Label is the tensor's name, and which of its outputs the weight is where it is a part.
func (w Weight) Label() string {
	switch {
	case w.Turned:
		return w.Name + ".T"
	case w.Of == 0:
		return w.Name
	}
	n := w.Each()
	if w.Rows == 1 {
		n = w.Cols
	}
	return fmt.Sprintf("%s[%d:%d]", w.Name, w.From, w.From+n)
}

// Each is the number of rows of one matrix.
func (w Weight) Each() int { return w.Rows / max(1, w.Experts) }

// Turn is the transpose of the weight, of each expert's matrix by itself.
func (w Weight) Turn() Weight {
	w.Rows, w.Cols, w.Turned = max(1, w.Experts)*w.Cols, w.Each(), !w.Turned
	return w
}

// Op is what a step does; its type is the kind of the step.
type Op interface {
	// Kind is the kind's name, as --explain prints it.
	Kind() string
	// Check is the shape rule: it says what is wrong with the widths of the step's values and the shapes of its weights.
	Check(g *Graph, s *Step) error
	// Ref computes the wanted rows of the step's outputs in float64; it is the definition of the step.
	Ref(r *Ref, s *Step)
	// Needs says which rows of input i the wanted rows of the outputs read: the same rows, or all of them.
	Needs(i int) Need
	// Role says how the step reads its weight i.
	Role(i int) Role
}

// Role is how a step reads a weight.
type Role uint8

const (
	Matrix Role = iota // all of it, multiplied with every row: panels
	Lookup             // single rows, by index: the file form
	Vector             // float32 values: norms, biases
)

// Roles says in which roles the steps read weight w. A tied embedding has two.
func (g *Graph) Roles(w WeightID) (roles [3]bool) {
	for i := range g.Steps {
		for j, x := range g.Steps[i].W {
			if x == w {
				roles[g.Steps[i].Op.Role(j)] = true
			}
		}
	}
	return roles
}

// Need is the rows of an input that a row of the output reads.
type Need uint8

const (
	SameRow  Need = iota // the row of the same index
	AllRows              // every row of the walk (keys and values of attention)
	PickRow              // the row of the walk that the output row was picked from
	SentRow              // the row that the routed output row is of
	SentRows             // all routed rows of the output row
)

// Step applies an Op to values and weights.
type Step struct {
	Op   Op
	Name string
	In   []ValueID
	Out  []ValueID
	W    []WeightID
}

// Graph is the list of steps, in an order in which every value is written before it is read.
type Graph struct {
	Arch    string
	Values  []Value
	Weights []Weight
	Steps   []Step
	Ropes   []Rope    // tables of rotary frequencies, shared by steps
	Routes  int       // choices of experts
	Caches  []Cache   // what attention steps remember of earlier rows
	Logits  ValueID   // the result
	Results []ValueID // other results: gradients of weights
	Vocab   int       // width of Logits
	Context int       // context length that the model was made for, in tokens
}

// Cache is the state of one attention step: keys [KVHeads, D] and values [KVHeads, Dv] of every position.
type Cache struct {
	KVHeads, D, Dv int
	Window         int // 0, or how many positions (its own included) a row sees
	// Chunked: a row sees the positions of its own stretch of Window positions instead, which begin at multiples of it.
	Chunked bool
}

// First is the first position that a row at pos sees.
func (c Cache) First(pos int) int {
	switch {
	case c.Window == 0:
		return 0
	case c.Chunked:
		return pos - pos%c.Window
	}
	return max(0, pos+1-c.Window)
}

// NewValue adds a value.
func (g *Graph) NewValue(name string, width int) ValueID {
	g.Values = append(g.Values, Value{Name: name, Width: width})
	return ValueID(len(g.Values) - 1)
}

// Find is the value of that name.
func (g *Graph) Find(name string) (ValueID, bool) {
	for i := range g.Values {
		if g.Values[i].Name == name {
			return ValueID(i), true
		}
	}
	return 0, false
}

// NewWeight adds a weight or finds the one of that name.
func (g *Graph) NewWeight(name string, rows, cols int) WeightID {
	return g.NewExperts(name, 0, rows, cols)
}

// NewExperts is NewWeight of the matrices of so many experts, which have rows rows together.
func (g *Graph) NewExperts(name string, experts, rows, cols int) WeightID {
	return g.Use(Weight{Name: name, Rows: rows, Cols: cols, Experts: experts})
}

// Use adds a weight or finds the one of the same name and part.
func (g *Graph) Use(x Weight) WeightID {
	for i, w := range g.Weights {
		if w.Name == x.Name && w.From == x.From && w.Of == x.Of && w.Turned == x.Turned {
			return WeightID(i)
		}
	}
	g.Weights = append(g.Weights, x)
	return WeightID(len(g.Weights) - 1)
}

// Add appends a step.
func (g *Graph) Add(op Op, name string, in, out []ValueID, w ...WeightID) {
	g.Steps = append(g.Steps, Step{Op: op, Name: name, In: in, Out: out, W: w})
}

// Width is the width of a value.
func (g *Graph) Width(v ValueID) int { return g.Values[v].Width }

// Check applies every shape rule, and that values are written once, before they are read.
func (g *Graph) Check() error {
	written := make([]bool, len(g.Values))
	for i := range g.Steps {
		s := &g.Steps[i]
		for _, v := range s.In {
			if !written[v] {
				return fmt.Errorf("step %d %s: reads %s before it is written", i, s.Name, g.Values[v].Name)
			}
		}
		for _, v := range s.Out {
			if written[v] {
				return fmt.Errorf("step %d %s: writes %s a second time", i, s.Name, g.Values[v].Name)
			}
			written[v] = true
		}
		if err := s.Op.Check(g, s); err != nil {
			return fmt.Errorf("step %d %s %s: %w", i, s.Op.Kind(), s.Name, err)
		}
	}
	if int(g.Logits) >= len(written) || !written[g.Logits] {
		return fmt.Errorf("no step writes the logits")
	}
	return nil
}

// Arity is the part of a shape rule that all kinds share: the numbers of inputs, outputs and weights (from, to).
func (s *Step) Arity(in, out, w0, w1 int) error {
	if len(s.In) != in || len(s.Out) != out || len(s.W) < w0 || len(s.W) > w1 {
		return fmt.Errorf("has %d inputs, %d outputs, %d weights", len(s.In), len(s.Out), len(s.W))
	}
	return nil
}

// SameWidth is the shape rule of elementwise steps.
func (g *Graph) SameWidth(vs ...ValueID) error {
	for _, v := range vs[1:] {
		if g.Width(v) != g.Width(vs[0]) {
			return fmt.Errorf("%s is %d wide, %s %d", g.Values[vs[0]].Name, g.Width(vs[0]), g.Values[v].Name, g.Width(v))
		}
	}
	return nil
}
