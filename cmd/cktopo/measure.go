package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ck/internal/humanize"
	"ck/internal/measure"
	"ck/internal/numa"
	"ck/internal/team"
	"ck/internal/topo"
)

// figures are what a program can measure here without being root. 0 is not measured, unless said otherwise; Why says why.
type figures struct {
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

	Alone    pair `json:"thread_alone"` // one thread of a core with several
	Siblings pair `json:"siblings"`     // two threads of that core together

	Small     pageRates `json:"small_pages"`
	Huge      pageRates `json:"huge_pages"`
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

	start time.Time
	slow  bool // memory is slow to come by
}

// pair is how fast threads read memory and compute.
type pair struct {
	Read float64 `json:"read_bytes_per_s"`
	Ops  float64 `json:"ops_per_s"`
}

// pageRates are of memory in pages of one size.
type pageRates struct {
	Read  float64 `json:"read_bytes_per_s"` // one after the other
	Walk  float64 `json:"walk_s"`           // from page to page in random order, each line in a cache
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

// measureHere measures what it can. threads is --threads, 0 for as many as the machine grants. It takes one to three
// seconds.
func measureHere(s *topo.Survey, threads int, model *filePages) *figures {
	w, before := measure.StartWatch(), vmstat()
	h := &figures{Locked: -1, Why: []string{}, start: time.Now()}
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
			h.Alone = pair{h.ReadOne, h.OpsOne}
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
	return h
}

// try notes what could not be measured.
func (h *figures) try(what string, f func() error) {
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

// spin makes 16·n additions and exclusive ors, each of which needs the result of the one before: a cycle each.
func spin(n int) uint64 {
	x, y := uint64(n), uint64(1)
	for range n {
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
	}
	return x
}

// clock finds the frequency of a busy core by counting cycles: after a rest, then at its best. What else runs there cannot make it look
// faster.
func (h *figures) clock(cpus []int, quota int) error {
	t, err := newTeam(cpus, quota)
	if err != nil {
		return err
	}
	defer t.Close()
	const rounds = 1 << 12 // 16 us at 4 GHz
	type slice struct{ at, hz float64 }
	var slices []slice
	sink := uint64(0)
	err = t.Run(func(int) {
		sink += spin(rounds)
		time.Sleep(rest)
		begin := time.Now()
		for now := begin; now.Sub(begin) < 60*clockSlice; {
			best, end := math.Inf(1), now.Add(clockSlice)
			from := now
			for now.Before(end) {
				sink += spin(rounds)
				next := time.Now()
				best = min(best, next.Sub(now).Seconds())
				now = next
			}
			slices = append(slices, slice{from.Sub(begin).Seconds(), 16 * rounds / best})
		}
	})
	runtime.KeepAlive(sink)
	if err != nil || len(slices) == 0 {
		return err
	}
	h.ClockFirst = slices[0].hz
	for _, x := range slices {
		h.Clock = max(h.Clock, x.hz)
	}
	for _, x := range slices {
		if x.hz >= 0.95*h.Clock {
			h.Ramp = x.at
			break
		}
	}
	return nil
}

// statedClock is what the system says of the frequency without boost, and who says it; 0 if nobody does.
func statedClock(s *topo.Survey) (hz float64, by string) {
	if n, err := strconv.ParseFloat(sysText("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency"), 64); err == nil && n > 0 {
		return n * 1e3, "base_frequency"
	}
	if _, after, ok := strings.Cut(s.Model, "@ "); ok {
		if n, err := strconv.ParseFloat(strings.TrimSuffix(after, "GHz"), 64); err == nil && n > 0 {
			return n * 1e9, "the CPU's name"
		}
	}
	if s.Settings.Driver != "" {
		return 0, "" // where the frequency is governed, /proc/cpuinfo has that of this moment
	}
	for line := range strings.Lines(sysText("/proc/cpuinfo")) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "cpu MHz" {
			if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && n > 0 {
				return n * 1e6, "/proc/cpuinfo"
			}
		}
	}
	return 0, ""
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
func (h *figures) roofs(s *topo.Survey, cpus []int, quota int) (read, ops float64, err error) {
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

// pages compares memory in small pages with memory that asked for huge ones, used by one core, in the time of its thread: who else runs
// there does not count. Where huge pages are switched off it asks the kernel to make some of the pages that are there (Linux 6.1).
func (h *figures) pages(s *topo.Survey, cpus []int) error {
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
	var a, b pageRates
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
		a.Walk, b.Walk = walk(small.Bytes()), walk(huge.Bytes())
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
func (h *figures) touch(b []byte) float64 {
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

// walk is the time in seconds from page to page of 4 KiB in random order, each step needing the one before. One line of each page is
// read, so that the caches hold all lines: what differs is how the address is found.
func walk(b []byte) float64 {
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

// quota keeps all workers busy for a few periods and looks how much time they get, and for how long one stands still.
func (h *figures) quota(cpus []int) error {
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

// threadTime is the time in seconds that the calling thread has run.
func threadTime() float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return float64(ts.Sec) + float64(ts.Nsec)/1e9
}

// kernel measures a system call and a look at the clock: the best of some runs of each.
func (h *figures) kernel() {
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
func (h *figures) lock(limit int64) {
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

// clockText is the frequency of a busy core beside what the system says.
func clockText(s *subject) string {
	h := s.here
	switch {
	case h.Clock == 0:
		return ""
	case h.Stated == 0:
		return "a busy core runs at " + humanize.Hertz(h.Clock)
	}
	return fmt.Sprintf("a busy core runs at %s; %s says %s", humanize.Hertz(h.Clock), h.StatedBy, humanize.Hertz(h.Stated))
}

// scaling is how much slower cores compute when all of them do.
func scaling(s *subject) string {
	h := s.here
	if h.OpsOne == 0 || h.OpsAll == 0 || h.Threads < 2 {
		return ""
	}
	return fmt.Sprintf("%s compute %.1f times as fast as one, for a few milliseconds", humanize.Plural(h.Threads, "core"), h.OpsAll/h.OpsOne)
}

// throttling is what workers get under the quota.
func throttling(s *subject) string {
	h := s.here
	if h.Got == 0 {
		return ""
	}
	return fmt.Sprintf("%s got the time of %.2f CPUs and stood still for up to %s", humanize.Plural(h.Threads, "worker"), h.Got, humanize.Milliseconds(h.Pause))
}

// smallAndHuge compares the sizes of pages.
func smallAndHuge(s *subject) string {
	a, b := s.here.Small, s.here.Huge
	if a.Read == 0 || b.Read == 0 {
		return ""
	}
	return fmt.Sprintf("one core reads pages of 4 KiB at %s, huge pages at %s; a jump to another page takes %s instead of %s",
		humanize.GBps(a.Read), humanize.GBps(b.Read), humanize.Nanoseconds(a.Walk), humanize.Nanoseconds(b.Walk))
}

// section is the figures as a part of the report.
func (h *figures) section() section {
	sec := section{name: "measured here"}
	parts := func(name string, properties ...any) {
		if f := sec.addThing(name, properties...); len(f.parts) == 0 {
			sec.facts = sec.facts[:len(sec.facts)-1]
		}
	}
	// or leaves a text out where its figure is not there.
	or := func(v float64, text func(float64) string) string {
		if v <= 0 {
			return ""
		}
		return text(v)
	}
	parts("clock", "one busy core", or(h.Clock, humanize.Hertz), "after a rest", or(h.ClockFirst, humanize.Hertz), h.StatedBy+" says", or(h.Stated, humanize.Hertz))
	all := humanize.Plural(h.Threads, "core")
	if h.Threads < 2 {
		all = "all cores"
	}
	channel := func(float64) string { return "38.4 GB/s (published)" }
	parts("memory", "one core reads", or(h.ReadOne, humanize.GBps), all+" read", or(h.ReadAll, humanize.GBps), "a channel of DDR5-4800 carries", or(h.ReadAll, channel))
	parts("8-bit integers", "one core", or(h.OpsOne, humanize.Ops), all, or(h.OpsAll, humanize.Ops))
	parts("threads of a core", "one reads", or(h.Alone.Read, humanize.GBps), "two read", or(h.Siblings.Read, humanize.GBps), "one computes", or(h.Alone.Ops, humanize.Ops),
		"two compute", or(h.Siblings.Ops, humanize.Ops))
	parts("pages of 4 KiB", "read at", or(h.Small.Read, humanize.GBps), "a jump", or(h.Small.Walk, humanize.Nanoseconds), "first use of 1 GiB", or(h.Small.Touch, humanize.Milliseconds))
	parts("huge pages", "read at", or(h.Huge.Read, humanize.GBps), "a jump", or(h.Huge.Walk, humanize.Nanoseconds), "first use of 1 GiB", or(h.Huge.Touch, humanize.Milliseconds),
		"given", or(h.HugeShare, func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }))
	parts("quota", "time got", or(h.Got, func(v float64) string { return fmt.Sprintf("%.2f CPUs", v) }), "longest pause", or(h.Pause, humanize.Milliseconds))
	parts("kernel", "a system call", or(h.Syscall, humanize.Nanoseconds), "a look at the clock", or(h.Now, humanize.Nanoseconds))
	parts("model's pages", "a near core reads", or(h.Near, humanize.GBps), "a far core reads", or(h.Far, humanize.GBps))
	parts("meanwhile", "stolen", fmt.Sprintf("%.1f %%", 100*h.Noise.Steal), "other processes on", fmt.Sprintf("%.1f CPUs", h.Noise.OtherLoad),
		"took", fmt.Sprintf("%.1f s", h.Seconds))
	for i, why := range h.Why {
		sec.add(fmt.Sprintf("not measured %d", i+1), why)
	}
	return sec
}
