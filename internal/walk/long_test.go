package walk_test

import (
	. "ck/internal/walk"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
)

// Long contexts: positions beyond 512, chunks beyond the first, windows that begin inside a later chunk. Weights and embeddings are
// small integers over powers of two, so queries, keys and values are exact before rope and every deviation has a bound of its own.

const (
	longTokens = 1200 // of the tiers with vectors
	goTokens   = 640  // of tier go, which is slow
	longWidth  = 192  // of every attention's output
)

// longCaches are the attentions of the long model: heads that divide over two workers and heads that do not, all keys, a window shorter
// than a chunk, one of a chunk and one that spans two.
var longCaches = []struct {
	graph.Cache
	pairs int // that rope turns
	neox  bool
}{
	{graph.Cache{KVHeads: 3, D: 32, Dv: 32}, 16, false},
	{graph.Cache{KVHeads: 2, D: 64, Dv: 32}, 24, true},
	{graph.Cache{KVHeads: 3, D: 32, Dv: 64, Window: 100}, 16, true},
	{graph.Cache{KVHeads: 1, D: 32, Dv: 32, Window: 700}, 12, false},
	{graph.Cache{KVHeads: 2, D: 16, Dv: 16, Window: 512}, 8, false},
}

// longModel is a graph whose logits are the sum of several attentions over the same rows, each token its own id.
func longModel() *model {
	const hidden = 64
	g := &graph.Graph{Context: longTokens, Vocab: longWidth}
	do := func(op graph.Op, name string, width int, picked bool, in []graph.ValueID, w ...graph.WeightID) graph.ValueID {
		v := g.NewValue(name, width)
		g.Values[v].Space.Picked = picked
		g.Add(op, name, in, []graph.ValueID{v}, w...)
		return v
	}
	x := do(step.Embed{}, "x", hidden, false, nil, g.NewWeight("embed", longTokens, hidden))
	var sum graph.ValueID
	for i, c := range longCaches {
		linear := func(name string, width int) graph.ValueID {
			name = fmt.Sprint(name, i)
			return do(step.Matmul{Slices: 1}, name, width, false, []graph.ValueID{x}, g.NewWeight(name, width, hidden))
		}
		heads := longWidth / c.Dv
		q, k, v := linear("q", heads*c.D), linear("k", c.KVHeads*c.D), linear("v", c.KVHeads*c.Dv)
		r := graph.Rope{Scale: 1}
		for p := range c.pairs {
			r.InvFreq = append(r.InvFreq, math.Pow(10000, -float64(p)/float64(c.pairs)))
		}
		turn := step.Rotate{Table: len(g.Ropes), D: c.D, Neox: c.neox}
		g.Ropes, g.Caches = append(g.Ropes, r), append(g.Caches, c.Cache)
		q = do(turn, fmt.Sprint("rope_q", i), g.Width(q), false, []graph.ValueID{q})
		k = do(turn, fmt.Sprint("rope_k", i), g.Width(k), false, []graph.ValueID{k})
		o := do(step.Attend{Cache: i, Heads: heads, Scale: 1 / math.Sqrt(float64(c.D))}, fmt.Sprint("attn", i), longWidth, false,
			[]graph.ValueID{q, k, v})
		o = do(step.Pick{}, fmt.Sprint("pick", i), longWidth, true, []graph.ValueID{o})
		if i > 0 {
			o = do(step.Add{}, fmt.Sprint("sum", i), longWidth, true, []graph.ValueID{sum, o})
		}
		sum = o
	}
	g.Logits = sum
	m := &model{g: g}
	rng := rand.New(rand.NewPCG(12, 600))
	for i, w := range g.Weights {
		v := make([]float32, w.Rows*w.Cols)
		for j := range v { // with 64 columns: products of multiples of 2^-7, sums below 2^7, so no sum of them is rounded; variance 1.4
			v[j] = float32(rng.IntN(15)-7) / 32
			if i == 0 {
				v[j] *= 8
			}
		}
		b := make([]byte, quant.F32.RowBytes(len(v)))
		if err := quant.Quantize(quant.F32, b, v, nil); err != nil {
			panic(err)
		}
		m.types, m.raw = append(m.types, quant.F32), append(m.raw, b)
	}
	return m
}

// longPieces cuts n tokens into walks: the names are what the tests run.
func longPieces(name string, n int) (pieces []int) {
	of := func(size int) {
		for at := 0; at < n; at += size {
			pieces = append(pieces, min(size, n-at))
		}
	}
	switch name {
	case "one walk":
		of(n)
	case "pieces of 512":
		of(512)
	case "pieces of 7":
		of(7)
	case "single rows":
		of(1)
	case "rows around edges":
		at := 0
		walk := func(end, size int) {
			for end = min(end, n); at < end; at += size {
				size = min(size, end-at)
				pieces = append(pieces, size)
			}
		}
		for _, r := range [][2]int{{0, 2}, {300, 303}, {508, 520}, {574, 580}, {1020, 1030}, {n - 4, n}} { // these alone
			walk(r[0], n)
			walk(r[1], 1)
		}
	default:
		panic(name)
	}
	return pieces
}

// longPicks are the rows whose outputs are compared: those around every edge, and some of all others.
func longPicks(n int) (rows []int32) {
	for i := range n {
		edge := i%29 == 0 || i == n-1
		for _, e := range []int{0, 64, 100, 300, 512, 576, 612, 700, 768, 1024, 1124, 1212} {
			edge = edge || i >= e-2 && i <= e+2
		}
		if edge {
			rows = append(rows, int32(i))
		}
	}
	return rows
}

// long walks all tokens in the pieces and returns the outputs of the picked rows; the sequence stays in the cache. Its pages are
// some that another one gave back, in reverse order, and later ones among those of a third that grows beside it.
func (r *runner) long(t testing.TB, pieces []int, picks []int32) (out [][]float32, seq int) {
	t.Helper()
	reserve := func(seq, n int) {
		if err := r.cache.Reserve(seq, n); err != nil {
			t.Fatal(err)
		}
	}
	before, beside := r.cache.NewSeq(), r.cache.NewSeq()
	reserve(before, 200)
	reserve(beside, 1)
	reserve(before, 400)
	r.cache.Drop(before)
	seq = r.cache.NewSeq()
	walkers := map[plan.Class]*Walker{}
	at := 0
	for _, n := range pieces {
		class := plan.ClassOf(n)
		w := walkers[class]
		if w == nil {
			rows := n
			switch class {
			case plan.Few:
				rows = 16
			case plan.Many:
				rows = slices.Max(pieces)
			}
			p := r.plan(t, rows)
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
			w = newWalker(t, p, r.tbl, r.w, r.cache)
			walkers[class] = w
		}
		b := &Batch{}
		for i := range n {
			b.IDs, b.Pos, b.Seq = append(b.IDs, int32(at+i)), append(b.Pos, int32(at+i)), append(b.Seq, seq)
			if _, ok := slices.BinarySearch(picks, int32(at+i)); ok {
				b.Pick = append(b.Pick, int32(i))
			}
		}
		reserve(seq, at+n)
		reserve(beside, at+n)
		if err := w.Run(r.team, b, nil); err != nil {
			t.Fatal(err)
		}
		for i := range b.Pick {
			out = append(out, slices.Clone(w.Logits(i)))
		}
		at += n
	}
	return out, seq
}

// stored stands between keys, values and their attention in the reference. It checks that what the engine's cache holds for each position
// is what its type makes of the exact key and value, and hands that on: the reference then attends over the same numbers.
type stored struct {
	step.Add // for Needs: the same row
	t        testing.TB
	name     string
	r        *runner
	seq      int
	cache    int
	wrong    *int
}

func (stored) Check(*graph.Graph, *graph.Step) error { return nil }

func (c stored) Ref(r *graph.Ref, s *graph.Step) {
	l := c.r.cache.Layer(c.cache)
	f := l.Format
	k, v := make([]float32, f.D), make([]float32, f.Dv)
	for row := range r.Vals[s.Out[0]] {
		pos := int(r.In.Pos[row])
		for h := range l.Heads {
			kp, vp := c.r.cache.Keys(c.seq, c.cache, h)[pos/kernel.BlockKeys], c.r.cache.Values(c.seq, c.cache, h)[pos/kernel.BlockKeys]
			f.Load(unsafe.Slice((*byte)(kp), f.KBytes()), unsafe.Slice((*byte)(vp), f.VBytes()), pos%kernel.BlockKeys, k, v)
			for i, got := range [][]float32{k, v} {
				want := r.Vals[s.In[i]][row][h*len(got):][:len(got)]
				// A turned pair: cosine, sine and products rounded once each, and the sum: 3 * 2^-24 * (|a| + |b|). Values are exact.
				slack := 3 * 0x1p-24 * math.Sqrt2 * norm(want) * float64(1-i)
				if e := roundingError(f.Type, got, want, slack); e != "" {
					if *c.wrong++; *c.wrong <= 5 {
						c.t.Errorf("%s: cache %d, position %d, head %d, %s: %s", c.name, c.cache, pos, h, []string{"key", "value"}[i], e)
					}
				}
				to := r.Vals[s.Out[i]][row][h*len(got):]
				for j, x := range got {
					to[j] = float64(x)
				}
			}
		}

	}
}

func norm(x []float64) (s float64) {
	for _, v := range x {
		s += v * v
	}
	return math.Sqrt(s)
}

// roundingError says where got is not want, known up to slack, rounded to the type.
func roundingError(typ quant.Type, got []float32, want []float64, slack float64) string {
	for i, w := range want {
		block := want[i/32*32 : min(len(want), i/32*32+32)]
		high, low := slices.Max(block), slices.Min(block)
		top := max(high, -low)
		bound := 0.0
		switch typ { // half a step; of the quantized types also the rounding of their scale to float16 and in float32
		case quant.F16:
			bound = math.Abs(w) * 0x1p-11
		case quant.BF16:
			bound = math.Abs(w) * 0x1p-8
		case quant.Q8_0:
			bound = top * (0.5/127 + 0x1p-11 + 0x1p-23)
		case quant.Q4_0:
			bound = top * (0.5/8 + 0x1p-11 + 0x1p-23)
			if w > 0 && -low+slack >= high-slack || w < 0 && high+slack >= -low-slack { // steps go from -8 to 7: the far end is cut
				bound = max(bound, math.Abs(w)-top*(7./8-0x1p-11))
			}
		}
		bound += 2 * slack // of the element and of its scale
		if d := math.Abs(float64(got[i]) - w); !(d <= bound) {
			return fmt.Sprintf("element %d is %g, the exact one %g: off by %.3g, rounding to %v explains %.3g", i, got[i], w, d, typ, bound)
		}
	}
	return ""
}

// longReference computes the picked rows in float64 over the keys and values that r's cache holds, and checks these.
func (m *model) longReference(t testing.TB, name string, r *runner, seq, tokens int, picks []int32) [][]float64 {
	t.Helper()
	g := *m.g
	g.Values, g.Steps = slices.Clone(g.Values), nil
	wrong := 0
	for _, s := range m.g.Steps {
		if op, ok := s.Op.(step.Attend); ok {
			k, v := g.NewValue("stored k", g.Width(s.In[1])), g.NewValue("stored v", g.Width(s.In[2]))
			g.Add(stored{t: t, name: name, r: r, seq: seq, cache: op.Cache, wrong: &wrong}, "stored", s.In[1:], []graph.ValueID{k, v})
			s.In = []graph.ValueID{s.In[0], k, v}
		}
		g.Steps = append(g.Steps, s)
	}
	in := graph.Input{Pick: picks}
	for i := range tokens {
		in.IDs, in.Pos, in.Seq = append(in.IDs, int32(i)), append(in.Pos, int32(i)), append(in.Seq, 0)
	}
	want := graph.Interpret(&g, in, m.exact)
	if wrong > 0 {
		t.Errorf("%s: %d keys and values in the cache are not what they should be", name, wrong)
	}
	return want
}

// longTolerance bounds an output's error: each attention's is at most 1e-5 for values of variance 1 (internal/kernel: attnTolerance).
var longTolerance = 1e-5 * math.Sqrt(1.4) * float64(len(longCaches))

// compareLong returns the largest error and reports errors beyond the tolerance.
func compareLong(t testing.TB, name string, got [][]float32, want [][]float64, picks []int32) (worst float64) {
	t.Helper()
	for i, row := range want {
		for j, w := range row {
			d := math.Abs(float64(got[i][j]) - w)
			if !(d <= longTolerance) {
				t.Errorf("%s: position %d, output %d: %g, in float64 %g: off by %.3g, tolerance %.3g", name, picks[i], j, got[i][j], w, d, longTolerance)
				return d
			}
			worst = max(worst, d)
		}
	}
	return worst
}

// TestLongContext compares 640 to 1,200 positions with float64 for each type of cache, in every cut of the prompt, on every tier. Tiers with
// vectors have the same bits; the best one runs all cuts, the others one each (all of them, also all single rows, with CK_TEST_LARGE).
func TestLongContext(t *testing.T) {
	m := longModel()
	if err := m.g.Check(); err != nil {
		t.Fatal(err)
	}
	types := []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0}
	tiers := isa.Available(isa.Detect())
	slices.Reverse(tiers)
	if testing.Short() {
		types, tiers = types[1:2], tiers[:1]
	}
	for i, typ := range types {
		var first [][]float32 // the bits of the tiers with vectors
		for j, tier := range tiers {
			for _, cut := range longCuts(tier, i, j) {
				name := fmt.Sprintf("%v cache, tier %v, %s", typ, tier, cut)
				tokens := longTokens
				if tier == isa.Go {
					tokens = goTokens
				}
				picks := longPicks(tokens)
				r := newRunner(t, m, setup{tier: tier, workers: 2, f32: true, kv: typ})
				got, seq := r.long(t, longPieces(cut, tokens), picks)
				if first != nil && tier != isa.Go {
					for row, pos := range picks {
						if err := sameBits(first[row:row+1], got[row:row+1]); err != nil {
							t.Errorf("%s: position %d has not the bits of tier %v in one walk: %v", name, pos, tiers[0], err)
							break
						}
					}
				} else {
					worst := compareLong(t, name, got, m.longReference(t, name, r, seq, tokens, picks), picks)
					t.Logf("%s: largest error %.2g, tolerance %.2g", name, worst, longTolerance)
				}
				if tier != isa.Go && first == nil {
					first = got
				}
				r.team.Close()
			}
		}
	}
}

// longCuts are the cuts that type number typ is run in on a tier, number n from the best.
func longCuts(tier isa.Tier, typ, n int) []string {
	cuts := []string{"one walk", "rows around edges", "pieces of 7", "pieces of 512"}
	switch large := os.Getenv("CK_TEST_LARGE") != ""; {
	case tier != isa.Go && (large || n == 0 && typ == 1):
		return append(cuts, "single rows")
	case large || n == 0:
		return cuts
	}
	n = (typ + n) % len(cuts)
	return cuts[n : n+1]
}
