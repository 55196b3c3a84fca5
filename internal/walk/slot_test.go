package walk

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/quant"
)

// testSlot is a slot over random rows, with its panels as Pack makes them.
func testSlot(t *testing.T, rows, cols int, room bool) (s *Slot, panels []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	f := kernel.For(isa.Best(isa.Detect()), isa.Detect()).Format(quant.Q8_0, false)
	size := quant.Q8_0.RowBytes(cols)
	raw := make([]byte, rows*size)
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	row := func(r int) []byte { return raw[r*size : (r+1)*size] }
	panels = make([]byte, PanelsBytes(graph.Weight{Rows: rows, Cols: cols}, f))
	for p, pb := 0, f.PanelBytes(cols); p*pb < len(panels); p++ {
		r0 := p * f.PanelRows
		f.Pack(panels[p*pb:(p+1)*pb], cols, min(f.PanelRows, rows-r0), func(r int) []byte { return row(r0 + r) })
	}
	var mem []byte
	if room {
		mem = make([]byte, len(panels))
	}
	return NewSlot(graph.Weight{Rows: rows, Cols: cols}, f, row, mem), panels
}

// readShare reads panels [p, p1) as a worker does and checks them.
func readShare(s *Slot, u *reader, p, p1 int, scratch, want []byte) error {
	u.touched = false
	for p < p1 {
		q, w := s.read(u, p, p1, scratch, true)
		if q <= p || q > p1 || !bytes.Equal(w, want[p*s.pb:q*s.pb]) {
			return fmt.Errorf("panels %d to %d of %d are not those of the rows", p, q, p1)
		}
		u.done()
		p = q
	}
	return nil
}

// The first use keeps nothing; later ones keep what they have time for, and in the end all.
func TestSlotKeeps(t *testing.T) {
	s, want := testSlot(t, 16*300-3, 2048, true)
	scratch := make([]byte, s.Scratch())
	var u reader
	u.walk()
	u.credit = time.Hour
	if err := readShare(s, &u, 0, s.panels(), scratch, want); err != nil {
		t.Fatal(err)
	}
	if n := s.PackedBytes(); n != 0 {
		t.Errorf("the first use kept %d bytes", n)
	}
	u.credit = -time.Hour
	if err := readShare(s, &u, 0, s.panels(), scratch, want); err != nil {
		t.Fatal(err)
	}
	if n := s.PackedBytes(); n != 0 {
		t.Errorf("a use without credit kept %d bytes", n)
	}
	if u.walk(); u.credit > -time.Minute {
		t.Errorf("a walk forgave a debt of an hour: %v", u.credit)
	}
	u.credit = 0
	for n := 0; s.PackedBytes() < len(want); n++ {
		before := s.PackedBytes()
		u.walk()
		if err := readShare(s, &u, 0, s.panels(), scratch, want); err != nil {
			t.Fatal(err)
		}
		if n > 10000 {
			t.Fatalf("%d bytes of %d are kept after %d uses", before, len(want), n)
		}
	}
	if !bytes.Equal(s.mem, want) {
		t.Error("the kept panels are not those of the rows")
	}
	u.credit = 0
	if q, w := s.read(&u, 1, s.panels(), scratch, true); q != s.panels() || &w[0] != &s.mem[s.pb] || !u.began.IsZero() {
		t.Error("panels that are kept were not read in one piece")
	}
}

// Packed at once by several workers, used before or not, panels have the same bytes; stop leaves the rest to walks.
func TestSlotPack(t *testing.T) {
	for _, before := range []bool{false, true} {
		s, want := testSlot(t, 16*64+5, 256, true)
		u, scratch := reader{}, make([]byte, s.Scratch())
		if before {
			if err := readShare(s, &u, 0, s.panels()/2, scratch, want); err != nil {
				t.Fatal(err)
			}
		}
		var stop atomic.Bool
		row := s.Row
		s.Row = func(r int) []byte { stop.Store(true); return row(r) }
		s.Pack(0, 2, &stop)
		if n := s.PackedBytes(); n != s.pb {
			t.Errorf("stopped in the first panel: %d bytes are packed", n)
		}
		s.Row = row
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() { s.Pack(w, 3, nil) })
		}
		wg.Wait()
		if s.Packing() || !bytes.Equal(s.mem, want) {
			t.Errorf("used before %v: not all panels are packed, or not as walks pack them", before)
		}
	}
	s, _ := testSlot(t, 100, 256, false)
	s.Row = func(int) []byte { t.Error("packs without room"); return nil }
	s.Pack(0, 1, nil)
}

func TestSlotWithoutRoom(t *testing.T) {
	s, want := testSlot(t, 100, 256, false)
	u := reader{credit: time.Hour}
	for range 3 {
		if err := readShare(s, &u, 0, s.panels(), make([]byte, s.Scratch()), want); err != nil {
			t.Fatal(err)
		}
	}
	if s.PackedBytes() != 0 {
		t.Error("packed bytes without memory for them")
	}
}

// Workers whose shares overlap get the same bytes, whoever packs.
func TestSlotSharedPanels(t *testing.T) {
	s, want := testSlot(t, 16*64, 1024, true)
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			scratch := make([]byte, s.Scratch())
			for i := range 30 {
				u := reader{credit: time.Duration(i-w) * 10 * time.Microsecond}
				if err := readShare(s, &u, w*3, s.panels()-i%5, scratch, want); err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	for w, err := range errs {
		if err != nil {
			t.Errorf("worker %d: %v", w, err)
		}
	}
}

// A row that cannot be read ends the use and leaves the panel to be packed later.
func TestSlotFault(t *testing.T) {
	s, want := testSlot(t, 64, 256, true)
	row, bad := s.Row, -1
	s.Row = func(r int) []byte {
		if r == bad {
			panic("fault")
		}
		return row(r)
	}
	scratch := make([]byte, s.Scratch())
	for _, b := range []int{20, -1, 20, -1} { // first use, then packing to stay; each fails once
		bad = b
		err := func() (err error) {
			defer func() {
				if recover() != nil {
					err = fmt.Errorf("fault")
				}
			}()
			return readShare(s, &reader{credit: time.Hour}, 0, s.panels(), scratch, want)
		}()
		if (err != nil) != (b >= 0) {
			t.Fatalf("row %d is bad: %v", b, err)
		}
	}
	if !bytes.Equal(s.mem, want) || s.PackedBytes() != len(want) {
		t.Error("not all panels are kept after the fault")
	}
}

// mappedSlot is a slot whose panels are the given ones.
func mappedSlot(t *testing.T, rows, cols int) (s *Slot, panels []byte) {
	t.Helper()
	s, panels = testSlot(t, rows, cols, false)
	sums := make([]uint32, s.panels())
	for p := range sums {
		sums[p] = crc32.Checksum(panels[p*s.pb:(p+1)*s.pb], crc32.MakeTable(crc32.Castagnoli))
	}
	row := func(int) []byte { t.Error("a row was read"); return nil }
	return NewMappedSlot(graph.Weight{Rows: rows, Cols: cols}, s.Format, row, bytes.Clone(panels), sums), panels
}

// Mapped panels are read where they lie, whoever reads them first, and count as no memory.
func TestMappedSlot(t *testing.T) {
	for _, pack := range []bool{false, true} {
		s, want := mappedSlot(t, 16*300-3, 2048)
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() {
				if pack {
					s.Pack(w, 3, nil)
					return
				}
				scratch := make([]byte, s.Scratch())
				if err := readShare(s, &reader{}, w*50, s.panels(), scratch, want); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s.Packing() || s.PackedBytes() != 0 || !s.Mapped() {
			t.Errorf("packed %v: packing %v, %d bytes", pack, s.Packing(), s.PackedBytes())
		}
		if q, w := s.read(&reader{}, 1, s.panels(), nil, true); q != s.panels() || &w[0] != &s.mem[s.pb] {
			t.Error("panels that were compared were not read in one piece")
		}
	}
}

// A bit that changed ends the use, at each use, and only that of its panel. One that changes later is not seen:
// panels are compared once.
func TestMappedSlotDamaged(t *testing.T) {
	s, want := mappedSlot(t, 16*40, 1024)
	const bad = 33
	s.mem[bad*s.pb+77] ^= 4
	read := func(p, p1 int) (damaged *DamagedPanel, err error) {
		defer func() { damaged, _ = recover().(*DamagedPanel) }()
		return nil, readShare(s, &reader{}, p, p1, make([]byte, 2*s.pb), want)
	}
	for range 2 {
		if d, err := read(0, s.panels()); d == nil || d.Slot != s || d.Panel != bad {
			t.Errorf("panel %d is damaged: %v, %v", bad, d, err)
		}
	}
	if d, err := read(bad+1, s.panels()); d != nil || err != nil {
		t.Errorf("the panels behind the damaged one: %v, %v", d, err)
	}
	s.mem[bad*s.pb+77] ^= 4
	if d, err := read(0, s.panels()); d != nil || err != nil || s.Packing() {
		t.Errorf("the panel is whole again: %v, %v", d, err)
	}
}

// A use that is stopped compares one panel at most.
func TestMappedSlotStops(t *testing.T) {
	s, _ := mappedSlot(t, 16*40, 1024)
	var stop atomic.Bool
	stop.Store(true)
	if q, _ := s.read(&reader{stop: &stop}, 3, 40, make([]byte, s.Scratch()), true); q != 4 {
		t.Errorf("read up to panel %d", q)
	}
	s.Pack(0, 1, &stop)
	if s.state[0].Load() != filed {
		t.Error("packed after the stop")
	}
}

// A matrix's rows are released once, when all of its panels stand, whoever packs them; others are not.
func TestSlotRelease(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	f := kernel.For(isa.Best(isa.Detect()), isa.Detect()).Format(quant.Q8_0, false)
	const experts, each, cols = 7, 40, 64
	raw := make([]byte, experts*each*quant.Q8_0.RowBytes(cols))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	w := graph.Weight{Rows: experts * each, Cols: cols, Experts: experts}
	size := quant.Q8_0.RowBytes(cols)
	s := NewSlot(w, f, func(r int) []byte { return raw[r*size : (r+1)*size] }, make([]byte, PanelsBytes(w, f)))
	var mu sync.Mutex
	released := map[int]int{}
	s.Release(func(from, to int) {
		mu.Lock()
		defer mu.Unlock()
		if to-from != each || from%each != 0 {
			t.Errorf("rows %d to %d are no matrix", from, to)
		}
		for p := from / each * s.PanelsEach(); p < (from/each+1)*s.PanelsEach(); p++ {
			if s.state[p].Load() != packed && s.state[p].Load() != busy {
				t.Errorf("panel %d does not stand", p)
			}
		}
		released[from/each]++
	})
	u, n := reader{}, s.PanelsEach()
	for _, p := range []int{2*n + 1, 2 * n, 4 * n} { // all of matrix 2 but one, and one of matrix 4
		s.state[p].Store(used)
		if !s.keep(&u, p) {
			t.Fatal("not kept")
		}
	}
	if len(released) != 0 {
		t.Errorf("released %v", released)
	}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() { s.Pack(w, 3, nil); s.Pack(w, 3, nil) })
	}
	wg.Wait()
	for e := range experts {
		if released[e] != 1 {
			t.Errorf("matrix %d was released %d times", e, released[e])
		}
	}
}
