package probe

import (
	"context"
	"fmt"

	"ck/internal/measure"
	"ck/internal/team"
	"ck/internal/topo"
)

// RoomError says that memory is too small for a measurement.
type RoomError struct{ Err error }

func (e *RoomError) Error() string { return e.Err.Error() }
func (e *RoomError) Unwrap() error { return e.Err }

func roomf(format string, a ...any) error { return &RoomError{fmt.Errorf(format, a...)} }

// withTeam runs f with a team of n pinned threads; where pinning is refused, they are not.
func withTeam(m topo.Machine, n int, f func(*team.Team) error) error {
	cpus := m.CPUsFor(n)
	own, _ := m.Workers()
	t, err := team.New(cpus, team.Options{Pin: n <= len(own), Quota: len(own)})
	if err != nil {
		if t, err = team.New(cpus, team.Options{Quota: len(own)}); err != nil {
			return err
		}
	}
	defer t.Close()
	return f(t)
}

// Bandwidth is how fast threads read a level of the memory hierarchy.
type Bandwidth struct {
	Level      string         `json:"level"`
	Threads    int            `json:"threads"`
	Bytes      int            `json:"bytes_per_thread"`
	Loop       string         `json:"loop"`                  // that was best
	GBps       float64        `json:"gb_per_s"`              // the best sample
	SlowerThan string         `json:"slower_than,omitempty"` // what cannot be faster, and was: this is no roof
	Samples    measure.Series `json:"samples"`               // GB/s
}

// Name tells the level and the threads.
func (r *Bandwidth) Name() string { return r.Level + " with " + measure.ThreadsText(r.Threads) }

// again is how often a figure that others contradict is measured once more.
const again = 2

// Bandwidths measures all levels with n threads. Where memory is too small for them the error is a *RoomError.
func Bandwidths(ctx context.Context, m topo.Machine, n, samples int) ([]Bandwidth, error) {
	var out []Bandwidth
	err := withTeam(m, n, func(t *team.Team) error {
		levels := measure.Levels(m, n)
		read := func(l measure.Level) (Bandwidth, error) {
			r, err := measure.ReadLevel(ctx, t, l, samples)
			s := r.Series.Scale(1e-9)
			return Bandwidth{Level: l.Name, Threads: n, Bytes: l.Bytes, Loop: r.Loop, GBps: s.Best, Samples: s}, err
		}
		for _, l := range levels {
			left, _, known := m.Budget()
			switch need := 2 * int64(l.Bytes) * int64(n); {
			case l.Bytes == 0:
				return roomf("%s: the %d MiB of memory that are left are too few to tell it from the caches with %d threads; name fewer threads", l.Name, left>>20, n)
			case known && need > left:
				return roomf("%s: %d threads take %d MiB of memory, half of which must stay free, and %d MiB are left; name fewer threads", l.Name, n, need>>20, left>>20)
			}
			r, err := read(l)
			if err != nil {
				return err
			}
			out = append(out, r)
		}
		for range again {
			if !Contradict(out) {
				break
			}
			for i := range out {
				if out[i].SlowerThan == "" {
					continue
				}
				r, err := read(levels[i])
				if err != nil {
					return err
				}
				if r.GBps > out[i].GBps {
					out[i].GBps, out[i].Loop = r.GBps, r.Loop
				}
				out[i].Samples = measure.Better(out[i].Samples, r.Samples, measure.HighIsBest)
			}
		}
		Contradict(out)
		return nil
	})
	return out, err
}

// Contradict marks rows that cannot be roofs, since a level further from the core, or the same level with fewer threads, was faster. It
// reports whether there are any.
func Contradict(rows []Bandwidth) (any bool) {
	byThreads := map[int][]*Bandwidth{}
	for i := range rows {
		r := &rows[i]
		r.SlowerThan = ""
		byThreads[r.Threads] = append(byThreads[r.Threads], r)
	}
	for _, list := range byThreads {
		rates := make([]float64, len(list))
		for i, r := range list {
			rates[i] = r.GBps
		}
		for i, j := range measure.Contradictions(rates, measure.RatesApart) {
			if j >= 0 {
				list[i].SlowerThan, any = list[j].Level, true
			}
		}
	}
	for i := range rows {
		for j := range rows {
			a, b := &rows[i], &rows[j]
			if a.SlowerThan == "" && a.Level == b.Level && b.Threads < a.Threads && measure.Contradictions([]float64{a.GBps, b.GBps}, measure.RatesApart)[0] >= 0 {
				a.SlowerThan, any = b.Name(), true
			}
		}
	}
	return any
}
