package attention

import (
	"context"
	"fmt"
	"sync/atomic"

	"ck/internal/engine"
	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/quality"
	"ck/internal/team"
	"ck/internal/walk"
)

// Options say what is gathered.
type Options struct {
	// Least is how many positions a row must end, its own included, to count in the table of heads and in the ages; 0:
	// half a block. With a window it sees fewer.
	Least int
	// Dims is how many of a query's dimensions choose keys for the recall; 0: 64. Heads that have no more are left out.
	Dims int
	At   func(tokens int64) // is told how many tokens are done; nil: nobody is
}

// tapBytes is what the values of one walk take at most, as far as walks can be made smaller.
const tapBytes = 256 << 20

// gatherer looks at walks.
type gatherer struct {
	e    *engine.Engine
	l    *layout
	opt  Options
	text quality.Text
	team *team.Team
	rows int // of a walk at most
	ctx  context.Context

	start int         // position of the present walk's first row in its block
	keys  [][]float32 // of each attention step: of the block so far

	heads  [][]headSums // by attention step, then by head
	motion []motion     // by layer
	exits  []exit       // by layer
	said   [][]answer   // by layer, then by row of the walk: what an exit says
}

// answer is what an exit says of a row.
type answer struct {
	kld  float64
	same bool
}

// Gather runs an engine, whose graph has got its exits, over the blocks of a text, each a sequence of its own. It holds
// the engine, whose taps it takes. Figures are the same for any number of threads.
func (x *Exits) Gather(ctx context.Context, e *engine.Engine, text quality.Text, opt Options) (*Report, error) {
	if text.Blocks() == 0 {
		return nil, fmt.Errorf("attention: a text without blocks")
	}
	if opt.Least == 0 {
		opt.Least = max(1, text.Block/2)
	}
	if opt.Dims == 0 {
		opt.Dims = 64
	}
	g := &gatherer{e: e, l: &x.l, opt: opt, text: text, ctx: ctx}
	var err error
	if g.team, err = e.Team(e.Threads(plan.Many)); err != nil {
		return nil, err
	}
	defer e.SetTap(nil)
	defer e.Hold()()
	if err := g.prepare(); err != nil {
		return nil, err
	}
	for b := range text.Blocks() {
		if err := g.block(text.IDs[b*text.Block:][:text.Block]); err != nil {
			return nil, err
		}
		if opt.At != nil {
			opt.At(int64((b + 1) * text.Block))
		}
	}
	return g.report(), nil
}

// prepare sets the taps and makes room.
func (g *gatherer) prepare() error {
	values := g.l.values()
	g.e.SetTap(&engine.Tap{Values: values, See: g.see})
	p, err := g.e.Plan(plan.Many)
	if err != nil {
		return err
	}
	width := 0
	for _, v := range values {
		width += g.e.Graph.Width(v)
	}
	g.rows = min(p.MaxRows, p.MaxPicks, max(tapBytes/(4*width), 17))
	g.keys = make([][]float32, len(g.l.heads))
	for i, h := range g.l.heads {
		g.keys[i] = make([]float32, g.text.Block*h.cache.KVHeads*h.cache.D)
		sums := make([]headSums, h.op.Heads)
		for j := range sums {
			sums[j].w = weigher{scale: h.op.Scale, cap: h.op.Cap}
		}
		g.heads = append(g.heads, sums)
	}
	layers := len(g.l.streams) - 1
	g.motion, g.exits, g.said = make([]motion, layers), make([]exit, layers), make([][]answer, layers)
	return nil
}

// block walks over a block.
func (g *gatherer) block(ids []int32) error {
	seq := g.e.NewSeq()
	defer g.e.Drop(seq)
	g.e.Expect(seq, len(ids))
	for at := 0; at < len(ids); at += g.rows {
		end := min(at+g.rows, len(ids))
		b := &walk.Batch{IDs: ids[at:end]}
		for i := at; i < end; i++ {
			b.Pos, b.Seq, b.Pick = append(b.Pos, int32(i)), append(b.Seq, seq), append(b.Pick, int32(i-at))
		}
		g.start = at
		if _, err := g.e.Walk(g.ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// see takes the values of a walk. Every sum belongs to one task and goes over the rows in their order.
func (g *gatherer) see(b *walk.Batch, view func(graph.ValueID) walk.View) error {
	rows := len(b.IDs)
	type task struct{ step, head int }
	var tasks []task
	for i, h := range g.l.heads {
		k := view(h.k)
		copy(g.keys[i][g.start*k.Width:], k.Data[:rows*k.Width])
		for j := range g.heads[i] {
			tasks = append(tasks, task{i, j})
		}
	}
	if err := g.each(len(tasks), func(i int) { g.head(tasks[i].step, tasks[i].head, rows, view(g.l.heads[tasks[i].step].q)) }); err != nil {
		return err
	}
	if err := g.each(len(g.motion), func(n int) { g.move(n, rows, view) }); err != nil {
		return err
	}
	final := view(g.l.exits[len(g.l.exits)-1])
	for n := range g.said {
		g.said[n] = append(g.said[n][:0], make([]answer, rows)...)
	}
	err := g.each(rows*len(g.exits), func(i int) {
		n, r := i/rows, i%rows
		x := view(g.l.exits[n])
		a := &g.said[n][r]
		a.kld, a.same = quality.Divergence(rowOf(final, r), rowOf(x, r))
	})
	if err != nil {
		return err
	}
	g.decide(rows)
	return nil
}

func rowOf(v walk.View, r int) []float32 { return v.Data[r*v.Width:][:v.Width] }

// head takes the rows of a head.
func (g *gatherer) head(step, head, rows int, q walk.View) {
	h := &g.l.heads[step]
	d, stride := h.cache.D, h.cache.KVHeads*h.cache.D
	keys := g.keys[step][head/(h.op.Heads/h.cache.KVHeads)*d:]
	dims := 0
	if g.opt.Dims < d {
		dims = g.opt.Dims
	}
	for r := range rows {
		hi := g.start + r + 1
		lo := h.cache.First(hi - 1)
		g.heads[step][head].row(rowOf(q, r)[head*d:][:d], keys, stride, lo, hi, g.opt.Least, dims)
	}
}

// move takes the hidden states on both sides of a layer.
func (g *gatherer) move(n, rows int, view func(graph.ValueID) walk.View) {
	x, y := view(g.l.streams[n]), view(g.l.streams[n+1])
	for r := range rows {
		g.motion[n].row(rowOf(x, r), rowOf(y, r))
	}
}

// decide counts what the exits said of the rows of a walk.
func (g *gatherer) decide(rows int) {
	for r := range rows {
		still := true
		for n := len(g.exits) - 1; n >= 0; n-- {
			a := g.said[n][r]
			g.exits[n].kld += a.kld
			still = still && a.same
			if a.same {
				g.exits[n].agree++
			}
			if still {
				g.exits[n].decided++
			}
		}
	}
}

// each calls f for 0 to n-1, each once, on all workers.
func (g *gatherer) each(n int, f func(i int)) error {
	var next atomic.Int64
	err := g.team.Run(func(int) {
		for g.ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			f(i)
		}
	})
	if err == nil && g.ctx.Err() != nil {
		return context.Cause(g.ctx)
	}
	return err
}
