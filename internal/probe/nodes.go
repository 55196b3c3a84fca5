package probe

import (
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ck/internal/measure"
	"ck/internal/numa"
	"ck/internal/team"
	"ck/internal/topo"
)

// Figures are what a program can measure here without being root. 0 is not measured, unless said otherwise; Why says why.
type Figures struct {
	Seconds float64 `json:"seconds"` // that all of it took
	Threads int     `json:"threads"` // of what is measured with all workers

	Clock      float64 `json:"clock_hz"`       // of one busy core
	ClockFirst float64 `json:"clock_first_hz"` // of a core that rested
	Ramp       float64 `json:"ramp_s"`         // until 95 % of Clock
	Stated     float64 `json:"stated_hz"`      // what the system says of the frequency
	StatedBy   string  `json:"stated_by"`

	ReadOne float64 `json:"read_one_bytes_per_s"` // of memory, by one core
	ReadAll float64 `json:"read_all_bytes_per_s"` // by all workers together
	OpsOne  float64 `json:"ops_one_per_s"`        // of 8-bit integers, by one core; a multiply-add is two
	OpsAll  float64 `json:"ops_all_per_s"`

	Alone    Pair `json:"thread_alone"` // one thread of a core with several
	Siblings Pair `json:"siblings"`     // two threads of that core together

	Small     PageRates `json:"small_pages"`
	Huge      PageRates `json:"huge_pages"`
	HugeShare float64   `json:"huge_share"` // of the memory that asked for huge pages and got them

	Syscall float64 `json:"syscall_s"`
	Now     float64 `json:"clock_read_s"`

	Got   float64 `json:"got_cpus"` // CPUs' worth of time that the workers got under the quota
	Pause float64 `json:"pause_s"`  // the longest time for which one of them stood still

	Locked int64 `json:"locked_bytes"` // more than ulimit -l that could be locked; 0: it could not, -1: not tried

	Near float64 `json:"model_near_bytes_per_s"` // the model's pages, read by a core of their node
	Far  float64 `json:"model_far_bytes_per_s"`  // by a core of the farthest node

	Noise      measure.Noise `json:"noise"`
	SwapIn     int64         `json:"pages_swapped_in"` // by all processes, meanwhile
	SwapOut    int64         `json:"pages_swapped_out"`
	HintFaults int64         `json:"numa_hint_faults"`
	Migrated   int64         `json:"numa_pages_migrated"`

	Why []string `json:"not_measured"`
}

// taking is figures while they are taken.
type taking struct {
	Figures
	start time.Time
	slow  bool // memory is slow to come by
}

// Pair is how fast threads read memory and compute.
type Pair struct {
	Read float64 `json:"read_bytes_per_s"`
	Ops  float64 `json:"ops_per_s"`
}

// PageRates are of memory in pages of one size.
type PageRates struct {
	Read  float64 `json:"read_bytes_per_s"` // one after the other
	Jump  float64 `json:"walk_s"`           // from page to page in random order, each line in a cache
	Touch float64 `json:"touch_s_per_gib"`  // the first use
}

// Sizes and times of the samples.
const (
	pagesBytes = 128 << 20 // of memory in small and in huge pages
	roofStep   = 64 << 20  // of memory for each worker that reads: a multiple of what one sample reads
	clockSlice = time.Millisecond
	rest       = 30 * time.Millisecond
	quotaTime  = 350 * time.Millisecond // more than three periods of 100 ms
	enough     = 2 * time.Second        // after which nothing new is begun
	slowTouch  = time.Second            // for the first use of pagesBytes
)

// Here measures what it can. threads is --threads, 0 for as many as the machine grants. It takes one to three
// seconds.
func Here(s *topo.Survey, threads int, model *FilePages) *Figures {
	w, before := measure.StartWatch(), vmstat()
	h := &taking{Figures: Figures{Locked: -1, Why: []string{}}, start: time.Now()}
	cpus, _ := s.Workers()
	if threads > 0 {
		cpus = s.CPUsFor(threads)
	}
	h.Threads = len(cpus)
	h.Stated, h.StatedBy = statedClock(s)
	own := s.QuotaWorkers()
	h.try("the frequency", func() error { return h.clock(cpus[:1], own) })
	if s.Quota.CPUs > 0 {
		h.try("the quota", func() error { return h.quota(cpus) })
	}
	if model != nil {
		h.try("the model's pages", func() (err error) {
			h.Near, h.Far, err = model.rates(s)
			return err
		})
	}
	h.try("pages", func() error { return h.pages(s, cpus[:1]) }) // before what takes as much memory again: the kernel has it at hand then
	h.try("memory and arithmetic of one core", func() (err error) {
		h.ReadOne, h.OpsOne, err = h.roofs(s, cpus[:1], own)
		return err
	})
	h.ReadAll, h.OpsAll = h.ReadOne, h.OpsOne
	if len(cpus) > 1 {
		h.ReadAll, h.OpsAll = 0, 0
		h.try("memory and arithmetic of all cores", func() (err error) {
			h.ReadAll, h.OpsAll, err = h.roofs(s, cpus, own)
			return err
		})
	}
	if both := siblings(s, cpus[0]); both != nil && (own == 0 || own >= 2) {
		h.try("threads of one core", func() (err error) {
			h.Alone = Pair{h.ReadOne, h.OpsOne}
			h.Siblings.Read, h.Siblings.Ops, err = h.roofs(s, both, own)
			return err
		})
	}
	h.kernel()
	h.lock(s.Settings.Memlock)
	after := vmstat()
	h.SwapIn, h.SwapOut = after["pswpin"]-before["pswpin"], after["pswpout"]-before["pswpout"]
	h.HintFaults, h.Migrated = after["numa_hint_faults"]-before["numa_hint_faults"], after["numa_pages_migrated"]-before["numa_pages_migrated"]
	h.Noise, h.Seconds = w.Stop(), time.Since(h.start).Seconds()
	return &h.Figures
}

// try notes what could not be measured.
func (h *taking) try(what string, f func() error) {
	err := errors.New("no time was left")
	if time.Since(h.start) < enough {
		err = f()
	}
	if err != nil {
		h.Why = append(h.Why, what+": "+err.Error())
	}
}

// newTeam starts a worker on each of the CPUs, pinned where the system allows it.
func newTeam(cpus []int, quota int) (*team.Team, error) {
	t, err := team.New(cpus, team.Options{Pin: true, Quota: quota})
	if err != nil {
		return team.New(cpus, team.Options{Quota: quota})
	}
	return t, nil
}

// sysText is the content of a small file of the kernel, "" if there is none.
func sysText(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// roofs measures how fast workers on the CPUs read memory and multiply integers, together.
func (h *taking) roofs(s *topo.Survey, cpus []int, quota int) (read, ops float64, err error) {
	room := measure.RoofBytes(s.Machine, len(cpus))
	switch {
	case h.slow:
		return 0, 0, errSlow
	case room == 0:
		return 0, 0, errors.New("too little memory is free to tell it from the caches")
	}
	// No more than it takes beside the caches: memory that is taken here may push files out of the page cache.
	n := len(cpus)
	caches := s.L2.Bytes*int64(n) + s.L3.Bytes*int64((n+max(1, s.L3.CPUs)-1)/max(1, s.L3.CPUs))
	room = min(room, int(4*caches/int64(n)/roofStep+1)*roofStep)
	t, err := newTeam(cpus, quota)
	if err != nil {
		return 0, 0, err
	}
	defer t.Close()
	r, err := measure.NewRoofsOf(t, room)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	for i := 0; i < 3 && (i == 0 || time.Since(h.start) < enough); i++ {
		if _, err := r.ReadNow(); err != nil {
			return 0, 0, err
		}
		for range 8 {
			if _, err := r.Peak(measure.Int8); err != nil {
				return 0, 0, err
			}
		}
	}
	return r.BestRead(), r.BestPeak(measure.Int8), nil
}

// siblings are two allowed CPUs of the core that a CPU belongs to; nil if there is but one.
func siblings(s *topo.Survey, cpu int) []int {
	lead := -1
	for _, c := range s.CPUs {
		if c.ID == cpu {
			lead = c.Lead
		}
	}
	for _, c := range s.CPUs {
		if c.Lead == lead && c.ID != cpu && slices.Contains(s.Affinity, c.ID) {
			return []int{cpu, c.ID}
		}
	}
	return nil
}

// quota keeps all workers busy for a few periods and looks how much time they get, and for how long one stands still.
func (h *taking) quota(cpus []int) error {
	t, err := newTeam(cpus, 0)
	if err != nil {
		return err
	}
	defer t.Close()
	got, pause := make([]float64, len(cpus)), make([]float64, len(cpus))
	err = t.Run(func(w int) {
		used, begin := threadTime(), time.Now()
		for last := begin; last.Sub(begin) < quotaTime; {
			now := time.Now()
			pause[w] = max(pause[w], now.Sub(last).Seconds())
			last = now
			team.Safepoint()
		}
		got[w] = (threadTime() - used) / time.Since(begin).Seconds()
	})
	if err != nil {
		return err
	}
	for w := range cpus {
		h.Got += got[w]
		h.Pause = max(h.Pause, pause[w])
	}
	return nil
}

// kernel measures a system call and a look at the clock: the best of some runs of each.
func (h *taking) kernel() {
	const n = 2000
	h.Syscall, h.Now = math.Inf(1), math.Inf(1)
	for range 5 {
		start := time.Now()
		for range n {
			unix.Getppid()
		}
		h.Syscall = min(h.Syscall, time.Since(start).Seconds()/n)
		start = time.Now()
		var last time.Time
		for range n {
			last = time.Now()
		}
		runtime.KeepAlive(last)
		h.Now = min(h.Now, time.Since(start).Seconds()/n)
	}
}

// lock tries to lock a page more than ulimit -l allows, if that is little. Root may.
func (h *taking) lock(limit int64) {
	if limit < 0 || limit > 64<<20 {
		return
	}
	mem, err := numa.Alloc(int(limit)+os.Getpagesize(), numa.Options{SmallPages: true})
	if err != nil {
		return
	}
	defer mem.Free()
	h.Locked = 0
	if unix.Mlock(mem.Bytes()) == nil {
		h.Locked = int64(len(mem.Bytes()))
		unix.Munlock(mem.Bytes()) // the memory goes away in any case
	}
}

// vmstat is counters of the kernel since its start.
func vmstat() map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(sysText("/proc/vmstat")) {
		if f := strings.Fields(line); len(f) == 2 {
			out[f[0]], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return out
}
