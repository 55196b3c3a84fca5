package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"
)

// maxShards is what five digits of a shard's name count to.
const maxShards = 99_999

// ranks are the crate's element types in the order of its enum: none is followed by one of fewer bits.
var ranks = []string{"BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
	"I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"}

// Info announces a tensor to a Writer.
type Info struct {
	Name  string
	DType string // "F32", "BF16", …
	Shape []int  // slowest dimension first; empty for a scalar
}

// Bytes is the size of the tensor's data. Unknown types and impossible shapes are errors.
func (t Info) Bytes() (int64, error) {
	for _, d := range t.Shape {
		if d < 0 {
			return 0, fmt.Errorf("tensor %.100q: shape %v has a dimension below 0", t.Name, t.Shape)
		}
	}
	n, err := (&Tensor{DType: t.DType, Shape: t.Shape}).sizeBytes()
	if err != nil {
		return 0, fmt.Errorf("tensor %.100q: %w", t.Name, err)
	}
	return int64(n), nil // it has less than 2^64 bits
}

// Sort puts tensors in the order in which the crate writes them: larger elements first, so that each tensor's data is aligned to its
// elements without gaps, then by name.
func Sort(tensors []Info) {
	slices.SortFunc(tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(slices.Index(ranks, b.DType), slices.Index(ranks, a.DType)), cmp.Compare(a.Name, b.Name))
	})
}

// Header is the bytes before the data of a file of these tensors, whose data lies end to end in this order, and the sizes of each one's
// data. It is byte for byte what the crate writes of them, and ends with spaces up to a multiple of 8 bytes. The keys of metadata are
// sorted; nil leaves it out.
func Header(metadata map[string]string, tensors []Info) (header []byte, sizes []int64, err error) {
	b := make([]byte, 8, 8+100*len(tensors))
	member := func(name string) error {
		if !utf8.ValidString(name) {
			return fmt.Errorf("%.100q is not UTF-8", name)
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		return nil
	}
	b = append(b, '{')
	if metadata != nil {
		member("__metadata__")
		b = append(b, '{')
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			if err := cmp.Or(member(key), valid(metadata[key])); err != nil {
				return nil, nil, fmt.Errorf("metadata: %w", err)
			}
			b = appendString(b, metadata[key])
		}
		b = append(b, '}')
	}
	names, at := map[string]bool{"__metadata__": true}, int64(0)
	for _, t := range tensors {
		size, err := t.Bytes()
		switch {
		case err != nil:
			return nil, nil, err
		case names[t.Name]:
			return nil, nil, fmt.Errorf("tensor %.100q: its name is taken", t.Name)
		case at+size > 1<<62:
			return nil, nil, fmt.Errorf("tensor %.100q: the file would have more than 2^62 bytes", t.Name)
		}
		names[t.Name] = true
		if err := member(t.Name); err != nil {
			return nil, nil, fmt.Errorf("tensor: %w", err)
		}
		b = fmt.Appendf(b, `{"dtype":"%s","shape":[`, t.DType)
		for i, d := range t.Shape {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Append(b, d)
		}
		b = fmt.Appendf(b, `],"data_offsets":[%d,%d]}`, at, at+size)
		if len(b) > maxHeaderBytes {
			return nil, nil, fmt.Errorf("tensor %.100q: the header would have more than %d bytes, the limit; write more shards", t.Name, maxHeaderBytes)
		}
		sizes, at = append(sizes, size), at+size
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, sizes, nil
}

func valid(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%.100q is not UTF-8", s)
	}
	return nil
}

// appendString appends s as JSON, without escapes that JSON does not need.
func appendString(b []byte, s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string cannot fail
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}

// Writer writes a safetensors file from begin to end: NewWriter writes the header, Write takes the tensors' bytes in the order in which
// they were announced, Close ends the file. Nothing but the header is held in memory.
type Writer struct {
	w       io.Writer
	tensors []Info
	sizes   []int64
	cur     int   // tensor that is being written
	left    int64 // its bytes to come
}

// NewWriter writes the header to w, usually a buffered file; see Header. Tensors in the order that Sort makes are aligned.
func NewWriter(w io.Writer, metadata map[string]string, tensors []Info) (*Writer, error) {
	header, sizes, err := Header(metadata, tensors)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(header); err != nil {
		return nil, err
	}
	sw := &Writer{w: w, tensors: slices.Clone(tensors), sizes: sizes, cur: -1}
	sw.next()
	return sw, nil
}

// next goes to the next tensor that has data.
func (w *Writer) next() {
	for w.cur++; w.cur < len(w.sizes); w.cur++ {
		if w.left = w.sizes[w.cur]; w.left > 0 {
			return
		}
	}
}

// Tensor is the tensor whose bytes the next Write takes, false when all are written. Tensors without elements are passed over.
func (w *Writer) Tensor() (Info, bool) {
	if w.cur == len(w.tensors) {
		return Info{}, false
	}
	return w.tensors[w.cur], true
}

// Write takes the next bytes of the current tensor, in any pieces that do not cross its end.
func (w *Writer) Write(p []byte) (int, error) {
	switch {
	case w.cur == len(w.tensors) && len(p) > 0:
		return 0, fmt.Errorf("%d bytes after the last tensor", len(p))
	case int64(len(p)) > w.left:
		return 0, fmt.Errorf("tensor %.100q: %d bytes, but only %d are left", w.tensors[w.cur].Name, len(p), w.left)
	case len(p) == 0:
		return 0, nil
	}
	n, err := w.w.Write(p)
	if w.left -= int64(n); w.left == 0 {
		w.next()
	}
	return n, err
}

// Close reports whether the file is whole: it is an error if bytes of a tensor are missing. The underlying writer stays open.
func (w *Writer) Close() error {
	if w.cur < len(w.tensors) {
		return fmt.Errorf("tensor %.100q: %d bytes were not written", w.tensors[w.cur].Name, w.left)
	}
	return nil
}

// Shards distributes tensors over files of at most maxBytes of data each, in their order, as transformers does: a tensor that is larger
// has a file of its own. Each shard is sorted.
func Shards(tensors []Info, maxBytes int64) ([][]Info, error) {
	if maxBytes < 1 {
		return nil, fmt.Errorf("shards of at most %d bytes; expected 1 or more", maxBytes)
	}
	shards, used := [][]Info{{}}, int64(0)
	for _, t := range tensors {
		size, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		last := len(shards) - 1
		if len(shards[last]) > 0 && size > maxBytes-used {
			shards, used = append(shards, nil), 0
			last++
		}
		shards[last] = append(shards[last], t)
		used = min(used+size, maxBytes)
	}
	if len(shards) > maxShards {
		return nil, fmt.Errorf("%d shards, and their names count to %d; allow larger ones", len(shards), maxShards)
	}
	for _, s := range shards {
		Sort(s)
	}
	return shards, nil
}

// ShardName is the name of the file of shard i of n, counted from 0: model.safetensors if it is the only one.
func ShardName(i, n int) string {
	if n == 1 {
		return singleName
	}
	return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n)
}

// IndexName is the name of the index of several shards.
func IndexName() string { return indexName }

// Index is the text of the index of several shards.
func Index(shards [][]Info) ([]byte, error) {
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"` // bytes of the tensors
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	if len(shards) < 2 {
		return nil, errors.New("an index is of two shards or more")
	}
	index.WeightMap = map[string]string{}
	for i, s := range shards {
		for _, t := range s {
			size, err := t.Bytes()
			if err != nil {
				return nil, err
			}
			if index.WeightMap[t.Name] != "" {
				return nil, fmt.Errorf("tensor %.100q: its name is taken", t.Name)
			}
			if index.Metadata.TotalSize += size; index.Metadata.TotalSize > 1<<62 {
				return nil, fmt.Errorf("tensor %.100q: the files would have more than 2^62 bytes", t.Name)
			}
			index.WeightMap[t.Name] = ShardName(i, len(shards))
		}
	}
	b, err := json.MarshalIndent(&index, "", "  ")
	return append(b, '\n'), err
}
