package measure

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ck/internal/numa"
	"ck/internal/team"
)

// counters opens counters of software events in place of those of the hardware, which few test machines have: nanoseconds of CPU time,
// page faults, switches.
func counters(t *testing.T, workers int) (*Counters, *team.Team) {
	t.Helper()
	hardware := perfEvents
	t.Cleanup(func() { perfEvents = hardware })
	perfEvents = [3]perfEvent{{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK}, {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS},
		{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES}}
	tm, err := team.New(make([]int, workers), team.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tm.Close)
	t.Cleanup(tm.Hold())
	c, err := NewCounters(tm)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, tm
}

// Events of all workers are counted, and no others: each touches new pages.
func TestCountersOfSoftware(t *testing.T) {
	for _, workers := range []int{1, 3} {
		c, tm := counters(t, workers)
		const pages = 500
		mem := make([][]byte, workers+1)
		for i := range mem {
			r, err := numa.Alloc(pages*unix.Getpagesize(), numa.Options{SmallPages: true})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Free()
			mem[i] = r.Bytes()
		}
		touch := func(b []byte) {
			for i := 0; i < len(b); i += unix.Getpagesize() {
				b[i] = 1
			}
		}
		before, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan bool)
		go func() { touch(mem[workers]); close(done) }() // another thread
		<-done
		if err := tm.Run(func(w int) { touch(mem[w]) }); err != nil {
			t.Fatal(err)
		}
		after, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		n := after.Minus(before)
		if faults, want := n.Cycles, float64(workers*pages); faults < want || faults > want+pages/2 {
			t.Errorf("%d workers: %g page faults, want %g", workers, faults, want)
		}
		if n.Instructions <= 0 || n.Instructions > 1e10 {
			t.Errorf("%d workers: %g ns of CPU time", workers, n.Instructions)
		}
	}
	if got := scaled(300, 1000, 250); got != 1200 {
		t.Errorf("a quarter of the time makes %g of 300", got)
	}
	if got := scaled(0, 1000, 0); got != 0 {
		t.Errorf("never running makes %g", got)
	}
}

// Events that never happen are no counters, and what the system refuses is said in words.
func TestCountersThatStandStill(t *testing.T) {
	_, tm := counters(t, 1)
	perfEvents[0].config = unix.PERF_COUNT_SW_EMULATION_FAULTS
	if c, err := NewCounters(tm); err == nil || !strings.Contains(err.Error(), "stand still") {
		t.Errorf("%v, %v", c, err)
	}
	perfEvents[0].config = 1 << 40 // there is no such event
	if c, err := NewCounters(tm); err == nil || !strings.HasPrefix(err.Error(), "hardware counters: ") && !strings.HasPrefix(err.Error(), "this machine has no") {
		t.Errorf("%v, %v", c, err)
	}
	for errno, want := range map[unix.Errno]string{unix.EACCES: "not allowed", unix.EPERM: "not allowed", unix.ENOENT: "has no hardware counters",
		unix.EMFILE: "too many open files"} {
		if err := perfReason(errno); !errors.Is(err, errno) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
