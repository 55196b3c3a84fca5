package cost

import (
	"math"

	"ck/internal/isa"
	"ck/internal/measure"
	"ck/internal/plan"
	"ck/internal/quant"
)

// Time is where the time of walks goes, in seconds.
type Time struct {
	Matmul, Attention, Elementwise, Meetings float64
	Bytes, Ops                               float64 // read and computed: weights, cache; matmuls, attention
	Barriers                                 int
}

// Total is the time of all.
func (t Time) Total() float64 { return t.Matmul + t.Attention + t.Elementwise + t.Meetings }

func (t *Time) add(x Time) {
	t.Matmul, t.Attention, t.Elementwise, t.Meetings = t.Matmul+x.Matmul, t.Attention+x.Attention, t.Elementwise+x.Elementwise, t.Meetings+x.Meetings
	t.Bytes, t.Ops, t.Barriers = t.Bytes+x.Bytes, t.Ops+x.Ops, t.Barriers+x.Barriers
}

// WalkTime is the time of one walk of a plan. Each matmul takes as long as its bytes or its operations need, whatever is longer.
func WalkTime(p *plan.Plan, w measure.Walk, l Limits) Time {
	var t Time
	workers := float64(l.Workers)
	for i := range p.Items {
		it := &p.Items[i]
		work := measure.ItemWork(p, i, w)
		t.Bytes += work.Bytes
		t.Ops += work.Ops
		rows := w.Rows
		if it.Picked {
			rows = w.Picks
		}
		switch it.Do {
		case plan.Barrier:
			t.Barriers++
			t.Meetings += meet(l)
		case plan.Matmul:
			if rows == 0 {
				continue
			}
			f := p.Formats[it.W[0]]
			e := EfficiencyOf(f.Type)
			x := max(work.Bytes/(l.Read*e.Read), work.Ops/(l.Peak[work.Kind]*e.Compute))
			if f.Direct {
				m := p.G.Weights[it.W[0]]
				x += float64(m.Rows) * float64(m.Cols) * directSeconds / workers
			}
			t.Matmul += x + itemSeconds
		case plan.Attend, plan.AttendChunks:
			t.Attention += max(work.Bytes/(l.Read*attendRead), work.Ops/(l.Peak[work.Kind]*attendCompute)) + itemSeconds
		default:
			moved := 0.0
			for _, o := range append(append([]plan.Operand{}, it.In...), it.Out...) {
				if b := &p.Bufs[o.Buf]; b.Cache == 0 && !b.Parts {
					moved += 4 * float64(b.Width) * float64(rows)
				}
			}
			t.Elementwise += moved/(elementRate*workers) + itemSeconds
		}
	}
	return t
}

// meet is the time of one barrier: a tree of meetings of two, and the links between sockets.
func meet(l Limits) float64 {
	if l.Workers < 2 {
		return 0
	}
	return (meetTwo+waitTwo)*math.Ceil(math.Log2(float64(l.Workers))) + meetSocket*float64(l.Sockets-1)
}

// leastTime is the least time that a walk needs under roofs: all bytes at once with all operations, attention in the best float arithmetic.
func leastTime(p *plan.Plan, w measure.Walk, l Limits) Time {
	var t Time
	seconds := 0.0
	for i := range p.Items {
		work := measure.ItemWork(p, i, w)
		peak := l.Peak[work.Kind]
		if p.Items[i].Do != plan.Matmul {
			peak = max(peak, l.Peak[measure.BF16])
		} else if work.Bytes > 0 { // another program may read the file's form, which may be smaller than panels
			m := p.G.Weights[p.Items[i].W[0]]
			work.Bytes = min(work.Bytes, float64(m.Rows)*float64(p.Formats[p.Items[i].W[0]].Type.RowBytes(m.Cols)))
		}
		t.Bytes += work.Bytes
		t.Ops += work.Ops
		if work.Ops > 0 {
			seconds += work.Ops / peak
		}
	}
	t.Matmul = max(seconds, t.Bytes/l.Read)
	return t
}

// Run is how a model is used.
type Run struct {
	Prompt  int // tokens
	Context int // positions that the sequence has when it generates
	Rows    int // sequences that generate in one walk
	UBatch  int // rows of a prompt's walk
	KV      quant.Type
}

// timer is WalkTime or leastTime.
type timer func(p *plan.Plan, w measure.Walk, l Limits) Time

// Prefill is the time of a prompt.
func (m *Model) Prefill(r Run, l Limits) (Time, error) { return m.prefill(r, l, WalkTime) }

// Decode is the time of one walk that generates a token for each sequence.
func (m *Model) Decode(r Run, l Limits) (Time, error) { return m.decode(r, l, WalkTime) }

// LeastPrefill is the least time of a prompt under limits: roofs alone, and weights that are read once for all rows.
func (m *Model) LeastPrefill(r Run, l Limits) (Time, error) {
	r.UBatch = r.Prompt
	return m.prefill(r, l, leastTime)
}

// LeastDecode is the least time of Decode's walk.
func (m *Model) LeastDecode(r Run, l Limits) (Time, error) { return m.decode(r, l, leastTime) }

func (m *Model) prefill(r Run, l Limits, f timer) (Time, error) {
	var t Time
	cache, err := m.CacheBytes(r.KV, 0)
	if err != nil {
		return t, err
	}
	for done := 0; done < r.Prompt; done += r.UBatch {
		n := min(r.UBatch, r.Prompt-done)
		picks := 0
		if done+n == r.Prompt {
			picks = 1
		}
		p, err := m.planOf(n, l.Workers, r.UBatch)
		if err != nil {
			return t, err
		}
		t.add(f(p, measure.Walk{Rows: n, Picks: picks, Keys: float64(done) + float64(n+1)/2, CacheReads: 1, CacheBytes: float64(cache)}, l))
	}
	return t, nil
}

func (m *Model) decode(r Run, l Limits, f timer) (Time, error) {
	cache, err := m.CacheBytes(r.KV, 0)
	if err != nil {
		return Time{}, err
	}
	p, err := m.planOf(r.Rows, l.Workers, r.UBatch)
	if err != nil {
		return Time{}, err
	}
	return f(p, measure.Walk{Rows: r.Rows, Picks: r.Rows, Keys: float64(r.Context), CacheReads: float64(r.Rows), CacheBytes: float64(cache)}, l), nil
}

// planOf is the plan that a walk of n rows uses.
func (m *Model) planOf(n, workers, ubatch int) (*plan.Plan, error) {
	c := plan.ClassOf(n)
	return m.Plan(c, workers, map[plan.Class]int{plan.One: 1, plan.Few: 16, plan.Many: max(ubatch, n, 17)}[c])
}

// FirstUse is what the first walk takes longer than later ones, and packing panels to stay over the next walks, in seconds.
func (m *Model) FirstUse(workers int) (first, stay float64) {
	_, panels := m.PanelBytes()
	file := float64(m.FileBytes())
	return file * firstUse / float64(workers), float64(panels) * packStay / float64(workers)
}

// A Range is an expectation of a rate: between Low and High, no program above Bound.
type Range struct {
	Low, Mid, High float64
	Bound          float64
}

// Error of the prediction as a factor, on machines whose roofs were measured. Goals of the comparison in docs/scaling.md.
const (
	errorOne  = 1.15 // one thread
	errorMany = 1.25
)

// Expect is the rate in tokens a second of tokens that a phase makes in the time that phase says for limits. Low: the memory of one socket
// alone, which is what runs get whose pages lie on one; High: every socket reads its own. Both with the error of the model.
func (m *Model) Expect(x Machine, tier isa.Tier, workers int, tokens float64, phase, least func(Limits) (Time, error)) (Range, Time, error) {
	l := x.Limits(tier, workers)
	mid, err := phase(l)
	if err != nil {
		return Range{}, mid, err
	}
	slow := l
	slow.Read /= float64(max(1, l.Sockets))
	low, err := phase(slow)
	if err != nil {
		return Range{}, mid, err
	}
	bound := x.Bound()
	if x.Channels == 0 { // only measured roofs are known
		bound = l
	}
	top, err := least(bound)
	if err != nil {
		return Range{}, mid, err
	}
	factor := errorMany
	if workers == 1 {
		factor = errorOne
	}
	r := Range{tokens / low.Total() / factor, tokens / mid.Total(), tokens / mid.Total() * factor, tokens / top.Total()}
	r.High = min(r.High, r.Bound)
	return r, mid, nil
}
