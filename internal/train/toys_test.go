package train

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"ck/internal/graph"
	"ck/internal/quant"
	"ck/internal/step"
)

// toy is a graph in the making.
type toy struct {
	*graph.Graph
	rng *rand.Rand
	n   int

	factors bool // products of experts have factors, which are frozen as their matrices are
	frozen  map[graph.WeightID]bool
}

func newToy(seed uint64) *toy {
	return &toy{&graph.Graph{Vocab: 23, Context: 64}, rand.New(rand.NewPCG(seed, 1)), 0, false, map[graph.WeightID]bool{}}
}

func (g *toy) do(op graph.Op, width int, in []graph.ValueID, w ...graph.WeightID) graph.ValueID {
	v := g.NewValue(fmt.Sprint("v", len(g.Values)), width)
	if len(in) > 0 {
		g.Values[v].Space = g.Values[in[0]].Space
	}
	g.Add(op, g.Values[v].Name, in, []graph.ValueID{v}, w...)
	return v
}

func (g *toy) weight(rows, cols int) graph.WeightID {
	g.n++
	return g.NewWeight(fmt.Sprint("w", g.n), rows, cols)
}

func (g *toy) linear(x graph.ValueID, width int, bias bool) graph.ValueID {
	w := []graph.WeightID{g.weight(width, g.Width(x))}
	if bias {
		w = append(w, g.weight(1, width))
	}
	return g.do(step.Matmul{Slices: 1}, width, []graph.ValueID{x}, w...)
}

// fused is several linear layers whose matrices and biases are one.
func (g *toy) fused(x graph.ValueID, widths ...int) (out []graph.ValueID) {
	of, from := 0, 0
	for _, n := range widths {
		of += n
	}
	g.n += 2
	for _, n := range widths {
		w := g.Use(graph.Weight{Name: fmt.Sprint("w", g.n-1), Rows: n, Cols: g.Width(x), From: from, Of: of})
		b := g.Use(graph.Weight{Name: fmt.Sprint("w", g.n), Rows: 1, Cols: n, From: from, Of: of})
		out = append(out, g.do(step.Matmul{Slices: 1}, n, []graph.ValueID{x}, w, b))
		from += n
	}
	return out
}

func (g *toy) norm(x graph.ValueID, group int) graph.ValueID {
	n := group
	if n == 0 {
		n = g.Width(x)
	}
	return g.do(step.Norm{Eps: 1e-5, Group: group}, g.Width(x), []graph.ValueID{x}, g.weight(1, n))
}

func (g *toy) attend(x graph.ValueID, heads, kv, d, dv int, c graph.Cache, bound float64, neox bool) graph.ValueID {
	q, k, v := g.linear(x, heads*d, true), g.linear(x, kv*d, false), g.linear(x, kv*dv, false)
	q, k = g.norm(q, d), g.norm(k, d)
	r := graph.Rope{Scale: 1.25}
	for i := range d/2 - 1 {
		r.InvFreq = append(r.InvFreq, math.Pow(100, -float64(2*i)/float64(d)))
	}
	g.Ropes = append(g.Ropes, r)
	rope := step.Rotate{Table: len(g.Ropes) - 1, D: d, Neox: neox}
	q, k = g.do(rope, heads*d, []graph.ValueID{q}), g.do(rope, kv*d, []graph.ValueID{k})
	q = g.do(step.Temper{Beta: 0.3, Length: 3}, heads*d, []graph.ValueID{q})
	c.KVHeads, c.D, c.Dv = kv, d, dv
	g.Caches = append(g.Caches, c)
	return g.do(step.Attend{Cache: len(g.Caches) - 1, Heads: heads, Scale: 0.5, Cap: bound}, heads*dv, []graph.ValueID{q, k, v})
}

// mixture is experts of so many outputs between x and what it makes. Gates and ups are halves of one tensor where fused is true; first: weights multiply what
// goes in.
func (g *toy) mixture(x graph.ValueID, op step.Route, experts, inner int, bias, fused, first bool) graph.ValueID {
	width, space := g.Width(x), g.Values[x].Space
	logits := g.linear(x, experts, bias)
	var w []graph.WeightID
	if op.Gate == step.Sigmoid {
		w = append(w, g.weight(1, experts))
	}
	if op.Factors {
		w = append(w, g.weight(1, experts))
	}
	ids, weights := g.NewValue("ids", op.Used), g.NewValue("weights", op.Used)
	g.Values[ids].Space, g.Values[weights].Space = space, space
	g.Add(op, fmt.Sprint("route", len(g.Values)), []graph.ValueID{logits}, []graph.ValueID{ids, weights}, w...)
	g.Routes++
	sent := space
	sent.Route, sent.Used = g.Routes, op.Used
	in := func(op graph.Op, width int, in []graph.ValueID, w ...graph.WeightID) graph.ValueID {
		v := g.do(op, width, in, w...)
		g.Values[v].Space = sent
		return v
	}
	send, combine := []graph.ValueID{x, ids}, []graph.ValueID{0, ids, weights}
	if first {
		send, combine = append(send, weights), combine[:2]
	}
	rows := in(step.Send{}, width, send)
	project := func(x graph.ValueID, w graph.Weight) graph.ValueID {
		list := []graph.WeightID{g.Use(w)}
		if bias {
			list = append(list, g.weight(experts, w.Each()))
		}
		if g.factors {
			list = append(list, g.weight(1, experts))
			g.frozen[list[0]], g.frozen[list[len(list)-1]] = true, true
		}
		return in(step.Experts{Slices: 1, Factors: g.factors}, w.Each(), []graph.ValueID{x, ids}, list...)
	}
	next := func(rows, cols int) graph.Weight {
		g.n++
		return graph.Weight{Name: fmt.Sprint("w", g.n), Rows: experts * rows, Cols: cols, Experts: experts}
	}
	a, b := next(inner, width), next(inner, width)
	if fused {
		a.Of, b.Of, b.From, b.Name = 2*inner, 2*inner, inner, a.Name
	}
	combine[0] = project(in(step.GLU{}, inner, []graph.ValueID{project(rows, a), project(rows, b)}), next(width, inner))
	v := g.do(step.Combine{}, width, combine)
	g.Values[v].Space = space
	return v
}

// end picks all rows, normalises them, and makes logits, with the embedding where tied.
func (g *toy) end(x graph.ValueID, tied bool, bound float32) {
	last := g.NewValue("last", g.Width(x))
	g.Values[last].Space.Picked = true
	g.Add(step.Pick{}, "pick", []graph.ValueID{x}, []graph.ValueID{last})
	h := g.norm(last, 0)
	if w := graph.WeightID(0); tied {
		g.Logits = g.do(step.Matmul{Slices: 1}, g.Vocab, []graph.ValueID{h}, w)
	} else {
		g.Logits = g.linear(h, g.Vocab, false)
	}
	if bound > 0 {
		g.Logits = g.do(step.Softcap{Cap: bound}, g.Vocab, []graph.ValueID{g.Logits})
	}
}

// toyBalance is the factor of the toys' load-balancing terms.
const toyBalance = float32(0.4)

// toys are graphs that have every kind with a backward, each value read by one and by several.
func toys() map[string]*toy {
	all := map[string]*toy{}
	begin := func(name string, hidden int, scale float32) (*toy, graph.ValueID) {
		g := newToy(uint64(len(all) + 5))
		all[name] = g
		return g, g.do(step.Embed{Scale: scale}, hidden, nil, g.weight(g.Vocab, hidden))
	}
	g, x := begin("llama", 12, 0)
	for range 2 {
		a := g.attend(g.norm(x, 0), 4, 2, 6, 4, graph.Cache{}, 0, false)
		x = g.do(step.Add{}, 12, []graph.ValueID{x, g.linear(a, 12, false)})
		n := g.norm(x, 0)
		f := g.do(step.GLU{}, 10, []graph.ValueID{g.linear(n, 10, false), g.linear(n, 10, false)})
		x = g.do(step.Add{}, 12, []graph.ValueID{x, g.linear(f, 12, false)})
	}
	g.end(x, false, 0)

	g, x = begin("gemma", 8, 2.5)
	a := g.attend(x, 2, 1, 4, 8, graph.Cache{Window: 3}, 1.5, true)
	x = g.do(step.Add{}, 8, []graph.ValueID{g.linear(a, 8, true), x})
	f := g.do(step.GLU{Act: step.GELU}, 6, []graph.ValueID{g.linear(x, 6, true), g.linear(x, 6, false)})
	x = g.do(step.Add{}, 8, []graph.ValueID{x, g.do(step.Scale{By: 0.7}, 8, []graph.ValueID{g.linear(f, 8, false)})})
	g.end(x, true, 2)

	g, x = begin("others", 8, 0)
	both := g.linear(x, 14, false)
	gate, up := g.do(step.Columns{}, 7, []graph.ValueID{both}), g.do(step.Columns{From: 7}, 7, []graph.ValueID{both})
	x = g.do(step.Add{}, 8, []graph.ValueID{x, g.linear(g.do(step.GLU{Act: step.Clamped}, 7, []graph.ValueID{gate, up}), 8, false)})
	a = g.attend(x, 2, 2, 4, 4, graph.Cache{Window: 4, Chunked: true}, 0, false)
	x = g.do(step.Add{}, 8, []graph.ValueID{x, g.linear(a, 8, false)})
	x = g.do(step.Add{}, 8, []graph.ValueID{x, g.do(step.Activate{}, 8, []graph.ValueID{g.linear(x, 8, true)})})
	x = g.do(step.Add{}, 8, []graph.ValueID{x, g.do(step.Activate{XIELU: &step.XIELU{AlphaP: 0.8, AlphaN: 1.2, Beta: 0.5, Eps: -1e-6}}, 8, []graph.ValueID{g.linear(x, 8, false)})})
	g.end(x, true, 0)

	g, x = begin("sinks", 8, 0)
	a = g.attend(x, 4, 2, 4, 4, graph.Cache{Window: 5}, 0, false)
	last := &g.Steps[len(g.Steps)-1]
	last.W = append(last.W, g.weight(1, 4))
	x = g.do(step.Add{}, 8, []graph.ValueID{x, g.linear(a, 8, false)})
	x = g.do(step.Scale{By: 0.6}, 8, []graph.ValueID{x}, g.weight(1, 1))
	x = g.do(step.Add{}, 8, []graph.ValueID{x, g.do(step.Scale{By: 1.2}, 8, []graph.ValueID{g.linear(x, 8, false)}, g.weight(1, 1), g.weight(1, 8))})
	g.end(x, true, 0)

	g, x = begin("fused", 8, 0)
	parts := g.fused(x, 5, 3, 5)
	x = g.do(step.Add{}, 8, []graph.ValueID{x, g.linear(g.do(step.GLU{}, 5, []graph.ValueID{parts[2], parts[0]}), 8, false)})
	x = g.do(step.Add{}, 8, []graph.ValueID{x, g.linear(parts[1], 8, false)})
	g.end(x, true, 0)

	for _, c := range []struct {
		name               string
		op                 step.Route
		bias, fused, first bool
	}{
		{name: "softmax", op: step.Route{Used: 2, Norm: true, Scale: 1.5}, bias: true},
		{name: "softmax-plain", op: step.Route{Used: 3, Factors: true}, fused: true},
		{name: "sigmoid", op: step.Route{Used: 2, Gate: step.Sigmoid, Norm: true, Groups: 2, GroupsUsed: 1, Factors: true}},
		{name: "sigmoid-first", op: step.Route{Used: 1, Gate: step.Sigmoid}, first: true},
		{name: "softmax-chosen", op: step.Route{Used: 2, Gate: step.SoftmaxChosen, Norm: true, Factors: true}, bias: true},
		{name: "frozen", op: step.Route{Used: 2, Norm: true, Factors: true}, bias: true},
	} {
		g, x = begin(c.name, 8, 0)
		g.factors = c.name == "frozen"
		x = g.do(step.Add{}, 8, []graph.ValueID{x, g.mixture(x, c.op, 4, 5, c.bias, c.fused, c.first)})
		a = g.attend(x, 2, 1, 4, 4, graph.Cache{}, 0, false)
		x = g.do(step.Add{}, 8, []graph.ValueID{x, g.linear(a, 8, false)})
		n := g.norm(x, 0)
		y := g.mixture(n, c.op, 6, 3, c.bias, c.fused, c.first)
		shared := g.do(step.Weigh{}, 8, []graph.ValueID{g.linear(n, 8, true), g.linear(n, 1, false)})
		x = g.do(step.Add{}, 8, []graph.ValueID{x, g.do(step.Add{}, 8, []graph.ValueID{y, shared})})
		g.end(x, true, 0)
		step.Balanced(g.Graph, toyBalance)
	}

	for _, name := range []string{"llama", "gemma", "others", "softmax"} { // with dropout: of the residual stream, or of what adapters read
		g := &toy{clone(all[name].Graph), rand.New(rand.NewPCG(uint64(len(all)), 1)), 0, false, map[graph.WeightID]bool{}}
		all[name+"-dropped"] = g
		if name == "others" {
			for w := range g.Weights {
				g.frozen[graph.WeightID(w)] = true
			}
			step.Adapt(g.Graph, 3, 0.7, 0.3, func(w graph.Weight) bool { return w.Name != "w1" })
			continue
		}
		step.Dropped(g.Graph, 0.3)
	}
	return all
}

// values draws those of all weights.
func (g *toy) values() (m [][]float64) {
	for _, x := range g.Weights {
		v := make([]float64, x.Rows*x.Cols)
		for i := range v {
			if v[i] = g.rng.NormFloat64() / math.Sqrt(float64(x.Cols)) * 1.5; x.Rows == 1 {
				v[i] = 1 + 0.3*g.rng.NormFloat64()
			}
		}
		m = append(m, v)
	}
	return m
}

// Gradients are those of central differences in random directions, tensor by tensor.
func TestGradients(t *testing.T) {
	const rows, h = 16, 1e-4
	for name, g := range toys() {
		m := g.values()
		forward := len(m)
		in := graph.Input{Share: 1.0 / 11, Draw: graph.Draw{On: true, Seed: 7, Step: 3, Row: 48}}
		for r := range rows { // two leaves, the second one of two sequences; some rows do not count
			in.IDs, in.Pos, in.Seq = append(in.IDs, int32(g.rng.IntN(g.Vocab))), append(in.Pos, int32(r%8)), append(in.Seq, int32(r/8))
			if r >= 11 {
				in.Pos[r], in.Seq[r] = int32(r-11), 2
			}
			in.Pick, in.Target = append(in.Pick, int32(r)), append(in.Target, int32(g.rng.IntN(g.Vocab)))
			if r%5 == 2 {
				in.Target[r] = -1
			}
		}
		single := clone(g.Graph)
		grads, err := step.Train(g.Graph, rows, rows/2, func(w graph.WeightID) bool { return g.frozen[w] })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if trained := forward - len(g.frozen); len(grads) != trained {
			t.Errorf("%s: gradients of %d of %d weights", name, len(grads), trained)
		}
		run := func() *graph.Ref {
			return graph.Evaluate(g.Graph, in, func(w graph.WeightID, row int, dst []float64) { copy(dst, m[w][row*len(dst):]) })
		}
		var chosen [][][]float64 // by the experts' choices: nothing is a difference that is taken over a change of these
		flipped := false
		loss := func() (sum float64) {
			r := run()
			flipped = flipped || !reflect.DeepEqual(choices(r), chosen)
			for _, l := range r.Vals[g.Logits] {
				sum += in.Share * l[0]
			}
			return sum + in.Share*balance(r)
		}
		r := run()
		chosen = choices(r)
		if got, want := balance(r), plainBalance(r, rows/2); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s: balancing adds %.12g, by its formula %.12g", name, got, want)
		}
		if len(g.frozen) == 0 {
			sameInSingles(t, name, single, g.Graph, r, grads, m, quant.F32, 1e-5)
		}
		for _, w := range slices.Sorted(maps.Keys(grads)) {
			terms := grads[w]
			for done := 0; done < 2; {
				dir, want := make([]float64, len(m[w])), 0.0
				for i := range dir {
					dir[i] = g.rng.NormFloat64()
					for _, v := range terms {
						cols := g.Width(v)
						want += dir[i] * r.Vals[v][i/cols][i%cols]
					}
				}
				at := append([]float64(nil), m[w]...)
				move := func(by float64) float64 {
					for i := range at {
						m[w][i] = at[i] + by*dir[i]
					}
					return loss()
				}
				got := (8*(move(h)-move(-h)) - (move(2*h) - move(-2*h))) / (12 * h) // error of h^4
				move(0)
				if flipped {
					flipped = false
					continue // another direction
				}
				done++
				if e := math.Abs(got-want) / (1e-4 + math.Abs(want)); e > 1e-6 {
					t.Errorf("%s: %s: differences say %.9g, the gradient %.9g", name, g.Weights[w].Label(), got, want)
				}
			}
		}
	}
}

// Values that are several panels wide, matrices of more rows than are made at a time, and sequences of several tiles, where windows end at a tile's edge, one
// before and one behind it, and last tiles have one row or two.
func TestWideGradients(t *testing.T) {
	const hidden, leaf = 66, 130 + 129 + 29
	for _, typ := range []quant.Type{quant.F32, quant.BF16} {
		g := newToy(3)
		x := g.do(step.Embed{}, hidden, nil, g.weight(g.Vocab, hidden))
		caches, most := []graph.Cache{{Window: 66}, {Window: 65}, {Window: 40, Chunked: true}}, 5e-5
		if typ == quant.BF16 { // attention has no products of this type; other choices of experts come of rounding
			caches, most = nil, 0.1
			n := g.norm(x, 0)
			f := g.do(step.GLU{}, 300, []graph.ValueID{g.linear(n, 300, false), g.linear(n, 300, true)})
			x = g.do(step.Add{}, hidden, []graph.ValueID{x, g.linear(f, hidden, false)})
		}
		for i, c := range caches {
			d := [][2]int{{4, 4}, {4, 6}, {68, 70}}[i]
			a := g.attend(g.norm(x, 0), 2, 1, d[0], d[1], c, 0, false)
			x = g.do(step.Add{}, hidden, []graph.ValueID{x, g.linear(a, hidden, false)})
		}
		y := g.mixture(g.norm(x, 0), step.Route{Used: 2, Norm: true}, 3, 260, true, false, false)
		x = g.do(step.Add{}, hidden, []graph.ValueID{x, y})
		g.end(x, false, 0)
		m, in := g.values(), graph.Input{Share: 1.0 / 400}
		for seq, n := range []int{130, 129, 29, 129, 130, 29} {
			for pos := range n {
				in.Pick, in.Pos, in.Seq = append(in.Pick, int32(len(in.Pick))), append(in.Pos, int32(pos)), append(in.Seq, int32(seq))
				in.IDs, in.Target = append(in.IDs, int32(g.rng.IntN(g.Vocab))), append(in.Target, int32(g.rng.IntN(g.Vocab)))
			}
		}
		single := clone(g.Graph)
		grads, err := step.Train(g.Graph, 2*leaf, leaf, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := graph.Evaluate(g.Graph, in, func(w graph.WeightID, row int, dst []float64) { copy(dst, m[w][row*len(dst):]) })
		sameInSingles(t, "wide, "+typ.String(), single, g.Graph, r, grads, m, typ, most)
	}
}

// choices is the experts that rows chose.
func choices(r *graph.Ref) (all [][][]float64) {
	for _, s := range r.G.Steps {
		if _, ok := s.Op.(step.Route); ok {
			all = append(all, r.Vals[s.Out[0]])
		}
	}
	return all
}

// balance is what the load-balancing terms add to the losses.
func balance(r *graph.Ref) (sum float64) {
	for _, s := range r.G.Steps {
		if _, ok := s.Op.(step.Balance); ok {
			for _, l := range r.Vals[s.Out[0]] {
				sum += l[0]
			}
		}
	}
	return sum
}

// plainBalance is what they add by their formula: of each choice and leaf, experts times the sum of f*p, for each row that counts, by the
// toys' factor.
func plainBalance(r *graph.Ref, leaf int) (sum float64) {
	for _, s := range r.G.Steps {
		op, ok := s.Op.(step.Route)
		if !ok {
			continue
		}
		logits, ids := r.Vals[s.In[0]], r.Vals[s.Out[0]]
		for r0 := 0; r0 < len(logits); r0 += leaf {
			n := len(logits[0])
			f, p, rows := make([]float64, n), make([]float64, n), 0.0
			for i := r0; i < r0+leaf; i++ {
				if r.In.Target[i] < 0 {
					continue
				}
				rows++
				for _, id := range ids[i] {
					f[int(id)]++
				}
				all, score := 0.0, make([]float64, n)
				for e, x := range logits[i] {
					if score[e] = math.Exp(x); op.Gate == step.Sigmoid {
						score[e] = 1 / (1 + math.Exp(-x))
					}
					all += score[e]
				}
				for e := range p {
					p[e] += score[e] / all
				}
			}
			for e := range p {
				sum += float64(toyBalance) * float64(n) * f[e] / rows * p[e]
			}
		}
	}
	return sum
}

// sameInSingles holds a net of a toy against the float64 of its training graph; gradients are off by at most so much of their length.
func sameInSingles(t *testing.T, name string, g, trained *graph.Graph, r *graph.Ref, grads map[graph.WeightID][]graph.ValueID, m [][]float64, typ quant.Type, most float64) {
	t.Helper()
	rows := len(r.In.IDs)
	for _, workers := range []int{1, 3} {
		n, err := NewNet(clone(g), NetOptions{Leaf: rows / 2, Leaves: 2, Type: typ, Table: table(), Team: crew(t, workers)}, func(w graph.Weight, dst []float32) error {
			for i, x := range m[g.Use(w)] {
				dst[i] = float32(x)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var leaves []Leaf
		for at := 0; at < rows; at += rows / 2 {
			end := at + rows/2
			leaves = append(leaves, Leaf{IDs: r.In.IDs[at:end], Pos: r.In.Pos[at:end], Seq: r.In.Seq[at:end], Loss: make([]bool, rows/2)})
		}
		// The targets of a toy are any tokens, those of a leaf what follows.
		n.targets, n.batch.Draw = r.In.Target, r.In.Draw
		if _, err := n.Walk(leaves, r.In.Share, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := NewSum(n)
		s.Begin(1)
		s.Add()
		for i, got := range s.Gradients() {
			p := n.Params[i]
			diff, sum := 0.0, 0.0
			for j, x := range got {
				want := 0.0
				for _, v := range grads[trained.Use(p.Weight)] {
					want += r.Vals[v][j/p.Cols][j%p.Cols]
				}
				diff, sum = diff+(float64(x)-want)*(float64(x)-want), sum+want*want
			}
			if e := math.Sqrt(diff / (sum + 1e-30)); !(e < most) {
				t.Errorf("%s, %d workers: %s: the gradient is off by %.2g", name, workers, p.Label(), e)
			}
		}
	}
}

// What has no backward is said, with the step.
func TestNoBackward(t *testing.T) {
	g := newToy(1)
	x := g.do(step.Embed{}, 8, nil, g.weight(g.Vocab, 8))
	x = g.attend(x, 2, 1, 4, 4, graph.Cache{}, 0, false)
	s := &g.Steps[len(g.Steps)-1]
	a := s.Op.(step.Attend)
	a.Keep = 3
	s.Op = a
	g.end(x, false, 0)
	_, err := step.Train(g.Graph, 16, 16, nil)
	var none *graph.NoBackwardError
	if !errors.As(err, &none) || none.Kind != "attend" {
		t.Errorf("%v", err)
	}
}
