package convert

import "ck/internal/gguf"

// rows is the bytes of rows of a tensor, in GGUF's order: as they lie in the file where they have it,
// else gathered or computed.
func (w *worker) rows(t *gguf.Tensor, row, rows int) []byte {
	n := t.Type.RowBytes(t.Cols())
	if t.Interleave == 0 && t.Make == nil {
		return t.Data[row*n : (row+rows)*n]
	}
	if cap(w.src) < rows*n {
		w.src = make([]byte, rows*n)
	}
	for r := range rows {
		t.ReadRow(w.src[r*n:(r+1)*n], row+r)
	}
	return w.src[:rows*n]
}
