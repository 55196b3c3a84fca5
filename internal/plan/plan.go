// Package plan lays a graph out on a machine: it turns steps into a list of items, each with its realisation, its buffers and
// its cut over workers, and puts a barrier where one worker needs what another one wrote.
//
// On a machine with several homes (Homes) a buffer is shared, or each member has a copy, and every barrier has a scope: the smallest group that has
// the workers between which it stands.
//
// A plan is data: Explain prints it, Check proves that between two barriers no worker touches what another one writes. A plan is
// made for a class of row counts and a number of workers; the results do not depend on either.
package plan

import (
	"ck/internal/graph"
	"ck/internal/kernel"
)

// BufID names a buffer of the plan.
type BufID int

// Buffer is a piece of the arena: rows of float32 values, or an Act. Caches are buffers without bytes here.
type Buffer struct {
	Name    string
	Width   int            // elements of a row, in the unit that operands count columns in
	Act     bool           // holds an Act of kind Kind
	Kind    kernel.ActKind // of an Act
	Sums    kernel.Sums    // of an Act: what its readers need
	Cache   int            // 1 + index of the cache that this buffer stands for; 0: memory of the arena
	Parts   int            // partial results of attention for so many queries a column: memory that the walk sizes; 0: none
	PartsOf int            // index of the cache that these are about
	Space   graph.Space    // what it has rows for
	Shared  bool           // it is one for all members, in an arena of all; else each has its own at the same place of an arena of its own
	Offset  int            // in the arena, bytes
	Bytes   int
}

// None is no buffer.
const None BufID = -1

// Tap is a value that can be read when the walk is over, and where it lies.
type Tap struct {
	Value graph.ValueID
	Op    Operand
}

// Operand is a buffer that an item reads or writes.
type Operand struct {
	Buf  BufID
	Val  int // version: the number of the value that the buffer holds then
	Unit int // columns per unit of a Cols cut, KV head of a Tiles cut
	All  bool
	Mine bool // of all rows the columns that are the member's equal share
	Far  bool // the copies of all members, not the own one
}

// Item is one entry of the list.
type Item struct {
	Do      *Kind
	Name    string
	Steps   []int // the graph's steps that it realises
	In, Out []Operand
	W       []graph.WeightID
	Cut     Cut
	Op      graph.Op    // the step's operation, for its attributes; nil for items of the planner's own
	Add     bool        // adds to what Out holds, the last of In: a fused residual
	Table   int         // items without Op: index of the rope table
	Space   graph.Space // what it goes over
	Scope   Scope       // of a barrier
}

// Class is the class of row counts that a plan is for.
type Class uint8

const (
	One  Class = iota // one row: generation
	Few               // 2 to 16 rows: batches, speculation
	Many              // prompts
)

func (c Class) String() string { return [...]string{"one", "few", "many"}[c] }

// ClassOf is the class of a walk of n rows.
func ClassOf(n int) Class {
	switch {
	case n <= 1:
		return One
	case n <= 16:
		return Few
	}
	return Many
}

// Plan is a graph on a machine.
type Plan struct {
	G        *graph.Graph
	Class    Class
	Workers  int
	Homes    Homes
	Tokens   bool // each member has rows of its own, see Layout.Tokens; MaxRows are one member's
	MaxRows  int  // rows that the buffers hold
	MaxPicks int
	Items    []Item
	Bufs     []Buffer
	Arena    int   // bytes of all buffers that each member has
	Common   int   // bytes of the shared ones
	Logits   BufID // None if the plan stops before
	Taps     []Tap
	Steps    int              // of the graph that are realised: the first so many
	Formats  []*kernel.Format // of each weight that a matmul reads; nil for others
}
