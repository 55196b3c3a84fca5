package engine

import (
	"sync"

	"ck/internal/entropycode"
	"ck/internal/gguf"
	"ck/internal/quant"
)

// pool keeps what workers need for a call, as many as there were workers at once. After damage one is not given back.
type pool[T any] struct {
	mu   sync.Mutex
	free []*T
}

func (p *pool[T]) take(fresh func() *T) *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 { // the one that was used last: the cache has its memory
		x := p.free[n-1]
		p.free = p.free[:n-1]
		return x
	}
	return fresh()
}

func (p *pool[T]) put(x *T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, x)
}

// stored is the rows of a compressed matrix for the walk. All matrices of an engine share the coders.
type stored struct {
	*gguf.Stored
	coders *pool[entropycode.Coder]
}

func (s stored) Unpack(dst []byte, from, to int) {
	c := s.coders.take(func() *entropycode.Coder { return &entropycode.Coder{} })
	s.Stored.Unpack(c, dst, from, to)
	s.coders.put(c)
}

// made is the rows of a matrix that are computed, for the walk.
type made struct{ *gguf.Tensor }

func (m made) Whole(from, to int) (int, int) { return from, to }

func (m made) Unpack(dst []byte, from, to int) { m.Compute(dst, from, to) }

// storedRows decodes rows of an embedding that are computed, or compressed: it unpacks the chunk of a row, unless the
// one before was of the same.
func storedRows(t *gguf.Tensor) func(int, []float32) {
	var readers pool[gguf.Reader]
	return func(row int, dst []float32) {
		r := readers.take(t.Reader)
		quant.Decode(t.Type, dst, r.Row(row))
		readers.put(r)
	}
}
