package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
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

var perfEvents = []uint64{unix.PERF_COUNT_HW_INSTRUCTIONS, unix.PERF_COUNT_HW_CPU_CYCLES, unix.PERF_COUNT_HW_CACHE_MISSES}

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
	return c, nil
}

// openEvents opens the group of events for the calling thread.
func openEvents() (fds []int, err error) {
	leader := -1
	for _, e := range perfEvents {
		a := unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: e, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
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

// Read is what was counted since the start.
func (c *Counters) Read() (Counts, error) {
	var sum [3]float64
	for _, fds := range c.fds {
		for i, fd := range fds {
			var b [8]byte
			if n, err := unix.Read(fd, b[:]); err != nil || n != 8 {
				return Counts{}, fmt.Errorf("hardware counters: read %d bytes: %w", n, err)
			}
			sum[i] += float64(binary.NativeEndian.Uint64(b[:]))
		}
	}
	return Counts{sum[0], sum[1], sum[2]}, nil
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
