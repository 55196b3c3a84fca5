package feedback

import "sync"

// Coder is an Encoder that several goroutines may use without buffers of their own.
type Coder struct {
	*Encoder
	buffers sync.Pool
}

// NewCoder is a Coder of an encoder.
func NewCoder(e *Encoder) *Coder {
	return &Coder{Encoder: e, buffers: sync.Pool{New: func() any { return &Buffer{} }}}
}

// Encode quantizes rows of x, which it overwrites, to dst.
func (c *Coder) Encode(dst []byte, x []float32) error {
	b := c.buffers.Get().(*Buffer)
	defer c.buffers.Put(b)
	return c.Encoder.Encode(dst, x, b)
}
