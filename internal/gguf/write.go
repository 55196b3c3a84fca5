package gguf

import (
	"encoding/binary"
	"fmt"
	"io"

	"ck/internal/quant"
)

// TensorInfo announces a tensor to a Writer.
type TensorInfo struct {
	Name  string
	Type  quant.Type
	Shape []int // as Tensor.Shape

	Stored int64 // bytes of its compressed form; 0: it is not compressed
}

// Header is a GGUF file, version 3, but for the data of its tensors: the bytes before them, and where each one's data goes. The data
// of a tensor ends with zeros up to the begin of the next one, or to Size.
type Header struct {
	Bytes   []byte  // from the magic to the first tensor
	Offsets []int64 // of the data of each tensor in the file
	Sizes   []int64 // of the data of each tensor, in bytes
	Size    int64   // of the whole file, in bytes

	align int
}

// Align is the place of a tensor's data that follows on what ends at the offset end of the file.
func (h *Header) Align(end int64) int64 { return end + int64(padding(uint64(end), h.align)) }

// NewHeader lays out a file of metadata and tensors, whose data lies in their order. The alignment is that of general.alignment in kv
// (uint32, a power of two), else 32. Names may have 63 bytes, which is what llama.cpp reads.
func NewHeader(kv *Metadata, tensors []TensorInfo) (*Header, error) {
	align, err := writeAlignment(kv)
	if err != nil {
		return nil, err
	}
	if kv, tensors, err = storedAs(kv, tensors); err != nil {
		return nil, err
	}
	b, err := appendMetadata(nil, kv, len(tensors))
	if err != nil {
		return nil, err
	}
	h := &Header{align: align}
	le := binary.LittleEndian
	offset := uint64(0)
	names := map[string]bool{}
	for _, t := range tensors {
		size, err := tensorBytes(t.Type, t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if t.Name == "" || len(t.Name) >= maxNameBytes {
			return nil, fmt.Errorf("tensor %q: its name has %d bytes, expected 1 to %d", t.Name, len(t.Name), maxNameBytes-1)
		}
		if names[t.Name] {
			return nil, fmt.Errorf("tensor %q: there are two of that name", t.Name)
		}
		names[t.Name] = true
		b = appendString(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Shape)))
		for _, d := range t.Shape {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint32(b, uint32(t.Type))
		b = le.AppendUint64(b, offset)
		h.Offsets, h.Sizes = append(h.Offsets, int64(offset)), append(h.Sizes, int64(size))
		offset += size + padding(size, align)
		if offset > 1<<62 {
			return nil, fmt.Errorf("tensor %q: the file would have more than 2^62 bytes", t.Name)
		}
	}
	if len(tensors) > 0 {
		b = append(b, make([]byte, padding(uint64(len(b)), align))...)
	}
	for i := range h.Offsets {
		h.Offsets[i] += int64(len(b))
	}
	h.Bytes, h.Size = b, int64(len(b))+int64(offset)
	return h, nil
}

// Padding is the number of zeros behind the data of tensor i.
func (h *Header) Padding(i int) int64 {
	end := h.Size
	if i+1 < len(h.Offsets) {
		end = h.Offsets[i+1]
	}
	return end - h.Offsets[i] - h.Sizes[i]
}

// appendMetadata appends what stands before the list of tensors.
func appendMetadata(b []byte, kv *Metadata, tensors int) ([]byte, error) {
	le := binary.LittleEndian
	b = append(b, "GGUF"...)
	b = le.AppendUint32(b, 3)
	b = le.AppendUint64(b, uint64(tensors))
	b = le.AppendUint64(b, uint64(len(kv.entries)))
	for _, e := range kv.entries {
		if e.key == "" || len(e.key) > maxKeyBytes {
			return nil, fmt.Errorf("key %.100q has %d bytes, expected 1 to %d", e.key, len(e.key), maxKeyBytes)
		}
		b = appendString(b, e.key)
		b = le.AppendUint32(b, uint32(e.typ))
		if e.typ == typeString {
			b = le.AppendUint64(b, uint64(len(e.raw)))
		}
		if e.typ == typeArray {
			b = le.AppendUint32(b, uint32(e.elem))
			b = le.AppendUint64(b, uint64(e.n))
		}
		b = append(b, e.raw...)
	}
	return b, nil
}

// Writer writes a GGUF file from begin to end: NewWriter writes the header, Write takes the tensors' bytes in the order in which they
// were announced, Close ends the file. Nothing but the header is held in memory.
type Writer struct {
	w       io.Writer
	tensors []TensorInfo
	header  *Header
	cur     int   // tensor that is being written
	left    int64 // its bytes to come
}

// NewWriter writes the header to w, usually a buffered file; see NewHeader.
func NewWriter(w io.Writer, kv *Metadata, tensors []TensorInfo) (*Writer, error) {
	h, err := NewHeader(kv, tensors)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(h.Bytes); err != nil {
		return nil, err
	}
	gw := &Writer{w: w, tensors: tensors, header: h}
	gw.begin()
	return gw, nil
}

func writeAlignment(kv *Metadata) (int, error) {
	c := &cursor{}
	align := c.alignment(kv)
	return align, c.err
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// padding is the number of bytes from n to the next multiple of align.
func padding(n uint64, align int) uint64 { return -n & uint64(align-1) }

// begin starts the tensor cur.
func (w *Writer) begin() {
	w.left = 0
	if w.cur < len(w.tensors) {
		w.left = w.header.Sizes[w.cur]
	}
}

// Tensor is the tensor whose bytes the next Write takes, false when all are written.
func (w *Writer) Tensor() (TensorInfo, bool) {
	if w.cur == len(w.tensors) {
		return TensorInfo{}, false
	}
	return w.tensors[w.cur], true
}

// Write takes the next bytes of the current tensor, in any pieces that do not cross its end. The padding after a tensor is added
// with its last byte.
func (w *Writer) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		if w.cur == len(w.tensors) {
			return 0, fmt.Errorf("%d bytes after the last tensor", len(p))
		}
		return 0, fmt.Errorf("tensor %q: %d bytes, but only %d are left", w.tensors[w.cur].Name, len(p), w.left)
	}
	n, err := w.w.Write(p)
	w.left -= int64(n)
	if err != nil || w.left > 0 || w.cur == len(w.tensors) {
		return n, err
	}
	_, err = w.w.Write(make([]byte, w.header.Padding(w.cur)))
	w.cur++
	w.begin()
	return n, err
}

// Close reports whether the file is whole: it is an error if bytes of a tensor are missing. The underlying writer stays open.
func (w *Writer) Close() error {
	if w.cur < len(w.tensors) {
		return fmt.Errorf("tensor %q: %d bytes were not written", w.tensors[w.cur].Name, w.left)
	}
	return nil
}
