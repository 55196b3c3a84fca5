package gguf

import (
	"fmt"

	"ck/internal/entropycode"
	"ck/internal/quant"
)

// Reader reads the rows of a tensor for one goroutine: mapped, computed, or from chunks that it unpacks. Damage
// ends a call with a panic of *DamageError, which Model.Guard returns as an error, as it does a page that cannot be
// read.
type Reader struct {
	t        *Tensor
	coder    entropycode.Coder
	from, to int // the rows in buf
	buf      []byte
	gathered []byte
}

// Reader makes a reader.
func (t *Tensor) Reader() *Reader { return &Reader{t: t} }

// Row is row r in GGUF's order, as Tensor.Row has it, valid until the next call.
func (x *Reader) Row(r int) []byte {
	n := x.t.Type.RowBytes(x.t.Cols())
	switch {
	case x.t.Make != nil:
		if cap(x.buf) < n {
			x.buf = make([]byte, n)
		}
		x.t.Compute(x.buf[:n], r, r+1)
		return x.buf[:n:n]
	case x.t.Stored == nil:
		return x.t.Row(r)
	}
	if r < x.from || r >= x.to {
		from, to := x.t.Stored.Whole(r, r+1)
		x.from, x.to = 0, 0 // until it is whole
		if size := (to - from) * n; cap(x.buf) < size {
			x.buf = make([]byte, size)
		}
		x.t.Stored.Unpack(&x.coder, x.buf[:(to-from)*n], from, to)
		x.from, x.to = from, to
	}
	at := (r - x.from) * n
	return x.buf[at : at+n : at+n]
}

// Rows is the bytes of n rows from row on, in GGUF's order, valid until the next call: as they lie in the file where
// they have it.
func (x *Reader) Rows(row, n int) []byte {
	t := x.t
	size := t.Type.RowBytes(t.Cols())
	if t.Stored == nil && t.Make == nil && t.Interleave == 0 && t.Parts == nil {
		return t.Data[row*size : (row+n)*size]
	}
	if cap(x.gathered) < n*size {
		x.gathered = make([]byte, n*size)
	}
	b := x.gathered[:n*size]
	if t.Make != nil {
		t.Compute(b, row, row+n)
		return b
	}
	if t.Stored != nil {
		if from, to := t.Stored.Whole(row, row+n); from == row && to == row+n {
			t.Stored.Unpack(&x.coder, b, from, to)
			return b
		}
	}
	for r := range n {
		copy(b[r*size:], x.Row(row+r))
	}
	return b
}

// Decode decodes all elements of a tensor of at most limit elements.
func (m *Model) Decode(t *Tensor, limit int) ([]float32, error) {
	n := t.Rows() * t.Cols()
	if n > limit {
		return nil, fmt.Errorf("tensor %s: has %d elements, a vector has at most %d", t.Name, n, limit)
	}
	v := make([]float32, n)
	err := m.Guard(func() error {
		x := t.Reader()
		for r := range t.Rows() {
			quant.Decode(t.Type, v[r*t.Cols():(r+1)*t.Cols()], x.Row(r))
		}
		return nil
	})
	return v, err
}
