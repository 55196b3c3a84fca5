package convert

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ck/internal/aside"
	"ck/internal/entropycode"
	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/quant"
)

// Options are how a plan is written. None of them changes a byte.
type Options struct {
	Workers  int
	Features isa.Features // of the CPU that may be used
	Resume   bool         // go on where an earlier run ended; without one, begin
	Force    bool         // overwrite outputs that are there, and start unfinished ones anew

	// Progress, if not nil, is told from time to time how far the work is. It may be called from any goroutine.
	Progress func(Progress)
}

// Progress is how far the work is.
type Progress struct {
	Done, Total int64 // bytes of the source
	Reading     time.Duration
	Computing   time.Duration
	Writing     time.Duration // of all workers together
}

// Bound is what takes the most time: reading, computing or writing.
func (p Progress) Bound() string {
	switch max(p.Reading, p.Computing, p.Writing) {
	case p.Computing:
		return "computing"
	case p.Reading:
		return "reading"
	}
	return "writing"
}

// Result is what a run did.
type Result struct {
	Progress
	Resumed int   // tensors that an earlier run had finished
	Again   int   // tensors of an earlier run whose bytes were not those that its journal has: they were made again
	Bytes   int64 // of the output
}

// ValueError says that a tensor has a value that the output cannot hold.
type ValueError struct {
	Tensor   string
	Row, Col int
	Err      error
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("tensor %s: row %d, column %d: %v", e.Tensor, e.Row, e.Col, e.Err)
}
func (e *ValueError) Unwrap() error { return e.Err }

// OutputError says that a file of the output cannot be made.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return e.Err.Error() }
func (e *OutputError) Unwrap() error { return e.Err }

// RoomError says that the disk has too little room.
type RoomError struct {
	Folder     string
	Need, Left int64
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("%s: the output takes %d MB more, the disk has %d MB left; make room or write elsewhere",
		e.Folder, e.Need/1e6, e.Left/1e6)
}

// chunkElems is the elements of a chunk, about: it stays in the second-level cache's reach as float32 and is long
// enough for a write.
const chunkElems = 1 << 18

// run is the writing of a plan.
type run struct {
	plan    *Plan
	opts    Options
	journal *journal
	files   []*os.File // of the parts; nil: it has its final name already
	tensors []*progress

	mu   sync.Mutex
	next int // tensor of the next chunk
	row  int // its first row
	at   layout
	turn *sync.Cond // of mu: at has moved, or the run has ended

	finished chan *progress // to the keeper
	failed   atomic.Pointer[error]

	read, compute, write, done atomic.Int64
}

// progress is a tensor that is being written.
type progress struct {
	*Tensor
	number int
	file   *os.File
	offset int64 // of its data in file
	pad    int64 // zeros behind it
	rows   int   // of a chunk
	crcs   []uint32
	left   atomic.Int64 // chunks to come
	coder  coder
	skip   bool // an earlier run has finished it

	stored *stored // nil: as it is
	bytes  int64   // of a compressed output: what it takes
}

// Write makes the output. If it fails, or ctx ends, what is finished stays beside the final names for a run with
// Resume, but where a value of the source cannot be written: then nothing stays.
func (p *Plan) Write(ctx context.Context, opts Options) (*Result, error) {
	for _, part := range p.Parts {
		if !opts.Force && exists(part.Path) && !(opts.Resume && exists(p.journalPath())) {
			return nil, &ExistsError{part.Path, false}
		}
	}
	if err := p.room(); err != nil {
		return nil, err
	}
	r := &run{plan: p, opts: opts}
	r.turn = sync.NewCond(&r.mu)
	var err error
	if r.journal, err = p.openJournal(opts.Resume, opts.Force); err != nil {
		return nil, err
	}
	defer r.close()
	res, err := r.run(ctx)
	if v := (*ValueError)(nil); errors.As(err, &v) {
		for i := range p.Parts {
			os.Remove(p.Parts[i].partPath())
		}
		r.journal.remove()
	}
	return res, err
}

// room refuses an output for which the disk has no room.
func (p *Plan) room() error {
	dir := filepath.Dir(p.Parts[0].Path)
	need := p.Size()
	for i := range p.Parts {
		var st unix.Stat_t
		if unix.Stat(p.Parts[i].partPath(), &st) == nil {
			need -= st.Blocks * 512
		}
	}
	return CheckRoom(dir, need)
}

// CheckRoom refuses an output of so many bytes for which the disk of a folder has no room.
func CheckRoom(dir string, need int64) error {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return nil // what is wrong with the folder is said when the files are made
	}
	if left := int64(st.Bavail) * st.Bsize; left < need {
		return &RoomError{dir, need, left}
	}
	return nil
}

func (r *run) close() {
	for _, f := range r.files {
		if f != nil {
			f.Close()
		}
	}
	r.journal.f.Close()
}

func (r *run) run(ctx context.Context) (*Result, error) {
	if err := r.openParts(); err != nil {
		return nil, err
	}
	res := &Result{}
	if err := r.takeOver(ctx, res); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, r.wake)()
	r.finished = make(chan *progress, len(r.tensors))
	keeper := make(chan error, 1)
	go func() { keeper <- r.keep() }()
	work := r.workers(ctx, r.convert)
	close(r.finished)
	kept := <-keeper
	res.Progress = r.progress()
	if work != nil {
		return res, work
	}
	if kept != nil {
		return res, kept
	}
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	if r.plan.Compress {
		if err := r.finish(); err != nil {
			return res, err
		}
	}
	res.Bytes = r.plan.Size()
	return res, r.publish()
}

// openParts opens the files under their unfinished names and writes what stands before the tensors.
func (r *run) openParts() error {
	number := 0
	for i := range r.plan.Parts {
		part := &r.plan.Parts[i]
		if r.named(part, number) {
			r.files = append(r.files, nil)
			number += len(part.Tensors)
			continue
		}
		f, err := os.OpenFile(part.partPath(), os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return &OutputError{err}
		}
		r.files = append(r.files, f)
		if r.plan.Compress {
			r.at.end = int64(len(part.Header.Bytes))
		} else if err := f.Truncate(part.Header.Size); err != nil {
			return writeError(err)
		}
		if _, err := f.WriteAt(part.Header.Bytes, 0); err != nil {
			return writeError(err)
		}
		for j := range part.Tensors {
			t := &progress{Tensor: &part.Tensors[j], number: number, file: f, offset: part.Header.Offsets[j],
				pad: part.Header.Padding(j)}
			if r.plan.Compress {
				t.stored = storedOf(t.Type, t.From.Shape)
			}
			t.rows = t.chunkRows()
			chunks := 0
			for row := 0; row < t.From.Rows(); row += t.at(row) {
				chunks++
			}
			t.crcs = make([]uint32, chunks)
			t.left.Store(int64(chunks))
			r.tensors = append(r.tensors, t)
			number++
		}
	}
	slices.SortStableFunc(r.tensors, func(a, b *progress) int { return cmp.Compare(a.Turn, b.Turn) })
	return nil
}

// named reports whether a part, whose first tensor has this number, is whole and has its final name: an earlier run
// ended while it gave names.
func (r *run) named(part *Part, number int) bool {
	for i := range part.Tensors {
		if _, done := r.journal.done[number+i]; !done {
			return false
		}
	}
	return len(r.journal.done) > 0 && !exists(part.partPath()) && exists(part.Path)
}

// chunkRows is the rows of a chunk but for the last one of a matrix.
func (t *progress) chunkRows() int {
	rows := max(1, chunkElems/t.From.Cols())
	if t.stored != nil {
		rows = max(t.stored.Rows, rows/t.stored.Rows*t.stored.Rows)
	}
	return min(t.rowsPerMatrix(), rows)
}

// at is the rows of the chunk that begins at row: a chunk lies within a matrix.
func (t *progress) at(row int) int {
	of := t.rowsPerMatrix()
	return min(t.rows, of-row%of)
}

// chunk is the number of the chunk that begins at row.
func (t *progress) chunk(row int) int {
	of := t.rowsPerMatrix()
	return row/of*((of+t.rows-1)/t.rows) + row%of/t.rows
}

// crc is the checksum of the tensor: that of the checksums of its chunks.
func (t *progress) crc() uint32 {
	var b []byte
	for _, c := range t.crcs {
		b = binary.LittleEndian.AppendUint32(b, c)
	}
	return crc32.Checksum(b, gguf.Castagnoli)
}

// takeOver checks what an earlier run's journal says is there.
func (r *run) takeOver(ctx context.Context, res *Result) error {
	if r.plan.Compress {
		return r.takeCompressed(ctx, res)
	}
	if len(r.journal.done) == 0 {
		return nil
	}
	for _, t := range r.tensors {
		_, done := r.journal.done[t.number]
		t.skip = !done
	}
	if err := r.workers(ctx, r.verify); err != nil {
		return err
	}
	for _, t := range r.tensors {
		if t.skip {
			t.skip = false
			continue
		}
		if t.crc() == r.journal.done[t.number].CRC {
			t.skip = true
			res.Resumed++
			if t.Kept != nil {
				t.Kept(io.NewSectionReader(t.file, t.offset, int64(t.From.Rows())*int64(t.Type.RowBytes(t.From.Cols()))))
			}
			r.done.Add(t.From.Bytes())
		} else {
			res.Again++
		}
		t.left.Store(int64(len(t.crcs)))
	}
	r.next, r.row = 0, 0
	return ctx.Err()
}

// workers runs f over all chunks of tensors that are not skipped.
func (r *run) workers(ctx context.Context, f func(ctx context.Context, w *worker, t *progress, row,
	rows int) error) error {
	var wg sync.WaitGroup
	for range max(1, r.opts.Workers) {
		wg.Go(func() {
			w := &worker{features: r.opts.Features, encoders: map[quant.Type]*quant.Encoder{}}
			for ctx.Err() == nil && r.failed.Load() == nil {
				t, row, rows := r.take()
				if t == nil {
					return
				}
				err := r.plan.Model.Guard(func() error { return f(ctx, w, t, row, rows) })
				if err != nil {
					r.failed.CompareAndSwap(nil, &err)
					r.wake()
				}
			}
		})
	}
	wg.Wait()
	if e := r.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// take deals the next chunk; nil at the end.
func (r *run) take() (t *progress, row, rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.next < len(r.tensors) && r.tensors[r.next].skip {
		r.next++
	}
	if r.next == len(r.tensors) {
		return nil, 0, 0
	}
	t, row = r.tensors[r.next], r.row
	rows = t.at(row)
	if r.row += rows; r.row == t.From.Rows() {
		r.next, r.row = r.next+1, 0
	}
	return t, row, rows
}

// verify computes the checksum of a chunk of an earlier run.
func (r *run) verify(_ context.Context, w *worker, t *progress, row, rows int) error {
	n := t.Type.RowBytes(t.From.Cols())
	b := w.bytes(rows * n)
	if _, err := t.file.ReadAt(b, t.offset+int64(row)*int64(n)); err != nil {
		return err
	}
	t.crcs[t.chunk(row)] = crc32.Checksum(b, gguf.Castagnoli)
	return nil
}

// convert makes a chunk and writes it.
func (r *run) convert(ctx context.Context, w *worker, t *progress, row, rows int) error {
	start := time.Now()
	src := w.rows(t.From, row, rows)
	touch(src)
	read := time.Now()
	var dst []byte
	var err error
	if t.Prepare != nil {
		var c Coder
		if c, err = t.coder.get(ctx, t.Prepare); err == nil {
			dst, err = w.encodeBy(c, t.Tensor, src, row, rows)
		}
	} else {
		dst, err = w.encode(t.Tensor, src, row, rows)
	}
	if err != nil {
		return err
	}
	t.crcs[t.chunk(row)] = crc32.Checksum(dst, gguf.Castagnoli)
	computed := time.Now()
	if err := r.put(ctx, w, t, dst, row, rows); err != nil {
		return err
	}
	r.read.Add(int64(read.Sub(start)))
	r.compute.Add(int64(computed.Sub(read)))
	r.write.Add(int64(time.Since(computed)))
	r.done.Add(int64(len(src)))
	if t.left.Add(-1) == 0 {
		if err := t.writeIndex(); err != nil {
			return err
		}
		t.coder.c = nil
		r.finished <- t
	}
	if r.opts.Progress != nil {
		r.opts.Progress(r.progress())
	}
	return nil
}

// put writes a chunk to its place.
func (r *run) put(ctx context.Context, w *worker, t *progress, dst []byte, row, rows int) error {
	at, pad := t.offset+int64(row)*int64(t.Type.RowBytes(t.From.Cols())), int64(0)
	if r.plan.Compress {
		dst = t.code(w, dst, row, rows)
		var ok bool
		if at, ok = r.place(ctx, t, row, rows, len(dst)); !ok {
			return r.ended(ctx)
		}
	} else if row+rows == t.From.Rows() {
		pad = t.pad
	}
	if _, err := t.file.WriteAt(dst, at); err != nil {
		return writeError(err)
	}
	if pad > 0 {
		if _, err := t.file.WriteAt(make([]byte, pad), at+int64(len(dst))); err != nil {
			return writeError(err)
		}
	}
	return nil
}

// writeError says what to do where the disk is full.
func writeError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w; what is finished stays: make room and go on with --resume", err)
	}
	return err
}

func (r *run) progress() Progress {
	p := Progress{Done: r.done.Load(), Reading: time.Duration(r.read.Load()),
		Computing: time.Duration(r.compute.Load()), Writing: time.Duration(r.write.Load())}
	for _, t := range r.tensors {
		p.Total += t.From.Bytes()
	}
	return p
}

// keep brings finished tensors to the disk and into the journal, several at once where they come faster than the
// disk.
func (r *run) keep() error {
	var failed error
	for t := range r.finished {
		if failed != nil {
			continue // the journal says less than there is; that costs a later run time, no more
		}
		batch := []*progress{t}
		for more := true; more; {
			select {
			case t, ok := <-r.finished:
				if more = ok; ok {
					batch = append(batch, t)
				}
			default:
				more = false
			}
		}
		if failed = r.record(batch); failed != nil {
			r.failed.CompareAndSwap(nil, &failed)
		}
	}
	return failed
}

// record syncs the files of tensors, then says in the journal that they are there.
func (r *run) record(batch []*progress) error {
	synced := map[*os.File]bool{}
	var lines []any
	for _, t := range batch {
		if !synced[t.file] {
			if err := unix.Fdatasync(int(t.file.Fd())); err != nil {
				return writeError(&fs.PathError{Op: "sync", Path: t.file.Name(), Err: err})
			}
			synced[t.file] = true
		}
		line := journalTensor{t.number, t.From.Name, t.crc(), t.bytes}
		if r.plan.Compress {
			crc, err := t.checksum(t.bytes)
			if err != nil {
				return err
			}
			line.CRC = crc
		}
		lines = append(lines, line)
	}
	return writeError(r.journal.append(lines...))
}

// publish gives the parts their names, the first part last: who finds that one finds all.
func (r *run) publish() error {
	for _, f := range r.files {
		if f == nil {
			continue
		}
		if err := f.Sync(); err != nil {
			return writeError(err)
		}
	}
	for i := len(r.plan.Parts) - 1; i >= 0; i-- {
		part := &r.plan.Parts[i]
		if r.files[i] == nil {
			continue
		}
		if err := aside.Rename(part.partPath(), part.Path, r.opts.Force); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return &ExistsError{part.Path, false}
			}
			return err
		}
	}
	aside.SyncFolder(r.plan.Parts[0].Path)
	r.journal.remove()
	return nil
}

// worker is what a worker holds.
type worker struct {
	features isa.Features
	encoders map[quant.Type]*quant.Encoder
	dst      []byte
	floats   []float32

	of    *gguf.Tensor // whose rows reader reads
	from  *gguf.Reader
	coder entropycode.Coder // of compressed outputs
	coded []byte
}

// encoder is the worker's encoder to a type.
func (w *worker) encoder(t quant.Type) *quant.Encoder {
	e := w.encoders[t]
	if e == nil {
		e = quant.NewEncoder(t, w.features)
		w.encoders[t] = e
	}
	return e
}

// bytes is the worker's buffer for output.
func (w *worker) bytes(n int) []byte {
	if cap(w.dst) < n {
		w.dst = make([]byte, n)
	}
	return w.dst[:n]
}

// pageBytes is the size of the pages that touch reads a byte of.
const pageBytes = 4096

// touched keeps the reads of touch from being left out.
var touched atomic.Uint32

// touch reads the pages of b, so that waiting for the disk is told from computing. Asked for together they come
// without a fault for each; what the system cannot give shows where b is used.
func touch(b []byte) {
	if skip := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (pageBytes - 1)); skip > 0 {
		if pageBytes-skip >= len(b) {
			return
		}
		b = b[pageBytes-skip:]
	}
	if len(b) == 0 || unix.Madvise(b, unix.MADV_POPULATE_READ) == nil {
		return
	}
	var sum byte
	for i := 0; i < len(b); i += pageBytes {
		sum += b[i]
	}
	touched.Store(uint32(sum))
}

var errNotFinite = errors.New("is not finite; the file is damaged or the model broken: download it again")

// encode is rows of the source in the type of the output. Types that stay keep their bytes.
func (w *worker) encode(t *Tensor, src []byte, row, rows int) ([]byte, error) {
	cols := t.From.Cols()
	if i := quant.FirstNotFinite(t.From.Type, src); i >= 0 {
		return nil, &ValueError{t.From.Name, row + i/cols, i % cols, errNotFinite}
	}
	if t.Type == t.From.Type {
		return src, nil
	}
	x := w.decoded(t, src, rows*cols)
	var importance []float32
	if t.Importance != nil {
		matrix := row / t.rowsPerMatrix()
		importance = t.Importance[matrix*cols : (matrix+1)*cols]
	}
	dst := w.bytes(rows * t.Type.RowBytes(cols))
	if err := w.encoder(t.Type).Encode(dst, x, importance); err != nil {
		return nil, w.explain(t, x, row, err)
	}
	if i := quant.FirstNotFinite(t.Type, dst); i >= 0 {
		return nil, &ValueError{t.From.Name, row + i/cols, i % cols,
			fmt.Errorf("%g is more than %v holds; choose BF16 or F32", x[i], t.Type)}
	}
	return dst, nil
}

// encodeBy is encode with a tensor's own coder.
func (w *worker) encodeBy(c Coder, t *Tensor, src []byte, row, rows int) ([]byte, error) {
	cols := t.From.Cols()
	if i := quant.FirstNotFinite(t.From.Type, src); i >= 0 {
		return nil, &ValueError{t.From.Name, row + i/cols, i % cols, errNotFinite}
	}
	x := w.decoded(t, src, rows*cols)
	dst := w.bytes(rows * t.Type.RowBytes(cols))
	if err := c.Encode(dst, x); err != nil {
		return nil, fmt.Errorf("tensor %s: rows from %d on: %w", t.From.Name, row, err)
	}
	return dst, nil
}

// decoded is n elements of the source.
func (w *worker) decoded(t *Tensor, src []byte, n int) []float32 {
	if cap(w.floats) < n {
		w.floats = make([]float32, n)
	}
	x := w.floats[:n]
	quant.Decode(t.From.Type, x, src)
	return x
}

// explain finds the row of what a quantizer refused.
func (w *worker) explain(t *Tensor, x []float32, row int, err error) error {
	cols := t.From.Cols()
	for i, v := range x {
		if v-v != 0 {
			return &ValueError{t.From.Name, row + i/cols, i % cols, errNotFinite}
		}
	}
	for r := range len(x) / cols {
		dst := make([]byte, t.Type.RowBytes(cols))
		var importance []float32
		if t.Importance != nil {
			importance = t.Importance[(row+r)/t.rowsPerMatrix()*cols:][:cols]
		}
		if e := quant.Quantize(t.Type, dst, x[r*cols:(r+1)*cols], importance); e != nil {
			return &ValueError{t.From.Name, row + r, 0, e}
		}
	}
	return fmt.Errorf("tensor %s: %w", t.From.Name, err)
}
