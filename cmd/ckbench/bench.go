package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/plan"
	"ck/internal/topo"
	"ck/internal/walk"
)

// bench measures one engine.
type bench struct {
	p       *program
	ctx     context.Context
	e       *engine.Engine
	o       *engineFlags
	threads int
	facts   modelFacts
	host    measure.Host
	commit  string

	without  engine.Ablation // of a variant
	variants []*bench        // of the same engine, which are measured in turn with it

	ids      []int32 // tokens to feed, drawn at random
	roofs    *measure.Roofs
	counters *measure.Counters
	notes    []string
	plans    map[plan.Class]*plan.Plan
	release  func()
}

// newBench prepares measurements on e. The calling goroutine is worker 0 until close.
func (p *program) newBench(ctx context.Context, m *generate.Model, e *engine.Engine, o *engineFlags) (*bench, error) {
	survey, err := topo.Inspect(os.DirFS("/"), true)
	if err != nil {
		return nil, err
	}
	b := &bench{p: p, ctx: ctx, e: e, o: o, threads: e.Threads(plan.One), host: measure.NewHost(survey), commit: commit(),
		plans: map[plan.Class]*plan.Plan{}}
	if b.facts, err = factsOf(m); err != nil {
		return nil, err
	}
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
	if p.run.noRoof {
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
		b.close()
		return nil, err
	}
	return b, nil
}

// vary opens variants of the engine without single things, which measureAll measures in turn with it. There is no room beside it for
// those that are left.
func (b *bench) vary(list []engine.Ablation) (left []engine.Ablation, err error) {
	for _, a := range list {
		switch why := b.e.NoHugePages(); {
		case a == engine.Huge && why != nil:
			b.p.app.Warn("--ablate huge: there is nothing to leave out: %v", why)
			continue
		case a == engine.Pack && !b.e.Packed():
			b.p.app.Warn("--ablate pack: there is nothing to leave out: the weights are not packed here; see -v")
			continue
		}
		e, err := b.e.Variant(a)
		if errors.Is(err, engine.ErrNoRoom) {
			b.p.app.Warn("--ablate %s: %v; it is measured by itself after the others, not in turn with them", a, err)
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

func (b *bench) close() {
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

// commit is the one that the program was built from, as far as known.
func commit() string {
	if cli.Commit != "" {
		return cli.Commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "unknown"
}

// tokens are n tokens from a place that differs from walk to walk.
func (b *bench) tokens(at, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = b.ids[(at+i)%len(b.ids)]
	}
	return out
}

// testWork is what a test has to read and compute at least.
type testWork struct {
	bytes, ops float64
	kind       string
	walks      []walkWork
}

// walkWork is that of some equal walks.
type walkWork struct{ n, bytes, ops float64 }

// plan is the plan of a class.
func (b *bench) plan(c plan.Class) (*plan.Plan, error) {
	if p := b.plans[c]; p != nil {
		return p, nil
	}
	p, err := b.e.Plan(c)
	b.plans[c] = p
	return p, err
}

// work adds a test up. Keys of a prompt are read once by each walk: at least.
func (b *bench) work(t test) (testWork, error) {
	var w testWork
	add := func(n float64, rows, picks int, keys, reads float64) error {
		p, err := b.plan(plan.ClassOf(rows))
		if err != nil {
			return err
		}
		x := p.Total(plan.Load{Rows: rows, Picks: picks, Keys: keys, CacheReads: reads, CacheBytes: float64(b.e.KVPerPosition())})
		w.bytes, w.ops, w.kind = w.bytes+n*x.Bytes, w.ops+n*x.Ops, x.Kind
		w.walks = append(w.walks, walkWork{n, x.Bytes, x.Ops})
		return nil
	}
	for done := 0; done < t.prompt; done += b.o.ubatch {
		n := min(b.o.ubatch, t.prompt-done)
		picks := 0
		if done+n == t.prompt {
			picks = 1
		}
		if err := add(1, n, picks, float64(t.depth+done)+float64(n+1)/2, 1); err != nil {
			return w, err
		}
	}
	if t.gen > 0 {
		keys := float64(t.depth+t.prompt) + float64(t.gen+1)/2
		if err := add(float64(t.gen), t.rows, t.rows, keys, float64(t.rows)); err != nil {
			return w, err
		}
	}
	return w, nil
}

// least is the least time in seconds that a test can take under roofs in bytes and operations per second.
func (w testWork) least(read, peak float64) float64 {
	s := 0.0
	for _, x := range w.walks {
		s += x.n * max(x.bytes/read, x.ops/peak)
	}
	return s
}

// none ignores logits.
func none(int, []float32) error { return nil }

// state is the sequences of a test.
type state struct {
	seqs  []int
	depth int
}

// start makes the sequences of a test and fills them to its depth.
func (b *bench) start(t test) (*state, error) {
	s := &state{depth: t.depth}
	for i := range t.rows {
		s.seqs = append(s.seqs, b.e.NewSeq())
		if t.depth > 0 {
			if err := b.e.Forward(b.ctx, s.seqs[i], b.tokens(7*i, t.depth), engine.None, none); err != nil {
				b.end(s)
				return nil, err
			}
		}
	}
	return s, nil
}

func (b *bench) end(s *state) {
	for _, q := range s.seqs {
		b.e.Drop(q)
	}
}

// once runs a test on its sequences, which are at its depth again afterwards, and returns the time.
func (b *bench) once(t test, s *state) (time.Duration, error) {
	prompt := b.tokens(11, t.prompt)
	batch := walk.Batch{IDs: make([]int32, t.rows), Pos: make([]int32, t.rows), Seq: s.seqs, Pick: make([]int32, t.rows)}
	for r := range t.rows {
		batch.Pick[r] = int32(r)
	}
	start := time.Now()
	if t.prompt > 0 {
		if err := b.e.Forward(b.ctx, s.seqs[0], prompt, engine.Last, none); err != nil {
			return 0, err
		}
	}
	for i := range t.gen {
		if err := b.ctx.Err(); err != nil {
			return 0, context.Cause(b.ctx)
		}
		for r := range t.rows {
			batch.IDs[r], batch.Pos[r] = b.ids[(i+37*r)%len(b.ids)], int32(t.depth+t.prompt+i)
		}
		if _, err := b.e.Walk(b.ctx, &batch); err != nil {
			return 0, err
		}
	}
	d := time.Since(start)
	for _, q := range s.seqs {
		b.e.Truncate(q, t.depth)
	}
	return d, nil
}

// warmTokens is how many tokens a run that warms generates.
const warmTokens = 32

// warm packs all weights that have room and runs a test, shortened, as often as measure.Warm does: a benchmark that repeats three times
// must not wait for a fourth and fifth.
func (b *bench) warm(t test, s *state) error {
	if err := b.e.Pack(b.ctx); err != nil {
		return err
	}
	short := t
	short.gen = min(t.gen, warmTokens)
	return measure.Warm(float64(t.tokens())/float64(short.tokens()), func() (time.Duration, error) { return b.once(short, s) })
}

// probe samples the roofs now, in GB/s and GOP/s.
func (b *bench) probe(kind string) (read, peak float64, err error) {
	if b.roofs == nil {
		return 0, 0, nil
	}
	if read, err = b.roofs.ReadNow(); err != nil {
		return 0, 0, err
	}
	peak, err = b.roofs.PeakNow(kind)
	return read / 1e9, peak / 1e9, err
}

// course is a test on one engine.
type course struct {
	b      *bench
	r      *result
	w      testWork
	s      *state
	counts measure.Counts
}

// prepare makes everything warm for a test. Where the engine has the sequences of another course, their state is used.
func (b *bench) prepare(t test, other *course) (*course, error) {
	c := &course{b: b, r: b.newResult(t)}
	c.r.Notes, c.r.said = append(c.r.Notes, b.notes...), len(b.notes)
	var err error
	if c.w, err = b.work(t); err != nil {
		return nil, err
	}
	if other != nil && b.e.SharesSequences(other.b.e) {
		c.s = other.s
	} else if c.s, err = b.start(t); err != nil {
		return nil, err
	}
	if b.p.run.noWarmup {
		return c, nil
	}
	return c, b.warm(t, c.s)
}

// repeat is one repetition.
func (c *course) repeat(t test) error {
	before, err := c.b.count()
	if err != nil {
		return err
	}
	watch := measure.StartWatch()
	d, err := c.b.once(t, c.s)
	if err != nil {
		return err
	}
	noise := watch.Stop()
	after, err := c.b.count()
	if err != nil {
		return err
	}
	n := after.Minus(before)
	c.counts = measure.Counts{Instructions: c.counts.Instructions + n.Instructions, Cycles: c.counts.Cycles + n.Cycles,
		CacheMisses: c.counts.CacheMisses + n.CacheMisses}
	c.r.Samples = append(c.r.Samples, sample{Ns: d.Nanoseconds(), TS: float64(t.tokens()) / d.Seconds(), Noise: noise})
	return nil
}

// wideRate is how wide an interval may be, of the median, that more repetitions are not asked for.
const wideRate = 0.1

// enough reports whether so many repetitions are: as many as asked for, and more, up to most, while an interval is wide.
func enough(done, reps, most int, wide func() bool) bool {
	return done >= reps && (done >= most || !wide())
}

// wide reports whether the interval of the rate is.
func (c *course) wide() bool {
	var ts []float64
	for _, s := range c.r.Samples {
		ts = append(ts, s.TS)
	}
	s := measure.Summarize(ts)
	return s.N > 1 && s.Hi-s.Lo > wideRate*s.Median
}

// end computes what follows from all repetitions.
func (c *course) end(t test) *result {
	if c.b.counters != nil {
		n := float64(t.tokens() * len(c.r.Samples))
		c.r.Counts = &measure.Counts{Instructions: c.counts.Instructions / n, Cycles: c.counts.Cycles / n, CacheMisses: c.counts.CacheMisses / n}
	}
	if l3 := c.b.e.Machine.L3.Bytes; l3 > 0 && float64(l3) > c.w.walks[len(c.w.walks)-1].bytes {
		c.r.Notes = append(c.r.Notes, "the weights fit into the last cache, so the read bandwidth of the memory is no limit")
	}
	c.b.finish(c.r, c.w)
	return c.r
}

// measure runs a test; at is told of each repetition.
func (b *bench) measure(t test, at func()) (*result, error) {
	rs, err := b.measureAll(t, at)
	if err != nil {
		return nil, err
	}
	return rs[0], nil
}

// measureAll runs a test on the engine and its variants in turn, repetition by repetition, so that what disturbs the machine meets all
// of them alike. The results are in this order.
func (b *bench) measureAll(t test, at func()) ([]*result, error) {
	var courses []*course
	for _, x := range append([]*bench{b}, b.variants...) {
		var first *course
		if len(courses) > 0 {
			first = courses[0]
		}
		c, err := x.prepare(t, first)
		if c != nil && c.s != nil && (first == nil || c.s != first.s) {
			defer x.end(c.s)
		}
		if err != nil {
			return nil, err
		}
		courses = append(courses, c)
	}
	if len(courses) > 1 { // a round that does not count: the last of them has just run, the first did long ago
		for _, c := range courses {
			if _, err := c.b.once(t, c.s); err != nil {
				return nil, err
			}
		}
	}
	reads, peaks := []float64{}, []float64{}
	for i, n := 0, len(courses)*b.p.run.reps; ; i++ {
		read, peak, err := b.probe(courses[0].w.kind)
		if err != nil {
			return nil, err
		}
		reads, peaks = append(reads, read), append(peaks, peak)
		wide := func() bool { return slices.ContainsFunc(courses, (*course).wide) }
		if i%len(courses) == 0 && enough(i/len(courses), b.p.run.reps, b.p.run.most, wide) {
			break
		}
		if err := courses[i%len(courses)].repeat(t); err != nil {
			return nil, err
		}
		if i < n {
			at()
		}
	}
	var out []*result
	for k, c := range courses {
		for i := range c.r.Samples {
			x, j := &c.r.Samples[i], i*len(courses)+k
			x.ReadGBps, x.PeakGOPs = max(reads[j], reads[j+1]), max(peaks[j], peaks[j+1])
			if b.roofs != nil {
				x.Share = c.w.least(x.ReadGBps*1e9, x.PeakGOPs*1e9) / (float64(x.Ns) / 1e9)
			}
		}
		out = append(out, c.end(t))
		out[k].worth(out[0])
	}
	return out, nil
}

// count reads the hardware counters, if there are any.
func (b *bench) count() (measure.Counts, error) {
	if b.counters == nil {
		return measure.Counts{}, nil
	}
	return b.counters.Read()
}

// profiled is one phase of a test with the time of its steps.
type profiled struct {
	phase   string
	profile *measure.Profile
	walk    plan.Load
}

// profilePhases runs walks of each phase of a test with a hook: a prompt as one walk, or some generated tokens.
func (b *bench) profilePhases(t test) ([]profiled, error) {
	s, err := b.start(t)
	if err != nil {
		return nil, err
	}
	defer b.end(s)
	defer b.e.SetHook(nil)
	cache := float64(b.e.KVPerPosition())
	var out []profiled
	run := func(phase string, t test, n int, w plan.Load) error {
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
		out = append(out, profiled{phase, x, w})
		return nil
	}
	if n := min(t.prompt, b.o.ubatch); n > 0 {
		w := plan.Load{Rows: n, Picks: 1, Keys: float64(t.depth) + float64(n+1)/2, CacheReads: 1, CacheBytes: cache}
		if err := run("prefill of "+rowsText(n), test{prompt: n, depth: t.depth, rows: 1}, 3, w); err != nil {
			return nil, err
		}
	}
	if t.gen > 0 {
		n := min(t.gen, warmTokens)
		w := plan.Load{Rows: t.rows, Picks: t.rows, Keys: float64(t.depth) + float64(n+1)/2, CacheReads: float64(t.rows), CacheBytes: cache}
		if err := run("decode of "+rowsText(t.rows), test{gen: n, depth: t.depth, rows: t.rows}, 3, w); err != nil {
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

// profile adds the steps' table to a result, and the folded stacks to a file unless nil.
func (b *bench) profile(t test, r *result, folded *cli.File) error {
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
			if err := x.profile.Fold(folded, fmt.Sprintf("%s, %d threads;%s", r.name(), r.Threads, x.phase)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) stepRows(x profiled) []stepRow {
	var out []stepRow
	for _, s := range x.profile.Steps(x.walk) {
		row := stepRow{Phase: x.phase, Name: s.Name, Items: s.Items, Us: s.Time * 1e6, Share: s.Share, GBps: s.BytesRate() / 1e9,
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
