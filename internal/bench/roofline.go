package bench

import (
	"context"

	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/probe"
)

// PlacedStep is a step under the roof.
type PlacedStep struct {
	StepRow
	Intensity float64 `json:"op_per_byte"`
	Roof      float64 `json:"roof_gops"`
	RoofShare float64 `json:"share_of_roof"`
	Bound     string  `json:"bound"` // "memory" or the kind of arithmetic
}

// Roofline is the roofs of a machine and the steps of a model under them, schema ck.bench.roofline/1.
type Roofline struct {
	Schema string       `json:"schema"`
	Host   measure.Host `json:"host"`
	probe.Roofs
	Model     string       `json:"model,omitempty"`
	Tests     []string     `json:"tests,omitempty"`
	Steps     []PlacedStep `json:"steps,omitempty"`
	OtherTime []OtherTime  `json:"other_time,omitempty"`
	Warnings  []string     `json:"warnings"`
}

// OtherTime is the share of a phase's time outside of the steps that have work.
type OtherTime struct {
	Phase   string  `json:"phase"`
	Barrier float64 `json:"barrier_share"`
	Other   float64 `json:"other_share"`
}

// Place measures the steps of a model, those of the job's only test with its only number of threads, and places them under the roofs.
func (d *Roofline) Place(ctx context.Context, m *generate.Model, j Job, ev Events) error {
	facts, err := FactsOf(m)
	if err != nil {
		return err
	}
	t, n, opt := j.Tests[0], j.Threads[0], j.Engine
	opt.Threads = n
	return j.open(ctx, m, facts, opt, ev, func(b *Runner) error {
		d.Model, d.Tests = b.facts.Type, []string{t.String()}
		s, err := b.start(t)
		if err != nil {
			return err
		}
		for _, phase := range []Test{{Prompt: t.Prompt, Depth: t.Depth, Rows: 1}, {Gen: t.Gen, Depth: t.Depth, Rows: 1}} {
			if err == nil && phase.Tokens() > 0 {
				err = b.warm(phase, s)
			}
		}
		b.end(s)
		if err != nil {
			return err
		}
		phases, err := b.profilePhases(t)
		if err != nil {
			return err
		}
		if b.roofs != nil { // the roof of this moment may be above that of the beginning
			for range 3 {
				if _, err := b.roofs.ReadNow(); err != nil {
					return err
				}
			}
			d.Raise(measure.DRAM, n, b.roofs.BestRead()/1e9)
		}
		for _, x := range phases {
			other := OtherTime{Phase: x.phase}
			for _, row := range b.stepRows(x) {
				switch {
				case row.Ops > 0 && row.Bytes > 0:
					d.Steps = append(d.Steps, d.place(row, n))
				case row.Name == "barrier":
					other.Barrier += row.Share
				default:
					other.Other += row.Share
				}
			}
			d.OtherTime = append(d.OtherTime, other)
		}
		return nil
	})
}

// place computes a step's share of what the roofs of n threads allow.
func (d *Roofline) place(s StepRow, n int) PlacedStep {
	x := PlacedStep{StepRow: s, Intensity: s.Ops / s.Bytes, Bound: "memory"}
	read, peak := d.Read(measure.DRAM, n), d.Peak(s.Kind, n)
	x.ReadPct, x.PeakPct = 100*s.GBps/read, 100*s.GOPs/peak
	if x.Roof = x.Intensity * read; x.Roof > peak {
		x.Roof, x.Bound = peak, s.Kind
	}
	x.RoofShare = s.GOPs / x.Roof
	return x
}
