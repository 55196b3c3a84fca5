package bench

import (
	"context"
	"fmt"
	"io"

	"ck/internal/engine"
	"ck/internal/generate"
)

// Test is one test of a model.
type Test struct {
	Prompt int // tokens of a prompt
	Gen    int // tokens that each sequence generates, behind the prompt
	Depth  int // tokens in the context before, which do not count
	Rows   int // sequences; 1 for prompts
}

// String is the name that llama-bench gives the test.
func (t Test) String() string {
	s := ""
	if t.Prompt > 0 {
		s = fmt.Sprintf("pp%d", t.Prompt)
	}
	if t.Gen > 0 {
		if s != "" {
			s += "+"
		}
		s += fmt.Sprintf("tg%d", t.Gen)
		if t.Rows > 1 {
			s += fmt.Sprintf("x%d", t.Rows)
		}
	}
	if t.Depth > 0 {
		s += fmt.Sprintf(" @ d%d", t.Depth)
	}
	return s
}

// Tokens is how many tokens count.
func (t Test) Tokens() int { return t.Prompt + t.Gen*t.Rows }

// Job is what Run and Sweep measure.
type Job struct {
	Settings
	Engine  engine.Options // but for Threads
	NUMA    []string       // of Engine, one after the other; none: as Engine says
	Threads []int          // numbers of workers, one after the other; 0: what the machine grants
	Tests   []Test
	Without []engine.Ablation // variants, measured in turn with the usual engine
	Steps   bool              // results have the time of each step, too
	Folded  io.Writer         // gets the steps' time as folded stacks; nil: none
}

// open opens an engine for f.
func (j *Job) open(ctx context.Context, m *generate.Model, facts Facts, opt engine.Options, ev Events, f func(*Runner) error) error {
	e, err := engine.Open(m.Weights, opt)
	if err != nil {
		return err
	}
	defer e.Close()
	for _, s := range e.Notes {
		ev.Info(s)
	}
	for _, s := range e.Warnings {
		ev.Warn(s)
	}
	b, err := New(ctx, facts, e, j.Settings, ev)
	if err != nil {
		return err
	}
	defer b.Close()
	for _, s := range append(b.host.Lines(), b.notes...) {
		ev.Info(s)
	}
	return f(b)
}

// Run measures all tests of a job with all numbers of threads. each gets every result as soon as it is there; where variants have room
// they follow the usual engine, test by test, else they come after all tests.
func Run(ctx context.Context, m *generate.Model, j Job, ev Events, each func(*Result) error) error {
	if len(j.NUMA) == 0 {
		return run(ctx, m, j, ev, each)
	}
	for _, mode := range j.NUMA {
		one := j
		one.Engine.NUMA = mode
		if err := run(ctx, m, one, ev, func(r *Result) error {
			r.NUMA = mode
			return each(r)
		}); err != nil {
			return err
		}
	}
	return nil
}

// run is Run in one mode.
func run(ctx context.Context, m *generate.Model, j Job, ev Events, each func(*Result) error) error {
	facts, err := FactsOf(m)
	if err != nil {
		return err
	}
	finish := func(b *Runner, t Test, r *Result) error {
		r.Placement = placement(b.e)
		if j.Steps || j.Folded != nil {
			if err := b.profile(t, r, j.Folded); err != nil {
				return err
			}
		}
		return each(r)
	}
	for _, n := range j.Threads {
		opt := j.Engine
		opt.Threads = n
		var left []engine.Ablation
		var usual []*Result
		err := j.open(ctx, m, facts, opt, ev, func(b *Runner) (err error) {
			if left, err = b.vary(j.Without); err != nil {
				return err
			}
			for _, t := range j.Tests {
				rs, err := b.MeasureAll(t)
				if err != nil {
					return err
				}
				usual = append(usual, rs[0])
				for i, x := range append([]*Runner{b}, b.variants...) {
					if err := finish(x, t, rs[i]); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, a := range left {
			opt.Without = a
			err := j.open(ctx, m, facts, opt, ev, func(b *Runner) error {
				b.without = a
				for i, t := range j.Tests {
					r, err := b.Measure(t)
					if err != nil {
						return err
					}
					CompareAlone(r, usual[i])
					if err := finish(b, t, r); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
