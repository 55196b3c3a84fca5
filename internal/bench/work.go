package bench

import (
	"ck/internal/plan"
)

// testWork is what a test has to read and compute at least.
type testWork struct {
	bytes, ops float64
	kind       string
	walks      []walkWork
}

// walkWork is that of some equal walks.
type walkWork struct{ n, bytes, ops float64 }

// plan is the plan of a class.
func (b *Runner) plan(c plan.Class) (*plan.Plan, error) {
	if p := b.plans[c]; p != nil {
		return p, nil
	}
	p, err := b.e.Plan(c)
	b.plans[c] = p
	return p, err
}

// work adds a test up. Keys of a prompt are read once by each walk: at least. Of experts count those that walks of as many rows have chosen so far.
func (b *Runner) work(t Test) (testWork, error) {
	var w testWork
	add := func(n float64, rows, picks int, keys, reads float64) error {
		p, err := b.plan(plan.ClassOf(rows))
		if err != nil {
			return err
		}
		x := p.Total(plan.Load{Rows: rows, Picks: picks, Keys: keys, CacheReads: reads, CacheBytes: b.e.KVPerPosition(), Experts: b.e.ExpertsRead(rows)})
		w.bytes, w.ops, w.kind = w.bytes+n*x.Bytes, w.ops+n*x.Ops, x.Kind
		w.walks = append(w.walks, walkWork{n, x.Bytes, x.Ops})
		return nil
	}
	for done := 0; done < t.Prompt; done += b.set.UBatch {
		n := min(b.set.UBatch, t.Prompt-done)
		picks := 0
		if done+n == t.Prompt {
			picks = 1
		}
		if err := add(1, n, picks, float64(t.Depth+done)+float64(n+1)/2, 1); err != nil {
			return w, err
		}
	}
	if t.Gen > 0 {
		keys := float64(t.Depth+t.Prompt) + float64(t.Gen+1)/2
		if err := add(float64(t.Gen), t.Rows, t.Rows, keys, float64(t.Rows)); err != nil {
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
