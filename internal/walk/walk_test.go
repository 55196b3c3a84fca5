package walk_test

import (
	. "ck/internal/walk"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/kv"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/team"
	"ck/internal/testkit"
)

// model is a random graph with random weights.
type model struct {
	g     *graph.Graph
	types []quant.Type
	raw   [][]byte // rows one after another
}

// row is row r of the tensor of w.
func (m *model) row(w graph.WeightID, r int) []byte {
	n := m.types[w].RowBytes(m.g.Weights[w].Cols)
	return m.raw[w][r*n : (r+1)*n]
}

func (m *model) exact(w graph.WeightID, r int, dst []float64) {
	x := m.g.Weights[w]
	if x.Rows > 1 {
		r = x.TensorRow(r)
	}
	quant.Exact(m.types[w], dst, m.row(w, r))
}

// randomModel draws a graph: an embedding, a few layers of random steps in random order, logits. All widths are multiples of 32;
// matmuls of K 512 and more may have slices.
func randomModel(rng *rand.Rand, types []quant.Type) *model {
	return randomModelOf(rng, types, 64+rng.IntN(80))
}

func randomModelOf(rng *rand.Rand, types []quant.Type, vocab int) *model {
	g := &graph.Graph{Context: 4096, Vocab: vocab}
	m := &model{g: g}
	pick := func(n ...int) int { return n[rng.IntN(len(n))] }
	grain := 32
	for _, t := range types {
		grain = max(grain, t.BlockElems())
	}
	widths := []int{2 * grain, 3 * grain, 8 * grain}
	n := 0
	weight := func(rows, cols int) graph.WeightID {
		n++
		return g.NewWeight(fmt.Sprintf("w%d", n), rows, cols)
	}
	do := func(op graph.Op, width int, in []graph.ValueID, w ...graph.WeightID) graph.ValueID {
		v := g.NewValue(fmt.Sprintf("v%d", len(g.Values)), width)
		if len(in) > 0 {
			g.Values[v].Space = g.Values[in[0]].Space
		}
		g.Add(op, g.Values[v].Name, in, []graph.ValueID{v}, w...)
		return v
	}
	linear := func(x graph.ValueID, width int) graph.ValueID {
		k := g.Width(x)
		w := []graph.WeightID{weight(width, k)}
		if rng.IntN(3) == 0 {
			w = append(w, weight(1, width))
		}
		return do(step.Matmul{Slices: step.SlicesFor(k, 0)}, width, []graph.ValueID{x}, w...)
	}
	// parts is what matrices make that are one tensor together, of each of so many experts (0: none).
	parts := func(x graph.ValueID, experts int, do func(outputs int, w ...graph.WeightID) graph.ValueID, outputs ...int) (made []graph.ValueID) {
		n++
		w := graph.Weight{Name: fmt.Sprintf("w%d", n), Cols: g.Width(x), Experts: experts}
		for _, o := range outputs {
			w.Of += o
		}
		for _, o := range outputs {
			w.Rows = max(1, experts) * o
			use := []graph.WeightID{g.Use(w)}
			if experts == 0 && rng.IntN(3) == 0 {
				use = append(use, g.Use(graph.Weight{Name: w.Name + "b", Rows: 1, Cols: o, From: w.From, Of: w.Of}))
			}
			made = append(made, do(o, use...))
			w.From += o
		}
		return made
	}
	norm := func(x graph.ValueID, group int) graph.ValueID {
		var w []graph.WeightID
		if rng.IntN(4) > 0 {
			w = append(w, weight(1, max(group, (1-min(group, 1))*g.Width(x))))
		}
		return do(step.Norm{Eps: 1e-5, Group: group}, g.Width(x), []graph.ValueID{x}, w...)
	}
	var earlier *graph.Step // an attention step, whose keys and values others may read
	attend := func(x graph.ValueID) graph.ValueID {
		if earlier != nil && rng.IntN(2) == 0 {
			op := earlier.Op.(step.Attend)
			c := g.Caches[op.Cache]
			return do(op, op.Heads*c.Dv, []graph.ValueID{linear(x, op.Heads*c.D), earlier.In[1], earlier.In[2]}, earlier.W...)
		}
		d, dv, kv := pick(8, 16, 24, 32), pick(8, 16, 24, 32), pick(1, 2, 3, 4)
		heads := kv * pick(1, 2, 4)
		for heads*dv%grain != 0 {
			heads += kv
		}
		q, k, v := graph.ValueID(0), graph.ValueID(0), graph.ValueID(0)
		if rng.IntN(3) > 0 {
			q, k, v = linear(x, heads*d), linear(x, kv*d), linear(x, kv*dv)
		} else { // of one matrix
			of := []int{heads * d, kv * d, kv * dv}
			if rng.IntN(2) == 0 { // what it makes is taken apart
				all := linear(x, of[0]+of[1]+of[2])
				q = do(step.Columns{}, of[0], []graph.ValueID{all})
				k = do(step.Columns{From: of[0]}, of[1], []graph.ValueID{all})
				v = do(step.Columns{From: of[0] + of[1]}, of[2], []graph.ValueID{all})
			} else { // the matrix is
				made := parts(x, 0, func(o int, w ...graph.WeightID) graph.ValueID {
					return do(step.Matmul{Slices: 1}, o, []graph.ValueID{x}, w...)
				}, of...)
				q, k, v = made[0], made[1], made[2]
			}
		}
		if rng.IntN(4) == 0 {
			q = do(step.Temper{Beta: 0.3, Length: pick(1, 7, 100), Offset: pick(0, 1)}, heads*d, []graph.ValueID{q})
		}
		if rng.IntN(2) == 0 {
			q, k = norm(q, d), norm(k, d)
		}
		rope := step.Rotate{Table: len(g.Ropes), D: d, Neox: rng.IntN(2) == 0}
		r := graph.Rope{Scale: 1}
		for i := range d / pick(2, 4) {
			r.InvFreq = append(r.InvFreq, math.Pow(10000, -float64(2*i)/float64(d)))
		}
		g.Ropes = append(g.Ropes, r)
		q, k = do(rope, g.Width(q), []graph.ValueID{q}), do(rope, g.Width(k), []graph.ValueID{k})
		keep := float64(pick(0, 0, 0, 3)) / 10
		var sinks []graph.WeightID
		if rng.IntN(3) == 0 {
			sinks = append(sinks, weight(1, heads))
		}
		g.Caches = append(g.Caches, graph.Cache{KVHeads: kv, D: d, Dv: dv, Window: pick(0, 0, 1, 13, 70), Chunked: rng.IntN(3) == 0})
		o := do(step.Attend{Cache: len(g.Caches) - 1, Heads: heads, Scale: 1 / math.Sqrt(float64(d)), Cap: float64(pick(0, 0, 2)),
			Keep: keep}, heads*dv, []graph.ValueID{q, k, v}, sinks...)
		s := g.Steps[len(g.Steps)-1]
		earlier = &s
		return o
	}
	// mixture is a block of experts, with a choice, weights and shapes of all kinds; some use every expert, some one.
	mixture := func(x graph.ValueID) graph.ValueID {
		experts := pick(1, 3, 8)
		op := step.Route{Used: 1 + rng.IntN(experts), Gate: step.Gate(rng.IntN(3)), Norm: rng.IntN(2) == 0, Scale: float32(pick(0, 2))}
		if experts == 8 && rng.IntN(2) == 0 {
			op.Groups, op.GroupsUsed = 4, 2+rng.IntN(3)
			op.Used = min(op.Used, 2*op.GroupsUsed)
		}
		logits := linear(x, experts)
		base := g.Values[x].Space
		var bias []graph.WeightID
		if rng.IntN(2) == 0 {
			bias = append(bias, weight(1, experts))
		}
		if op.Factors = rng.IntN(3) == 0; op.Factors {
			bias = append(bias, weight(1, experts))
		}
		ids, shares := g.NewValue(fmt.Sprintf("ids%d", len(g.Values)), op.Used), g.NewValue(fmt.Sprintf("shares%d", len(g.Values)), op.Used)
		g.Values[ids].Space, g.Values[shares].Space = base, base
		g.Add(op, "route", []graph.ValueID{logits}, []graph.ValueID{ids, shares}, bias...)
		g.Routes++
		routed := func(op graph.Op, width int, in []graph.ValueID, w ...graph.WeightID) graph.ValueID {
			v := do(op, width, in, w...)
			g.Values[v].Space = graph.Space{Picked: base.Picked, Route: g.Routes, Used: g.Width(ids)}
			return v
		}
		project := func(x graph.ValueID, width int) graph.ValueID {
			n++
			w := []graph.WeightID{g.NewExperts(fmt.Sprintf("w%d", n), experts, experts*width, g.Width(x))}
			if experts > 1 && rng.IntN(3) == 0 {
				w = append(w, weight(experts, width))
			}
			factors := rng.IntN(4) == 0
			if factors {
				w = append(w, weight(1, experts))
			}
			return routed(step.Experts{Slices: step.SlicesFor(g.Width(x), 0), Factors: factors}, width, []graph.ValueID{x, ids}, w...)
		}
		send, combine := []graph.ValueID{x, ids}, []graph.ValueID{0, ids, shares}
		if rng.IntN(4) == 0 {
			send, combine = append(send, shares), combine[:2]
		}
		f := pick(widths[:2]...)
		rows := routed(step.Send{}, g.Width(x), send)
		var gate, up graph.ValueID
		switch rng.IntN(4) {
		case 0:
			both := project(rows, 2*f)
			gate, up = routed(step.Columns{}, f, []graph.ValueID{both}), routed(step.Columns{From: f}, f, []graph.ValueID{both})
		case 1:
			made := parts(rows, experts, func(o int, w ...graph.WeightID) graph.ValueID {
				return routed(step.Experts{Slices: 1}, o, []graph.ValueID{rows, ids}, w...)
			}, f, f)
			gate, up = made[0], made[1]
		default:
			gate, up = project(rows, f), project(rows, f)
		}
		h := routed(step.GLU{Act: step.Activation(rng.IntN(3))}, f, []graph.ValueID{gate, up})
		out := g.Width(x)
		if combine[0] = project(h, out); rng.IntN(4) == 0 {
			combine[0] = routed(step.Norm{Eps: 1e-5}, out, []graph.ValueID{combine[0]}, weight(1, out))
		}
		v := do(step.Combine{}, out, combine)
		g.Values[v].Space = base
		if rng.IntN(3) == 0 {
			v = do(step.Weigh{}, out, []graph.ValueID{v, linear(x, 1)})
		}
		return v
	}
	hidden := pick(widths...)
	x := do(step.Embed{Scale: float32(pick(0, 0, 3))}, hidden, nil, weight(g.Vocab, hidden))
	for range 1 + rng.IntN(4) {
		a := x
		if rng.IntN(4) > 0 {
			a = norm(x, 0)
		}
		switch rng.IntN(5) {
		case 0, 1:
			a = attend(a)
		case 3:
			a = mixture(a)
		case 2:
			f := pick(widths...)
			a = do(step.GLU{Act: step.Activation(rng.IntN(3))}, f, []graph.ValueID{linear(a, f), linear(a, f)})
		}
		if rng.IntN(6) == 0 {
			act := step.Activate{}
			if rng.IntN(2) == 0 {
				act.XIELU = &step.XIELU{AlphaP: 0.8, AlphaN: 1.2, Beta: 0.5, Eps: -1e-6}
			}
			a = do(act, g.Width(a), []graph.ValueID{a})
		}
		a = linear(a, hidden)
		if rng.IntN(6) == 0 {
			var w []graph.WeightID
			if rng.IntN(2) == 0 {
				w = append(w, weight(1, 1))
				if rng.IntN(2) == 0 {
					w = append(w, weight(1, hidden))
				}
			}
			a = do(step.Scale{By: 0.3}, hidden, []graph.ValueID{a}, w...)
		}
		if rng.IntN(5) == 0 {
			x = do(step.Add{}, hidden, []graph.ValueID{a, x})
		} else {
			x = do(step.Add{}, hidden, []graph.ValueID{x, a})
		}
	}
	last := g.NewValue("last", hidden)
	g.Values[last].Space.Picked = true
	g.Add(step.Pick{}, "pick", []graph.ValueID{x}, []graph.ValueID{last})
	if rng.IntN(2) == 0 { // steps on picked rows
		f := pick(widths...)
		a := do(step.GLU{Act: step.Activation(rng.IntN(3))}, f, []graph.ValueID{linear(last, f), linear(last, f)})
		last = do(step.Add{}, hidden, []graph.ValueID{last, linear(a, hidden)})
	}
	if rng.IntN(4) == 0 {
		last = do(step.Add{}, hidden, []graph.ValueID{last, mixture(last)})
	}
	g.Logits = linear(norm(last, 0), g.Vocab)
	if rng.IntN(3) == 0 {
		g.Logits = do(step.Softcap{Cap: 3}, g.Vocab, []graph.ValueID{g.Logits})
	}
	tensors := map[string]graph.WeightID{} // of parts
	for id, w := range g.Weights {
		if first, ok := tensors[w.Name]; ok && w.Rows > 1 {
			m.types, m.raw = append(m.types, m.types[first]), append(m.raw, m.raw[first])
			continue
		}
		t, vector := types[rng.IntN(len(types))], g.Roles(graph.WeightID(id))[graph.Vector]
		if vector {
			t = quant.F32
		}
		b := make([]byte, w.TensorRows()*t.RowBytes(w.Cols))
		if tensors[w.Name] = graph.WeightID(id); vector {
			for i := range w.Rows * w.Cols {
				binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(1+0.3*rng.NormFloat64())))
			}
		} else {
			quant.RandomBlocks(t, b, rng, float32(1/math.Sqrt(float64(w.Cols))))
		}
		m.types, m.raw = append(m.types, t), append(m.raw, b)
	}
	return m
}

// setup is one way to run a model.
type setup struct {
	tier    isa.Tier
	workers int
	ubatch  int
	f32     bool
	kv      quant.Type
	noPack  bool
	alone   bool // plan.Machine.Separate
	homes   int  // 0: one
}

// aligned is n bytes at a multiple of 64.
func aligned(n int) []byte {
	b := make([]byte, n+64)
	return b[-uintptr(unsafe.Pointer(&b[0]))&63:][:n]
}

// newWalker is New with the routines of all kinds and arenas of its own, full of what is no number.
func newWalker(t testing.TB, p *plan.Plan, tbl *kernel.Table, w Weights, cache *kv.Cache) *Walker {
	t.Helper()
	arenas := make([][]byte, p.Homes.Members+1)
	for m := range arenas {
		arenas[m] = aligned(max(p.Arena, p.Common) + 64)
		for i := range arenas[m] {
			arenas[m][i] = 0xff
		}
	}
	x, err := New(p, step.Routines, tbl, w, cache, arenas...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// runner holds what lives as long as a state: slots, cache, walkers.
type runner struct {
	m     *model
	s     setup
	tbl   *kernel.Table
	w     Weights
	cache *kv.Cache
	team  *team.Team

	layout *plan.Layout

	before func(w *Walker, b *Batch) // each walk of run
}

func newRunner(t testing.TB, m *model, s setup) *runner {
	t.Helper()
	r := &runner{m: m, s: s, tbl: kernel.For(s.tier, isa.Detect()), layout: plan.NewLayout(m.g, plan.HomesFor(m.g, max(1, s.homes)))}
	n := len(m.g.Weights)
	r.w = Weights{Slots: make([][]*Slot, n), Vectors: make([][]float32, n), Decode: make([]func(int, []float32), n)}
	for i, w := range m.g.Weights {
		id := graph.WeightID(i)
		if m.g.Roles(id)[graph.Vector] {
			r.w.Vectors[i] = make([]float32, w.Rows*w.Cols)
			quant.Decode(m.types[i], r.w.Vectors[i], m.raw[i])
			continue
		}
		r.w.Decode[i] = func(row int, dst []float32) { quant.Decode(m.types[id], dst, m.row(id, row)) }
		f := r.tbl.Format(m.types[i], s.f32)
		for _, p := range r.layout.Pieces(id, f.PanelRows) {
			var mem []byte
			if b := PanelsBytes(PartOf(w, p), f); b > 0 && !s.noPack {
				mem = aligned(b)
			}
			r.w.Slots[i] = append(r.w.Slots[i], NewPart(w, p, f, func(row int) []byte { return m.row(id, row) }, mem))
		}
	}
	var layers []kv.Layer
	for _, c := range m.g.Caches {
		f, err := r.tbl.KV(s.kv, c.D, c.Dv)
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, kv.Layer{Heads: c.KVHeads, Format: f})
	}
	r.cache = kv.New(layers, r.layout.Members, r.layout.Places, func(_, n int) ([]byte, error) { return aligned(n)[:n], nil }, 0)
	cpus := make([]int, s.workers)
	var err error
	if r.team, err = team.New(cpus, team.Options{Homes: r.layout.N(), Places: r.layout.Places}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.team.Close)
	return r
}

func (r *runner) format(w graph.WeightID) *kernel.Format { return r.w.Slots[w][0].Format }

func (r *runner) plan(t testing.TB, rows int) *plan.Plan {
	t.Helper()
	p, err := plan.Build(r.m.g, plan.Machine{Workers: r.s.workers, MaxRows: rows, MaxPicks: rows, Separate: r.s.alone, Format: r.format, Layout: r.layout})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run walks the sequences one after another in pieces of ubatch rows and returns the logits of all rows.
func (r *runner) run(t testing.TB, seqs [][]int32) [][]float32 {
	t.Helper()
	walkers := map[int]*Walker{}
	var out [][]float32
	for _, ids := range seqs {
		seq := r.cache.NewSeq()
		for at := 0; at < len(ids); {
			n := min(r.s.ubatch, len(ids)-at)
			class := int(plan.ClassOf(n))
			w := walkers[class]
			if w == nil {
				p := r.plan(t, []int{1, 16, 512}[class]) // most walks have fewer rows than the plan has room for
				if err := p.Check(); err != nil {
					t.Fatalf("%+v: %v", r.s, err)
				}
				w = newWalker(t, p, r.tbl, r.w, r.cache)
				walkers[class] = w
			}
			b := &Batch{IDs: ids[at : at+n]}
			for i := range n {
				b.Pos, b.Seq, b.Pick = append(b.Pos, int32(at+i)), append(b.Seq, seq), append(b.Pick, int32(i))
			}
			if err := r.cache.Reserve(seq, at+n); err != nil {
				t.Fatal(err)
			}
			if r.before != nil {
				r.before(w, b)
			}
			if err := r.cache.Reserve(seq, at+n); err != nil {
				t.Fatal(err)
			}
			if err := w.Run(r.team, b, nil); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				out = append(out, append([]float32(nil), w.Logits(i)...))
			}
			at += n
		}
		r.cache.Drop(seq)
	}
	return out
}

// reference is the same in float64.
func (m *model) reference(seqs [][]int32) [][]float64 {
	var in graph.Input
	for s, ids := range seqs {
		for i, id := range ids {
			in.IDs, in.Pos, in.Seq = append(in.IDs, id), append(in.Pos, int32(i)), append(in.Seq, int32(s))
			in.Pick = append(in.Pick, int32(len(in.Pick)))
		}
	}
	return graph.Interpret(m.g, in, m.exact)
}

func randomIDs(rng *rand.Rand, vocab, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(vocab))
	}
	return ids
}

// relative is rms(got-want) / rms(want - mean), over all rows.
func relative(got [][]float32, want [][]float64) float64 {
	var d2, c2 float64
	for i, w := range want {
		mean := 0.0
		for _, v := range w {
			mean += v / float64(len(w))
		}
		for j, v := range w {
			d := float64(got[i][j]) - v
			d2, c2 = d2+d*d, c2+(v-mean)*(v-mean)
		}
	}
	return math.Sqrt(d2 / c2)
}

func sameBits(a, b [][]float32) error {
	for i := range a {
		for j := range a[i] {
			if math.Float32bits(a[i][j]) != math.Float32bits(b[i][j]) {
				return fmt.Errorf("row %d, logit %d: %g (%#x) and %g (%#x)", i, j, a[i][j], math.Float32bits(a[i][j]), b[i][j], math.Float32bits(b[i][j]))
			}
		}
	}
	return nil
}

// Random graphs, walked with float32 activations and caches, agree with the float64 interpreter; every number of workers, every cut of
// the prompt and unpacked weights give the same bits.
func TestRandomGraphs(t *testing.T) {
	sets := [][]quant.Type{{quant.F32}, {quant.F16, quant.F32}, {quant.Q8_0, quant.Q4_0, quant.Q5_1}, {quant.Q4_K, quant.Q6_K}, {quant.IQ4_NL, quant.BF16},
		{quant.IQ4_XS, quant.Q2_K, quant.MXFP4, quant.NVFP4}}
	graphs := 18
	switch {
	case testkit.Race:
		graphs = 2
	case testing.Short():
		graphs = 5
	}
	tiers := isa.Available(isa.Detect())
	for i := range graphs {
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		m := randomModel(rng, sets[i%len(sets)])
		if err := m.g.Check(); err != nil {
			t.Fatal(err)
		}
		seqs := [][]int32{randomIDs(rng, m.g.Vocab, 1+rng.IntN(130)), randomIDs(rng, m.g.Vocab, 1+rng.IntN(20))}
		base := setup{tier: tiers[rng.IntN(len(tiers))], workers: 1, ubatch: 512, f32: true, kv: quant.F32}
		got := newRunner(t, m, base).run(t, seqs)
		if rel := relative(got, m.reference(seqs)); !(rel < 2e-5) {
			t.Errorf("graph %d, tier %s: relative error %.2e against the interpreter", i, base.tier, rel)
		}
		for _, f32 := range []bool{true, false} {
			base.f32 = f32
			base.kv = []quant.Type{quant.F32, quant.F16, quant.Q8_0}[rng.IntN(3)]
			want := newRunner(t, m, base).run(t, seqs)
			onHomes := []setup{{workers: 2, ubatch: 1, homes: 2}, {workers: 3, ubatch: 14, homes: 2}, {workers: 5, ubatch: 512, homes: 4}, {workers: 6, ubatch: 6, homes: 6},
				{workers: 7, ubatch: 33, homes: 3, noPack: true}, {workers: 4, ubatch: 5, homes: 2, alone: true}, {workers: 8, ubatch: 20, homes: 8}}
			rng.Shuffle(len(onHomes), func(i, j int) { onHomes[i], onHomes[j] = onHomes[j], onHomes[i] })
			// Homes of several workers on few CPUs take long: they have the first rows alone.
			first := min(70, len(seqs[0]))
			fewer := [][]int32{seqs[0][:first], seqs[1]}
			wantFewer := append(append([][]float32{}, want[:first]...), want[len(seqs[0]):]...)
			for _, v := range onHomes[:1+i%2] {
				v.tier, v.f32, v.kv = base.tier, f32, base.kv
				if err := sameBits(wantFewer, newRunner(t, m, v).run(t, fewer)); err != nil {
					t.Errorf("graph %d: %+v: %v", i, v, err)
				}
			}
			for _, v := range []setup{{workers: 2, ubatch: 7}, {workers: 3, ubatch: 1}, {workers: 2, ubatch: 50}, {workers: 5, ubatch: 512}, {workers: 2, ubatch: 33, noPack: true},
				{workers: 1, ubatch: 1, alone: true}, {workers: 3, ubatch: 9, alone: true}, {workers: 2, ubatch: 512, alone: true}} {
				v.tier, v.f32, v.kv = base.tier, f32, base.kv
				if err := sameBits(want, newRunner(t, m, v).run(t, seqs)); err != nil {
					t.Errorf("graph %d: %+v: %v", i, v, err)
				}
			}
		}
	}
}

// Every step, barrier and operand of a plan matters: with any one of them deleted, either the check refuses the plan, or the logits
// change.
func TestPlanMutations(t *testing.T) {
	total, refused, changed := 0, 0, 0
	workers := []int{2, 1, 3, 2, 64, 512}
	for _, rows := range []int{1, 9, 40} {
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, uint64(rows)))
			m := randomModel(rng, []quant.Type{quant.Q8_0, quant.F32})
			s := setup{tier: isa.Best(isa.Detect()), workers: workers[seed], ubatch: rows, kv: quant.F16}
			p := newRunner(t, m, s).plan(t, rows)
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
			for name, mutant := range mutants(p) {
				total++
				if mutant.Check() != nil {
					refused++
					continue
				}
				if s.workers > 3 {
					t.Errorf("%d rows, %d workers: the check does not see that %s was deleted", rows, s.workers, name)
					continue
				}
				ids := [][]int32{randomIDs(rng, m.g.Vocab, rows)}
				want := newRunner(t, m, s).run(t, ids)
				if got := runPlan(t, m, s, mutant, ids[0]); sameBits(want, got) != nil {
					changed++
					continue
				}
				t.Errorf("%d rows, seed %d: nobody noticed that %s was deleted", rows, seed, name)
			}
		}
	}
	t.Logf("%d mutants: %d refused by the check, %d seen in the logits", total, refused, changed)
}

// mutants are copies of p with one item or one operand deleted, by what is missing.
func mutants(p *plan.Plan) map[string]*plan.Plan {
	out := map[string]*plan.Plan{}
	for i := range p.Items {
		q := *p
		q.Items = append(append([]plan.Item{}, p.Items[:i]...), p.Items[i+1:]...)
		out[fmt.Sprintf("item %d %s %s", i, p.Items[i].Do, p.Items[i].Name)] = &q
		it := &p.Items[i]
		for list, ops := range [][]plan.Operand{it.In, it.Out} {
			for j := range ops {
				q := *p
				q.Items = append([]plan.Item{}, p.Items...)
				fewer := append(append([]plan.Operand{}, ops[:j]...), ops[j+1:]...)
				if list == 0 {
					q.Items[i].In = fewer
				} else {
					q.Items[i].Out = fewer
				}
				out[fmt.Sprintf("operand %d/%d of item %d %s %s", list, j, i, it.Do, it.Name)] = &q
			}
		}
		for j := range it.W {
			q := *p
			q.Items = append([]plan.Item{}, p.Items...)
			q.Items[i].W = append(append([]graph.WeightID{}, it.W[:j]...), it.W[j+1:]...)
			out[fmt.Sprintf("weight %d of item %d %s %s", j, i, it.Do, it.Name)] = &q
		}
	}
	return out
}

// runPlan walks one given plan over one sequence.
func runPlan(t testing.TB, m *model, s setup, p *plan.Plan, ids []int32) (out [][]float32) {
	t.Helper()
	r := newRunner(t, m, s)
	seq := r.cache.NewSeq()
	if err := r.cache.Reserve(seq, len(ids)); err != nil {
		t.Fatal(err)
	}
	b := &Batch{IDs: ids}
	for i := range ids {
		b.Pos, b.Seq, b.Pick = append(b.Pos, int32(i)), append(b.Seq, seq), append(b.Pick, int32(i))
	}
	w := newWalker(t, p, r.tbl, r.w, r.cache)
	if err := w.Run(r.team, b, nil); err != nil {
		return [][]float32{{float32(math.NaN())}}
	}
	for i := range ids {
		out = append(out, append([]float32(nil), w.Logits(i)...))
	}
	return out
}

// Explain shows every item and the numbers of the plan.
func TestExplain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	m := randomModel(rng, []quant.Type{quant.Q8_0})
	p := newRunner(t, m, setup{workers: 2, kv: quant.F16}).plan(t, 1)
	var b strings.Builder
	if err := p.Explain(&b); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(b.String(), "\n"); lines != len(p.Items)+2 {
		t.Errorf("%d lines for %d items:\n%s", lines, len(p.Items), b.String())
	}
}

// Rows of several sequences in one walk have the bits that they have alone.
func TestMixedSequences(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 5))
	m := randomModel(rng, []quant.Type{quant.Q4_0, quant.F16})
	s := setup{tier: isa.Best(isa.Detect()), workers: 2, ubatch: 64, kv: quant.F16}
	a, b := randomIDs(rng, m.g.Vocab, 23), randomIDs(rng, m.g.Vocab, 23)
	want := newRunner(t, m, s).run(t, [][]int32{a, b})
	r := newRunner(t, m, s)
	batch := &Batch{}
	for i := range a {
		for s, ids := range [][]int32{a, b} {
			batch.IDs, batch.Pos, batch.Seq = append(batch.IDs, ids[i]), append(batch.Pos, int32(i)), append(batch.Seq, s)
			batch.Pick = append(batch.Pick, int32(len(batch.Pick)))
		}
	}
	for range 2 {
		if err := r.cache.Reserve(r.cache.NewSeq(), len(a)); err != nil {
			t.Fatal(err)
		}
	}
	p := r.plan(t, len(batch.IDs))
	w := newWalker(t, p, r.tbl, r.w, r.cache)
	if err := w.Run(r.team, batch, nil); err != nil {
		t.Fatal(err)
	}
	got := make([][]float32, len(want))
	for i := range a {
		got[i], got[len(a)+i] = w.Logits(2*i), w.Logits(2*i+1)
	}
	if err := sameBits(want, got); err != nil {
		t.Error(err)
	}
}

// Any choice of picked rows, none of them too, gives their logits the bits that they have when all rows are picked.
func TestPickedRows(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 77))
		m := randomModel(rng, []quant.Type{quant.Q5_0, quant.F32})
		s := setup{tier: isa.Best(isa.Detect()), workers: 1 + int(seed%3), ubatch: 64, kv: quant.F16}
		ids := randomIDs(rng, m.g.Vocab, 1+rng.IntN(64))
		want := newRunner(t, m, s).run(t, [][]int32{ids})
		r := newRunner(t, m, s)
		p := r.plan(t, 64)
		w := newWalker(t, p, r.tbl, r.w, r.cache)
		for _, share := range []int{0, 1, 3, 20} { // of 20
			b, seq := &Batch{IDs: ids}, r.cache.NewSeq()
			for i := range ids {
				b.Pos, b.Seq = append(b.Pos, int32(i)), append(b.Seq, seq)
				if rng.IntN(20) < share {
					b.Pick = append(b.Pick, int32(i))
				}
			}
			if err := r.cache.Reserve(seq, len(ids)); err != nil {
				t.Fatal(err)
			}
			if err := w.Run(r.team, b, nil); err != nil {
				t.Fatal(err)
			}
			for i, row := range b.Pick {
				if err := sameBits(want[row:row+1], [][]float32{w.Logits(i)}); err != nil {
					t.Errorf("seed %d, picked row %d of %d: %v", seed, row, len(ids), err)
				}
			}
			r.cache.Drop(seq)
		}
	}
}

// Stopped at any place, between items or while a worker packs or computes, a walk returns, and leaves nothing behind: the same walk then has
// the bits that it has when nothing was stopped before. So have panels that a stopped walk packed.
func TestStoppedWalks(t *testing.T) {
	seeds := 24
	if testing.Short() {
		seeds = 6
	}
	tiers := isa.Available(isa.Detect())
	stopped := 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 99))
		types := [][]quant.Type{{quant.Q8_0, quant.F32}, {quant.Q4_K, quant.BF16}, {quant.MXFP4, quant.Q4_0}, {quant.F16}}[seed%4]
		m := randomModel(rng, types)
		s := setup{tier: tiers[rng.IntN(len(tiers))], workers: 1 + rng.IntN(5), ubatch: []int{1, 5, 40, 512}[rng.IntN(4)], kv: quant.F16,
			f32: seed%3 == 0, noPack: rng.IntN(4) == 0, alone: rng.IntN(3) == 0}
		seqs := [][]int32{randomIDs(rng, m.g.Vocab, 1+rng.IntN(90)), randomIDs(rng, m.g.Vocab, 1+rng.IntN(30))}
		want := newRunner(t, m, s).run(t, seqs)

		r := newRunner(t, m, s)
		var stop atomic.Bool
		var left atomic.Int64 // rows read and items begun until the stop
		tick := func() {
			if left.Add(-1) == 0 {
				stop.Store(true)
			}
		}
		for _, parts := range r.w.Slots {
			for _, slot := range parts {
				row := slot.Row
				slot.Row = func(r int) []byte { tick(); return row(r) }
			}
		}
		r.before = func(w *Walker, b *Batch) {
			w.Hook = func(int, int) { tick() }
			for range 1 + rng.IntN(3) {
				stop.Store(false)
				left.Store(1 + rng.Int64N(int64(1)<<(1+rng.IntN(12))))
				switch err := w.Run(r.team, b, &stop); {
				case errors.Is(err, ErrStopped):
					stopped++
					r.cache.Truncate(b.Seq[0], int(b.Pos[0]))
					if err := r.cache.Reserve(b.Seq[0], int(b.Pos[len(b.Pos)-1])+1); err != nil {
						t.Fatal(err)
					}
				case err != nil:
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			left.Store(0)
		}
		if err := sameBits(want, r.run(t, seqs)); err != nil {
			t.Errorf("seed %d: %+v: %v", seed, s, err)
		}
	}
	if stopped < 5*seeds {
		t.Errorf("only %d walks were stopped", stopped)
	}
}

// A walk allocates nothing.
func TestWalkAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 9))
	m := randomModel(rng, []quant.Type{quant.Q8_0})
	r := newRunner(t, m, setup{tier: isa.Best(isa.Detect()), workers: 1, kv: quant.F16})
	seq := r.cache.NewSeq()
	if err := r.cache.Reserve(seq, 8); err != nil {
		t.Fatal(err)
	}
	p := r.plan(t, 1)
	w := newWalker(t, p, r.tbl, r.w, r.cache)
	b := &Batch{IDs: []int32{1}, Pos: []int32{3}, Seq: []int{seq}, Pick: []int32{0}}
	run := func() {
		if err := w.Run(r.team, b, nil); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n > 1 { // the closure of Run
		t.Errorf("%.0f allocations a walk", n)
	}
}
