package train

import (
	"math/rand/v2"
	"testing"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/synth"

	"ck/internal/cost"
)

// BenchmarkStep is a step of a llama of GPT-2's size (124M parameters, tied), batches of 4 slots of 64 tokens.
func BenchmarkStep(b *testing.B) {
	s := synth.Shape{Arch: "llama", Layers: 12, Hidden: 768, FFN: 2048, Heads: 12, KVHeads: 12, HeadDim: 64, Vocab: 50257, Context: 1024, RopeBase: 1e4, Tied: true}
	x, err := cost.OfShape("gpt2", s, "F32")
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	const leaf, batch = 64, 4
	for _, typ := range []quant.Type{quant.F32, quant.BF16} {
		b.Run(typ.String(), func(b *testing.B) {
			n, err := NewNet(clone(x.Graph), NetOptions{Leaf: leaf, Leaves: batch, Type: typ, Table: table(), Team: crew(b, 2)}, func(_ graph.Weight, dst []float32) error {
				for i := range dst {
					dst[i] = float32(rng.NormFloat64()) * 0.02
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			t, err := NewTrainer(n, Options{Batch: batch, Optimizer: adamw(), Schedule: Schedule{Kind: "constant", Rate: 1e-4, Steps: 1000}})
			if err != nil {
				b.Fatal(err)
			}
			var leaves []Leaf
			for range batch {
				leaves = append(leaves, randomLeaf(rng, s.Vocab, leaf))
			}
			flops := 0.0
			l := plan.Load{Rows: leaf * batch, Picks: leaf * batch, Keys: leaf / 2}
			for i := range n.Plan().Items {
				flops += n.Plan().Work(i, l).Ops
			}
			for b.Loop() {
				if _, err := t.Step(leaves, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(flops/b.Elapsed().Seconds()*float64(b.N)/1e9, "GFLOP/s")
			b.ReportMetric(leaf*batch*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// clone is a graph that another net extends.
func clone(g *graph.Graph) *graph.Graph {
	c := *g
	c.Values = append([]graph.Value(nil), g.Values...)
	c.Weights = append([]graph.Weight(nil), g.Weights...)
	c.Steps = append([]graph.Step(nil), g.Steps...)
	return &c
}
