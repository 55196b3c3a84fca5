package plan

import (
	"fmt"
	"slices"

	"ck/internal/graph"
	"ck/internal/kernel"
)

// Machine is what the planner must know of where the plan will run.
type Machine struct {
	Workers  int
	MaxRows  int // rows of the largest walk; decides the class
	MaxPicks int
	// Layout is where the graph's weights lie; nil: on one home.
	Layout *Layout
	// Format is the form of a weight that a matmul reads.
	Format func(w graph.WeightID) *kernel.Format
	// Separate takes nothing together: every item is cut for itself with a barrier behind it, residuals are added by items of their own,
	// and a row's norm is summed by one worker. The bits are the same; it is there to measure what the plan gains by doing otherwise.
	Separate bool
	// Taps are values that can be read when the walk is over (walk.Walker.Tap): they are written by items of their own and keep their memory. All
	// values have the bits that they have without taps; a plan without taps is what it would be if there were none.
	Taps []graph.ValueID
	// Stop leaves out the steps behind the last one that writes a tap. Then there are no logits.
	Stop bool
}

// QuantGrain is the number of columns that a cut must keep together where activations are quantized: the largest block.
const QuantGrain = 256

// Build lays g out on m. Its work grows about as the workers and as the graph's steps, each by itself.
// Errors name the step that has no realisation. The plan is proven for walks of MaxRows rows; Check proves it for others.
func Build(g *graph.Graph, m Machine) (*Plan, error) {
	if m.Workers < 1 || m.MaxRows < 1 || m.MaxPicks < 0 {
		return nil, fmt.Errorf("a plan for %d workers, %d rows and %d picks: there must be a worker and a row", m.Workers, m.MaxRows, m.MaxPicks)
	}
	if m.Layout == nil {
		m.Layout = NewLayout(g, OneHome)
	}
	if n := m.Layout.N(); n > m.Workers {
		return nil, fmt.Errorf("a plan for %d workers at %d homes: each must have one", m.Workers, n)
	}
	b := &Builder{
		Plan: &Plan{G: g, Class: ClassOf(m.MaxRows), Workers: m.Workers, Homes: m.Layout.Homes, Tokens: m.Layout.tokens, MaxRows: m.MaxRows, MaxPicks: m.MaxPicks,
			Formats: make([]*kernel.Format, len(g.Weights))},
		Machine: m, vals: make([]val, len(g.Values)), uses: make([]int, len(g.Values)), once: map[any][]Operand{},
	}
	for i := range g.Steps {
		for _, v := range g.Steps[i].In {
			b.uses[v]++
		}
	}
	for _, v := range m.Taps {
		b.uses[v]++ // nothing else may take its place
	}
	b.Plan.Steps = b.steps()
	for i := 0; i < b.Plan.Steps; i++ {
		op, ok := g.Steps[i].Op.(Op)
		if !ok {
			return nil, fmt.Errorf("step %d %s: the planner has no realisation of %s", i, g.Steps[i].Name, g.Steps[i].Op.Kind())
		}
		more, err := op.Realise(b, i)
		if err != nil {
			return nil, fmt.Errorf("step %d %s: %w", i, g.Steps[i].Name, err)
		}
		i += more
	}
	b.Plan.Logits = None
	if !m.Stop {
		b.Plan.Logits = b.vals[g.Logits].op.Buf
	}
	for _, v := range m.Taps {
		b.Plan.Taps = append(b.Plan.Taps, Tap{v, b.vals[v].op})
	}
	b.share()
	c := newProver(b.Plan)
	b.barriers(c)
	b.allocate(c.far)
	if err := c.checkRows(m.MaxRows, min(m.MaxRows, m.MaxPicks)); err != nil {
		return nil, fmt.Errorf("internal error: the plan is wrong: %d rows, %d workers: %w", m.MaxRows, m.Workers, err)
	}
	return b.Plan, nil
}

// A Builder is a plan in the making, as kinds of steps see it (Op.Realise).
type Builder struct {
	Plan    *Plan
	Machine Machine

	vals  []val
	uses  []int // how many inputs of steps a value is
	once  map[any][]Operand
	nvals int // versions given out
}

// val is where a value stands: the operand that reads all of it, and how its producer was cut.
type val struct {
	op   Operand
	cut  Cut
	unit int // columns per unit if the producer was cut by columns
}

// How members share a product (see Layout).

// ByK reports whether each member has a part of the K of step i, Mirrors whether each computes all of it.
func (b *Builder) ByK(i int) bool     { return b.Machine.Layout.modes[i] == byK }
func (b *Builder) Mirrors(i int) bool { return b.Machine.Layout.modes[i] == mirror }

// Dealt is how members share what is done for value v: Dealt if each computes columns of it.
func (b *Builder) Dealt(v graph.ValueID) Over {
	if b.Machine.Layout.dealt[v] {
		return Dealt
	}
	return Alike
}

// Split is Dealt if every member keeps its columns of v for itself; else each reads all of it.
func (b *Builder) Split(v graph.ValueID) Over {
	if b.split(v) {
		return Dealt
	}
	return Alike
}

func (b *Builder) split(v graph.ValueID) bool {
	return b.Machine.Layout.split[v] && !slices.Contains(b.Machine.Taps, v)
}

// Grain is how many columns a cut of value v must keep together, which panels of so many rows make.
func (b *Builder) Grain(v graph.ValueID, panel int) int { return b.Machine.Layout.grain(v, panel) }

// Tokens reports whether each member has rows of its own.
func (b *Builder) Tokens() bool { return b.Plan.Tokens }

// Even reports whether n units are the same number for every worker.
func (b *Builder) Even(n int, over Over) bool {
	h, workers := b.Plan.Homes, b.Machine.Workers
	each := -1
	for home := range h.N() {
		lo, hi := h.deal(n, home, over)
		w0, w1 := Deal(workers, home, h.N())
		if (hi-lo)%(w1-w0) != 0 || each >= 0 && (hi-lo)/(w1-w0) != each {
			return false
		}
		each = (hi - lo) / (w1 - w0)
	}
	return true
}

// steps is the number of the graph's steps that the plan realises.
func (b *Builder) steps() int {
	steps := b.Plan.G.Steps
	if !b.Machine.Stop {
		return len(steps)
	}
	n := 0
	for i := range steps {
		for _, v := range b.Machine.Taps {
			if slices.Contains(steps[i].Out, v) {
				n = i + 1
			}
		}
	}
	return n
}

// Step is step i of the graph. At is the operand of a value that was written; Uses is how many inputs of steps it is.
func (b *Builder) Step(i int) *graph.Step     { return &b.Plan.G.Steps[i] }
func (b *Builder) At(v graph.ValueID) Operand { return b.vals[v].op }
func (b *Builder) Uses(v graph.ValueID) int   { return b.uses[v] }

// Format is the form of a matrix that a matmul reads.
func (b *Builder) Format(w graph.WeightID) (*kernel.Format, error) {
	f := b.Machine.Format(w)
	if f == nil {
		return nil, fmt.Errorf("no kernel format for %s", b.Plan.G.Weights[w].Name)
	}
	b.Plan.Formats[w] = f
	return f, nil
}

// Buffer adds a buffer and returns the operand that names its only version.
func (b *Builder) Buffer(buf Buffer) Operand {
	b.Plan.Bufs = append(b.Plan.Bufs, buf)
	b.nvals++
	return Operand{Buf: BufID(len(b.Plan.Bufs) - 1), Val: b.nvals}
}

// Once is the operands that make returns at the first call for a key: what a plan has once, whoever asks for it.
func (b *Builder) Once(key any, make func() []Operand) []Operand {
	o, ok := b.once[key]
	if !ok {
		o = make()
		b.once[key] = o
	}
	return o
}

// Item is an item of kind k that realises step i; its cut and operands are to be filled in.
func (b *Builder) Item(i int, k *Kind) Item {
	s := b.Step(i)
	it := Item{Do: k, Name: s.Name, Steps: []int{i}, W: s.W, Op: s.Op}
	if len(s.Out) > 0 {
		it.Space = b.Plan.G.Values[s.Out[0]].Space
	}
	return it
}

// Emit appends an item; EmitFirst puts it at the head of the list.
func (b *Builder) Emit(it Item)      { b.Plan.Items = append(b.Plan.Items, it) }
func (b *Builder) EmitFirst(it Item) { b.Plan.Items = slices.Insert(b.Plan.Items, 0, it) }

// Finish emits the item that writes value v; unit is the columns per unit of its cut.
func (b *Builder) Finish(it Item, v graph.ValueID, unit int) {
	b.FinishAll(it, []graph.ValueID{v}, unit)
}

// FinishAll is Finish of an item that writes several values.
func (b *Builder) FinishAll(it Item, values []graph.ValueID, unit int) {
	it.Out = nil
	for _, v := range values {
		g := b.Plan.G.Values[v]
		out := b.Buffer(Buffer{Name: g.Name, Width: g.Width, Space: g.Space, Shared: it.Cut.Over != Alike && !b.split(v)})
		b.vals[v] = val{op: out, cut: it.Cut, unit: unit}
		it.Out = append(it.Out, out.Cols(unit))
	}
	b.Emit(it)
}

// FinishUnits is FinishAll where each value has its own columns per unit.
func (b *Builder) FinishUnits(it Item, values []graph.ValueID, units []int) {
	b.FinishAll(it, values, 0)
	last := &b.Plan.Items[len(b.Plan.Items)-1]
	for i, v := range values {
		b.vals[v].unit = units[i]
		last.Out[i] = last.Out[i].Cols(units[i])
	}
}

// Whole is the operand that reads everything; Cols one that reads unit columns per unit of the cut.
func (o Operand) Whole() Operand        { o.All, o.Mine, o.Unit = true, false, 0; return o }
func (o Operand) Cols(unit int) Operand { o.All, o.Mine, o.Unit = false, false, unit; return o }

// Share is the operand that reads all of what its member has if the item is dealt: the member's equal share of the columns.
func (o Operand) Share(over Over) Operand {
	o = o.Whole()
	if over != Alike {
		o.All, o.Mine = false, true
	}
	return o
}

// Copies is the operand that reads the copies of all members, at the columns per unit of the cut.
func (o Operand) Copies(unit int) Operand { o = o.Cols(unit); o.Far = true; return o }

// ColCut cuts width columns into units of grain columns (the last may be short).
func ColCut(width, grain int) Cut { return Cut{By: Cols, N: (width + grain - 1) / grain} }

// RowCut is how items that work row by row on value v are cut, dealt or alike. For prompts by rows: where workers write columns of the same rows, what a core
// fetches ahead at the end of its columns is what another one is about to write; with two workers an activation or a norm in place took 2.4
// times as long for each element. Few rows are cut as v's producer was, so that no barrier is needed between the two, or where
// that was not by columns, in columns of QuantGrain.
func (b *Builder) RowCut(v graph.ValueID, grain int, over Over) (Cut, int) {
	p, width := b.vals[v], b.Plan.G.Width(v)
	members := b.Plan.Homes.Members
	switch {
	case b.Plan.Class == Many:
		return b.RowsCut(v, over), 0
	case p.cut.By == Cols && p.cut.Over == over && (p.unit%grain == 0 && !b.Machine.Separate || over == Dealt && width/members%grain != 0):
		return p.cut, p.unit
	}
	cut := ColCut(width, grain)
	cut.Over = over
	return cut, grain
}

// RowsCut is the cut by rows of an item on value v: every member does its share of the columns if it is dealt, where shares are equal.
func (b *Builder) RowsCut(v graph.ValueID, over Over) Cut {
	if over == Dealt && b.Plan.G.Width(v)%b.Plan.Homes.Members == 0 {
		over = Shares
	}
	return Cut{By: Rows, Over: over}
}

// share makes the last of matmuls in a row shared: the workers, which do not get equal parts of a memory or of a machine that others use
// as well, are done with it at the same time. For few rows that costs a barrier behind v and up, whose readers stay with the columns' owners
// otherwise.
func (b *Builder) share() {
	if b.Machine.Workers == b.Plan.Homes.N() {
		return // each is alone at its home
	}
	for i := range b.Plan.Items {
		if it := &b.Plan.Items[i]; it.Do.Shared && (i+1 == len(b.Plan.Items) || !b.Plan.Items[i+1].Do.Shared) {
			it.Cut.Shared = it.Out[0].Unit%b.Plan.Formats[it.W[0]].PanelRows == 0
		}
	}
}

// barriers puts a barrier before each item that conflicts with an earlier one between which there is none of its scope, or before each one if they
// are separate.
func (b *Builder) barriers(c *prover) {
	if b.Machine.Workers == 1 && !b.Machine.Separate {
		return // one after the other
	}
	samples := b.Plan.sampleRows()
	var out []Item
	since := 0 // behind the last barrier of all
	for _, it := range b.Plan.Items {
		need, needs := Home, false
		passed, met := Home, false // the largest barrier behind item j, if there is one
		for j := len(out) - 1; j >= since && !(needs && need == All); j-- {
			if out[j].Do == Barrier {
				passed, met = max(passed, out[j].Scope), true
				continue
			}
			scope, conflicts := All, b.Machine.Separate
			if !conflicts {
				scope, conflicts = c.anyConflict(&out[j], &it, samples)
			}
			if conflicts && (!met || scope > passed) {
				need, needs = max(need, scope), true
			}
		}
		if needs {
			out = append(out, Item{Do: Barrier, Scope: need})
			if need == All {
				since = len(out)
			}
		}
		out = append(out, it)
	}
	b.Plan.Items = out
}

// anyConflict reports whether items conflict in a walk of any of the numbers of rows, and the largest scope in which they do.
func (c *prover) anyConflict(a, b *Item, samples []int) (scope Scope, conflicts bool) {
	for _, rows := range samples {
		if m := c.conflict(a, b, rows, min(rows, c.p.MaxPicks)); m != nil {
			scope, conflicts = max(scope, m.scope), true
			if scope == All {
				break
			}
		}
	}
	return scope, conflicts
}

// allocate gives buffers their place in the arena. A buffer's memory is given to another one only behind a barrier after its last use
// (with one worker: behind that item), one of all where members read each other's copies, so reuse adds no conflicts; a result takes over the
// memory of an input that dies in the same item where every worker reads of it just what it writes.
func (b *Builder) allocate(far map[BufID]bool) {
	p := b.Plan
	last := make([]int, len(p.Bufs))
	for i := range p.Items {
		for _, o := range append(append([]Operand{}, p.Items[i].In...), p.Items[i].Out...) {
			last[o.Buf] = i
		}
	}
	if p.Logits != None {
		last[p.Logits] = len(p.Items)
	}
	for _, t := range p.Taps {
		last[t.Op.Buf] = len(p.Items)
	}
	// What is free; what is free for buffers that no other member reads, others being far behind; what is free of the arena of all.
	var dying, free, own, shared []place
	alias := make([]BufID, len(p.Bufs))
	for i := range alias {
		alias[i] = BufID(i)
	}
	for i := range p.Items {
		it := &p.Items[i]
		if it.Do == Barrier || p.Workers == 1 { // one worker does one item after the other
			still := dying[:0]
			for _, d := range dying {
				switch {
				case p.Workers > 1 && d.until > it.Scope:
					still = append(still, d)
				case d.shared:
					shared = give(shared, d)
				case p.Workers > 1 && it.Scope < All: // other members may be far behind
					own = give(own, d)
				default:
					free = give(free, d)
				}
			}
			if dying = still; it.Scope == All {
				for _, d := range own {
					free = give(free, d)
				}
				own = own[:0]
			}
		}
		if it.Do == Barrier {
			continue
		}
		for oi, o := range it.Out {
			buf := &p.Bufs[o.Buf]
			if buf.Cache != 0 || buf.Parts != 0 || buf.Bytes != 0 {
				continue
			}
			if src, ok := inPlace(it, oi, last, i, p); ok {
				buf.Offset, buf.Bytes = p.Bufs[src].Offset, p.Bufs[src].Bytes
				alias[o.Buf] = alias[src]
				last[src] = -1 // its memory lives on
				continue
			}
			buf.Bytes = p.bufBytes(buf)
			from, arena := &free, &p.Arena
			switch {
			case buf.Shared:
				from, arena = &shared, &p.Common
			case !far[o.Buf] && fits(own, buf.Bytes):
				from = &own
			}
			buf.Offset = take(from, arena, buf.Bytes)
		}
		for _, o := range append(append([]Operand{}, it.In...), it.Out...) {
			if buf := &p.Bufs[o.Buf]; last[o.Buf] == i && buf.Bytes != 0 {
				until := p.Homes.top(Member)
				if far[o.Buf] {
					until = All
				}
				dying = append(dying, place{buf.Offset, buf.Bytes, until, buf.Shared})
				last[o.Buf] = -1
			}
		}
	}
	b.merge(alias)
}

// merge makes buffers that share memory one buffer, so that checks of conflicts see what memory sees.
func (b *Builder) merge(alias []BufID) {
	for i := range b.Plan.Items {
		it := &b.Plan.Items[i]
		for _, ops := range [][]Operand{it.In, it.Out} {
			for j := range ops {
				ops[j].Buf = alias[ops[j].Buf]
			}
		}
	}
	if b.Plan.Logits != None {
		b.Plan.Logits = alias[b.Plan.Logits]
	}
	for i := range b.Plan.Taps {
		b.Plan.Taps[i].Op.Buf = alias[b.Plan.Taps[i].Op.Buf]
	}
}

// inPlace finds an input of item i that dies there and whose memory output oi may take over.
func inPlace(it *Item, oi int, last []int, i int, p *Plan) (BufID, bool) {
	o := it.Out[oi]
	if it.Do.InPlace == nil {
		return 0, false
	}
	for n, in := range it.In {
		if !it.Do.InPlace(it, n) {
			continue
		}
		src, dst := p.Bufs[in.Buf], p.Bufs[o.Buf]
		if last[in.Buf] == i && alike(it.In, in, o) && src.Width == dst.Width && src.Space == dst.Space && src.Shared == dst.Shared && !src.Act {
			return in.Buf, true
		}
	}
	return 0, false
}

// alike reports whether every input in in's buffer is read just as o is written.
func alike(ins []Operand, in, o Operand) bool {
	for _, x := range ins {
		if x.Buf == in.Buf && (x.All || x.Mine || x.Far || x.Unit != o.Unit) {
			return false
		}
	}
	return true
}

// place is a piece of the arena that is free, behind a barrier of a scope.
type place struct {
	off, n int
	until  Scope
	shared bool
}

// fits reports whether there is a free piece of n bytes.
func fits(free []place, n int) bool {
	return slices.ContainsFunc(free, func(f place) bool { return f.n >= n })
}

// give puts a piece among those that are free; with neighbours it becomes one.
func give(free []place, p place) []place {
	still := free[:0]
	for _, f := range free {
		switch {
		case f.off+f.n == p.off:
			p.off, p.n = f.off, f.n+p.n
		case p.off+p.n == f.off:
			p.n += f.n
		default:
			still = append(still, f)
		}
	}
	return append(still, p)
}

// take finds room for n bytes: the smallest free piece that fits, or new room at the arena's end, which a free piece there begins.
func take(free *[]place, arena *int, n int) int {
	best := -1
	for i, f := range *free {
		if f.n >= n && (best < 0 || f.n < (*free)[best].n) {
			best = i
		}
	}
	if best < 0 {
		off := *arena
		for i, f := range *free {
			if f.off+f.n == *arena {
				off = f.off
				*free = slices.Delete(*free, i, i+1)
				break
			}
		}
		*arena = off + n
		return off
	}
	off := (*free)[best].off
	if rest := (*free)[best].n - n; rest > 0 {
		(*free)[best] = place{off: off + n, n: rest}
	} else {
		*free = append((*free)[:best], (*free)[best+1:]...)
	}
	return off
}

// bufBytes is the size of a buffer for the plan's largest walk, a multiple of a cache line.
func (p *Plan) bufBytes(buf *Buffer) int {
	c := Crew{Rows: p.MaxRows, Picks: p.MaxPicks}
	rows := c.rows(buf.Space)
	if buf.Act {
		return (kernel.ActBytes(buf.Kind, buf.Sums, kernel.ActRows(rows), buf.Width) + 63) &^ 63
	}
	return (4*rows*buf.Width + 63) &^ 63
}
