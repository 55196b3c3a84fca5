package panelfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// list is matrices of several sizes: one that fills pages, one that does not, one of many chunks.
func list() []*Matrix {
	return []*Matrix{
		{Name: "a", Type: "Q8_0", Layout: "Q8_0", Version: 1, Rows: 31, Cols: 64, PanelBytes: 1088, Panels: 2},
		{Name: "b.weight", Type: "IQ4_XS", Layout: "Code4", Version: 3, Rows: 16, Cols: 512, PanelBytes: 4096,
			Panels: 1},
		{Name: "c", Type: "F32", Layout: "F32", Version: 1, Rows: 640, Cols: 1500, PanelBytes: 384_000, Panels: 10},
	}
}

// panel is what packing a panel gives.
func panel(dst []byte, m *Matrix, p int) error {
	for i := range dst {
		dst[i] = byte(i*7 + p*13 + len(m.Name))
	}
	return nil
}

var source = Source{Bytes: 123_456, Modified: -5, Sample: [32]byte{1, 2, 31: 9}, Contents: 77}

// written is a file as bytes.
func written(t testing.TB, workers int) ([]byte, *Plan) {
	t.Helper()
	p, err := NewPlan(source, list())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	last := int64(0)
	err = p.Write(context.Background(), &b, workers, panel, func(n int64) { last = n })
	if err != nil || last != p.Size || int64(b.Len()) != p.Size {
		t.Fatalf("%d bytes, %d told, %d planned: %v", b.Len(), last, p.Size, err)
	}
	return b.Bytes(), p
}

// What is written is read again, at page boundaries, in the same bytes whoever packs.
func TestRoundTrip(t *testing.T) {
	b, _ := written(t, 1)
	for _, workers := range []int{2, 7} {
		if c, _ := written(t, workers); !bytes.Equal(b, c) {
			t.Errorf("%d workers write other bytes", workers)
		}
	}
	path := filepath.Join(t.TempDir(), "m.panels")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Source != source || f.Size() != int64(len(b)) || f.Path() != path || len(f.Matrices) != 3 ||
		f.Matrix("d") != nil {
		t.Errorf("%+v", f)
	}
	for _, want := range list() {
		m := f.Matrix(want.Name)
		if m == nil || m.Type != want.Type || m.Layout != want.Layout || m.Version != want.Version ||
			m.Rows != want.Rows || m.Cols != want.Cols || m.PanelBytes != want.PanelBytes || len(m.Sums()) != want.Panels ||
			int64(len(m.Data())) != want.Bytes() || m.offset%page != 0 {
			t.Fatalf("%+v", m)
		}
		got := make([]byte, m.PanelBytes)
		for p, sum := range m.Sums() {
			panel(got, m, p)
			has := m.Data()[p*m.PanelBytes:][:m.PanelBytes]
			if !bytes.Equal(has, got) || crc32.Checksum(got, castagnoli) != sum {
				t.Errorf("matrix %s, panel %d: other bytes or another checksum", m.Name, p)
			}
		}
	}
}

// Every bit of header and checksums counts; what is cut or appended is seen.
func TestDamage(t *testing.T) {
	b, p := written(t, 2)
	parts := map[string][2]int64{"header": {0, int64(len(p.header))}, "checksums": {p.room.sums, p.room.size}}
	for part, at := range parts {
		for i := at[0]; i < at[1]; i++ {
			for bit := range 8 {
				b[i] ^= 1 << bit
				if _, err := parse(b); err == nil {
					t.Errorf("%s: byte %d, bit %d: nobody saw it", part, i-at[0], bit)
				}
				b[i] ^= 1 << bit
			}
		}
	}
	for _, n := range []int64{0, 7, 8, 15, 16, 100, int64(len(p.header)) - 1, int64(len(p.header)), 4096,
		p.room.sums, p.Size - 1} {
		if _, err := parse(b[:n]); err == nil {
			t.Errorf("cut to %d bytes: nobody saw it", n)
		}
	}
	if _, err := parse(append(bytes.Clone(b), 0)); err == nil || !strings.Contains(err.Error(), "its header says") {
		t.Errorf("a byte more: %v", err)
	}
	b[len(magic)] = 2
	if _, err := parse(b); err == nil || !strings.Contains(err.Error(), "of version 2; this build reads version 1") {
		t.Errorf("another version: %v", err)
	}
}

// Headers whose checksum is right can be wrong too.
func TestHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		change func(list []*Matrix) []*Matrix
		want   string
	}{
		"no panels": {func(l []*Matrix) []*Matrix { l[1].Panels = 0; return l }, "0 panels"},
		"version 0": {func(l []*Matrix) []*Matrix { l[1].Version = 0; return l }, "layout version 0"},
		"large": {func(l []*Matrix) []*Matrix { l[1].PanelBytes, l[1].Panels = 1<<60, 9; return l },
			"too much"},
		"twice":       {func(l []*Matrix) []*Matrix { l[1].Name = "a"; return l }, "twice"},
		"moved":       {func(l []*Matrix) []*Matrix { l[2].offset += page; return l }, "lies at"},
		"other size":  {func(l []*Matrix) []*Matrix { l[2].Panels++; return l }, "need"},
		"no matrices": {func([]*Matrix) []*Matrix { return nil }, "need"},
	} {
		l := list()
		r, err := place(l, headerBytes(l))
		if err != nil {
			t.Fatal(err)
		}
		l = c.change(l)
		b := append(encode(source, l, r.size), make([]byte, r.size)...)[:r.size]
		if _, err := parse(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := list()
	l[1].Name = "a"
	if _, err := NewPlan(source, l); err == nil {
		t.Error("two matrices of one name were planned")
	}
	l[1].Name = strings.Repeat("x", 1<<16)
	if _, err := NewPlan(source, l); err == nil {
		t.Error("a name of 64 KiB was planned")
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	path := filepath.Join(dir, "empty")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || err.Error() != path+": is no file of panels" {
		t.Errorf("an empty file: %v", err)
	}
}

// writer fails behind so many bytes.
type writer struct{ left int }

var errFull = errors.New("full")

func (w *writer) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// A row that cannot be packed, a full disk and the end of the context end the writing with their error.
func TestWriteEnds(t *testing.T) {
	p, err := NewPlan(source, list())
	if err != nil {
		t.Fatal(err)
	}
	errRow := errors.New("no row")
	bad := func(dst []byte, m *Matrix, p int) error {
		if m.Name == "c" && p == 4 {
			return errRow
		}
		return panel(dst, m, p)
	}
	if err := p.Write(context.Background(), io.Discard, 3, bad, nil); !errors.Is(err, errRow) {
		t.Errorf("a bad row: %v", err)
	}
	for _, left := range []int{0, 300, 5000, 1_000_000, int(p.Size) - 1} {
		if err := p.Write(context.Background(), &writer{left}, 3, panel, nil); !errors.Is(err, errFull) {
			t.Errorf("full behind %d bytes: %v", left, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = p.Write(ctx, io.Discard, 2, func(dst []byte, m *Matrix, p int) error {
		if m.Name == "c" && p == 3 {
			cancel()
		}
		return panel(dst, m, p)
	}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the context: %v", err)
	}
}

// Whatever the bytes are, parsing ends; what it takes is as it would be written.
func FuzzParse(tf *testing.F) {
	f := testkit.Fuzz(tf)
	small := []*Matrix{{Name: "a", Type: "F16", Layout: "F16", Version: 1, Rows: 5, Cols: 3, PanelBytes: 384,
		Panels: 1}}
	p, err := NewPlan(source, small)
	if err != nil {
		tf.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Write(context.Background(), &b, 1, panel, nil); err != nil {
		tf.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(p.header)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, sealed := range []bool{false, true} {
			if n := int64(len(b)) - 20; sealed && n >= 0 { // a header whose checksum is right, whatever else it is
				if m := int64(le.Uint32(b[12:])); m < n {
					n = m
				}
				b = bytes.Clone(b)
				copy(b, fmt.Sprintf("%s\x01\x00\x00\x00", magic))
				le.PutUint32(b[12:], uint32(n))
				le.PutUint32(b[16+n:], crc32.Checksum(b[:16+n], castagnoli))
			}
			f, err := parse(b)
			if err != nil {
				continue
			}
			again := encode(f.Source, f.Matrices, int64(len(b)))
			if !bytes.Equal(again, b[:len(again)]) {
				t.Errorf("written again the header is another")
			}
			for _, m := range f.Matrices {
				if int64(len(m.Data())) != m.Bytes() || len(m.Sums()) != m.Panels {
					t.Errorf("matrix %q: %d bytes, %d checksums", m.Name, len(m.Data()), len(m.Sums()))
				}
			}
		}
	})
}

// lengths keeps the lengths of what is written.
type lengths []int

func (l *lengths) Write(b []byte) (int, error) {
	*l = append(*l, len(b))
	return len(b), nil
}

// All that is written comes in whole blocks but the end, in whatever pieces it was given.
func TestBlocks(t *testing.T) {
	for _, piece := range []int{1, 7, 10, 25} {
		var got lengths
		o := &blocks{w: &got, buf: make([]byte, 0, 10)}
		for range 11 {
			if n, err := o.Write(make([]byte, piece)); n != piece || err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
		}
		err := o.flush()
		sum := 0
		for i, n := range got {
			if sum += n; n != 10 && i < len(got)-1 {
				t.Errorf("pieces of %d: %v", piece, got)
			}
		}
		if err != nil || sum != 11*piece || o.n != int64(sum) {
			t.Errorf("pieces of %d: %d bytes, %d counted, %v", piece, sum, o.n, err)
		}
	}
}
