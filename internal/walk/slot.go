package walk

import (
	"sync/atomic"

	"ck/internal/kernel"
)

// Slot is a weight matrix as the walk finds it: the rows of the file, and panels once somebody packed them. The worker that first
// needs a panel packs it; the same bytes come out whoever does.
type Slot struct {
	Rows, Cols int
	Format     *kernel.Format
	Row        func(r int) []byte // the file form of a row

	mem   []byte          // panels; nil where there is no room for them: every use packs into scratch
	state []atomic.Uint32 // per panel
	pb    int             // bytes of a panel
}

const (
	filed  = 0 // the panel is not packed
	busy   = 1 // somebody packs it
	packed = 2
)

// NewSlot makes a slot with memory for its panels (nil: none).
func NewSlot(rows, cols int, f *kernel.Format, row func(int) []byte, mem []byte) *Slot {
	s := &Slot{Rows: rows, Cols: cols, Format: f, Row: row, mem: mem, pb: f.PanelBytes(cols)}
	s.state = make([]atomic.Uint32, s.panels())
	return s
}

func (s *Slot) panels() int { return (s.Rows + s.Format.PanelRows - 1) / s.Format.PanelRows }

// PanelsBytes is the memory that all panels of a matrix take.
func PanelsBytes(rows, cols int, f *kernel.Format) int {
	return (rows + f.PanelRows - 1) / f.PanelRows * f.PanelBytes(cols)
}

// pack writes panel p to dst.
func (s *Slot) pack(dst []byte, p int) {
	r0 := p * s.Format.PanelRows
	s.Format.Pack(dst, s.Cols, min(s.Format.PanelRows, s.Rows-r0), func(r int) []byte { return s.Row(r0 + r) })
}

// ready reports whether the panels [p0, p1) lie in s.mem, after packing those that nobody has packed. A panel that somebody else
// packs at this moment is waited for: that takes microseconds.
func (s *Slot) ready(p0, p1 int, pause func()) bool {
	if s.mem == nil {
		return false
	}
	for p := p0; p < p1; p++ {
		st := &s.state[p]
		if st.Load() == packed {
			continue
		}
		if st.CompareAndSwap(filed, busy) {
			s.packMarked(p)
			continue
		}
		for st.Load() != packed {
			if st.Load() == filed { // its packer failed; the fault ends the walk for all
				return s.ready(p, p1, pause)
			}
			pause()
		}
	}
	return true
}

// packMarked packs panel p, whose state is busy. A fault while reading the file (a file truncated under its mapping) leaves the
// panel unpacked.
func (s *Slot) packMarked(p int) {
	done := uint32(filed)
	defer func() { s.state[p].Store(done) }()
	s.pack(s.mem[p*s.pb:(p+1)*s.pb], p)
	done = packed
}

// PackedBytes is the memory of the panels that are packed.
func (s *Slot) PackedBytes() int {
	n := 0
	for i := range s.state {
		if s.state[i].Load() == packed {
			n += s.pb
		}
	}
	return n
}
