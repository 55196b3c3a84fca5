package cost

import (
	"math"

	"ck/internal/engine"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/measure"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/walk"
)

// Time is where the time of walks goes, in seconds.
type Time struct {
	Matmul, Attention, Elementwise, Meetings float64
	Reading                                  float64 // part of Matmul and Attention in which the memory is what they wait for
	Bytes, Ops                               float64 // read and computed: weights, cache; matmuls, attention
	Barriers                                 int
}

// Total is the time of all.
func (t Time) Total() float64 { return t.Matmul + t.Attention + t.Elementwise + t.Meetings }

func (t *Time) add(x Time) {
	t.Matmul, t.Attention, t.Elementwise, t.Meetings = t.Matmul+x.Matmul, t.Attention+x.Attention, t.Elementwise+x.Elementwise, t.Meetings+x.Meetings
	t.Reading += x.Reading
	t.Bytes, t.Ops, t.Barriers = t.Bytes+x.Bytes, t.Ops+x.Ops, t.Barriers+x.Barriers
}

// WalkTime is the time of one walk of a plan. Each matmul and each attention takes as long as its bytes or its operations need, whatever is
// longer.
func WalkTime(p *plan.Plan, w plan.Load, l Limits) Time {
	var t Time
	for i := range p.Items {
		it := &p.Items[i]
		work := p.Work(i, w)
		t.Bytes += work.Bytes
		t.Ops += work.Ops
		rows := w.RowsOf(it)
		if rows == 0 {
			continue
		}
		switch it.Do.Group {
		case plan.Meeting:
			t.Barriers++
			t.Meetings += meet(p, it.Scope, l)
		case plan.Products:
			m, f := p.G.Weights[it.W[0]], p.Formats[it.W[0]]
			e := Efficiency{Read: EfficiencyOf(f.Type).Read, Compute: computeShare(f, l.Madd)}
			panels := blocks(m.Rows, f.PanelRows)
			part := members(p, it)
			if p.Tokens && it.Cut.Over == plan.Alike && !it.Space.Picked { // every member reads all
				work.Bytes *= float64(p.Homes.Members)
			}
			x, reading := l.seconds(work, e.Read, e.Compute, uneven(panels*part, l.Workers))
			if far := dealtFar(p, work.Bytes, l); far > x && !it.Space.Picked {
				x, reading = far, far
			}
			t.Matmul += x + itemSeconds
			t.Reading += reading
			if it.Cut.Shared {
				claim := min(panels, walk.ClaimGrain(f, m.Cols, rows))
				even, _ := l.seconds(work, e.Read, e.Compute, 1)
				t.Meetings += max(0, waitClaim*l.alone(work, float64(claim)/float64(panels*part), e)-(x-even))
			}
		case plan.Attention:
			x, reading := attention(p, it, work, w, l)
			x = max(x, dealtFar(p, work.Bytes, l))
			t.Attention += x + itemSeconds
			t.Reading += reading
		default:
			t.Elementwise += elements(p, it, rows, l) + sumFar(p, it, rows, l) + itemSeconds
		}
	}
	if l.Workers > 1 {
		t.Meetings += waitShare * (t.Attention + t.Elementwise)
	}
	return t
}

// dealtFar is the time that reading so many bytes of others takes, of which each member of a prompt whose rows are dealt has its part near. It goes
// on beside arithmetic.
func dealtFar(p *plan.Plan, bytes float64, l Limits) float64 {
	if !p.Tokens {
		return 0
	}
	n := float64(p.Homes.Members)
	return bytes / n * (n - 1) / n / l.link() // all members together read bytes
}

// sumFar is the time that reading the partial sums of others takes. That of one row is in the time of a meeting.
func sumFar(p *plan.Plan, it *plan.Item, rows int, l Limits) (x float64) {
	if p.Class == plan.One {
		return 0
	}
	for _, o := range it.In {
		if o.Far {
			x += 4 * float64(rows) * float64(p.Bufs[o.Buf].Width) * float64(p.Homes.Members-1) / l.link()
		}
	}
	return x
}

func (l Limits) link() float64 {
	if l.Link > 0 {
		return l.Link
	}
	return linkRead
}

// members is how often the units of an item are done: by each member, where these do it alike.
func members(p *plan.Plan, it *plan.Item) int {
	if it.Cut.Over == plan.Alike && !(p.Tokens && !it.Space.Picked) {
		return p.Homes.Members
	}
	return 1
}

// Judge is the time of a walk on a machine of which only the cores are known: a home has what its cores read, at most as much as sockets have that are
// sold. It is for comparing ways to use one machine (engine.Options.Judge).
func Judge(p *plan.Plan, w plan.Load, x engine.Workplace) float64 {
	m := Machine{Sockets: x.Sockets, Nodes: x.Sockets, Cores: max(x.Cores, x.Sockets), GHz: 2, ISA: x.Tier.String(), Bandwidth: float64(x.Sockets) * min(judgeSocket, float64(x.Cores/x.Sockets)*coreRead/1e9)}
	if m.Check() != nil {
		return math.Inf(1)
	}
	if x.Homes == 1 && x.Sockets > 1 {
		m = m.OneSocket()
	}
	l := m.Limits(x.Tier, x.Workers)
	l.Homes = x.Homes
	return WalkTime(p, w, l).Total()
}

// judgeSocket is the read bandwidth of a socket, GB/s: eight channels of DDR5-4800 at 82 %.
const judgeSocket = 250

// seconds is the time of work at shares of the roofs, and that time again if reading decides it. uneven is what the worker that has most
// does over an equal part.
func (l Limits) seconds(work plan.Work, read, compute, uneven float64) (x, reading float64) {
	reading = work.Bytes / l.Read / read
	if l.Core > 0 {
		reading = max(reading, uneven*work.Bytes/(float64(l.Workers)*l.Core)/read)
	}
	computing := uneven * work.Ops / (l.Peak[work.Kind] * compute)
	if reading >= computing {
		return reading, reading
	}
	return computing, 0
}

// alone is the time that one worker takes for a part of a matmul's work while the others wait.
func (l Limits) alone(work plan.Work, part float64, e Efficiency) float64 {
	core := l.Core
	if core == 0 {
		core = l.Read / float64(l.Workers)
	}
	return part * max(work.Bytes/(core*e.Read), work.Ops/(l.Peak[work.Kind]/float64(l.Workers)*e.Compute))
}

// uneven is how much longer n equal units take whole over workers than cut finely: ceil(n/workers) each for n/workers.
func uneven(n, workers int) float64 {
	return float64(blocks(n, workers)) * float64(workers) / float64(max(n, 1))
}

// blocks is how many blocks of size hold n.
func blocks(n, size int) int { return (n + size - 1) / size }

// attention is the time of an attention item, and how much of it is reading. Keys come in whole blocks; the units that workers take are
// those of the plan.
func attention(p *plan.Plan, it *plan.Item, work plan.Work, w plan.Load, l Limits) (x, reading float64) {
	c, keys := p.G.Caches[it.Op.(step.Attend).Cache], max(1, int(math.Ceil(w.Keys)))
	if c.Window > 0 {
		keys = min(keys, c.Window)
	}
	if p.Class == plan.Many {
		return l.seconds(work, attendRead, attendCompute, uneven(c.KVHeads*blocks(w.Rows, plan.TileRows), l.Workers))
	}
	units := c.KVHeads
	if it.Cut.By == plan.Split {
		units *= w.Rows * blocks(keys, kernel.ChunkKeys)
	}
	u := uneven(units, l.Workers)
	whole := float64(blocks(keys, kernel.BlockKeys)*kernel.BlockKeys) / float64(keys)
	work.Bytes, work.Ops = work.Bytes*whole, work.Ops*whole
	x, reading = l.seconds(work, attendRead, attendOne, u)
	heads := float64(it.Op.(step.Attend).Heads * w.Rows)
	return x + attendHead*heads*u/float64(l.Workers), reading
}

// elements is the time of a step that is neither a matmul nor attention: its arithmetic, or for prompts, whose values are in no cache any
// more when the next step comes to them, reading its input and writing its result, which reads it first.
func elements(p *plan.Plan, it *plan.Item, rows int, l Limits) float64 {
	e := p.Elements(it)
	part := float64(members(p, it)) / float64(l.Workers)
	switch {
	case e.Whole:
		part = 1
	case it.Cut.By == plan.Rows:
		part *= uneven(rows, l.Workers)
	}
	x := float64(rows) * e.N * part * e.Ops / (l.Peak[measure.F32] / float64(l.Workers))
	if p.Class == plan.Many {
		x = max(x, float64(rows)*e.Moved/l.Read)
	}
	return x
}

// meet is the time of one barrier, without waiting: the workers add themselves to counters of eight, these to one of their home, these to one of all,
// and each line goes from core to core. Homes that are far from each other take what the link takes.
func meet(p *plan.Plan, scope plan.Scope, l Limits) float64 {
	if l.Workers < 2 {
		return 0
	}
	homes := p.Homes.N()
	n := l.Workers / homes
	if homes > 1 && scope == plan.All {
		if l.Meeting > 0 {
			return l.Meeting
		}
		return meetSeconds
	}
	t := arriveSeconds * float64(min(n, arrivals))
	if n > arrivals {
		t += arriveSeconds * float64(blocks(n, arrivals))
	}
	if l.Sockets > 1 && homes == 1 {
		t += linkSeconds * float64(l.Sockets)
	}
	return t
}

// arrivals is how many workers add themselves to one counter (team).
const arrivals = 8

// leastTime is the least time that a walk needs under roofs: all bytes at once with all operations, attention in the best float arithmetic.
func leastTime(p *plan.Plan, w plan.Load, l Limits) Time {
	var t Time
	seconds := 0.0
	for i := range p.Items {
		work := p.Work(i, w)
		peak := l.Peak[work.Kind]
		if p.Items[i].Do.Group != plan.Products {
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
type timer func(p *plan.Plan, w plan.Load, l Limits) Time

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
	cache, err := m.cache(r.KV, 0)
	if err != nil {
		return t, err
	}
	rows := r.UBatch
	if l.Homes > 1 { // each member's
		rows *= plan.HomesFor(m.Graph, l.Homes).Members
	}
	for done := 0; done < r.Prompt; done += rows {
		n := min(rows, r.Prompt-done)
		picks := 0
		if done+n == r.Prompt {
			picks = 1
		}
		x, err := m.shortest(n, l, r.UBatch, plan.Load{Rows: n, Picks: picks, Keys: float64(done) + float64(n+1)/2, CacheReads: 1, CacheBytes: cache.LayerBytes()}, f)
		if err != nil {
			return t, err
		}
		t.add(x)
	}
	return t, nil
}

// shortest is the time of a walk of n rows of a prompt: that of the plan of homes with parts of the weights, or of rows dealt to members, whichever is shorter
// (engine.Options.Judge).
func (m *Model) shortest(n int, l Limits, ubatch int, load plan.Load, f timer) (Time, error) {
	p, err := m.planOf(n, l, ubatch)
	if err != nil {
		return Time{}, err
	}
	t := f(p, load, l)
	if p.Class != plan.Many || p.Homes.Members < 2 {
		return t, nil
	}
	if p, err = m.planOn(l.Homes, true, p.Class, l.Workers, max(ubatch, n, 17)); err != nil {
		return t, err
	}
	if dealt := f(p, load, l); dealt.Total() < t.Total() {
		t = dealt
	}
	return t, nil
}

func (m *Model) decode(r Run, l Limits, f timer) (Time, error) {
	cache, err := m.cache(r.KV, 0)
	if err != nil {
		return Time{}, err
	}
	p, err := m.planOf(r.Rows, l, r.UBatch)
	if err != nil {
		return Time{}, err
	}
	return f(p, plan.Load{Rows: r.Rows, Picks: r.Rows, Keys: float64(r.Context), CacheReads: float64(r.Rows), CacheBytes: cache.LayerBytes()}, l), nil
}

// planOf is the plan that a walk of n rows uses.
func (m *Model) planOf(n int, l Limits, ubatch int) (*plan.Plan, error) {
	c := plan.ClassOf(n)
	rows := map[plan.Class]int{plan.One: 1, plan.Few: 16, plan.Many: max(ubatch, n, 17)}[c]
	return m.planOn(max(1, l.Homes), false, c, l.Workers, rows)
}

// FirstUse is what the first walk takes longer than later ones, and packing panels to stay over the next walks, in seconds, of a file that
// is in the page cache. Neither is faster than the memory: the file is read; panels are read from it, and written, which reads them, too.
func (m *Model) FirstUse(l Limits) (first, stay float64) {
	_, panels := m.PanelBytes()
	file := float64(m.FileBytes())
	return max(file*firstUse/float64(l.Workers), file/l.Read), max(float64(panels)*packStay/float64(l.Workers), 3*float64(panels)/l.Read)
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

// homes are the ways in which a machine of several sockets can be used under limits: each of its memory nodes with a part of every weight, or one socket
// by itself.
func (x Machine) homes(l Limits) (tensorParallel, socket Limits) {
	tensorParallel, socket = l, l
	tensorParallel.Homes = min(blocks(l.Workers*x.Nodes, x.Cores), x.Nodes)
	n := float64(l.Sockets)
	socket.Sockets, socket.Workers, socket.Read, socket.Peak = 1, max(1, l.Workers/l.Sockets), l.Read/n, map[string]float64{}
	for k, v := range l.Peak {
		socket.Peak[k] = v / n
	}
	return tensorParallel, socket
}

// best is the shorter of the times of the ways to use several sockets.
func (x Machine) best(l Limits, phase func(Limits) (Time, error)) (Time, error) {
	if l.Sockets < 2 || x.Nodes < 2 {
		return phase(l)
	}
	both, socket := x.homes(l)
	a, err := phase(both)
	if err != nil {
		return a, err
	}
	b, err := phase(socket)
	if err == nil && b.Total() < a.Total() {
		a = b
	}
	return a, err
}

// Expect is the rate in tokens a second of tokens that a phase makes in the time that phase says for limits: on several sockets with parts of the weights
// at each, or on one of them if that is faster. Low: the memory of one socket alone, which is what runs get whose pages lie on one; High: every socket
// reads its own. Both with the error of the model, and where the bandwidth is stated with the range of what is published for it.
func (m *Model) Expect(x Machine, tier isa.Tier, workers int, tokens float64, phase, least func(Limits) (Time, error)) (Range, Time, error) {
	l := x.Limits(tier, workers)
	mid, err := x.best(l, phase)
	if err != nil {
		return Range{}, mid, err
	}
	slow, fast := l, l
	slow.Read /= float64(max(1, l.Sockets))
	if x.Stated() {
		slow.Read, fast.Read = slow.Read*readShareLow/readShare, fast.Read*readShareHigh/readShare
	}
	low, err := phase(slow)
	if err != nil {
		return Range{}, mid, err
	}
	high, err := x.best(fast, phase)
	if err != nil {
		return Range{}, mid, err
	}
	bound := x.Bound()
	if x.Channels == 0 { // only measured roofs are known
		bound = x.Limits(x.KernelTier(), workers)
	}
	top, err := least(bound)
	if err != nil {
		return Range{}, mid, err
	}
	factor := errorMany
	if workers == 1 {
		factor = errorOne
	}
	r := Range{tokens / low.Total() / factor, tokens / mid.Total(), tokens / high.Total() * factor, tokens / top.Total()}
	r.High = min(r.High, r.Bound)
	return r, mid, nil
}
