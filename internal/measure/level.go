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

// A Reading is how fast a team reads a level.
type Reading struct {
	Loop string // that was best
	Series
}

// sampleTime is how long a sample of cached reads lasts with each loop.
const sampleTime = 4 * time.Millisecond

// ReadLevel measures how fast a team reads working sets of a level, in bytes per second of all workers together. A sample reads with each
// read loop once and counts the best; see Settle for their number. For DRAM it does as Roofs do. It stops between samples when ctx ends.
func ReadLevel(ctx context.Context, t *team.Team, l Level, samples int) (Reading, error) {
	if l.Name == DRAM {
		return readDRAM(ctx, t, l.Bytes, samples)
	}
	mem, err := numa.Alloc(l.Bytes*t.Size(), numa.Options{})
	if err != nil {
		return Reading{}, fmt.Errorf("measuring %s: %w", l.Name, err)
	}
	defer mem.Free()
	part := func(w int) []byte { return mem.Bytes()[w*l.Bytes : (w+1)*l.Bytes] }
	err = t.Run(func(w int) {
		for i := range part(w) {
			part(w)[i] = byte(i)
		}
	})
	if err != nil {
		return Reading{}, err
	}
	loops := readLoops()
	full, third := make([]passes, len(loops)), make([]passes, len(loops))
	for i := range loops {
		full[i], third[i] = passes{t: t, loop: &loops[i], part: part, bytes: l.Bytes}, passes{t: t, loop: &loops[i], part: part, bytes: l.Bytes / 3}
	}
	s, err := Settle(ctx, samples, HighIsBest, func() (float64, error) {
		best := 0.0
		for i := range loops {
			d, err := full[i].sample()
			if err != nil {
				return 0, err
			}
			if l.Bytes <= smallSet {
				if _, err := third[i].sample(); err != nil {
					return 0, err
				}
			}
			best = max(best, float64(l.Bytes*t.Size())/d)
		}
		return best, nil
	})
	if err != nil {
		return Reading{}, err
	}
	out := Reading{Series: s}
	best := 0.0
	for i := range loops {
		bytes, time := l.Bytes, full[i].best
		// The call takes a good part of the time of a small set; the difference to a third of the set has none of it.
		if x := third[i].best; x > 0 && x < time*2/3 {
			bytes, time = bytes-l.Bytes/3, time-x
		}
		if r := float64(bytes*t.Size()) / time; r > best {
			best, out.Loop = r, loops[i].Name
		}
	}
	out.Series = s.Scale(best / s.Best)
	return out, nil
}

// smallSet is the size of working sets that a call of assembly reads in less than half a microsecond.
const smallSet = 64 << 10

// passes is a team that reads the first bytes of each worker's part, over and over.
type passes struct {
	t     *team.Team
	loop  *roof.Read
	part  func(w int) []byte
	bytes int
	n     int     // passes of a sample
	best  float64 // least time of a pass in seconds so far
}

// sample is the time of a pass in seconds. The first sample finds how many passes take long enough to be measured.
func (p *passes) sample() (float64, error) {
	for p.n = max(p.n, 1); ; p.n *= 2 {
		start := time.Now()
		err := p.t.Run(func(w int) {
			b := p.part(w)[:p.bytes]
			for range p.n {
				for i := 0; i < len(b); i += callBytes {
					p.loop.Run(b[i:min(len(b), i+callBytes)])
				}
				team.Safepoint()
			}
		})
		if err != nil {
			return 0, err
		}
		d := time.Since(start)
		if d < sampleTime/2 && p.n < 1<<24 {
			continue
		}
		s := d.Seconds() / float64(p.n)
		if p.best == 0 || s < p.best {
			p.best = s
		}
		return s, nil
	}
}

// readDRAM is ReadLevel for memory: each sample reads what was not read shortly before.
func readDRAM(ctx context.Context, t *team.Team, bytes, samples int) (Reading, error) {
	r, err := NewRoofsOf(t, bytes)
	if err != nil {
		return Reading{}, err
	}
	defer r.Close()
	var out Reading
	top := 0.0
	out.Series, err = Settle(ctx, samples, HighIsBest, func() (best float64, err error) {
		for range r.reads {
			loop := r.reads[r.next%len(r.reads)].Name
			bw, err := r.read()
			if err != nil {
				return 0, err
			}
			if best = max(best, bw); bw > top {
				top, out.Loop = bw, loop
			}
		}
		return best, nil
	})
	return out, err
}

// A PeakRate is the arithmetic rate of one instruction.
type PeakRate struct {
	Instruction string
	Kind        string // Int8, BF16 or F32: what its operands are
	Series
}

// PeakRates measures all arithmetic loops that this CPU runs, in operations per second of all workers together. It stops between samples
// when ctx ends.
func PeakRates(ctx context.Context, t *team.Team, samples int) ([]PeakRate, error) {
	var out []PeakRate
	for i := range roof.Peaks {
		p := &roof.Peaks[i]
		if !runs(p.Needs) || len(roof.Peaks) > 1 && len(p.Needs) == 0 {
			continue
		}
		series, err := Settle(ctx, samples, HighIsBest, func() (float64, error) { return peakRate(t, p) })
		if err != nil {
			return nil, err
		}
		out = append(out, PeakRate{p.Name, kindOf(p.Name), series})
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
// gives them. It stops between samples when ctx ends.
func LatencyNs(ctx context.Context, bytes int) (Series, error) {
	const line = 64
	n := bytes / line
	if n < 2 {
		return Series{}, fmt.Errorf("measuring latency: %d bytes hold fewer than two cache lines", bytes)
	}
	mem, err := numa.Alloc(bytes, numa.Options{})
	if err != nil {
		return Series{}, fmt.Errorf("measuring latency: %w", err)
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
	const steps = 1 << 16
	s, err := Settle(ctx, 8, LowIsBest, func() (float64, error) { return float64(chase(steps).Nanoseconds()) / steps, nil })
	runtime.KeepAlive(at)
	return s, err
}

// meetings is how many samples of a team's meetings are taken at least.
const meetings = 5

// Barrier measures the time in nanoseconds of one barrier of a team that meets over and over. It stops between samples when ctx ends.
func Barrier(ctx context.Context, t *team.Team) (Series, error) {
	const rounds = 20000
	return Settle(ctx, meetings, LowIsBest, func() (float64, error) {
		start := time.Now()
		err := t.Run(func(w int) {
			for range rounds {
				if !t.Barrier(w) {
					return
				}
			}
		})
		return float64(time.Since(start).Nanoseconds()) / rounds, err
	})
}

// AllReduce measures how many nanoseconds a team takes to add up a vector of n float32 of each worker, until all of them can read the sum: every
// worker adds its share of all vectors, between two barriers. It stops between samples when ctx ends.
func AllReduce(ctx context.Context, t *team.Team, tbl *kernel.Table, n int) (Series, error) {
	vectors := make([][]float32, t.Size())
	for w := range vectors {
		vectors[w] = make([]float32, n)
	}
	sum := make([]float32, n)
	rounds := max(10, min(5000, 1<<24/(n*t.Size())))
	return Settle(ctx, meetings, LowIsBest, func() (float64, error) {
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
		return float64(time.Since(start).Nanoseconds()) / float64(rounds), err
	})
}

// Touch reads all bytes of b with the first read loop of this CPU.
func Touch(b []byte) {
	loop := readLoops()[0]
	for i := 0; i < len(b); i += callBytes {
		loop.Run(b[i:min(len(b), i+callBytes)])
		team.Safepoint()
	}
}
