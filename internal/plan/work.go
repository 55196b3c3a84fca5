package plan

import (
	"strings"

	"ck/internal/kernel"
)

// Load is what a walk is asked for, for the account of its work.
type Load struct {
	Rows, Picks int
	Keys        float64 // positions that a row sees, on average
	CacheReads  float64 // how often the keys are read: once by each row, or by each tile of rows of one sequence
	CacheBytes  []int64 // of one position, by cache of the graph; nil: not counted
	// Experts is how many experts the rows chose together, by choice (graph.Space.Route - 1), on average; nil: as many as if all were as likely, and
	// rows chose without regard to each other.
	Experts []float64
}

// RowsOf is the number of rows of an item.
func (l *Load) RowsOf(it *Item) int { return it.Space.Rows(l.Rows, l.Picks) }

// PositionBytes is what one position takes in a cache of the graph.
func (l Load) PositionBytes(cache int) float64 {
	if l.CacheBytes == nil {
		return 0
	}
	return float64(l.CacheBytes[cache])
}

// Work is what has to be read from memory and computed at least.
type Work struct {
	Bytes float64 // weights and cache; activations stay in caches
	Ops   float64 // a multiplication and an addition are two
	Kind  string  // of the arithmetic: kernel.Int8, BF16 or F32
}

// Work is the work of item i.
func (p *Plan) Work(i int, l Load) Work {
	it := &p.Items[i]
	if it.Do.Work == nil {
		return Work{Kind: kernel.F32}
	}
	return it.Do.Work(p, it, l)
}

// Elements is what a row of an item takes that is neither a matmul nor attention.
type Elements struct {
	N float64 // elements
	// Ops is what an element takes, in operations at the float32 peak: the clock and the width of vectors change it as they change the peak.
	// Measured: steps of prompts of 512 rows, one thread.
	Ops float64
	// Moved is the bytes that go through memory for prompts, whose values are in no cache any more when the next step comes to them.
	Moved float64
	Whole bool // every worker does all of it
}

// Elements is what a row of an item takes.
func (p *Plan) Elements(it *Item) Elements {
	if it.Do.Elements != nil {
		return it.Do.Elements(p, it)
	}
	return Streamed(p, it, it.Do.Ops)
}

// Streamed is Elements of a step that reads its inputs and writes its result, which reads it first.
func Streamed(p *Plan, it *Item, ops float64) Elements {
	return Elements{N: p.Width(it.Out), Ops: ops, Moved: 4*p.Width(it.In) + 8*p.Width(it.Out)}
}

// Width is the sum of the widths of operands.
func (p *Plan) Width(of []Operand) (n float64) {
	for _, o := range of {
		n += float64(p.Bufs[o.Buf].Width)
	}
	return n
}

// Total adds up a plan: everything that is read, and the operations of its matmuls, which is what peaks are compared with. Kind is the
// kind of most operations.
func (p *Plan) Total(l Load) Work {
	var sum Work
	ops := map[string]float64{}
	for i := range p.Items {
		work := p.Work(i, l)
		sum.Bytes += work.Bytes
		if p.Items[i].Do.Group == Products {
			sum.Ops += work.Ops
			ops[work.Kind] += work.Ops
		}
	}
	sum.Kind = kernel.F32
	for _, k := range []string{kernel.Int8, kernel.BF16} {
		if ops[k] > ops[sum.Kind] {
			sum.Kind = k
		}
	}
	return sum
}

// Label names an item without its layer: "ffn_down+residual" for all layers' ones, "d.ffn_down" for their gradients, "again.ffn_down" for what is done again.
// Barriers are "barrier".
func (it *Item) Label() string {
	name, before := it.Name, ""
	for _, of := range []string{"d.", "again."} {
		if strings.HasPrefix(name, of+"blk.") {
			name, before = name[len(of):], of
		}
	}
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		if _, after, ok := strings.Cut(rest, "."); ok {
			name = before + after
		}
	}
	switch {
	case it.Do.Named:
		return name
	case name == it.Do.Name || name == "":
		return it.Do.Name
	}
	return name + " " + it.Do.Name
}
