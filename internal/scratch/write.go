package scratch

import (
	"context"
	"io"
	"sync"

	"ck/internal/gguf"
)

// pieceBytes is what a worker makes at a time, or a row.
const pieceBytes = 1 << 20

// Write writes a model of Model as a GGUF file. Rows are drawn by so many workers, a few MiB of them at a time. progress, if not nil, is told the bytes of
// tensors that were written. An end of ctx is its cause.
func Write(ctx context.Context, w io.Writer, m *gguf.Model, workers int, progress func(written int64)) error {
	out, err := gguf.NewWriter(w, m.KV, infos(m))
	if err != nil {
		return err
	}
	written := int64(0)
	buffers := make([][]byte, max(1, workers))
	for _, t := range m.Tensors {
		row := t.Type.RowBytes(t.Cols())
		each := max(1, pieceBytes/row)
		for from := 0; from < t.Rows(); from += each * len(buffers) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			var wg sync.WaitGroup
			for i := range buffers {
				first := min(t.Rows(), from+i*each)
				last := min(t.Rows(), first+each)
				if cap(buffers[i]) < (last-first)*row {
					buffers[i] = make([]byte, (last-first)*row)
				}
				buffers[i] = buffers[i][:(last-first)*row]
				wg.Go(func() { copy(buffers[i], t.Reader().Rows(first, last-first)) })
			}
			wg.Wait()
			for _, b := range buffers {
				if _, err := out.Write(b); err != nil {
					return err
				}
				if written += int64(len(b)); progress != nil {
					progress(written)
				}
			}
		}
	}
	return out.Close()
}

// Bytes is the size of the file that Write writes.
func Bytes(m *gguf.Model) (int64, error) {
	h, err := gguf.NewHeader(m.KV, infos(m))
	if err != nil {
		return 0, err
	}
	return h.Size, nil
}

func infos(m *gguf.Model) []gguf.TensorInfo {
	list := make([]gguf.TensorInfo, len(m.Tensors))
	for i, t := range m.Tensors {
		list[i] = gguf.TensorInfo{Name: t.Name, Type: t.Type, Shape: t.Shape}
	}
	return list
}
