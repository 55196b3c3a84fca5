package engine

import (
	"fmt"

	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/kv"
	"ck/internal/numa"
	"ck/internal/quant"
	"ck/internal/walk"
)

// memory is the account of what the model takes, in bytes.
type memory struct {
	file   int64 // mapped
	panels int64 // when all are packed
	limit  int64
}

// load makes the slots of all weights and the cache.
func (e *Engine) load() error {
	g := e.Graph
	e.weights = walk.Weights{Slots: make([]*walk.Slot, len(g.Weights)), Vectors: make([][]float32, len(g.Weights)),
		Decode: make([]func(int, []float32), len(g.Weights))}
	matrix := make([]bool, len(g.Weights))
	for i := range g.Steps {
		s := &g.Steps[i]
		switch s.Op.(type) {
		case graph.Matmul:
			matrix[s.W[0]] = true
		case graph.Embed:
			e.weights.Decode[s.W[0]] = rowDecoder(e.model.Tensor(g.Weights[s.W[0]].Name))
		}
	}
	if err := e.account(matrix); err != nil {
		return err
	}
	for i, w := range g.Weights {
		t := e.model.Tensor(w.Name)
		if !decodable(t.Type) {
			return &ModelError{e.model.Path, fmt.Errorf("tensor %s: weights of type %s are not supported", w.Name, t.Type)}
		}
		switch {
		case matrix[i]:
			e.slot(i, w, t)
		case e.weights.Decode[i] == nil:
			v, err := source{e.model}.Vector(w.Name)
			if err != nil {
				return &ModelError{e.model.Path, err}
			}
			e.weights.Vectors[i] = v
		}
	}
	return e.makeCache()
}

// pageBytes keeps the panels of matrices apart.
const pageBytes = 4096

// account decides whether there is room for panels, before anything is taken, and takes their addresses: one region for all, so that
// huge pages hold small matrices too. Its memory becomes resident as panels are packed.
func (e *Engine) account(matrix []bool) error {
	e.mem.file = e.model.SizeBytes()
	for i, w := range e.Graph.Weights {
		if t := e.model.Tensor(w.Name); matrix[i] && decodable(t.Type) {
			e.mem.panels += int64(walk.PanelsBytes(w.Rows, w.Cols, e.tbl.Format(t.Type, e.opt.F32Act))+pageBytes-1) &^ (pageBytes - 1)
		}
	}
	e.mem.limit = e.opt.MemLimit
	if e.mem.limit == 0 {
		e.mem.limit, _ = e.Machine.Memory()
	}
	switch {
	case e.opt.NoPack:
		e.note("weights stay in the file's form (--no-pack)")
	case e.mem.limit > 0 && e.mem.panels > e.mem.limit*9/10:
		e.opt.NoPack = true
		e.note("weights stay in the file's form: panels need %d MiB, the memory budget is %d MiB", e.mem.panels>>20, e.mem.limit>>20)
	default:
		e.note("weights: %s mapped, %s of panels, packed during the first walks", mib(e.mem.file), mib(e.mem.panels))
		r, err := numa.Alloc(int(e.mem.panels), e.pages())
		if err != nil {
			return err
		}
		e.regions = append(e.regions, r)
		e.panels = r.Bytes()
	}
	return nil
}

// mib is a size in MiB, with a digit behind the point where it is small.
func mib(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// slot makes the slot of a matrix.
func (e *Engine) slot(i int, w graph.Weight, t *gguf.Tensor) {
	f := e.tbl.Format(t.Type, e.opt.F32Act)
	var mem []byte
	if n := walk.PanelsBytes(w.Rows, w.Cols, f); n > 0 && !e.opt.NoPack {
		mem = e.panels[:n:n]
		e.panels = e.panels[(n+pageBytes-1)&^(pageBytes-1):]
	}
	e.weights.Slots[i] = walk.NewSlot(w.Rows, w.Cols, f, t.Row, mem)
}

// rowDecoder decodes single rows of a matrix: embeddings.
func rowDecoder(t *gguf.Tensor) func(int, []float32) {
	return func(r int, dst []float32) { quant.Decode(t.Type, dst, t.Row(r)) }
}

// makeCache lays the KV cache out.
func (e *Engine) makeCache() error {
	var layers []kv.Layer
	for _, c := range e.Graph.Caches {
		f, err := e.tbl.KV(e.opt.KV, c.D, c.Dv)
		if err != nil {
			return fmt.Errorf("KV cache: %w", err)
		}
		layers = append(layers, kv.Layer{Heads: c.KVHeads, Format: f})
	}
	limit := int64(0)
	if e.mem.limit > 0 {
		used := e.mem.panels
		if e.opt.NoPack {
			used = 0
		}
		limit = max(e.mem.limit*95/100-used, 1)
		if e.of != nil {
			limit = max(limit/3, 1) // the engine needs as much, and there may be two variants with a cache of their own
		}
	}
	e.cache = kv.New(layers, func(n int) ([]byte, error) {
		r, err := numa.Alloc(n, e.pages())
		if err != nil {
			return nil, err
		}
		e.regions = append(e.regions, r)
		return r.Bytes()[:n], nil
	}, limit)
	return nil
}

// PackedBytes is the memory of the panels that were packed so far.
func (e *Engine) PackedBytes() int64 {
	n := 0
	for _, s := range e.weights.Slots {
		if s != nil {
			n += s.PackedBytes()
		}
	}
	return int64(n)
}

// WeightBytes is what one token reads of the weights: panels, or file rows where there are none.
func (e *Engine) WeightBytes() int64 {
	n := 0
	for i, s := range e.weights.Slots {
		if s == nil {
			continue
		}
		w := e.Graph.Weights[i]
		if b := walk.PanelsBytes(w.Rows, w.Cols, s.Format); b > 0 && !e.opt.NoPack {
			n += b
		} else {
			n += w.Rows * s.Format.Type.RowBytes(w.Cols)
		}
	}
	return int64(n)
}
