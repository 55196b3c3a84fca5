// Package bench measures how fast models run: tests as llama-bench names them, repeated, with the roofs of the machine beside each
// repetition, as values. It knows no command line and prints nothing.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"ck/internal/engine"
	"ck/internal/measure"
	"ck/internal/plan"
	"ck/internal/topo"
)

// Settings are how tests are measured.
type Settings struct {
	Reps     int    // repetitions of each test
	Most     int    // repetitions, where their interval is wide; below Reps: exactly Reps
	NoWarmup bool   // measure the first run, with packing of the weights and page faults
	NoRoof   bool   // do not measure the machine's limits
	UBatch   int    // rows of a prompt that are evaluated together: what the engine was opened with
	KV, Act  string // names of the types of the cache and of activations, for results
	Commit   string // of the program, for results
}

// Events are told what happens, on the calling goroutine.
type Events struct {
	Info       func(text string) // what was decided
	Warn       func(text string) // what the user should know and can act on
	Repetition func()            // of those that Settings ask for, one is done
}

// Runner measures one engine.
type Runner struct {
	ctx     context.Context
	e       *engine.Engine
	set     Settings
	ev      Events
	threads int
	facts   Facts
	host    measure.Host

	without  engine.Ablation // of a variant
	variants []*Runner       // of the same engine, which are measured in turn with it

	ids      []int32 // tokens to feed, drawn at random
	roofs    *measure.Roofs
	counters *measure.Counters
	notes    []string
	plans    map[plan.Class]*plan.Plan
	release  func()
}

// New prepares measurements on e, an engine of the model of which facts tell. The calling goroutine is worker 0 until Close.
func New(ctx context.Context, facts Facts, e *engine.Engine, set Settings, ev Events) (*Runner, error) {
	survey, err := topo.Inspect(os.DirFS("/"), true)
	if err != nil {
		return nil, err
	}
	b := &Runner{ctx: ctx, facts: facts, e: e, set: set, ev: ev, threads: e.Threads(plan.One), host: measure.NewHost(survey),
		plans: map[plan.Class]*plan.Plan{}}
	rng := rand.New(rand.NewPCG(1, 2))
	b.ids = make([]int32, 4096)
	for i := range b.ids {
		b.ids[i] = rng.Int32N(int32(e.Graph.Vocab))
	}
	t, err := e.Team(b.threads)
	if err != nil {
		return nil, err
	}
	b.release = e.Hold()
	if b.counters, err = measure.NewCounters(t); err != nil {
		b.notes = append(b.notes, err.Error())
	}
	if n := e.MappedBytes(); n > 0 {
		b.notes = append(b.notes, fmt.Sprintf("%d MB of panels are those of a mapped file", n/1e6))
	}
	if set.NoRoof {
		return b, nil
	}
	panels := int64(0) // which may not be in memory yet
	if e.Packed() {
		panels = e.WeightBytes()
	}
	bytes := measure.RoofBytesBeside(e.Machine, b.threads, panels)
	if bytes == 0 {
		b.notes = append(b.notes, "the roofs are not measured: too little memory is left beside the model to tell it from the caches")
		return b, nil
	}
	if b.roofs, err = measure.NewRoofsOf(t, bytes); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// vary opens variants of the engine without single things, which measureAll measures in turn with it. There is no room beside it for
// those that are left.
func (b *Runner) vary(list []engine.Ablation) (left []engine.Ablation, err error) {
	for _, a := range list {
		switch why := b.e.NoHugePages(); {
		case a == engine.Huge && why != nil:
			b.ev.Warn(fmt.Sprintf("--ablate huge: there is nothing to leave out: %v", why))
			continue
		case a == engine.Pack && !b.e.Packed():
			b.ev.Warn("--ablate pack: there is nothing to leave out: the weights are not packed here; see -v")
			continue
		}
		e, err := b.e.Variant(a)
		if errors.Is(err, engine.ErrNoRoom) {
			b.ev.Warn(fmt.Sprintf("--ablate %s: %v; it is measured by itself after the others, not in turn with them", a, err))
			left = append(left, a)
			continue
		}
		if err != nil {
			return nil, err
		}
		v := *b
		v.e, v.without, v.variants, v.plans = e, a, nil, map[plan.Class]*plan.Plan{}
		b.variants = append(b.variants, &v)
	}
	return left, nil
}

// Close ends the variants and lets worker 0 go; the engine stays open.
func (b *Runner) Close() {
	for _, v := range b.variants {
		v.e.Close()
	}
	if b.roofs != nil {
		b.roofs.Close()
	}
	if b.counters != nil {
		b.counters.Close()
	}
	b.release()
}
