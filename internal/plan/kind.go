package plan

import "ck/internal/graph"

// Kind is a realisation: a step of the graph, or a piece of one, as an entry of plans. Everything that the planner, the prover and the account of
// costs must know of it stands here; the walk has a routine for each Kind. Kinds are made in package step, one file for each kind of step.
type Kind struct {
	Name    string
	In, Out int    // operands; a fused residual adds an input
	Weights [2]int // from, to
	Group   Group
	Named   bool // items' names say what they do, without the kind's
	Adds    bool // a residual may be fused
	Shared  bool // cut by panels of W[0], which any worker may take over: the last of such items in a row is shared
	// InPlace says whether the output may take over the memory of input in, where each worker reads of it just what it writes. Nil: it may not.
	InPlace func(it *Item, in int) bool
	// Work is what has to be read and computed at least. Nil: nothing that counts.
	Work func(p *Plan, it *Item, l Load) Work
	// Ops is what an element of the result takes (see Elements), where Elements is nil: a stream of inputs and results.
	Ops      float64
	Elements func(p *Plan, it *Item) Elements
}

func (k *Kind) String() string { return k.Name }

// Group is what the time of an item is counted as.
type Group uint8

const (
	Elementwise Group = iota // what is neither of the others
	Products                 // matmuls
	Attention
	Meeting // barriers
)

// Barrier is where all workers meet.
var Barrier = &Kind{Name: "barrier", Group: Meeting}

// Op is a kind of step that plans can hold.
type Op interface {
	graph.Op
	// Realise adds the items of step i to the plan and says how many of the following steps they realise as well.
	Realise(b *Builder, i int) (more int, err error)
}
