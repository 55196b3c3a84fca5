package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ck/internal/team"
)

// Counts are hardware events of all workers in user mode.
type Counts struct {
	Instructions float64 `json:"instructions"`
	Cycles       float64 `json:"cycles"`
	CacheMisses  float64 `json:"cache_misses"` // of the last level, as far as the CPU counts it
}

// Counters counts hardware events of a team's threads through perf_event_open(2).
type Counters struct {
	fds [][]int // of each worker: instructions (the group's leader), cycles, cache misses
}

// perfEvent is what perf_event_open calls type and config.
type perfEvent struct {
	typ    uint32
	config uint64
}

var perfEvents = [3]perfEvent{{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS}, {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES}}

// NewCounters starts counting. Worker 0's counter belongs to the calling thread, which must be held (team.Hold). Where the system
// does not allow or have it, the error says so in a few words.
func NewCounters(t *team.Team) (*Counters, error) {
	c := &Counters{fds: make([][]int, t.Size())}
	errs := make([]error, t.Size())
	if err := t.Run(func(w int) { c.fds[w], errs[w] = openEvents() }); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for _, err := range errs {
		if err != nil {
			c.Close()
			return nil, perfReason(err)
		}
	}
	// Opening says little: some virtual machines let it happen and count nothing, and others may hold the counters.
	if err := t.Run(func(int) { burn() }); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	n, err := c.Read()
	if err == nil && n.Instructions == 0 {
		err = errors.New("hardware counters stand still (virtual machines may offer them and count nothing)")
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// burn takes about 100 us.
func burn() {
	for start := time.Now(); time.Since(start) < 100*time.Microsecond; {
	}
}

// openEvents opens the group of events for the calling thread.
func openEvents() (fds []int, err error) {
	leader := -1
	for _, e := range perfEvents {
		a := unix.PerfEventAttr{Type: e.typ, Config: e.config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
			Bits:        unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
		fd, err := unix.PerfEventOpen(&a, 0, -1, leader, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			for _, f := range fds {
				unix.Close(f)
			}
			return nil, err
		}
		if leader < 0 {
			leader = fd
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// perfReason says what an errno of perf_event_open means for the user.
func perfReason(err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("hardware counters are not allowed (%w; sysctl kernel.perf_event_paranoid=2, or the container forbids it)", err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("this machine has no hardware counters (%w; virtual machines often have none)", err)
	}
	return fmt.Errorf("hardware counters: %w", err)
}

// Read is what was counted since the start. Where the CPU has fewer counters than are wanted of it, by us or by others, the kernel lets
// them take turns; what was counted stands for all of the time then.
func (c *Counters) Read() (Counts, error) {
	var sum [3]float64
	for _, fds := range c.fds {
		for i, fd := range fds {
			var b [24]byte // count, time enabled, time running
			switch n, err := unix.Read(fd, b[:]); {
			case err != nil:
				return Counts{}, fmt.Errorf("hardware counters: %w", err)
			case n != len(b):
				return Counts{}, fmt.Errorf("hardware counters: %d bytes were read, not %d", n, len(b))
			}
			sum[i] += scaled(binary.NativeEndian.Uint64(b[:]), binary.NativeEndian.Uint64(b[8:]), binary.NativeEndian.Uint64(b[16:]))
		}
	}
	return Counts{sum[0], sum[1], sum[2]}, nil
}

// scaled extends a count of the running time to the time enabled; zero if it never ran.
func scaled(count, enabled, running uint64) float64 {
	if running == 0 {
		return 0
	}
	return float64(count) * (float64(enabled) / float64(running))
}

// Minus is the difference of two readings.
func (a Counts) Minus(b Counts) Counts {
	return Counts{a.Instructions - b.Instructions, a.Cycles - b.Cycles, a.CacheMisses - b.CacheMisses}
}

// Close ends the counting.
func (c *Counters) Close() error {
	var err error
	for _, fds := range c.fds {
		for _, fd := range fds {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	c.fds = nil
	return err
}
