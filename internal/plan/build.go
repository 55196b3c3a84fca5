package plan

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/kernel"
)

// Machine is what the planner must know of where the plan will run.
type Machine struct {
	Workers  int
	MaxRows  int // rows of the largest walk; decides the class
	MaxPicks int
	// Format is the form of a weight that a matmul reads.
	Format func(w graph.WeightID) *kernel.Format
	// Separate takes nothing together: every item is cut for itself with a barrier behind it, residuals are added by items of their own,
	// and a row's norm is summed by one worker. The bits are the same; it is there to measure what the plan gains by doing otherwise.
	Separate bool
}

// quantGrain is the number of columns that a cut must keep together where activations are quantized: the largest block.
const quantGrain = 256

// Build lays g out on m. Its work grows about as the workers and as the graph's steps, each by itself.
// Errors name the step that has no realisation.
func Build(g *graph.Graph, m Machine) (*Plan, error) {
	if m.Workers < 1 || m.MaxRows < 1 || m.MaxPicks < 0 {
		return nil, fmt.Errorf("a plan for %d workers, %d rows and %d picks: there must be a worker and a row", m.Workers, m.MaxRows, m.MaxPicks)
	}
	b := &builder{
		p: &Plan{G: g, Class: ClassOf(m.MaxRows), Workers: m.Workers, MaxRows: m.MaxRows, MaxPicks: m.MaxPicks,
			Formats: make([]*kernel.Format, len(g.Weights))},
		m: m, vals: make([]val, len(g.Values)), uses: make([]int, len(g.Values)), acts: map[actKey]Operand{}, angles: map[int][2]Operand{},
	}
	for i := range g.Steps {
		for _, v := range g.Steps[i].In {
			b.uses[v]++
		}
	}
	for i := 0; i < len(g.Steps); i++ {
		n, err := b.step(i)
		if err != nil {
			return nil, fmt.Errorf("step %d %s: %w", i, g.Steps[i].Name, err)
		}
		i += n
	}
	b.p.Logits = b.vals[g.Logits].op.Buf
	b.share()
	b.barriers()
	b.allocate()
	return b.p, nil
}

// val is where a value stands: the operand that reads all of it, and how its producer was cut.
type val struct {
	op   Operand
	cut  Cut
	unit int // columns per unit if the producer was cut by columns
}

type actKey struct {
	v    graph.ValueID
	kind kernel.ActKind
}

type builder struct {
	p      *Plan
	m      Machine
	vals   []val
	uses   []int // how many inputs of steps a value is
	acts   map[actKey]Operand
	angles map[int][2]Operand
	nvals  int // versions given out
}

// buffer adds a buffer and returns the operand that names its only version.
func (b *builder) buffer(buf Buffer) Operand {
	b.p.Bufs = append(b.p.Bufs, buf)
	b.nvals++
	return Operand{Buf: BufID(len(b.p.Bufs) - 1), Val: b.nvals}
}

// value makes the buffer of a graph value.
func (b *builder) value(v graph.ValueID) Operand {
	g := b.p.G.Values[v]
	return b.buffer(Buffer{Name: g.Name, Width: g.Width, Picked: g.Picked})
}

func (b *builder) emit(it Item) { b.p.Items = append(b.p.Items, it) }

// all is the operand that reads everything; cols one that reads unit columns per unit of the cut.
func (o Operand) all() Operand          { o.All, o.Unit = true, 0; return o }
func (o Operand) cols(unit int) Operand { o.All, o.Unit = false, unit; return o }

// step realises graph step i and returns how many following steps it realised as well.
func (b *builder) step(i int) (int, error) {
	g := b.p.G
	s := &g.Steps[i]
	it := Item{Name: s.Name, Steps: []int{i}, W: s.W, Op: s.Op}
	if len(s.Out) > 0 {
		it.Picked = g.Values[s.Out[0]].Picked
	}
	switch op := s.Op.(type) {
	case graph.Embed:
		it.Do, it.Cut = Embed, Cut{By: Rows}
		b.finish(it, s.Out[0], 0)
	case graph.Pick:
		it.Do, it.Cut = Pick, Cut{By: Rows}
		it.In = []Operand{b.vals[s.In[0]].op.all()}
		b.finish(it, s.Out[0], 0)
	case graph.Norm:
		b.norm(it, op, s)
	case graph.Matmul:
		return b.matmul(it, op, i)
	case graph.Rotate:
		b.rotate(it, op, s)
	case graph.Attend:
		b.attend(it, op, s)
	case graph.SwiGLU:
		it.Do = SwiGLU
		b.elementwise(it, s)
	case graph.Add:
		it.Do = Add
		b.elementwise(it, s)
	default:
		return 0, fmt.Errorf("the planner has no realisation of %s", s.Op.Kind())
	}
	return 0, nil
}

// finish emits the item that writes value v; unit is the columns per unit of its cut.
func (b *builder) finish(it Item, v graph.ValueID, unit int) {
	out := b.value(v)
	b.vals[v] = val{op: out, cut: it.Cut, unit: unit}
	it.Out = []Operand{out.cols(unit)}
	b.emit(it)
}

// colCut cuts width columns into units of grain columns (the last may be short).
func colCut(width, grain int) Cut { return Cut{By: Cols, N: (width + grain - 1) / grain} }

// rowCut is how items that work row by row on value v are cut. For prompts by rows: where workers write columns of the same rows, what a core
// fetches ahead at the end of its columns is what another one is about to write; with two workers an activation or a norm in place took 2.4
// times as long for each element. Few rows are cut as v's producer was, so that no barrier is needed between the two, or where
// that was not by columns, in columns of quantGrain.
func (b *builder) rowCut(v graph.ValueID, grain int) (Cut, int) {
	p := b.vals[v]
	switch {
	case b.p.Class == Many:
		return Cut{By: Rows}, 0
	case p.cut.By == Cols && p.unit%grain == 0 && !b.m.Separate:
		return p.cut, p.unit
	}
	return colCut(b.p.G.Width(v), grain), grain
}

func (b *builder) elementwise(it Item, s *graph.Step) {
	var unit int
	it.Cut, unit = b.rowCut(s.In[0], min(quantGrain, b.p.G.Width(s.In[0])))
	for _, v := range s.In {
		it.In = append(it.In, b.vals[v].op.cols(unit))
	}
	b.finish(it, s.Out[0], unit)
}

// norm: whole rows are cut by rows for prompts; for few rows every worker sums the whole row and writes its columns.
func (b *builder) norm(it Item, op graph.Norm, s *graph.Step) {
	it.Do = Norm
	x, width := b.vals[s.In[0]].op, b.p.G.Width(s.In[0])
	if op.Group != 0 && op.Group != width {
		cut, unit := b.rowCut(s.In[0], op.Group)
		it.Cut, it.In = cut, []Operand{x.cols(unit)}
		b.finish(it, s.Out[0], unit)
		return
	}
	if b.p.Class == Many || b.m.Separate {
		it.Cut, it.In = Cut{By: Rows}, []Operand{x.cols(0)}
		b.finish(it, s.Out[0], 0)
		return
	}
	it.Cut, it.In = colCut(width, quantGrain), []Operand{x.all()}
	b.finish(it, s.Out[0], quantGrain)
}

// activations is the operand of value v in the form that weights of format f ask for; the item that makes it is emitted at its first use.
func (b *builder) activations(v graph.ValueID, f *kernel.Format) Operand {
	kind := f.Act
	if kind == kernel.ActF32 {
		return b.vals[v].op.all()
	}
	key := actKey{v, kind}
	if a, ok := b.acts[key]; ok {
		b.p.Bufs[a.Buf].Sums |= f.Sums
		return a.all()
	}
	g := b.p.G.Values[v]
	a := b.buffer(Buffer{Name: g.Name + "." + kind.String(), Width: g.Width, Act: true, Kind: kind, Sums: f.Sums, Picked: g.Picked})
	cut, unit := b.rowCut(v, quantGrain)
	b.emit(Item{Do: Quant, Name: g.Name, In: []Operand{b.vals[v].op.cols(unit)}, Out: []Operand{a.cols(unit)}, Cut: cut, Picked: g.Picked})
	b.acts[key] = a
	return a.all()
}

// matmul cuts output columns at panel edges. Where the next step adds a residual and nobody else reads the product, the sum is
// made in the epilogue: the same operation on the same numbers.
func (b *builder) matmul(it Item, op graph.Matmul, i int) (int, error) {
	g := b.p.G
	s := &g.Steps[i]
	f := b.m.Format(s.W[0])
	if f == nil {
		return 0, fmt.Errorf("no kernel format for %s", g.Weights[s.W[0]].Name)
	}
	if cols := g.Weights[s.W[0]].Cols; op.Slices > 1 && cols/op.Slices%f.GroupK != 0 {
		return 0, fmt.Errorf("slices of %d elements cut groups of %d", cols/op.Slices, f.GroupK)
	}
	b.p.Formats[s.W[0]] = f
	it.Do, it.Bias = Matmul, len(s.W) == 2
	it.In = []Operand{b.activations(s.In[0], f)}
	out, skip := s.Out[0], 0
	if i+1 < len(g.Steps) && b.uses[out] == 1 && !b.m.Separate {
		next := &g.Steps[i+1]
		if _, ok := next.Op.(graph.Add); ok && next.In[1] == out && next.In[0] != out {
			it.Add, it.Steps, skip = true, []int{i, i + 1}, 1
			out = next.Out[0]
			it.Name += "+residual"
		}
	}
	unit := b.matmulUnit(i, f)
	it.Cut = colCut(g.Width(out), unit)
	if it.Add {
		it.In = append(it.In, b.vals[g.Steps[i+1].In[0]].op.cols(unit))
	}
	b.finish(it, out, unit)
	return skip, nil
}

// matmulUnit chooses the columns per unit: whole KV heads for q, k, v where panels allow it and heads divide over the workers, so
// that for few rows everything up to attention stays with one worker; blocks of quantGrain where there are enough of them, so that
// activation and quantization need no barrier; else single panels.
func (b *builder) matmulUnit(i int, f *kernel.Format) int {
	g := b.p.G
	s := &g.Steps[i]
	width := g.Width(s.Out[0])
	panel := f.PanelRows
	if b.m.Separate {
		return panel
	}
	if c, ok := b.headsOf(s.Out[0], i); ok && width%c == 0 {
		if unit := width / c; unit%panel == 0 && c%b.m.Workers == 0 {
			return unit
		}
	}
	if n := width / quantGrain; quantGrain%panel == 0 && (n >= 16*b.m.Workers || n%b.m.Workers == 0 && n > 0 && width%quantGrain == 0) {
		return quantGrain
	}
	return panel
}

// headsOf finds the number of KV heads if value v goes, through norms and rotations only, into an attention step.
func (b *builder) headsOf(v graph.ValueID, from int) (int, bool) {
	g := b.p.G
	for i := from + 1; i < len(g.Steps); i++ {
		s := &g.Steps[i]
		for _, in := range s.In {
			if in != v {
				continue
			}
			switch op := s.Op.(type) {
			case graph.Norm:
				if op.Group == 0 {
					return 0, false
				}
				v = s.Out[0]
			case graph.Rotate:
				v = s.Out[0]
			case graph.Attend:
				return g.Caches[op.Cache].KVHeads, true
			default:
				return 0, false
			}
			break
		}
	}
	return 0, false
}

// rotate turns heads in place, or into a buffer of their own where others still read the input.
func (b *builder) rotate(it Item, op graph.Rotate, s *graph.Step) {
	a := b.anglesOf(op.Table)
	it.Do, it.Rope = Rope, op.Table
	cut, unit := b.rowCut(s.In[0], op.D)
	it.Cut = cut
	it.In = []Operand{b.vals[s.In[0]].op.cols(unit), a[0].all(), a[1].all()}
	if cut.By == Rows {
		it.In[1], it.In[2] = a[0].cols(0), a[1].cols(0)
	}
	b.finish(it, s.Out[0], unit)
}

// anglesOf is the pair of buffers cos, sin of a rope table, made once per walk.
func (b *builder) anglesOf(table int) [2]Operand {
	if a, ok := b.angles[table]; ok {
		return a
	}
	n := len(b.p.G.Ropes[table].InvFreq)
	a := [2]Operand{b.buffer(Buffer{Name: "cos", Width: n}), b.buffer(Buffer{Name: "sin", Width: n})}
	it := Item{Do: Angles, Name: fmt.Sprintf("rope%d", table), Rope: table, Cut: Cut{By: Rows}, Out: []Operand{a[0].cols(0), a[1].cols(0)}}
	// At the head of the list, before the first barrier, where nothing waits for it.
	b.p.Items = append([]Item{it}, b.p.Items...)
	b.angles[table] = a
	return a
}

// attend stores the rows' keys and values, then attends: prompts in tiles of rows; few rows by KV heads where these divide over the
// workers, else by chunks of keys that are merged in ascending order. All give the same bits.
func (b *builder) attend(it Item, op graph.Attend, s *graph.Step) {
	g := b.p.G
	c := g.Caches[op.Cache]
	q, k, v := b.vals[s.In[0]].op, b.vals[s.In[1]].op, b.vals[s.In[2]].op
	cache := b.buffer(Buffer{Name: fmt.Sprintf("kv.%d", op.Cache), Width: c.KVHeads, Cache: 1 + op.Cache})
	it.Cache = op.Cache

	st := Item{Do: Store, Name: it.Name, Steps: it.Steps, Op: op, Cache: op.Cache}
	heads := Cut{By: Cols, N: c.KVHeads}
	if b.p.Class == Many {
		st.Cut, st.In, st.Out = Cut{By: Rows}, []Operand{k.cols(0), v.cols(0)}, []Operand{cache.cols(0)}
	} else {
		st.Cut, st.In, st.Out = heads, []Operand{k.cols(c.D), v.cols(c.Dv)}, []Operand{cache.cols(1)}
	}
	b.emit(st)

	group := op.Heads / c.KVHeads
	qUnit, oUnit := group*c.D, group*c.Dv
	switch {
	case b.p.Class == Many:
		it.Do, it.Cut = Attend, Cut{By: Tiles, N: c.KVHeads}
	case c.KVHeads%b.m.Workers == 0:
		it.Do, it.Cut = Attend, heads
	default:
		parts := b.buffer(Buffer{Name: "parts", Parts: true, Width: c.KVHeads})
		b.emit(Item{Do: AttendChunks, Name: it.Name, Steps: it.Steps, Op: op, Cache: op.Cache, Cut: Cut{By: Split, N: c.KVHeads},
			In: []Operand{q.all(), cache.all()}, Out: []Operand{parts.cols(1)}})
		it.Do, it.Cut = AttendMerge, heads
		it.In = []Operand{parts.all()}
		b.finish(it, s.Out[0], oUnit)
		return
	}
	it.In = []Operand{q.cols(qUnit), cache.cols(1)}
	b.finish(it, s.Out[0], oUnit)
}

// share makes the last of matmuls in a row shared: the workers, which do not get equal parts of a memory or of a machine that others use
// as well, are done with it at the same time. For few rows that costs a barrier behind v and up, whose readers stay with the columns' owners
// otherwise.
func (b *builder) share() {
	if b.m.Workers == 1 {
		return
	}
	for i := range b.p.Items {
		if it := &b.p.Items[i]; it.Do == Matmul && (i+1 == len(b.p.Items) || b.p.Items[i+1].Do != Matmul) {
			it.Cut.Shared = true
		}
	}
}

// barriers puts a barrier before each item that conflicts with an item since the last one, or before each one if they are separate.
func (b *builder) barriers() {
	if b.m.Workers == 1 && !b.m.Separate {
		return // one after the other
	}
	c := newProver(b.p)
	samples := b.p.sampleRows()
	var out []Item
	since := 0
	for _, it := range b.p.Items {
		for j := len(out) - 1; j >= since; j-- { // most barriers are for the item just before
			if b.m.Separate || c.anyConflict(&out[j], &it, samples) {
				out = append(out, Item{Do: Barrier})
				since = len(out)
				break
			}
		}
		out = append(out, it)
	}
	b.p.Items = out
}

// anyConflict reports whether items conflict in a walk of any of the numbers of rows.
func (c *prover) anyConflict(a, b *Item, samples []int) bool {
	for _, rows := range samples {
		if c.conflict(a, b, rows, min(rows, c.p.MaxPicks)) != nil {
			return true
		}
	}
	return false
}

// allocate gives buffers their place in the arena. A buffer's memory is given to another one only behind a barrier after its last use
// (with one worker: behind that item), so reuse adds no conflicts; a result takes over the memory of an input that dies in the same
// item where every worker reads of it just what it writes.
func (b *builder) allocate() {
	p := b.p
	last := make([]int, len(p.Bufs))
	for i := range p.Items {
		for _, o := range append(append([]Operand{}, p.Items[i].In...), p.Items[i].Out...) {
			last[o.Buf] = i
		}
	}
	last[p.Logits] = len(p.Items)
	var free, dying []place
	alias := make([]BufID, len(p.Bufs))
	for i := range alias {
		alias[i] = BufID(i)
	}
	for i := range p.Items {
		it := &p.Items[i]
		if it.Do == Barrier || p.Workers == 1 { // one worker does one item after the other
			free = append(free, dying...)
			dying = dying[:0]
		}
		if it.Do == Barrier {
			continue
		}
		for oi, o := range it.Out {
			buf := &p.Bufs[o.Buf]
			if buf.Cache != 0 || buf.Parts || buf.Bytes != 0 {
				continue
			}
			if src, ok := inPlace(it, oi, last, i, p); ok {
				buf.Offset, buf.Bytes = p.Bufs[src].Offset, p.Bufs[src].Bytes
				alias[o.Buf] = alias[src]
				last[src] = -1 // its memory lives on
				continue
			}
			buf.Bytes = p.bufBytes(buf)
			buf.Offset = take(&free, &p.Arena, buf.Bytes)
		}
		for _, o := range append(append([]Operand{}, it.In...), it.Out...) {
			if buf := &p.Bufs[o.Buf]; last[o.Buf] == i && buf.Bytes != 0 {
				dying = append(dying, place{buf.Offset, buf.Bytes})
				last[o.Buf] = -1
			}
		}
	}
	b.merge(alias)
}

// merge makes buffers that share memory one buffer, so that checks of conflicts see what memory sees.
func (b *builder) merge(alias []BufID) {
	for i := range b.p.Items {
		it := &b.p.Items[i]
		for _, ops := range [][]Operand{it.In, it.Out} {
			for j := range ops {
				ops[j].Buf = alias[ops[j].Buf]
			}
		}
	}
	b.p.Logits = alias[b.p.Logits]
}

// inPlace finds an input of item i that dies there and whose memory output oi may take over.
func inPlace(it *Item, oi int, last []int, i int, p *Plan) (BufID, bool) {
	o := it.Out[oi]
	switch it.Do {
	case Rope, SwiGLU, Add, Norm:
	case Matmul:
		if !it.Add {
			return 0, false
		}
	default:
		return 0, false
	}
	for n, in := range it.In {
		if it.Do == Matmul && n == 0 || it.Do == Rope && n > 0 {
			continue
		}
		src, dst := p.Bufs[in.Buf], p.Bufs[o.Buf]
		if last[in.Buf] == i && alike(it.In, in, o) && src.Width == dst.Width && src.Picked == dst.Picked && !src.Act {
			return in.Buf, true
		}
	}
	return 0, false
}

// alike reports whether every input in in's buffer is read just as o is written.
func alike(ins []Operand, in, o Operand) bool {
	for _, x := range ins {
		if x.Buf == in.Buf && (x.All || x.Unit != o.Unit) {
			return false
		}
	}
	return true
}

// place is a free piece of the arena.
type place struct{ off, n int }

// take finds room for n bytes: the smallest free piece that fits, or new room at the arena's end.
func take(free *[]place, arena *int, n int) int {
	best := -1
	for i, f := range *free {
		if f.n >= n && (best < 0 || f.n < (*free)[best].n) {
			best = i
		}
	}
	if best < 0 {
		off := *arena
		*arena += n
		return off
	}
	off := (*free)[best].off
	if rest := (*free)[best].n - n; rest > 0 {
		(*free)[best] = place{off + n, rest}
	} else {
		*free = append((*free)[:best], (*free)[best+1:]...)
	}
	return off
}

// bufBytes is the size of a buffer for the plan's largest walk, a multiple of a cache line.
func (p *Plan) bufBytes(buf *Buffer) int {
	rows := pickRows(buf.Picked, p.MaxRows, p.MaxPicks)
	if buf.Act {
		return (kernel.ActBytes(buf.Kind, buf.Sums, kernel.ActRows(rows), buf.Width) + 63) &^ 63
	}
	return (4*rows*buf.Width + 63) &^ 63
}
