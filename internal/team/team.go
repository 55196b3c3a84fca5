// Package team runs one function on several OS threads at once, with barriers between its phases.
//
// Workers are goroutines locked to threads that are pinned to CPUs. Who waits spins for about 50 µs and then sleeps on a futex: a
// barrier of two spinning threads costs about 0.1 µs, waking a sleeper 5 to 50 µs. The garbage collector is never kept waiting by a
// spinning worker (Safepoint). A panic or memory fault in one worker ends the Run with an error, and the others do not hang.
package team

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"ck/asm/clone"
	"ck/asm/pause"
)

// Options for New. The zero value means: spin 50 µs, do not pin, no quota.
type Options struct {
	SpinMicros int  // how long a waiting worker spins before it sleeps; 0: 50, negative: never
	Pin        bool // pin worker w to cpus[w]
	Quota      int  // CPUs' worth of time that the process may use, 0: no limit; workers w >= Quota never spin

	// Homes is the number of homes, to which workers are dealt in equal numbers, the first ones first (HomeOf); Places is how many of them in a
	// row are one member. 0: 1. See Team.Meet.
	Homes, Places int
}

const spinMicrosDefault = 50

// ErrClosed is what Run returns after Close.
var ErrClosed = errors.New("team: closed")

// ErrLeft is what Run returns when a worker waited at a barrier although another one had already returned from f.
var ErrLeft = errors.New("internal error: a worker waits at a barrier that another one has left out")

// A Fault is a memory fault in a worker's function: an address that is not mapped, or a page of a mapped file that the file no longer
// has or cannot be read. Who knows which file lies at Addr can say more.
type Fault struct {
	Worker int
	Addr   uintptr
	Err    error // the runtime's error
	Stack  []byte
}

func (f *Fault) Error() string {
	return fmt.Sprintf("worker %d: memory fault at address %#x", f.Worker, f.Addr)
}
func (f *Fault) Unwrap() error { return f.Err }

// A Panic is any other panic in a worker's function, a call of runtime.Goexit among them: an error in the program.
type Panic struct {
	Worker int
	Value  any
	Stack  []byte
}

func (p *Panic) Error() string {
	return fmt.Sprintf("internal error: worker %d: %v", p.Worker, p.Value)
}

// Unwrap is the panic's value if that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// A Team is a fixed number of workers. Worker 0 is the goroutine that calls Run, for the time of the call; the others are threads that
// wait between Runs. All methods but Barrier may be called by any goroutine outside of a Run.
type Team struct {
	cpus   []int
	pin    bool
	rounds []int // how many PAUSEs worker w spins before it sleeps

	runMu  sync.Mutex // one Run at a time
	closed bool
	alive  sync.WaitGroup // the threads
	f      func(w int)    // what the current Run runs
	saved  cpuMask        // the mask of the thread that calls Run

	errMu sync.Mutex
	err   error // the first failure of the current Run

	_    [128]byte
	bar  *barrier
	jobs word // counts Runs
	left word // workers other than 0 that have not yet finished the current Run
}

// New starts len(cpus) workers. With opt.Pin worker w runs on CPU cpus[w], and a CPU that cannot be used is an error; several workers on
// one CPU are allowed and do not spin. New raises GOMAXPROCS to len(cpus)+2 if it is lower: with fewer, every other goroutine would
// wait for the scheduler's 10 ms slices while workers spin.
func New(cpus []int, opt Options) (*Team, error) {
	n := len(cpus)
	if n == 0 {
		return nil, errors.New("team: no CPUs to work on")
	}
	t := &Team{cpus: append([]int(nil), cpus...), pin: opt.Pin, rounds: spinRounds(cpus, opt)}
	homes, places := max(1, opt.Homes), max(1, opt.Places)
	if homes > n || homes%places != 0 {
		return nil, fmt.Errorf("internal error: %d workers for %d homes, %d a member", n, homes, places)
	}
	size := make([]int, homes)
	for h := range size {
		size[h] = n*(h+1)/homes - n*h/homes
	}
	t.bar = newBarrier(size, places)
	if opt.Pin {
		for w, cpu := range cpus {
			if cpu < 0 || cpu >= maxCPUs {
				return nil, fmt.Errorf("team: worker %d: CPU %d is outside 0..%d", w, cpu, maxCPUs-1)
			}
		}
		if err := probe(cpus[0]); err != nil {
			return nil, pinError(0, cpus[0], err)
		}
	}
	if err := clone.Threads(n); err != nil { // the runtime would end the process
		return nil, fmt.Errorf("%d workers: the system refuses so many threads: %w; raise ulimit -u or the container's pids.max, or lower -t", n, err)
	}
	if runtime.GOMAXPROCS(0) < n+2 {
		runtime.GOMAXPROCS(n + 2)
	}
	ready := make(chan error, n)
	for w := 1; w < n; w++ {
		t.alive.Add(1)
		go t.work(w, 0, ready)
	}
	var err error
	for w := 1; w < n; w++ {
		err = errors.Join(err, <-ready)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// spinRounds is how often each worker looks before it sleeps. Spinning is for those who have a CPU to themselves: on a shared one
// the spinner burns the slice that its partner needs.
func spinRounds(cpus []int, opt Options) []int {
	micros := opt.SpinMicros
	if micros == 0 {
		micros = spinMicrosDefault
	}
	rounds := make([]int, len(cpus))
	if micros < 0 || !opt.Pin && len(cpus) > runtime.NumCPU() {
		return rounds
	}
	users := map[int]int{}
	for _, cpu := range cpus {
		users[cpu]++
	}
	for w, cpu := range cpus {
		if (opt.Quota == 0 || w < opt.Quota) && (!opt.Pin || users[cpu] == 1) {
			rounds[w] = int(float64(micros) * 1000 / pauseNs())
		}
	}
	return rounds
}

// pauseNs measures one PAUSE: 3 ns on old cores, 23 on Zen 5, 45 on Intel's since Skylake. The best of a few tries is not disturbed by
// other programs.
var pauseNs = sync.OnceValue(func() float64 {
	const n = 100
	best := time.Hour
	for range 5 {
		start := time.Now()
		pause.Spin(n)
		best = min(best, time.Since(start))
	}
	return max(float64(best.Nanoseconds())/n, 1)
})

func pinError(w, cpu int, err error) error {
	return fmt.Errorf("team: worker %d cannot be pinned to CPU %d: %w", w, cpu, err)
}

// Size is the number of workers.
func (t *Team) Size() int { return len(t.cpus) }

// CPUs are the CPUs of the workers, as New was told. The slice is the team's own.
func (t *Team) CPUs() []int { return t.cpus }

// Run calls f(w) for every worker w at once and returns when all calls have returned. It allocates nothing unless a worker fails.
//
// If a worker faults or panics, Run returns the first such failure as *Fault or *Panic, after all workers have returned: from then on
// every Barrier returns false, and f must return. The team can be used again. f must not call Run.
func (t *Team) Run(f func(w int)) error {
	t.runMu.Lock()
	defer t.runMu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.f, t.err = f, nil
	t.bar.reset()
	t.lead()
	t.f = nil
	return t.err
}

// lead is worker 0's part of a Run. What it does to the caller's goroutine and thread is undone at the end, also when f calls
// runtime.Goexit.
func (t *Team) lead() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if t.pin {
		// A CPU that vanished after New leaves the thread where it was: slower, not wrong.
		if n := t.saved.swap(t.cpus[0]); n > 0 {
			defer t.saved.restore(n)
		}
	}
	if n := len(t.cpus); n > 1 {
		t.left.v.Store(uint32(n - 1))
		t.jobs.v.Add(1)
		t.jobs.wake()
		defer t.join()
	}
	t.call(0)
}

// Hold pins the calling goroutine to worker 0's CPU until it calls release (in the same goroutine). Between, its Runs need not pin it and
// let it go again, which takes 5 us each time. Who generates token by token holds.
func (t *Team) Hold() (release func()) {
	runtime.LockOSThread()
	var old cpuMask
	n := 0
	if t.pin {
		n = old.swap(t.cpus[0])
	}
	return func() {
		if n > 0 {
			old.restore(n)
		}
		runtime.UnlockOSThread()
	}
}

// join returns when the other workers have finished.
func (t *Team) join() {
	for v := t.left.v.Load(); v != 0; {
		v = t.left.await(v, t.rounds[0])
	}
}

// work is the life of worker w > 0; seen is the Run that it knows already. It stays locked to its thread, so that the thread ends
// with it and nobody inherits its affinity.
func (t *Team) work(w int, seen uint32, ready chan<- error) {
	runtime.LockOSThread()
	finished := false
	defer func() {
		if !finished { // f called runtime.Goexit: this goroutine is lost, the worker is not
			go t.work(w, seen, nil)
		}
	}()
	debug.SetPanicOnFault(true)
	var err error
	if t.pin {
		if e := setAffinity(t.cpus[w]); e != nil {
			err = pinError(w, t.cpus[w], e)
		}
	}
	if ready != nil {
		ready <- err
	}
	for {
		seen = t.jobs.await(seen, t.rounds[w])
		if t.closed {
			finished = true
			t.alive.Done()
			return
		}
		t.call(w)
	}
}

// call runs f(w) and reports how it ended.
func (t *Team) call(w int) {
	returned := false
	defer func() {
		if r := recover(); !returned {
			t.fail(newFailure(w, r))
		}
		if w != 0 && t.left.v.Add(^uint32(0)) == 0 {
			t.left.wake()
		}
	}()
	t.f(w)
	returned = true
	t.bar.leave(w)
}

// newFailure turns what recover returned into an error. nil stands for runtime.Goexit.
func newFailure(w int, r any) error {
	if r == nil {
		return &Panic{Worker: w, Value: "the function called runtime.Goexit", Stack: debug.Stack()}
	}
	if f, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		return &Fault{Worker: w, Addr: f.Addr(), Err: f, Stack: debug.Stack()}
	}
	return &Panic{Worker: w, Value: r, Stack: debug.Stack()}
}

// fail keeps the first failure of a Run and lets everyone go who waits at the barrier.
func (t *Team) fail(err error) {
	t.errMu.Lock()
	if t.err == nil {
		t.err = err
	}
	t.errMu.Unlock()
	t.bar.breakUp()
}

// Barrier is Meet of all workers.
func (t *Team) Barrier(w int) bool { return t.Meet(w, All) }

// Meet is called by worker w inside of a Run and returns when all workers of its home, of its member, or all at all have called it. The workers
// of a home call it for the same levels in the same order. False means that the Run has failed, or that a worker called Break: f must return at
// once. What any of them wrote before is seen by all of them after it.
func (t *Team) Meet(w int, l Level) bool {
	ok, left := t.bar.wait(w, l, t.rounds[w])
	if left {
		t.fail(ErrLeft)
	}
	return ok
}

// Break is called inside of a Run by a worker that is about to return because nobody wants the result any more: from then on every Barrier
// of the Run returns false. Run returns no error for it, and the next one starts clean.
func (t *Team) Break() { t.bar.breakUp() }

// Close ends the threads. It waits for a Run in progress, and may be called twice.
func (t *Team) Close() {
	t.runMu.Lock()
	defer t.runMu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	t.jobs.v.Add(1)
	t.jobs.wake()
	t.alive.Wait()
}

// Spin waits without sleeping.
func Spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		pause.Spin(1)
		Safepoint()
	}
}

// Safepoint lets the runtime stop this goroutine, at about a nanosecond when it need not. A goroutine that does little but call
// assembly is not preempted otherwise (signals land in assembly, where it cannot be stopped) and keeps the garbage collector waiting:
// call Safepoint between kernels and in spin loops. The runtime asks for a stop by poisoning the stack guard, which only the prologue
// of a function with a stack check sees; small leaf functions have none, so Safepoint is no leaf.
//
//go:noinline
func Safepoint() { leaf() }

//go:noinline
func leaf() {}
