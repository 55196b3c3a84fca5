package imatrix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// The old form of llama-imatrix, little endian: the number of entries; of each the length of its name, the name, the
// number of blocks, the number of values and the values, which are means times that number; then, not in the oldest
// files, the number of blocks of the whole and the length and name of the text. Numbers are int32, values float32.

// maxDatName bounds names of the old form; those of tensors have 63 bytes at most.
const maxDatName = 255

// reader reads the old form. After the first error it returns zeros.
type reader struct {
	b   []byte
	at  int
	err error
}

func (r *reader) fail(at int, format string, a ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("offset 0x%x: %w", at, fmt.Errorf(format, a...))
	}
}

// take is the next n bytes.
func (r *reader) take(n int, what string) []byte {
	if r.err == nil && n > len(r.b)-r.at {
		r.fail(r.at, "%s needs %d bytes, the file has %d", what, n, len(r.b))
	}
	if r.err != nil {
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

// number is the next number, which must lie within bounds.
func (r *reader) number(lo, hi int, what string) int {
	at := r.at
	b := r.take(4, what)
	if b == nil {
		return 0
	}
	n := int(int32(binary.LittleEndian.Uint32(b)))
	if n < lo || n > hi {
		r.fail(at, "%s is %d, expected %d to %d", what, n, lo, hi)
		return 0
	}
	return n
}

// readDat reads the old form.
func readDat(data []byte) (*Matrix, error) {
	r := &reader{b: data}
	const least = 4 + 1 + 4 + 4 + 4 // bytes of an entry
	n := r.number(1, len(data)/least, "the number of entries")
	if r.err != nil {
		return nil, fmt.Errorf("is neither a GGUF file nor an importance matrix of the old form: %w", r.err)
	}
	m := &Matrix{}
	names := map[string]bool{}
	for i := range n {
		at := r.at
		e := r.entry(i)
		if r.err == nil && names[e.Name] {
			r.fail(at, "entry %d: %.100q is there twice", i, e.Name)
		}
		if r.err == nil {
			if err := e.check(); err != nil {
				r.fail(at, "%w", err)
			}
		}
		if r.err != nil {
			return nil, r.err
		}
		names[e.Name] = true
		m.Entries = append(m.Entries, e)
	}
	m.sort()
	if r.at < len(data) {
		m.Chunks = r.number(0, math.MaxInt32, "the number of blocks")
		if r.at < len(data) {
			if name := r.take(r.number(0, math.MaxInt32, "the length of the text's name"),
				"the text's name"); len(name) > 0 {
				m.Datasets = []string{string(name)}
			}
		}
	}
	return m, r.err
}

// entry reads entry i.
func (r *reader) entry(i int) (e Entry) {
	what := fmt.Sprintf("entry %d: ", i)
	e.Name = string(r.take(r.number(1, maxDatName, what+"the length of its name"), what+"its name"))
	what = fmt.Sprintf("entry %d %.100q: ", i, e.Name)
	e.Counts = []int64{int64(r.number(0, math.MaxInt32, what+"its number of blocks"))}
	values := r.take(4*r.number(1, math.MaxInt32/4, what+"its number of values"), what+"its values")
	e.Sums = make([]float64, len(values)/4)
	for j := range e.Sums {
		e.Sums[j] = float64(math.Float32frombits(binary.LittleEndian.Uint32(values[4*j:])))
	}
	return e
}

// WriteDat writes the old form, which holds neither covariances nor more than one name of a text, the last one, and
// one count for an entry: experts without data have the mean 1. Entries without any data are left out.
func (m *Matrix) WriteDat(w io.Writer) error {
	entries := slices.DeleteFunc(slices.Clone(m.Entries), func(e Entry) bool { return e.most() == 0 })
	if len(entries) == 0 {
		return errors.New("the matrix has no data")
	}
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(len(entries)))
	for i := range entries {
		e := &entries[i]
		if len(e.Name) > maxDatName || len(e.Sums) > math.MaxInt32/4 {
			return fmt.Errorf("entry %.100q: a name of %d bytes and %d values do not fit into the old form", e.Name,
				len(e.Name), len(e.Sums))
		}
		b = append(le.AppendUint32(b, uint32(len(e.Name))), e.Name...)
		blocks, values := e.inBlocks(m.ChunkSize)
		b = le.AppendUint32(le.AppendUint32(b, uint32(blocks)), uint32(len(values)))
		for _, x := range values {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	b = le.AppendUint32(b, uint32(m.Chunks))
	name := ""
	if n := len(m.Datasets); n > 0 {
		name = m.Datasets[n-1]
	}
	_, err := w.Write(append(le.AppendUint32(b, uint32(len(name))), name...))
	return err
}

// inBlocks is an entry as the old form has it: the number of blocks, rounded up, and the means times that. The
// operations are float32, as llama-imatrix has them.
func (e *Entry) inBlocks(chunk int) (int64, []float32) {
	values := make([]float32, len(e.Sums))
	if chunk == 0 { // it was read from there
		for i, x := range e.Sums {
			values[i] = float32(x)
		}
		return e.Counts[0], values
	}
	blocks := (e.most() + int64(chunk) - 1) / int64(chunk)
	for i, mean := range e.means(false) {
		values[i] = mean * float32(blocks)
	}
	return blocks, values
}
