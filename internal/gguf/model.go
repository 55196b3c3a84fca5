// Package gguf reads and writes GGUF files, versions 2 and 3, little endian, single and split, and holds the form in which every
// model reaches the packages above: ordered metadata and tensors that point into mapped files.
//
// Format: ggml's docs/gguf.md. What that leaves open is decided as llama.cpp does, except that gaps and any order of the tensors'
// data are accepted.
package gguf

import (
	"errors"
	"fmt"
	"math/bits"

	"ck/internal/mapfile"
	"ck/internal/quant"
)

// Model is an open model: metadata under GGUF keys, tensors under GGUF names, whatever the files' own format is.
type Model struct {
	Path      string // as opened: a file, or a folder for other formats
	KV        *Metadata
	Tensors   []*Tensor // in the order of the files
	Alignment int       // of the tensors' data, in bytes; 1 where the format promises none
	Notes     []string  // which defaults a reader of another format took, for -v: one line each

	byName map[string]*Tensor
	files  []*mapfile.File
}

// Tensor is one tensor of a model.
type Tensor struct {
	Name  string
	Type  quant.Type
	Shape []int  // as ggml's ne: Shape[0] is the row length; 1 to 4 dimensions, none of them 0
	Data  []byte // the rows one after another, mapped: valid until the model is closed, never to be written

	Stored *Stored // where the rows lie compressed; then Data is nil, and a Reader has them

	// Parts is the matrices that the rows are of in turn, where these lie apart in the file, as Hugging Face has experts; then Data is nil.
	Parts [][]byte

	// Interleave is the number of heads whose rows are stored in halves, as Hugging Face does for rotary embeddings of
	// llama; 0 where the rows are in GGUF's order. See Row.
	Interleave int

	// Make, if not nil, computes a row of Type from Data, which has rows of another form that GGUF does not know: r counts
	// them as they lie in the file. Compute calls it.
	Make func(dst []byte, r int)

	File   int   // index into Model.Files, -1 if Data was computed
	Offset int64 // of Data in that file, in bytes
}

// NewModel makes a model without tensors and metadata, for readers of other formats.
func NewModel(path string) *Model {
	return &Model{Path: path, KV: &Metadata{}, Alignment: 1, byName: map[string]*Tensor{}}
}

// AddFile makes the model the owner of a mapping and returns its index for Tensor.File.
func (m *Model) AddFile(f *mapfile.File) int {
	m.files = append(m.files, f)
	return len(m.files) - 1
}

// Add appends a tensor. It is an error if the name is taken, a dimension is below 1, the type is unknown, the row is no multiple
// of the type's block or Data has not the size that type and shape give.
func (m *Model) Add(t *Tensor) error {
	size, err := tensorBytes(t.Type, t.Shape)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	have := len(t.Data)
	for _, p := range t.Parts {
		if have += len(p); len(p) != len(t.Parts[0]) || len(p)%t.Type.RowBytes(t.Cols()) != 0 {
			return fmt.Errorf("tensor %q: its parts have %d and %d bytes", t.Name, len(t.Parts[0]), len(p))
		}
	}
	if t.Stored == nil && t.Make == nil && size != uint64(have) {
		return fmt.Errorf("tensor %q: %v of %v has %d bytes, not %d", t.Name, t.Shape, t.Type, size, have)
	}
	if m.byName[t.Name] != nil {
		return fmt.Errorf("tensor %q: there are two of that name", t.Name)
	}
	m.Tensors = append(m.Tensors, t)
	m.byName[t.Name] = t
	return nil
}

// With is m with other tensors in place of those of the same names, for trials. It has m's files but does not own them: it needs no Close,
// and m stays open while it is used.
func (m *Model) With(tensors map[string]*Tensor) *Model {
	v := &Model{Path: m.Path, KV: m.KV, Alignment: 1, Notes: m.Notes, byName: map[string]*Tensor{}, files: m.files}
	for _, t := range m.Tensors {
		if other := tensors[t.Name]; other != nil {
			t = other
		}
		v.Tensors = append(v.Tensors, t)
		v.byName[t.Name] = t
	}
	return v
}

// Tensor finds a tensor by its name; nil if there is none.
func (m *Model) Tensor(name string) *Tensor { return m.byName[name] }

// Names are those of all tensors, in the order of the files.
func (m *Model) Names() []string {
	names := make([]string, len(m.Tensors))
	for i, t := range m.Tensors {
		names[i] = t.Name
	}
	return names
}

// Files lists the paths of the mapped files.
func (m *Model) Files() []string {
	paths := make([]string, len(m.files))
	for i, f := range m.files {
		paths[i] = f.Path
	}
	return paths
}

// SizeBytes is the size of the mapped files.
func (m *Model) SizeBytes() int64 {
	n := int64(0)
	for _, f := range m.files {
		n += int64(len(f.Data))
	}
	return n
}

// FileAt finds the mapped file that holds the address, as of a fault.
func (m *Model) FileAt(addr uintptr) (path string, ok bool) {
	for _, f := range m.files {
		if f.Contains(addr) {
			return f.Path, true
		}
	}
	return "", false
}

// Guard runs fn, which reads tensors on the calling goroutine. A page of a mapped file that cannot be read ends fn with an error that
// names the file; see mapfile.File.Guard. So do damaged rows of a compressed tensor, with a *DamageError.
func (m *Model) Guard(fn func() error) error {
	fn = guardDamage(fn)
	for _, f := range m.files {
		inner := fn
		fn = func() error { return f.Guard(inner) }
	}
	return fn()
}

// Close unmaps the files. Tensors' data and the metadata must not be read afterwards.
func (m *Model) Close() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Cols is the length of a row, in elements.
func (t *Tensor) Cols() int { return t.Shape[0] }

// Rows is the number of rows: the product of all dimensions but the first.
func (t *Tensor) Rows() int {
	n := 1
	for _, d := range t.Shape[1:] {
		n *= d
	}
	return n
}

// Row returns the bytes of row r in GGUF's order, which pairs the elements 2i and 2i+1 of a head for the rotation.
//
// With Interleave = H the file has H heads of D rows each in Hugging Face's order, which pairs i and i+D/2: row h*D + 2*i + b is
// the file's row h*D + b*D/2 + i (convert_hf_to_gguf.py, LlamaModel.permute).
//
// Rows that are computed or unpacked (Make, Stored) are made anew at each call: who reads many takes a Reader.
func (t *Tensor) Row(r int) []byte {
	if t.Stored != nil || t.Make != nil {
		return t.Reader().Row(r)
	}
	n := t.Type.RowBytes(t.Shape[0])
	r = t.inFile(r)
	data := t.Data
	if t.Parts != nil {
		each := len(t.Parts[0]) / n
		data, r = t.Parts[r/each], r%each
	}
	return data[r*n : (r+1)*n : (r+1)*n]
}

// Compute writes the rows [from, to) of a tensor with Make to dst.
func (t *Tensor) Compute(dst []byte, from, to int) {
	n := t.Type.RowBytes(t.Shape[0])
	for r := from; r < to; r++ {
		t.Make(dst[(r-from)*n:][:n:n], t.inFile(r))
	}
}

// inFile is the number in the file of row r.
func (t *Tensor) inFile(r int) int {
	if t.Interleave > 0 {
		d := t.Rows() / t.Interleave
		j := r % d
		r += j%2*(d/2) + j/2 - j
	}
	return r
}

// Bytes is the size of all rows, as they are before they are compressed.
func (t *Tensor) Bytes() int64 { return int64(t.Rows()) * int64(t.Type.RowBytes(t.Cols())) }

// tensorBytes is the size of a tensor. Shapes that no tensor can have are errors, sizes beyond 2^63 among them.
func tensorBytes(typ quant.Type, shape []int) (uint64, error) {
	if !typ.Known() {
		return 0, fmt.Errorf("%v is unknown, or was removed from the format", typ)
	}
	if len(shape) < 1 || len(shape) > maxDims {
		return 0, fmt.Errorf("%d dimensions, expected 1 to %d", len(shape), maxDims)
	}
	size := uint64(1)
	for i, d := range shape {
		if d < 1 {
			return 0, fmt.Errorf("dimension %d is %d", i, d)
		}
		hi, lo := bits.Mul64(size, uint64(d))
		if hi != 0 || lo > 1<<63-1 {
			return 0, fmt.Errorf("shape %v has more than 2^63 elements", shape)
		}
		size = lo
	}
	if shape[0]%typ.BlockElems() != 0 {
		return 0, fmt.Errorf("rows of %d elements are no multiple of the %d of a block of %v", shape[0], typ.BlockElems(), typ)
	}
	hi, size := bits.Mul64(size/uint64(typ.BlockElems()), uint64(typ.BlockBytes()))
	if hi != 0 || size > 1<<63-1 {
		return 0, fmt.Errorf("shape %v of %v has more than 2^63 bytes", shape, typ)
	}
	return size, nil
}
