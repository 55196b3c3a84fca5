package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"ck/internal/mapfile"
	"ck/internal/quant"
)

// Limits of the format.
const (
	maxDims       = 4     // dimensions of a tensor (ggml.h, GGML_MAX_DIMS)
	maxNameBytes  = 64    // of a tensor's name (gguf.md)
	maxKeyBytes   = 65535 // of a metadata key (gguf.md)
	alignmentKey  = "general.alignment"
	alignmentElse = 32 // where the key is absent

	minPairBytes   = 8 + 1 + 4 + 1         // shortest key, type, shortest value
	minTensorBytes = 8 + 1 + 4 + 8 + 4 + 8 // shortest name, one dimension
)

// Open maps a GGUF file, or all parts of a split model of which path is the first. Everything in the headers is checked: sizes
// against the file before use, that all tensors lie within their file and do not overlap. The tensors' data is not touched.
func Open(path string) (*Model, error) {
	m := NewModel(path)
	if err := m.open(path); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Model) open(path string) error {
	kv, align, err := m.openPart(path)
	if err != nil {
		return err
	}
	m.KV, m.Alignment = kv, align
	if kv.find("split.count") == nil {
		return nil
	}
	first, err := splitOf(path, kv)
	if err != nil {
		return err
	}
	if first.no != 0 {
		return fmt.Errorf("%s: this is part %d of %d of a split model; open the first part", path, first.no+1, first.count)
	}
	if first.count < 2 {
		return nil
	}
	end := PartPath("", 0, first.count)
	prefix, ok := strings.CutSuffix(path, end)
	if !ok {
		return fmt.Errorf("%s: the first of %d parts must be named *%s so that the others can be found", path, first.count, end)
	}
	for i := 1; i < first.count; i++ {
		part := PartPath(prefix, i, first.count)
		kv, align, err := m.openPart(part)
		if err != nil {
			return err
		}
		s, err := splitOf(part, kv)
		if err != nil {
			return err
		}
		if s.no != i || s.count != first.count {
			return fmt.Errorf("%s: split.no is %d and split.count %d, expected %d and %d", part, s.no, s.count, i, first.count)
		}
		m.Alignment = min(m.Alignment, align)
	}
	if len(m.Tensors) != first.tensors {
		return fmt.Errorf("%s: split.tensors.count is %d, but the %d parts have %d tensors", path, first.tensors, first.count, len(m.Tensors))
	}
	return nil
}

// split is what a part of a split model says of itself.
type split struct {
	no, count, tensors int
}

// splitOf reads a part's split keys.
func splitOf(path string, kv *Metadata) (split, error) {
	var s split
	for _, k := range []struct {
		key string
		typ valueType
		to  *int
	}{{"split.count", typeUint16, &s.count}, {"split.no", typeUint16, &s.no}, {"split.tensors.count", typeInt32, &s.tensors}} {
		e := kv.find(k.key)
		if e == nil {
			return s, fmt.Errorf("%s: a part of a split model without the key %s", path, k.key)
		}
		if e.typ != k.typ {
			return s, fmt.Errorf("%s: key %s has type %v, expected %v", path, k.key, e.typ, k.typ)
		}
		v, _ := integer(e.typ, e.raw)
		*k.to = int(v)
	}
	return s, nil
}

// openPart maps one file and appends its tensors.
func (m *Model) openPart(path string) (kv *Metadata, align int, err error) {
	f, err := mapfile.Open(path)
	if err != nil {
		return nil, 0, err
	}
	file := m.AddFile(f)
	err = f.Guard(func() error {
		kv, align, err = m.parse(path, file, f.Data)
		return err
	})
	return kv, align, err
}

// FromBytes opens a single GGUF file that lies in memory, such as one that is part of the program; name stands for its path. The
// model keeps data and has no files of its own, so that its tensors count as computed (File is -1).
func FromBytes(name string, data []byte) (*Model, error) {
	m := NewModel(name)
	kv, _, err := m.parse(name, -1, data)
	if err != nil {
		return nil, err
	}
	if n, _, err := kv.Int("split.count"); err != nil || n > 1 {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return nil, fmt.Errorf("%s: this is a part of a split model; only whole models are read from memory", name)
	}
	m.KV = kv // Alignment stays 1: data may lie anywhere
	return m, nil
}

// parse reads the header of one file and appends its tensors.
func (m *Model) parse(path string, file int, data []byte) (kv *Metadata, align int, err error) {
	c := &cursor{b: data}
	kv, align, tensors := c.header()
	if c.err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, c.err)
	}
	if err := unfoldStored(kv, tensors); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range tensors {
		t.File = file
		if err := m.Add(t); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	return kv, align, nil
}

// cursor reads a mapped file from its begin. After the first error it returns zeros and empty slices.
type cursor struct {
	b   []byte
	off int
	err error
}

func (c *cursor) fail(at int, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("offset 0x%x: %w", at, fmt.Errorf(format, args...))
	}
}

// take returns the next n bytes; what names them.
func (c *cursor) take(n uint64, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n > uint64(len(c.b)-c.off) {
		c.fail(c.off, "%s needs %d bytes, file has %d bytes", what, n, len(c.b))
		return nil
	}
	b := c.b[c.off : c.off+int(n)]
	c.off += int(n)
	return b
}

func (c *cursor) u32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// str returns the bytes of a string of at most limit bytes.
func (c *cursor) str(limit uint64, what string) []byte {
	at := c.off
	n := c.u64(what)
	if c.err != nil {
		return nil
	}
	if left := uint64(len(c.b) - c.off); n > left {
		c.fail(at, "string length %d of %s, file has %d bytes", n, what, len(c.b))
		return nil
	}
	if n > limit {
		c.fail(at, "string length %d of %s, expected at most %d", n, what, limit)
		return nil
	}
	return c.take(n, what)
}

// header reads everything before the tensors' data and finds each tensor's data.
func (c *cursor) header() (*Metadata, int, []*Tensor) {
	magic := c.take(4, "magic")
	if c.err == nil && string(magic) != "GGUF" {
		c.fail(0, "begins with %q, expected \"GGUF\": this is no GGUF file", magic)
	}
	version := c.u32("version")
	if c.err == nil && version != 2 && version != 3 {
		hint := "expected 2 or 3"
		if version != 0 && version&0xffff == 0 {
			hint += "; this looks like a big-endian file"
		}
		c.fail(4, "version %d, %s", version, hint)
	}
	nTensors, nPairs := c.u64("number of tensors"), c.u64("number of key-value pairs")
	left := uint64(len(c.b) - c.off)
	if nPairs > left/minPairBytes {
		c.fail(16, "%d key-value pairs do not fit into the file's %d bytes", nPairs, len(c.b))
	}
	if nTensors > left/minTensorBytes {
		c.fail(8, "%d tensors do not fit into the file's %d bytes", nTensors, len(c.b))
	}
	kv := &Metadata{}
	for i := uint64(0); i < nPairs && c.err == nil; i++ {
		c.pair(kv)
	}
	align := c.alignment(kv)
	var tensors []*Tensor
	for i := uint64(0); i < nTensors && c.err == nil; i++ {
		tensors = append(tensors, c.tensor())
	}
	if c.err == nil && len(tensors) > 0 {
		c.place(tensors, uint64(align))
	}
	return kv, align, tensors
}

// pair reads a key and its value.
func (c *cursor) pair(kv *Metadata) {
	at := c.off
	e := entry{key: string(c.str(maxKeyBytes, "a key"))}
	if c.err == nil && e.key == "" {
		c.fail(at, "empty key")
	}
	what := fmt.Sprintf("key %.100q", e.key)
	at = c.off
	e.typ = valueType(c.u32("type of " + what))
	switch {
	case e.typ == typeString:
		e.raw = c.str(math.MaxUint64, what)
	case e.typ == typeArray:
		c.array(&e, what)
	case e.typ < typeCount:
		e.raw = c.take(uint64(e.typ.size()), what)
	default:
		c.fail(at, "%s has unknown %v", what, e.typ)
	}
	if c.err == nil && (e.typ == typeBool || e.typ == typeArray && e.elem == typeBool) {
		for i, b := range e.raw {
			if b > 1 {
				c.fail(c.off-len(e.raw)+i, "%s: bool is %d, expected 0 or 1", what, b)
				break
			}
		}
	}
	if c.err == nil && !kv.add(e) {
		c.fail(at, "%s is there twice", what)
	}
}

// array reads an array's head and finds its elements' bytes. Arrays of arrays are refused, as llama.cpp does.
func (c *cursor) array(e *entry, what string) {
	at := c.off
	e.elem = valueType(c.u32("element type of " + what))
	n := c.u64("length of " + what)
	if c.err != nil {
		return
	}
	if e.elem >= typeCount || e.elem == typeArray {
		c.fail(at, "%s is an array of %v", what, e.elem)
		return
	}
	size := uint64(8) // of a string: at least its length
	if e.elem != typeString {
		size = uint64(e.elem.size())
	}
	if n > uint64(len(c.b)-c.off)/size {
		c.fail(at, "%s is an array of %d %v, file has %d bytes", what, n, e.elem, len(c.b))
		return
	}
	e.n = int(n)
	begin := c.off
	if e.elem == typeString {
		for i := 0; i < e.n && c.err == nil; i++ {
			c.str(math.MaxUint64, what)
		}
	} else {
		c.take(n*size, what)
	}
	e.raw = c.b[begin:c.off]
}

func (c *cursor) alignment(kv *Metadata) int {
	e := kv.find(alignmentKey)
	if e == nil || c.err != nil {
		return alignmentElse
	}
	if e.typ != typeUint32 {
		c.fail(c.off, "key %s has type %v, expected u32", alignmentKey, e.typ)
		return alignmentElse
	}
	a, _ := integer(e.typ, e.raw)
	if a < 1 || a&(a-1) != 0 || a > math.MaxInt32 {
		c.fail(c.off, "key %s is %d, expected a power of two below 2^31", alignmentKey, a)
		return alignmentElse
	}
	return int(a)
}

// tensor reads an entry of the tensor list. Offset is still relative to the data section, as a bit pattern of 64 bits.
func (c *cursor) tensor() *Tensor {
	at := c.off
	t := &Tensor{Name: string(c.str(maxNameBytes, "a tensor's name"))}
	if c.err == nil && t.Name == "" {
		c.fail(at, "empty tensor name")
	}
	what := fmt.Sprintf("tensor %q", t.Name)
	at = c.off
	n := c.u32("number of dimensions of " + what)
	if c.err == nil && (n < 1 || n > maxDims) {
		c.fail(at, "%s has %d dimensions, expected 1 to %d", what, n, maxDims)
	}
	for i := uint32(0); i < n && c.err == nil; i++ {
		at = c.off
		d := c.u64("dimension of " + what)
		if c.err == nil && (d < 1 || d > math.MaxInt) {
			c.fail(at, "%s: dimension %d is %d", what, i, d)
		}
		t.Shape = append(t.Shape, int(d))
	}
	t.Type = quant.Type(c.u32("type of " + what))
	t.Offset = int64(c.u64("offset of " + what))
	return t
}

// place finds the tensors' data: the data section begins at the next multiple of the alignment, offsets count from there.
func (c *cursor) place(tensors []*Tensor, align uint64) {
	begin := (uint64(c.off) + align - 1) &^ (align - 1)
	size := uint64(len(c.b))
	if begin > size {
		c.fail(c.off, "the data should begin at offset 0x%x, file has %d bytes; it is incomplete", begin, size)
		return
	}
	for _, t := range tensors {
		n, err := tensorBytes(t.Type, t.Shape)
		rel := uint64(t.Offset)
		switch {
		case err != nil:
			c.fail(c.off, "tensor %q: %w", t.Name, err)
		case rel%align != 0:
			c.fail(c.off, "tensor %q: its data has offset %d, expected a multiple of %d", t.Name, rel, align)
		case rel > size-begin || n > size-begin-rel:
			c.fail(c.off, "tensor %q: %d bytes at 0x%x + 0x%x, file has %d bytes; it is incomplete", t.Name, n, begin, rel, size)
		}
		if c.err != nil {
			return
		}
		t.Offset = int64(begin + rel)
		t.Data = c.b[begin+rel : begin+rel+n : begin+rel+n]
	}
	byOffset := slices.SortedFunc(slices.Values(tensors), func(a, b *Tensor) int { return cmp.Compare(a.Offset, b.Offset) })
	for i, t := range byOffset[1:] {
		if before := byOffset[i]; before.Offset+int64(len(before.Data)) > t.Offset {
			c.fail(int(t.Offset), "tensor %q begins inside tensor %q", t.Name, before.Name)
			return
		}
	}
}

// PartPath is the name of part i of n of a split model, as llama.cpp names them.
func PartPath(prefix string, i, n int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, i+1, n)
}
