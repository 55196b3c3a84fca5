package train

import (
	"math/rand/v2"
	"testing"

	"ck/internal/graph"
	"ck/internal/quant"
	"ck/internal/synth"

	"ck/internal/cost"
)

// BenchmarkStep is a step of models from scratch: one of GPT-2's size (124M parameters, tied), and the one that ckrun has built in.
func BenchmarkStep(b *testing.B) {
	gpt2 := synth.Shape{Arch: "llama", Layers: 12, Hidden: 768, FFN: 2048, Heads: 12, KVHeads: 12, HeadDim: 64, Vocab: 50257, Context: 1024, RopeBase: 1e4, Tied: true}
	demo := synth.Shape{Arch: "llama", Layers: 6, Hidden: 256, FFN: 768, Heads: 8, KVHeads: 4, HeadDim: 32, Vocab: 4096, Context: 1024, RopeBase: 1e4, Tied: true}
	for _, c := range []struct {
		name                string
		shape               synth.Shape
		leaf, leaves, batch int
	}{{"gpt2/T=64", gpt2, 64, 4, 4}, {"gpt2/T=512", gpt2, 512, 4, 4}, {"demo/T=256", demo, 256, 8, 8}} {
		for _, typ := range []quant.Type{quant.F32, quant.BF16} {
			b.Run(c.name+"/"+typ.String(), func(b *testing.B) { benchStep(b, c.shape, typ, c.leaf, c.leaves, c.batch) })
		}
	}
}

func benchStep(b *testing.B, s synth.Shape, typ quant.Type, leaf, walk, batch int) {
	x, err := cost.OfShape("bench", s, "F32")
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	n, err := NewNet(clone(x.Graph), NetOptions{Leaf: leaf, Leaves: walk, Type: typ, Table: table(), Team: crew(b, 2)}, func(_ graph.Weight, dst []float32) error {
		for i := range dst {
			dst[i] = (rng.Float32() - 0.5) * 0.04
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
	flops := n.Operations() * float64(batch/walk)
	for b.Loop() {
		if _, err := t.Step(leaves, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(flops/b.Elapsed().Seconds()*float64(b.N)/1e9, "GFLOP/s")
	b.ReportMetric(float64(leaf*batch*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// clone is a graph that another net extends.
func clone(g *graph.Graph) *graph.Graph {
	c := *g
	c.Values = append([]graph.Value(nil), g.Values...)
	c.Weights = append([]graph.Weight(nil), g.Weights...)
	c.Steps = append([]graph.Step(nil), g.Steps...)
	return &c
}
