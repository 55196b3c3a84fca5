package measure

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"ck/asm/roof"
	"ck/internal/kernel"
	"ck/internal/numa"
	"ck/internal/team"
	"ck/internal/topo"
)

// Level is a level of the memory hierarchy as a measurement sees it.
type Level struct {
	Name  string
	Bytes int // of each worker's working set, which lies well inside the level
}

// DRAM is the name of the level behind the caches.
const DRAM = "DRAM"

// Levels are the levels of a machine that n workers can measure; DRAM comes last, with the bytes of RoofBytes. Where the system tells no
// cache sizes, only DRAM.
func Levels(m topo.Machine, n int) []Level {
	var out []Level
	prev := int64(0)
	for _, c := range []struct {
		name    string
		bytes   int64
		sharers int
	}{{"L1", m.L1d.Bytes, 1}, {"L2", m.L2.Bytes, 1}, {"L3", m.L3.Bytes, min(n, max(1, m.L3.CPUs))}} {
		size := c.bytes / 2 / int64(c.sharers)
		if size >= 2*prev && size >= 4096 {
			out = append(out, Level{c.name, int(size) &^ 4095})
			prev = c.bytes
		}
	}
	return append(out, Level{DRAM, RoofBytes(m, n)})
}

// A Rate is the best of several samples of one loop.
type Rate struct {
	Loop string
	Rate float64 // bytes or operations per second, of all workers together
}

// sampleTime is how long a sample of cached reads or of arithmetic lasts.
const sampleTime = 4 * time.Millisecond

// ReadLevel measures how fast a team reads working sets of a level with each read loop: the best of a few samples each. For DRAM it does
// as Roofs do. It stops between samples when ctx ends.
func ReadLevel(ctx context.Context, t *team.Team, l Level, samples int) ([]Rate, error) {
	if l.Name == DRAM {
		return readDRAM(ctx, t, l.Bytes, samples)
	}
	mem, err := numa.Alloc(l.Bytes*t.Size(), numa.Options{})
	if err != nil {
		return nil, fmt.Errorf("measuring %s: %w", l.Name, err)
	}
	defer mem.Free()
	part := func(w int) []byte { return mem.Bytes()[w*l.Bytes : (w+1)*l.Bytes] }
	err = t.Run(func(w int) {
		for i := range part(w) {
			part(w)[i] = byte(i)
		}
	})
	if err != nil {
		return nil, err
	}
	var out []Rate
	for _, loop := range readLoops() {
		full, err := passTime(ctx, t, &loop, part, l.Bytes, samples)
		if err != nil {
			return nil, err
		}
		bytes := l.Bytes
		if bytes <= smallSet { // the call takes a good part of the time; the difference to a third of the set has none of it
			third, err := passTime(ctx, t, &loop, part, bytes/3, samples)
			if err != nil {
				return nil, err
			}
			if third < full*2/3 {
				full, bytes = full-third, bytes-bytes/3
			}
		}
		out = append(out, Rate{loop.Name, float64(bytes*t.Size()) / full})
	}
	return out, nil
}

// smallSet is the size of working sets that a call of assembly reads in less than half a microsecond.
const smallSet = 64 << 10

// passTime is the least time in seconds that a team takes to read n bytes of each worker's part, over and over.
func passTime(ctx context.Context, t *team.Team, loop *roof.Read, part func(w int) []byte, n, samples int) (float64, error) {
	best, passes := 0.0, 1
	for done := 0; done < samples; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		err := t.Run(func(w int) {
			b := part(w)[:n]
			for range passes {
				for i := 0; i < len(b); i += callBytes {
					loop.Run(b[i:min(len(b), i+callBytes)])
				}
				team.Safepoint()
			}
		})
		if err != nil {
			return 0, err
		}
		d := time.Since(start)
		if d < sampleTime && passes < 1<<24 {
			passes *= 2
			continue
		}
		if s := d.Seconds() / float64(passes); best == 0 || s < best {
			best = s
		}
		done++
	}
	return best, nil
}

// readDRAM is ReadLevel for memory: each sample reads what was not read shortly before.
func readDRAM(ctx context.Context, t *team.Team, bytes, samples int) ([]Rate, error) {
	r, err := NewRoofsOf(t, bytes)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out := make([]Rate, len(r.reads))
	for range samples * len(out) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		i := r.next % len(out)
		bw, err := r.read()
		if err != nil {
			return nil, err
		}
		out[i] = Rate{r.reads[i].Name, max(out[i].Rate, bw)}
	}
	return out, nil
}

// A PeakRate is the arithmetic rate of one instruction.
type PeakRate struct {
	Instruction string
	Kind        string // Int8, BF16 or F32: what its operands are
	Rate        float64
}

// PeakRates measures all arithmetic loops that this CPU runs, the best of a few samples each. It stops between samples when ctx ends.
func PeakRates(ctx context.Context, t *team.Team, samples int) ([]PeakRate, error) {
	var out []PeakRate
	for i := range roof.Peaks {
		p := &roof.Peaks[i]
		if !runs(p.Needs) || len(roof.Peaks) > 1 && len(p.Needs) == 0 {
			continue
		}
		best := 0.0
		for range samples {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			r, err := peakRate(t, p)
			if err != nil {
				return nil, err
			}
			best = max(best, r)
		}
		out = append(out, PeakRate{p.Name, kindOf(p.Name), best})
	}
	return out, nil
}

// kindOf is what the operands of an arithmetic loop are.
func kindOf(loop string) string {
	switch {
	case strings.HasPrefix(loop, "vpdpbusd"), strings.HasPrefix(loop, "vpmaddubsw"):
		return Int8
	case strings.HasPrefix(loop, "vdpbf16ps"):
		return BF16
	}
	return F32
}

// LatencyNs measures the time in nanoseconds from one load to the next where each depends on the one before: a walk through a working set
// of the size in bytes, one cache line at a time, in random order, on the calling thread. The memory has huge pages where the system
// gives them.
func LatencyNs(bytes int) (float64, error) {
	const line = 64
	n := bytes / line
	if n < 2 {
		return 0, fmt.Errorf("measuring latency: %d bytes hold fewer than two cache lines", bytes)
	}
	mem, err := numa.Alloc(bytes, numa.Options{})
	if err != nil {
		return 0, fmt.Errorf("measuring latency: %w", err)
	}
	defer mem.Free()
	b := mem.Bytes()
	// Sattolo's algorithm makes one cycle of all lines.
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := n - 1; i > 0; i-- {
		j := rng.IntN(i)
		order[i], order[j] = order[j], order[i]
	}
	for i, next := range order {
		binary.NativeEndian.PutUint64(b[i*line:], uint64(next)*line)
	}
	at := uint64(0)
	chase := func(steps int) time.Duration {
		start := time.Now()
		for range steps {
			at = binary.NativeEndian.Uint64(b[at:])
		}
		return time.Since(start)
	}
	chase(min(n, 1<<18))
	best := time.Duration(1 << 62)
	const steps = 1 << 16
	for range 8 {
		best = min(best, chase(steps))
	}
	runtime.KeepAlive(at)
	return float64(best.Nanoseconds()) / steps, nil
}

// Barrier measures the time of one barrier of a team that meets over and over.
func Barrier(t *team.Team) (seconds float64, err error) {
	const rounds = 20000
	best := 0.0
	for range 5 {
		start := time.Now()
		err := t.Run(func(w int) {
			for range rounds {
				if !t.Barrier(w) {
					return
				}
			}
		})
		if err != nil {
			return 0, err
		}
		if s := time.Since(start).Seconds() / rounds; best == 0 || s < best {
			best = s
		}
	}
	return best, nil
}

// AllReduce measures how long a team takes to add up a vector of n float32 of each worker, until all of them can read the sum: every
// worker adds its share of all vectors, between two barriers.
func AllReduce(t *team.Team, tbl *kernel.Table, n int) (seconds float64, err error) {
	vectors := make([][]float32, t.Size())
	for w := range vectors {
		vectors[w] = make([]float32, n)
	}
	sum := make([]float32, n)
	rounds := max(10, min(5000, 1<<24/(n*t.Size())))
	best := 0.0
	for range 5 {
		start := time.Now()
		err := t.Run(func(w int) {
			lo, hi := n*w/t.Size(), n*(w+1)/t.Size()
			for range rounds {
				vectors[w][0]++ // the vectors change, as they do in use
				if !t.Barrier(w) {
					return
				}
				copy(sum[lo:hi], vectors[0][lo:hi])
				for _, v := range vectors[1:] {
					tbl.Add(sum[lo:hi], sum[lo:hi], v[lo:hi])
				}
				if !t.Barrier(w) {
					return
				}
			}
		})
		if err != nil {
			return 0, err
		}
		if s := time.Since(start).Seconds() / float64(rounds); best == 0 || s < best {
			best = s
		}
	}
	return best, nil
}

// Touch reads all bytes of b with the first read loop of this CPU.
func Touch(b []byte) {
	loop := readLoops()[0]
	for i := 0; i < len(b); i += callBytes {
		loop.Run(b[i:min(len(b), i+callBytes)])
		team.Safepoint()
	}
}
