package step

import (
	"fmt"
	"unsafe"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// ExpertOuter is the gradient of the matrices of experts: out[e*each+n][k] = sum over the rows that were sent to expert e of dy[row][n] * x[row][k]. The inputs
// are dy with rows and columns changed (Turn) and x, both of routed rows (Of), and the ids of Route. The sum over the rows of a leaf is one chain, in their order; those
// of leaves are added by a tree. The weight is the matrices themselves, whose form says the arithmetic.
type ExpertOuter struct {
	Leaf int // rows of the walk, before they are sent
	Of   graph.Space
}

func (ExpertOuter) Kind() string         { return "expert-outer" }
func (ExpertOuter) Needs(int) graph.Need { return graph.AllRows }
func (ExpertOuter) Role(int) graph.Role  { return graph.Matrix }

func (o ExpertOuter) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(3, 1, 1, 1); err != nil {
		return err
	}
	w, rows := g.Weights[s.W[0]], g.Width(s.In[0])
	if g.Values[s.Out[0]].Space.Fixed != w.Rows || g.Width(s.Out[0]) != w.Cols || g.Values[s.In[0]].Space.Fixed != w.Each() || g.Width(s.In[1]) != w.Cols {
		return fmt.Errorf("%s is %d of [%d, %d]", w.Name, w.Experts, w.Each(), w.Cols)
	}
	if o.Leaf < 1 || o.Of.Route == 0 || rows%(o.Leaf*o.Of.Used) != 0 || g.Values[s.In[1]].Space != o.Of || g.Width(s.In[2]) != o.Of.Used {
		return fmt.Errorf("%d rows in leaves of %d, each sent to %d", rows, o.Leaf, o.Of.Used)
	}
	return nil
}

func (o ExpertOuter) Ref(r *graph.Ref, s *graph.Step) {
	each := r.G.Weights[s.W[0]].Each()
	by := map[int][]int{} // routed rows
	for row, ids := range r.Vals[s.In[2]] {
		for j, id := range ids {
			by[int(id)] = append(by[int(id)], row*len(ids)+j)
		}
	}
	r.Each(s, 0, func(n int, out []float64) {
		dy := r.Row(s, 0, n%each)
		for _, row := range by[n/each] {
			for k, x := range r.Row(s, 1, row) {
				out[k] += dy[row] * x
			}
		}
	})
}

// Realise cuts columns as Outer does.
func (o ExpertOuter) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	f, err := b.Format(s.W[0])
	if err != nil {
		return 0, err
	}
	if f.Direct || f.Act != kernel.ActF32 && f.Act != kernel.ActBF16 {
		return 0, fmt.Errorf("products of %v are for weights of F32 or BF16", f.Type)
	}
	it := b.Item(i, expertOuter)
	it.In = []plan.Operand{activations(b, s.In[0], f).Whole(), b.At(s.In[1]).Whole(), b.At(s.In[2]).Whole()}
	it.Cut = plan.ColCut(b.Plan.G.Width(s.Out[0]), f.PanelRows)
	b.Finish(it, s.Out[0], f.PanelRows)
	return 0, nil
}

var expertOuter = &plan.Kind{Name: "expert-outer", In: 3, Out: 1, Weights: [2]int{1, 1}, Group: plan.Products, Work: func(p *plan.Plan, it *plan.Item, l plan.Load) plan.Work {
	m, f := p.G.Weights[it.W[0]], p.Formats[it.W[0]]
	return plan.Work{Ops: 2 * float64(m.Each()) * float64(m.Cols) * float64(l.Rows*it.Op.(ExpertOuter).Of.Used), Kind: f.Act.Arithmetic()}
}}

// sentLeaves writes where the routed rows of expert e lie leaf by leaf: those of leaf l are [at[l], at[l+1]).
func sentLeaves(at []int32, from *walk.Routing, e, leaf, used int) {
	r, end := int32(0), int32(0)
	if e+1 < len(from.Start) {
		r, end = from.Start[e], from.Start[e+1]
	}
	for l := range at {
		for l > 0 && r < end && int(from.From[r])/used < l*leaf {
			r++
		}
		at[l] = r
	}
}

// runExpertOuter computes columns [p.C0, p.C1), C0 at a panel's edge, expert by expert.
func runExpertOuter(w *walk.Worker, it *plan.Item, p plan.Rect) {
	op, m := it.Op.(ExpertOuter), w.Graph().Weights[it.W[0]]
	f, each := w.Slot(it.W[0]).Format, m.Each()
	dy := *w.Act(it.In[0])
	x, wide := w.Floats(it.In[1])
	out, width := w.Floats(it.Out[0])
	leaves := dy.K / (op.Leaf * op.Of.Used)
	from := w.Routing(op.Of, it.In[2])
	at := w.Ints(leaves + 1)
	sums := w.Singles(levels(leaves) * outerRows * f.PanelRows)
	for e := range m.Experts {
		sentLeaves(at, from, e, op.Leaf, op.Of.Used)
		size := 0
		for l := range leaves {
			if n := int(at[l+1] - at[l]); n > 0 {
				size += f.PanelBytes(n) + segmentBytes(&dy, n)
			}
		}
		room := w.Bytes(size)
		parts, panels := room, room
		if dy.Kind == kernel.ActBF16 {
			for l := range leaves {
				if n := int(at[l+1] - at[l]); n > 0 {
					segment(&dy, room, int(at[l]), n)
					room = room[segmentBytes(&dy, n):]
				}
			}
			panels = room
		}
		for c := p.C0; c < p.C1 && !w.Stopped(); c += f.PanelRows {
			n := min(f.PanelRows, p.C1-c)
			to := panels
			for l := range leaves {
				if k := int(at[l+1] - at[l]); k > 0 {
					w.Kernels().PackTurned(f, to[:f.PanelBytes(k)], k, n, func(i int) []float32 { return x[(int(at[l])+i)*wide+c:] })
					to = to[f.PanelBytes(k):]
				}
			}
			for m0 := 0; m0 < each; m0 += outerRows {
				m1 := min(m0+outerRows, each)
				parts, panels := parts, panels // of the leaves that are left: addLeaves takes them in their order
				addLeaves(w.Kernels().Add, 0, leaves, sums, outerRows*f.PanelRows, out[(e*each+m0)*width+c:], width, m1-m0, n, func(l int, y []float32, stride int) {
					k := int(at[l+1] - at[l])
					if k == 0 {
						for r := range m1 - m0 {
							clear(y[r*stride:][:n])
						}
						return
					}
					part := segmentOf(&dy, parts, int(at[l]), k)
					w.Matmul = kernel.Matmul{W: panels[:f.PanelBytes(k)], N: n, K: k, Slices: 1, X: rowsOf(&part, m0, m1), M1: m1 - m0, Y: y, YStride: stride}
					f.Matmul(w.Scratch, &w.Matmul)
					parts, panels = parts[segmentBytes(&dy, k):], panels[f.PanelBytes(k):]
				})
			}
		}
	}
}

// segmentBytes is what a copy of n columns of a float act takes. Those of float32 are read where they are.
func segmentBytes(a *kernel.Act, n int) int {
	if a.Kind == kernel.ActF32 {
		return 0
	}
	return 2 * a.M * segmentStride(n)
}

// segmentStride is the length of a row of a copy: whole groups of BF16.
func segmentStride(n int) int { return (n + 31) &^ 31 }

// segment copies columns [c, c+n) of an act of BF16, with zeros behind.
func segment(a *kernel.Act, room []byte, c, n int) {
	kp := segmentStride(n)
	to := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(room))), a.M*kp)
	for r := range a.M {
		row := to[r*kp : (r+1)*kp]
		clear(row[copy(row, a.H[r*a.Kp+c:][:n]):])
	}
}

// segmentOf is columns [c, c+n) of a float act, which segment has copied where they are of BF16.
func segmentOf(a *kernel.Act, room []byte, c, n int) kernel.Act {
	s := *a
	if s.K = n; s.Kind == kernel.ActF32 {
		s.Kp, s.F = n, a.F[c:]
		return s
	}
	s.Kp = segmentStride(n)
	s.H = unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(room))), a.M*s.Kp)
	return s
}

// ExpertSum is the gradient of the biases of experts: out[e][k] = sum over the rows that were sent to expert e of in[row][k]. The second input is the ids of
// Route. Rows of a leaf are summed in a chain, leaves by a tree.
type ExpertSum struct{ Leaf int }

func (ExpertSum) Kind() string         { return "expert-sum" }
func (ExpertSum) Needs(int) graph.Need { return graph.AllRows }
func (ExpertSum) Role(int) graph.Role  { return graph.Vector }

func (c ExpertSum) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(2, 1, 0, 0); err != nil {
		return err
	}
	if from := g.Values[s.In[0]].Space; from.Route == 0 || from.Used != g.Width(s.In[1]) || g.Values[s.Out[0]].Space.Fixed < 1 || c.Leaf < 1 {
		return fmt.Errorf("%s is no routed value, or leaves have %d rows", g.Values[s.In[0]].Name, c.Leaf)
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (ExpertSum) Ref(r *graph.Ref, s *graph.Step) {
	for row, ids := range r.Vals[s.In[1]] {
		for j, id := range ids {
			for k, x := range r.Row(s, 0, row*len(ids)+j) {
				r.Vals[s.Out[0]][int(id)][k] += x
			}
		}
	}
}

func (ExpertSum) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, expertSum)
	it.Cut = plan.ColCut(b.Plan.G.Width(s.Out[0]), sumGrain)
	it.In = []plan.Operand{b.At(s.In[0]).Cols(sumGrain), b.At(s.In[1]).Whole()}
	b.Finish(it, s.Out[0], sumGrain)
	return 0, nil
}

var expertSum = &plan.Kind{Name: "expert-sum", In: 2, Out: 1, Ops: 40}

func runExpertSum(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	op, space := it.Op.(ExpertSum), w.Space(it.In[0])
	from := w.Routing(space, it.In[1])
	n, leaves := p.C1-p.C0, w.Rows(space)/(op.Leaf*space.Used)
	at, room := w.Ints(leaves+1), w.Singles(levels(leaves)*n)
	for e := range w.Rows(it.Space) {
		sentLeaves(at, from, e, op.Leaf, space.Used)
		addLeaves(w.Kernels().Add, 0, leaves, room, n, out[e*width+p.C0:][:n], n, 1, n, func(l int, y []float32, _ int) {
			clear(y)
			for r := int(at[l]); r < int(at[l+1]); r++ {
				w.Kernels().Add(y, y, in[r*width+p.C0:][:n])
			}
		})
	}
}

// Backward is that of Matmul, of each row with the matrix of its expert.
func (x Experts) Backward(t *graph.Tape, s *graph.Step) error {
	in, ids, d, w := s.In[0], s.In[1], must(t, s), s.W[0]
	bias, factors := x.weights(s.W)
	if factors >= 0 && (t.Trains(factors) || t.Trains(w)) {
		return &graph.NoBackwardError{Step: s.Name, Kind: "experts", Why: "a factor of each expert, which is not trained yet"}
	}
	if bias >= 0 && t.Trains(bias) {
		t.GiveWeight(bias, t.Do(ExpertSum{t.Leaf}, "d."+t.G.Weights[bias].Name, t.G.Width(d), t.OfWeight(bias), []graph.ValueID{d, ids})[0])
	}
	if t.Trains(w) {
		op := ExpertOuter{t.Leaf, t.G.Values[d].Space}
		dy := t.Turned(d, Turn{})
		t.GiveWeight(w, t.Do(op, "d."+t.G.Weights[w].Name, t.G.Weights[w].Cols, t.OfWeight(w), []graph.ValueID{dy, in, ids}, w)[0])
	}
	if t.Needs(in) {
		by := []graph.WeightID{t.Transpose(w)}
		if factors >= 0 {
			by = append(by, factors)
		}
		op := Experts{Slices: 1, Factors: x.Factors}
		t.Give(in, t.Do(op, "d."+s.Name, t.G.Width(in), t.G.Values[in].Space, []graph.ValueID{d, ids}, by...)[0])
	}
	return nil
}
