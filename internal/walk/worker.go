package walk

import (
	"unsafe"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/kv"
	"ck/internal/plan"
)

// Routine computes a part of an item: of its first output, and what belongs to it of the others. It allocates nothing, and looks now and then
// whether the walk was stopped if it may last longer than a millisecond.
type Routine func(w *Worker, it *plan.Item, part plan.Rect)

// Routines has the routine of each kind of item.
type Routines map[*plan.Kind]Routine

// Worker is one worker of a walk as routines see it: the walk's values, weights and cache, and memory of its own.
type Worker struct {
	Scratch *kernel.Scratch
	Attn    *kernel.AttnScratch
	Matmul  kernel.Matmul
	Heads   []kernel.Attend // attention by head
	Lo, Hi  []int32         // of attention: the positions that rows see, for plan.TileRows rows or all of the walk
	Lists   [][]float32

	x      *Walker
	routed Routing
	wide   []float64
	chose  []uint64 // of each expert, while a choice is counted
	f32    kernel.Act
	part   []plan.Rect // of the present item
	panels []byte      // panels packed for one use
	reader reader
	slot   *Slot // the slot and first row that row reads
	row0   int
	row    func(r int) []byte
	_      [64]byte
}

// init makes the memory of a worker: need is what kernels ask for, panel the size of the scratch for panels.
func (w *Worker) init(x *Walker, need, panel int) {
	p := x.Plan
	w.x = x
	w.Scratch, w.Attn = x.tbl.NewScratch(), x.tbl.NewAttnScratch()
	w.Scratch.Grow(need)
	w.part = make([]plan.Rect, 0, 3)
	w.Lo, w.Hi = make([]int32, max(plan.TileRows, p.MaxRows)), make([]int32, max(plan.TileRows, p.MaxRows))
	w.panels = make([]byte, panel+64)
	w.panels = w.panels[-uintptr(unsafe.Pointer(&w.panels[0]))&63:][:panel:panel]
	w.row = func(r int) []byte {
		if w.slot.Stored != nil {
			return w.reader.rows.row(w.slot, w.row0+r)
		}
		return w.slot.Row(w.row0 + r)
	}
}

// Batch is the rows of the walk. Graph is the graph, Cache the keys and values, Kernels the kernels of the tier.
func (w *Worker) Batch() *Batch          { return w.x.batch }
func (w *Worker) Graph() *graph.Graph    { return w.x.Plan.G }
func (w *Worker) Cache() *kv.Cache       { return w.x.cache }
func (w *Worker) Kernels() *kernel.Table { return w.x.tbl }

// Rows is the number of rows that a space has in the walk.
func (w *Worker) Rows(s graph.Space) int { return w.x.rows(s) }

// Stopped reports whether nobody wants the rest of the walk any more.
func (w *Worker) Stopped() bool { return w.x.stop.Load() }

// Floats is the memory of a value: rows of width elements.
func (w *Worker) Floats(o plan.Operand) (v []float32, width int) { return w.x.floats(o) }

// Act is an operand as activations: what its buffer holds, or a value as float32.
func (w *Worker) Act(o plan.Operand) *kernel.Act {
	if w.x.Plan.Bufs[o.Buf].Act {
		return &w.x.acts[o.Buf]
	}
	v, k := w.x.floats(o)
	w.f32 = kernel.Act{Kind: kernel.ActF32, M: w.Rows(w.x.Plan.Bufs[o.Buf].Space), K: k, Kp: k, F: v, FS: k}
	return &w.f32
}

// Vector is a norm or a bias, Lookup decodes rows of a matrix, Slot is a matrix that is multiplied.
func (w *Worker) Vector(id graph.WeightID) []float32                    { return w.x.w.Vectors[id] }
func (w *Worker) Lookup(id graph.WeightID) func(row int, dst []float32) { return w.x.w.Decode[id] }
func (w *Worker) Slot(id graph.WeightID) *Slot                          { return w.x.w.Slots[id] }

// Space is what the buffer of an operand has rows for. Sent tells whether these are routed rows.
func (w *Worker) Space(o plan.Operand) graph.Space { return w.x.Plan.Bufs[o.Buf].Space }
func (w *Worker) Sent(o plan.Operand) bool         { return w.Space(o).Route != 0 }

// Doubles is room for n numbers, until the next call.
func (w *Worker) Doubles(n int) []float64 {
	if len(w.wide) < n {
		w.wide = make([]float64, n)
	}
	return w.wide[:n]
}

// FileRows reads the file form of a matrix from row row0 on, until the next call.
func (w *Worker) FileRows(s *Slot, row0 int) func(r int) []byte {
	w.slot, w.row0 = s, s.of.TensorRow(row0) // those that are read are of one matrix
	return w.row
}

// Panels calls use with panels [from, to) of a matrix until all of [p, end) were used, in ascending order, or the walk was stopped.
func (w *Worker) Panels(s *Slot, p, end int, use func(from, to int, panels []byte)) {
	w.reader.touched = false
	for p < end && !w.Stopped() {
		q, panels := s.read(&w.reader, p, end, w.panels)
		use(p, q, panels)
		w.reader.done()
		p = q
	}
}

// Chunks is the number of the first chunk of keys of row r, counted over all rows; of the row behind the last, the number of all.
func (w *Worker) Chunks(r int) int { return w.x.chunkStart[r] }

// PartialResult is where the result of (KV head h, chunk number n of all rows) lies.
func (w *Worker) PartialResult(o plan.Operand, h, n int) []float32 {
	b := &w.x.Plan.Bufs[o.Buf]
	size := b.Parts * w.x.cache.Layer(b.PartsOf).Format.PartLen()
	i := n*b.Width + h
	return w.x.parts[i*size : (i+1)*size]
}
