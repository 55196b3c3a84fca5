// Package probe measures a machine, level by level and by numbers of threads: bandwidth, latency, barriers, sums of vectors, arithmetic, files;
// and what limits it. It composes what package measure can take into tables of values, and prints nothing.
package probe

import (
	"context"

	"ck/internal/measure"
	"ck/internal/team"
	"ck/internal/topo"
)

// PeakRate is how fast threads compute with an instruction.
type PeakRate struct {
	Kind        string         `json:"kind"`
	Instruction string         `json:"instruction"`
	Threads     int            `json:"threads"`
	GOPs        float64        `json:"gop_per_s"` // the best sample
	Samples     measure.Series `json:"samples"`   // GOP/s
}

// Roofs are what a machine allows, for some numbers of threads.
type Roofs struct {
	Peaks     []PeakRate  `json:"peaks"`
	Bandwidth []Bandwidth `json:"bandwidth"`
}

// Add measures the roofs of n threads, too. samples is how many there are of each loop and level at least.
func (d *Roofs) Add(ctx context.Context, m topo.Machine, n, samples int) error {
	bw, err := Bandwidths(ctx, m, n, samples)
	if err != nil {
		return err
	}
	d.Bandwidth = append(d.Bandwidth, bw...)
	return withTeam(m, n, func(t *team.Team) error {
		rates, err := measure.PeakRates(ctx, t, samples)
		for _, r := range rates {
			s := r.Series.Scale(1e-9)
			d.Peaks = append(d.Peaks, PeakRate{r.Kind, r.Instruction, n, s.Best, s})
		}
		return err
	})
}

// Peak is the best rate of a kind with n threads, in GOP/s; fewer threads that were faster count, since n can do as much. bfloat16 may use the instructions of float32, and so does what has none of
// its own: the portable loops know no other.
func (d *Roofs) Peak(kind string, n int) float64 {
	best, f32, measured := 0.0, 0.0, false
	for _, p := range d.Peaks {
		if p.Threads <= n && p.Kind == kind {
			best = max(best, p.GOPs)
		}
		if p.Threads <= n && p.Kind == measure.F32 {
			f32 = max(f32, p.GOPs)
		}
		measured = measured || p.Threads == n
	}
	if !measured {
		return 0
	}
	if best == 0 || kind == measure.BF16 {
		return max(best, f32)
	}
	return best
}

// Read is the bandwidth of a level with n threads, in GB/s; fewer threads that were faster count, since n can do as much. It is 0 for what
// was not measured, and for a level that one further from the core contradicts.
func (d *Roofs) Read(level string, n int) float64 {
	best, measured := 0.0, false
	for _, b := range d.Bandwidth {
		if b.Level != level || b.Threads > n {
			continue
		}
		if b.Threads == n {
			measured = true
			for _, o := range d.Bandwidth {
				if b.SlowerThan == o.Level {
					return 0
				}
			}
		}
		best = max(best, b.GBps)
	}
	if !measured {
		return 0
	}
	return best
}

// Raise lifts a measured bandwidth to a better sample.
func (d *Roofs) Raise(level string, n int, gbps float64) {
	for i := range d.Bandwidth {
		if b := &d.Bandwidth[i]; b.Level == level && b.Threads == n {
			b.GBps = max(b.GBps, gbps)
		}
	}
}
