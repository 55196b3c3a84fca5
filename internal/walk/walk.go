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
}

// Weights is what the graph's weights are at run time, by graph.WeightID.
type Weights struct {
	Slots   []*Slot                        // matrices that matmuls read; nil for others
	Vectors [][]float32                    // norms and biases; nil for others
	Decode  []func(row int, dst []float32) // matrices that are read by row (embeddings); nil for others
}

// Hook looks on between items: worker w is about to do item i of the plan (len(Items): the end). It must not change anything.
type Hook func(w, i int)

// Walker executes one plan.
type Walker struct {
	Plan  *plan.Plan
	Hook  Hook
	tbl   *kernel.Table
	w     Weights
	cache *kv.Cache
	arena []byte

	team       *team.Team // of the current Run
	main       func(w int)
	batch      *Batch
	acts       []kernel.Act // of Act buffers, by BufID
	parts      []float32    // partial results of attention
	chunkStart []int        // AttendChunks: first chunk number of each row, over all rows
	workers    []worker
	shares     []share // of the present shared item, by worker
	runs       uint64
	stop       *atomic.Bool // of the current Run
	never      atomic.Bool  // of a Run that nobody stops
	cut        atomic.Bool  // a worker has left the list before its end
	before     []float64    // see Done
}

// worker is what one worker has to itself.
type worker struct {
	scratch *kernel.Scratch
	attn    *kernel.AttnScratch
	mm      kernel.Matmul
	at      []kernel.Attend // by head
	f32     kernel.Act
	lo, hi  []int32
	lists   [][]float32
	panels  []byte // panels packed for one use
	use     use
	slot    *Slot // the slot and first row that row reads
	row0    int
	row     func(r int) []byte
	_       [64]byte
}

// New prepares the execution of p. arena is the memory of the plan's buffers: p.Arena bytes, aligned to 64.
func New(p *plan.Plan, tbl *kernel.Table, w Weights, cache *kv.Cache, arena []byte) *Walker {
	x := &Walker{Plan: p, tbl: tbl, w: w, cache: cache, arena: arena, acts: make([]kernel.Act, len(p.Bufs)), workers: make([]worker, p.Workers),
		chunkStart: make([]int, p.MaxRows+1), shares: make([]share, p.Workers)}
	x.main = x.run
	panel, need := 0, 0
	for _, s := range w.Slots {
		if s == nil {
			continue
		}
		need = max(need, s.Format.Need(s.Cols))
		panel = max(panel, s.scratch())
	}
	for i := range x.workers {
		wk := &x.workers[i]
		wk.scratch, wk.attn = tbl.NewScratch(), tbl.NewAttnScratch()
		wk.scratch.Grow(need)
		wk.lo, wk.hi = make([]int32, max(plan.TileRows, p.MaxRows)), make([]int32, max(plan.TileRows, p.MaxRows))
		wk.panels = make([]byte, panel+64)
		wk.panels = wk.panels[-uintptr(unsafe.Pointer(&wk.panels[0]))&63:][:panel:panel]
		wk.row = func(r int) []byte { return wk.slot.Row(wk.row0 + r) }
	}
	x.before = make([]float64, len(p.Items)+1)
	for i := range p.Items {
		x.before[i+1] = x.before[i]
		if it := &p.Items[i]; it.Do == plan.Matmul && !it.Picked {
			x.before[i+1] += float64(w.Slots[it.W[0]].Rows) * float64(w.Slots[it.W[0]].Cols)
		}
	}
	return x
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
	if n := len(b.IDs); n > x.Plan.MaxRows || len(b.Pick) > x.Plan.MaxPicks {
		return fmt.Errorf("internal error: a walk of %d rows, %d picked, in a plan for %d and %d", n, len(b.Pick), x.Plan.MaxRows, x.Plan.MaxPicks)
	}
	x.batch = b
	for i := range x.Plan.Bufs {
		if buf := &x.Plan.Bufs[i]; buf.Act {
			x.acts[i] = kernel.MakeAct(buf.Kind, buf.Sums, x.arena[buf.Offset:buf.Offset+buf.Bytes], kernel.ActRows(x.rows(buf.Picked)), buf.Width)
		}
	}
	x.sizeParts()
	if x.stop = stop; stop == nil {
		x.stop = &x.never
	}
	for i := range x.workers {
		wk := &x.workers[i]
		wk.scratch.Stop, wk.attn.Stop, wk.use.stop = x.stop, x.stop, x.stop
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
	wk.use.walk()
	for i := range x.Plan.Items {
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
			if !x.team.Barrier(w) {
				return
			}
			continue
		}
		if it.Cut.Shared {
			x.shared(i, wk, w)
		} else {
			x.do(it, wk, w)
		}
	}
	if x.stop.Load() { // perhaps within the last item
		x.cut.Store(true)
	}
	if x.Hook != nil {
		x.Hook(w, len(x.Plan.Items))
	}
}

// do executes worker w's share of an item.
func (x *Walker) do(it *plan.Item, wk *worker, w int) {
	n := it.Cut.N
	switch it.Cut.By {
	case plan.Rows:
		n = x.rows(it.Picked)
	case plan.Tiles:
		n *= (x.rows(it.Picked) + plan.TileRows - 1) / plan.TileRows
	case plan.Split:
		n *= x.chunkStart[x.rows(false)]
	}
	lo, hi := plan.Share(n, w, x.Plan.Workers)
	if lo >= hi || x.rows(it.Picked) == 0 {
		return
	}
	switch it.Do {
	case plan.Embed:
		x.embed(it, lo, hi)
	case plan.Angles:
		x.angles(it, lo, hi)
	case plan.Norm:
		x.norm(it, lo, hi)
	case plan.Quant:
		x.quant(it, lo, hi)
	case plan.Matmul:
		_, _, c0, c1 := x.block(it, it.Out[0], lo, hi)
		x.matmul(it, wk, c0, c1)
	case plan.Rope:
		x.rope(it, lo, hi)
	case plan.Store:
		x.store(it, wk, lo, hi)
	case plan.Attend:
		x.attend(it, wk, lo, hi)
	case plan.AttendChunks:
		x.attendChunks(it, wk, lo, hi)
	case plan.AttendMerge:
		x.attendMerge(it, wk, lo, hi)
	case plan.SwiGLU, plan.Add:
		x.elementwise(it, lo, hi)
	case plan.Pick:
		for r := lo; r < hi; r++ {
			src, width := x.floats(it.In[0])
			dst, _ := x.floats(it.Out[0])
			copy(dst[r*width:(r+1)*width], src[int(x.batch.Pick[r])*width:])
		}
	}
}

// rows is the number of rows of the walk, or of picked ones.
func (x *Walker) rows(picked bool) int {
	if picked {
		return len(x.batch.Pick)
	}
	return len(x.batch.IDs)
}

// floats is the memory of a value: rows of width elements.
func (x *Walker) floats(o plan.Operand) (v []float32, width int) {
	b := &x.Plan.Bufs[o.Buf]
	if b.Bytes == 0 {
		return nil, b.Width
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&x.arena[b.Offset])), b.Bytes/4), b.Width
}

// Logits is the logits of picked row i, valid until the next Run.
func (x *Walker) Logits(i int) []float32 {
	v, width := x.floats(plan.Operand{Buf: x.Plan.Logits})
	return v[i*width : (i+1)*width]
}

// NotFinite is the first row of the walk in which item i has written an infinity or NaN, or -1. It is for hooks of walks with one
// worker, behind the item.
func (x *Walker) NotFinite(i int) int {
	it := &x.Plan.Items[i]
	for _, o := range it.Out {
		if b := &x.Plan.Bufs[o.Buf]; b.Act || b.Parts || b.Cache > 0 {
			continue
		}
		v, width := x.floats(o)
		for r := range x.rows(it.Picked) {
			for _, f := range v[r*width : (r+1)*width] {
				if f-f == 0 {
					continue
				}
				if it.Picked {
					return int(x.batch.Pick[r])
				}
				return r
			}
		}
	}
	return -1
}

// block is what units [lo, hi) of an item are of operand o: rows [r0, r1) and columns [c0, c1).
func (x *Walker) block(it *plan.Item, o plan.Operand, lo, hi int) (r0, r1, c0, c1 int) {
	width := x.Plan.Bufs[o.Buf].Width
	if it.Cut.By == plan.Rows {
		return lo, hi, 0, width
	}
	return 0, x.rows(it.Picked), lo * o.Unit, min(hi*o.Unit, width)
}

func (x *Walker) embed(it *plan.Item, lo, hi int) {
	out, width := x.floats(it.Out[0])
	decode, scale := x.w.Decode[it.W[0]], it.Op.(graph.Embed).Scale
	for r := lo; r < hi && !x.stop.Load(); r++ {
		row := out[r*width : (r+1)*width]
		decode(int(x.batch.IDs[r]), row)
		if scale != 0 {
			x.tbl.Scale(row, row, scale)
		}
	}
}

func (x *Walker) angles(it *plan.Item, lo, hi int) {
	cos, width := x.floats(it.Out[0])
	sin, _ := x.floats(it.Out[1])
	rope := &x.Plan.G.Ropes[it.Rope]
	for r := lo; r < hi; r++ {
		kernel.RopeAngles(cos[r*width:(r+1)*width], sin[r*width:(r+1)*width], int(x.batch.Pos[r]), rope.InvFreq, rope.Scale)
	}
}

func (x *Walker) norm(it *plan.Item, lo, hi int) {
	op := it.Op.(graph.Norm)
	in, width := x.floats(it.In[0])
	out, _ := x.floats(it.Out[0])
	w := x.w.Vectors[it.W[0]]
	group := op.GroupOf(width)
	r0, r1, c0, c1 := x.block(it, it.Out[0], lo, hi)
	for r := r0; r < r1; r++ {
		row, dst := in[r*width:(r+1)*width], out[r*width:(r+1)*width]
		if group == width {
			s := x.tbl.NormScale(row, op.Eps)
			x.tbl.MulScale(dst[c0:c1], row[c0:c1], w[c0:c1], s)
			continue
		}
		for c := c0; c < c1; c += group {
			s := x.tbl.NormScale(row[c:c+group], op.Eps)
			x.tbl.MulScale(dst[c:c+group], row[c:c+group], w, s)
		}
	}
}

func (x *Walker) quant(it *plan.Item, lo, hi int) {
	in, width := x.floats(it.In[0])
	act := &x.acts[it.Out[0].Buf]
	r0, r1, c0, c1 := x.block(it, it.Out[0], lo, hi)
	x.tbl.QuantizeRows(act, r0, r1, c0, c1, in[r0*width:], width)
}

// matmul computes output columns [c0, c1), c0 at a panel's edge.
func (x *Walker) matmul(it *plan.Item, wk *worker, c0, c1 int) {
	rows := x.rows(it.Picked)
	out, width := x.floats(it.Out[0])
	s := x.w.Slots[it.W[0]]
	f := s.Format
	m := &wk.mm
	*m = kernel.Matmul{N: c1 - c0, K: s.Cols, Slices: it.Op.(graph.Matmul).Slices, M1: rows, Y: out[c0:], YStride: width, Add: it.Add}
	if it.Bias {
		m.Bias = x.w.Vectors[it.W[1]][c0:c1]
	}
	if it.Add {
		if res, _ := x.floats(it.In[1]); &res[0] != &out[0] { // others still read the residual: it has a buffer of its own
			for r := range rows {
				copy(out[r*width+c0:r*width+c1], res[r*width+c0:])
			}
		}
	}
	if in := it.In[0]; x.Plan.Bufs[in.Buf].Act {
		m.X = &x.acts[in.Buf]
	} else {
		v, k := x.floats(in)
		wk.f32 = kernel.Act{Kind: kernel.ActF32, M: rows, K: k, Kp: k, F: v, FS: k}
		m.X = &wk.f32
	}
	wk.slot, wk.row0 = s, c0
	if f.Direct {
		m.Row = wk.row
		f.Matmul(wk.scratch, m)
		return
	}
	p0, p1 := c0/f.PanelRows, (c1+f.PanelRows-1)/f.PanelRows
	wk.use.touched = false
	for p := p0; p < p1 && !x.stop.Load(); {
		q, panels := s.read(&wk.use, p, p1, wk.panels)
		n0 := p * f.PanelRows
		m.W, m.N, m.Y = panels, min(q*f.PanelRows, c1)-n0, out[n0:]
		if it.Bias {
			m.Bias = x.w.Vectors[it.W[1]][n0 : n0+m.N]
		}
		f.Matmul(wk.scratch, m)
		wk.use.done()
		p = q
	}
}

func (x *Walker) rope(it *plan.Item, lo, hi int) {
	op := it.Op.(graph.Rotate)
	in, width := x.floats(it.In[0])
	out, _ := x.floats(it.Out[0])
	cos, n := x.floats(it.In[1])
	sin, _ := x.floats(it.In[2])
	r0, r1, c0, c1 := x.block(it, it.Out[0], lo, hi)
	for r := r0; r < r1; r++ {
		dst := out[r*width : (r+1)*width]
		if &in[0] != &out[0] {
			copy(dst[c0:c1], in[r*width+c0:])
		}
		for c := c0; c < c1; c += op.D {
			x.tbl.Rope(dst[c:c+op.D], cos[r*n:(r+1)*n], sin[r*n:(r+1)*n], op.Neox)
		}
	}
}

func (x *Walker) store(it *plan.Item, wk *worker, lo, hi int) {
	l := x.cache.Layer(it.Cache)
	k, kw := x.floats(it.In[0])
	v, vw := x.floats(it.In[1])
	r0, r1, h0, h1 := x.block(it, it.Out[0], lo, hi)
	d, dv := kw/l.Heads, vw/l.Heads
	kb, vb := l.Format.KBytes(), l.Format.VBytes()
	for h := h0; h < h1; h++ {
		for r := r0; r < r1; {
			pos, seq := int(x.batch.Pos[r]), x.batch.Seq[r]
			n := 1 // rows that follow each other in the page
			for r+n < r1 && x.batch.Seq[r+n] == seq && int(x.batch.Pos[r+n]) == pos+n && pos%kv.Block+n < kv.Block {
				n++
			}
			kp := x.cache.Keys(seq, it.Cache, h)[pos/kv.Block]
			vp := x.cache.Values(seq, it.Cache, h)[pos/kv.Block]
			l.Format.StoreRows(wk.attn, unsafe.Slice((*byte)(kp), kb), unsafe.Slice((*byte)(vp), vb), pos%kv.Block, n,
				k[r*kw+h*d:], kw, v[r*vw+h*dv:], vw)
			r += n
		}
	}
}

// head prepares attention of KV head h and rows [r0, r1) of one sequence.
func (x *Walker) head(it *plan.Item, wk *worker, q, o plan.Operand, h, r0, r1 int) *kernel.Attend {
	op := it.Op.(graph.Attend)
	c := x.Plan.G.Caches[it.Cache]
	seq := x.batch.Seq[r0]
	g := op.Heads / c.KVHeads
	wk.at = append(wk.at, kernel.Attend{})
	a := &wk.at[len(wk.at)-1]
	*a = kernel.Attend{Rows: r1 - r0, G: g, Scale: float32(op.Scale), Lo: wk.lo[:r1-r0], Hi: wk.hi[:r1-r0],
		K: x.cache.Keys(seq, it.Cache, h), V: x.cache.Values(seq, it.Cache, h)}
	qv, qw := x.floats(q)
	if qv != nil {
		a.Q, a.QStride = qv[r0*qw+h*g*c.D:], qw
	}
	ov, ow := x.floats(o)
	if ov != nil {
		a.O, a.OStride = ov[r0*ow+h*g*c.Dv:], ow
	}
	for r := r0; r < r1; r++ {
		wk.lo[r-r0], wk.hi[r-r0] = x.sees(r, c.Window)
	}
	return a
}

// sees is the range of positions that row r attends to.
func (x *Walker) sees(r, window int) (lo, hi int32) {
	hi = x.batch.Pos[r] + 1
	if window > 0 && int(hi) > window {
		lo = hi - int32(window)
	}
	return lo, hi
}

func (x *Walker) attend(it *plan.Item, wk *worker, lo, hi int) {
	f := x.cache.Layer(it.Cache).Format
	rows := x.rows(false)
	tile, tiles := rows, 1
	if it.Cut.By == plan.Tiles {
		tile, tiles = plan.TileRows, (rows+plan.TileRows-1)/plan.TileRows
	}
	for u := lo; u < hi && !x.stop.Load(); {
		h, t := u/tiles, u%tiles
		heads := 1
		if tiles == 1 {
			heads = hi - u
		}
		for r0, end := t*tile, min((t+1)*tile, rows); r0 < end; {
			r1 := r0 + 1
			for r1 < end && x.batch.Seq[r1] == x.batch.Seq[r0] {
				r1++
			}
			wk.at = wk.at[:0]
			for i := range heads {
				x.head(it, wk, it.In[0], it.Out[0], h+i, r0, r1)
			}
			f.AttendHeads(wk.attn, wk.at)
			r0 = r1
		}
		u += heads
	}
}

// chunkKeys is the number of keys of a chunk.
const chunkKeys = kernel.ChunkBlocks * kv.Block

// sizeParts numbers the chunks of all rows and makes room for their results.
func (x *Walker) sizeParts() {
	n := 0
	for r, pos := range x.batch.Pos {
		x.chunkStart[r] = n
		n += int(pos)/chunkKeys + 1
	}
	x.chunkStart[len(x.batch.Pos)] = n
	need := 0
	for i := range x.Plan.Items {
		if it := &x.Plan.Items[i]; it.Do == plan.AttendChunks {
			need = max(need, n*it.Op.(graph.Attend).Heads*x.cache.Layer(it.Cache).Format.PartLen())
		}
	}
	if need > len(x.parts) {
		x.parts = make([]float32, need+need/4)
	}
}

// PartsBytes is the memory for partial results of attention that a walk of p with all its rows takes at most, at so many positions.
func PartsBytes(p *plan.Plan, layers []kv.Layer, positions int) int64 {
	need := 0
	for i := range p.Items {
		if it := &p.Items[i]; it.Do == plan.AttendChunks {
			n := p.MaxRows * ((positions + chunkKeys - 1) / chunkKeys) * it.Op.(graph.Attend).Heads * layers[it.Cache].Format.PartLen()
			need = max(need, n+n/4)
		}
	}
	return 4 * int64(need)
}

// part is where the result of (head h, chunk number n of all rows) lies.
func (x *Walker) part(it *plan.Item, h, n int) []float32 {
	c := x.Plan.G.Caches[it.Cache]
	size := it.Op.(graph.Attend).Heads / c.KVHeads * x.cache.Layer(it.Cache).Format.PartLen()
	i := n*c.KVHeads + h
	return x.parts[i*size : (i+1)*size]
}

func (x *Walker) attendChunks(it *plan.Item, wk *worker, lo, hi int) {
	f := x.cache.Layer(it.Cache).Format
	window := x.Plan.G.Caches[it.Cache].Window
	total := x.chunkStart[x.rows(false)]
	for u := lo; u < hi && !x.stop.Load(); u++ {
		h, n := u/total, u%total
		r := 0
		for x.chunkStart[r+1] <= n {
			r++
		}
		chunk := n - x.chunkStart[r]
		if l, _ := x.sees(r, window); chunk < int(l)/chunkKeys {
			continue
		}
		wk.at = wk.at[:0]
		f.AttendChunk(wk.attn, x.head(it, wk, it.In[0], plan.Operand{Buf: it.Out[0].Buf}, h, r, r+1), chunk, x.part(it, h, n))
	}
}

func (x *Walker) attendMerge(it *plan.Item, wk *worker, lo, hi int) {
	f := x.cache.Layer(it.Cache).Format
	window := x.Plan.G.Caches[it.Cache].Window
	for h := lo; h < hi; h++ {
		for r := range x.rows(false) {
			first, _ := x.sees(r, window)
			wk.lists = wk.lists[:0]
			for n := x.chunkStart[r] + int(first)/chunkKeys; n < x.chunkStart[r+1]; n++ {
				wk.lists = append(wk.lists, x.part(it, h, n))
			}
			wk.at = wk.at[:0]
			f.Merge(x.head(it, wk, plan.Operand{Buf: it.In[0].Buf}, it.Out[0], h, r, r+1), wk.lists)
		}
	}
}

func (x *Walker) elementwise(it *plan.Item, lo, hi int) {
	a, width := x.floats(it.In[0])
	b, _ := x.floats(it.In[1])
	out, _ := x.floats(it.Out[0])
	r0, r1, c0, c1 := x.block(it, it.Out[0], lo, hi)
	for r := r0; r < r1; r++ {
		i, j := r*width+c0, r*width+c1
		if it.Do == plan.SwiGLU {
			x.tbl.SiLUMul(out[i:j], a[i:j], b[i:j])
		} else {
			x.tbl.Add(out[i:j], a[i:j], b[i:j])
		}
	}
}
