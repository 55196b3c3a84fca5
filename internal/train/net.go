// Package train fine-tunes models: it walks a graph forward and backward, adds gradients up in one order, and updates weights.
//
// A leaf is one slot of tokens of the global batch. Its gradients do not depend on what it is computed with; those of leaves are added by a tree of their
// numbers. So the bits are the same for any number of threads and any cut of the batch into walks.
package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/kv"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/team"
	"ck/internal/walk"
)

// A Param is a weight that is trained: [Rows, Cols] values in float32. A tensor that is several matrices is several parameters, which have its rows, or of a
// vector its elements, between them.
type Param struct {
	graph.Weight
	Value []float32

	vectors   bool            // of experts: a bias of each
	gradients []graph.ValueID // terms
	slots     []*walk.Slot    // of the matrix and its transpose, where products read them
}

// Matrix reports whether it is more than vectors: of those weights decay.
func (p *Param) Matrix() bool { return p.Rows > 1 && !p.vectors }

// NetOptions say how a graph trains.
type NetOptions struct {
	Leaf   int           // tokens of a leaf
	Leaves int           // of a walk, a power of two
	Type   quant.Type    // of products: F32 or BF16
	Table  *kernel.Table // kernels
	Team   *team.Team    // workers
	LoRA   *LoRA         // what is trained beside frozen matrices; nil: all weights are
	// Balance is the factor of the load-balancing term that each choice of experts adds to the loss (step.Balance); 0: none does.
	Balance float64
	// Dropout is the probability of dropout when steps are made: of what adapters read (step.Adapt), or, without adapters, of the embedding and of what blocks
	// add (step.Dropped). 0: there is none. Seed is that of its masks.
	Dropout float64
	Seed    uint64
	// Recompute is how many layers, from the first on, keep only what enters them: their activations are made again before their backward. Where there are
	// fewer layers it is all of them. No bit depends on it.
	Recompute int

	memory func(what string, n int) ([]byte, error)     // of panels and buffers, at a multiple of 64; nil: anywhere
	spread func(sizes []int) (v [][]float32, err error) // of what is kept once for all replicas: numbers by parameter; nil: anywhere
	decode *[]float32                                   // room for one frozen matrix, which replicas share; nil: the net has its own
}

// ErrNoExperts is that a load is to be balanced where there is none.
var ErrNoExperts = errors.New("the model has no experts whose load could be balanced; leave out --aux-loss")

// balance has the choices of experts of a graph balanced, where that is asked for.
func (o *NetOptions) balance(g *graph.Graph) error {
	if o.Balance != 0 && step.Balanced(g, float32(o.Balance)) == 0 {
		return ErrNoExperts
	}
	return nil
}

// A Net is a graph with its weights in memory, and their gradients behind each walk.
type Net struct {
	G      *graph.Graph // with its backward
	Params []*Param     // in the order of the graph's weights

	opt    NetOptions
	values [][]float32                               // by weight: masters, and what is frozen and not multiplied
	load   func(w graph.Weight, dst []float32) error // writes values of frozen matrices
	panels []panels
	walk   *walk.Walker
	cache  *kv.Cache
	batch  walk.Batch
	seqs   []int

	targets []int32 // for tests: of each row; nil: what follows
}

// NewNet makes a net of a model's graph, which it extends by the backward. load writes a weight's values. Errors are *graph.NoBackwardError where a step cannot
// be trained, and ErrNoExperts.
func NewNet(g *graph.Graph, opt NetOptions, load func(w graph.Weight, dst []float32) error) (*Net, error) {
	if opt.Type != quant.F32 && opt.Type != quant.BF16 {
		return nil, fmt.Errorf("products of %v: expected F32 or BF16", opt.Type)
	}
	x, err := opt.extend(g)
	if err != nil {
		return nil, err
	}
	frozen, gradients, weights := x.frozen, x.gradients, x.weights
	n := &Net{G: g, opt: opt, load: load}
	values, err := n.masters(g.Weights[:weights], func(id graph.WeightID) bool { return (frozen == nil || !frozen(id)) && len(gradients[id]) > 0 })
	if err != nil {
		return nil, err
	}
	for i, w := range g.Weights[:weights] {
		id := graph.WeightID(i)
		if roles := g.Roles(id); frozen != nil && frozen(id) && roles[graph.Matrix] && !roles[graph.Lookup] {
			continue // panels are made of it, and nothing else
		}
		if values[i] == nil {
			values[i] = make([]float32, w.Rows*w.Cols)
		}
		if opt.LoRA == nil || !opt.LoRA.begin(w, values[i]) {
			if err := load(w, values[i]); err != nil {
				return nil, err
			}
		}
		if frozen != nil && frozen(id) {
			continue
		}
		v, ok := gradients[id]
		if !ok {
			return nil, fmt.Errorf("internal error: the loss does not depend on %s", w.Label())
		}
		if len(v) == 0 {
			continue // such as the bias of a choice: it stays
		}
		n.Params = append(n.Params, &Param{Weight: w, Value: values[i], gradients: v, vectors: g.Roles(id)[graph.Vector]})
	}
	n.values = values
	return n, n.lay()
}

// lay makes the plan, the panels and the buffers.
func (n *Net) lay() error {
	g, values := n.G, n.values
	f := n.opt.Table.Format(n.opt.Type, n.opt.Type == quant.F32)
	fixed := map[int][]*source{} // of frozen matrices
	w := walk.Weights{Slots: make([][]*walk.Slot, len(g.Weights)), Vectors: make([][]float32, len(g.Weights)), Decode: make([]func(int, []float32), len(g.Weights))}
	room, err := n.panelsRoom(f)
	if err != nil {
		return err
	}
	for i, x := range g.Weights {
		own := i
		if x.Turned {
			own = slices.IndexFunc(g.Weights, func(o graph.Weight) bool { return same(o, x) && !o.Turned })
		}
		v, roles := values[own], g.Roles(graph.WeightID(i))
		if roles[graph.Vector] {
			w.Vectors[i] = v
		}
		if roles[graph.Lookup] {
			w.Decode[i] = func(row int, dst []float32) { copy(dst, v[row*x.Cols:]) }
		}
		if roles[graph.Matrix] {
			part := x
			x.From, x.Of = 0, 0 // its values are here without the tensor's others
			mem := room[:walk.PanelsBytes(x, f)]
			room = room[walk.PanelsRoom(x, f):]
			s := walk.NewSlot(x, f, nil, mem)
			n.panels = append(n.panels, panels{part, mem})
			src := newSource(s, x, v, n.opt.Table)
			w.Slots[i] = []*walk.Slot{s}
			if p := slices.IndexFunc(n.Params, func(p *Param) bool { return same(p.Weight, part) }); p >= 0 {
				n.Params[p].slots = append(n.Params[p].slots, s)
			} else {
				fixed[own] = append(fixed[own], src)
			}
		}
	}
	if err := n.pack(fixed); err != nil {
		return err
	}
	p, err := buildPlan(g, n.opt, n.opt.Team.Size(), f)
	if err != nil {
		return err
	}
	var layers []kv.Layer
	for _, c := range g.Caches {
		f, err := n.opt.Table.KV(quant.F32, c.D, c.Dv)
		if err != nil {
			return err
		}
		layers = append(layers, kv.Layer{Heads: c.KVHeads, Format: f})
	}
	n.cache = kv.New(layers, 1, 1, func(_, size int) ([]byte, error) { return n.take("keys and values", size) }, 0)
	arena, err := n.take("buffers", p.Arena+64)
	if err != nil {
		return err
	}
	if n.walk, err = walk.New(p, step.Routines, n.opt.Table, w, n.cache, arena); err != nil {
		return err
	}
	return n.Renew()
}

// pack makes the panels of frozen matrices, one matrix after the other: its values are there while they are packed.
func (n *Net) pack(fixed map[int][]*source) error {
	size := n.opt.Team.Size()
	room := n.opt.decode // of one matrix after the other: garbage of each would be as much memory as all
	if room == nil {
		room = new([]float32)
	}
	for i, sources := range fixed {
		v, w := n.values[i], n.G.Weights[i]
		if v == nil {
			if n := w.Rows * w.Cols; cap(*room) < n {
				*room = make([]float32, n)
			}
			v = (*room)[:w.Rows*w.Cols]
			if err := n.load(w, v); err != nil {
				return err
			}
		}
		for _, x := range sources {
			x.v = v
			x.slot.Renew()
			if err := n.opt.Team.Run(func(w int) { x.slot.Pack(w, size, nil) }); err != nil {
				return err
			}
			x.v = nil // nobody reads it again
		}
	}
	return nil
}

// same reports whether two weights are the same part of a tensor, turned or not.
func same(a, b graph.Weight) bool { return a.Name == b.Name && a.From == b.From && a.Of == b.Of }

// Plan is the list of items, forward, loss and backward.
func (n *Net) Plan() *plan.Plan { return n.walk.Plan }

// aligned is n bytes at a multiple of 64.
func aligned(n int) []byte {
	b := make([]byte, n+63)
	return b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))&63:][:n:n]
}

// source is what panels of a matrix, or of its transpose, are made of: the values of the matrix.
type source struct {
	slot  *walk.Slot
	w     graph.Weight
	v     []float32
	table *kernel.Table
}

// newSource has the panels of slot s, those of w, made of values v.
func newSource(s *walk.Slot, w graph.Weight, v []float32, t *kernel.Table) *source {
	x := &source{s, w, v, t}
	switch {
	case w.Turned:
		s.Make = func(dst []byte, from, to int) {
			rows := w.Each()
			matrix := x.v[from/rows*rows*w.Cols:] // of an expert
			t.PackTurned(s.Format, dst, w.Cols, to-from, func(k int) []float32 { return matrix[k*rows+from%rows:] })
		}
	case s.Format.Type == quant.F32:
		s.Make = func(dst []byte, from, to int) {
			s.Format.Pack(dst, w.Cols, to-from, func(r int) []byte {
				return unsafe.Slice((*byte)(unsafe.Pointer(&x.v[(from+r)*w.Cols])), 4*w.Cols)
			})
		}
	default:
		s.Make = x.rounded
	}
	return x
}

// halves are rows of a panel, rounded to BF16.
var halves = sync.Pool{New: func() any { return new([]uint16) }}

// rounded makes the panel of rows [from, to) in BF16.
func (x *source) rounded(dst []byte, from, to int) {
	buf := halves.Get().(*[]uint16)
	defer halves.Put(buf)
	n := x.w.Cols
	if size := (to - from) * n; cap(*buf) < size {
		*buf = make([]uint16, size)
	}
	h := (*buf)[:(to-from)*n]
	x.table.F32ToBF16(h, x.v[from*n:to*n])
	x.slot.Format.Pack(dst, n, to-from, func(r int) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&h[r*n])), 2*n) })
}

// Renew packs all panels anew: values have changed.
func (n *Net) Renew() error {
	for _, p := range n.Params {
		for _, s := range p.slots {
			s.Renew()
		}
	}
	size := n.opt.Team.Size()
	return n.opt.Team.Run(func(w int) {
		for _, p := range n.Params {
			for _, s := range p.slots {
				s.Pack(w, size, nil)
			}
		}
	})
}

// A Leaf is a slot of tokens: those of sequences, one after the other, each from position 0 on.
type Leaf struct {
	IDs, Pos []int32
	Seq      []int32 // of the leaf; below zero: padding
	Loss     []bool  // the token is to be predicted
}

// Targets is how many tokens are to be predicted.
func (l *Leaf) Targets() (count int) {
	for i := range l.IDs {
		if l.target(i) >= 0 {
			count++
		}
	}
	return count
}

// target is the token that should follow token i; -1: none counts.
func (l *Leaf) target(i int) int32 {
	if i+1 < len(l.IDs) && l.Loss[i+1] && l.Seq[i] >= 0 && l.Seq[i+1] == l.Seq[i] {
		return l.IDs[i+1]
	}
	return -1
}

// Walk goes forward and backward through leaves, as many as a walk has; share is what each token that counts has of the loss. It returns the sums of the
// losses of the leaves' tokens. Gradients are there until the next walk.
func (n *Net) Walk(leaves []Leaf, share float64, stop *atomic.Bool) ([]float64, error) {
	if len(leaves) != n.opt.Leaves {
		return nil, fmt.Errorf("internal error: %d leaves in a walk of %d", len(leaves), n.opt.Leaves)
	}
	b := &n.batch
	b.IDs, b.Pos, b.Seq, b.Pick, b.Target, b.Share = b.IDs[:0], b.Pos[:0], b.Seq[:0], b.Pick[:0], b.Target[:0], float32(share)
	defer n.drop()
	for i := range leaves {
		if err := n.add(&leaves[i]); err != nil {
			return nil, err
		}
	}
	if n.targets != nil {
		copy(b.Target, n.targets)
	}
	if err := n.walk.Run(n.opt.Team, b, stop); err != nil {
		return nil, err
	}
	losses := make([]float64, len(leaves))
	for r := range b.IDs {
		losses[r/n.opt.Leaf] += float64(n.walk.Logits(r)[0])
	}
	return losses, nil
}

// Losses is Walk without the backward: the same losses, and no gradients.
func (n *Net) Losses(leaves []Leaf, stop *atomic.Bool) ([]float64, error) {
	n.walk.End = forward(n.walk.Plan)
	defer func() { n.walk.End = 0 }()
	return n.Walk(leaves, 1, stop)
}

// forward is how many items of a plan there are up to the last one that writes losses.
func forward(p *plan.Plan) (end int) {
	for i := range p.Items {
		if slices.ContainsFunc(p.Items[i].Out, func(o plan.Operand) bool { return o.Buf == p.Logits }) {
			end = i + 1
		}
	}
	return end
}

// Balance is what the load-balancing terms of the last walk add to the losses: sums over its tokens that count, of all choices of experts.
func (n *Net) Balance() (sum float64) {
	for i := range n.G.Steps {
		s := &n.G.Steps[i]
		if _, ok := s.Op.(step.Balance); !ok {
			continue
		}
		v, _ := n.walk.Tap(s.Out[0])
		for _, x := range v.Data[:len(n.batch.IDs)] {
			sum += float64(x)
		}
	}
	return sum
}

// add appends a leaf to the batch.
func (n *Net) add(l *Leaf) error {
	b := &n.batch
	if len(l.IDs) != n.opt.Leaf || len(l.Pos) != n.opt.Leaf || len(l.Seq) != n.opt.Leaf || len(l.Loss) != n.opt.Leaf {
		return fmt.Errorf("internal error: a leaf of %d tokens, walks have %d", len(l.IDs), n.opt.Leaf)
	}
	for i, id := range l.IDs {
		if id < 0 || int(id) >= n.G.Vocab {
			return fmt.Errorf("token %d is id %d, the vocabulary has %d", i, id, n.G.Vocab)
		}
		first := i == 0 || l.Seq[i] != l.Seq[i-1]
		pos := l.Pos[i]
		switch {
		case l.Seq[i] < 0 && !first:
			pos = b.Pos[len(b.Pos)-1] + 1
		case l.Seq[i] < 0:
			pos = 0
		case first && pos != 0 || !first && pos != l.Pos[i-1]+1:
			return fmt.Errorf("internal error: token %d of a leaf is at position %d", i, pos)
		}
		if first {
			n.seqs = append(n.seqs, n.cache.NewSeq())
		}
		b.IDs, b.Pos, b.Seq = append(b.IDs, id), append(b.Pos, pos), append(b.Seq, n.seqs[len(n.seqs)-1])
		b.Pick, b.Target = append(b.Pick, int32(len(b.Pick))), append(b.Target, l.target(i))
		if i+1 == len(l.IDs) || l.Seq[i+1] != l.Seq[i] {
			n.cache.Expect(b.Seq[len(b.Seq)-1], int(pos)+1)
			if err := n.cache.Reserve(b.Seq[len(b.Seq)-1], int(pos)+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// draw has the next walk draw dropout's masks, as the leaves from number first on of the batch of a step.
func (n *Net) draw(step, first int) {
	n.batch.Draw = graph.Draw{On: true, Seed: n.opt.Seed, Step: uint64(step), Row: uint64(first * n.opt.Leaf)}
}

// drop forgets the sequences of a walk, and what it drew.
func (n *Net) drop() {
	n.batch.Draw = graph.Draw{}
	for _, s := range n.seqs {
		n.cache.Drop(s)
	}
	n.seqs = n.seqs[:0]
}

// gradients are the terms of the gradients of all parameters, of the last walk: [Rows, Cols] each, until the next.
func (n *Net) gradients() (terms [][]float32) {
	for _, p := range n.Params {
		for _, g := range p.gradients {
			v, _ := n.walk.Tap(g)
			terms = append(terms, v.Data[:len(p.Value)])
		}
	}
	return terms
}

// NotFinite is the first of numbers that is an infinity or NaN; -1: none.
func NotFinite(x []float32) int {
	return slices.IndexFunc(x, func(v float32) bool { return math.IsInf(float64(v), 0) || v != v })
}
