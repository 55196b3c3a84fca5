// Package measure holds what measurements need: the roofs of the machine, taken in the same run as what is judged by them.
package measure

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ck/asm/roof"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/numa"
	"ck/internal/team"
	"ck/internal/topo"
)

// Roofs measures the limits of a team's CPUs: how fast they read memory, how fast they multiply and add.
//
// Every sample reads memory that was not read shortly before (a walk through a region many times the last cache), otherwise the cache
// answers. Machines are shared: the best of all samples so far is the roof, and samples belong between the runs that they judge.
type Roofs struct {
	team   *team.Team
	mem    *numa.Region
	at     int // of the walk, in bytes within each worker's part
	part   int // bytes of each worker's part
	sample int // bytes of it that a sample reads
	reads  []roof.Read
	next   int
	bestBW float64
	bestOp map[string]float64
}

const (
	// WorkerBytes is the memory that Roofs takes for each worker where nobody tells how large the caches are.
	WorkerBytes = 512 << 20

	leastBytes  = 16 << 20 // for each worker
	sampleBytes = 64 << 20 // what each worker reads at a time, if it has so much: 1.5 ms at 45 GB/s
	callBytes   = 4 << 20  // of one call of assembly, which cannot be stopped

	// manyCaches is how many times what the caches hold the region should be, leastCaches how many times at least. Of a region k times
	// the cache, walked through over and over, the cache with random replacement still has the share h = exp(-k*(1-h)): 20 % for 2,
	// 2 % for 4, 0.03 % for 8. On a Zen 5 with 33 MiB of caches, one worker walking through 64 MiB measured 14 % more than through
	// 512 MiB (median of 40), through 128 MiB as much.
	manyCaches, leastCaches = 8, 4
)

// RoofBytes is the memory that Roofs should take for each of n workers: in all manyCaches times what their caches may hold, WorkerBytes each
// where the system does not tell, and no more than half of what the machine has left, if that is known. It is 0 where that is so little
// that the caches might answer.
func RoofBytes(m topo.Machine, n int) int { return RoofBytesBeside(m, n, 0) }

// RoofBytesBeside is RoofBytes where so many bytes of what m says is left are taken, or will be.
func RoofBytesBeside(m topo.Machine, n int, taken int64) int {
	left, _, known := m.Budget()
	most := max(left-taken, 0) / 2 / int64(n)
	cpus, perL3 := max(1, len(m.CPUs)), max(1, m.L3.CPUs)
	l3s := min(n, (cpus+perL3-1)/perL3) // the workers may be on as many
	caches := m.L3.Bytes*int64(l3s) + m.L2.Bytes*int64(min(n, cpus))
	want := int64(WorkerBytes)
	if caches > 0 {
		want = max(manyCaches*caches/int64(n), leastBytes)
	}
	part := (want + step(want) - 1) / step(want) * step(want)
	if known && part > most {
		part = most / step(most) * step(most)
	}
	if part < leastBytes || part*int64(n) < leastCaches*caches {
		return 0
	}
	return int(part)
}

// step is what the size of a region of about n bytes is a multiple of: whole samples, or whole calls where there is but one sample.
func step(n int64) int64 {
	if n < sampleBytes {
		return callBytes
	}
	return sampleBytes
}

// NewRoofs takes WorkerBytes of memory for each worker of a team; Close gives it back.
func NewRoofs(t *team.Team) (*Roofs, error) { return NewRoofsOf(t, WorkerBytes) }

// NewRoofsOf is NewRoofs with bytes for each worker, as RoofBytes gives them, 16 MiB at least.
func NewRoofsOf(t *team.Team, bytes int) (*Roofs, error) {
	if bytes < leastBytes {
		return nil, fmt.Errorf("measuring the read bandwidth: %d bytes for each worker, at least %d are needed", bytes, leastBytes)
	}
	mem, err := numa.Alloc(bytes*t.Size(), numa.Options{})
	if err != nil {
		return nil, fmt.Errorf("measuring the read bandwidth: %w", err)
	}
	r := &Roofs{team: t, mem: mem, part: bytes, sample: min(bytes, sampleBytes) / callBytes * callBytes, reads: readLoops(), bestOp: map[string]float64{}}
	// First touch by the worker that will read.
	err = t.Run(func(w int) {
		b := mem.Bytes()[w*r.part : (w+1)*r.part]
		for i := 0; i < len(b); i += 4096 {
			b[i] = byte(i >> 12)
		}
	})
	if err != nil {
		mem.Free()
		return nil, err
	}
	return r, nil
}

// features are the CPU's, by their names in /proc/cpuinfo.
var features = sync.OnceValue(func() []string { return isa.Detect().Names() })

// runs reports whether this CPU has the instructions of a loop.
func runs(needs roof.Needs) bool {
	for _, n := range needs {
		if !slices.Contains(features(), n) {
			return false
		}
	}
	return true
}

// readLoops are the read loops of assembly that this CPU runs, or the plain one.
func readLoops() []roof.Read {
	var loops []roof.Read
	for _, l := range roof.Reads[min(1, len(roof.Reads)-1):] {
		if runs(l.Needs) {
			loops = append(loops, l)
		}
	}
	if len(loops) == 0 {
		loops = roof.Reads[:1]
	}
	return loops
}

// Read samples the read bandwidth of all workers together with the next read loop in turn, in bytes per second, and returns the best
// of all samples so far.
func (r *Roofs) Read() (best float64, err error) {
	_, err = r.read()
	return r.bestBW, err
}

// ReadNow samples the read bandwidth with each read loop once, at least six times in all, and returns the best of these samples: the
// roof of this moment.
func (r *Roofs) ReadNow() (now float64, err error) {
	for range max(6, len(r.reads)) {
		bw, err := r.read()
		if err != nil {
			return 0, err
		}
		now = max(now, bw)
	}
	return now, nil
}

// ReadSteady is what the best read loop gives over so many samples of each, its bytes by its time: what a program can reach that runs for longer than the
// moments in which a shared memory is at its best.
func (r *Roofs) ReadSteady(samples int) (rate float64, err error) {
	took := make([]float64, len(r.reads)) // per byte, added up
	for range samples {
		for range r.reads {
			loop := r.next % len(r.reads)
			bw, err := r.read()
			if err != nil {
				return 0, err
			}
			took[loop] += 1 / bw
		}
	}
	return float64(samples) / slices.Min(took), nil
}

// BestRead is the best sample of the read bandwidth so far, 0 without one.
func (r *Roofs) BestRead() float64 { return r.bestBW }

// read takes one sample.
func (r *Roofs) read() (bw float64, err error) {
	l := &r.reads[r.next%len(r.reads)]
	r.next++
	if r.at+r.sample > r.part {
		r.at = 0
	}
	start := time.Now()
	err = r.team.Run(func(w int) {
		b := r.mem.Bytes()[w*r.part+r.at:][:r.sample]
		for i := 0; i < len(b); i += callBytes {
			l.Run(b[i : i+callBytes])
			team.Safepoint()
		}
	})
	bw = float64(r.sample*r.team.Size()) / time.Since(start).Seconds()
	r.at += r.sample
	r.bestBW = max(r.bestBW, bw)
	return bw, err
}

// Kinds of arithmetic for Peak.
const (
	Int8 = kernel.Int8
	BF16 = kernel.BF16
	F32  = kernel.F32
)

// peakLoops names the loops of a kind, best first.
var peakLoops = map[string][]string{
	Int8: {"vpdpbusd zmm", "vpdpbusd ymm", "vpmaddubsw"},
	BF16: {"vdpbf16ps zmm", "vfmadd231ps zmm", "vfmadd231ps ymm"},
	F32:  {"vfmadd231ps zmm", "vfmadd231ps ymm"},
}

// Peak samples the arithmetic rate of all workers together in operations per second (a multiply-add is two) with the best instruction
// of the kind that this CPU has, and returns the best sample so far.
func (r *Roofs) Peak(kind string) (best float64, err error) {
	_, err = r.PeakNow(kind)
	return r.bestOp[kind], err
}

// PeakNow is one sample of Peak.
func (r *Roofs) PeakNow(kind string) (now float64, err error) {
	now, err = peakRate(r.team, peakLoop(kind))
	r.bestOp[kind] = max(r.bestOp[kind], now)
	return now, err
}

// BestPeak is the best sample of a kind so far, 0 without one.
func (r *Roofs) BestPeak(kind string) float64 { return r.bestOp[kind] }

// peakLoop is the best arithmetic loop of a kind that this CPU runs.
func peakLoop(kind string) *roof.Peak {
	for _, name := range peakLoops[kind] {
		for i := range roof.Peaks {
			if p := &roof.Peaks[i]; strings.HasPrefix(p.Name, name) && runs(p.Needs) {
				return p
			}
		}
	}
	return &roof.Peaks[0]
}

// peakRate is how many operations per second a team does with a loop.
func peakRate(t *team.Team, p *roof.Peak) (float64, error) {
	const rounds, calls = 20000, 20
	start := time.Now()
	err := t.Run(func(int) {
		for range calls {
			p.Run(rounds)
			team.Safepoint()
		}
	})
	return float64(rounds*calls*p.Ops*t.Size()) / time.Since(start).Seconds(), err
}

// SamplePeak is Peak of a team without the memory that Roofs takes: the best of the samples that fit in a time, one at least.
func SamplePeak(t *team.Team, kind string, within time.Duration) (best float64, err error) {
	loop := peakLoop(kind)
	for start := time.Now(); best == 0 || time.Since(start) < within; {
		now, err := peakRate(t, loop)
		if err != nil {
			return 0, err
		}
		best = max(best, now)
	}
	return best, nil
}

// Close gives the memory back.
func (r *Roofs) Close() error { return r.mem.Free() }
