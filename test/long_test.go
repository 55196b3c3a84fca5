package test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ck/internal/engine"
	"ck/internal/graph"
	"ck/internal/quant"
	"ck/internal/synth"
)

// longModels are sliding windows and their pattern over two layers: none, one shorter than a chunk of 512 keys, one that spans two.
var longModels = []struct {
	window  uint32
	pattern []bool
}{{0, nil}, {100, []bool{true, false}}, {530, []bool{false, true}}}

// longFeed is how the ids of a long text reach an engine: rows of a walk, then what is fed with a call each, ends of the pieces; -n goes
// back to n ids first.
var longFeed = []struct {
	name   string
	ubatch int
	ends   []int
}{
	{"one walk", 1024, nil},
	{"pieces of 512", 512, nil},
	{"pieces of 7", 7, nil},
	{"single rows after 500", 512, append([]int{500}, ascending(501, 530)...)},
	{"back to 505", 512, []int{600, -505, 506, 507}},
	{"back into the chunk before", 512, []int{640, -300, 301}},
}

func ascending(from, to int) (n []int) {
	for i := from; i <= to; i++ {
		n = append(n, i)
	}
	return n
}

// longLogits feeds ids and returns the logits of all rows from the 250th on: of those fed twice, the later ones.
func longLogits(t *testing.T, e *engine.Engine, ids []int32, ends []int) [][]float32 {
	t.Helper()
	out := make([][]float32, len(ids))
	seq := e.NewSeq()
	defer e.Drop(seq)
	for _, end := range append(slices.Clone(ends), len(ids)) {
		if end < 0 {
			e.Truncate(seq, -end)
			continue
		}
		at := e.Len(seq)
		err := e.Forward(context.Background(), seq, ids[at:end], engine.All, func(i int, l []float32) error {
			out[at+i] = slices.Clone(l)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestLongContextOfAnEngine compares 660 positions of a model with float64, and has the same bits however they are fed, for each type of
// cache. internal/walk compares every type of cache and tier with float64.
func TestLongContextOfAnEngine(t *testing.T) {
	for _, c := range longModels {
		m, err := synth.Model("long", synth.Shape{Arch: "llama", Layers: 2, Hidden: 96, FFN: 64, Heads: 6, KVHeads: 3, HeadDim: 32, Vocab: 512,
			Context: 1024, Tied: true, RopeBase: 1e4}, quant.F32, 9)
		if err != nil {
			t.Fatal(err)
		}
		if c.window > 0 {
			m.KV.Set("llama.attention.sliding_window", c.window)
			m.KV.Set("llama.attention.sliding_window_pattern", c.pattern)
		}
		rng := rand.New(rand.NewPCG(6, uint64(c.window)))
		ids := make([]int32, 660)
		for i := range ids {
			ids[i] = int32(rng.IntN(512))
		}
		for i, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0} {
			var want [][]float32
			for j, f := range longFeed {
				if i > 0 && j > 0 && j%3 != i%3 { // each type: two of them beside one walk
					continue
				}
				e, err := engine.Open(m, engine.Options{Threads: 2, UBatch: f.ubatch, F32Act: true, KV: typ, KVSet: true})
				if err != nil {
					t.Fatal(err)
				}
				got := longLogits(t, e, ids, f.ends)
				e.Close()
				name := fmt.Sprintf("window %d, %v cache, %s", c.window, typ, f.name)
				switch {
				case want == nil:
					want = got
					if typ == quant.F32 {
						againstFloat64(t, name, e.Graph, weightsOf(e.Graph, m), ids, got)
					}
				default:
					if err := sameBits(want, got); err != nil {
						t.Errorf("%s: not the bits of one walk: %v", name, err)
					}
				}
			}
		}
	}
}

// againstFloat64 compares rows of logits with the interpreter: 1e-5 of their spread, as for the reference models, 4 times that in any row.
func againstFloat64(t *testing.T, name string, g *graph.Graph, weights func(graph.WeightID, int, []float64), ids []int32, got [][]float32) {
	t.Helper()
	in := input(ids)
	in.Pick = nil
	for i := range ids {
		if i%23 == 0 || i > 290 && i < 310 || i > 505 && i < 540 || i == len(ids)-1 {
			in.Pick = append(in.Pick, int32(i))
		}
	}
	var sumD, sumC float64
	for i, row := range graph.Interpret(g, in, weights) {
		mean, d2, c2 := 0.0, 0.0, 0.0
		for _, v := range row {
			mean += v / float64(len(row))
		}
		for j, v := range row {
			d := float64(got[in.Pick[i]][j]) - v
			d2, c2 = d2+d*d, c2+(v-mean)*(v-mean)
		}
		if rel := math.Sqrt(d2 / c2); !(rel < 4e-5) {
			t.Errorf("%s: position %d: relative error %.2e against float64", name, in.Pick[i], rel)
		}
		sumD, sumC = sumD+d2, sumC+c2
	}
	rel := math.Sqrt(sumD / sumC)
	t.Logf("%s: relative error %.2e against float64", name, rel)
	if !(rel < 1e-5) {
		t.Errorf("%s: relative error %.2e against float64", name, rel)
	}
}
