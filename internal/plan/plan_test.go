package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ck/internal/cost"
	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/synth"
)

// small are shapes with few layers that cut in different ways.
var small = []synth.Shape{
	{Arch: "llama", Layers: 2, Hidden: 512, FFN: 1024, Heads: 8, KVHeads: 4, HeadDim: 64, Vocab: 640, Context: 512, RopeBase: 1e4},
	{Arch: "qwen3", Layers: 2, Hidden: 256, FFN: 768, Heads: 6, KVHeads: 3, HeadDim: 32, Vocab: 600, Context: 512, Tied: true, QKNorm: true, RopeBase: 1e4},
	{Arch: "qwen2", Layers: 1, Hidden: 2048, FFN: 4096, Heads: 16, KVHeads: 8, HeadDim: 128, Vocab: 4096, Context: 512, QKVBias: true, RopeBase: 1e4},
}

// build is the plan of a shape whose matrices have one type, on so many homes.
func build(t testing.TB, s synth.Shape, typ quant.Type, homes int, m plan.Machine) *plan.Plan {
	t.Helper()
	x, err := cost.OfShape(s.Arch, s, typ.String())
	if err != nil {
		t.Fatal(err)
	}
	f := kernel.For(isa.Go, 0).Format(typ, false)
	m.Format = func(graph.WeightID) *kernel.Format { return f }
	m.Layout = plan.NewLayout(x.Graph, plan.HomesFor(x.Graph, homes))
	p, err := plan.Build(x.Graph, m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// each calls f for plans of all classes, for workers that divide the heads and for those that do not, on one home and on more.
func each(t *testing.T, workers []int, f func(name string, p *plan.Plan)) {
	t.Helper()
	for i, s := range small {
		for _, w := range workers {
			for _, rows := range []int{1, 9, 40, 200} {
				typ := []quant.Type{quant.Q8_0, quant.F32, quant.Q4_K}[(i+w+rows)%3]
				for _, homes := range []int{1, 2, 3, 4, 6, 8} {
					if homes > w {
						continue
					}
					p := build(t, s, typ, homes, plan.Machine{Workers: w, MaxRows: rows, MaxPicks: max(1, rows/(1+i)), Separate: (w+rows)%4 == 3})
					name := fmt.Sprintf("%s, %s, %d workers, %d rows, homes %v", s.Arch, typ, w, rows, p.Homes)
					f(name, p)
					if p.Homes.Members > 1 && rows > 16 {
						l := plan.NewLayout(p.G, p.Homes).Tokens()
						format := func(graph.WeightID) *kernel.Format { return kernel.For(isa.Go, 0).Format(typ, false) }
						p, err := plan.Build(p.G, plan.Machine{Workers: w, MaxRows: rows, MaxPicks: 1 + rows/3, Layout: l, Format: format})
						if err != nil {
							t.Fatal(err)
						}
						if n, want := p.Meetings()[plan.All], s.Layers+1+2+2; n > want { // of a layer, of pick, of the tail on picked rows and of gathering its results
							t.Errorf("%s: %d meetings of all, expected %d", name, n, want)
						}
						f(name+", rows dealt", p)
					}
				}
			}
		}
	}
}

// same reports whether conflict and the comparison of each with each agree on two items.
func same(p *plan.Plan, conflict func(a, b *plan.Item, rows, picks int) (plan.Scope, bool), a, b *plan.Item) error {
	for _, rows := range append(p.SampleRows(), 1, 7) {
		picks := min(rows, p.MaxPicks)
		got, meets := conflict(a, b, rows, picks)
		want, should := p.Pairwise(a, b, rows, picks)
		if meets != should || meets && got != want {
			return fmt.Errorf("%s %s and %s %s, %d rows: %v of %v; each with each: %v of %v", a.Do, a.Name, b.Do, b.Name, rows, meets, got, should, want)
		}
	}
	return nil
}

// Any two items of a plan conflict just where comparing every two workers says so; a barrier stands where one is needed, and nowhere
// else.
func TestConflict(t *testing.T) {
	each(t, []int{1, 2, 3, 4, 8, 13}, func(name string, p *plan.Plan) {
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		conflict := p.Conflicts()
		for i := range p.Items {
			it := &p.Items[i]
			if it.Do == plan.Barrier {
				if needed := p.Needed(i); (len(needed) == 0 || slices.Max(needed) != it.Scope) && !separate(p) {
					t.Errorf("%s: barrier %d of %v; scopes that are needed: %v", name, i, it.Scope, needed)
				}
				continue
			}
			if i == 0 || p.Items[i-1].Do != plan.Barrier {
				if needed := p.Needed(i - 1); len(needed) > 0 {
					t.Errorf("%s: no barrier before item %d; scopes that are needed: %v", name, i, needed)
				}
			}
			for j := max(0, i-20); j <= i; j++ { // items of other phases too
				if p.Items[j].Do == plan.Barrier {
					continue
				}
				if err := same(p, conflict, &p.Items[j], it); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
	})
}

// A barrier of a smaller group than a plan has it, or none, is found.
func TestScopesOfMutants(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	lowered := map[string]int{}
	each(t, []int{4, 8, 13}, func(name string, p *plan.Plan) {
		if separate(p) { // has more than it needs
			return
		}
		var barriers []int
		for i := range p.Items {
			if p.Items[i].Do == plan.Barrier {
				barriers = append(barriers, i)
			}
		}
		for _, j := range rng.Perm(len(barriers))[:min(4, len(barriers))] {
			i := barriers[j]
			q := *p
			q.Items = slices.Clone(p.Items)
			q.Items = slices.Delete(q.Items, i, i+1)
			if q.Check() == nil {
				t.Errorf("%s: nobody misses barrier %d of %v", name, i, p.Items[i].Scope)
			}
			for scope := plan.Home; scope < p.Items[i].Scope; scope++ {
				if scope == plan.Home && p.Homes.Places == 1 || scope == plan.Member && p.Homes.Members == 1 {
					continue // that is the same group as the next
				}
				q.Items = slices.Clone(p.Items)
				q.Items[i].Scope = scope
				if q.Check() == nil {
					t.Errorf("%s: barrier %d is of %v instead of %v, and nobody minds", name, i, scope, p.Items[i].Scope)
				}
				lowered[fmt.Sprint(scope, " for ", p.Items[i].Scope)]++
			}
		}
	})
	if len(lowered) != 3 {
		t.Errorf("scopes that were tried: %v", lowered)
	}
}

// separate reports whether a barrier stands behind every item.
func separate(p *plan.Plan) bool {
	for i := range p.Items {
		if (p.Items[i].Do == plan.Barrier) != (i%2 == 1) {
			return false
		}
	}
	return true
}

// So they do in plans whose cuts, operands and buffers were changed at random, most of which are wrong.
func TestConflictOfMutants(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	total, conflicts := 0, 0
	each(t, []int{2, 5, 8}, func(name string, p *plan.Plan) {
		for range 30 {
			q := *p
			q.Items = slices.Clone(p.Items)
			i := rng.IntN(len(q.Items))
			if q.Items[i].Do == plan.Barrier {
				continue
			}
			mutate(rng, &q, &q.Items[i])
			conflict := q.Conflicts()
			for j := max(0, i-6); j < min(i+6, len(q.Items)); j++ {
				if q.Items[j].Do == plan.Barrier {
					continue
				}
				a, b := &q.Items[min(i, j)], &q.Items[max(i, j)]
				if err := same(&q, conflict, a, b); err != nil {
					t.Fatalf("%s: %v\n%+v\n%+v", name, err, *a, *b)
				}
				total++
				if _, meets := q.Pairwise(a, b, p.MaxRows, p.MaxPicks); meets {
					conflicts++
				}
			}
		}
	})
	if conflicts < total/20 || conflicts > total*19/20 {
		t.Errorf("%d of %d pairs conflict: the mutants are no good", conflicts, total)
	}
}

// mutate changes an item in one way.
func mutate(rng *rand.Rand, p *plan.Plan, it *plan.Item) {
	it.In, it.Out = slices.Clone(it.In), slices.Clone(it.Out)
	ops := it.Out
	if len(it.In) > 0 && rng.IntN(2) == 0 {
		ops = it.In
	}
	o := &ops[rng.IntN(len(ops))]
	switch rng.IntN(10) {
	case 7:
		it.Cut.Over = plan.Over(rng.IntN(3))
	case 8:
		o.Mine = !o.Mine
	case 9:
		o.Far = !o.Far
	case 0:
		it.Cut.By = plan.Axis(rng.IntN(4))
		it.Cut.N = max(it.Cut.N, 1)
	case 1:
		it.Cut.N = 1 + rng.IntN(40)
	case 2:
		it.Cut.Shared = !it.Cut.Shared
	case 3:
		it.Space.Picked = !it.Space.Picked
	case 4:
		o.All = !o.All
	case 5:
		o.Unit = rng.IntN(300)
	case 6:
		o.Buf = plan.BufID(rng.IntN(len(p.Bufs)))
	}
}

// A plan for hundreds of workers is right as well. It is made and checked in a hundredth of a second; comparing each with each took a
// quarter of a minute.
func TestManyWorkers(t *testing.T) {
	for _, name := range []string{"qwen3-0.6b", "llama-3.1-8b"} {
		s, err := synth.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, workers := range []int{72, 128, 448} {
			for _, rows := range []int{1, 16, 512} {
				p := build(t, s, quant.Q4_K, []int{1, 2, 8}[workers%3], plan.Machine{Workers: workers, MaxRows: rows, MaxPicks: rows})
				if err := p.Check(); err != nil {
					t.Errorf("%s, %d workers, %d rows: %v", name, workers, rows, err)
				}
			}
		}
	}
}

// BenchmarkBuild is how long the first walk waits for its plan.
func BenchmarkBuild(b *testing.B) { benchmark(b, func(*plan.Plan) error { return nil }) }

// BenchmarkBuildCheck is that with the check of the plan.
func BenchmarkBuildCheck(b *testing.B) { benchmark(b, (*plan.Plan).Check) }

func benchmark(b *testing.B, then func(*plan.Plan) error) {
	f := kernel.For(isa.Go, 0).Format(quant.Q4_K, false)
	for _, name := range []string{"qwen3-0.6b", "llama-3.1-8b"} {
		s, err := synth.Find(name)
		if err != nil {
			b.Fatal(err)
		}
		m, err := cost.OfShape(name, s, "Q4_K")
		if err != nil {
			b.Fatal(err)
		}
		for _, rows := range []int{1, 512} {
			for _, workers := range []int{1, 2, 8, 32, 72, 128, 448} {
				b.Run(fmt.Sprintf("shape=%s/rows=%d/workers=%d", name, rows, workers), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						p, err := plan.Build(m.Graph, plan.Machine{Workers: workers, MaxRows: rows, MaxPicks: rows, Format: func(graph.WeightID) *kernel.Format { return f }})
						if err != nil {
							b.Fatal(err)
						}
						if err := then(p); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
