// Package walk executes plans: every worker runs down the same list of items and does its share of each.
//
// It knows the list, buffers, weight slots and cache pages; no model, no file format. The hot path allocates nothing.
package walk

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/kv"
	"ck/internal/plan"
	"ck/internal/team"
)

// Batch is the rows of one walk: token, position and sequence of each, and which rows' logits are wanted (ascending).
type Batch struct {
	IDs, Pos []int32
	Seq      []int
	Pick     []int32

	// Of training: the token that should follow each row, below zero: none counts; and what each that counts has as its share of the loss.
	Target []int32
	Share  float32
	Draw   graph.Draw
}

// Weights is what the graph's weights are at run time, by graph.WeightID.
type Weights struct {
	Slots   [][]*Slot                      // matrices that matmuls read, their parts by home; nil for others
	Copies  [][]*Slot                      // where members have copies of others' parts: that which member m has of home h's, at m*homes+h; nil: none
	Vectors [][]float32                    // norms and biases; nil for others
	Decode  []func(row int, dst []float32) // matrices that are read by row (embeddings); nil for others
}

// Hook looks on between items: worker w is about to do item i of the plan (len(Items): the end). It must not change anything.
type Hook func(w, i int)

// Walker executes one plan.
type Walker struct {
	Plan *plan.Plan
	Hook Hook
	// End, unless 0, is how many items of the list are walked: what comes behind them is not done.
	End int
	// Link, unless nil, has workers wait as they would on a machine with a link between homes.
	Link *Link
	// Choices, unless nil, counts by step of the graph how many rows chose each expert; nil for steps that choose none.
	Choices [][]uint64
	// Lanes, by worker, are where panels are packed that movers copy to their place; nil, or missing: there is none.
	Lanes  []*Lane
	tbl    *kernel.Table
	w      Weights
	cache  *kv.Cache
	arenas [][]byte // by member
	common []byte

	team       *team.Team // of the current Run
	main       func(w int)
	batch      *Batch
	dealt      []Batch        // by member: its rows, where they are dealt
	starts     []int          // of the batch: where each chunk of rows that is dealt begins, and the end
	acts       [][]kernel.Act // by member, of Act buffers by BufID
	parts      [][]float32    // by member: partial results of attention
	chunkStart []int          // first chunk number of each row, over all rows
	routines   []Routine      // by item; nil for barriers
	workers    []Worker
	claims     []claims // of the present shared item, by worker
	followers  []int    // see there
	runs       uint64
	stop       *atomic.Bool // of the current Run
	never      atomic.Bool  // of a Run that nobody stops
	cut        atomic.Bool  // a worker has left the list before its end
	before     []float64    // see Done
	chosen     []atomic.Int32
}

// New prepares the execution of p. arenas are the memory of the plan's buffers, by member: p.Arena bytes each, aligned to 64. The weights' parts are
// those of p.Homes. The last arena, if there is one more, is that of all members: p.Common bytes. A kind of item without a routine is an error.
func New(p *plan.Plan, routines Routines, tbl *kernel.Table, w Weights, cache *kv.Cache, arenas ...[]byte) (*Walker, error) {
	n := p.Homes.Members
	if len(arenas) != n && len(arenas) != n+1 || p.Common > 0 && (len(arenas) == n || len(arenas[n]) < p.Common) {
		return nil, fmt.Errorf("internal error: %d arenas for %d members", len(arenas), n)
	}
	var common []byte
	if len(arenas) > n {
		common, arenas = arenas[n], arenas[:n]
	}
	x := &Walker{Plan: p, tbl: tbl, w: w, cache: cache, arenas: arenas, common: common, acts: make([][]kernel.Act, len(arenas)), parts: make([][]float32, len(arenas)),
		workers:  make([]Worker, p.Workers),
		routines: make([]Routine, len(p.Items)), chunkStart: make([]int, p.MaxRows+1), claims: make([]claims, p.Workers), chosen: make([]atomic.Int32, p.G.Routes)}
	x.main, x.followers = x.run, followers(p.Items)
	panel, need, join := 0, 0, 0
	for i, parts := range w.Slots {
		if len(parts) != 0 && len(parts) != p.Homes.N() {
			return nil, fmt.Errorf("internal error: %s has %d parts for %d homes", p.G.Weights[i].Name, len(parts), p.Homes.N())
		}
		for _, s := range parts {
			need = max(need, s.Format.Need(s.Cols))
			panel = max(panel, s.Scratch())
			if p.Tokens && !s.Format.Direct && s.Cols < s.whole.Cols {
				need = max(need, s.Format.Need(s.whole.Cols))
				join = max(join, scratchBytes, 2*s.Format.PanelBytes(s.whole.Cols)) // kernels take two panels together
			}
		}
	}
	for i := range x.workers {
		x.workers[i].init(x, i, need, panel, join)
	}
	for m := range x.acts {
		x.acts[m] = make([]kernel.Act, len(p.Bufs))
	}
	x.before = make([]float64, len(p.Items)+1)
	for i := range p.Items {
		it := &p.Items[i]
		if x.routines[i] = routines[it.Do]; x.routines[i] == nil && it.Do != plan.Barrier {
			return nil, fmt.Errorf("internal error: the walk has no routine for %s %s", it.Do, it.Name)
		}
		x.before[i+1] = x.before[i]
		if it.Do.Group == plan.Products && !it.Space.Picked {
			m := p.G.Weights[it.W[0]]
			x.before[i+1] += float64(m.Each()) * float64(m.Cols) * float64(max(1, it.Space.Used))
		}
	}
	return x, nil
}

// ErrStopped is what Run returns when it was stopped.
var ErrStopped = errors.New("the walk was stopped")

// Done is the share of a walk's work that lies before item i, in [0, 1]: that of its matmuls, a layer like the other.
func (x *Walker) Done(i int) float64 {
	if all := x.before[len(x.before)-1]; all > 0 {
		return x.before[i] / all
	}
	return float64(i) / float64(len(x.before)-1)
}

// Run walks the plan for a batch with the workers of t. Pages for the batch's positions must have been reserved. The logits of the
// picked rows are then in Logits, until the next Run.
//
// Where stop is not nil, the walk ends soon after it becomes true: workers look at it between items and, in long ones, between tiles of a
// matmul, chunks of attention and panels that they pack, so within about a millisecond and one page fault. Run then returns ErrStopped;
// there are no logits, and what lies in the cache at the batch's positions is anything. Panels are whole or not there.
func (x *Walker) Run(t *team.Team, b *Batch, stop *atomic.Bool) error {
	x.batch = b
	if x.Plan.Tokens {
		if err := x.dealRows(); err != nil {
			return err
		}
	}
	for m := range x.arenas {
		if n := len(x.of(m).IDs); n > x.Plan.MaxRows || len(b.Pick) > x.Plan.MaxPicks {
			return fmt.Errorf("internal error: a walk of %d rows, %d picked, in a plan for %d and %d", n, len(b.Pick), x.Plan.MaxRows, x.Plan.MaxPicks)
		}
	}
	for i := range x.Plan.Bufs {
		if buf := &x.Plan.Bufs[i]; buf.Act {
			for m, arena := range x.arenas {
				x.acts[m][i] = kernel.MakeAct(buf.Kind, buf.Sums, arena[buf.Offset:buf.Offset+buf.Bytes], kernel.ActRows(x.rows(buf.Space, m)), buf.Width)
			}
		}
	}
	x.sizeParts()
	if x.stop = stop; stop == nil {
		x.stop = &x.never
	}
	for i := range x.workers {
		wk := &x.workers[i]
		wk.Scratch.Stop, wk.Attn.Stop, wk.reader.stop = x.stop, x.stop, x.stop
		if wk.reader.lane = nil; i < len(x.Lanes) && x.Lanes[i] != nil && x.Lanes[i].home == wk.home {
			wk.reader.lane = x.Lanes[i]
		}
	}
	x.cut.Store(false)
	x.runs++
	x.team = t
	if err := t.Run(x.main); err != nil {
		return err
	}
	if x.cut.Load() {
		return ErrStopped
	}
	return nil
}

// run is one worker's way down the list.
func (x *Walker) run(w int) {
	wk := &x.workers[w]
	wk.reader.walk()
	end := len(x.Plan.Items)
	if x.End > 0 {
		end = x.End
	}
	for i := range x.Plan.Items[:end] {
		it := &x.Plan.Items[i]
		if x.Hook != nil {
			x.Hook(w, i)
		}
		if x.stop.Load() {
			x.cut.Store(true)
			x.team.Break()
			return
		}
		if it.Do == plan.Barrier {
			if !x.team.Meet(w, team.Level(it.Scope)) {
				return
			}
			if it.Scope == plan.All {
				wk.meets()
			}
			continue
		}
		if it.Cut.Shared {
			x.shared(i, wk, w)
		} else {
			x.do(i, wk, w)
		}
	}
	if x.stop.Load() { // perhaps within the last item
		x.cut.Store(true)
	}
	if x.Hook != nil {
		x.Hook(w, len(x.Plan.Items))
	}
}

// do computes worker w's part of item i.
func (x *Walker) do(i int, wk *Worker, w int) {
	it := &x.Plan.Items[i]
	if it.Do.Shared {
		x.look(i, wk, w)
	}
	wk.part = x.Plan.Part(wk.part[:0], it, it.Out[0], w, x.crew(wk.member))
	for _, r := range wk.part {
		if !r.Empty() {
			x.routines[i](wk, it, r)
		}
	}
}

// of is the rows of a member.
func (x *Walker) of(member int) *Batch {
	if x.Plan.Tokens {
		return &x.dealt[member]
	}
	return x.batch
}

// crew is who walks, and over what rows of a member.
func (x *Walker) crew(member int) plan.Crew {
	n := len(x.of(member).IDs)
	return plan.Crew{Workers: x.Plan.Workers, Rows: n, Picks: len(x.batch.Pick), Chunks: x.chunkStart[n], Homes: x.Plan.Homes}
}

// rows is the number of rows that a space has in the walk of a member.
func (x *Walker) rows(s graph.Space, member int) int {
	return s.Rows(len(x.of(member).IDs), len(x.batch.Pick))
}

// Moves is what reading panels found and did since the last call.
func (x *Walker) Moves() (all Moves) {
	for i := range x.workers {
		m := &x.workers[i].reader.moves
		all.Add(*m)
		*m = Moves{}
	}
	return all
}

// Logits is the logits of picked row i, valid until the next Run.
func (x *Walker) Logits(i int) []float32 {
	v, width := x.floats(plan.Operand{Buf: x.Plan.Logits}, 0)
	return v[i*width : (i+1)*width]
}

// Chosen is how many experts a choice had rows of in the last Run: the matrices that were read.
func (x *Walker) Chosen(route int) int { return int(x.chosen[route-1].Load()) }

// View is a value to be looked at, not written: Rows rows of Width elements, until the next Run.
type View struct {
	Rows, Width int
	Data        []float32
}

// Row is row r.
func (v View) Row(r int) []float32 { return v.Data[r*v.Width : (r+1)*v.Width] }

// Tap is a value that the plan was asked to keep (plan.Machine.Taps), as the last Run left it. Its rows are those of the batch, or the picked
// ones. Routed rows are sorted by expert: the ids, another tap, say which they are (RoutingOf).
func (x *Walker) Tap(v graph.ValueID) (View, bool) {
	for _, t := range x.Plan.Taps {
		if t.Value == v {
			data, width := x.floats(t.Op, 0)
			n := x.rows(x.Plan.Bufs[t.Op.Buf].Space, 0)
			return View{n, width, data[:n*width]}, true
		}
	}
	return View{}, false
}

// NotFinite is the first row of the walk in which item i has written an infinity or NaN, or -1. It is for hooks of walks with one
// worker, behind the item.
func (x *Walker) NotFinite(i int) int {
	it := &x.Plan.Items[i]
	for _, o := range it.Out {
		if b := &x.Plan.Bufs[o.Buf]; b.Act || b.Parts != 0 || b.Cache > 0 {
			continue
		}
		v, width := x.floats(o, 0)
		for r := range x.rows(it.Space, 0) {
			for _, f := range v[r*width : (r+1)*width] {
				if f-f == 0 {
					continue
				}
				r /= max(1, it.Space.Used) // of routed rows some row: they are sorted by expert
				if it.Space.Picked {
					return int(x.batch.Pick[r])
				}
				return r
			}
		}
	}
	return -1
}

// floats is the memory of a value as a member has it: rows of width elements.
func (x *Walker) floats(o plan.Operand, member int) (v []float32, width int) {
	b := &x.Plan.Bufs[o.Buf]
	if b.Bytes == 0 {
		return nil, b.Width
	}
	arena := x.arenas[member]
	if b.Shared {
		arena = x.common
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&arena[b.Offset])), b.Bytes/4), b.Width
}

// sizeParts numbers the chunks of all rows and makes room for their results.
func (x *Walker) sizeParts() {
	if x.Plan.Tokens { // prompts have tiles, no chunks
		return
	}
	n := 0
	for r, pos := range x.batch.Pos {
		x.chunkStart[r] = n
		n += int(pos)/kernel.ChunkKeys + 1
	}
	x.chunkStart[len(x.batch.Pos)] = n
	need := 0
	for i := range x.Plan.Bufs {
		if b := &x.Plan.Bufs[i]; b.Parts != 0 {
			need = max(need, n*b.Width*b.Parts*x.cache.Layer(b.PartsOf).Format.PartLen())
		}
	}
	if need > len(x.parts[0]) {
		for m := range x.parts {
			x.parts[m] = make([]float32, need+need/4)
		}
	}
}

// PartsBytes is the memory for partial results of attention that a walk of p with all its rows takes at most, at so many positions.
func PartsBytes(p *plan.Plan, layers []kv.Layer, positions int) int64 {
	need := 0
	for i := range p.Bufs {
		if b := &p.Bufs[i]; b.Parts != 0 {
			n := p.MaxRows * ((positions + kernel.ChunkKeys - 1) / kernel.ChunkKeys) * b.Width * b.Parts * layers[b.PartsOf].Format.PartLen()
			need = max(need, n+n/4)
		}
	}
	return 4 * int64(need) * int64(p.Homes.Members)
}
