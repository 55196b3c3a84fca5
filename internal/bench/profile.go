package bench

import (
	"fmt"
	"io"
	"slices"

	"ck/internal/measure"
	"ck/internal/plan"
)

// profiled is one phase of a test with the time of its steps.
type profiled struct {
	phase   string
	profile *measure.Profile
	walk    plan.Load
}

// profilePhases runs walks of each phase of a test with a hook: a prompt as one walk, or some generated tokens.
func (b *Runner) profilePhases(t Test) ([]profiled, error) {
	s, err := b.start(t)
	if err != nil {
		return nil, err
	}
	defer b.end(s)
	defer b.e.SetHook(nil)
	cache := b.e.KVPerPosition()
	var out []profiled
	run := func(phase string, t Test, n int, w plan.Load) error {
		if _, err := b.once(t, s); err != nil { // warm
			return err
		}
		p, err := b.plan(plan.ClassOf(w.Rows))
		if err != nil {
			return err
		}
		x := measure.NewProfile(p)
		b.e.SetHook(x.Hook)
		defer b.e.SetHook(nil)
		for range n {
			if _, err := b.once(t, s); err != nil {
				return err
			}
		}
		w.Experts = b.e.ExpertsRead(w.Rows)
		out = append(out, profiled{phase, x, w})
		return nil
	}
	if n := min(t.Prompt, b.set.UBatch); n > 0 {
		w := plan.Load{Rows: n, Picks: 1, Keys: float64(t.Depth) + float64(n+1)/2, CacheReads: 1, CacheBytes: cache}
		if err := run("prefill of "+rowsText(n), Test{Prompt: n, Depth: t.Depth, Rows: 1}, 3, w); err != nil {
			return nil, err
		}
	}
	if t.Gen > 0 {
		n := min(t.Gen, warmTokens)
		w := plan.Load{Rows: t.Rows, Picks: t.Rows, Keys: float64(t.Depth) + float64(n+1)/2, CacheReads: float64(t.Rows), CacheBytes: cache}
		if err := run("decode of "+rowsText(t.Rows), Test{Gen: n, Depth: t.Depth, Rows: t.Rows}, 3, w); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func rowsText(n int) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

// profile adds the steps' table to a result, and writes the folded stacks unless folded is nil.
func (b *Runner) profile(t Test, r *Result, folded io.Writer) error {
	phases, err := b.profilePhases(t)
	if err != nil {
		return err
	}
	if b.roofs != nil { // of attention; the matmuls' is known
		if _, err := b.roofs.PeakNow(measure.F32); err != nil {
			return err
		}
	}
	for _, x := range phases {
		r.Steps = append(r.Steps, b.stepRows(x)...)
		if folded != nil {
			if err := x.profile.Fold(folded, fmt.Sprintf("%s, %d threads;%s", r.Name(), r.Threads, x.phase)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Runner) stepRows(x profiled) []StepRow {
	var out []StepRow
	for _, s := range x.profile.Steps(x.walk) {
		row := StepRow{Phase: x.phase, Name: s.Name, Items: s.Items, Us: s.Time * 1e6, Share: s.Share, GBps: s.BytesRate() / 1e9,
			GOPs: s.OpsRate() / 1e9, Kind: s.Work.Kind, Ops: s.Work.Ops, Bytes: s.Work.Bytes}
		if b.roofs != nil && b.roofs.BestRead() > 0 {
			row.ReadPct = 100 * s.BytesRate() / b.roofs.BestRead()
			if peak := b.roofs.BestPeak(s.Work.Kind); peak > 0 {
				row.PeakPct = 100 * s.OpsRate() / peak
			}
		}
		out = append(out, row)
	}
	return slices.Clip(out)
}
