// Package numa takes memory outside of the Go heap, in huge pages where possible, and places it on memory nodes.
//
// The memory is anonymous, zero, and costs nothing until it is touched: the thread that touches a page first gets it from its own node
// unless the page was placed before. The garbage collector neither scans nor counts it. What a system does not offer is left out and
// said in one error line; the memory is usable all the same.
package numa

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HugePage is the size of a transparent huge page and the alignment of regions that have at least that size.
const HugePage = 2 << 20

// maxNodes is above MAX_NUMNODES of any kernel.
const maxNodes = 1024

// Policy says where the kernel takes pages from that are not there yet (mbind(2)).
type Policy int

const (
	FirstTouch Policy = iota // the node of the thread that touches the page first
	Bind                     // these nodes only: when they are full the process may be killed
	Prefer                   // this node, another one when it is full
	Interleave               // these nodes in turn
)

var policyNames = [...]string{"first-touch", "bind", "prefer", "interleave"}

func (p Policy) String() string {
	if p < 0 || int(p) >= len(policyNames) {
		return fmt.Sprintf("policy(%d)", int(p))
	}
	return policyNames[p]
}

// Options for Alloc. The zero value: huge pages, first touch.
type Options struct {
	SmallPages bool // no huge pages: for memory that is touched here and there
	Policy     Policy
	Nodes      []int // for the policies other than FirstTouch
}

// A NoMemory is what Alloc returns if the kernel has no room for a mapping: a limit (ulimit -v, vm.overcommit_memory) or the address space.
type NoMemory struct {
	Bytes int
	Err   error
}

func (e *NoMemory) Error() string { return fmt.Sprintf("no memory for %d bytes: %v", e.Bytes, e.Err) }
func (e *NoMemory) Unwrap() error { return e.Err }

// A Region is memory from Alloc.
type Region struct {
	all  []byte // whole pages; one more behind them that nobody may touch
	n    int    // bytes of it that were asked for
	huge error  // why there are no huge pages
	far  error  // why the policy is not that which was asked for
}

var pageSize = os.Getpagesize()

// Alloc takes n bytes of zeros. From HugePage bytes on the memory is aligned to HugePage, otherwise to a page. It reserves addresses, not
// memory: who touches more than there is gets killed, so ask topo.Machine.Memory first.
//
// Without enough address space the error is a *NoMemory. A policy or huge pages that cannot be had are no error of Alloc: Degraded says it.
func Alloc(n int, opt Options) (*Region, error) {
	if n < 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes", n)
	}
	if n == 0 {
		return &Region{}, nil
	}
	if n > 1<<62 {
		return nil, &NoMemory{n, unix.ENOMEM}
	}
	align := pageSize
	if n >= HugePage {
		align = HugePage
	}
	size := uintptr(roundUp(n, pageSize))
	// The kernel aligns to pages: map more and give the ends back.
	extra := uintptr(align)
	p, err := unix.MmapPtr(-1, 0, nil, size+extra, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		if errors.Is(err, unix.ENOMEM) {
			return nil, &NoMemory{n, err}
		}
		return nil, fmt.Errorf("mmap of %d bytes: %w", n, err)
	}
	head := -uintptr(p) & uintptr(align-1)
	if head > 0 {
		unix.MunmapPtr(p, head)
	}
	// A page that nobody may touch keeps the kernel from joining the mapping with the next one: /proc/self/numa_maps tells where mappings lie.
	unix.Mprotect(unsafe.Slice((*byte)(unsafe.Add(p, head+size)), pageSize), unix.PROT_NONE)
	if tail := extra - head - uintptr(pageSize); tail > 0 {
		unix.MunmapPtr(unsafe.Add(p, head+size+uintptr(pageSize)), tail)
	}
	r := &Region{all: unsafe.Slice((*byte)(unsafe.Add(p, head)), size), n: n}
	r.huge, r.far = r.adviseHuge(opt.SmallPages), r.Place(0, n, opt.Policy, opt.Nodes...)
	return r, nil
}

// adviseHuge asks for huge pages, or for none.
func (r *Region) adviseHuge(small bool) error {
	if small || r.n < HugePage {
		unix.Madvise(r.all, unix.MADV_NOHUGEPAGE) // refused by kernels that have no huge pages anyway
		return nil
	}
	if err := unix.Madvise(r.all, unix.MADV_HUGEPAGE); err != nil {
		return fmt.Errorf("no transparent huge pages: madvise: %w", err)
	}
	return hugePagesOff()
}

// hugePagesOff tells if the kernel takes the advice and ignores it.
var hugePagesOff = sync.OnceValue(func() error {
	const name = "/sys/kernel/mm/transparent_hugepage/enabled"
	if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), "[never]") {
		return fmt.Errorf("no transparent huge pages: they are switched off in %s", name)
	}
	return nil
})

// Bytes is the memory. It must not be used after Free.
func (r *Region) Bytes() []byte { return r.all[:r.n:r.n] }

// Degraded is nil if all that was asked for was granted, else it says in a line each what was not.
func (r *Region) Degraded() error { return errors.Join(r.huge, r.far) }

// NoHugePages says why the memory has no huge pages, Misplaced why it lies where it is touched first; nil where they were granted, or not asked for.
func (r *Region) NoHugePages() error { return r.huge }
func (r *Region) Misplaced() error   { return r.far }

// Free gives the memory back. A second call does nothing.
func (r *Region) Free() error {
	if r.all == nil {
		return nil
	}
	all := r.all
	r.all, r.n = nil, 0
	if err := unix.MunmapPtr(unsafe.Pointer(&all[0]), uintptr(len(all)+pageSize)); err != nil {
		return fmt.Errorf("munmap of %d bytes: %w", len(all), err)
	}
	return nil
}

// pages is the part of [off, off+n) that consists of whole pages; the region's last page is whole.
func (r *Region) pages(off, n int) ([]byte, error) {
	if off < 0 || n < 0 || off > r.n || n > r.n-off {
		return nil, fmt.Errorf("bytes %d to %d are outside of a region of %d", off, off+n, r.n)
	}
	end := (off + n) / pageSize * pageSize
	if off+n == r.n {
		end = len(r.all)
	}
	off = roundUp(off, pageSize)
	if end <= off {
		return nil, nil
	}
	return r.all[off:end], nil
}

// Release gives the pages that lie wholly in [off, off+n) back to the kernel; read again, they are zero.
func (r *Region) Release(off, n int) error {
	b, err := r.pages(off, n)
	if err != nil || len(b) == 0 {
		return err
	}
	if err := unix.Madvise(b, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("madvise of %d bytes: %w", len(b), err)
	}
	return nil
}

// Place sets the policy for the pages that lie wholly in [off, off+n) and have not been touched yet. Pages that are there stay where they
// are. Bounds that are no multiples of HugePage split a huge page.
func (r *Region) Place(off, n int, p Policy, nodes ...int) error {
	b, err := r.pages(off, n)
	if err != nil {
		return err
	}
	var mode uintptr
	switch p {
	case FirstTouch:
		if len(nodes) > 0 {
			return fmt.Errorf("policy %v takes no nodes, got %v", p, nodes)
		}
		return nil
	case Bind:
		mode = unix.MPOL_BIND
	case Interleave:
		mode = unix.MPOL_INTERLEAVE
	case Prefer:
		mode = unix.MPOL_PREFERRED
	default:
		return fmt.Errorf("there is no %v", p)
	}
	if len(nodes) == 0 || p == Prefer && len(nodes) > 1 {
		return fmt.Errorf("policy %v with nodes %v: it takes one node, bind and interleave one or more", p, nodes)
	}
	var mask [maxNodes / 64]uint64
	for _, id := range nodes {
		if id < 0 || id >= maxNodes {
			return fmt.Errorf("memory node %d is outside of 0..%d", id, maxNodes-1)
		}
		mask[id/64] |= 1 << (id % 64)
	}
	if len(b) == 0 {
		return nil
	}
	// The kernel looks at one bit less than it is told.
	_, _, e := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), mode,
		uintptr(unsafe.Pointer(&mask)), maxNodes+1, 0)
	if e != 0 {
		return fmt.Errorf("memory stays where it is touched first: mbind to nodes %v: %w%s", nodes, e, mbindHint(e))
	}
	return nil
}

func mbindHint(e unix.Errno) string {
	switch e {
	case unix.EINVAL:
		return " (no such node, or no memory there for this process)"
	case unix.EPERM:
		return " (the container forbids it)"
	case unix.ENOSYS:
		return " (the kernel knows no nodes)"
	}
	return ""
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
