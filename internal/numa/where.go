package numa

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Placement counts pages.
type Placement struct {
	Pages  int         // looked at
	Absent int         // not touched yet
	OnNode map[int]int // node: pages
	By     string      // what told: "move_pages" (2), or "numa_maps" (/proc/self/numa_maps) where that is forbidden
}

// Add adds the pages of another placement.
func (p *Placement) Add(q Placement) {
	p.Pages, p.Absent = p.Pages+q.Pages, p.Absent+q.Absent
	if p.OnNode == nil {
		p.OnNode = map[int]int{}
	}
	for id, n := range q.OnNode {
		p.OnNode[id] += n
	}
	if p.By == "" || q.By == "numa_maps" {
		p.By = q.By
	}
}

// whereCall is how many pages the kernel is asked for at once: 2 ms of its time.
const whereCall = 1 << 14

// Where looks at which nodes all pages of [off, off+n) are on. numa_maps counts whole mappings: it tells nothing of a part of one.
func (r *Region) Where(off, n int) (Placement, error) {
	b, err := r.pages(off, n)
	if err != nil || len(b) == 0 {
		return Placement{OnNode: map[int]int{}, By: "move_pages"}, err
	}
	pl, err := byMovePages(b)
	if err == nil {
		return pl, nil
	}
	maps, err1 := os.ReadFile("/proc/self/maps")
	counts, err2 := os.ReadFile("/proc/self/numa_maps")
	if err1 == nil && err2 == nil {
		if pl, ok := byNumaMaps(uintptr(unsafe.Pointer(&b[0])), len(b), maps, counts); ok {
			return pl, nil
		}
	}
	return Placement{}, fmt.Errorf("placement of memory is not verified: move_pages: %w", err)
}

// byMovePages asks the kernel for the nodes of pages, which it does not move.
func byMovePages(b []byte) (Placement, error) {
	pl := Placement{Pages: len(b) / pageSize, OnNode: map[int]int{}, By: "move_pages"}
	most := min(pl.Pages, whereCall)
	addrs, status := make([]unsafe.Pointer, most), make([]int32, most)
	for at := 0; at < pl.Pages; at += most {
		k := min(most, pl.Pages-at)
		for i := range k {
			addrs[i] = unsafe.Pointer(&b[(at+i)*pageSize])
		}
		_, _, e := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(k), uintptr(unsafe.Pointer(&addrs[0])), 0, uintptr(unsafe.Pointer(&status[0])), 0)
		if e != 0 {
			return Placement{}, e
		}
		for _, s := range status[:k] {
			if s >= 0 {
				pl.OnNode[int(s)]++
			} else {
				pl.Absent++ // ENOENT: not there; EFAULT: the zero page of a read
			}
		}
	}
	return pl, nil
}

// byNumaMaps adds up the counts of mappings that make up [start, start+n), from the texts of maps and numa_maps in /proc/self. ok is false where
// one of them reaches beyond it.
func byNumaMaps(start uintptr, n int, maps, counts []byte) (pl Placement, ok bool) {
	pl = Placement{Pages: n / pageSize, OnNode: map[int]int{}, By: "numa_maps"}
	end, covered := start+uintptr(n), 0
	within := map[uint64]bool{}
	for sc := bufio.NewScanner(bytes.NewReader(maps)); sc.Scan(); {
		bounds, _, _ := strings.Cut(sc.Text(), " ")
		low, high, _ := strings.Cut(bounds, "-")
		from, err1 := strconv.ParseUint(low, 16, 64)
		to, err2 := strconv.ParseUint(high, 16, 64)
		if err1 != nil || err2 != nil || uintptr(to) <= start || uintptr(from) >= end {
			continue
		}
		if uintptr(from) < start || uintptr(to) > end {
			return pl, false
		}
		within[from] = true
		covered += int(to - from)
	}
	there := 0
	for sc := bufio.NewScanner(bytes.NewReader(counts)); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if len(fields) == 0 {
			continue
		}
		if from, err := strconv.ParseUint(fields[0], 16, 64); err != nil || !within[from] {
			continue
		}
		each := 1
		for _, f := range fields {
			if kib, found := strings.CutPrefix(f, "kernelpagesize_kB="); found {
				k, err := strconv.Atoi(kib)
				if err != nil {
					return pl, false
				}
				each = max(1, k<<10/pageSize)
			}
		}
		for _, f := range fields[1:] {
			node, pages, found := strings.Cut(f, "=")
			if !found || !strings.HasPrefix(node, "N") {
				continue
			}
			id, err1 := strconv.Atoi(node[1:])
			k, err2 := strconv.Atoi(pages)
			if err1 == nil && err2 == nil {
				pl.OnNode[id] += k * each
				there += k * each
			}
		}
	}
	pl.Absent = pl.Pages - there
	return pl, covered == n && there <= pl.Pages
}

// Verify is nil if no page of [off, off+n) is on another node than these. Pages that were not touched yet are nowhere and do not count.
func (r *Region) Verify(off, n int, nodes ...int) error {
	pl, err := r.Where(off, n)
	if err != nil {
		return err
	}
	wrong, on := 0, 0
	for id, k := range pl.OnNode {
		if !slices.Contains(nodes, id) {
			wrong += k
			on = id
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d pages are not on nodes %v, but on %d and others", wrong, pl.Pages-pl.Absent, nodes, on)
	}
	return nil
}
