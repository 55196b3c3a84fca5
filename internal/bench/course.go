package bench

import (
	"context"
	"slices"
	"time"

	"ck/internal/engine"
	"ck/internal/measure"
	"ck/internal/walk"
)

// tokens are n tokens from a place that differs from walk to walk.
func (b *Runner) tokens(at, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = b.ids[(at+i)%len(b.ids)]
	}
	return out
}

// none ignores logits.
func none(int, []float32) error { return nil }

// state is the sequences of a test.
type state struct {
	seqs  []int
	depth int
}

// start makes the sequences of a test and fills them to its depth.
func (b *Runner) start(t Test) (*state, error) {
	s := &state{depth: t.Depth}
	for i := range t.Rows {
		s.seqs = append(s.seqs, b.e.NewSeq())
		b.e.Expect(s.seqs[i], t.Depth+t.Prompt+t.Gen)
		if t.Depth > 0 {
			if err := b.e.Forward(b.ctx, s.seqs[i], b.tokens(7*i, t.Depth), engine.None, none); err != nil {
				b.end(s)
				return nil, err
			}
		}
	}
	return s, nil
}

func (b *Runner) end(s *state) {
	for _, q := range s.seqs {
		b.e.Drop(q)
	}
}

// once runs a test on its sequences, which are at its depth again afterwards, and returns the time.
func (b *Runner) once(t Test, s *state) (time.Duration, error) {
	prompt := b.tokens(11, t.Prompt)
	batch := walk.Batch{IDs: make([]int32, t.Rows), Pos: make([]int32, t.Rows), Seq: s.seqs, Pick: make([]int32, t.Rows)}
	for r := range t.Rows {
		batch.Pick[r] = int32(r)
	}
	for _, q := range s.seqs { // which Truncate may have made empty
		b.e.Expect(q, t.Depth+t.Prompt+t.Gen)
	}
	start := time.Now()
	if t.Prompt > 0 {
		if err := b.e.Forward(b.ctx, s.seqs[0], prompt, engine.Last, none); err != nil {
			return 0, err
		}
	}
	for i := range t.Gen {
		if err := b.ctx.Err(); err != nil {
			return 0, context.Cause(b.ctx)
		}
		for r := range t.Rows {
			batch.IDs[r], batch.Pos[r] = b.ids[(i+37*r)%len(b.ids)], int32(t.Depth+t.Prompt+i)
		}
		if _, err := b.e.Walk(b.ctx, &batch); err != nil {
			return 0, err
		}
	}
	d := time.Since(start)
	for _, q := range s.seqs {
		b.e.Truncate(q, t.Depth)
	}
	return d, nil
}

// warmTokens is how many tokens a run that warms generates.
const warmTokens = 32

// warm packs all weights that have room and runs a test, shortened, as often as measure.Warm does: a benchmark that repeats three times
// must not wait for a fourth and fifth.
func (b *Runner) warm(t Test, s *state) error {
	if err := b.e.Pack(b.ctx); err != nil {
		return err
	}
	short := t
	short.Gen = min(t.Gen, warmTokens)
	return measure.Warm(float64(t.Tokens())/float64(short.Tokens()), func() (time.Duration, error) { return b.once(short, s) })
}

// probe samples the roofs now, in GB/s and GOP/s.
func (b *Runner) probe(kind string) (read, peak float64, err error) {
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
	b      *Runner
	r      *Result
	w      testWork
	s      *state
	counts measure.Counts
}

// prepare makes everything warm for a test. Where the engine has the sequences of another course, their state is used.
func (b *Runner) prepare(t Test, other *course) (*course, error) {
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
	if b.set.NoWarmup {
		return c, nil
	}
	return c, b.warm(t, c.s)
}

// repeat is one repetition.
func (c *course) repeat(t Test) error {
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
	c.r.Samples = append(c.r.Samples, Sample{Ns: d.Nanoseconds(), TS: float64(t.Tokens()) / d.Seconds(), Noise: noise})
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
func (c *course) end(t Test) *Result {
	if c.b.counters != nil {
		n := float64(t.Tokens() * len(c.r.Samples))
		c.r.Counts = &measure.Counts{Instructions: c.counts.Instructions / n, Cycles: c.counts.Cycles / n, CacheMisses: c.counts.CacheMisses / n}
	}
	if l3 := c.b.e.Machine.L3.Bytes; l3 > 0 && float64(l3) > c.w.walks[len(c.w.walks)-1].bytes {
		c.r.Notes = append(c.r.Notes, "the weights fit into the last cache, so the read bandwidth of the memory is no limit")
	}
	c.b.finish(c.r, c.w)
	return c.r
}

// Measure runs a test.
func (b *Runner) Measure(t Test) (*Result, error) {
	rs, err := b.MeasureAll(t)
	if err != nil {
		return nil, err
	}
	return rs[0], nil
}

// MeasureAll runs a test on the engine and its variants in turn, repetition by repetition, so that what disturbs the machine meets all
// of them alike. The results are in this order.
func (b *Runner) MeasureAll(t Test) ([]*Result, error) {
	var courses []*course
	for _, x := range append([]*Runner{b}, b.variants...) {
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
	for i, n := 0, len(courses)*b.set.Reps; ; i++ {
		read, peak, err := b.probe(courses[0].w.kind)
		if err != nil {
			return nil, err
		}
		reads, peaks = append(reads, read), append(peaks, peak)
		wide := func() bool { return slices.ContainsFunc(courses, (*course).wide) }
		if i%len(courses) == 0 && enough(i/len(courses), b.set.Reps, b.set.Most, wide) {
			break
		}
		if err := courses[i%len(courses)].repeat(t); err != nil {
			return nil, err
		}
		if i < n {
			b.ev.Repetition()
		}
	}
	var out []*Result
	for k, c := range courses {
		var err error
		if c.w, err = c.b.work(t); err != nil { // now that it is known which experts were read
			return nil, err
		}
		for i := range c.r.Samples {
			x, j := &c.r.Samples[i], i*len(courses)+k
			x.ReadGBps, x.PeakGOPs = max(reads[j], reads[j+1]), max(peaks[j], peaks[j+1])
			if b.roofs != nil {
				x.Share = c.w.least(x.ReadGBps*1e9, x.PeakGOPs*1e9) / (float64(x.Ns) / 1e9)
			}
		}
		out = append(out, c.end(t))
		Compare(out[k], out[0])
	}
	return out, nil
}

// count reads the hardware counters, if there are any.
func (b *Runner) count() (measure.Counts, error) {
	if b.counters == nil {
		return measure.Counts{}, nil
	}
	return b.counters.Read()
}
