package engine

import (
	"context"
	"fmt"
	"slices"
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
	e.weights = walk.Weights{Slots: make([]*walk.Slot, len(g.Weights)), Vectors: make([][]float32, len(g.Weights)),
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
	return e.makeCache()
}

// slot makes the slot of a matrix.
func (e *Engine) slot(i int, w graph.Weight, t *gguf.Tensor) {
	f := e.tbl.Format(t.Type, e.opt.F32Act)
	if x := e.mapped[i]; x != nil {
		e.weights.Slots[i] = walk.NewMappedSlot(w, f, t.Row, x.Data(), x.Sums())
		return
	}
	var mem []byte
	if n := walk.PanelsBytes(w, f); n > 0 && e.keep[i] {
		mem = e.panels[:n:n]
		e.panels = e.panels[walk.PanelsRoom(w, f):]
	}
	s := walk.NewSlot(w, f, t.Row, mem)
	if mem != nil && e.mem.tight && t.Data != nil && t.Interleave == 0 && t.Make == nil && !e.Graph.Roles(graph.WeightID(i))[graph.Lookup] {
		row := t.Type.RowBytes(t.Cols())
		s.Release(func(from, to int) { pageOut(t.Data[from*row : to*row]) })
	}
	switch {
	case t.Stored != nil:
		s.Stored = stored{t.Stored, &e.coders}
	case t.Make != nil:
		s.Stored = made{t}
	}
	e.weights.Slots[i] = s
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
	for _, s := range e.weights.Slots {
		if s != nil {
			n += s.PackedBytes()
		}
	}
	return int64(n)
}

// BufferBytes is the memory of the walks' buffers. FileBytes is the size of the mapped file, of which the system
// keeps in memory what it has room for; MappedBytes is that of the panels that are mapped beside it. MemLimit is
// what is bounded, with Options.MemLimit, 0 without: panels, cache and buffers.
func (e *Engine) BufferBytes() int64 {
	if e.mem.buffers > 0 {
		return e.mem.buffers
	}
	if e.arena == nil {
		return 0
	}
	return int64(len(e.arena.Bytes()))
}
func (e *Engine) FileBytes() int64   { return e.mem.file }
func (e *Engine) MappedBytes() int64 { return e.mem.mapped }
func (e *Engine) MemLimit() int64    { return e.opt.MemLimit }

// Packing reports whether panels that have room are still to be packed, or mapped ones to be compared: walks are
// slower until then.
func (e *Engine) Packing() bool {
	return slices.ContainsFunc(e.weights.Slots, func(s *walk.Slot) bool { return s != nil && s.Packing() })
}

// Pack packs all panels that have room and compares those that are mapped, which walks otherwise do bit by bit
// beside their work: for who wants to wait once, such as a warm-up. Each worker packs, and so touches first, an
// even part of each matrix. Between panels it looks whether ctx has ended.
func (e *Engine) Pack(ctx context.Context) error {
	t, err := e.team(e.Threads(plan.One))
	if err != nil || !e.Packing() {
		return err
	}
	stop := e.watch(ctx)
	err = t.Run(func(w int) {
		for _, s := range e.weights.Slots {
			if s != nil {
				s.Pack(w, t.Size(), stop)
			}
		}
	})
	if err == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return e.fault(err)
}
