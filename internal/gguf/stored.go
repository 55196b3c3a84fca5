package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"ck/internal/entropycode"
	"ck/internal/quant"
)

// The storage form of a file. Matrices are entries of I8 with as many elements as their compressed form has bytes,
// under their own names: other programs list them, and refuse them for their shapes. The keys say what they are.
//
// A compressed tensor is an index, for each chunk its size and its CRC-32C, and the CRC-32C of that; then the chunks,
// as package entropycode has them. A chunk is whole rows of one matrix.
const (
	storageVersionKey = "ck.storage.version"
	storageTypesKey   = "ck.storage.types"  // int32 for each tensor: its type, -1 where it is not compressed
	storageShapesKey  = "ck.storage.shapes" // four uint64 for each tensor: its shape, 0 for dimensions that it does not have
	storageVersion    = 1

	indexEntry = 8
	indexSum   = 4
)

const (
	chunkBytes     = 256 << 10 // of a chunk before it is compressed, where rows allow
	chunkRows      = 64        // of a chunk at most: what kernels go through side by side
	storedRowBytes = 4 << 20   // of a row; what is longer is not compressed
)

// Castagnoli is the polynomial of the checksums.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Chunks is how the rows of a tensor are cut. It depends on type and shape alone.
type Chunks struct {
	Rows   int // of a chunk, but of the last one of a matrix
	Matrix int // rows of a matrix
	All    int // rows of the tensor
}

// ChunksOf cuts a tensor into chunks; false where tensors like that are not compressed: vectors, and very long rows.
func ChunksOf(t quant.Type, shape []int) (c Chunks, ok bool) {
	size := t.RowBytes(shape[0])
	if len(shape) < 2 || size > storedRowBytes {
		return c, false
	}
	c = Chunks{Rows: chunkRows, Matrix: shape[1], All: 1}
	for _, d := range shape[1:] {
		c.All *= d
	}
	for c.Rows > 1 && c.Rows*size > chunkBytes {
		c.Rows /= 2
	}
	return c, true
}

// perMatrix is the number of chunks of a matrix.
func (c Chunks) perMatrix() int { return (c.Matrix + c.Rows - 1) / c.Rows }

// Len is the number of chunks.
func (c Chunks) Len() int { return c.All / c.Matrix * c.perMatrix() }

// At is the chunk that has row r.
func (c Chunks) At(r int) int { return r/c.Matrix*c.perMatrix() + r%c.Matrix/c.Rows }

// First is the first row of chunk i; of Len, the number of rows.
func (c Chunks) First(i int) int {
	n := c.perMatrix()
	return i/n*c.Matrix + i%n*c.Rows
}

// IndexBytes is the size of the index.
func (c Chunks) IndexBytes() int { return c.Len()*indexEntry + indexSum }

// MaxStored is the size of a compressed tensor at most.
func (c Chunks) MaxStored(t quant.Type, cols int) int64 {
	n := int64(c.IndexBytes())
	perChunk := entropycode.MaxBytes(t, c.Rows*t.RowBytes(cols))
	return n + int64(c.Len())*int64(perChunk)
}

// SetIndex writes the entry of chunk i to an index.
func SetIndex(index []byte, i int, coded []byte) {
	e := index[i*indexEntry:]
	binary.LittleEndian.PutUint32(e, uint32(len(coded)))
	binary.LittleEndian.PutUint32(e[4:], crc32.Checksum(coded, Castagnoli))
}

// EndIndex writes the checksum of an index.
func EndIndex(index []byte) {
	end := len(index) - indexSum
	binary.LittleEndian.PutUint32(index[end:], crc32.Checksum(index[:end], Castagnoli))
}

// storedAs gives compressed tensors the entries of their bytes, and the keys what they are.
func storedAs(kv *Metadata, tensors []TensorInfo) (*Metadata, []TensorInfo, error) {
	if !slices.ContainsFunc(tensors, func(t TensorInfo) bool { return t.Stored > 0 }) {
		return kv, tensors, nil
	}
	tensors = slices.Clone(tensors)
	types, shapes := make([]int32, len(tensors)), make([]uint64, maxDims*len(tensors))
	for i, t := range tensors {
		types[i] = -1
		if t.Stored == 0 {
			continue
		}
		if _, err := tensorBytes(t.Type, t.Shape); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		types[i] = int32(t.Type)
		for j, d := range t.Shape {
			shapes[i*maxDims+j] = uint64(d)
		}
		tensors[i].Type, tensors[i].Shape = quant.I8, []int{int(t.Stored)}
	}
	kv = kv.Clone()
	kv.Set(storageVersionKey, uint32(storageVersion))
	kv.Set(storageTypesKey, types)
	kv.Set(storageShapesKey, shapes)
	return kv, tensors, nil
}

// unfoldStored finds what compressed tensors are, and removes the keys that say so.
func unfoldStored(kv *Metadata, tensors []*Tensor) error {
	version, ok, err := kv.Int(storageVersionKey)
	if err != nil || !ok {
		return err
	}
	if version != storageVersion {
		return fmt.Errorf("%s is %d, expected %d: its tensors are compressed in a form that this program does not know",
			storageVersionKey, version, storageVersion)
	}
	types, _, err := kv.Ints(storageTypesKey)
	if err != nil {
		return err
	}
	shapes, _, err := kv.Ints(storageShapesKey)
	if err != nil {
		return err
	}
	if len(types) != len(tensors) || len(shapes) != maxDims*len(tensors) {
		return fmt.Errorf("%s has %d elements, %s %d, expected %d and %d", storageTypesKey, len(types),
			storageShapesKey, len(shapes), len(tensors), maxDims*len(tensors))
	}
	for i, t := range tensors {
		if types[i] < 0 {
			continue
		}
		if err := t.unfold(quant.Type(types[i]), shapes[i*maxDims:(i+1)*maxDims]); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	kv.Remove(storageVersionKey, storageTypesKey, storageShapesKey)
	return nil
}

// unfold gives a compressed tensor its type and shape.
func (t *Tensor) unfold(typ quant.Type, dims []int64) error {
	if t.Type != quant.I8 || len(t.Shape) != 1 {
		return fmt.Errorf("is %v %v, expected the bytes of a compressed tensor", t.Type, t.Shape)
	}
	var shape []int
	for i, d := range dims {
		if d == 0 && i > 0 {
			break
		}
		shape = append(shape, int(d))
	}
	if _, err := tensorBytes(typ, shape); err != nil {
		return err
	}
	c, ok := ChunksOf(typ, shape)
	if !ok {
		return fmt.Errorf("%v of %v is not compressed by any program", shape, typ)
	}
	s := &Stored{Chunks: c, name: t.Name, typ: typ, cols: shape[0], data: t.Data}
	if err := s.readIndex(); err != nil {
		return err
	}
	t.Type, t.Shape, t.Data, t.Stored = typ, shape, nil, s
	return nil
}

// Stored is the compressed rows of a tensor.
type Stored struct {
	Chunks
	name    string
	typ     quant.Type
	cols    int
	data    []byte  // the index and the chunks, mapped
	offsets []int64 // of each chunk in data, and of the end
}

// readIndex checks the index against the bytes that are there.
func (s *Stored) readIndex() error {
	n := s.Len()
	if int64(n) > int64(len(s.data)-indexSum)/indexEntry {
		return fmt.Errorf("%d bytes are too few for the index of %d chunks", len(s.data), n)
	}
	size := s.IndexBytes()
	index := s.data[:size-indexSum]
	if crc32.Checksum(index, Castagnoli) != binary.LittleEndian.Uint32(s.data[size-indexSum:]) {
		return errors.New("the checksum of its index is wrong: the file is damaged; make it again")
	}
	s.offsets = make([]int64, n+1)
	at := int64(size)
	for i := range n {
		s.offsets[i] = at
		at += int64(binary.LittleEndian.Uint32(index[i*indexEntry:]))
	}
	if s.offsets[n] = at; at != int64(len(s.data)) {
		return fmt.Errorf("its index is of %d bytes, %d are there", at, len(s.data))
	}
	return nil
}

// Sum tells the rows from others: the checksum of those of all chunks.
func (s *Stored) Sum() uint32 { return binary.LittleEndian.Uint32(s.data[s.IndexBytes()-indexSum:]) }

// Size is the bytes of the compressed form, with the index.
func (s *Stored) Size() int64 { return int64(len(s.data)) }

// Whole widens the rows [from, to) to whole chunks.
func (s *Stored) Whole(from, to int) (int, int) { return s.First(s.At(from)), s.First(s.At(to-1) + 1) }

// chunk is chunk i as it is coded, and its rows.
func (s *Stored) chunk(i int) (coded []byte, rows int) {
	return s.data[s.offsets[i]:s.offsets[i+1]], min(s.First(i+1), (s.First(i)/s.Matrix+1)*s.Matrix) - s.First(i)
}

// Unpack writes the rows [from, to), whole chunks, to dst. Damage ends it with a panic of *DamageError, as with a
// Reader.
func (s *Stored) Unpack(c *entropycode.Coder, dst []byte, from, to int) {
	index, rowBytes := s.data, s.typ.RowBytes(s.cols)
	for i := s.At(from); from < to; i++ {
		coded, rows := s.chunk(i)
		if crc32.Checksum(coded, Castagnoli) != binary.LittleEndian.Uint32(index[i*indexEntry+4:]) {
			panic(&DamageError{Tensor: s.name, Row: from, Rows: rows, Why: errors.New("their checksum is wrong")})
		}
		if err := c.Decode(dst[:rows*rowBytes], s.typ, coded); err != nil {
			panic(&DamageError{Tensor: s.name, Row: from, Rows: rows, Why: err})
		}
		dst, from = dst[rows*rowBytes:], from+rows
	}
}

// Sizes adds the bytes of each part, as entropycode.Parts lists them, before and after; the index is not counted.
func (s *Stored) Sizes(before, after []int64) error {
	for i := range s.Len() {
		coded, rows := s.chunk(i)
		if err := entropycode.Sizes(s.typ, rows*s.typ.RowBytes(s.cols), coded, before, after); err != nil {
			return &DamageError{Tensor: s.name, Row: s.First(i), Rows: rows, Why: err}
		}
	}
	return nil
}

// DamageError says that rows of a compressed tensor are not what was written.
type DamageError struct {
	Tensor    string
	Row, Rows int
	Why       error
}

func (e *DamageError) Error() string {
	last := e.Row + e.Rows - 1
	return fmt.Sprintf("tensor %s: rows %d to %d are damaged: %v; make the file again", e.Tensor, e.Row, last, e.Why)
}
func (e *DamageError) Unwrap() error { return e.Why }

// guardDamage makes the panics of Readers errors of fn.
func guardDamage(fn func() error) func() error {
	return func() (err error) {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case *DamageError:
				err = r
			default:
				panic(r)
			}
		}()
		return fn()
	}
}
