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

	x       *Walker
	number  int
	home    int
	member  int
	copies  [][]float32
	routed  Routing
	wide    []float64
	singles []float32
	ints    []int32
	bytes   []byte
	chose   []uint64 // of each expert, while a choice is counted
	f32     kernel.Act
	part    []plan.Rect // of the present item
	upTo    int         // the column up to which panels of the item are the worker's own; 0: it has claimed all that it reads
	next    []byte      // where panels of the next item lie
	panels  []byte      // panels packed for one use
	reader  reader
	join    int   // of these, those in which parts are put together
	slot    *Slot // the slot and first row that row reads
	row0    int
	own     bool // of each row what the slot has
	row     func(r int) []byte
	_       [64]byte
}

// init makes the memory of worker i: need is what kernels ask for, panel the size of the scratch for panels, join that of the room where parts are put
// together.
func (w *Worker) init(x *Walker, i, need, panel, join int) {
	p := x.Plan
	w.x, w.number = x, i
	w.home, _, _ = p.Homes.Of(i, p.Workers)
	w.member = w.home / p.Homes.Places
	w.Scratch, w.Attn = x.tbl.NewScratch(), x.tbl.NewAttnScratch()
	w.Scratch.Grow(need)
	w.part = make([]plan.Rect, 0, 3)
	w.Lo, w.Hi = make([]int32, max(plan.TileRows, p.MaxRows)), make([]int32, max(plan.TileRows, p.MaxRows))
	w.join = (join + 63) &^ 63
	panel += w.join
	w.panels = make([]byte, panel+64)
	w.panels = w.panels[-uintptr(unsafe.Pointer(&w.panels[0]))&63:][:panel:panel]
	w.row = func(r int) []byte {
		if w.slot.Stored != nil {
			return w.slot.elementsIf(w.own, w.reader.rows.row(w.slot, w.row0+r))
		}
		return w.slot.elementsIf(w.own, w.slot.Row(w.row0+r))
	}
}

// Batch is the rows of the walk, or those of the worker's member. Graph is the graph, Cache the keys and values, Kernels the kernels of the tier.
func (w *Worker) Batch() *Batch          { return w.x.of(w.member) }
func (w *Worker) Graph() *graph.Graph    { return w.x.Plan.G }
func (w *Worker) Cache() *kv.Cache       { return w.x.cache }
func (w *Worker) Kernels() *kernel.Table { return w.x.tbl }

// Rows is the number of rows that a space has in the walk.
func (w *Worker) Rows(s graph.Space) int { return w.x.rows(s, w.member) }

// Picked is where picked row r of a value lies: memory of the value, and its row there.
func (w *Worker) Picked(o plan.Operand, r int) (v []float32, row int) {
	row = int(w.x.batch.Pick[r])
	if !w.x.Plan.Tokens {
		v, _ = w.Floats(o)
		return v, row
	}
	m, at := w.x.rowOf(row)
	v, _ = w.x.floats(o, m)
	return v, at
}

// Stopped reports whether nobody wants the rest of the walk any more.
func (w *Worker) Stopped() bool { return w.x.stop.Load() }

// Floats is the memory of a value as the worker's member has it: rows of width elements.
func (w *Worker) Floats(o plan.Operand) (v []float32, width int) { return w.x.floats(o, w.member) }

// ReadsFar waits for bytes of other members that a worker has read, where a link between homes is tried (Link).
func (w *Worker) ReadsFar(bytes int) {
	if w.x.Link != nil {
		w.far(-1, bytes)
	}
}

// Members is the number of members, Copies the memory of a value as each of them has it, until the next call.
func (w *Worker) Members() int { return len(w.x.arenas) }
func (w *Worker) Copies(o plan.Operand) [][]float32 {
	w.copies = w.copies[:0]
	for m := range w.x.arenas {
		v, _ := w.x.floats(o, m)
		w.copies = append(w.copies, v)
	}
	return w.copies
}

// Act is an operand as activations: what its buffer holds, or a value as float32.
func (w *Worker) Act(o plan.Operand) *kernel.Act {
	if w.x.Plan.Bufs[o.Buf].Act {
		return &w.x.acts[w.member][o.Buf]
	}
	v, k := w.Floats(o)
	w.f32 = kernel.Act{Kind: kernel.ActF32, M: w.Rows(w.x.Plan.Bufs[o.Buf].Space), K: k, Kp: k, F: v, FS: k}
	return &w.f32
}

// Vector is a norm or a bias, Lookup decodes rows of a matrix, Slot is the part that the worker's home has of a matrix that is multiplied.
func (w *Worker) Vector(id graph.WeightID) []float32                    { return w.x.w.Vectors[id] }
func (w *Worker) Lookup(id graph.WeightID) func(row int, dst []float32) { return w.x.w.Decode[id] }
func (w *Worker) Slot(id graph.WeightID) *Slot                          { return w.x.w.Slots[id][w.home] }

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

// Singles, Ints and Bytes are room for n of them, Bytes at a multiple of 64, until the next call of the same.
func (w *Worker) Singles(n int) []float32 {
	if len(w.singles) < n {
		w.singles = make([]float32, n)
	}
	return w.singles[:n]
}

func (w *Worker) Ints(n int) []int32 {
	if len(w.ints) < n {
		w.ints = make([]int32, n)
	}
	return w.ints[:n]
}

func (w *Worker) Bytes(n int) []byte {
	if len(w.bytes) < n {
		b := make([]byte, n+63)
		w.bytes = b[-uintptr(unsafe.Pointer(&b[0]))&63:][:n]
	}
	return w.bytes[:n]
}

// FileRows reads the file form of matrix e of a weight from row row0 on, until the next call: of each row all, or what the slot's part has of it.
func (w *Worker) FileRows(s *Slot, e, row0 int, own bool) func(r int) []byte {
	w.slot, w.row0, w.own = s, s.whole.TensorRow(e*s.whole.Each()+row0), own // those that are read are of one matrix
	return w.row
}

// Panels calls use with the panels of columns [c0, c1) of matrix e of a weight until all were used, in ascending order, or the walk was stopped. They
// are of the slot's format and have all of K, or, of the worker's own part alone, what that has.
func (w *Worker) Panels(id graph.WeightID, e, c0, c1 int, own bool, use func(s *Slot, c0, c1 int, panels []byte)) {
	parts := w.parts(id)
	s := parts[w.home]
	if own || s.Cols == s.whole.Cols && s.R0 <= c0 && c1 <= s.R0+s.Each {
		w.panelsOf(s, e, c0, c1, true, use)
		return
	}
	for h, s := range parts { // of which some lie at other homes
		lo, hi := max(c0, s.R0), min(c1, s.R0+s.Each)
		switch {
		case lo >= hi:
		case s.Cols == s.whole.Cols:
			w.panelsOf(s, e, lo, hi, w.keeps(s), use)
		case s.K0 == 0:
			w.joined(parts, h, e, lo, hi, use)
		}
	}
}

// parts are the parts of a matrix by home, of which those of other members may be copies that the worker's member has.
func (w *Worker) parts(id graph.WeightID) []*Slot {
	parts := w.x.w.Slots[id]
	if n := len(parts); len(w.x.w.Copies) > 0 && w.x.w.Copies[id] != nil {
		return w.x.w.Copies[id][w.member*n : (w.member+1)*n]
	}
	return parts
}

// keeps reports whether the worker may pack panels of a slot to stay. The first to touch memory should be of its home; of copies no place of the
// member reads all.
func (w *Worker) keeps(s *Slot) bool {
	return s.Home == w.home || s.Copy && s.Home/w.x.Plan.Homes.Places == w.member
}

// readAt counts bytes of panels that were read at a home.
func (w *Worker) readAt(home, bytes int) {
	if home == w.home {
		w.reader.moves.Near += int64(bytes)
	} else {
		w.reader.moves.Far += int64(bytes)
	}
	w.far(home, bytes)
}

// panelsOf is Panels of one part, which only the workers of its home pack to stay.
func (w *Worker) panelsOf(s *Slot, e, c0, c1 int, stay bool, use func(s *Slot, c0, c1 int, panels []byte)) {
	pr, first := s.Format.PanelRows, e*s.PanelsEach()
	p, end := first+(c0-s.R0)/pr, first+(c1-s.R0+pr-1)/pr
	last := max(end, first+min((w.upTo-s.R0+pr-1)/pr, s.PanelsEach()))
	w.reader.touched = false
	for p < end && !w.Stopped() {
		q, panels := s.read(&w.reader, p, end, w.panels, stay)
		w.readAt(s.Home, len(panels))
		use(s, s.R0+(p-first)*pr, min(s.R0+(q-first)*pr, c1), s.reach(panels, p, last))
		w.reader.done()
		p = q
	}
}

// joined is Panels of rows that have their K in parts: of the part at home h, whose K comes first, and those of the same rows. A panel of all K is those of
// the parts, one behind the other: they are put together where the cache has them.
func (w *Worker) joined(parts []*Slot, h, e, c0, c1 int, use func(s *Slot, c0, c1 int, panels []byte)) {
	s, places := parts[h], w.x.Plan.Homes.Places
	pr, first := s.Format.PanelRows, e*s.PanelsEach()
	size := s.Format.PanelBytes(s.whole.Cols)
	room, scratch := w.panels[:w.join], w.panels[w.join:]
	w.reader.touched = false
	for p, end := first+(c0-s.R0)/pr, first+(c1-s.R0+pr-1)/pr; p < end && !w.Stopped(); {
		n := min(end-p, max(1, len(room)/size))
		for i, at := h, 0; i < len(parts); i += places {
			part := parts[i]
			for q := p; q < p+n; {
				to, panels := part.read(&w.reader, q, p+n, scratch, w.keeps(part))
				w.readAt(part.Home, len(panels))
				for ; q < to; q++ {
					copy(room[(q-p)*size+at:], panels[:part.pb])
					panels = panels[part.pb:]
				}
				w.reader.done()
			}
			at += part.pb
		}
		use(s, s.R0+(p-first)*pr, min(s.R0+(p+n-first)*pr, c1), room[:n*size])
		p += n
	}
}

// Next is panels that the worker multiplies after those of the present item: nil, if it is not known where they lie.
func (w *Worker) Next() []byte { return w.next }

// Crew is who walks, over what rows of the worker's member.
func (w *Worker) Crew() plan.Crew { return w.x.crew(w.member) }

// Chunks is the number of the first chunk of keys of row r, counted over all rows; of the row behind the last, the number of all.
func (w *Worker) Chunks(r int) int { return w.x.chunkStart[r] }

// PartialResult is where the result of (KV head h, chunk number n of all rows) lies.
func (w *Worker) PartialResult(o plan.Operand, h, n int) []float32 {
	b := &w.x.Plan.Bufs[o.Buf]
	size := b.Parts * w.x.cache.Layer(b.PartsOf).Format.PartLen()
	i := n*b.Width + h
	return w.x.parts[w.member][i*size : (i+1)*size]
}
