package walk

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/quant"
)

// chunks is rows in chunks, as if they were compressed.
type chunks struct {
	row    func(r int) []byte
	of     int // rows of a chunk
	rows   int
	broken int // the chunk that begins there is damaged
}

var errDamaged = errors.New("damaged")

func (c *chunks) Whole(from, to int) (int, int) {
	return from / c.of * c.of, min(c.rows, (to+c.of-1)/c.of*c.of)
}

func (c *chunks) Unpack(dst []byte, from, to int) {
	for r := from; r < to; r++ {
		if r == c.broken {
			panic(errDamaged)
		}
		dst = dst[copy(dst, c.row(r)):]
	}
}

// Panels of rows that lie compressed are those of the rows, for chunks that divide the group and such that do not.
func TestStoredSlot(t *testing.T) {
	for _, of := range []int{1, 16, 48, 64, 200} {
		s, want := testSlot(t, 64*5-3, 256, true)
		s.Stored, s.Row = &chunks{s.Row, of, s.Rows, -1}, nil
		scratch := make([]byte, s.Scratch())
		var u reader
		for s.Packing() {
			u.walk()
			u.credit = time.Hour
			if err := readShare(s, &u, 0, s.panels(), scratch, want); err != nil {
				t.Fatalf("chunks of %d rows: %v", of, err)
			}
		}
		if !bytes.Equal(s.mem, want) {
			t.Errorf("chunks of %d rows: the kept panels are not those of the rows", of)
		}
		other, panels := testSlot(t, 64*5-3, 256, true)
		other.Stored, other.Row = &chunks{other.Row, of, other.Rows, -1}, nil
		if other.Pack(0, 1, nil); !bytes.Equal(other.mem, panels) {
			t.Errorf("chunks of %d rows: packed at once the panels are not those of the rows", of)
		}
	}
}

// Panels of matrices that begin within a group, those of experts and parts of tensors, are those of their rows.
func TestStoredParts(t *testing.T) {
	for _, w := range []graph.Weight{
		{Rows: 3 * 72, Cols: 40, Experts: 3},
		{Rows: 2 * 70, Cols: 40, Experts: 2, From: 33, Of: 103},
		{Rows: 130, Cols: 40, From: 10, Of: 143},
	} {
		for _, of := range []int{1, 48, 64, 200} {
			f := kernel.For(isa.Best(isa.Detect()), isa.Detect()).Format(quant.F32, true)
			row := func(r int) []byte { return bytes.Repeat([]byte{byte(r), byte(r >> 8)}, 2*w.Cols) }
			plain := NewSlot(w, f, row, make([]byte, PanelsBytes(w, f)))
			s := NewSlot(w, f, nil, make([]byte, PanelsBytes(w, f)))
			s.Stored = &chunks{row, of, w.TensorRows(), -1}
			plain.Pack(0, 1, nil)
			if s.Pack(0, 1, nil); !bytes.Equal(s.mem, plain.mem) {
				t.Errorf("%+v in chunks of %d rows: the panels are not those of the rows", w, of)
			}
		}
	}
}

// A worker goes from one matrix to another of the same shape.
func TestStoredSlots(t *testing.T) {
	a, wantA := testSlot(t, 64, 256, false)
	b, _ := testSlot(t, 64, 256, false)
	size := len(a.Row(0))
	other := func(r int) []byte { return bytes.Repeat([]byte{byte(r)}, size) }
	b.Stored, b.Row = &chunks{other, 64, 64, -1}, nil
	a.Stored, a.Row = &chunks{a.Row, 64, 64, -1}, nil
	scratch := make([]byte, a.Scratch())
	var u reader
	for range 2 {
		if err := readShare(a, &u, 0, a.panels(), scratch, wantA); err != nil {
			t.Fatal(err)
		}
		if err := readShare(b, &u, 0, b.panels(), scratch, wantA); err == nil {
			t.Fatal("the panels of one matrix were read for the other")
		}
	}
}

// Damage ends a use with a panic, each time anew, and leaves the panel unpacked.
func TestStoredDamage(t *testing.T) {
	s, _ := testSlot(t, 200, 256, true)
	s.Stored, s.Row = &chunks{s.Row, 64, s.Rows, 64}, nil
	scratch := make([]byte, s.Scratch())
	var u reader
	for _, first := range []int{0, 64 / s.Format.PanelRows, 0} {
		func() {
			defer func() {
				if r := recover(); r != errDamaged { //nolint:errorlint // the value that was thrown
					t.Errorf("recovered %v, expected the damage", r)
				}
			}()
			for p := first; p < s.panels(); p++ {
				s.read(&u, p, p+1, scratch, true)
			}
		}()
	}
	if s.PackedBytes() != 0 {
		t.Error("a panel was packed at its first use")
	}
}
