package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Hang is how long a test waits for what comes at once before it calls that a hang: far beyond what anything takes on a busy machine. Time
// on the wall judges nothing else; what must be quick is judged by CPUTime, which other programs do not take part in.
const Hang = 3 * time.Minute

// CPUTime is the time that all threads of this process have spent on a CPU.
func CPUTime(t testing.TB) time.Duration { return cpuTime(t, unix.CLOCK_PROCESS_CPUTIME_ID) }

// ThreadCPUTime is the time that the calling thread has spent on a CPU; who compares two of them must hold the thread between
// (runtime.LockOSThread). What the collector and other goroutines do is not in it.
func ThreadCPUTime(t testing.TB) time.Duration { return cpuTime(t, unix.CLOCK_THREAD_CPUTIME_ID) }

func cpuTime(t testing.TB, clock int32) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// RunDelay is how long the living threads of a process were ready to run and waited for a CPU; 0 where the kernel does not count that.
func RunDelay(t testing.TB, pid int) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if f := strings.Fields(string(b)); err == nil && len(f) == 3 { // on a CPU, waiting for one, slices
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatalf("%s: %q", name, b)
			}
			sum += time.Duration(n)
		}
	}
	return sum
}

// Stolen is how long the hypervisor has kept CPUs of this machine from what was ready to run there, all together, in steps of 10 ms: the
// eighth number of the first line of /proc/stat (proc(5)); 0 where there is none.
func Stolen() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(b), "\n")
	if f := strings.Fields(line); err == nil && len(f) > 8 {
		ticks, _ := strconv.ParseInt(f[8], 10, 64)
		return time.Duration(ticks) * 10 * time.Millisecond
	}
	return 0
}
