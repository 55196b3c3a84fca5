package team

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ck/internal/team/internal/readloop"
	"ck/internal/testkit"
)

// cpusFor deals n workers to the CPUs that this process may use, several to one where there are fewer.
func cpusFor(t testing.TB, n int) []int {
	t.Helper()
	var m cpuMask
	if _, err := m.get(); err != nil {
		t.Fatal(err)
	}
	var all []int
	for cpu := range maxCPUs {
		if m[cpu/64]>>(cpu%64)&1 == 1 {
			all = append(all, cpu)
		}
	}
	cpus := make([]int, n)
	for i := range cpus {
		cpus[i] = all[i%len(all)]
	}
	return cpus
}

func newTeam(t testing.TB, n int, opt Options) *Team {
	t.Helper()
	procs := runtime.GOMAXPROCS(0)
	tm, err := New(cpusFor(t, n), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tm.Close()
		runtime.GOMAXPROCS(procs)
	})
	return tm
}

// paddedCounter is a plain number: only the barrier orders the accesses to it.
type paddedCounter struct {
	n int
	_ [120]byte
}

// stress lets every worker count, and after each barrier checks that all others counted as far.
func stress(t *testing.T, tm *Team, rounds int) {
	t.Helper()
	stressUntil(t, tm, rounds, func(i int) bool { return i == rounds })
}

// stressUntil does so until enough(rounds) is true, or for most rounds, and returns their number.
func stressUntil(t *testing.T, tm *Team, most int, enough func(rounds int) bool) (rounds int) {
	t.Helper()
	n := tm.Size()
	counters := make([]paddedCounter, n)
	var wrong atomic.Int64
	last := most // worker 0 writes it before a barrier
	err := tm.Run(func(w int) {
		for i := 1; i <= most; i++ {
			counters[w].n = i
			if w == 0 && enough(i) {
				last = i
			}
			if !tm.Barrier(w) {
				return
			}
			for v := range counters {
				if counters[v].n != i {
					wrong.Add(1)
				}
			}
			end := i == last
			if !tm.Barrier(w) || end {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for w := range counters {
		if counters[w].n != last {
			t.Errorf("worker %d ended at round %d of %d", w, counters[w].n, last)
		}
	}
	if k := wrong.Load(); k != 0 {
		t.Errorf("%d times a barrier opened too early", k)
	}
	return last
}

// A worker that breaks the barrier takes all others with it: Run ends without an error, and the next one starts clean.
func TestBreak(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		tm := newTeam(t, n, Options{})
		for round := range 200 {
			var passed atomic.Int64
			err := tm.Run(func(w int) {
				for i := 0; ; i++ {
					if w == round%n && i == round%7 {
						tm.Break()
						return
					}
					if !tm.Barrier(w) {
						return
					}
					passed.Add(1)
				}
			})
			// Others may still be on their way out of the last barrier that was complete.
			if p, r := int(passed.Load()), round%7; err != nil || p < r+max(r-1, 0)*(n-1) || p > r*n {
				t.Fatalf("%d workers, round %d: %v, barriers passed %d times", n, round, err, p)
			}
		}
		stress(t, tm, 100)
	}
}

// collectGarbage runs the collector over and over until stop is called; n is how often it did.
func collectGarbage() (n *atomic.Int64, stop func()) {
	var wg sync.WaitGroup
	done := make(chan bool)
	n = new(atomic.Int64)
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
				n.Add(1)
			}
		}
	}()
	return n, func() { close(done); wg.Wait() }
}

func TestBarrierStress(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for _, opt := range []Options{{Pin: true}, {Pin: false}, {Pin: true, SpinMicros: -1}, {Pin: true, SpinMicros: 1}} {
			// Workers that share a CPU or never spin need the kernel for every barrier, about 10 us each.
			rounds := 5000
			if n <= 2 && opt.SpinMicros == 0 && len(cpusFor(t, n)) <= runtime.NumCPU() {
				rounds = 50000
			}
			if testing.Short() || raceEnabled {
				rounds /= 10
			}
			t.Run(fmt.Sprintf("workers=%d/pin=%v/spin=%d", n, opt.Pin, opt.SpinMicros), func(t *testing.T) {
				stress(t, newTeam(t, n, opt), rounds)
			})
		}
	}
}

// While workers do nothing but wait for each other, the collector gets on: three times within one Run. (Rounds are counted, since on a
// busy machine time passes without either of them.)
func TestBarrierWithGC(t *testing.T) {
	for n := 1; n <= 3; n++ {
		tm := newTeam(t, n, Options{Pin: true})
		gcs, stop := collectGarbage()
		before := gcs.Load()
		most := []int{0, 1e8, 1e7, 1e6}[n] // some seconds: a round takes 50 ns alone, 0.3 us for two, 10 us where CPUs are shared
		rounds := stressUntil(t, tm, most, func(i int) bool { return i >= 5000 && gcs.Load()-before >= 3 })
		if n := gcs.Load() - before; n < 3 {
			t.Errorf("%d workers: only %d collections in %d rounds", tm.Size(), n, rounds)
		}
		stop()
		t.Logf("%d workers: %d rounds, %d collections", n, rounds, gcs.Load())
	}
}

// A worker that spins for long must not keep the collector waiting for its partner: the partner is stopped by the collector, and the
// spinner has to stop, too.
func TestSpinningDoesNotBlockGC(t *testing.T) {
	tm := newTeam(t, 2, Options{Pin: true, SpinMicros: 1e6})
	start := testkit.CPUTime(t)
	defer func() {
		if d := testkit.CPUTime(t) - start; d > 2500*time.Millisecond { // a blocked collection takes the whole second of spinning
			t.Errorf("five collections took %v of CPU time", d)
		}
	}()
	for range 5 {
		err := tm.Run(func(w int) {
			if w == 0 {
				runtime.GC() // stops the world while worker 1 spins at the barrier
			}
			tm.Barrier(w)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// With preemption by signals switched off everything must work by Safepoint alone.
func TestWithoutAsyncPreemption(t *testing.T) {
	if os.Getenv("CK_TEAM_CHILD") != "" {
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^(TestBarrierWithGC|TestSpinningDoesNotBlockGC|TestSafepoint)$", "-test.timeout="+testkit.Hang.String())
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "CK_TEAM_CHILD=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSafepoint(t *testing.T) {
	var stop atomic.Bool
	done := make(chan bool)
	go func() {
		defer close(done)
		for !stop.Load() {
			readloop.XOR(unsafe.Pointer(&[1]uint64{}), 1)
			Safepoint()
		}
	}()
	start := testkit.CPUTime(t)
	for range 5 {
		runtime.GC()
	}
	if d := testkit.CPUTime(t) - start; d > 5*time.Second {
		t.Errorf("five collections beside a loop with safepoints took %v of CPU time", d)
	}
	stop.Store(true)
	<-done
}

func TestRunAllocatesNothing(t *testing.T) {
	for _, pin := range []bool{true, false} {
		tm := newTeam(t, 2, Options{Pin: pin})
		sum := [2]paddedCounter{}
		f := func(w int) {
			sum[w].n++
			tm.Barrier(w)
		}
		if a := testing.AllocsPerRun(1000, func() {
			if tm.Run(f) != nil {
				t.Error("run failed")
			}
		}); a != 0 && !raceEnabled {
			t.Errorf("pin %v: %v allocations per Run", pin, a)
		}
		if sum[0].n != sum[1].n || sum[0].n < 1000 {
			t.Errorf("the workers ran %d and %d times", sum[0].n, sum[1].n)
		}
	}
}

// cpuNow is the CPU that the calling thread runs on.
func cpuNow(t testing.TB) int {
	var cpu uint32
	if _, _, e := syscall.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); e != 0 {
		t.Error(e)
	}
	return int(cpu)
}

func TestPinning(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after cpuMask
	before.get()
	cpus := cpusFor(t, 2)
	slices.Reverse(cpus)
	tm, err := New(cpus, Options{Pin: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		var got [2]int
		var tids [2]int
		if err := tm.Run(func(w int) { got[w], tids[w] = cpuNow(t), syscall.Gettid() }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got[:], cpus) {
			t.Errorf("the workers ran on CPUs %v, not %v", got, cpus)
		}
		if tids[0] == tids[1] || tids[0] != syscall.Gettid() {
			t.Errorf("worker threads %v, caller %d", tids, syscall.Gettid())
		}
	}
	after.get()
	if before != after {
		t.Errorf("the caller's mask was %b, is %b", before[0], after[0])
	}
	tm.Close()
	tm.Close()
	if err := tm.Run(func(int) {}); !errors.Is(err, ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
}

func TestHold(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, held, after cpuMask
	before.get()
	for _, pin := range []bool{true, false} {
		tm := newTeam(t, 2, Options{Pin: pin})
		release := tm.Hold()
		for range 10 {
			stress(t, tm, 10)
			held.get()
			if held.isOnly(tm.CPUs()[0]) != pin {
				t.Errorf("pin %v: the mask between Runs is %b", pin, held[0])
			}
		}
		release()
		after.get()
		if before != after {
			t.Errorf("pin %v: the mask was %b, is %b", pin, before[0], after[0])
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		cpus []int
		want string
	}{
		{nil, "no CPUs"},
		{[]int{-1}, "CPU -1 is outside"},
		{[]int{0, maxCPUs}, fmt.Sprintf("CPU %d is outside", maxCPUs)},
		{[]int{8191}, "worker 0 cannot be pinned to CPU 8191"},
		{[]int{cpusFor(t, 1)[0], 8190}, "worker 1 cannot be pinned to CPU 8190"},
	} {
		tm, err := New(c.cpus, Options{Pin: true})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%v): %v, want %q", c.cpus, err, c.want)
		}
		if tm != nil {
			t.Errorf("New(%v) returned a team", c.cpus)
		}
	}
}

func TestCloseEndsThreads(t *testing.T) {
	threads := func() int {
		d, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Skip(err)
		}
		return len(d)
	}
	tm := newTeam(t, 4, Options{Pin: true})
	var tids [4]int
	if err := tm.Run(func(w int) { tids[w] = syscall.Gettid() }); err != nil {
		t.Fatal(err)
	}
	tm.Close()
	deadline := time.Now().Add(testkit.Hang)
	for w := 1; w < 4; w++ {
		for {
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tids[w])); err != nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("thread %d of worker %d is still there, %d threads", tids[w], w, threads())
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func TestGOMAXPROCS(t *testing.T) {
	old := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
	newTeam(t, 3, Options{})
	if g := runtime.GOMAXPROCS(0); g != 5 {
		t.Errorf("GOMAXPROCS is %d, want 5", g)
	}
	newTeam(t, 1, Options{})
	if g := runtime.GOMAXPROCS(0); g != 5 {
		t.Errorf("a small team changed GOMAXPROCS to %d", g)
	}
}

func TestWhoSpins(t *testing.T) {
	for _, c := range []struct {
		cpus []int
		opt  Options
		want string // s spins, p parks at once
	}{
		{[]int{0, 1}, Options{Pin: true}, "ss"},
		{[]int{0, 1}, Options{Pin: true, SpinMicros: -1}, "pp"},
		{[]int{0, 1, 2, 3}, Options{Pin: true, Quota: 2}, "sspp"},
		{[]int{0, 1, 1}, Options{Pin: true}, "spp"},
		{make([]int, runtime.NumCPU()+1), Options{}, strings.Repeat("p", runtime.NumCPU()+1)},
		{make([]int, runtime.NumCPU()), Options{}, strings.Repeat("s", runtime.NumCPU())},
		{make([]int, runtime.NumCPU()), Options{Quota: 1}, "s" + strings.Repeat("p", runtime.NumCPU()-1)},
	} {
		got := ""
		for _, r := range spinRounds(c.cpus, c.opt) {
			got += string("ps"[min(r, 1)])
		}
		if got != c.want {
			t.Errorf("%v %+v: %s, want %s", c.cpus, c.opt, got, c.want)
		}
	}
}

// Waiting workers must not burn CPU: at a barrier, between Runs, and the caller at the end of a Run.
func TestWaitingParks(t *testing.T) {
	tm := newTeam(t, 3, Options{Pin: true})
	const nap = 300 * time.Millisecond
	sleeper := func(who int, barrier bool) func(int) {
		return func(w int) {
			if w == who {
				time.Sleep(nap)
			}
			if barrier {
				tm.Barrier(w)
			}
		}
	}
	for name, f := range map[string]func() error{
		"barrier, worker 0 late": func() error { return tm.Run(sleeper(0, true)) },
		"barrier, worker 2 late": func() error { return tm.Run(sleeper(2, true)) },
		"end, worker 1 late":     func() error { return tm.Run(sleeper(1, false)) },
		"between Runs":           func() error { time.Sleep(nap); return nil },
	} {
		runtime.GC()
		before := testkit.CPUTime(t)
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if used := testkit.CPUTime(t) - before; used > nap/5 {
			t.Errorf("%s: %v of CPU used in %v", name, used, nap)
		}
	}
}

// truncated maps a file of the given size, and cuts the file off behind its first page.
func truncated(t testing.TB, size int) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	if err := f.Truncate(int64(syscall.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	return b
}

var sink atomic.Uint64

// ways to fail, and what must come out.
func failures(t *testing.T) map[string]struct {
	do    func()
	check func(w int, err error) error
} {
	page := syscall.Getpagesize()
	b := truncated(t, 16*page)
	isFault := func(w int, err error) error {
		var f *Fault
		var re runtime.Error
		if !errors.As(err, &f) || !errors.As(err, &re) {
			return fmt.Errorf("no fault: %v", err)
		}
		base := uintptr(unsafe.Pointer(&b[0]))
		if f.Worker != w || f.Addr < base+uintptr(page) || f.Addr >= base+uintptr(len(b)) || len(f.Stack) == 0 {
			return fmt.Errorf("worker %d, address %#x for a mapping of %#x at %#x", f.Worker, f.Addr, len(b), base)
		}
		return nil
	}
	boom := errors.New("boom")
	return map[string]struct {
		do    func()
		check func(w int, err error) error
	}{
		"fault in Go":                      {func() { sink.Add(uint64(b[5*page+7])) }, isFault},
		"fault in the library's assembly":  {func() { sink.Add(uint64(bytes.Count(b, []byte{1}))) }, isFault},
		"fault in the runtime's memmove":   {func() { copy(make([]byte, len(b)), b) }, isFault},
		"fault in assembly of a kernel":    {func() { sink.Add(readloop.XOR(unsafe.Pointer(&b[0]), len(b)/8)) }, isFault},
		"fault in the kernel's first load": {func() { sink.Add(readloop.XOR(unsafe.Pointer(&b[9*page]), 1)) }, isFault},
		"panic with an error": {func() { panic(boom) }, func(w int, err error) error {
			var p *Panic
			if !errors.As(err, &p) || p.Worker != w || !errors.Is(err, boom) || !bytes.Contains(p.Stack, []byte("team_test.go")) {
				return fmt.Errorf("not the panic: %v", err)
			}
			return nil
		}},
		"index out of range": {func() { sink.Add(uint64(b[len(b)+int(sink.Load()>>63):][0])) }, func(w int, err error) error {
			var p *Panic
			var f *Fault
			if !errors.As(err, &p) || errors.As(err, &f) || p.Worker != w || !strings.HasPrefix(err.Error(), "internal error: worker") {
				return fmt.Errorf("not the panic: %v", err)
			}
			return nil
		}},
		"nil pointer": {func() { sink.Add(uint64((*paddedCounter)(nil).n)) }, func(w int, err error) error {
			var p *Panic
			if !errors.As(err, &p) || p.Worker != w {
				return fmt.Errorf("not the panic: %v", err)
			}
			return nil
		}},
	}
}

// Every worker fails in every phase in every way; the others are never left hanging, and the team goes on working.
func TestFailures(t *testing.T) {
	const phases = 3
	for name, c := range failures(t) {
		for n := 1; n <= 4; n++ {
			tm := newTeam(t, n, Options{Pin: true})
			for who := range n {
				for phase := range phases {
					var passed [4]int
					err := tm.Run(func(w int) {
						for p := range phases {
							if w == who && p == phase {
								c.do()
							}
							if p < phases-1 && !tm.Barrier(w) {
								return
							}
							passed[w]++
						}
					})
					if e := c.check(who, err); e != nil {
						t.Fatalf("%s, worker %d of %d, phase %d: %v", name, who, n, phase, e)
					}
					for w := range n {
						if w == who && passed[w] != phase || w != who && phase < phases-1 && passed[w] > phase {
							t.Fatalf("%s, worker %d of %d, phase %d: phases passed %v", name, who, n, phase, passed)
						}
					}
					stress(t, tm, 10)
				}
			}
			tm.Close()
		}
	}
}

// All fail at once: one failure is reported.
func TestAllFail(t *testing.T) {
	tm := newTeam(t, 3, Options{Pin: true})
	for range 200 {
		var p *Panic
		if err := tm.Run(func(w int) { tm.Barrier(w); panic(w) }); !errors.As(err, &p) || p.Value != p.Worker {
			t.Fatalf("got %v", err)
		}
	}
	stress(t, tm, 100)
}

func TestGoexitInWorker(t *testing.T) {
	tm := newTeam(t, 3, Options{Pin: true})
	for range 20 {
		var p *Panic
		err := tm.Run(func(w int) {
			if w == 1 {
				runtime.Goexit()
			}
			tm.Barrier(w)
		})
		if !errors.As(err, &p) || p.Worker != 1 || !strings.Contains(err.Error(), "Goexit") {
			t.Fatalf("got %v", err)
		}
		stress(t, tm, 10)
	}
}

func TestGoexitInCaller(t *testing.T) {
	tm := newTeam(t, 2, Options{Pin: true})
	done := make(chan bool)
	go func() {
		defer close(done)
		tm.Run(func(w int) {
			if w == 0 {
				runtime.Goexit()
			}
			tm.Barrier(w)
		})
		t.Error("Run returned after Goexit")
	}()
	<-done
	stress(t, tm, 10)
}

// A worker that returns while others wait for it is an error, not a hang.
func TestBarrierLeftOut(t *testing.T) {
	for n := 2; n <= 4; n++ {
		tm := newTeam(t, n, Options{Pin: true})
		for who := range n {
			for _, late := range []time.Duration{0, 2 * time.Millisecond} {
				err := tm.Run(func(w int) {
					tm.Barrier(w)
					if w == who {
						time.Sleep(late)
						return
					}
					if tm.Barrier(w) {
						t.Error("a barrier without everyone opened")
					}
				})
				if !errors.Is(err, ErrLeft) {
					t.Fatalf("worker %d of %d left: %v", who, n, err)
				}
				stress(t, tm, 10)
			}
		}
	}
}

// Workers may end at different times when no barrier follows.
func TestUnevenEnds(t *testing.T) {
	tm := newTeam(t, 3, Options{Pin: true})
	for i := range 3000 {
		if err := tm.Run(func(w int) {
			tm.Barrier(w)
			if w == i%3 {
				for range i % 50 {
					Safepoint()
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// The fault handling of the caller's goroutine is its own affair before and after a Run.
func TestPanicOnFaultIsRestored(t *testing.T) {
	tm := newTeam(t, 1, Options{})
	if err := tm.Run(func(int) {}); err != nil {
		t.Fatal(err)
	}
	if debug.SetPanicOnFault(false) {
		t.Error("SetPanicOnFault is still on")
	}
	debug.SetPanicOnFault(true)
	tm.Run(func(int) {})
	if !debug.SetPanicOnFault(false) {
		t.Error("SetPanicOnFault was switched off")
	}
}

func TestConcurrentRuns(t *testing.T) {
	tm := newTeam(t, 2, Options{Pin: true})
	var running, most atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 100 {
				err := tm.Run(func(w int) {
					most.Store(max(most.Load(), running.Add(1)))
					tm.Barrier(w)
					tm.Barrier(w)
					running.Add(-1)
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	if most.Load() > 2 {
		t.Errorf("%d workers of a team of two ran at once", most.Load())
	}
}

// BenchmarkBarrier is the cost of one barrier; with 2 pinned workers it should be below 0.2 us.
func BenchmarkBarrier(b *testing.B) {
	for n := 1; n <= 4; n++ {
		for _, spin := range []int{0, -1} {
			b.Run(fmt.Sprintf("workers=%d/spin=%d", n, spin), func(b *testing.B) {
				tm := newTeam(b, n, Options{Pin: true, SpinMicros: spin})
				b.ResetTimer()
				tm.Run(func(w int) {
					for range b.N {
						tm.Barrier(w)
					}
				})
			})
		}
	}
}

// BenchmarkRun is the cost of an empty Run while the workers still spin.
func BenchmarkRun(b *testing.B) {
	for n := 1; n <= 2; n++ {
		for _, mode := range []string{"free", "pin", "hold"} {
			b.Run(fmt.Sprintf("workers=%d/%s", n, mode), func(b *testing.B) {
				tm := newTeam(b, n, Options{Pin: mode != "free"})
				if mode == "hold" {
					defer tm.Hold()()
				}
				f := func(int) {}
				b.ResetTimer()
				for range b.N {
					tm.Run(f)
				}
			})
		}
	}
}

func BenchmarkSafepoint(b *testing.B) {
	for range b.N {
		Safepoint()
	}
}
