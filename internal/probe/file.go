package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"ck/internal/mapfile"
	"ck/internal/measure"
	"ck/internal/numa"
)

// InputError says that a file cannot be measured.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

func inputf(format string, a ...any) error { return &InputError{fmt.Errorf(format, a...)} }

const (
	fileLimit     = 1 << 30                // bytes of a sample at most: many times a CPU's caches
	fileTime      = 500 * time.Millisecond // of a sample at most
	fileAlign     = 4096                   // of O_DIRECT: offsets, sizes and memory
	fileDepth     = 32                     // reads in flight at most
	filePiece     = 2 << 20                // bytes of a read at most
	fileMostStays = 0.01                   // of the page cache, without a note
)

// FileWay is a way of reading a file, with its result.
type FileWay struct {
	Way     string          `json:"way"`        // read, mapped, O_DIRECT, io_uring
	Cache   string          `json:"page_cache"` // dropped, past, warm
	Piece   int             `json:"read_bytes"` // of one read
	Depth   int             `json:"in_flight"`  // reads
	MB      float64         `json:"mb"`         // of the longest sample
	GBps    float64         `json:"gb_per_s"`   // median; 0: not possible, see Note
	Samples measure.Summary `json:"samples"`    // GB/s
	Note    string          `json:"note"`

	read  func(r *fileReader, limit int64, take takeBytes) (int64, error)
	rates []float64
}

// takeBytes gets pieces of the file with their place; false ends the reading early.
type takeBytes func(off int64, b []byte) bool

// Name tells the way and its reads.
func (w *FileWay) Name() string {
	switch {
	case w.Depth > 1 || w.Way == "io_uring" && w.Piece > 0:
		return fmt.Sprintf("%s, %d × %s", w.Way, w.Depth, measure.SizeText(w.Piece))
	case w.Piece > 0:
		return fmt.Sprintf("%s, %s", w.Way, measure.SizeText(w.Piece))
	}
	return w.Way
}

// fileWays are all ways, in the order of a round.
func fileWays() []*FileWay {
	buffered := func(r *fileReader, limit int64, take takeBytes) (int64, error) {
		return readPieces(int(r.plain.Fd()), limit, r.buf[:1<<20], take)
	}
	mapped := func(r *fileReader, limit int64, take takeBytes) (int64, error) {
		return readMapped(r.path, limit, take)
	}
	ways := []*FileWay{{Way: "read", Cache: "dropped", Piece: 1 << 20, Depth: 1, read: buffered}, {Way: "mapped", Cache: "dropped", read: mapped}}
	pieces := []int{128 << 10, 512 << 10, filePiece}
	for _, piece := range pieces {
		ways = append(ways, &FileWay{Way: "O_DIRECT", Cache: "past", Piece: piece, Depth: 1,
			read: func(r *fileReader, limit int64, take takeBytes) (int64, error) {
				return readPieces(int(r.direct.Fd()), limit, r.buf[:piece], take)
			}})
	}
	for _, piece := range pieces {
		for _, depth := range []int{1, 4, 16, fileDepth} {
			ways = append(ways, &FileWay{Way: "io_uring", Cache: "past", Piece: piece, Depth: depth,
				read: func(r *fileReader, limit int64, take takeBytes) (int64, error) {
					return r.ring.ReadFile(int(r.direct.Fd()), limit, r.buf[:depth*piece], piece, take)
				}})
		}
	}
	return append(ways, &FileWay{Way: "read", Cache: "warm", Piece: 1 << 20, Depth: 1, read: buffered}, &FileWay{Way: "mapped", Cache: "warm", read: mapped})
}

// fileReader is what the ways of reading a file share.
type fileReader struct {
	path          string
	size          int64
	plain, direct *os.File // direct is nil where the file system refuses O_DIRECT
	ring          *measure.Ring
	ringErr       error // why there is no ring
	mem           *numa.Region
	buf           []byte // of filePiece * fileDepth bytes, aligned, outside the Go heap
	memory        bool   // the file lies in memory
}

// openFile opens a file for all ways.
func openFile(path string) (*fileReader, error) {
	st, err := os.Stat(path) // before it is opened: opening a named pipe would wait for a writer
	switch {
	case err != nil:
		return nil, err
	case st.IsDir():
		return nil, inputf("%s: is a folder; name a file in it", path)
	case !st.Mode().IsRegular():
		return nil, inputf("%s: is a pipe, a socket or a device; name a regular file", path)
	case st.Size() == 0:
		return nil, inputf("%s: is empty; name a file with content, the larger the better", path)
	}
	r := &fileReader{path: path, size: st.Size()}
	if r.plain, err = os.Open(path); err != nil {
		return nil, err
	}
	if r.direct, err = os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0); err != nil && !refused(err) {
		r.close()
		return nil, err
	}
	if r.mem, err = numa.Alloc(filePiece*fileDepth, numa.Options{}); err != nil {
		r.close()
		return nil, err
	}
	r.buf = r.mem.Bytes()
	clear(r.buf) // its pages are there before the first reading
	r.ring, r.ringErr = measure.NewRing(fileDepth)
	var fs unix.Statfs_t
	if unix.Fstatfs(int(r.plain.Fd()), &fs) == nil {
		r.memory = fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC
	}
	return r, nil
}

func (r *fileReader) close() {
	for _, f := range []*os.File{r.plain, r.direct} {
		if f != nil {
			f.Close()
		}
	}
	if r.ring != nil {
		r.ring.Close()
	}
	if r.mem != nil {
		r.mem.Free()
	}
}

// refused reports whether a file system does not have a way of reading.
func refused(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) }

// possible are the ways that this system allows; of others one row remains, with the reason.
func (r *fileReader) possible(ways []*FileWay) []*FileWay {
	var out []*FileWay
	named := map[string]bool{}
	for _, w := range ways {
		why := ""
		switch {
		case w.Way == "io_uring" && r.ringErr != nil:
			why = r.ringErr.Error()
		case w.Cache == "past" && r.direct == nil:
			why = "the file system does not allow O_DIRECT"
		}
		switch {
		case why == "":
			out = append(out, w)
		case !named[w.Way]:
			named[w.Way] = true
			out = append(out, &FileWay{Way: w.Way, Cache: w.Cache, Note: why, Samples: measure.Summarize(nil)})
		}
	}
	return out
}

// sample reads the file once in a way, until limit bytes or the time have passed, and notes what the page cache did.
func (r *fileReader) sample(w *FileWay, limit int64) error {
	if w.Cache == "warm" {
		if share, ok := measure.CachedShare(int(r.plain.Fd()), limit); ok && share < 1-fileMostStays {
			w.Note = fmt.Sprintf("only %.0f %% of it stays in the page cache", 100*share)
		}
	} else {
		if err := measure.DropCache(int(r.plain.Fd())); err != nil {
			w.Note = "the page cache cannot be dropped: " + err.Error()
		} else if share, ok := measure.CachedShare(int(r.plain.Fd()), limit); ok && share > fileMostStays {
			w.Note = fmt.Sprintf("%.0f %% of it stays in the page cache", 100*share)
		}
	}
	if r.memory {
		w.Note = "the file system is memory: no disk is read"
	}
	start := time.Now()
	n, err := w.read(r, limit, func(int64, []byte) bool { return time.Since(start) < fileTime })
	d := time.Since(start).Seconds()
	switch {
	case err != nil && n == 0 && refused(err) && w.Cache == "past":
		w.read, w.Note = nil, "the file system does not allow O_DIRECT"
		if w.Way == "io_uring" {
			w.Note = "the kernel has no IORING_OP_READ, or the file system no O_DIRECT"
		}
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return inputf("%s: became shorter while it was read; let nobody write it", r.path)
	case err != nil && w.Way == "mapped": // says where
		return inputf("%w", err)
	case err != nil:
		return fmt.Errorf("%s: %s: %w", r.path, w.Name(), err)
	}
	w.MB = max(w.MB, float64(n)/1e6)
	w.rates = append(w.rates, float64(n)/d/1e9)
	return nil
}

// warm brings the file's beginning into the page cache and returns how much of it.
func (r *fileReader) warm(limit int64) (int64, error) {
	start := time.Now()
	return readPieces(int(r.plain.Fd()), limit, r.buf[:filePiece], func(int64, []byte) bool { return time.Since(start) < 4*fileTime })
}

// ReadFile reads a file in several ways, one thread, front to back, samples times each: in each round one of every way, so that what
// changes on the machine meets all of them. at is told how many readings are done, of how many. What cannot be read is an *InputError.
func ReadFile(ctx context.Context, name string, samples int, at func(done, of int64)) ([]*FileWay, error) {
	r, err := openFile(name)
	if err != nil {
		return nil, err
	}
	defer r.close()
	ways := r.possible(fileWays())
	if err := r.rounds(ctx, ways, samples, at); err != nil {
		return nil, err
	}
	for _, w := range ways {
		w.Samples = measure.Summarize(w.rates)
		w.GBps = w.Samples.Median
	}
	return ways, nil
}

// rounds takes the samples.
func (r *fileReader) rounds(ctx context.Context, ways []*FileWay, samples int, at func(done, of int64)) error {
	runtime.LockOSThread() // the kernel finishes a ring's reads in the thread that began them
	defer runtime.UnlockOSThread()
	of := int64(len(ways) * samples)
	at(0, of)
	for round := range samples {
		limit := min(r.size, fileLimit)
		warmed := false
		for i, w := range ways {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if w.Cache == "warm" && !warmed {
				var err error
				if limit, err = r.warm(limit); err != nil {
					return fmt.Errorf("%s: %w", r.path, err)
				}
				warmed = true
			}
			if w.read != nil {
				if err := r.sample(w, limit); err != nil {
					return err
				}
			}
			at(int64(round*len(ways)+i+1), of)
		}
	}
	return nil
}

// readPieces reads the first limit bytes of a file by pread(2), as many at a time as buf holds.
func readPieces(fd int, limit int64, buf []byte, take takeBytes) (int64, error) {
	n := int64(0)
	for n < limit {
		k, err := unix.Pread(fd, buf, n)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil && n > 0 && refused(err): // O_DIRECT goes on from multiples of its alignment only: the file ended at n before
			return n, io.ErrUnexpectedEOF
		case err != nil:
			return n, err
		case k == 0:
			return n, io.ErrUnexpectedEOF
		}
		k = int(min(int64(k), limit-n))
		more := take(n, buf[:k])
		n += int64(k)
		if !more {
			break
		}
	}
	return n, nil
}

// readMapped reads the first limit bytes of a file by touching its pages.
func readMapped(path string, limit int64, take takeBytes) (n int64, err error) {
	f, err := mapfile.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if int64(len(f.Data)) < limit {
		return 0, io.ErrUnexpectedEOF
	}
	err = f.Guard(func() error {
		for n < limit {
			b := f.Data[n:min(n+1<<20, limit)]
			measure.Touch(b)
			more := take(n, b)
			n += int64(len(b))
			if !more {
				break
			}
		}
		return nil
	})
	return n, err
}
