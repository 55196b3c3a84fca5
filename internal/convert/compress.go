package convert

import (
	"context"
	"hash/crc32"

	"ck/internal/entropycode"
	"ck/internal/gguf"
	"ck/internal/quant"
)

// A compressed output lies as it comes: what a tensor takes is known when it is coded, and the next one begins behind
// it. So workers wait for their turn before they write, but not while they read, quantize and code. Places depend on
// the bytes alone, so that a run that goes on makes the same file: it takes over finished tensors from the first on,
// up to one that is missing.

// layout is where a compressed output has come to.
type layout struct {
	tensor int   // whose turn it is
	row    int   // and from which row on
	end    int64 // of what has its place
}

// stored is a compressed tensor that is written.
type stored struct {
	gguf.Chunks
	index []byte
}

// storedOf is how a tensor is stored; nil: as it is.
func storedOf(t quant.Type, shape []int) *stored {
	c, ok := gguf.ChunksOf(t, shape)
	if !ok {
		return nil
	}
	return &stored{c, make([]byte, c.IndexBytes())}
}

// code compresses rows, whole chunks, and enters them into the index.
func (t *progress) code(w *worker, src []byte, row, rows int) []byte {
	if t.stored == nil {
		return src
	}
	w.coded = w.coded[:0]
	size := t.Type.RowBytes(t.From.Cols())
	for i := t.stored.At(row); rows > 0; i++ {
		n := min(t.stored.Rows, rows) // a piece lies within a matrix
		begin := len(w.coded)
		w.coded = w.coder.Append(w.coded, t.Type, src[:n*size])
		gguf.SetIndex(t.stored.index, i, w.coded[begin:])
		src, rows = src[n*size:], rows-n
	}
	return w.coded
}

// place waits until all rows before have their places, and gives n bytes theirs. It is false when the run has ended.
func (r *run) place(ctx context.Context, t *progress, row, rows, n int) (at int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.tensors[r.at.tensor] != t || r.at.row != row {
		if ctx.Err() != nil || r.failed.Load() != nil {
			return 0, false
		}
		r.turn.Wait()
	}
	if row == 0 {
		r.begin(t)
	}
	at = r.at.end
	r.at.end += int64(n)
	if r.at.row += rows; r.at.row == t.From.Rows() {
		t.bytes = r.at.end - t.offset
		r.at.tensor, r.at.row = r.at.tensor+1, 0
	}
	r.turn.Broadcast()
	return at, true
}

// ended is why the run has ended.
func (r *run) ended(ctx context.Context) error {
	if e := r.failed.Load(); e != nil {
		return *e
	}
	return context.Cause(ctx)
}

// begin gives a tensor its place behind the one before.
func (r *run) begin(t *progress) {
	t.offset = r.plan.Parts[0].Header.Align(r.at.end)
	r.at.end = t.offset
	if t.stored != nil {
		r.at.end += int64(len(t.stored.index))
	}
}

// wake lets workers look whether the run has ended.
func (r *run) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn.Broadcast()
}

// writeIndex ends a compressed tensor.
func (t *progress) writeIndex() error {
	if t.stored == nil {
		return nil
	}
	gguf.EndIndex(t.stored.index)
	_, err := t.file.WriteAt(t.stored.index, t.offset)
	return writeError(err)
}

// takeCompressed checks what an earlier run's journal says is there, tensor by tensor as they lie.
func (r *run) takeCompressed(ctx context.Context, res *Result) error {
	good := true
	for i, t := range r.tensors {
		was, done := r.journal.done[t.number]
		if good = good && done; good {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			before := r.at
			r.begin(t)
			crc, err := t.checksum(was.Bytes)
			if err != nil {
				return err
			}
			if good = crc == was.CRC; !good {
				r.at = before
			}
		}
		if !good {
			if done {
				res.Again++
			}
			continue
		}
		t.skip, t.bytes = true, was.Bytes
		r.at = layout{tensor: i + 1, end: t.offset + was.Bytes}
		res.Resumed++
		r.done.Add(t.From.Bytes())
	}
	if r.files[0] == nil {
		return nil
	}
	return writeError(r.files[0].Truncate(r.at.end))
}

// checksum is that of n bytes of a tensor that an earlier run wrote, 0 where they are not there.
func (t *progress) checksum(n int64) (sum uint32, err error) {
	if st, err := t.file.Stat(); err != nil || n < 0 || t.offset+n > st.Size() {
		return 0, err
	}
	buf := make([]byte, 1<<20)
	for at := t.offset; n > 0; {
		b := buf[:min(n, int64(len(buf)))]
		if _, err := t.file.ReadAt(b, at); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, gguf.Castagnoli, b)
		at, n = at+int64(len(b)), n-int64(len(b))
	}
	return sum, nil
}

// finish writes the header, now that all sizes are known.
func (r *run) finish() error {
	part := &r.plan.Parts[0]
	list := infos(part.Tensors, true)
	for i := range list {
		if list[i].Stored == 0 {
			continue
		}
		if list[i].Stored = r.journal.done[i].Bytes; r.files[0] != nil {
			list[i].Stored = r.tensors[i].bytes
		}
	}
	h, err := gguf.NewHeader(r.plan.kv, list)
	if err != nil {
		return err
	}
	part.Header = h
	f := r.files[0]
	if f == nil {
		return nil // an earlier run has given the file its name
	}
	if _, err := f.WriteAt(h.Bytes, 0); err != nil {
		return writeError(err)
	}
	return writeError(f.Truncate(h.Size))
}

// PartSum is the bytes of a part of a type, over all compressed tensors of that type.
type PartSum struct {
	Type          quant.Type
	Name          string
	Before, After int64
}

// PartSums says what compressing has done to each part of each type of a finished file. What the form itself takes
// has no part: indices.
func PartSums(path string) (sums []PartSum, err error) {
	m, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	add := func(t quant.Type, name string, before, after int64) {
		for i := range sums {
			if sums[i].Type == t && sums[i].Name == name {
				sums[i].Before, sums[i].After = sums[i].Before+before, sums[i].After+after
				return
			}
		}
		sums = append(sums, PartSum{t, name, before, after})
	}
	err = m.Guard(func() error {
		for _, t := range m.Tensors {
			if t.Stored == nil {
				continue
			}
			names := entropycode.Parts(t.Type)
			before, after := make([]int64, len(names)), make([]int64, len(names))
			if err := t.Stored.Sizes(before, after); err != nil {
				return err
			}
			for i, name := range names {
				add(t.Type, name, before[i], after[i])
			}
			add(t.Type, "index", 0, int64(t.Stored.IndexBytes()))
		}
		return nil
	})
	return sums, err
}
