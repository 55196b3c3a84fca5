package step

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Matmul is out[row][n] = sum over k of W[n][k] * x[row][k] (+ bias[n], the second weight).
//
// Slices is a property of the model's shape, not of a machine: the sum over K is taken as Slices equal parts, each one chain in
// ascending K, added as a fixed tree ((s0+s1)+(s2+s3))+…; so the K of attention output and FFN down can belong to nodes without
// changing a bit (Slices rule: SlicesFor).
type Matmul struct{ Slices int }

func (Matmul) Kind() string         { return "matmul" }
func (Matmul) Needs(int) graph.Need { return graph.SameRow }

func (m Matmul) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 1, 2); err != nil {
		return err
	}
	w := g.Weights[s.W[0]]
	if w.Cols != g.Width(s.In[0]) || w.Rows != g.Width(s.Out[0]) {
		return fmt.Errorf("%s is [%d, %d], input %d wide, output %d", w.Name, w.Rows, w.Cols, g.Width(s.In[0]), g.Width(s.Out[0]))
	}
	if len(s.W) == 2 {
		if b := g.Weights[s.W[1]]; b.Rows != 1 || b.Cols != w.Rows {
			return fmt.Errorf("bias %s is [%d, %d], %d outputs", b.Name, b.Rows, b.Cols, w.Rows)
		}
	}
	if m.Slices < 1 || w.Cols%m.Slices != 0 {
		return fmt.Errorf("%d slices of %d elements", m.Slices, w.Cols)
	}
	return nil
}

func (Matmul) Ref(r *graph.Ref, s *graph.Step) {
	w := r.G.Weights[s.W[0]]
	var bias []float64
	if len(s.W) == 2 {
		bias = r.Vector(s.W[1])
	}
	// Weight rows are dealt to the CPUs, for the sake of tests with large shapes; every output is computed by one of them.
	var wg sync.WaitGroup
	workers := min(runtime.NumCPU(), max(1, w.Rows*w.Cols>>16))
	for i := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			wr := make([]float64, w.Cols)
			for n := w.Rows * i / workers; n < w.Rows*(i+1)/workers; n++ {
				r.Weight(s.W[0], n, wr)
				r.Each(s, 0, func(row int, out []float64) {
					out[n] = dot64(wr, r.Row(s, 0, row))
					if bias != nil {
						out[n] += bias[n]
					}
				})
			}
		}()
	}
	wg.Wait()
}

// dot64 is the sum of a[i]*b[i], in four chains for the sake of test time.
func dot64(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + s2 + s3
}

// SlicesFor is the number of K slices of a projection whose K belongs to nodes: the largest power of two ≤ 8 for which slices
// are equal, whole blocks of 256, and, where groups > 0, whole groups (heads that share a KV head); else 1.
func SlicesFor(k, groups int) int {
	for s := 8; s > 1; s /= 2 {
		if k%(256*s) == 0 && groups%s == 0 {
			return s
		}
	}
	return 1
}

// SliceCount is the number of slices of K, for Explain.
func (m Matmul) SliceCount() int { return m.Slices }

// Role of the second weight, the bias, is a vector.
func (Matmul) Role(i int) graph.Role {
	if i == 0 {
		return graph.Matrix
	}
	return graph.Vector
}

// Realise cuts output columns at panel edges. Where the next step adds a residual and nobody else reads the product, the sum is
// made in the epilogue: the same operation on the same numbers. Members that have parts of K make partial sums, and each adds them all up.
func (m Matmul) Realise(b *plan.Builder, i int) (int, error) {
	g, s := b.Plan.G, b.Step(i)
	f, err := m.format(b, i)
	if err != nil {
		return 0, err
	}
	it := b.Item(i, matmul)
	it.In = []plan.Operand{activations(b, s.In[0], f)}
	out, more, byK := s.Out[0], 0, b.ByK(i)
	dealt := b.Dealt(out)
	if i+1 < len(g.Steps) && b.Uses(out) == 1 && !b.Machine.Separate && dealt == plan.Alike {
		next := &g.Steps[i+1]
		if _, ok := next.Op.(Add); ok && next.In[1] == out && next.In[0] != out {
			it.Add, it.Steps, more = true, []int{i, i + 1}, 1
			out = next.Out[0]
			it.Name += "+residual"
		}
	}
	if byK {
		m.sum(b, it, out)
		return more, nil
	}
	unit := m.unit(b, i, f)
	it.Cut = plan.ColCut(g.Width(out), unit)
	it.Cut.Over = dealt
	if it.Add {
		it.In = append(it.In, b.At(g.Steps[i+1].In[0]).Cols(unit))
	}
	b.Finish(it, out, unit)
	return more, nil
}

// format is the form of a step's matrix.
func (m Matmul) format(b *plan.Builder, i int) (*kernel.Format, error) {
	w := b.Step(i).W[0]
	f, err := b.Format(w)
	if err != nil {
		return nil, err
	}
	if cols := b.Plan.G.Weights[w].Cols; m.Slices > 1 && cols/m.Slices%f.GroupK != 0 {
		return nil, fmt.Errorf("slices of %d elements cut groups of %d", cols/m.Slices, f.GroupK)
	}
	return f, nil
}

// sum lays out a product of which each member has a part of K: each writes its part of every output, and then reads those of all, so that
// each has all outputs. it is the product as one member would make it.
func (m Matmul) sum(b *plan.Builder, it plan.Item, out graph.ValueID) {
	i, g := it.Steps[0], b.Plan.G
	v := b.Step(i).Out[0]
	part, unit := it, m.unit(b, i, b.Plan.Formats[it.W[0]])
	if part.Do = partial; it.Do == experts {
		part.Do = partialExperts
	}
	part.Name, part.Steps, part.Add, part.Cut = g.Steps[i].Name, nil, false, plan.ColCut(g.Width(v), unit)
	o := b.Buffer(plan.Buffer{Name: g.Values[v].Name + ".part", Width: g.Width(v), Space: g.Values[v].Space})
	part.Out = []plan.Operand{o.Cols(unit)}
	b.Emit(part)

	if it.Do = sum; part.Do == partialExperts {
		it.Do = sumExperts
	}
	if it.Cut, unit = plan.ColCut(g.Width(v), plan.QuantGrain), plan.QuantGrain; b.Plan.Class == plan.Many {
		it.Cut, unit = plan.Cut{By: plan.Rows}, 0
	}
	more := it.In[1:]
	it.In = append([]plan.Operand{o.Copies(unit)}, more...)
	if it.Add {
		it.In = append(it.In, b.At(g.Steps[i+1].In[0]).Cols(unit))
	}
	b.Finish(it, out, unit)
}

// unit chooses the columns per unit: whole KV heads for q, k, v where panels allow it and heads divide over the workers, so
// that for few rows everything up to attention stays with one worker; blocks of QuantGrain where there are enough of them, so that
// activation and quantization need no barrier; else single panels. Places of a member have single panels too: their weights begin there.
func (Matmul) unit(b *plan.Builder, i int, f *kernel.Format) int {
	s, homes := b.Step(i), b.Plan.Homes
	out := s.Out[0]
	width, over, panel := b.Plan.G.Width(out), b.Dealt(out), b.Grain(out, f.PanelRows)
	if b.Machine.Separate || homes.Places > 1 || over == plan.Dealt && b.Split(out) != plan.Dealt {
		return panel
	}
	share, workers := width, b.Machine.Workers/homes.Members
	if over == plan.Dealt {
		share /= homes.Members
	}
	if c, ok := headsOf(b.Plan.G, out, i); ok && width%c == 0 {
		if unit := width / c; unit%panel == 0 && b.Even(c, over) {
			return unit
		}
	}
	const grain = plan.QuantGrain
	if n := share / grain; grain%panel == 0 && (over == plan.Alike || share%grain == 0) &&
		(n >= 16*workers || n > 0 && width%grain == 0 && b.Even(width/grain, over)) {
		return grain
	}
	return panel
}

// over is Dealt if that is so.
func over(dealt bool) plan.Over {
	if dealt {
		return plan.Dealt
	}
	return plan.Alike
}

// headsOf finds the number of KV heads if value v goes, through norms and rotations only, into an attention step.
func headsOf(g *graph.Graph, v graph.ValueID, from int) (int, bool) {
	for i := from + 1; i < len(g.Steps); i++ {
		s := &g.Steps[i]
		if !slices.Contains(s.In, v) {
			continue
		}
		switch op := s.Op.(type) {
		case Norm:
			if op.Group == 0 {
				return 0, false
			}
			v = s.Out[0]
		case Rotate, Scale:
			v = s.Out[0]
		case Attend:
			return g.Caches[op.Cache].KVHeads, true
		default:
			return 0, false
		}
	}
	return 0, false
}

// matmul multiplies panels with activations, with bias and residual where they are fused.
var matmul = &plan.Kind{Name: "matmul", In: 1, Out: 1, Weights: [2]int{1, 2}, Group: plan.Products, Named: true, Adds: true, Shared: true,
	InPlace: func(it *plan.Item, in int) bool { return it.Add && in == 1 },
	Work:    matmulWork,
}

// partial multiplies a member's part of K; sum adds those of all members up, with bias and residual.
var (
	partial = &plan.Kind{Name: "partial", In: 1, Out: 1, Weights: [2]int{1, 2}, Group: plan.Products, Named: true, Shared: true, Work: matmulWork}
	sum     = &plan.Kind{Name: "sum", In: 1, Out: 1, Weights: [2]int{1, 2}, Adds: true, Elements: summed,
		InPlace: func(it *plan.Item, in int) bool { return it.Add && in == 1 }}
)

// summed is what an element of a sum takes: each member adds up all of them.
func summed(p *plan.Plan, it *plan.Item) plan.Elements {
	n := p.Width(it.Out)
	return plan.Elements{N: n, Ops: 20 * float64(p.Homes.Members), Moved: 4 * n * float64(p.Homes.Members+2)}
}

func matmulWork(p *plan.Plan, it *plan.Item, l plan.Load) plan.Work {
	m, f := p.G.Weights[it.W[0]], p.Formats[it.W[0]]
	rows := l.RowsOf(it)
	work := plan.Work{Ops: 2 * float64(m.Rows) * float64(m.Cols) * float64(rows), Kind: f.Act.Arithmetic()}
	if rows > 0 {
		if work.Bytes = float64(walk.PanelsBytes(m, f)); f.Direct || work.Bytes == 0 {
			work.Bytes = float64(m.Rows) * float64(f.Type.RowBytes(m.Cols))
		}
	}
	return work
}

// runMatmul computes output columns [p.C0, p.C1) of all rows, C0 at a panel's edge.
func runMatmul(w *walk.Worker, it *plan.Item, p plan.Rect) {
	rows := w.Rows(it.Space)
	out, width := w.Floats(it.Out[0])
	m := &w.Matmul
	*m = kernel.Matmul{Slices: it.Op.(Matmul).Slices, M1: rows, X: w.Act(it.In[0]), YStride: width, Add: it.Add}
	var bias []float32
	if len(it.W) == 2 {
		bias = w.Vector(it.W[1])
	}
	if it.Add {
		if res, _ := w.Floats(it.In[1]); &res[0] != &out[0] { // others still read the residual: it has a buffer of its own
			for r := range rows {
				copy(out[r*width+p.C0:r*width+p.C1], res[r*width+p.C0:])
			}
		}
	}
	multiply(w, it, 0, p, out, bias)
}

// runPartial computes columns [p.C0, p.C1) of the member's part of the product.
func runPartial(w *walk.Worker, it *plan.Item, p plan.Rect) {
	out, width := w.Floats(it.Out[0])
	members := w.Members()
	w.Matmul = kernel.Matmul{Slices: it.Op.(Matmul).Slices / members, M1: w.Rows(it.Space), X: w.Act(it.In[0]), YStride: width}
	multiply(w, it, 0, p, out, nil)
}

// multiply computes columns [p.C0, p.C1) of w.Matmul, whose rows and activations are there, with matrix e of the item's weight into y. bias may be nil.
func multiply(w *walk.Worker, it *plan.Item, e int, p plan.Rect, y, bias []float32) {
	m := &w.Matmul
	columns := func(f *kernel.Format, c0, c1 int) {
		if m.N, m.Y = c1-c0, y[c0:]; bias != nil {
			m.Bias = bias[c0:c1]
		}
		f.Matmul(w.Scratch, m)
	}
	own := it.Do == partial || it.Do == partialExperts
	if s := w.Slot(it.W[0]); s.Format.Direct {
		if m.K = w.Graph().Weights[it.W[0]].Cols; own {
			m.K, m.K0 = s.Cols, s.K0
		}
		m.Row = w.FileRows(s, e, p.C0, own)
		columns(s.Format, p.C0, p.C1)
		return
	}
	w.Panels(it.W[0], e, p.C0, p.C1, own, func(s *walk.Slot, c0, c1 int, panels []byte) {
		if m.K, m.W = w.Graph().Weights[it.W[0]].Cols, panels; own {
			m.K, m.K0 = s.Cols, s.K0
		}
		m.Next = w.Next()
		columns(s.Format, c0, c1)
	})
}

// runSum adds up what all members have of the outputs of a part, in the order of the slices' tree, then the bias, then the residual: as the epilogue
// of a product does.
func runSum(w *walk.Worker, it *plan.Item, p plan.Rect) {
	out, width := w.Floats(it.Out[0])
	var res, bias []float32
	if it.Add {
		res, _ = w.Floats(it.In[1])
	}
	if len(it.W) == 2 {
		bias = w.Vector(it.W[1])
	}
	parts := w.Copies(it.In[0])
	w.ReadsFar(4 * (len(parts) - 1) * (p.R1 - p.R0) * (p.C1 - p.C0))
	for r := p.R0; r < p.R1; r++ {
		addUp(w, parts, r*width+p.C0, r*width+p.C1, func(at int, sum []float32) {
			if bias != nil {
				w.Kernels().Add(sum, sum, bias[at-r*width:][:len(sum)])
			}
			if dst := out[at : at+len(sum)]; res == nil {
				copy(dst, sum)
			} else {
				w.Kernels().Add(dst, sum, res[at:at+len(sum)])
			}
		})
	}
}

// addUp calls use with the tree sums of elements [lo, hi) of the parts, some at a time, which it may overwrite.
func addUp(w *walk.Worker, parts [][]float32, lo, hi int, use func(at int, sum []float32)) {
	var room [4][256]float32 // 8 members
	for at := lo; at < hi; at += len(room[0]) {
		n := min(len(room[0]), hi-at)
		tree(w, room[0][:n], parts, at, room[1:])
		use(at, room[0][:n])
	}
}

func tree(w *walk.Worker, dst []float32, parts [][]float32, at int, room [][256]float32) {
	n := len(dst)
	switch half := len(parts) / 2; half {
	case 0:
		copy(dst, parts[0][at:])
	case 1:
		w.Kernels().Add(dst, parts[0][at:at+n], parts[1][at:at+n])
	default:
		tree(w, dst, parts[:half], at, room)
		tree(w, room[0][:n], parts[half:], at, room[1:])
		w.Kernels().Add(dst, dst, room[0][:n])
	}
}

// Backward multiplies with the transpose for the input, and takes the outer product for the matrix.
func (Matmul) Backward(t *graph.Tape, s *graph.Step) error {
	x, d, w := s.In[0], must(t, s), s.W[0]
	if len(s.W) > 1 && t.Trains(s.W[1]) {
		b := s.W[1]
		t.GiveWeight(b, t.Do(SumRows{t.Leaf}, "d."+t.G.Weights[b].Name, t.G.Width(d), t.OfWeight(b), []graph.ValueID{d})[0])
	}
	if t.Trains(w) {
		in := []graph.ValueID{t.Turned(d, Turn{}), x}
		if before, ok := t.Onto[w]; ok {
			in = append(in, before)
		}
		t.GiveWeight(w, t.Do(Outer{t.Leaf, t.Part}, "d."+t.G.Weights[w].Name, t.G.Weights[w].Cols, t.OfWeight(w), in, w)[0])
	}
	if t.Needs(x) {
		t.Give(x, t.Do(Matmul{Slices: 1}, "d."+s.Name, t.G.Width(x), t.G.Values[x].Space, []graph.ValueID{d}, t.Transpose(w))[0])
	}
	return nil
}

// must is the gradient of a step's only output, which has one.
func must(t *graph.Tape, s *graph.Step) graph.ValueID {
	d, _ := t.Of(s.Out[0])
	return d
}
