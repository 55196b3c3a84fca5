package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Ring is an io_uring(7): two queues that a program shares with the kernel. Reads are written into the submission queue and handed
// over by one call of io_uring_enter(2), many at a time; results appear in the completion queue in the order in which they are ready.
// So one thread keeps many reads in flight, which is what a fast disk needs to be fast. It serves one goroutine at a time.
//
// Each queue is a ring of a power of two of entries with a head and a tail that only grow: who produces stores the tail after the
// entry, who consumes stores the head after reading the entry. Both sides read the other's number atomically; those of sync/atomic are
// ordered at least as strongly as the acquire and release that the kernel pairs them with.
//
// The layouts are those of include/uapi/linux/io_uring.h, Linux 5.6, the first one with IORING_OP_READ.
type Ring struct {
	fd       int
	maps     [3][]byte // submission ring, completion ring, submission entries
	entries  []byte    // submission entries, 64 bytes each
	sqHead   *uint32   // of the kernel
	sqTail   *uint32   // ours
	sqMask   uint32
	cqHead   *uint32 // ours
	cqTail   *uint32 // of the kernel
	cqMask   uint32
	cqes     []byte // completion entries, 16 bytes each
	inFlight int    // reads that were queued and have no result yet
	reads    []ringRead
}

// ringRead is one read of ReadFile; its number is its slot of the buffer and the mark that its completion bears.
type ringRead struct {
	off  int64 // in the file
	got  int   // bytes so far
	open bool
}

const (
	uringOpRead    = 22 // IORING_OP_READ
	uringGetEvents = 1  // IORING_ENTER_GETEVENTS
	uringMapSQ     = 0
	uringMapCQ     = 0x8000000
	uringMapSQEs   = 0x10000000

	sqeBytes, cqeBytes = 64, 16
)

// uringParams is struct io_uring_params.
type uringParams struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, wqFD uint32
	_                                                                  [3]uint32
	sq                                                                 struct{ head, tail, mask, entries, flags, dropped, array, _ uint32 }
	_                                                                  uint64
	cq                                                                 struct{ head, tail, mask, entries, overflow, cqes, flags, _ uint32 }
	_                                                                  uint64
}

// NewRing makes a ring for depth reads in flight, 1 to 4096. Where the system refuses, the error says why in a few words.
func NewRing(depth int) (*Ring, error) {
	if depth < 1 || depth > 4096 {
		return nil, fmt.Errorf("%d reads in flight: 1 to 4096 are possible", depth)
	}
	var p uringParams
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(depth), uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		disabled, _ := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
		return nil, uringReason(e, strings.TrimSpace(string(disabled)))
	}
	r := &Ring{fd: int(fd)}
	for i, m := range []struct {
		offset int64
		bytes  uint32
	}{{uringMapSQ, p.sq.array + 4*p.sqEntries}, {uringMapCQ, p.cq.cqes + cqeBytes*p.cqEntries}, {uringMapSQEs, sqeBytes * p.sqEntries}} {
		b, err := unix.Mmap(r.fd, m.offset, int(m.bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("the rings cannot be mapped: %w", err)
		}
		r.maps[i] = b
	}
	number := func(b []byte, at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&b[at])) }
	sq, cq := r.maps[0], r.maps[1]
	r.sqHead, r.sqTail, r.sqMask = number(sq, p.sq.head), number(sq, p.sq.tail), *number(sq, p.sq.mask)
	r.cqHead, r.cqTail, r.cqMask = number(cq, p.cq.head), number(cq, p.cq.tail), *number(cq, p.cq.mask)
	r.cqes, r.entries = cq[p.cq.cqes:], r.maps[2]
	for i := range p.sqEntries { // the queue's places name the entries, always in order
		*number(sq, p.sq.array+4*i) = i
	}
	return r, nil
}

// uringReason words why there is no ring; disabled is the content of kernel.io_uring_disabled.
func uringReason(e unix.Errno, disabled string) error {
	switch {
	case e == unix.ENOSYS:
		return errors.New("the kernel has no io_uring, or a sandbox hides it")
	case e == unix.EPERM && disabled == "2":
		return errors.New("switched off for everybody: sysctl kernel.io_uring_disabled is 2")
	case e == unix.EPERM && disabled == "1":
		return errors.New("not allowed to this user: sysctl kernel.io_uring_disabled is 1")
	case e == unix.EPERM, e == unix.EACCES:
		return errors.New("refused by a sandbox: a seccomp filter or a security module")
	case e == unix.ENOMEM:
		return errors.New("more locked memory than allowed: raise ulimit -l")
	}
	return fmt.Errorf("io_uring_setup: %w", e)
}

// Close ends the ring. No read may be in flight.
func (r *Ring) Close() error {
	var errs []error
	for i, m := range r.maps {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
			r.maps[i] = nil
		}
	}
	return errors.Join(append(errs, unix.Close(r.fd))...)
}

// ReadFile reads the first limit bytes of a file in pieces, front to back, and keeps as many reads in flight as buf has room for
// pieces. buf must lie outside the Go heap, aligned as the file needs it (O_DIRECT: to 4096 bytes), as must be piece. each gets every piece with its place in the file, in the order in which they are ready, valid during the call; when it returns
// false, no further reads begin. n is the number of bytes that each got.
//
// A short read is continued. The file's end before limit is io.ErrUnexpectedEOF.
func (r *Ring) ReadFile(fd int, limit int64, buf []byte, piece int, each func(off int64, b []byte) bool) (n int64, err error) {
	depth := min(len(buf)/max(piece, 1), int(r.sqMask)+1)
	if depth < 1 || piece%512 != 0 {
		return 0, fmt.Errorf("pieces of %d bytes in a buffer of %d: at least one must fit, in multiples of 512", piece, len(buf))
	}
	r.reads = append(r.reads[:0], make([]ringRead, depth)...)
	next, more := int64(0), true
	for {
		for i := range r.reads {
			if x := &r.reads[i]; !x.open && more && next < limit {
				*x = ringRead{off: next, open: true}
				next += int64(piece)
				r.queue(fd, i, buf, piece)
			}
		}
		if r.inFlight == 0 {
			return n, nil
		}
		if err := r.enter(); err != nil {
			return n, errors.Join(err, r.drain())
		}
		for {
			slot, res, ok := r.reap()
			if !ok {
				break
			}
			x := &r.reads[slot]
			want := int(min(int64(piece), limit-x.off)) // what is behind limit may be read, and does not count
			switch e := unix.Errno(-res); {
			case res >= 0:
				x.got += res
			case e != unix.EINTR && e != unix.EAGAIN:
				return n, errors.Join(e, r.drain())
			}
			switch {
			case x.got >= want:
				x.open = false
				n += int64(want)
				more = each(x.off, buf[slot*piece:][:want]) && more
			case res == 0:
				return n, errors.Join(io.ErrUnexpectedEOF, r.drain())
			default:
				r.queue(fd, slot, buf, piece)
			}
		}
	}
}

// queue puts what is missing of a slot's read into the submission queue.
func (r *Ring) queue(fd, slot int, buf []byte, piece int) {
	x := &r.reads[slot]
	rest := buf[slot*piece:][x.got:piece]
	tail := atomic.LoadUint32(r.sqTail)
	sqe := r.entries[(tail&r.sqMask)*sqeBytes:][:sqeBytes]
	clear(sqe)
	sqe[0] = uringOpRead
	native := binary.NativeEndian
	native.PutUint32(sqe[4:], uint32(fd))
	native.PutUint64(sqe[8:], uint64(x.off)+uint64(x.got))
	native.PutUint64(sqe[16:], uint64(uintptr(unsafe.Pointer(&buf[slot*piece+x.got]))))
	native.PutUint32(sqe[24:], uint32(len(rest)))
	native.PutUint64(sqe[32:], uint64(slot))
	atomic.StoreUint32(r.sqTail, tail+1) // the entry belongs to the kernel from here on
	r.inFlight++
}

// enter submits what is queued and waits until a result is there.
func (r *Ring) enter() error {
	for {
		queued := atomic.LoadUint32(r.sqTail) - atomic.LoadUint32(r.sqHead)
		_, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(queued), 1, uringGetEvents, 0, 0)
		switch {
		case e == 0:
			return nil
		case e == unix.EINTR: // the Go runtime sends signals; what was submitted is no longer queued
		case (e == unix.EAGAIN || e == unix.EBUSY) && r.inFlight > int(queued): // no room in the kernel until some are done
			if _, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, 1, uringGetEvents, 0, 0); e == 0 {
				return nil
			}
		default:
			return fmt.Errorf("io_uring_enter: %w", e)
		}
	}
}

// reap takes a result from the completion queue: the slot of a read, and the number of bytes or an error's number, negative.
func (r *Ring) reap() (slot, res int, ok bool) {
	head := atomic.LoadUint32(r.cqHead)
	if head == atomic.LoadUint32(r.cqTail) {
		return 0, 0, false
	}
	cqe := r.cqes[(head&r.cqMask)*cqeBytes:]
	slot, res = int(binary.NativeEndian.Uint64(cqe)), int(int32(binary.NativeEndian.Uint32(cqe[8:])))
	atomic.StoreUint32(r.cqHead, head+1) // the entry is the kernel's again
	r.inFlight--
	return slot, res, true
}

// drain takes back what is only queued and waits for the reads that the kernel has, since it writes into their buffer.
func (r *Ring) drain() error {
	head := atomic.LoadUint32(r.sqHead)
	r.inFlight -= int(atomic.LoadUint32(r.sqTail) - head)
	atomic.StoreUint32(r.sqTail, head)
	for r.inFlight > 0 {
		if _, _, ok := r.reap(); ok {
			continue
		}
		if err := r.enter(); err != nil {
			return err
		}
	}
	return nil
}
