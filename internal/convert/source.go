package convert

import "ck/internal/gguf"

// rows is the bytes of rows of a tensor, in GGUF's order: as they lie in the file where they have it, else gathered.
func (w *worker) rows(t *gguf.Tensor, row, rows int) []byte {
	n := t.Type.RowBytes(t.Cols())
	if t.Interleave == 0 {
		return t.Data[row*n : (row+rows)*n]
	}
	if cap(w.src) < rows*n {
		w.src = make([]byte, rows*n)
	}
	for r := range rows {
		copy(w.src[r*n:], t.Row(row+r))
	}
	return w.src[:rows*n]
}
