package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Noise is what disturbed a span of time.
type Noise struct {
	Steal       float64 `json:"steal_share"` // of all CPUs' time, taken by the hypervisor
	OtherLoad   float64 `json:"other_cpus"`  // CPUs' worth of work by other processes
	MajorFaults int64   `json:"major_faults"`
	MinorFaults int64   `json:"minor_faults"`
	Preempted   int64   `json:"involuntary_switches"`
}

// Watch notes the counters of the system at the beginning of a span.
type Watch struct {
	at          time.Time
	all, steal  int64 // ticks of all CPUs, idle ones too
	busy        int64 // ticks of user, nice, system, interrupts
	own         time.Duration
	usage       unix.Rusage
	ticksPerSec float64
}

// StartWatch begins a span.
func StartWatch() Watch {
	w := Watch{at: time.Now(), ticksPerSec: 100} // USER_HZ is 100 on all Linux ports of Go
	w.all, w.busy, w.steal = cpuTicks(sysText("/proc/stat"))
	w.usage, w.own = ownUsage()
	return w
}

// Stop is what happened since the start.
func (w Watch) Stop() Noise {
	all, busy, steal := cpuTicks(sysText("/proc/stat"))
	usage, own := ownUsage()
	span := time.Since(w.at).Seconds()
	n := Noise{MajorFaults: int64(usage.Majflt - w.usage.Majflt), MinorFaults: int64(usage.Minflt - w.usage.Minflt),
		Preempted: int64(usage.Nivcsw - w.usage.Nivcsw)}
	if d := all - w.all; d > 0 {
		n.Steal = float64(steal-w.steal) / float64(d)
	}
	if span > 0 {
		// A tick is 10 ms: spans of less than a tenth of a second say little, and rounding must not look like load.
		others := float64(busy-w.busy)/w.ticksPerSec - (own - w.own).Seconds()
		if others > 0.03 {
			n.OtherLoad = others / span
		}
	}
	return n
}

// Together is what disturbed several spans of about the same length: shares on average, faults in all.
func Together(list []Noise) Noise {
	var t Noise
	for _, n := range list {
		t.Steal += n.Steal / float64(len(list))
		t.OtherLoad += n.OtherLoad / float64(len(list))
		t.MajorFaults += n.MajorFaults
		t.MinorFaults += n.MinorFaults
		t.Preempted += n.Preempted
	}
	return t
}

// Reasons names what may have made a span slow.
func (n Noise) Reasons() []string {
	var out []string
	if n.MajorFaults > 0 {
		out = append(out, fmt.Sprintf("%d pages read from disk", n.MajorFaults))
	}
	if n.Steal > 0.005 {
		out = append(out, fmt.Sprintf("steal %.1f %%", n.Steal*100))
	}
	if n.OtherLoad > 0.05 {
		out = append(out, fmt.Sprintf("other processes on %.2f CPUs", n.OtherLoad))
	}
	return out
}

// cpuTicks adds up the first line of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal, then guest times that
// user and nice contain already.
func cpuTicks(stat string) (all, busy, steal int64) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	for i := 1; i < len(f) && i <= 8; i++ {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, 0, 0
		}
		all += n
		switch i {
		case 4, 5:
		case 8:
			steal = n
		default:
			busy += n
		}
	}
	return all, busy, steal
}

// ownUsage is what this process has used.
func ownUsage() (unix.Rusage, time.Duration) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return u, 0
	}
	return u, time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sysText is the content of a small file of the kernel, "" if there is none.
func sysText(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
