package numa

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resident is the process's memory in bytes.
func resident(t testing.TB) int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	n, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n * pageSize
}

func alloc(t testing.TB, n int, opt Options) *Region {
	t.Helper()
	r, err := Alloc(n, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Free(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestAllocSizes(t *testing.T) {
	for _, n := range []int{1, 63, pageSize - 1, pageSize, pageSize + 1, HugePage - 1, HugePage, HugePage + 1, 5*HugePage + 12345} {
		for _, small := range []bool{false, true} {
			r := alloc(t, n, Options{SmallPages: small})
			b := r.Bytes()
			if len(b) != n || cap(b) != n {
				t.Fatalf("%d bytes: len %d, cap %d", n, len(b), cap(b))
			}
			align := pageSize
			if n >= HugePage {
				align = HugePage
			}
			if uintptr(unsafe.Pointer(&b[0]))%uintptr(align) != 0 {
				t.Errorf("%d bytes at %p, not aligned to %d", n, &b[0], align)
			}
			for i := range b {
				if b[i] != 0 {
					t.Fatalf("byte %d of %d is %d", i, n, b[i])
				}
			}
			for i := range b {
				b[i] = byte(i)
			}
		}
	}
}

func TestAllocNothing(t *testing.T) {
	r := alloc(t, 0, Options{})
	if len(r.Bytes()) != 0 || r.Release(0, 0) != nil || r.Free() != nil || r.Free() != nil {
		t.Error("an empty region misbehaves")
	}
	if pl, err := r.Where(0, 0); err != nil || pl.Pages != 0 {
		t.Errorf("%+v, %v", pl, err)
	}
	if _, err := Alloc(-1, Options{}); err == nil {
		t.Error("a negative size was accepted")
	}
}

func TestNoMemory(t *testing.T) {
	for _, n := range []int{1 << 47, 1<<63 - 1, 1<<62 - 1} {
		r, err := Alloc(n, Options{})
		var nm *NoMemory
		if !errors.As(err, &nm) || nm.Bytes != n || !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%d bytes: %v, %v", n, r, err)
		}
	}
}

// Memory is taken when it is touched, and given back by Release and Free; whatever else this process does in between is small.
func TestLazyAndReleased(t *testing.T) {
	const size, slack = 256 << 20, 32 << 20
	start := resident(t)
	r := alloc(t, size, Options{})
	if now := resident(t); now > start+slack {
		t.Errorf("%d bytes more are resident after Alloc", now-start)
	}
	b := r.Bytes()
	for i := 0; i < size/2; i += pageSize {
		b[i] = 1
	}
	if now := resident(t); now < start+size/2-slack || now > start+size/2+slack {
		t.Errorf("half is touched, %d bytes more are resident", now-start)
	}
	if err := r.Release(1, size/2-1); err != nil {
		t.Fatal(err)
	}
	if now := resident(t); now > start+slack {
		t.Errorf("%d bytes more are resident after Release", now-start)
	}
	if b[0] != 1 || b[pageSize] != 0 {
		t.Errorf("the first page, not wholly released, starts with %d; the second with %d", b[0], b[pageSize])
	}
	for i := 0; i < size; i += pageSize {
		b[i] = 1
	}
	if err := r.Free(); err != nil {
		t.Fatal(err)
	}
	if now := resident(t); now > start+slack {
		t.Errorf("%d bytes more are resident after Free", now-start)
	}
	if r.Bytes() != nil {
		t.Error("a freed region still has bytes")
	}
}

// Nothing beside the region is mapped, and Free unmaps all of it.
func TestMapsAreTrimmed(t *testing.T) {
	const n = 3*HugePage + 5*1000
	r := alloc(t, n, Options{})
	lo := uintptr(unsafe.Pointer(&r.Bytes()[0]))
	hi := lo + uintptr(roundUp(n, pageSize))
	covered := func() (inside uintptr) {
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip(err)
		}
		for line := range strings.Lines(string(b)) {
			from, to, _ := strings.Cut(strings.Fields(line)[0], "-")
			a, err1 := strconv.ParseUint(from, 16, 64)
			z, err2 := strconv.ParseUint(to, 16, 64)
			if err1 != nil || err2 != nil {
				t.Fatal(line)
			}
			a, z = max(a, uint64(lo)), min(z, uint64(hi))
			if a < z {
				inside += uintptr(z - a)
			}
		}
		return inside
	}
	if got := covered(); got != hi-lo {
		t.Errorf("%d bytes mapped of %d", got, hi-lo)
	}
	before := countMaps(t)
	for range 50 {
		x, err := Alloc(n, Options{})
		if err != nil {
			t.Fatal(err)
		}
		x.Free()
	}
	if after := countMaps(t); after > before+10 {
		t.Errorf("%d mappings grew to %d", before, after)
	}
}

func countMaps(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	return strings.Count(string(b), "\n")
}

func TestBounds(t *testing.T) {
	r := alloc(t, 3*pageSize+10, Options{})
	for _, c := range [][2]int{{-1, 1}, {0, -1}, {0, 3*pageSize + 11}, {3*pageSize + 11, 0}, {1, 1<<63 - 1}} {
		if r.Release(c[0], c[1]) == nil || r.Place(c[0], c[1], Interleave, 0) == nil || r.Verify(c[0], c[1], 0) == nil {
			t.Errorf("[%d, +%d) of %d bytes was accepted", c[0], c[1], len(r.Bytes()))
		}
	}
	for _, c := range []struct{ off, n, pages int }{
		{0, 0, 0}, {1, pageSize, 0}, {1, 2 * pageSize, 1}, {0, pageSize, 1}, {0, 3*pageSize + 10, 4}, {3 * pageSize, 10, 1}, {3*pageSize + 1, 9, 0}, {2*pageSize + 1, pageSize + 9, 1},
	} {
		b, err := r.pages(c.off, c.n)
		if err != nil || len(b) != c.pages*pageSize {
			t.Errorf("[%d, +%d): %d bytes, %v; want %d pages", c.off, c.n, len(b), err, c.pages)
		}
	}
	b := r.Bytes()
	for i := range b {
		b[i] = 7
	}
	if err := r.Release(3*pageSize, 10); err != nil {
		t.Fatal(err)
	}
	if b[3*pageSize+9] != 0 || b[3*pageSize-1] != 7 {
		t.Error("the last page was not released, or the one before it was")
	}
}

// nodes are those with memory that this process may use.
func nodes(t *testing.T) []int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(b)) {
		if s, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			var ids []int
			for _, part := range strings.Split(strings.TrimSpace(s), ",") {
				lo, hi, ok := strings.Cut(part, "-")
				if !ok {
					hi = lo
				}
				a, _ := strconv.Atoi(lo)
				z, _ := strconv.Atoi(hi)
				for ; a <= z; a++ {
					ids = append(ids, a)
				}
			}
			return ids
		}
	}
	t.Skip("the kernel tells no nodes")
	return nil
}

func touch(b []byte) {
	for i := 0; i < len(b); i += pageSize {
		b[i] = 1
	}
	runtime.KeepAlive(b)
}

func TestPlacement(t *testing.T) {
	ids := nodes(t)
	const n = 4*HugePage + 3*4096
	for _, id := range ids {
		for _, p := range []Policy{Bind, Prefer} {
			r := alloc(t, n, Options{Policy: p, Nodes: []int{id}})
			if err := r.Degraded(); err != nil {
				t.Skip(err)
			}
			pl, err := r.Where(0, n)
			if err != nil {
				t.Skip(err)
			}
			if pl.Absent != pl.Pages || pl.Pages != n/pageSize {
				t.Errorf("before any touch: %+v", pl)
			}
			touch(r.Bytes())
			pl, err = r.Where(0, n)
			if err != nil || pl.OnNode[id] != n/pageSize || pl.Absent != 0 {
				t.Errorf("%v to node %d: %+v, %v", p, id, pl, err)
			}
			if err := r.Verify(0, n, id); err != nil {
				t.Error(err)
			}
			if err := r.Verify(0, n, id+1); err == nil || !strings.Contains(err.Error(), "are not on nodes") {
				t.Errorf("verified on the wrong node: %v", err)
			}
		}
	}
	r := alloc(t, n, Options{Policy: Interleave, Nodes: ids, SmallPages: true})
	touch(r.Bytes())
	pl, err := r.Where(0, n)
	if err != nil {
		t.Skip(err)
	}
	for _, id := range ids {
		if k := pl.OnNode[id]; k < n/pageSize/len(ids)-1 {
			t.Errorf("interleaved over %v: %d pages on node %d", ids, k, id)
		}
	}
	t.Logf("nodes %v, interleaved %v", ids, pl.OnNode)
}

// What cannot be had is said, and the memory works.
func TestDegraded(t *testing.T) {
	for _, c := range []struct {
		opt  Options
		want string
	}{
		{Options{Policy: Bind, Nodes: []int{999}}, "memory stays where it is touched first: mbind to nodes [999]"},
		{Options{Policy: Bind, Nodes: []int{-1}}, "memory node -1 is outside"},
		{Options{Policy: Bind, Nodes: []int{maxNodes}}, "memory node 1024 is outside"},
		{Options{Policy: Bind}, "policy bind with nodes []"},
		{Options{Policy: Prefer, Nodes: []int{0, 1}}, "policy prefer with nodes [0 1]"},
		{Options{Nodes: []int{0}}, "policy first-touch takes no nodes"},
		{Options{Policy: Policy(9)}, "there is no policy(9)"},
	} {
		r := alloc(t, HugePage, c.opt)
		if err := r.Degraded(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.opt, err, c.want)
		}
		touch(r.Bytes())
	}
}

func TestHugePages(t *testing.T) {
	if err := hugePagesOff(); err != nil {
		t.Skip(err)
	}
	r := alloc(t, 8*HugePage, Options{})
	if err := r.Degraded(); err != nil {
		t.Skip(err)
	}
	small := alloc(t, 8*HugePage, Options{SmallPages: true})
	touch(r.Bytes())
	touch(small.Bytes())
	if got := hugeBytes(t, small); got != 0 {
		t.Errorf("%d bytes in huge pages where none were asked for", got)
	}
	if got := hugeBytes(t, r); got == 0 {
		t.Skip("the kernel has no huge page to give at the moment")
	} else if got < 4*HugePage {
		t.Errorf("%d bytes of %d in huge pages", got, 8*HugePage)
	}
}

// hugeBytes is what /proc/self/smaps says of the mapping that a region begins.
func hugeBytes(t *testing.T, r *Region) int {
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	at := uint64(uintptr(unsafe.Pointer(&r.Bytes()[0])))
	inside := false
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if from, to, ok := strings.Cut(f[0], "-"); ok {
			a, err1 := strconv.ParseUint(from, 16, 64)
			z, err2 := strconv.ParseUint(to, 16, 64)
			if err1 == nil && err2 == nil {
				inside = a <= at && at < z
			}
		}
		if inside && f[0] == "AnonHugePages:" {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Skip("smaps does not show the region")
	return 0
}

// What numa_maps says of whole mappings, and that it says nothing of parts.
func TestByNumaMaps(t *testing.T) {
	page := uint64(pageSize)
	const start = 0x7f0000200000
	vma := func(from, pages uint64) string {
		return fmt.Sprintf("%x-%x rw-p 00000000 00:00 0\n", from, from+pages*page)
	}
	maps := "7f00001ff000-7f0000200000 rw-p 00000000 00:00 0 \n" + vma(start, 512) + vma(start+512*page, 512) + "7fff00000000-7fff00021000 rw-p 0 [stack]\n"
	counts := fmt.Sprintf("7f00001ff000 default anon=1 N7=1 kernelpagesize_kB=4\n%x bind:0 anon=512 dirty=512 N0=500 N1=12 kernelpagesize_kB=%d\n%x default anon=100 N1=100 kernelpagesize_kB=%d\n",
		uint64(start), pageSize>>10, start+512*page, pageSize>>10)
	pl, ok := byNumaMaps(start, 1024*pageSize, []byte(maps), []byte(counts))
	if !ok || pl.Pages != 1024 || pl.Absent != 412 || pl.OnNode[0] != 500 || pl.OnNode[1] != 112 || len(pl.OnNode) != 2 || pl.By != "numa_maps" {
		t.Errorf("%+v, %v", pl, ok)
	}
	for _, c := range [][2]int{{0, 1023}, {1, 1023}, {-2, 1026}, {512, 511}, {0, 1025}} {
		if pl, ok := byNumaMaps(uintptr(start+c[0]*pageSize), c[1]*pageSize, []byte(maps), []byte(counts)); ok {
			t.Errorf("pages %d and %d more: %+v", c[0], c[1], pl)
		}
	}
	huge := strings.ReplaceAll(counts, fmt.Sprintf("anon=512 dirty=512 N0=500 N1=12 kernelpagesize_kB=%d", pageSize>>10), "huge anon=1 N0=1 kernelpagesize_kB=2048")
	if pl, ok := byNumaMaps(start, 1024*pageSize, []byte(maps), []byte(huge)); !ok || pl.OnNode[0] != HugePage/pageSize {
		t.Errorf("pages of 2 MiB: %+v, %v", pl, ok)
	}
	// Both ways agree on this machine, where it has both.
	r := alloc(t, 3*HugePage, Options{Policy: FirstTouch})
	touch(r.Bytes()[:2*HugePage])
	b, _ := r.pages(0, r.n)
	want, err := byMovePages(b)
	if err != nil {
		t.Skip(err)
	}
	text, err1 := os.ReadFile("/proc/self/maps")
	told, err2 := os.ReadFile("/proc/self/numa_maps")
	if err1 != nil || err2 != nil {
		t.Skip(err1, err2)
	}
	got, ok := byNumaMaps(uintptr(unsafe.Pointer(&b[0])), len(b), text, told)
	if !ok {
		t.Skip("the mapping is a part of a larger one")
	}
	if got.Absent != want.Absent || fmt.Sprint(got.OnNode) != fmt.Sprint(want.OnNode) || want.Pages-want.Absent < 2*HugePage/pageSize {
		t.Errorf("numa_maps %+v, move_pages %+v", got, want)
	}
}
