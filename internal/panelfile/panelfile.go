// Package panelfile reads and writes files of panels: the weights of a model as kernels read them, so that a
// program maps them and packs nothing, and processes share them.
//
// A file has a header, the panels of each matrix at a page boundary, and at the next one the CRC-32C of every
// panel. All numbers are little endian:
//
//	8  CKPANELS          4  version of this form          4  bytes of the table
//	   the table: 8 size of the file, 8, 8, 32 and 4 of Source, 4 number of matrices, then for each
//	      name, type and layout (each 2 bytes of length, then text), 4 version of the layout,
//	      8 rows, 8 columns, 8 bytes of a panel, 4 panels, 8 offset
//	4  CRC-32C of all that is before
//	…  panels, zeros between matrices
//	   4 for each panel: its CRC-32C; 4 CRC-32C of these
//
// What is checked when a file is opened is the header and the checksums. Panels are compared by those who read them.
package panelfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"ck/internal/mapfile"
)

const (
	magic   = "CKPANELS"
	version = 1
	page    = 4096
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Source tells what was packed: whether a model is the same can mostly be seen without reading all of it.
type Source struct {
	Bytes    int64    // of the model's files
	Modified int64    // when they were last written, in nanoseconds since 1970: of files of that time and size a sample is enough
	Sample   [32]byte // a hash over samples of the tensors
	Contents uint32   // CRC-32C of the CRC-32C of each matrix's data
}

// Matrix is a matrix of a file.
type Matrix struct {
	Name       string
	Type       string // of the weights that were packed
	Layout     string
	Version    int // of the layout
	Rows, Cols int
	PanelBytes int
	Panels     int

	offset int64
	data   []byte
	sums   []uint32
}

// Bytes is the size of all panels.
func (m *Matrix) Bytes() int64 { return int64(m.Panels) * int64(m.PanelBytes) }

// Data is all panels, mapped: valid until the file is closed, never to be written. Sums has the CRC-32C of each.
func (m *Matrix) Data() []byte   { return m.data }
func (m *Matrix) Sums() []uint32 { return m.sums }

// File is an open file of panels.
type File struct {
	Source
	Matrices []*Matrix

	byName map[string]*Matrix
	file   *mapfile.File
}

// Open maps a file. A missing file and missing permission keep their fs errors.
//
// MADV_HUGEPAGE is not asked for: pages that are cached huge are mapped so without it, and a file that must be read
// comes in pieces of 2 MiB then, each waited for. A first walk over 816 MB took 770 to 1670 ms with it, 318 to 1080
// without.
func Open(path string) (*File, error) {
	m, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	var f *File
	err = m.Guard(func() (err error) {
		if f, err = parse(m.Data); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	})
	if err != nil {
		m.Close()
		return nil, err
	}
	f.file = m
	return f, nil
}

// Path is the file's path, Size its size in bytes.
func (f *File) Path() string { return f.file.Path }
func (f *File) Size() int64  { return int64(len(f.file.Data)) }

// Matrix finds a matrix by its name; nil if there is none.
func (f *File) Matrix(name string) *Matrix { return f.byName[name] }

// Contains reports whether addr lies in the mapping.
func (f *File) Contains(addr uintptr) bool { return f.file.Contains(addr) }

// Close unmaps the file.
func (f *File) Close() error { return f.file.Close() }

// up is n rounded up to whole pages.
func up(n int64) int64 { return (n + page - 1) &^ (page - 1) }

// room is what the offsets of a list of matrices come to: they are given here, and nowhere else.
type room struct {
	sums, size int64 // where the checksums begin and end
	panels     int
}

// place gives matrices their offsets behind a header of so many bytes.
func place(list []*Matrix, header int64) (r room, err error) {
	at := up(header)
	for _, m := range list {
		if m.Panels < 1 || m.PanelBytes < 1 || m.Rows < 1 || m.Cols < 1 || m.Version < 1 {
			return r, fmt.Errorf("matrix %q: %d panels of %d bytes for %d×%d, layout version %d", m.Name,
				m.Panels, m.PanelBytes, m.Rows, m.Cols, m.Version)
		}
		if int64(m.PanelBytes) > (math.MaxInt64>>2-at)/int64(m.Panels) {
			return r, fmt.Errorf("matrix %q: %d panels of %d bytes are too much", m.Name, m.Panels, m.PanelBytes)
		}
		m.offset = at
		at = up(at + m.Bytes())
		r.panels += m.Panels
	}
	r.sums, r.size = at, at+4*int64(r.panels)+4
	return r, nil
}

// headerBytes is the size of the header.
func headerBytes(list []*Matrix) int64 {
	n := len(magic) + 4 + 4 + 8 + 8 + 8 + 32 + 4 + 4 + 4
	for _, m := range list {
		n += 2 + len(m.Name) + 2 + len(m.Type) + 2 + len(m.Layout) + 4 + 8 + 8 + 8 + 4 + 8
	}
	return int64(n)
}

// encode is the header.
func encode(src Source, list []*Matrix, size int64) []byte {
	n := headerBytes(list)
	b := append(make([]byte, 0, n), magic...)
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, uint32(n)-uint32(len(magic)+4+4+4))
	b = le.AppendUint64(b, uint64(size))
	b = le.AppendUint64(b, uint64(src.Bytes))
	b = le.AppendUint64(b, uint64(src.Modified))
	b = append(b, src.Sample[:]...)
	b = le.AppendUint32(b, src.Contents)
	b = le.AppendUint32(b, uint32(len(list)))
	for _, m := range list {
		for _, s := range []string{m.Name, m.Type, m.Layout} {
			b = append(le.AppendUint16(b, uint16(len(s))), s...)
		}
		b = le.AppendUint32(b, uint32(m.Version))
		b = le.AppendUint64(b, uint64(m.Rows))
		b = le.AppendUint64(b, uint64(m.Cols))
		b = le.AppendUint64(b, uint64(m.PanelBytes))
		b = le.AppendUint32(b, uint32(m.Panels))
		b = le.AppendUint64(b, uint64(m.offset))
	}
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// fields takes numbers and texts from a table. Once there is too little, all that follows is zero.
type fields struct {
	b     []byte
	short bool
}

func (f *fields) bytes(n int) []byte {
	if n > len(f.b) {
		f.short, f.b = true, nil
		return make([]byte, n)
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b
}

func (f *fields) text() string { return string(f.bytes(int(le.Uint16(f.bytes(2))))) }
func (f *fields) u32() uint32  { return le.Uint32(f.bytes(4)) }

// count is a number of 8 bytes that is no larger than a file can be; else the table counts as short.
func (f *fields) count() int64 {
	n := le.Uint64(f.bytes(8))
	if n > math.MaxInt64>>2 {
		f.short = true
		return 0
	}
	return int64(n)
}

// table finds the table in the header and compares the header's checksum.
func table(b []byte) ([]byte, error) {
	const head = len(magic) + 4 + 4
	if len(b) < head || string(b[:len(magic)]) != magic {
		return nil, errors.New("is no file of panels")
	}
	if v := le.Uint32(b[len(magic):]); v != version {
		return nil, fmt.Errorf("is a file of panels of version %d; this build reads version %d", v, version)
	}
	n := int64(le.Uint32(b[len(magic)+4:]))
	if int64(len(b)-head)-4 < n {
		return nil, errors.New("is truncated or damaged: its header does not end")
	}
	end := head + int(n)
	if crc32.Checksum(b[:end], castagnoli) != le.Uint32(b[end:]) {
		return nil, errors.New("its header is damaged: another checksum")
	}
	return b[head:end], nil
}

// parse reads a file.
func parse(b []byte) (*File, error) {
	t, err := table(b)
	if err != nil {
		return nil, err
	}
	in := &fields{b: t}
	size := in.count()
	f := &File{byName: map[string]*Matrix{}}
	f.Bytes = in.count()
	f.Modified = int64(le.Uint64(in.bytes(8)))
	copy(f.Sample[:], in.bytes(len(f.Sample)))
	f.Contents = in.u32()
	var offsets []int64
	for range in.u32() {
		m := &Matrix{Name: in.text(), Type: in.text(), Layout: in.text(), Version: int(in.u32()),
			Rows: int(in.count()), Cols: int(in.count()), PanelBytes: int(in.count()), Panels: int(in.u32())}
		offsets = append(offsets, in.count())
		if in.short {
			return nil, errors.New("its header is damaged: it ends within a matrix, or has numbers that none can have")
		}
		if f.byName[m.Name] != nil {
			return nil, fmt.Errorf("its header is damaged: matrix %q is there twice", m.Name)
		}
		f.Matrices = append(f.Matrices, m)
		f.byName[m.Name] = m
	}
	if in.short || len(in.b) > 0 {
		return nil, errors.New("its header is damaged: it is longer or shorter than its table")
	}
	r, err := place(f.Matrices, headerBytes(f.Matrices))
	if err != nil {
		return nil, fmt.Errorf("its header is damaged: %w", err)
	}
	if r.size != size {
		return nil, fmt.Errorf("its header is damaged: its matrices need %d bytes, it says %d", r.size, size)
	}
	if int64(len(b)) != size {
		return nil, fmt.Errorf("has %d bytes, its header says %d: was it truncated?", len(b), size)
	}
	for i, m := range f.Matrices {
		if m.offset != offsets[i] {
			return nil, fmt.Errorf("its header is damaged: matrix %q lies at %d, not at %d", m.Name, offsets[i],
				m.offset)
		}
	}
	return f, f.take(b, r)
}

// take gives matrices their panels and checksums.
func (f *File) take(b []byte, r room) error {
	sums := b[r.sums : r.size-4]
	if crc32.Checksum(sums, castagnoli) != le.Uint32(b[r.size-4:]) {
		return errors.New("the checksums of its panels are damaged")
	}
	all := make([]uint32, r.panels)
	for i := range all {
		all[i] = le.Uint32(sums[4*i:])
	}
	for _, m := range f.Matrices {
		m.data = b[m.offset : m.offset+m.Bytes() : m.offset+m.Bytes()]
		m.sums, all = all[:m.Panels:m.Panels], all[m.Panels:]
	}
	return nil
}
