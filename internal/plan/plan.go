// Package plan lays a graph out on a machine: it turns steps into a list of items, each with its realisation, its buffers and
// its cut over workers, and puts a barrier where one worker needs what another one wrote.
//
// A plan is data: Explain prints it, Check proves that between two barriers no worker touches what another one writes. A plan is
// made for a class of row counts and a number of workers; the results do not depend on either.
package plan

import (
	"ck/internal/graph"
	"ck/internal/kernel"
)

// Code is the realisation of an item: which routine of the walk does it.
type Code uint8

// The realisations.
const (
	Barrier      Code = iota // all workers meet
	Embed                    // rows of the file form, decoded
	Angles                   // cos and sin of the rows' positions for a rope table
	Norm                     // RMSNorm, whole rows or groups
	Quant                    // activations in the form that matmuls read
	Matmul                   // panels × rows, with bias and residual where fused
	Rope                     // rotary positions, in place
	Store                    // keys and values into the pages of the cache
	Attend                   // attention, all keys of a head by one worker
	AttendChunks             // attention, chunks of keys dealt to workers
	AttendMerge              // the chunks' results, merged in ascending order
	SwiGLU                   // silu(gate) * up
	Add                      // a + b
	Pick                     // the rows whose logits are wanted
	codes
)

var codeNames = [codes]string{"barrier", "embed", "angles", "rmsnorm", "quantize", "matmul", "rope", "kv-store", "attend",
	"attend-chunks", "attend-merge", "silu-mul", "add", "pick"}

func (c Code) String() string { return codeNames[c] }

// Axis is the direction in which an item is cut over workers.
type Axis uint8

const (
	Rows  Axis = iota // whole rows; a unit is a row
	Cols              // all rows of some columns; a unit is Operand.Unit columns
	Tiles             // attention: a unit is (KV head, tile of TileRows rows), heads first
	Split             // attention: a unit is (KV head, row, chunk of keys)
)

func (a Axis) String() string { return [...]string{"rows", "cols", "tiles", "chunks"}[a] }

// TileRows is the number of rows of an attention tile.
const TileRows = 32

// Cut says how an item is dealt to workers: worker w of W takes units [N*w/W, N*(w+1)/W). Of a shared item that is where each worker
// begins; who is done takes over what others have not begun, so any worker may touch all of it.
type Cut struct {
	By     Axis
	N      int // units of Cols; KV heads of Tiles and Split; unused for Rows
	Shared bool
}

// Share is the range of n units that worker w of workers takes.
func Share(n, w, workers int) (lo, hi int) { return n * w / workers, n * (w + 1) / workers }

// BufID names a buffer of the plan.
type BufID int

// Buffer is a piece of the arena: rows of float32 values, or an Act. Caches are buffers without bytes here.
type Buffer struct {
	Name   string
	Width  int            // elements of a row, in the unit that operands count columns in
	Act    bool           // holds an Act of kind Kind
	Kind   kernel.ActKind // of an Act
	Sums   kernel.Sums    // of an Act: what its readers need
	Cache  int            // 1 + index of the cache that this buffer stands for; 0: memory of the arena
	Parts  bool           // partial results of attention: memory that the walk sizes
	Picked bool           // rows are the picked ones
	Offset int            // in the arena, bytes
	Bytes  int
}

// Operand is a buffer that an item reads or writes.
type Operand struct {
	Buf  BufID
	Val  int // version: the number of the value that the buffer holds then
	Unit int // columns per unit of a Cols cut, KV head of a Tiles cut
	All  bool
}

// Item is one entry of the list.
type Item struct {
	Do      Code
	Name    string
	Steps   []int // the graph's steps that it realises
	In, Out []Operand
	W       []graph.WeightID
	Cut     Cut
	Op      graph.Op // the step's operation, for its attributes; nil for items of the planner's own
	Add     bool     // Matmul: adds to what Out holds, In[1]: a fused residual
	Bias    bool     // Matmul: W[1] is the bias
	Rope    int      // Angles, Rope: index of the table
	Cache   int      // Store, Attend…: index of the cache
	Picked  bool     // the rows are the picked ones
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
	MaxRows  int // rows that the buffers hold
	MaxPicks int
	Items    []Item
	Bufs     []Buffer
	Arena    int // bytes of all buffers
	Logits   BufID
	Formats  []*kernel.Format // of each weight that a matmul reads; nil for others
}

// pickRows is the number of rows of an item or buffer in a walk of n rows, of which picks are picked.
func pickRows(picked bool, n, picks int) int {
	if picked {
		return picks
	}
	return n
}
