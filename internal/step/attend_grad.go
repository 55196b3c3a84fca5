package step

import (
	"fmt"
	"math"
	"unsafe"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// AttendGrad is the gradient of Attend. Inputs: q, k, v, the result o, and the gradient of that; outputs: those of q, k, v. With the weights p of a row and
// head, D = do·o and dp = do·v: ds = p * (dp - D), dq = Scale * sum of ds * k, dk = Scale * sum of ds * q, dv = sum of p * do. A capped score
// multiplies ds by its slope. (Dao 2023, arXiv:2307.08691) With sinks, the weight, there is a fourth output [Heads]: what a row gives to the gradient of each,
// -D times the weight of the sink, which has no value.
type AttendGrad struct{ Of Attend }

func (AttendGrad) Kind() string         { return "attend-grad" }
func (AttendGrad) Needs(int) graph.Need { return graph.AllRows }
func (AttendGrad) Role(int) graph.Role  { return graph.Vector }

func (op AttendGrad) Check(g *graph.Graph, s *graph.Step) error {
	a := op.Of
	if err := s.Arity(5, 3+len(s.W), 0, 1); err != nil {
		return err
	}
	for i, v := range s.Out[:3] {
		if err := g.SameWidth(s.In[i], v); err != nil {
			return err
		}
	}
	c := g.Caches[a.Cache]
	if len(s.W) > 0 && (g.Weights[s.W[0]].Cols != a.Heads || g.Width(s.Out[3]) != a.Heads) {
		return fmt.Errorf("%d sinks for %d heads", g.Weights[s.W[0]].Cols, a.Heads)
	}
	if a.Keep != 0 || g.Width(s.In[0]) != a.Heads*c.D || g.Width(s.In[3]) != a.Heads*c.Dv || g.Width(s.In[4]) != a.Heads*c.Dv {
		return fmt.Errorf("%d heads of %d and %d elements", a.Heads, c.D, c.Dv)
	}
	return nil
}

func (op AttendGrad) Ref(r *graph.Ref, s *graph.Step) {
	a := op.Of
	c := r.G.Caches[a.Cache]
	group := a.Heads / c.KVHeads
	q, keys, vals, out, dOut := r.Vals[s.In[0]], r.Vals[s.In[1]], r.Vals[s.In[2]], r.Vals[s.In[3]], r.Vals[s.In[4]]
	add := func(o, row, at int, by float64, x []float64) {
		if dst := r.Vals[s.Out[o]][row]; dst != nil {
			for i := range x {
				dst[at+i] += by * x[i]
			}
		}
	}
	var sinks []float64
	if len(s.W) > 0 {
		sinks = r.Vector(s.W[0])
	}
	for row := range q {
		for h := range a.Heads {
			kv := h / group
			score, slope := make([]float64, len(keys)), make([]float64, len(keys))
			top, sum := math.Inf(-1), 0.0
			for j := range keys {
				if score[j] = math.Inf(-1); r.Sees(row, j, c) {
					score[j], slope[j] = a.Scale*dot64(q[row][h*c.D:(h+1)*c.D], keys[j][kv*c.D:(kv+1)*c.D]), 1
					if a.Cap != 0 {
						score[j] = softcap(score[j], a.Cap)
						slope[j] = 1 - score[j]*score[j]/(a.Cap*a.Cap)
					}
					top = max(top, score[j])
				}
			}
			if sinks != nil {
				top = max(top, sinks[h])
				sum = math.Exp(sinks[h] - top)
			}
			for j := range keys {
				sum += math.Exp(score[j] - top)
			}
			do := dOut[row][h*c.Dv : (h+1)*c.Dv]
			d := dot64(do, out[row][h*c.Dv:(h+1)*c.Dv])
			if sinks != nil && r.Vals[s.Out[3]][row] != nil {
				r.Vals[s.Out[3]][row][h] = -math.Exp(sinks[h]-top) / sum * d
			}
			for j := range keys {
				p := math.Exp(score[j]-top) / sum
				if p == 0 {
					continue
				}
				ds := a.Scale * slope[j] * p * (dot64(do, vals[j][kv*c.Dv:(kv+1)*c.Dv]) - d)
				add(0, row, h*c.D, ds, keys[j][kv*c.D:(kv+1)*c.D])
				add(1, j, kv*c.D, ds, q[row][h*c.D:(h+1)*c.D])
				add(2, j, kv*c.Dv, p, do)
			}
		}
	}
}

// Realise cuts by KV heads: a worker has all sequences of its heads, so no sum crosses workers.
func (op AttendGrad) Realise(b *plan.Builder, i int) (int, error) {
	a := op.Of
	s, c := b.Step(i), b.Plan.G.Caches[a.Cache]
	group := a.Heads / c.KVHeads
	it := b.Item(i, attendGrad)
	it.Cut = plan.Cut{By: plan.Cols, N: c.KVHeads}
	units := []int{group * c.D, c.D, c.Dv, group * c.Dv, group * c.Dv}
	for n, v := range s.In {
		it.In = append(it.In, b.At(v).Cols(units[n]))
	}
	units = units[:3]
	if len(s.W) > 0 {
		it.Do, units = attendSinksGrad, append(units, group)
	}
	b.FinishUnits(it, s.Out, units)
	return 0, nil
}

var (
	attendGrad      = &plan.Kind{Name: "attend-grad", In: 5, Out: 3, Group: plan.Attention, Work: attendGradWork}
	attendSinksGrad = &plan.Kind{Name: "attend-sinks-grad", In: 5, Out: 4, Weights: [2]int{1, 1}, Group: plan.Attention, Work: attendGradWork}
)

func attendGradWork(p *plan.Plan, it *plan.Item, l plan.Load) plan.Work {
	op := it.Op.(AttendGrad).Of
	c := p.G.Caches[op.Cache]
	return plan.Work{Kind: kernel.F32, Ops: 5 * float64(op.Heads) * float64(c.D+c.Dv) * l.Keys * float64(l.Rows)}
}

// gradTile is how many rows and keys are taken together: what a panel of float32 has.
const gradTile = 64

// attendTiles is a worker's memory for the gradient of attention: products of tiles of rows with tiles of keys.
type attendTiles struct {
	w      *walk.Worker
	f      *kernel.Format
	cache  graph.Cache
	op     Attend
	sink   float32   // of the present head; without one -Inf
	s, d   []float32 // [gradTile][gradTile]: scores, then weights; their gradients
	turned []float32 // one of them with rows and columns changed
	stats  []float32 // ln of the sum of e^score, and D, of each row of the sequence
	panel  []byte
	panels [4][]byte // of the keys of a tile, its values, its keys turned
}

func runAttendGrad(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op := it.Op.(AttendGrad).Of
	c := w.Graph().Caches[op.Cache]
	g := op.Heads / c.KVHeads
	var in [5][]float32
	var widths [5]int
	for i := range in {
		in[i], widths[i] = w.Floats(it.In[i])
	}
	var out [3][]float32
	for i := range out {
		out[i], _ = w.Floats(it.Out[i])
	}
	var sinks, ofSinks []float32
	if len(it.W) > 0 {
		sinks = w.Vector(it.W[0])
		ofSinks, _ = w.Floats(it.Out[3])
	}
	x := newAttendTiles(w, op, c)
	seq := w.Batch().Seq
	for h := p.C0 / it.Out[0].Unit; h < p.C1/it.Out[0].Unit && !w.Stopped(); h++ {
		for r0, r1 := 0, 0; r0 < len(seq) && !w.Stopped(); r0 = r1 {
			for r1 = r0 + 1; r1 < len(seq) && seq[r1] == seq[r0]; r1++ {
			}
			for r := r0; r < r1; r++ {
				clear(out[0][r*widths[0]+h*g*c.D:][:g*c.D])
				clear(out[1][r*widths[1]+h*c.D:][:c.D])
				clear(out[2][r*widths[2]+h*c.Dv:][:c.Dv])
			}
			k, v := view{in[1], widths[1], h * c.D, c.D}, view{in[2], widths[2], h * c.Dv, c.Dv}
			dk, dv := view{out[1], widths[1], h * c.D, c.D}, view{out[2], widths[2], h * c.Dv, c.Dv}
			for i := h * g; i < (h+1)*g; i++ {
				q, dq := view{in[0], widths[0], i * c.D, c.D}, view{out[0], widths[0], i * c.D, c.D}
				o, do := view{in[3], widths[3], i * c.Dv, c.Dv}, view{in[4], widths[4], i * c.Dv, c.Dv}
				if x.sink = float32(math.Inf(-1)); sinks != nil {
					x.sink = sinks[i]
				}
				x.head(r0, r1, q, k, v, o, do, dq, dk, dv)
				if sinks != nil {
					x.sinkGrads(r1-r0, ofSinks[r0*op.Heads+i:])
				}
			}
		}
	}
}

// view is n columns from column at on of rows of a value.
type view struct {
	v            []float32
	width, at, n int
}

func (v view) row(r int) []float32 { return v.v[r*v.width+v.at:][:v.n] }

func newAttendTiles(w *walk.Worker, op Attend, c graph.Cache) *attendTiles {
	f := w.Kernels().Plain()
	wide := max(c.D, c.Dv)
	tiles := (wide + gradTile - 1) / gradTile
	x := &attendTiles{w: w, f: f, cache: c, op: op}
	floats := w.Singles(3*gradTile*gradTile + 2*len(w.Batch().IDs))
	cut := func(n int) (part []float32) {
		part, floats = floats[:n], floats[n:]
		return part
	}
	x.s, x.d, x.turned = cut(gradTile*gradTile), cut(gradTile*gradTile), cut(gradTile*gradTile)
	x.stats = cut(2 * len(w.Batch().IDs))
	big := max(f.PanelBytes(wide), tiles*f.PanelBytes(gradTile))
	mem := w.Bytes(5 * big)
	for i := range x.panels {
		x.panels[i] = mem[i*big : (i+1)*big]
	}
	x.panel = mem[4*big:]
	return x
}

// head adds the gradients of a query head over the rows [r0, r1) of a sequence.
func (x *attendTiles) head(r0, r1 int, q, k, v, o, do, dq, dk, dv view) {
	lse, d := x.stats[:r1-r0], x.stats[len(x.stats)/2:][:r1-r0]
	for i := range lse {
		lse[i] = x.sink
		sum := 0.0
		for j, y := range do.row(r0 + i) {
			sum += float64(y) * float64(o.row(r0 + i)[j])
		}
		d[i] = float32(sum)
	}
	for pass := range 2 {
		for j0 := r0; j0 < r1; j0 += gradTile {
			keys := min(gradTile, r1-j0)
			x.pack(x.panels[0], keys, k.n, func(j int) []float32 { return k.row(j0 + j) })
			if pass == 1 {
				x.pack(x.panels[1], keys, v.n, func(j int) []float32 { return v.row(j0 + j) })
				x.packTurned(x.panels[2], k, j0, keys)
			}
			for i0 := r0 + (j0-r0)/gradTile*gradTile; i0 < r1; i0 += gradTile {
				rows := min(gradTile, r1-i0)
				if !x.any(i0, rows, j0, keys) {
					continue
				}
				x.scores(i0, rows, j0, keys, q)
				if pass == 0 {
					x.sums(lse[i0-r0:], rows, keys)
					continue
				}
				x.weights(lse[i0-r0:], rows, keys)
				x.accumulate(x.s, i0, rows, j0, keys, do, dv)
				x.product(x.d, do, i0, rows, v.n, x.panels[1], keys)
				x.slopes(lse[i0-r0:], d[i0-r0:], rows, keys)
				x.rowGrads(i0, rows, keys, dq)
				x.accumulate(x.d, i0, rows, j0, keys, q, dk)
			}
		}
	}
}

// sinkGrads writes what the rows of a head's last sequence give to the gradient of its sink, each Heads from the one before.
func (x *attendTiles) sinkGrads(rows int, dst []float32) {
	lse, d := x.stats[:rows], x.stats[len(x.stats)/2:][:rows]
	for i := range lse {
		dst[i*x.op.Heads] = -float32(math.Exp(float64(x.sink)-float64(lse[i]))) * d[i]
	}
}

// any reports whether a row of the tile sees a key of the other.
func (x *attendTiles) any(i0, rows, j0, keys int) bool {
	pos := x.w.Batch().Pos
	return int(pos[j0+keys-1]) >= x.cache.First(int(pos[i0])) && pos[j0] <= pos[i0+rows-1]
}

// pack makes a panel of rows of n elements.
func (x *attendTiles) pack(panel []byte, rows, n int, row func(r int) []float32) {
	x.f.Pack(panel[:x.f.PanelBytes(n)], n, rows, func(r int) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&row(r)[0])), 4*n) })
}

// packTurned makes panels of the columns of rows [r0, r0+n) of a view, n elements each.
func (x *attendTiles) packTurned(panels []byte, v view, r0, n int) {
	size := x.f.PanelBytes(n)
	for c := 0; c < v.n; c += gradTile {
		x.w.Kernels().PackTurned(x.f, panels[c/gradTile*size:][:size], n, min(gradTile, v.n-c), func(k int) []float32 { return v.row(r0 + k)[c:] })
	}
}

// product is dst[row][j] = a row of v, n elements, times row j of a panel.
func (x *attendTiles) product(dst []float32, v view, r0, rows, n int, panel []byte, keys int) {
	act := kernel.Act{Kind: kernel.ActF32, M: rows, K: n, Kp: n, F: v.v[r0*v.width+v.at:], FS: v.width}
	x.w.Matmul = kernel.Matmul{W: panel[:x.f.PanelBytes(n)], N: keys, K: n, Slices: 1, X: &act, M1: rows, Y: dst, YStride: gradTile}
	x.f.Matmul(x.w.Scratch, &x.w.Matmul)
}

// scores makes x.s, what a row does not see being -Inf.
func (x *attendTiles) scores(i0, rows, j0, keys int, q view) {
	x.product(x.s, q, i0, rows, q.n, x.panels[0], keys)
	pos := x.w.Batch().Pos
	whole := pos[j0+keys-1] <= pos[i0] && int(pos[j0]) >= x.cache.First(int(pos[i0+rows-1])) // all see all
	for i := range rows {
		s, last := x.s[i*gradTile:][:keys], int(pos[i0+i])
		x.w.Kernels().Scale(s, s, float32(x.op.Scale))
		if x.op.Cap != 0 {
			x.w.Kernels().Softcap(x.w.Attn, s, float32(x.op.Cap))
		}
		if whole {
			continue
		}
		first := x.cache.First(last)
		for j := range s {
			if at := int(pos[j0+j]); at > last || at < first {
				s[j] = float32(math.Inf(-1))
			}
		}
	}
}

// sums adds a tile of scores to ln of the sum of e^score of each row. x.d is scratch.
func (x *attendTiles) sums(lse []float32, rows, keys int) {
	t := x.w.Kernels()
	for i := range rows {
		s, e := x.s[i*gradTile:][:keys], x.d[:keys]
		top := max(lse[i], t.Max(s))
		if math.IsInf(float64(top), -1) {
			continue
		}
		t.Exp(e, s, top)
		sum := math.Exp(float64(lse[i]-top)) + t.Sum64(e)
		lse[i] = float32(float64(top) + math.Log(sum))
	}
}

// weights makes weights of the scores in x.s.
func (x *attendTiles) weights(lse []float32, rows, keys int) {
	for i := range rows {
		s := x.s[i*gradTile:][:keys]
		x.w.Kernels().Exp(s, s, lse[i])
	}
}

// slopes makes the gradients of scores, times Scale, of those of weights in x.d. A capped score, which its slope follows from, is found by its weight.
func (x *attendTiles) slopes(lse, d []float32, rows, keys int) {
	scale := float32(x.op.Scale)
	for i := range rows {
		p, g := x.s[i*gradTile:][:keys], x.d[i*gradTile:][:keys]
		for j := range g {
			g[j] = p[j] * (g[j] - d[i]) * scale
			if x.op.Cap != 0 && p[j] > 0 {
				s := (float64(lse[i]) + math.Log(float64(p[j]))) / x.op.Cap
				g[j] *= float32(1 - s*s)
			}
		}
	}
}

// rowGrads adds x.d times the keys to the gradients of queries.
func (x *attendTiles) rowGrads(i0, rows, keys int, dq view) {
	act := kernel.Act{Kind: kernel.ActF32, M: rows, K: keys, Kp: keys, F: x.d, FS: gradTile}
	x.apply(&act, x.panels[2], dq, i0)
}

// apply adds act times panels of columns to rows of a view.
func (x *attendTiles) apply(act *kernel.Act, panels []byte, dst view, r0 int) {
	size := x.f.PanelBytes(act.K)
	for c := 0; c < dst.n; c += gradTile {
		x.w.Matmul = kernel.Matmul{W: panels[c/gradTile*size:][:size], N: min(gradTile, dst.n-c), K: act.K, Slices: 1, X: act, M1: act.M,
			Y: dst.v[r0*dst.width+dst.at+c:], YStride: dst.width, Add: true}
		x.f.Matmul(x.w.Scratch, &x.w.Matmul)
	}
}

// accumulate adds to the keys' rows of dst the rows of src, each by its column of the tile.
func (x *attendTiles) accumulate(tile []float32, i0, rows, j0, keys int, src, dst view) {
	// A panel of the tile's rows is its transpose.
	x.pack(unsafe.Slice((*byte)(unsafe.Pointer(&x.turned[0])), 4*len(x.turned)), rows, keys, func(i int) []float32 { return tile[i*gradTile:] })
	x.packTurned(x.panels[3], src, i0, rows)
	act := kernel.Act{Kind: kernel.ActF32, M: keys, K: rows, Kp: rows, F: x.turned, FS: gradTile}
	x.apply(&act, x.panels[3], dst, j0)
}
