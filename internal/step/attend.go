package step

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Attend is causal softmax attention over the rows' own sequence: inputs q [Heads*D], k [KVHeads*D], v [KVHeads*Dv], output
// [Heads*Dv]. The keys and values of the rows are remembered in cache Cache; earlier rows' are read from there. Steps of one cache have the same
// keys and values. Head h reads
// KV head h/(Heads/KVHeads). A weight [Heads], if there is one, is the sinks: a score of each head without a key, which takes part in the softmax
// and has no value. (Vaswani et al. 2017; grouped queries: Ainslie et al. 2023, arXiv:2305.13245; sinks: Xiao et al. 2023, arXiv:2309.17453)
type Attend struct {
	Cache int // index in graph.Graph.Caches
	Heads int
	Scale float64 // of the scores
	Cap   float64 // not 0: scores become Cap * tanh(score / Cap), see Softcap

	// Keep is the share of the weights of a row and head that count, the largest ones; 0: all. It is there to measure
	// what is lost without the others: see kernel.KVFormat.AttendKept.
	Keep float64
}

func (Attend) Kind() string { return "attend" }

func (Attend) Needs(i int) graph.Need {
	if i == 0 {
		return graph.SameRow
	}
	return graph.AllRows
}

func (a Attend) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(3, 1, 0, 1); err != nil {
		return err
	}
	if len(s.W) > 0 {
		if w := g.Weights[s.W[0]]; w.Rows != 1 || w.Cols != a.Heads {
			return fmt.Errorf("%s is [%d, %d], there are %d heads", w.Name, w.Rows, w.Cols, a.Heads)
		}
	}
	if a.Cache < 0 || a.Cache >= len(g.Caches) {
		return fmt.Errorf("no cache %d", a.Cache)
	}
	c := g.Caches[a.Cache]
	if c.KVHeads < 1 || a.Heads%c.KVHeads != 0 {
		return fmt.Errorf("%d heads over %d KV heads", a.Heads, c.KVHeads)
	}
	for _, x := range []struct {
		v graph.ValueID
		n int
	}{{s.In[0], a.Heads * c.D}, {s.In[1], c.KVHeads * c.D}, {s.In[2], c.KVHeads * c.Dv}, {s.Out[0], a.Heads * c.Dv}} {
		if g.Width(x.v) != x.n {
			return fmt.Errorf("%s is %d wide, wants %d", g.Values[x.v].Name, g.Width(x.v), x.n)
		}
	}
	for i := range g.Steps {
		other := &g.Steps[i]
		if other == s {
			break
		}
		if o, ok := other.Op.(Attend); ok && o.Cache == a.Cache && (other.In[1] != s.In[1] || other.In[2] != s.In[2]) {
			return fmt.Errorf("cache %d has the keys and values of %s", a.Cache, other.Name)
		}
	}
	return nil
}

func (a Attend) Ref(r *graph.Ref, s *graph.Step) {
	c := r.G.Caches[a.Cache]
	group := a.Heads / c.KVHeads
	keys, vals := r.Vals[s.In[1]], r.Vals[s.In[2]]
	var sinks []float64
	if len(s.W) > 0 {
		sinks = r.Vector(s.W[0])
	}
	r.Each(s, 0, func(row int, out []float64) {
		q := r.Row(s, 0, row)
		for h := range a.Heads {
			kv := h / group
			score := make([]float64, len(keys))
			top := math.Inf(-1)
			for j := range keys {
				score[j] = math.Inf(-1)
				if r.Sees(row, j, c) {
					score[j] = a.Scale * dot64(q[h*c.D:(h+1)*c.D], keys[j][kv*c.D:(kv+1)*c.D])
					if a.Cap != 0 {
						score[j] = softcap(score[j], a.Cap)
					}
					top = max(top, score[j])
				}
			}
			if a.Keep != 0 {
				keepLargest(score, a.Keep)
			}
			sum := 0.0
			if sinks != nil {
				top = max(top, sinks[h])
				sum = math.Exp(sinks[h] - top)
			}
			o := out[h*c.Dv : (h+1)*c.Dv]
			for j := range keys {
				p := math.Exp(score[j] - top)
				if p == 0 {
					continue
				}
				sum += p
				for d := range o {
					o[d] += p * vals[j][kv*c.Dv+d]
				}
			}
			for d := range o {
				o[d] /= sum
			}
		}
	})
}

// keepLargest makes all scores but the largest ones -Inf: a share of those that are not, one at least. Of equal ones the earlier stay.
func keepLargest(score []float64, share float64) {
	var seen []int
	for j, x := range score {
		if !math.IsInf(x, -1) {
			seen = append(seen, j)
		}
	}
	slices.SortStableFunc(seen, func(i, j int) int { return cmp.Compare(score[j], score[i]) })
	for _, j := range seen[kernel.Kept(share, len(seen)):] {
		score[j] = math.Inf(-1)
	}
}

func (Attend) Role(int) graph.Role { return graph.Vector }

// KVHeads is the number of heads of which each is computed by itself.
func (a Attend) KVHeads(g *graph.Graph) int { return g.Caches[a.Cache].KVHeads }

// cacheKey names a cache among what a plan makes once.
type cacheKey int

// Realise stores the rows' keys and values, which the first step of a cache does for all of them, then attends: prompts in tiles of rows; few rows by KV heads where these divide over the
// workers, else by chunks of keys that are merged in ascending order. All give the same bits.
func (a Attend) Realise(b *plan.Builder, i int) (int, error) {
	s, c := b.Step(i), b.Plan.G.Caches[a.Cache]
	q := b.At(s.In[0])
	over := b.Dealt(s.Out[0])
	reads := func(o plan.Operand) plan.Operand { // earlier rows may be another member's
		o.Far = b.Tokens()
		return o
	}
	heads := plan.Cut{By: plan.Cols, N: c.KVHeads, Over: over}
	many := b.Plan.Class == plan.Many
	cache := b.Once(cacheKey(a.Cache), func() []plan.Operand {
		cache := b.Buffer(plan.Buffer{Name: fmt.Sprintf("kv.%d", a.Cache), Width: c.KVHeads, Cache: 1 + a.Cache, Shared: over != plan.Alike})
		k, v := b.At(s.In[1]), b.At(s.In[2])
		st := b.Item(i, store)
		if many {
			st.Cut, st.In, st.Out = b.RowsCut(s.In[1], over), []plan.Operand{k.Cols(0), v.Cols(0)}, []plan.Operand{cache.Cols(0)}
		} else {
			st.Cut, st.In, st.Out = heads, []plan.Operand{k.Cols(c.D), v.Cols(c.Dv)}, []plan.Operand{cache.Cols(1)}
		}
		b.Emit(st)
		return []plan.Operand{cache}
	})[0]
	cache = reads(cache)

	group := a.Heads / c.KVHeads
	if a.Keep != 0 {
		it := b.Item(i, keep)
		it.Cut, it.In = heads, []plan.Operand{q.Cols(group * c.D), cache.Cols(1)}
		b.Finish(it, s.Out[0], group*c.Dv)
		return 0, nil
	}
	if !many && (b.Plan.Homes.Places > 1 || !b.Even(c.KVHeads, over)) { // places have chunks of their own
		parts := b.Buffer(plan.Buffer{Name: "parts", Width: c.KVHeads, Parts: group, PartsOf: a.Cache})
		it := b.Item(i, chunks)
		it.Cut, it.In, it.Out = plan.Cut{By: plan.Split, N: c.KVHeads, Over: over}, []plan.Operand{q.Share(over), cache.Share(over)}, []plan.Operand{parts.Cols(1)}
		b.Emit(it)
		it = b.Item(i, merge)
		it.Cut, it.In = heads, []plan.Operand{parts.Share(over)}
		b.Finish(it, s.Out[0], group*c.Dv)
		return 0, nil
	}
	it := b.Item(i, attend)
	if it.Cut = heads; many {
		it.Cut.By = plan.Tiles
	}
	it.In = []plan.Operand{q.Cols(group * c.D), cache.Cols(1)}
	b.Finish(it, s.Out[0], group*c.Dv)
	return 0, nil
}

var (
	// store puts keys and values into the pages of the cache. Its elements are those of keys and values.
	store = &plan.Kind{Name: "kv-store", In: 2, Out: 1, Weights: [2]int{0, 1},
		Elements: func(p *plan.Plan, it *plan.Item) plan.Elements {
			n := p.Width(it.In)
			return plan.Elements{N: n, Ops: 180, Moved: 8 * n}
		},
	}
	// attend sees all keys of a head in one worker.
	attend = &plan.Kind{Name: "attend", In: 2, Out: 1, Weights: [2]int{0, 1}, Group: plan.Attention, Work: attendWork}
	// keep is attend with the largest weights alone, in plain Go.
	keep = &plan.Kind{Name: "attend-keep", In: 2, Out: 1, Weights: [2]int{0, 1}, Group: plan.Attention, Work: attendWork}
	// chunks deals chunks of keys to workers.
	chunks = &plan.Kind{Name: "attend-chunks", In: 2, Out: 1, Weights: [2]int{0, 1}, Group: plan.Attention, Work: attendWork}
	// merge merges the chunks' results in ascending order.
	merge = &plan.Kind{Name: "attend-merge", In: 1, Out: 1, Weights: [2]int{0, 1},
		Elements: func(p *plan.Plan, it *plan.Item) plan.Elements { return plan.Elements{N: p.Width(it.Out), Ops: 100} },
	}
)

func attendWork(p *plan.Plan, it *plan.Item, l plan.Load) plan.Work {
	op := it.Op.(Attend)
	c := p.G.Caches[op.Cache]
	keys := l.Keys
	if c.Window > 0 {
		keys = min(keys, float64(c.Window))
	}
	return plan.Work{Bytes: l.PositionBytes(op.Cache) * keys * l.CacheReads, Kind: kernel.F32,
		Ops: 2 * float64(op.Heads) * float64(c.D+c.Dv) * keys * float64(l.Rows)}
}

func runStore(w *walk.Worker, it *plan.Item, p plan.Rect) {
	layer := it.Op.(Attend).Cache
	cache, b := w.Cache(), w.Batch()
	l := cache.Layer(layer)
	k, kw := w.Floats(it.In[0])
	v, vw := w.Floats(it.In[1])
	d, dv := kw/l.Heads, vw/l.Heads
	kb, vb := l.Format.KBytes(), l.Format.VBytes()
	for h := p.C0; h < p.C1; h++ { // a column of a cache is a KV head
		for r := p.R0; r < p.R1; {
			pos, seq := int(b.Pos[r]), b.Seq[r]
			n := 1 // rows that follow each other in the page
			for r+n < p.R1 && b.Seq[r+n] == seq && int(b.Pos[r+n]) == pos+n && pos%kernel.BlockKeys+n < kernel.BlockKeys {
				n++
			}
			kp := cache.Keys(seq, layer, h)[pos/kernel.BlockKeys]
			vp := cache.Values(seq, layer, h)[pos/kernel.BlockKeys]
			l.Format.StoreRows(w.Attn, unsafe.Slice((*byte)(kp), kb), unsafe.Slice((*byte)(vp), vb), pos%kernel.BlockKeys, n,
				k[r*kw+h*d:], kw, v[r*vw+h*dv:], vw)
			r += n
		}
	}
}

// head prepares attention of KV head h and rows [r0, r1) of one sequence, from q to o, either of which may be missing.
func head(w *walk.Worker, it *plan.Item, q, o *plan.Operand, h, r0, r1 int) *kernel.Attend {
	op := it.Op.(Attend)
	c := w.Graph().Caches[op.Cache]
	seq, g := w.Batch().Seq[r0], op.Heads/c.KVHeads
	w.Heads = append(w.Heads, kernel.Attend{})
	a := &w.Heads[len(w.Heads)-1]
	*a = kernel.Attend{Rows: r1 - r0, G: g, Scale: float32(op.Scale), Softcap: float32(op.Cap), Lo: w.Lo[:r1-r0], Hi: w.Hi[:r1-r0],
		K: w.Cache().Keys(seq, op.Cache, h), V: w.Cache().Values(seq, op.Cache, h)}
	if len(it.W) > 0 {
		a.Sinks = w.Vector(it.W[0])[h*g : (h+1)*g]
	}
	if q != nil {
		v, width := w.Floats(*q)
		a.Q, a.QStride = v[r0*width+h*g*c.D:], width
	}
	if o != nil {
		v, width := w.Floats(*o)
		a.O, a.OStride = v[r0*width+h*g*c.Dv:], width
	}
	for r := r0; r < r1; r++ {
		w.Lo[r-r0], w.Hi[r-r0] = sees(w, r, c)
	}
	return a
}

// sees is the range of positions that row r attends to.
func sees(w *walk.Worker, r int, c graph.Cache) (lo, hi int32) {
	pos := w.Batch().Pos[r]
	return int32(c.First(int(pos))), pos + 1
}

// runAttend computes heads of a tile of rows at a time: one head, or, where the rows are one tile, all heads of the part, block by block of the
// cache through all of them.
func runAttend(w *walk.Worker, it *plan.Item, p plan.Rect) {
	f, seq := w.Cache().Layer(it.Op.(Attend).Cache).Format, w.Batch().Seq
	h0, h1 := p.C0/it.Out[0].Unit, p.C1/it.Out[0].Unit
	tile, heads := plan.TileRows, 1
	if it.Cut.By != plan.Tiles || w.Rows(it.Space) <= plan.TileRows {
		tile, heads = p.R1-p.R0, h1-h0
	}
	for h := h0; h < h1; h += heads {
		for t := p.R0; t < p.R1; t += tile {
			for r0, end := t, min(t+tile, p.R1); r0 < end && !w.Stopped(); {
				r1 := r0 + 1
				for r1 < end && seq[r1] == seq[r0] {
					r1++
				}
				w.Heads = w.Heads[:0]
				for i := range heads {
					head(w, it, &it.In[0], &it.Out[0], h+i, r0, r1)
				}
				f.AttendHeads(w.Attn, w.Heads)
				r0 = r1
			}
		}
	}
}

// runKeep computes heads, sequence by sequence.
func runKeep(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(Attend)
	f, seq := w.Cache().Layer(op.Cache).Format, w.Batch().Seq
	for h := p.C0 / it.Out[0].Unit; h < p.C1/it.Out[0].Unit; h++ {
		for r0, r1 := p.R0, 0; r0 < p.R1 && !w.Stopped(); r0 = r1 {
			for r1 = r0 + 1; r1 < p.R1 && seq[r1] == seq[r0]; r1++ {
			}
			w.Heads = w.Heads[:0]
			f.AttendKept(w.Attn, head(w, it, &it.In[0], &it.Out[0], h, r0, r1), op.Keep)
		}
	}
}

// runChunks computes units of (KV head, chunk number of all rows).
func runChunks(w *walk.Worker, it *plan.Item, p plan.Rect) {
	layer := it.Op.(Attend).Cache
	f, c := w.Cache().Layer(layer).Format, w.Graph().Caches[layer]
	crew := w.Crew()
	for u := p.C0; u < p.C1 && !w.Stopped(); u++ {
		h, n := crew.Chunk(it.Cut, u)
		r := 0
		for w.Chunks(r+1) <= n {
			r++
		}
		chunk := n - w.Chunks(r)
		if l, _ := sees(w, r, c); chunk < int(l)/kernel.ChunkKeys {
			continue
		}
		w.Heads = w.Heads[:0]
		f.AttendChunk(w.Attn, head(w, it, &it.In[0], nil, h, r, r+1), chunk, w.PartialResult(it.Out[0], h, n))
	}
}

func runMerge(w *walk.Worker, it *plan.Item, p plan.Rect) {
	layer := it.Op.(Attend).Cache
	f, c := w.Cache().Layer(layer).Format, w.Graph().Caches[layer]
	for h := p.C0 / it.Out[0].Unit; h < p.C1/it.Out[0].Unit; h++ {
		for r := p.R0; r < p.R1; r++ {
			first, _ := sees(w, r, c)
			w.Lists = w.Lists[:0]
			for n := w.Chunks(r) + int(first)/kernel.ChunkKeys; n < w.Chunks(r+1); n++ {
				w.Lists = append(w.Lists, w.PartialResult(it.In[0], h, n))
			}
			w.Heads = w.Heads[:0]
			f.Merge(head(w, it, nil, &it.Out[0], h, r, r+1), w.Lists)
		}
	}
}

func (a Attend) Backward(t *graph.Tape, s *graph.Step) error {
	if a.Keep != 0 {
		return &graph.NoBackwardError{Step: s.Name, Kind: "attend", Why: "weights that are left out"}
	}
	var out []graph.ValueID
	for _, v := range s.In {
		out = append(out, t.Value("d."+t.G.Values[v].Name, t.G.Width(v), t.G.Values[v].Space))
	}
	in := append(append([]graph.ValueID{}, s.In...), s.Out[0], must(t, s))
	if len(s.W) > 0 {
		out = append(out, t.Value("d."+s.Name+".sinks", a.Heads, t.G.Values[s.In[0]].Space))
	}
	t.G.Add(AttendGrad{a}, s.Name, in, out, s.W...)
	for i, v := range s.In {
		t.Give(v, out[i])
	}
	if len(s.W) > 0 && t.Trains(s.W[0]) {
		w := s.W[0]
		t.GiveWeight(w, t.Do(SumRows{t.Leaf}, "d."+t.G.Weights[w].Name, a.Heads, t.OfWeight(w), out[3:])[0])
	}
	return nil
}
