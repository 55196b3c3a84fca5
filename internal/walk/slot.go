package walk

import (
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/team"
)

// Slot is a weight matrix as the walk finds it: the rows of the file, and panels once they were packed to stay. The
// same bytes come out whoever packs, wherever to. A slot may have its panels from a mapped file instead
// (NewMappedSlot): nothing is packed then.
//
// The first use of a panel packs it into scratch in the second-level cache, multiplies and forgets it. Later uses pack to stay, for
// as much time as the rest of the matmul has taken: the first token does not wait for new memory, and no walk takes more than about
// twice its time for it. Generation reads panels only after 5 to 8 walks on a machine whose memory comes fast.
//
// What it cost, llama-3.2-1b in Q8_0 (1.3 GB in the page cache), prompt of 5 tokens, two workers, on a virtual machine that shares its
// cores; milliseconds of CPU time, medians of five alternating runs (wall time on free cores is half of it). The prompt takes 67 when
// all is packed.
//
//	1270 to 1990  packing in Go into new memory at the first use (half of it the kernel clearing huge pages; up to 3700 where
//	              the host has to find them first)
//	 490 to  550  the same in assembly
//	 320          into scratch, page faults of the mapping as they come
//	 250          into scratch, after MADV_POPULATE_READ of the part: it looks at every page, 125 for the file
//	 192          into scratch, after reading one byte of each 64 KiB (touch): 82 for the file. A read of every page takes 170,
//	              pread into scratch 160 to 200
//
// In wall time, while the cores were free: 91 to 110 for the first token, 36 to 45 for the prompt when all is packed, 303 to 630 for
// assembly into new memory. Walks from scratch take 60 where walks over panels take 42. Of the ways to pack to stay after that, all at
// the second use gives the shortest time in all (one walk of 175), a quarter at each use four walks of 85 and, where memory came
// slowly, single walks of 1000 to 3000; time for time is 5 walks that fall from 100 to 55, and slow memory is spread (half the time:
// 7 walks, and 100 in all later). Helper threads beside two workers on two cores would take the same time from the walks.
type Slot struct {
	Rows, Cols int
	Each       int  // rows of one matrix: Rows, or those of one expert, whose panels are apart from the next one's
	R0, K0     int  // of a part: the first row of each matrix, and the first element of each row, that it has
	Home       int  // where its panels lie
	Copy       bool // it is a copy of another home's part
	Format     *kernel.Format
	Row        func(r int) []byte             // the file form of a tensor's row; not used if Stored is there
	Stored     Stored                         // where the rows lie compressed; nil: they are mapped
	Make       func(dst []byte, from, to int) // makes the panel of rows [from, to), in place of Row and Stored; nil: they are packed

	release func(from, to int) // see Release
	left    []atomic.Int32     // of each matrix: panels that are still to be packed to stay; nil without release

	whole graph.Weight    // that the slot is a part of, or is
	of    graph.Weight    // with the rows and columns of the part
	mem   []byte          // panels; nil where there is no room for them: every use packs into scratch
	state []atomic.Uint32 // per panel
	pb    int             // bytes of a panel
	sums  []uint32        // CRC-32C of each panel, where mem is a file's mapping; nil: mem is to be packed
}

// The states of a panel. One that is mapped goes from filed to packed, once its bytes were found to be those that
// were written.
const (
	filed  = 0 // nobody has read its rows
	used   = 1 // its rows were read at least once
	busy   = 2 // somebody packs it to stay
	packed = 3
)

const (
	// allowance is what each walk may spend on packing to stay even if its workers are in debt, so that an end comes.
	allowance = 20 * time.Microsecond

	// scratchBytes is the size of the scratch for panels, if it holds one: a quarter of a second-level cache of 1 MiB. With 64 KiB the
	// matmuls are 5 % slower.
	scratchBytes = 256 << 10

	// faultAround is how much of a file the kernel maps at a fault where the page cache has it (fault_around_bytes).
	faultAround = 64 << 10
)

// reader is what a worker keeps while it goes through its parts of matrices.
type reader struct {
	credit  time.Duration // time that it may take for packing to stay; below zero after taking more
	began   time.Time     // of the present panels, if they are not all packed
	touched bool          // the rows of the part are mapped
	sum     byte          // of what was read to map or to fetch them
	rows    unpacked      // rows of a slot whose rows lie compressed
	stop    *atomic.Bool  // nobody wants the rest any more
	lane    *Lane         // nil: new memory is taken on credit alone
	moves   Moves
}

// Moves is what reading found and did while panels were not all in their place.
type Moves struct {
	Unplaced int           // panels that were packed for one use
	Kept     int64         // bytes of panels that workers packed to stay
	Took     time.Duration // CPU time of that
	Near     int64         // bytes of panels that were read at the reader's home
	Far      int64         // others
}

// Add adds what another worker, or walk, found and did.
func (m *Moves) Add(o Moves) {
	m.Unplaced, m.Kept, m.Took, m.Near, m.Far = m.Unplaced+o.Unplaced, m.Kept+o.Kept, m.Took+o.Took, m.Near+o.Near, m.Far+o.Far
}

// walk starts a walk. Debts stay: where new memory is slow, packing waits for some walks.
func (u *reader) walk() {
	u.credit = min(u.credit, 0) + allowance
	if u.lane != nil {
		u.lane.Settle()
	}
}

// stopped reports whether nobody wants the rest any more.
func (u *reader) stopped() bool { return u.stop != nil && u.stop.Load() }

// done ends the use of the panels that read returned.
func (u *reader) done() {
	if !u.began.IsZero() {
		u.credit += time.Since(u.began)
		u.began = time.Time{}
	}
}

// NewSlot makes a slot of a weight with memory for its panels (nil: none). row is of the tensor, of which the weight may be a part.
func NewSlot(w graph.Weight, f *kernel.Format, row func(int) []byte, mem []byte) *Slot {
	return NewPart(w, plan.Piece{R1: w.Each(), K1: w.Cols}, f, row, mem)
}

// NewPart makes a slot of a part of a weight.
func NewPart(w graph.Weight, p plan.Piece, f *kernel.Format, row func(int) []byte, mem []byte) *Slot {
	of := PartOf(w, p)
	s := &Slot{Rows: of.Rows, Cols: of.Cols, Each: p.R1 - p.R0, R0: p.R0, K0: p.K0, Format: f, Row: row, whole: w, of: of, mem: mem, pb: f.PanelBytes(of.Cols)}
	s.state = make([]atomic.Uint32, s.panels())
	return s
}

// PartOf is a weight with the rows and columns of a part of it.
func PartOf(w graph.Weight, p plan.Piece) graph.Weight {
	w.Rows, w.Cols = max(1, w.Experts)*(p.R1-p.R0), p.K1-p.K0
	return w
}

// tensorRow is the row of the tensor that row r of the part is.
func (s *Slot) tensorRow(r int) int {
	return s.whole.TensorRow(r/s.Each*s.whole.Each() + s.R0 + r%s.Each)
}

func (s *Slot) elementsIf(own bool, row []byte) []byte {
	if own {
		return s.elements(row)
	}
	return row
}

// elements is what the part has of a row of the tensor.
func (s *Slot) elements(row []byte) []byte {
	if s.Cols == s.whole.Cols {
		return row
	}
	return row[s.Format.Type.RowBytes(s.K0):s.Format.Type.RowBytes(s.K0+s.Cols)]
}

// NewMappedSlot makes a slot whose panels are the bytes of a mapped file, with the CRC-32C of each. They are
// compared at the first use of a panel, while it is in the cache; see DamagedPanel.
func NewMappedSlot(w graph.Weight, f *kernel.Format, row func(int) []byte, mem []byte, sums []uint32) *Slot {
	s := NewSlot(w, f, row, mem)
	s.sums = sums
	return s
}

// DamagedPanel says that a panel of a mapped file is not what was written there. Routines panic with it, as they do
// where a page of the file cannot be read.
type DamagedPanel struct {
	Slot  *Slot
	Panel int
}

func (e *DamagedPanel) Error() string {
	return fmt.Sprintf("panel %d is damaged: its checksum is another", e.Panel)
}

// Release has f called with the tensor's rows of a matrix, such as an expert's, once all of its panels were packed to stay: nobody reads them again, so that
// memory for them can be given back. It is called by the worker that packed the last one.
func (s *Slot) Release(f func(from, to int)) {
	s.release, s.left = f, make([]atomic.Int32, max(1, s.whole.Experts))
	for i := range s.left {
		s.left[i].Store(int32(s.PanelsEach()))
	}
}

func (s *Slot) panels() int { return max(1, s.whole.Experts) * s.PanelsEach() }

// PanelsEach is the number of panels of one matrix. Panel p is of matrix p / PanelsEach.
func (s *Slot) PanelsEach() int { return (s.Each + s.Format.PanelRows - 1) / s.Format.PanelRows }

// rowsOf is the rows of panel p.
func (s *Slot) rowsOf(p int) (from, to int) { return PanelRows(s.of, s.Format, p) }

// PanelRows is the rows of a weight that panel p has: of one matrix.
func PanelRows(w graph.Weight, f *kernel.Format, p int) (from, to int) {
	each := max(1, w.Each()) // a part may have nothing
	n := (each + f.PanelRows - 1) / f.PanelRows
	first := p / n * each
	from = first + p%n*f.PanelRows
	return from, min(from+f.PanelRows, first+each)
}

// PanelsBytes is the memory that all panels of a weight take.
func PanelsBytes(w graph.Weight, f *kernel.Format) int {
	return max(1, w.Experts) * ((w.Each() + f.PanelRows - 1) / f.PanelRows) * f.PanelBytes(w.Cols)
}

// PanelsBytes is the memory that all panels of the slot take, there or not.
func (s *Slot) PanelsBytes() int { return PanelsBytes(s.of, s.Format) }

// PanelsRoom is PanelsBytes in whole pages: the panels of matrices are kept apart.
func PanelsRoom(w graph.Weight, f *kernel.Format) int {
	const page = 4096
	return (PanelsBytes(w, f) + page - 1) &^ (page - 1)
}

// pack writes panel p to dst.
func (s *Slot) pack(u *reader, dst []byte, p int) {
	r0, r1 := s.rowsOf(p)
	if s.Make != nil {
		s.Make(dst, r0, r1)
		return
	}
	first := s.tensorRow(r0) // a panel's rows are of one matrix
	row := func(r int) []byte { return s.elements(s.Row(first + r)) }
	if s.Stored != nil {
		u.rows.hold(s, first, first+r1-r0)
		row = func(r int) []byte { return s.elements(u.rows.row(s, first+r)) }
	}
	s.Format.Pack(dst, s.Cols, r1-r0, row)
}

// Scratch is the size of the scratch that reading needs.
func (s *Slot) Scratch() int {
	if s.Format.Direct {
		return 0
	}
	return ScratchBytes(s.pb)
}

// ScratchBytes is the size of the scratch for panels of so many bytes.
func ScratchBytes(panel int) int { return max(panel, scratchBytes) }

// read makes panels from p on readable, at least one and at most up to p1, the end of the part: [p, q) lie in w. It packs into
// scratch, which is overwritten by the next call, or to stay if it may. Once the use is stopped it makes one panel at most.
func (s *Slot) read(u *reader, p, p1 int, scratch []byte, stay bool) (q int, w []byte) {
	for q = p; q < p1 && s.state[q].Load() == packed; q++ {
	}
	if q == p1 {
		return q, s.mem[p*s.pb : q*s.pb]
	}
	if s.sums != nil {
		return s.checked(u, p, q, min(p+max(1, len(scratch)/s.pb), p1))
	}
	u.began = time.Now()
	end := min(p+max(1, len(scratch)/s.pb), p1) // what is packed here is multiplied while the cache has it
	if q > p {
		return q, s.mem[p*s.pb : q*s.pb]
	}
	if stay && s.mem != nil && u.lane != nil && u.lane.home == s.Home {
		if q, w = s.lend(u, p, end, p1); q > p {
			u.moves.Unplaced += q - p
			return q, w
		}
	}
	if u.credit > 0 && stay {
		for q < end && !(q > p && u.stopped()) && s.keep(u, q) {
			q++
		}
		now := time.Now()
		took := now.Sub(u.began)
		u.credit -= took
		u.began = now
		if q > p {
			u.moves.Kept += int64((q - p) * s.pb)
			u.moves.Took += took
			return q, s.mem[p*s.pb : q*s.pb]
		}
	}
	for ; q < end && (q == p || s.state[q].Load() != packed && !u.stopped()); q++ { // the first one, though another worker has just packed it
		if s.state[q].Load() == filed && !u.touched {
			s.touch(u, q, p1)
		}
		s.pack(u, scratch[(q-p)*s.pb:(q-p+1)*s.pb], q)
		s.state[q].CompareAndSwap(filed, used)
	}
	u.moves.Unplaced += q - p
	return q, scratch[:(q-p)*s.pb]
}

// checked makes mapped panels [p, q) readable, of which it compares some up to end if p is not yet compared. What
// it has read is multiplied while the cache has it.
func (s *Slot) checked(u *reader, p, q, end int) (int, []byte) {
	if q == p {
		u.sum ^= fetch(s.mem[p*s.pb : end*s.pb])
		for ; q < end && (q == p || !u.stopped()); q++ {
			s.check(q)
		}
	}
	return q, s.mem[p*s.pb : q*s.pb]
}

// fetch brings b to the cache: it reads a byte of each line, in four places that do not wait for each other. A
// checksum alone waits for memory: 6 to 8 GB/s for one core, and 14 GB/s with fetch before it, which takes 32 by
// itself.
func fetch(b []byte) (sum byte) {
	var s0, s1, s2, s3 byte
	for ; len(b) >= 256; b = b[256:] {
		s0, s1, s2, s3 = s0^b[0], s1^b[64], s2^b[128], s3^b[192]
	}
	return s0 ^ s1 ^ s2 ^ s3
}

// check compares a mapped panel, whoever else does.
func (s *Slot) check(p int) {
	if s.state[p].Load() == packed {
		return
	}
	if crc32.Checksum(s.mem[p*s.pb:(p+1)*s.pb], castagnoli) != s.sums[p] {
		panic(&DamagedPanel{s, p})
	}
	s.state[p].Store(packed)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// touch reads one byte of each part of the file that the kernel maps at once, in the rows of the panels [p, p1). Packing reads 16 or
// 64 rows side by side; page faults there would stop all of them, and prefetching skips what is not mapped.
func (s *Slot) touch(u *reader, p, p1 int) {
	u.touched = true
	if s.Stored != nil || s.Make != nil {
		return // no file is mapped, or unpacking reads it from begin to end
	}
	step := max(1, faultAround/s.Format.Type.RowBytes(s.Cols))
	from, _ := s.rowsOf(p)
	_, to := s.rowsOf(p1 - 1)
	for r := from; r < to && !u.stopped(); r += step {
		b := s.elements(s.Row(s.tensorRow(r)))
		for i := 0; i < len(b); i += faultAround {
			u.sum ^= b[i]
		}
	}
}

// keep packs panel p to stay, if there is room, it was used before and nobody else packs it. A fault while reading the file (a file
// truncated under its mapping) leaves the panel unpacked.
func (s *Slot) keep(u *reader, p int) bool {
	if s.mem == nil || !s.state[p].CompareAndSwap(used, busy) {
		return false
	}
	done := false
	defer func() {
		if !done {
			s.state[p].Store(used)
		}
	}()
	s.pack(u, s.mem[p*s.pb:(p+1)*s.pb], p)
	done = true
	s.stand(p)
	return true
}

// Renew has all panels packed anew at their next use, or by Pack: the weight has changed. No walk may go on.
func (s *Slot) Renew() {
	for i := range s.state {
		s.state[i].Store(used)
	}
}

// stand ends the packing of panel p: it is in its place.
func (s *Slot) stand(p int) {
	s.state[p].Store(packed)
	if s.left != nil {
		if i := p / s.PanelsEach(); s.left[i].Add(-1) == 0 {
			first := s.tensorRow(i * s.Each)
			s.release(first, first+s.Each)
		}
	}
}

// Mapped reports whether the panels are those of a file.
func (s *Slot) Mapped() bool { return s.sums != nil }

// PackedBytes is the memory of the panels that are packed; none where they are mapped.
func (s *Slot) PackedBytes() int {
	n := 0
	if s.Mapped() {
		return 0
	}
	for i := range s.state {
		if s.state[i].Load() == packed {
			n += s.pb
		}
	}
	return n
}

// Packing reports whether panels that have room are still to be packed, or mapped ones to be compared.
func (s *Slot) Packing() bool {
	if s.mem == nil {
		return false
	}
	for i := range s.state {
		if s.state[i].Load() != packed {
			return true
		}
	}
	return false
}

// Moving reports whether a panel is being packed, or on its way.
func (s *Slot) Moving() bool {
	for i := range s.state {
		if s.state[i].Load() == busy {
			return true
		}
	}
	return false
}

// Pack packs worker w's part of the panels, an even one of so many workers, to stay, as far as there is room, used
// before or not, and compares those that are mapped. It returns early once stop is true, at which it looks before
// each panel.
func (s *Slot) Pack(w, workers int, stop *atomic.Bool) {
	n := s.panels()
	lo, hi := n*w/workers, n*(w+1)/workers
	if s.mem == nil {
		return
	}
	u := reader{stop: stop}
	for p := lo; p < hi && !u.stopped(); p++ {
		team.Safepoint()
		if s.state[p].Load() == packed {
			continue
		}
		if s.Mapped() {
			s.check(p)
			continue
		}
		if !u.touched {
			s.touch(&u, p, hi)
		}
		s.state[p].CompareAndSwap(filed, used)
		s.keep(&u, p)
	}
}
