package walk_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	. "ck/internal/walk"
)

// tapped walks ids once with a plan that keeps taps, and returns the walker.
func (r *runner) tapped(t *testing.T, ids []int32, taps []graph.ValueID, stop bool) *Walker {
	t.Helper()
	p, err := plan.Build(r.m.g, plan.Machine{Workers: r.s.workers, MaxRows: len(ids), MaxPicks: len(ids), Taps: taps, Stop: stop, Format: r.format})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	w := newWalker(t, p, r.tbl, r.w, r.cache)
	b := &Batch{IDs: ids}
	seq := r.cache.NewSeq()
	for i := range ids {
		b.Pos, b.Seq, b.Pick = append(b.Pos, int32(i)), append(b.Seq, seq), append(b.Pick, int32(i))
	}
	if err := r.cache.Reserve(seq, len(ids)); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(r.team, b, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestTaps looks at every value of random graphs, a few at a time: each is what the interpreter says, and the logits keep their bits. Plans that
// stop at the last tap are shorter, and the values the same.
func TestTaps(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 11))
		m := randomModel(rng, []quant.Type{quant.F32})
		for _, rows := range []int{1, 5, 70} {
			ids := randomIDs(rng, m.g.Vocab, rows)
			s := setup{tier: isa.Best(isa.Detect()), workers: 1 + rng.IntN(3), f32: true, kv: quant.F32}
			in := graph.Input{IDs: ids}
			for i := range ids {
				in.Pos, in.Seq, in.Pick = append(in.Pos, int32(i)), append(in.Seq, 0), append(in.Pick, int32(i))
			}
			want := graph.Evaluate(m.g, in, m.exact)
			r := newRunner(t, m, s)
			plain := r.tapped(t, ids, nil, false)
			var logits [][]float32
			for i := range ids {
				logits = append(logits, append([]float32(nil), plain.Logits(i)...))
			}
			order := rng.Perm(len(m.g.Values))
			for len(order) > 0 {
				n := min(1+rng.IntN(4), len(order))
				var taps []graph.ValueID
				for _, v := range order[:n] {
					taps = append(taps, graph.ValueID(v))
				}
				order = order[n:]
				for _, v := range taps { // the order of routed rows
					if id, ok := idsOf(m.g, v); ok && !slices.Contains(taps, id) {
						taps = append(taps, id)
					}
				}
				w := r.tapped(t, ids, taps, false)
				for i := range ids {
					if err := sameBits(logits[i:i+1], [][]float32{w.Logits(i)}); err != nil {
						t.Fatalf("seed %d, %d rows, taps %v: %v", seed, rows, taps, err)
					}
				}
				short := r.tapped(t, ids, taps, true)
				if len(short.Plan.Items) > len(w.Plan.Items) || short.Plan.Logits != plan.None {
					t.Errorf("a plan that stops has %d items, one that does not %d", len(short.Plan.Items), len(w.Plan.Items))
				}
				for _, v := range taps {
					see(t, m.g, w, short, v, want.Vals[v])
				}
			}
			if _, ok := plain.Tap(0); ok {
				t.Error("a value can be seen that nobody asked for")
			}
		}
	}
}

// idsOf is the choice of experts that the rows of v are of.
func idsOf(g *graph.Graph, v graph.ValueID) (graph.ValueID, bool) {
	if g.Values[v].Space.Route == 0 {
		return 0, false
	}
	n := 0
	for i := range g.Steps {
		if _, ok := g.Steps[i].Op.(step.Route); ok {
			if n++; n == g.Values[v].Space.Route {
				return g.Steps[i].Out[0], true
			}
		}
	}
	return 0, false
}

// see compares a value in two walkers with the interpreter's.
func see(t *testing.T, g *graph.Graph, w, short *Walker, v graph.ValueID, want [][]float64) {
	t.Helper()
	name := g.Values[v].Name
	if id, ok := idsOf(g, v); ok {
		ids, _ := w.Tap(id)
		sorted := make([][]float64, len(want))
		for r, from := range RoutingOf(ids.Data).From {
			sorted[r] = want[from]
		}
		want = sorted
	}
	all, n := 0.0, 0.0 // a row may be near zero where others are not
	for _, row := range want {
		for _, f := range row {
			all, n = all+f*f, n+1
		}
	}
	all = math.Sqrt(all / max(1, n))
	x, ok := w.Tap(v)
	y, ok2 := short.Tap(v)
	if !ok || !ok2 || x.Rows != len(want) || y.Rows != x.Rows {
		t.Fatalf("%s: %d and %d rows, %d wanted", name, x.Rows, y.Rows, len(want))
	}
	for i := range want {
		if err := sameBits([][]float32{x.Row(i)}, [][]float32{y.Row(i)}); err != nil {
			t.Errorf("%s: the plan that stops has other bits: %v", name, err)
		}
		var d2, w2 float64
		for j, f := range want[i] {
			d := float64(x.Row(i)[j]) - f
			d2, w2 = d2+d*d, w2+f*f
		}
		if want[i] != nil && !(math.Sqrt(d2) <= 2e-5*(math.Sqrt(w2)+all)+1e-7) {
			t.Errorf("%s: row %d is off by %.2g of %.2g", name, i, math.Sqrt(d2), math.Sqrt(w2))
		}
	}
}
