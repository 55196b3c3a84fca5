package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ck/internal/humanize"
	"ck/internal/measure"
	"ck/internal/numa"
	"ck/internal/topo"
)

// pages compares memory in small pages with memory that asked for huge ones, used by one core, in the time of its thread: who else runs
// there does not count. Where huge pages are switched off it asks the kernel to make some of the pages that are there (Linux 6.1).
func (h *taking) pages(s *topo.Survey, cpus []int) error {
	if left, _ := s.Machine.Memory(); left < 8*pagesBytes {
		return errors.New("too little memory is free")
	}
	t, err := newTeam(cpus, 0)
	if err != nil {
		return err
	}
	defer t.Close()
	small, err := numa.Alloc(pagesBytes, numa.Options{SmallPages: true})
	if err != nil {
		return err
	}
	defer small.Free()
	huge, err := numa.Alloc(pagesBytes, numa.Options{})
	if err != nil {
		return err
	}
	defer huge.Free()
	var a, b PageRates
	share := 0.0
	err = t.Run(func(int) {
		if a.Touch = h.touch(small.Bytes()); h.slow {
			return
		}
		had := anonHuge()
		if b.Touch = h.touch(huge.Bytes()); h.slow {
			return
		}
		share = float64(anonHuge()-had) / pagesBytes
		if share < 0.5 && unix.Madvise(huge.Bytes(), unix.MADV_COLLAPSE) == nil {
			share, b.Touch = float64(anonHuge()-had)/pagesBytes, 0
		}
		for range 4 { // in turn, so that both see the same neighbours
			a.Read, b.Read = max(a.Read, readRate(small.Bytes())), max(b.Read, readRate(huge.Bytes()))
		}
		a.Jump, b.Jump = jump(small.Bytes()), jump(huge.Bytes())
	})
	if err != nil {
		return err
	}
	if h.slow {
		return errSlow
	}
	h.Small, h.HugeShare = a, max(0, share)
	if h.HugeShare < 0.1 {
		return fmt.Errorf("huge pages: the kernel gave none (transparent_hugepage/enabled is %s)", humanize.OrNot(s.Settings.THP))
	}
	h.Huge = b
	return nil
}

// errSlow is why memory is not measured where it is slow to come by: in an emulator, or where a hypervisor has to find it first.
var errSlow = errors.New("the first use of memory takes too long here")

// touch writes a byte of every page of 4 KiB and says how many seconds 1 GiB would take. It gives up, and sets slow, after slowTouch.
func (h *taking) touch(b []byte) float64 {
	start, used := time.Now(), threadTime()
	for i := 0; i < len(b); i += 4096 {
		if b[i] = 1; i%(1<<20) == 0 && time.Since(start) > slowTouch {
			h.slow = true
			return 0
		}
	}
	return (threadTime() - used) * (1 << 30) / float64(len(b))
}

// readRate reads all of b once, in bytes per second.
func readRate(b []byte) float64 {
	start := threadTime()
	measure.Touch(b)
	return float64(len(b)) / max(threadTime()-start, 1e-9)
}

// anonHuge is how many bytes of this process lie in transparent huge pages.
func anonHuge() int64 {
	for line := range strings.Lines(sysText("/proc/self/smaps_rollup")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "AnonHugePages:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// jump is the time in seconds from page to page of 4 KiB in random order, each step needing the one before. One line of each page is
// read, so that the caches hold all lines: what differs is how the address is found.
func jump(b []byte) float64 {
	n := len(b) / 4096
	at := func(page uint32) int { return int(page)*4096 + int(page)%64*64 }
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := n - 1; i > 0; i-- { // Sattolo's algorithm: one cycle of all pages
		j := rng.IntN(i)
		order[i], order[j] = order[j], order[i]
	}
	for i, next := range order {
		binary.NativeEndian.PutUint64(b[at(uint32(i)):], uint64(at(next)))
	}
	best, p := math.Inf(1), uint64(at(0))
	for range 3 {
		start := threadTime()
		for range n {
			p = binary.NativeEndian.Uint64(b[p:])
		}
		best = min(best, (threadTime()-start)/float64(n))
	}
	runtime.KeepAlive(p)
	return best
}

// threadTime is the time in seconds that the calling thread has run.
func threadTime() float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return float64(ts.Sec) + float64(ts.Nsec)/1e9
}
