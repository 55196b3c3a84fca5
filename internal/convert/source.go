package convert

import "ck/internal/gguf"

// rows is the bytes of rows of a tensor, in GGUF's order: as they lie in the file where they have it, else gathered,
// computed or unpacked.
func (w *worker) rows(t *gguf.Tensor, row, rows int) []byte {
	if w.of != t {
		w.of, w.from = t, t.Reader()
	}
	return w.from.Rows(row, rows)
}
