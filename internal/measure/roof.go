// Package measure holds what measurements need: the roofs of the machine, taken in the same run as what is judged by them.
package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ck/asm/roof"
	"ck/internal/isa"
	"ck/internal/numa"
	"ck/internal/team"
)

// Roofs measures the limits of a team's CPUs: how fast they read memory, how fast they multiply and add.
//
// Every sample reads memory that was not read shortly before (a walk through a region many times the last cache), otherwise the cache
// answers. Machines are shared: the best of all samples so far is the roof, and samples belong between the runs that they judge.
type Roofs struct {
	team   *team.Team
	mem    *numa.Region
	at     int // of the walk, in bytes within each worker's part
	share  int // bytes of each worker's part
	have   []string
	reads  []roof.Read
	next   int
	bestBW float64
	bestOp map[string]float64
}

// regionBytes is what each worker walks through, sampleBytes what it reads at a time: 1.5 ms at 45 GB/s.
const (
	regionBytes = 512 << 20
	sampleBytes = 64 << 20
	callBytes   = 4 << 20 // of one call of assembly, which cannot be stopped
)

// NewRoofs takes memory for a team; Close gives it back.
func NewRoofs(t *team.Team) (*Roofs, error) {
	mem, err := numa.Alloc(regionBytes*t.Size(), numa.Options{})
	if err != nil {
		return nil, fmt.Errorf("measuring the read bandwidth: %w", err)
	}
	r := &Roofs{team: t, mem: mem, share: regionBytes, have: isa.Detect().Names(), bestOp: map[string]float64{}}
	for _, l := range roof.Reads[min(1, len(roof.Reads)-1):] {
		if r.runs(l.Needs) {
			r.reads = append(r.reads, l)
		}
	}
	if len(r.reads) == 0 {
		r.reads = roof.Reads[:1]
	}
	// First touch by the worker that will read.
	err = t.Run(func(w int) {
		b := mem.Bytes()[w*r.share : (w+1)*r.share]
		for i := 0; i < len(b); i += 4096 {
			b[i] = byte(i >> 12)
		}
	})
	return r, err
}

func (r *Roofs) runs(needs roof.Needs) bool {
	for _, n := range needs {
		if !slices.Contains(r.have, n) {
			return false
		}
	}
	return true
}

// Read samples the read bandwidth of all workers together with the next read loop in turn, in bytes per second, and returns the best
// of all samples so far.
func (r *Roofs) Read() (best float64, err error) {
	l := &r.reads[r.next%len(r.reads)]
	r.next++
	if r.at+sampleBytes > r.share {
		r.at = 0
	}
	start := time.Now()
	err = r.team.Run(func(w int) {
		b := r.mem.Bytes()[w*r.share+r.at:][:sampleBytes]
		for i := 0; i < len(b); i += callBytes {
			l.Run(b[i : i+callBytes])
			team.Safepoint()
		}
	})
	bw := float64(sampleBytes*r.team.Size()) / time.Since(start).Seconds()
	r.at += sampleBytes
	r.bestBW = max(r.bestBW, bw)
	return r.bestBW, err
}

// Kinds of arithmetic for Peak.
const (
	Int8 = "int8"
	BF16 = "bf16"
	F32  = "f32"
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
	p := &roof.Peaks[0]
search:
	for _, name := range peakLoops[kind] {
		for i := range roof.Peaks {
			if strings.HasPrefix(roof.Peaks[i].Name, name) && r.runs(roof.Peaks[i].Needs) {
				p = &roof.Peaks[i]
				break search
			}
		}
	}
	const rounds, calls = 20000, 20
	start := time.Now()
	err = r.team.Run(func(w int) {
		for range calls {
			p.Run(rounds)
			team.Safepoint()
		}
	})
	ops := float64(rounds*calls*p.Ops*r.team.Size()) / time.Since(start).Seconds()
	r.bestOp[kind] = max(r.bestOp[kind], ops)
	return r.bestOp[kind], err
}

// Close gives the memory back.
func (r *Roofs) Close() error { return r.mem.Free() }
