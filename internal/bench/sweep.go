package bench

import (
	"context"
	"fmt"

	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/topo"
)

// SweepPoint is a number of threads.
type SweepPoint struct {
	Threads int     `json:"threads"`
	TS      float64 `json:"tokens_per_s"` // median
	Lo      float64 `json:"lo"`
	Hi      float64 `json:"hi"`
	N       int     `json:"n"`        // repetitions
	SpeedUp float64 `json:"speed_up"` // over the first point
	GBps    float64 `json:"gb_per_s"`
	GOPs    float64 `json:"gop_per_s"`
}

// SweepPhase is a phase with what was fitted.
type SweepPhase struct {
	Test   string       `json:"test"`
	Points []SweepPoint `json:"points"`
	Knee   int          `json:"knee"`         // 0: refused
	Serial *float64     `json:"serial_share"` // null: too few numbers of threads, or refused
	Lo     float64      `json:"serial_lo"`    // as far as the rates' intervals let it be; lo and hi 0: not known, one repetition each
	Hi     float64      `json:"serial_hi"`
	Why    string       `json:"refused"` // why there is neither knee nor serial share; "": there is
}

// sweepMost is how many times as many repetitions as asked for there may be until a rate is known well enough.
const sweepMost = 4

// kneeShare is how near to the best rate a number of threads is good enough.
const kneeShare = 0.95

// What a phase is refused for: an interval of the serial share that is wider, or one of a rate that is wider than this share of it. Where
// more threads are slower S is 1 whatever the rates are, and its interval tells nothing.
const (
	serialApart = 0.25
	rateApart   = 0.5
)

// fit fills in what follows from the points.
func (s *SweepPhase) fit() {
	var workers []int
	var rates, times, fast, slow []float64
	known := true
	wide := &s.Points[0]
	for i := range s.Points {
		x := &s.Points[i]
		x.SpeedUp = x.TS / s.Points[0].TS
		workers, rates, times = append(workers, x.Threads), append(rates, x.TS), append(times, 1/x.TS)
		fast, slow = append(fast, 1/x.Hi), append(slow, 1/x.Lo)
		known = known && x.N > 1
		if x.Hi*wide.Lo > wide.Hi*x.Lo {
			wide = x
		}
	}
	serial, _, ok := measure.Amdahl(workers, times)
	if ok && known {
		s.Lo, s.Hi, _ = measure.AmdahlRange(workers, fast, slow)
		if s.Hi-s.Lo > serialApart || wide.Hi-wide.Lo > rateApart*wide.TS {
			s.Why = fmt.Sprintf("%s to %s tokens/s with %s, S between %.3f and %.3f; measure again when nothing else runs",
				measure.Digits(wide.Lo), measure.Digits(wide.Hi), measure.ThreadsText(wide.Threads), s.Lo, s.Hi)
			return
		}
	}
	s.Knee = measure.Knee(workers, rates, kneeShare)
	if ok {
		s.Serial = &serial
	}
}

// Summary is the phase in a line.
func (s *SweepPhase) Summary() string {
	if s.Why != "" {
		return s.Test + ": neither knee nor S: " + s.Why
	}
	text := fmt.Sprintf("%s: knee at %s", s.Test, measure.ThreadsText(s.Knee))
	if s.Serial == nil {
		return text + "; one number of threads is no fit"
	}
	spread := fmt.Sprintf(" (%.3f–%.3f)", s.Lo, s.Hi)
	if s.Lo == 0 && s.Hi == 0 {
		spread = ""
		for _, x := range s.Points {
			if x.N < 2 {
				spread = " (one repetition: nobody knows how far off)"
			}
		}
	}
	text += fmt.Sprintf("; S = %.3f%s", *s.Serial, spread)
	switch {
	case *s.Serial < 0.001:
		return text + ": no limit to be seen"
	case *s.Serial > 0.999:
		return text + ": more threads gain nothing"
	}
	return text + fmt.Sprintf(", at most %.3g times the speed of one thread", 1 / *s.Serial)
}

// Sweep measures the tests of a job with growing numbers of threads, each up to sweepMost times as often as asked for while its interval
// is wide, without roofs. each gets every result as soon as it is there.
func Sweep(ctx context.Context, m *generate.Model, j Job, ev Events, each func(*Result)) ([]SweepPhase, error) {
	facts, err := FactsOf(m)
	if err != nil {
		return nil, err
	}
	j.NoRoof, j.Most = true, sweepMost*j.Reps
	phases := make([]SweepPhase, len(j.Tests))
	for _, n := range j.Threads {
		opt := j.Engine
		opt.Threads = n
		err := j.open(ctx, m, facts, opt, ev, func(b *Runner) error {
			for i, t := range j.Tests {
				r, err := b.Measure(t)
				if err != nil {
					return err
				}
				each(r)
				phases[i].Test = r.Test
				phases[i].Points = append(phases[i].Points, SweepPoint{Threads: n, TS: r.TS.Median, Lo: r.TS.Lo, Hi: r.TS.Hi, N: r.TS.N, GBps: r.GBps, GOPs: r.GOPs})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for i := range phases {
		phases[i].fit()
	}
	return phases, nil
}

// SweepThreads are all numbers up to 16, then each an eighth more than the one before, up to all CPUs with SMT siblings.
func SweepThreads(m topo.Machine) []int {
	var list []int
	limit := len(m.Affinity)
	if q := m.QuotaWorkers(); q > 0 {
		limit = min(limit, q)
	}
	for n := 1; n < limit; n += max(1, n/8) {
		list = append(list, n)
	}
	return append(list, limit)
}
