// Package convert writes models as GGUF files: every tensor in the type that was chosen for it, through all workers,
// a few rows in memory at a time, under another name until the output is whole, and so that a run that was killed can
// go on.
//
// What is written is thought through to the byte before (Plan): types, parts, sizes. Writing (Plan.Write) deals
// chunks of rows to workers. A chunk is read, checked, decoded, quantized and written to its place; the cut into
// chunks depends on shapes alone, so that the bytes are the same for any number of workers, and after any
// interruption.
package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// Tensor is a tensor of the output.
type Tensor struct {
	From *gguf.Tensor
	Type quant.Type

	// Importance has a value for each column, of each of the matrices of a tensor with three dimensions in turn; nil:
	// there is none.
	Importance []float32

	// Prepare, if not nil, makes what quantizes the tensor in place of quant: it is called once, when the tensor's
	// turn has come.
	Prepare func(ctx context.Context) (Coder, error)

	// Turn orders the work: tensors of lower turns are begun first, those of the same in their order.
	Turn int
	// Kept, if not nil, is told that an earlier run has made the tensor, unless it is compressed; data reads its bytes
	// until Write returns.
	Kept func(data io.ReaderAt)
}

// Part is a file of the output.
type Part struct {
	Path    string
	Tensors []Tensor
	Header  *gguf.Header
}

// Fact is something on which the bytes of the output depend: an input, an option. Name is what the user knows it by.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Plan is an output.
type Plan struct {
	Model *gguf.Model
	Parts []Part
	Facts []Fact // a run that goes on must find the same

	// Compress is whether tensors are stored compressed. What they take is known when they are written: until then
	// sizes are the most it can be.
	Compress bool

	kv *gguf.Metadata // of the first part
}

// Output says where the tensors go. At most one of PartBytes, PartTensors and As is given; without any there is one
// file.
type Output struct {
	Path        string // of the file; for several parts PREFIX or PREFIX.gguf of PREFIX-00001-of-00002.gguf
	PartBytes   int64  // parts of at most so many bytes, as far as single tensors allow
	PartTensors int    // parts of at most so many tensors
	As          bool   // in the parts of the source
	Alone       bool   // the first part has no tensors
	Compress    bool   // store matrices compressed, in one file
}

// NewPlan lays out tensors of m, with metadata kv, in their order.
func NewPlan(m *gguf.Model, kv *gguf.Metadata, tensors []Tensor, out Output) (*Plan, error) {
	for i := range tensors {
		if err := tensors[i].check(); err != nil {
			return nil, err
		}
	}
	kv = kv.Clone()
	kv.Remove("split.no", "split.count", "split.tensors.count")
	groups, err := out.deal(kv, tensors)
	if err != nil {
		return nil, err
	}
	if out.Compress && out.split() {
		return nil, errors.New("a compressed output has one part")
	}
	p := &Plan{Model: m, Compress: out.Compress, kv: kv}
	for i, group := range groups {
		path, own := out.Path, kv
		if out.split() {
			path = gguf.PartPath(strings.TrimSuffix(out.Path, ".gguf"), i, len(groups))
			if own = kv; i > 0 {
				own = &gguf.Metadata{}
			}
			own.Set("split.no", uint16(i))
			own.Set("split.count", uint16(len(groups)))
			own.Set("split.tensors.count", int32(len(tensors)))
		}
		h, err := gguf.NewHeader(own, infos(group, out.Compress))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		p.Parts = append(p.Parts, Part{path, group, h})
	}
	return p, nil
}

// split reports whether the output has parts.
func (o *Output) split() bool { return o.PartBytes > 0 || o.PartTensors > 0 || o.As || o.Alone }

// check compares what a tensor needs with what it has.
func (t *Tensor) check() error {
	f := t.From
	if t.Importance == nil {
		if t.Type != f.Type && t.Type.NeedsImatrix() {
			return &ImportanceError{Tensor: f.Name, Type: t.Type}
		}
		return nil
	}
	if matrices := f.Rows() / t.rowsPerMatrix(); len(t.Importance) != matrices*f.Cols() {
		return fmt.Errorf("tensor %s: %d importances for %d matrices of %d columns", f.Name, len(t.Importance),
			matrices, f.Cols())
	}
	return nil
}

// rowsPerMatrix is the rows that share importances.
func (t *Tensor) rowsPerMatrix() int {
	if len(t.From.Shape) < 2 {
		return 1
	}
	return t.From.Shape[1]
}

// ImportanceError says that a type cannot be made without an importance matrix.
type ImportanceError struct {
	Tensor string
	Type   quant.Type
}

func (e *ImportanceError) Error() string {
	return fmt.Sprintf("tensor %s: %v needs importances; give an importance matrix (--imatrix) or choose another "+
		"type", e.Tensor, e.Type)
}

// infos is what headers say of tensors. Of compressed ones it is the most that they can take.
func infos(tensors []Tensor, compress bool) []gguf.TensorInfo {
	var list []gguf.TensorInfo
	for _, t := range tensors {
		info := gguf.TensorInfo{Name: t.From.Name, Type: t.Type, Shape: t.From.Shape}
		if c, ok := gguf.ChunksOf(t.Type, t.From.Shape); ok && compress {
			info.Stored = c.MaxStored(t.Type, t.From.Cols())
		}
		list = append(list, info)
	}
	return list
}

// maxParts is what split.count holds.
const maxParts = 1<<16 - 1

// deal cuts the tensors into the groups of the parts.
func (o *Output) deal(kv *gguf.Metadata, tensors []Tensor) ([][]Tensor, error) {
	var groups [][]Tensor
	var cut func(group []Tensor, bytes int64, next Tensor) bool
	head := int64(partHead)
	switch {
	case o.As:
		cut = func(group []Tensor, _ int64, next Tensor) bool {
			return group[len(group)-1].From.File != next.From.File
		}
	case o.PartTensors > 0:
		cut = func(group []Tensor, _ int64, _ Tensor) bool { return len(group) >= o.PartTensors }
	case o.PartBytes > 0:
		h, err := gguf.NewHeader(kv, nil)
		if err != nil {
			return nil, err
		}
		head += int64(len(h.Bytes))
		cut = func(_ []Tensor, bytes int64, _ Tensor) bool { return bytes > o.PartBytes }
	default:
		return [][]Tensor{tensors}, nil
	}
	var group []Tensor
	if o.Alone {
		groups, head = append(groups, nil), partHead
	}
	bytes := head
	for _, t := range tensors {
		size := tensorHead + int64(len(t.From.Name)) + t.bytes()
		if len(group) > 0 && cut(group, bytes+size, t) {
			groups, group, bytes = append(groups, group), nil, partHead
		}
		group, bytes = append(group, t), bytes+size
	}
	groups = append(groups, group)
	if len(groups) > maxParts {
		return nil, fmt.Errorf("%d parts, and GGUF holds %d; choose larger ones", len(groups), maxParts)
	}
	return groups, nil
}

// What a part takes beside the data of its tensors, at most: its own keys, and of each tensor an entry in the header
// and padding.
const (
	partHead   = 256
	tensorHead = 8 + 4 + 4*8 + 4 + 8 + 32
)

// bytes is the size of the tensor's data in the output.
func (t *Tensor) bytes() int64 {
	return int64(t.From.Rows()) * int64(t.Type.RowBytes(t.From.Cols()))
}

// Size is the bytes of all parts.
func (p *Plan) Size() int64 {
	n := int64(0)
	for i := range p.Parts {
		n += p.Parts[i].Header.Size
	}
	return n
}

// Sum is the tensors and bytes of one type.
type Sum struct {
	Type    quant.Type
	Tensors int
	Weights int64
	Bytes   int64
}

// Sums is the output by type, the most bytes first.
func (p *Plan) Sums() []Sum {
	at := map[quant.Type]int{}
	var sums []Sum
	for _, part := range p.Parts {
		for _, t := range part.Tensors {
			i, ok := at[t.Type]
			if !ok {
				i = len(sums)
				at[t.Type], sums = i, append(sums, Sum{Type: t.Type})
			}
			sums[i].Tensors++
			sums[i].Weights += int64(t.From.Rows()) * int64(t.From.Cols())
			sums[i].Bytes += t.bytes()
		}
	}
	slices.SortStableFunc(sums, func(a, b Sum) int { return int(b.Bytes>>1 - a.Bytes>>1) })
	return sums
}
