// Package engine runs a model on this machine: it opens the weights, keeps the state of sequences and moves rows forward.
//
// It joins what the packages below know separately: the graph of the model's architecture, the kernels of the machine's ISA tier,
// the workers that the machine grants, the plans, the memory. The logits of a row are the same bits for any number of threads, any
// cut of the prompt and any company of other rows.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"ck/internal/arch"
	"ck/internal/entropycode"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/kv"
	"ck/internal/mover"
	"ck/internal/numa"
	"ck/internal/panelfile"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/team"
	"ck/internal/topo"
	"ck/internal/walk"
)

// Options are the user's wishes; zero values mean the engine's choice.
type Options struct {
	Tier         string // ISA tier to force; "": the best one of the machine
	NUMA         string // where workers run and memory lies, see numa.ParseMode; "": the system decides
	AsNodes      string // lists of CPUs that count as homes, "0-3/4-7", for trying; "": the machine's
	Threads      int    // workers for generation; 0: what the machine grants
	ThreadsBatch int    // workers for prompts; 0: Threads
	Link         string // "2us,20GB/s": workers wait as over a link between homes, for trying; see ParseLink
	UBatch       int    // rows of the largest walk; 0: 512
	F32Act       bool   // activations of matmuls in float32 whatever the weights' type
	KV           quant.Type
	KVSet        bool   // KV was chosen; else F16
	NoPack       bool   // no panels: weights are packed into scratch at every use
	Panels       string // a file of panels to map; "": none. See FindPanels.
	Share        int    // engines that are open at once and share what machine and MemLimit grant; 0: this one alone
	MemLimit     int64  // bytes that panels, cache and buffers of walks may take; 0: what the machine has. The mapped file does not count.
	Context      int    // positions that the cache must have room for; 0: what is left
	Without      Ablation
	Movers       int  // threads of each home that pack weights beside the workers; 0: on the CPUs that these leave, below zero: none
	Prove        bool // plans are proven for all numbers of rows when they are made, not only for the largest

	// Judge predicts the time of a walk in seconds, for what NUMA leaves open (cost.Judge); nil: one home does all.
	Judge func(p *plan.Plan, l plan.Load, w Workplace) float64

	// Change alters the graph before anything is made of it, for measurements; nil: nobody does.
	Change func(*graph.Graph) error
}

// UBatchDefault is the number of rows of a prompt's walk.
const UBatchDefault = 512

// Engine is an open model with its workers.
type Engine struct {
	Graph   *graph.Graph
	Tier    isa.Tier
	Machine topo.Machine
	Notes   []string // what was decided, for -v: one line each

	// Warnings are what the user should know though all goes on: one line each.
	Warnings []string

	model      *gguf.Model
	opt        Options
	tbl        *kernel.Table
	weights    walk.Weights
	cache      *kv.Cache
	teams      map[int]*team.Team // by size
	granted    int                // workers that the machine grants; more of them do not spin
	of         *Engine            // of a variant: what it is one of
	walkers    map[form]*walk.Walker
	arenas     []*numa.Region // by member; one more for all of them where there are several
	regions    []held
	place      numa.Mode // of memory: with nodes for each policy but FirstTouch
	moverCPUs  [][]int   // by home, of movers that are to be started; -1: any
	movers     []*mover.Thread
	lanes      []*walk.Lane // by worker
	moves      Moves
	mirror     bool   // members have copies of the parts of others
	slow       []int  // nodes without cores that were named: they take what those of place have no room for
	homes      []home // those that have parts of weights; none: one home has all
	linked     []home // of Options.AsNodes, for Options.Link
	layout     *plan.Layout
	dealsFrom  int             // rows of prompts that are dealt to members, see boundDeals
	panelFile  *panelfile.File // nil: none is used
	mem        memory
	keep       [][]*shelf              // of each weight, by home: where there is room for its panels; nil: nowhere
	keepCopies [][]*shelf              // the same of copies, as walk.Weights.Copies
	picks      int                     // rows of logits of a walk of Forward
	mapped     []*panelfile.Matrix     // of each weight: its panels, if they are mapped; nil: they are not
	coders     pool[entropycode.Coder] // of compressed weights
	batch      walk.Batch
	hook       walk.Hook
	watched    watched
	follow     func(rows float64)   // see Watch
	choices    [][]uint64           // by step: how often each expert was chosen; nil: the model has none
	read       map[int]*expertsRead // by rows of a walk
	tap        *Tap
	tapped     int // rows of the largest walk while there is a tap; 0: as without
	walked     int // rows of the present Forward that lie behind the present walk
}

// watched is the context that the present walk listens to, and the flag that its end raises. The flag of the last context is kept: a
// generation's walks have the same one, and a walk allocates nothing.
type watched struct {
	done  <-chan struct{}
	flag  *atomic.Bool
	leave func() bool
}

// watch is the flag that is true once ctx has ended; nil for a context that never ends.
func (e *Engine) watch(ctx context.Context) *atomic.Bool {
	done := ctx.Done()
	if done == nil {
		return nil
	}
	if w := &e.watched; w.done != done {
		e.unwatch()
		flag := new(atomic.Bool)
		flag.Store(ctx.Err() != nil)
		*w = watched{done, flag, context.AfterFunc(ctx, func() { flag.Store(true) })}
	}
	return e.watched.flag
}

func (e *Engine) unwatch() {
	if e.watched.leave != nil {
		e.watched.leave()
	}
	e.watched = watched{}
}

// Open builds the engine for m. The model must stay open until Close. Errors say which metadata key or tensor is at fault, or which
// resource is missing.
func Open(m *gguf.Model, opt Options) (*Engine, error) {
	g, notes, err := GraphOf(m)
	if err != nil {
		return nil, err
	}
	if opt.Change != nil {
		if err = opt.Change(g); err == nil {
			err = g.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("a change of the graph: %w", err)
		}
	}
	return openGraph(m, g, notes, opt)
}

// GraphOf is the graph of a model, and what is to be said of it.
func GraphOf(m *gguf.Model) (*graph.Graph, []string, error) {
	g, notes, err := arch.Build(source{m.KV, m})
	if err != nil {
		return nil, nil, &ModelError{m.Path, err}
	}
	return g, notes, nil
}

// OpenGraph is Open with a graph of its own for the weights of m, such as a part of the model's (graph.Cut).
func OpenGraph(m *gguf.Model, g *graph.Graph, opt Options) (*Engine, error) {
	return openGraph(m, g, nil, opt)
}

func openGraph(m *gguf.Model, g *graph.Graph, notes []string, opt Options) (*Engine, error) {
	e := &Engine{Graph: g, model: m, opt: opt, teams: map[int]*team.Team{}, walkers: map[form]*walk.Walker{}}
	if e.opt.UBatch <= 0 {
		e.opt.UBatch = UBatchDefault
	}
	e.opt.NoPack = opt.NoPack || opt.Without&Pack != 0
	if !opt.KVSet {
		e.opt.KV = quant.F16
	}
	if err := e.machine(); err != nil {
		return nil, err
	}
	e.Notes = append(append(e.Notes, m.Notes...), notes...)
	e.countChoices()
	if err := e.load(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// ModelError says that a model file cannot be used.
type ModelError struct {
	Path string
	Err  error
}

func (e *ModelError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }
func (e *ModelError) Unwrap() error { return e.Err }

// TierError says that an ISA tier cannot be had.
type TierError struct{ Err error }

func (e *TierError) Error() string { return e.Err.Error() }
func (e *TierError) Unwrap() error { return e.Err }

// chooseTier is the tier of a name, the best one here for "". Errors are *TierError.
func chooseTier(name string) (isa.Tier, isa.Features, error) {
	f := isa.Detect()
	best := isa.Best(f)
	if name == "" {
		return best, f, nil
	}
	t, err := isa.Parse(name)
	if err == nil {
		err = isa.Check(t, f)
	}
	if errors.Is(err, isa.ErrMissing) {
		err = fmt.Errorf("%w; use %s, the best one here", err, best)
	}
	if err != nil {
		return t, f, &TierError{err}
	}
	return t, f, nil
}

// machine chooses the tier and the workers.
func (e *Engine) machine() error {
	t, f, err := chooseTier(e.opt.Tier)
	if err != nil {
		return err
	}
	e.Tier = t
	e.tbl = kernel.For(e.Tier, f)
	if e.opt.Without&Prefetch != 0 {
		e.tbl = e.tbl.WithoutPrefetch()
	}
	m, homes, err := e.bound()
	if err != nil {
		return err
	}
	e.Machine = m
	e.layout = plan.NewLayout(e.Graph, plan.OneHome)
	cpus, why := m.Workers()
	e.note("tier %s (this CPU: %s)", e.Tier, f)
	e.granted = len(cpus)
	if len(homes) > 1 {
		if e.tensorParallel(homes, len(cpus), why); len(e.homes) > 0 {
			return nil
		}
	}
	if e.opt.Threads <= 0 {
		e.opt.Threads = len(cpus)
	}
	if e.opt.ThreadsBatch <= 0 {
		e.opt.ThreadsBatch = e.opt.Threads
	}
	switch n, b := e.opt.Threads, e.opt.ThreadsBatch; {
	case n == len(cpus) && b == n:
		e.note("%s", why)
	case b == n:
		e.note("%d worker%s as asked for; the machine grants %s", n, map[bool]string{false: "s"}[n == 1], why)
	default:
		e.note("%d workers for generation, %d for prompts as asked for; the machine grants %s", n, b, why)
	}
	return nil
}

func (e *Engine) note(format string, a ...any) { e.Notes = append(e.Notes, fmt.Sprintf(format, a...)) }

// Team is the team of n workers, for measurements between walks.
func (e *Engine) Team(n int) (*team.Team, error) { return e.team(n) }

// team is the team of n workers.
func (e *Engine) team(n int) (*team.Team, error) {
	if t := e.teams[n]; t != nil {
		return t, nil
	}
	cpus := e.cpusFor(n)
	t, err := team.New(cpus, e.teamOptions(true))
	if err != nil {
		// Pinning is refused in some sandboxes: unpinned threads are slower, not wrong.
		e.note("workers are not pinned: %v", err)
		if t, err = team.New(cpus, e.teamOptions(false)); err != nil {
			return nil, err
		}
	}
	e.teams[n] = t
	return t, nil
}

// teamOptions say that workers beyond what the machine grants never spin: what they burn is missing where the others work.
func (e *Engine) teamOptions(pin bool) team.Options {
	return team.Options{Pin: pin, Quota: e.granted, Homes: e.layout.N(), Places: e.layout.Places}
}

// Threads is the number of workers for a class of walks.
func (e *Engine) Threads(c plan.Class) int {
	if c == plan.Many {
		return e.opt.ThreadsBatch
	}
	return e.opt.Threads
}

// A form is what plans differ in.
type form struct {
	class  plan.Class
	tokens bool // rows are dealt to members
}

// formOf is the form of the plan for a walk of n rows, and of the largest one.
func (e *Engine) formOf(n int) form {
	f := form{class: plan.ClassOf(n)}
	f.tokens = f.class == plan.Many && e.dealsTokens() && n >= e.dealsFrom
	return f
}

// dealsTokens reports whether rows of long prompts are dealt to members: each then has whole blocks of keys. What is tapped is of one member.
func (e *Engine) dealsTokens() bool {
	return e.layout.Members > 1 && e.tap == nil && e.opt.UBatch%(2*kernel.BlockKeys) == 0
}

// walkRows is the number of rows of the largest walk that goes on at a position.
func (e *Engine) walkRows(pos int) int {
	if e.dealsTokens() {
		return e.opt.UBatch*e.layout.Members - pos%kernel.BlockKeys // and ends with a block of keys
	}
	return e.ubatch()
}

// buildPlan is the plan of a class: that of its largest walks.
func (e *Engine) buildPlan(c plan.Class) (*plan.Plan, error) {
	return e.buildForm(form{c, c == plan.Many && e.dealsTokens()})
}

func (e *Engine) buildForm(f form) (*plan.Plan, error) {
	layout := e.layout
	if f.tokens {
		layout = e.layout.Tokens()
	}
	p, err := e.planOn(layout, f.class, e.opt.UBatch, e.format)
	if err == nil && e.opt.Prove {
		err = p.Check()
	}
	return p, err
}

// format is how matmuls read a weight; nil for what they do not read.
func (e *Engine) format(w graph.WeightID) *kernel.Format {
	if s := e.weights.Slots[w]; s != nil {
		return s[0].Format
	}
	return nil
}

// plan builds the plan of a class; picks bounds the rows of logits of prompts.
func (e *Engine) plan(c plan.Class, picks int, format func(graph.WeightID) *kernel.Format) (*plan.Plan, error) {
	return e.planOn(e.layout, c, picks, format)
}

func (e *Engine) planOn(layout *plan.Layout, c plan.Class, picks int, format func(graph.WeightID) *kernel.Format) (*plan.Plan, error) {
	rows := map[plan.Class]int{plan.One: 1, plan.Few: 16, plan.Many: max(e.ubatch(), 17)}[c]
	m := plan.Machine{Workers: e.Threads(c), MaxRows: rows, MaxPicks: min(rows, max(picks, 17)), Separate: e.opt.Without&Fuse != 0, Format: format, Layout: layout}
	if e.tap != nil {
		m.Taps, m.Stop = e.tap.Values, e.tap.Stop
	}
	return plan.Build(e.Graph, m)
}

// walker is the plan of a form, made at its first use, with its memory.
func (e *Engine) walker(f form) (*walk.Walker, error) {
	if w := e.walkers[f]; w != nil {
		return w, nil
	}
	p, err := e.buildForm(f)
	if err != nil {
		return nil, err
	}
	n := e.layout.Members
	if e.arenas == nil || len(e.arenas[0].Bytes()) < p.Arena || n > 1 && len(e.arenas[n].Bytes()) < p.Common {
		// Walks run one at a time and keep nothing between them, so all plans use one arena; older walkers are made anew.
		e.freeArenas()
		clear(e.walkers)
		for m := range n {
			r, err := e.take("buffers of a walk", p.Arena+64, e.near(m*e.layout.Places, p.Arena))
			if err != nil {
				return nil, err
			}
			e.arenas = append(e.arenas, r)
		}
		if n > 1 {
			r, err := e.take("buffers of a walk", p.Common+64, e.pages())
			if err != nil {
				return nil, err
			}
			e.arenas = append(e.arenas, r)
		}
	}
	arenas := make([][]byte, len(e.arenas))
	for m, r := range e.arenas {
		arenas[m] = r.Bytes()
	}
	w, err := walk.New(p, step.Routines, e.tbl, e.weights, e.cache, arenas...)
	if err != nil {
		return nil, err
	}
	w.Hook, w.Choices, w.Link = e.hookOf(w), e.choices, e.linkOf(p.Workers)
	e.walkers[f] = w
	return w, nil
}

func (e *Engine) freeArenas() {
	for _, r := range e.arenas {
		r.Free()
	}
	e.arenas = nil
}

// SetHook lets h look on at all walks from now on, for profiles; nil ends that.
func (e *Engine) SetHook(h walk.Hook) {
	e.hook = h
	e.setHooks()
}

// Watch tells f from now on how many rows of the present Forward are done, parts of a row among them: between the items of its walks, on
// the goroutine of a worker, so f must be quick and must not walk. nil ends that.
func (e *Engine) Watch(f func(rows float64)) {
	e.follow = f
	e.setHooks()
}

func (e *Engine) setHooks() {
	for _, w := range e.walkers {
		w.Hook = e.hookOf(w)
	}
}

// hookOf is what looks on at the walks of w.
func (e *Engine) hookOf(w *walk.Walker) walk.Hook {
	hook, follow := e.hook, e.follow
	if follow == nil {
		return hook
	}
	return func(worker, i int) {
		if hook != nil {
			hook(worker, i)
		}
		if worker == 0 {
			follow(float64(e.walked) + w.Done(i)*float64(len(e.batch.IDs)))
		}
	}
}

// Tap looks at values of the graph (Engine.Graph.Values) behind each walk.
type Tap struct {
	Values []graph.ValueID
	Stop   bool // nothing behind them is computed; there are no logits, and Forward calls nobody with them
	// See is called behind each walk, on the goroutine that asked for it. The view of a value is there until it returns. Its error ends Forward.
	See func(b *walk.Batch, view func(graph.ValueID) walk.View) error
}

// SetTap lets t look at all walks from now on; nil ends that. Plans are made anew. Where the memory budget is too small
// for what t keeps of a walk of Options.UBatch rows, walks are smaller until the tap ends.
func (e *Engine) SetTap(t *Tap) {
	e.tap = t
	clear(e.walkers)
	e.fitTap()
}

// Explain prints the plan of a class.
func (e *Engine) Explain(w io.Writer, c plan.Class) error {
	p, err := e.buildPlan(c)
	if err != nil {
		return err
	}
	return p.Explain(w)
}

// Plan is the plan of a class, for tests and measurements.
func (e *Engine) Plan(c plan.Class) (*plan.Plan, error) { return e.buildPlan(c) }

// Arithmetic is what the engine was set to that changes values: the activations, auto or f32, and the cache's type.
func (e *Engine) Arithmetic() (act string, cache quant.Type) {
	act = "auto"
	if e.opt.F32Act {
		act = "f32"
	}
	return act, e.opt.KV
}

// NewSeq starts an empty sequence.
func (e *Engine) NewSeq() int { return e.cache.NewSeq() }

// Expect says how long a sequence may become, its positions so far included. Models whose rotation depends on the length (graph.Rope.Long) need to
// know it before the first position: false says that what the sequence holds was made for another length, and has to be truncated to nothing
// first. A sequence of which nobody said it has the length of the first Forward or Walk.
func (e *Engine) Expect(seq, n int) bool {
	if e.cache.Len(seq) > 0 && e.isLong(n) != e.isLong(e.cache.Reach(seq)) {
		return false
	}
	e.cache.Expect(seq, n)
	return true
}

// isLong reports whether a sequence of n positions is a long one to the model.
func (e *Engine) isLong(n int) bool {
	return slices.ContainsFunc(e.Graph.Ropes, func(r graph.Rope) bool { return r.IsLong(n) })
}

// begin notes the lengths of sequences that a batch begins and of which nobody said how long they become. It refuses rows that make a sequence
// longer than its rotation was made for.
func (e *Engine) begin(b *walk.Batch) error {
	for i, s := range b.Seq {
		n := int(b.Pos[i]) + 1
		if e.cache.Len(s) == 0 && n > e.cache.Reach(s) {
			e.cache.Expect(s, n)
		}
		if reach := e.cache.Reach(s); n > reach && e.isLong(n) != e.isLong(reach) {
			return fmt.Errorf("sequence %d was begun for %d positions, and the model's rotation is another from here on (longrope): begin it for more", s, reach)
		}
	}
	return nil
}

// Len is the number of positions of a sequence; Truncate forgets those from n on; Drop ends it.
func (e *Engine) Len(seq int) int        { return e.cache.Len(seq) }
func (e *Engine) Truncate(seq, n int)    { e.cache.Truncate(seq, n) }
func (e *Engine) Drop(seq int)           { e.cache.Drop(seq) }
func (e *Engine) CacheUsedBytes() int64  { return e.cache.UsedBytes() }
func (e *Engine) KVPerPosition() []int64 { return e.cache.LayerBytes() }

// Want says which rows' logits Forward computes.
type Want uint8

const (
	None Want = iota // only the state moves on
	Last             // of the last row
	All              // of every row
)

// Forward appends ids to a sequence and calls each with the index in ids and the logits [vocabulary] of the wanted rows, in order;
// the slice is the engine's own until the next walk, and all in it is finite. When ctx ends it stops, within a walk too, and returns
// ctx's error. Logits that are not finite are a *ModelError that names the weight, or a *NotFiniteError. After an error the sequence is as
// long as before.
func (e *Engine) Forward(ctx context.Context, seq int, ids []int32, want Want, each func(i int, logits []float32) error) error {
	start := e.cache.Len(seq)
	err := e.forward(ctx, seq, ids, want, each)
	if err != nil {
		e.cache.Truncate(seq, start)
	}
	return err
}

func (e *Engine) forward(ctx context.Context, seq int, ids []int32, want Want, each func(int, []float32) error) error {
	for i, id := range ids {
		if id < 0 || int(id) >= e.Graph.Vocab {
			return fmt.Errorf("token %d of the prompt is id %d, the vocabulary has %d", i, id, e.Graph.Vocab)
		}
	}
	if e.cache.Len(seq) == 0 && len(ids) > e.cache.Reach(seq) {
		e.cache.Expect(seq, len(ids))
	}
	for done := 0; done < len(ids); {
		if err := ctx.Err(); err != nil {
			return err
		}
		pos := e.cache.Len(seq)
		n := min(e.walkRows(pos), len(ids)-done)
		if want == All {
			n = min(n, e.picks)
		}
		if f := e.formOf(n); !f.tokens {
			n = min(n, e.ubatch())
		}
		b := &e.batch
		b.IDs, b.Pos, b.Seq, b.Pick = ids[done:done+n], b.Pos[:0], b.Seq[:0], b.Pick[:0]
		for i := range n {
			b.Pos, b.Seq = append(b.Pos, int32(pos+i)), append(b.Seq, seq)
			if want == All || want == Last && done+i == len(ids)-1 {
				b.Pick = append(b.Pick, int32(i))
			}
		}
		e.walked = done
		w, err := e.Walk(ctx, b)
		if err != nil {
			return err
		}
		if w.Plan.Logits == plan.None {
			b.Pick = b.Pick[:0]
		}
		for i, row := range b.Pick {
			if err := each(done+int(row), w.Logits(i)); err != nil {
				return err
			}
		}
		done += n
	}
	return nil
}

// Walk runs one walk over rows of any sequences: continuous batching, speculation and Forward stand on it. Positions must continue
// their sequences. When ctx ends the walk stops within about a millisecond with ctx's error. Logits that are not finite are an error, as in
// Forward. After an error the caller truncates the sequences to what they were: no position of the batch holds anything.
func (e *Engine) Walk(ctx context.Context, b *walk.Batch) (*walk.Walker, error) {
	if err := e.begin(b); err != nil {
		return nil, err
	}
	for i, s := range b.Seq {
		if err := e.cache.Reserve(s, max(e.cache.Len(s), int(b.Pos[i])+1)); err != nil {
			return nil, err
		}
	}
	f := e.formOf(len(b.IDs))
	f.tokens = f.tokens && onePrompt(b)
	w, err := e.walker(f)
	if err != nil {
		return nil, err
	}
	t, err := e.team(e.Threads(f.class))
	if err != nil {
		return nil, err
	}
	e.startMovers()
	w.Lanes = e.lanes
	err = w.Run(t, b, e.watch(ctx))
	e.noteMoves(w, f.class)
	switch {
	case errors.Is(err, walk.ErrStopped):
		return nil, ctx.Err()
	case err != nil:
		return nil, e.fault(err)
	}
	e.noteExperts(w, len(b.IDs))
	if w.Plan.Logits != plan.None {
		if err := e.checkLogits(ctx, w, b); err != nil {
			return nil, err
		}
	}
	if e.tap != nil {
		view := func(v graph.ValueID) walk.View {
			x, _ := w.Tap(v)
			return x
		}
		if err := e.tap.See(b, view); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// onePrompt reports whether the rows of a batch follow each other.
func onePrompt(b *walk.Batch) bool {
	for i := range b.Pos {
		if b.Seq[i] != b.Seq[0] || int(b.Pos[i]) != int(b.Pos[0])+i {
			return false
		}
	}
	return true
}

// Hold pins the calling goroutine as worker 0 of generation until release is called; see team.Hold.
func (e *Engine) Hold() (release func()) {
	t, err := e.team(e.opt.Threads)
	if err != nil {
		return func() {}
	}
	return t.Hold()
}

// fault names the file behind a memory fault.
func (e *Engine) fault(err error) error {
	if d := (*gguf.DamageError)(nil); errors.As(err, &d) {
		return &ModelError{e.model.Path, d}
	}
	var f *team.Fault
	var d *walk.DamagedPanel
	switch {
	case errors.As(err, &d):
		return e.damaged(d)
	case errors.As(err, &f):
		path, ok := e.model.FileAt(f.Addr)
		if e.panelFile != nil && e.panelFile.Contains(f.Addr) {
			path, ok = e.panelFile.Path(), true
		}
		if ok {
			return &ModelError{path, errors.New("a page of the mapped file cannot be read; was the file truncated or overwritten while in use?")}
		}
	}
	return err
}

// Close ends the workers and gives memory back. The model is the caller's; a variant's workers are those of its engine.
func (e *Engine) Close() {
	e.unwatch()
	if e.of == nil {
		e.endMovers()
	}
	if e.of == nil {
		for _, t := range e.teams {
			t.Close()
		}
	}
	for _, r := range e.regions {
		r.Free()
	}
	e.freeArenas()
	if e.panelFile != nil && e.of == nil {
		e.panelFile.Close()
	}
}
