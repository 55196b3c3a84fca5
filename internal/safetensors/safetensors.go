// Package safetensors reads safetensors files and folders of them, mapped, and writes them as streams.
//
// Format: huggingface/safetensors, README "Format": 8 bytes with the header's length, a JSON header, the tensors' data without gaps.
// What that leaves open is decided as the Rust crate does; beyond it, space before the header's { and repeated names are refused.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ck/internal/mapfile"
	"ck/internal/quant"
)

const (
	maxHeaderBytes = 100_000_000 // the crate's limit
	maxDepth       = 128         // of nested JSON values, the crate's limit

	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// File is an open safetensors file.
type File struct {
	Map      *mapfile.File     // the whole file
	Metadata map[string]string // the header's __metadata__
	Tensors  []*Tensor         // in the order of their data
}

// Tensor is one tensor of a file.
type Tensor struct {
	Name   string
	DType  string // "F32", "BF16", …
	Shape  []int  // slowest dimension first; empty for a scalar; 0 is allowed
	Data   []byte // mapped: valid until the file is closed, never to be written; not aligned
	Offset int64  // of Data in the file, in bytes

	begin, end uint64 // data_offsets
}

// dtypes are the crate's element types: bits of an element and, where there is one, the ggml type of the same bytes.
var dtypes = map[string]struct {
	bits  uint64
	typ   quant.Type
	known bool
}{
	"F64": {64, quant.F64, true}, "F32": {32, quant.F32, true}, "F16": {16, quant.F16, true}, "BF16": {16, quant.BF16, true},
	"I64": {64, quant.I64, true}, "I32": {32, quant.I32, true}, "I16": {16, quant.I16, true}, "I8": {8, quant.I8, true},
	"U64": {bits: 64}, "U32": {bits: 32}, "U16": {bits: 16}, "U8": {bits: 8}, "BOOL": {bits: 8}, "C64": {bits: 64},
	"F8_E4M3": {bits: 8}, "F8_E5M2": {bits: 8}, "F8_E8M0": {bits: 8}, "F8_E4M3FNUZ": {bits: 8}, "F8_E5M2FNUZ": {bits: 8},
	"F6_E2M3": {bits: 6}, "F6_E3M2": {bits: 6}, "F4": {bits: 4},
}

// Type is the ggml type whose elements have the same bytes, false where ggml has none.
func (t *Tensor) Type() (quant.Type, bool) {
	d := dtypes[t.DType]
	return d.typ, d.known
}

// Open maps a file and checks its header against it. The tensors' data is not touched.
func Open(path string) (*File, error) {
	m, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{Map: m}
	err = m.Guard(func() error {
		if err := f.parse(); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		m.Close()
		return nil, err
	}
	return f, nil
}

// Close unmaps the file.
func (f *File) Close() error { return f.Map.Close() }

// OpenDir opens the weights of a model's folder: model.safetensors, or else the files that model.safetensors.index.json names. A
// file's Tensors are those that the index finds in it.
func OpenDir(dir string) ([]*File, error) {
	f, err := Open(filepath.Join(dir, singleName))
	if err == nil {
		return []*File{f}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files, err := openIndex(filepath.Join(dir, indexName))
	if errors.Is(err, fs.ErrNotExist) && files == nil {
		return nil, fmt.Errorf("%s: neither %s nor %s is there: %w", dir, singleName, indexName, fs.ErrNotExist)
	}
	return files, err
}

// openIndex opens the files of an index. On an error files is nil if the index itself could not be read.
func openIndex(path string) (files []*File, err error) {
	index, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer index.Close()
	var content struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := index.Guard(func() error { return json.Unmarshal(index.Data, &content) }); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	shards := map[string]map[string]bool{}
	for tensor, name := range content.WeightMap {
		// A shard lies beside its index: a name that leads elsewhere could open any file of the machine.
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
			return nil, fmt.Errorf("%s: tensor %.100q is in %.100q, expected the name of a file beside the index", path, tensor, name)
		}
		if shards[name] == nil {
			shards[name] = map[string]bool{}
		}
		shards[name][tensor] = true
	}
	if len(shards) == 0 {
		return nil, fmt.Errorf("%s: weight_map names no tensors", path)
	}
	files = []*File{}
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			files = files[:0]
		}
	}()
	names := make([]string, 0, len(shards))
	for name := range shards {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f, err := Open(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			return files, err
		}
		files = append(files, f)
		f.Tensors = slices.DeleteFunc(f.Tensors, func(t *Tensor) bool { return !shards[name][t.Name] })
		for _, t := range f.Tensors {
			delete(shards[name], t.Name)
		}
		for missing := range shards[name] {
			return files, fmt.Errorf("%s: tensor %.100q is missing, %s says that it is there", f.Map.Path, missing, indexName)
		}
	}
	return files, nil
}

// parse reads the header and checks that the tensors cover the data.
func (f *File) parse() error {
	b := f.Map.Data
	if len(b) < 8 {
		return fmt.Errorf("offset 0x0: length of the header needs 8 bytes, file has %d bytes", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHeaderBytes || n > uint64(len(b)-8) {
		return fmt.Errorf("offset 0x0: header of %d bytes, file has %d bytes and the limit is %d; no safetensors file, or incomplete", n, len(b), maxHeaderBytes)
	}
	h := b[8 : 8+n]
	if n == 0 || h[0] != '{' {
		return fmt.Errorf("offset 0x8: the header begins with %.8q, expected {: this is no safetensors file", h)
	}
	if !utf8.Valid(h) {
		return errors.New("offset 0x8: the header is not UTF-8")
	}
	p := &parser{dec: json.NewDecoder(bytes.NewReader(h))}
	p.dec.UseNumber()
	if err := p.header(f); err != nil {
		return fmt.Errorf("offset 0x%x: header: %w", 8+p.dec.InputOffset(), err)
	}
	return f.place(b[8+n:], int64(8+n))
}

// place checks that the tensors' data lies end to end in data, which begins at offset base, and points the tensors to it.
func (f *File) place(data []byte, base int64) error {
	slices.SortStableFunc(f.Tensors, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at, size := uint64(0), uint64(len(data))
	for _, t := range f.Tensors {
		want, err := t.sizeBytes()
		switch {
		case err != nil:
		case t.begin > t.end || t.end-t.begin != want:
			err = fmt.Errorf("data_offsets [%d,%d], but %v of %s has %d bytes", t.begin, t.end, t.Shape, t.DType, want)
		case t.end > size:
			err = fmt.Errorf("ends at offset 0x%x + %d, file has %d bytes; it is incomplete", base, t.end, len(f.Map.Data))
		case t.begin != at:
			err = fmt.Errorf("its data begins at offset 0x%x + %d, expected %d: tensors must lie end to end", base, t.begin, at)
		}
		if err != nil {
			return fmt.Errorf("tensor %.100q: %w", t.Name, err)
		}
		at = t.end
		t.Data = data[t.begin:t.end:t.end]
		t.Offset = base + int64(t.begin)
	}
	if at != size {
		return fmt.Errorf("offset 0x%x: %d bytes after the last tensor", uint64(base)+at, size-at)
	}
	return nil
}

func (t *Tensor) sizeBytes() (uint64, error) {
	d, ok := dtypes[t.DType]
	if !ok {
		return 0, fmt.Errorf("unknown dtype %.20q", t.DType)
	}
	n := d.bits
	for _, x := range t.Shape {
		hi, lo := bits.Mul64(n, uint64(x))
		if hi != 0 {
			return 0, fmt.Errorf("shape %v of %s overflows", t.Shape, t.DType)
		}
		n = lo
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s ends inside a byte", t.Shape, t.DType)
	}
	return n / 8, nil
}

// parser reads the header token by token, since encoding/json's decoding to values lets repeated names pass.
type parser struct{ dec *json.Decoder }

// header reads the whole JSON text.
func (p *parser) header(f *File) error {
	seen := map[string]bool{}
	err := p.object("the header", func(name string) error {
		if seen[name] {
			return fmt.Errorf("%.100q is there twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			return p.metadata(f)
		}
		t := &Tensor{Name: name}
		f.Tensors = append(f.Tensors, t)
		if err := p.tensor(t); err != nil {
			return fmt.Errorf("tensor %.100q: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := p.dec.Token(); err != io.EOF {
		return errors.New("text after the JSON object")
	}
	return nil
}

func (p *parser) metadata(f *File) error {
	f.Metadata = map[string]string{}
	return p.object("__metadata__", func(name string) error {
		v, err := p.str("value of " + strconv.Quote(name))
		f.Metadata[name] = v
		return err
	})
}

func (p *parser) tensor(t *Tensor) error {
	seen := map[string]bool{}
	err := p.object("a tensor", func(field string) (err error) {
		if seen[field] {
			return fmt.Errorf("%.100q is there twice", field)
		}
		seen[field] = true
		switch field {
		case "dtype":
			t.DType, err = p.str("dtype")
		case "shape":
			var dims []uint64
			dims, err = p.numbers("shape")
			for _, d := range dims {
				t.Shape = append(t.Shape, int(d))
			}
		case "data_offsets":
			var o []uint64
			if o, err = p.numbers("data_offsets"); err == nil && len(o) != 2 {
				err = fmt.Errorf("data_offsets has %d numbers, expected 2", len(o))
			}
			if err == nil {
				t.begin, t.end = o[0], o[1]
			}
		default:
			err = p.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, field := range []string{"dtype", "shape", "data_offsets"} {
		if !seen[field] {
			return fmt.Errorf("no %s", field)
		}
	}
	return nil
}

// object reads an object; member is called after each name and reads the value.
func (p *parser) object(what string, member func(name string) error) error {
	if err := p.open('{', what); err != nil {
		return err
	}
	for p.dec.More() {
		name, err := p.str("a name")
		if err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
	}
	_, err := p.token()
	return err
}

// numbers reads an array of integers from 0 to 2^63-1.
func (p *parser) numbers(what string) ([]uint64, error) {
	if err := p.open('[', what); err != nil {
		return nil, err
	}
	var out []uint64
	for p.dec.More() {
		tok, err := p.token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%s: %v, expected an integer", what, tok)
		}
		v, err := strconv.ParseUint(num.String(), 10, 64)
		if err != nil || v > math.MaxInt {
			return nil, fmt.Errorf("%s: %.40s, expected an integer from 0 to %d", what, num, math.MaxInt)
		}
		out = append(out, v)
	}
	_, err := p.token()
	return out, err
}

func (p *parser) open(delim json.Delim, what string) error {
	tok, err := p.token()
	if err != nil {
		return err
	}
	if tok != delim {
		return fmt.Errorf("%s is %.40q, expected %v", what, fmt.Sprint(tok), delim)
	}
	return nil
}

func (p *parser) str(what string) (string, error) {
	tok, err := p.token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("%.100s is %.40q, expected a string", what, fmt.Sprint(tok))
	}
	return s, nil
}

// skip passes over one value of any kind.
func (p *parser) skip() error {
	for depth := 0; ; {
		tok, err := p.token()
		if err != nil {
			return err
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
		if depth > maxDepth {
			return fmt.Errorf("nested more than %d deep", maxDepth)
		}
	}
}

func (p *parser) token() (json.Token, error) {
	tok, err := p.dec.Token()
	if err == io.EOF {
		err = errors.New("the JSON ends too early")
	}
	return tok, err
}
