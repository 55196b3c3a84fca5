package engine

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/walk"
)

// load makes the slots of all weights and the cache.
func (e *Engine) load() error {
	g := e.Graph
	e.weights = walk.Weights{Slots: make([][]*walk.Slot, len(g.Weights)), Vectors: make([][]float32, len(g.Weights)),
		Decode: make([]func(int, []float32), len(g.Weights))}
	matrix := make([]bool, len(g.Weights))
	vector := make([]bool, len(g.Weights))
	for i, w := range g.Weights {
		roles := g.Roles(graph.WeightID(i))
		matrix[i], vector[i] = roles[graph.Matrix], roles[graph.Vector]
		if roles[graph.Lookup] {
			e.weights.Decode[i] = rowDecoder(e.model.Tensor(w.Name))
		}
	}
	for _, w := range g.Weights {
		if t := e.model.Tensor(w.Name); !decodable(t.Type) {
			return &ModelError{e.model.Path, fmt.Errorf("tensor %s: weights of type %s are not supported", w.Name, t.Type)}
		}
	}
	if err := e.mapPanels(matrix); err != nil {
		return err
	}
	if err := e.account(matrix); err != nil {
		return err
	}
	e.noteStored()
	for i, w := range g.Weights {
		t := e.model.Tensor(w.Name)
		if matrix[i] {
			e.slot(i, w, t)
		}
		if vector[i] {
			v, err := source{e.model.KV, e.model}.Vector(w.Name)
			if err != nil {
				return &ModelError{e.model.Path, err}
			}
			if j := notFinite(v); j >= 0 {
				return e.badElement(t, 0, j, v[j])
			}
			if w.Of > 0 {
				v = v[w.From:][:w.Cols]
			}
			e.weights.Vectors[i] = v
		}
	}
	if err := e.boundDeals(); err != nil {
		return err
	}
	return e.makeCache()
}

// slot makes the slot of a matrix.
func (e *Engine) slot(i int, w graph.Weight, t *gguf.Tensor) {
	f := e.tbl.Format(t.Type, e.opt.F32Act)
	if x := e.mapped[i]; x != nil {
		e.weights.Slots[i] = []*walk.Slot{walk.NewMappedSlot(w, f, t.Row, x.Data(), x.Sums())}
		return
	}
	e.weights.Slots[i] = nil
	for h, p := range e.pieces(graph.WeightID(i)) {
		s := e.part(i, p, e.keep[i][h])
		s.Home = h
		e.weights.Slots[i] = append(e.weights.Slots[i], s)
	}
	e.copies(i)
}

// part makes the slot of a part of a matrix, with panels where there is a shelf for them.
func (e *Engine) part(i int, p plan.Piece, on *shelf) *walk.Slot {
	w := e.Graph.Weights[i]
	t := e.model.Tensor(w.Name)
	f := e.tbl.Format(t.Type, e.opt.F32Act)
	var mem []byte
	if of := walk.PartOf(w, p); on != nil {
		mem, on.mem = on.mem[:walk.PanelsBytes(of, f)], on.mem[walk.PanelsRoom(of, f):]
		mem = mem[:len(mem):len(mem)]
	}
	s := walk.NewPart(w, p, f, t.Row, mem)
	if mem != nil && p.K1-p.K0 == w.Cols && !e.layout.Mirrored(graph.WeightID(i)) && !e.mirror && e.mem.tight && t.Data != nil && t.Interleave == 0 && t.Make == nil && !e.Graph.Roles(graph.WeightID(i))[graph.Lookup] {
		row := t.Type.RowBytes(t.Cols())
		s.Release(func(from, to int) { pageOut(t.Data[from*row : to*row]) })
	}
	return e.rows(s, t)
}

// rows tells a slot where the rows of its tensor lie, if they are not mapped as they are.
func (e *Engine) rows(s *walk.Slot, t *gguf.Tensor) *walk.Slot {
	switch {
	case t.Stored != nil:
		s.Stored = stored{t.Stored, &e.coders}
	case t.Make != nil:
		s.Stored = made{t}
	}
	return s
}

// pageOut tells the system that the pages within b, of a mapped file, are not needed any more: it takes them back now, and not others in their place when
// memory runs short. That it cannot is no error.
func pageOut(b []byte) {
	const page = 4096
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := int(-at & (page - 1))
	if n := (len(b) - skip) &^ (page - 1); n > 0 {
		_ = unix.Madvise(b[skip:skip+n], unix.MADV_PAGEOUT)
	}
}

// rowDecoder decodes single rows of a matrix: embeddings.
func rowDecoder(t *gguf.Tensor) func(int, []float32) {
	if t.Stored != nil || t.Make != nil {
		return storedRows(t)
	}
	return func(r int, dst []float32) { quant.Decode(t.Type, dst, t.Row(r)) }
}

// PackedBytes is the memory of the panels that were packed so far. Those that are mapped are the file's: see
// MappedBytes.
func (e *Engine) PackedBytes() int64 {
	n := 0
	e.anySlot(func(s *walk.Slot) bool {
		n += s.PackedBytes()
		return false
	})
	return int64(n)
}

// BufferBytes is the memory of the walks' buffers. FileBytes is the size of the mapped file, of which the system
// keeps in memory what it has room for; MappedBytes is that of the panels that are mapped beside it. MemLimit is
// what is bounded, with Options.MemLimit, 0 without: panels, cache and buffers.
func (e *Engine) BufferBytes() int64 {
	if e.mem.buffers > 0 {
		return e.mem.buffers
	}
	n := int64(0)
	for _, r := range e.arenas {
		n += int64(len(r.Bytes()))
	}
	return n
}
func (e *Engine) FileBytes() int64   { return e.mem.file }
func (e *Engine) MappedBytes() int64 { return e.mem.mapped }
func (e *Engine) MemLimit() int64    { return e.opt.MemLimit }

// Packing reports whether panels that have room are still to be packed, or mapped ones to be compared: walks are
// slower until then.
func (e *Engine) Packing() bool {
	e.settle()
	return e.anySlot((*walk.Slot).Packing)
}

func (e *Engine) anySlot(f func(*walk.Slot) bool) bool {
	any := func(parts []*walk.Slot) bool { return slices.ContainsFunc(parts, f) }
	return slices.ContainsFunc(e.weights.Slots, any) || slices.ContainsFunc(e.weights.Copies, func(all []*walk.Slot) bool {
		return slices.ContainsFunc(all, func(s *walk.Slot) bool { return s.Copy && f(s) })
	})
}

// Pack packs all panels that have room and compares those that are mapped, which walks otherwise do bit by bit
// beside their work, in the order in which generation reads them: for who waits anyway, such as a warm-up or a chat. Each worker packs, and so
// touches first, an even part of what its home has of each matrix. Between panels it looks whether ctx has ended.
func (e *Engine) Pack(ctx context.Context) error {
	t, err := e.team(e.Threads(plan.One))
	if err != nil || !e.Packing() {
		return err
	}
	began, before := time.Now(), e.PackedBytes()
	order := make([][]*walk.Slot, e.layout.N())
	for h := range order {
		order[h] = e.decodeOrder(h)
	}
	stop := e.watch(ctx)
	err = t.Run(func(w int) {
		home, lo, hi := e.layout.Of(w, t.Size())
		for _, s := range order[home] {
			s.Pack(w-lo, hi-lo, stop)
		}
	})
	for err == nil && ctx.Err() == nil && e.anySlot((*walk.Slot).Moving) { // what movers have begun they end
		time.Sleep(100 * time.Microsecond)
		e.settle()
	}
	e.moves.Waiting += e.PackedBytes() - before
	e.moves.WaitTook += time.Since(began)
	if err == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return e.fault(err)
}
