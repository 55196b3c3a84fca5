package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"testing"

	"ck/internal/cost"
	"ck/internal/graph"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/synth"
)

// Losses and gradients are those of float64, and the same bits however many leaves a walk has: where a leaf is one part of the logits or several, where several
// leaves are one part since gradients of the matrix would take more (a wide output matrix), and where logits are whole since they have a bias.
func TestLossParts(t *testing.T) {
	for _, c := range []struct {
		hidden, leaf int
		bias         bool
		parts        int // of the loss
	}{{16, 64, false, 4}, {16, 288, false, 12}, {8 * step.LossRows, 160, false, 1}, {16, 160, true, 0}} {
		const leaves = 4
		name := fmt.Sprintf("%+v", c)
		g := newToy(4)
		x := g.do(step.Embed{}, c.hidden, nil, g.weight(g.Vocab, c.hidden))
		if g.end(g.norm(x, 0), true, 3); c.bias {
			g.Steps = g.Steps[:len(g.Steps)-2]
			g.Logits = g.linear(g.Steps[len(g.Steps)-1].Out[0], g.Vocab, true)
		}
		m, rows := g.values(), c.leaf*leaves
		rng := rand.New(rand.NewPCG(5, 6))
		var batch []Leaf
		in := graph.Input{Share: 1.0 / float64(rows)}
		for l := range leaves {
			batch = append(batch, randomLeaf(rng, g.Vocab, c.leaf))
			for i := range c.leaf {
				in.IDs, in.Pos, in.Seq = append(in.IDs, batch[l].IDs[i]), append(in.Pos, batch[l].Pos[i]), append(in.Seq, int32(1000*l)+batch[l].Seq[i])
				in.Pick, in.Target = append(in.Pick, int32(len(in.Pick))), append(in.Target, batch[l].target(i))
			}
		}
		trained := clone(g.Graph)
		grads, err := step.Train(trained, rows, c.leaf, nil)
		if err != nil {
			t.Fatal(err)
		}
		parts := 0
		for _, s := range trained.Steps {
			if _, ok := s.Op.(step.PartRows); ok {
				parts++
			}
		}
		if parts != c.parts {
			t.Errorf("%s: %d parts", name, parts)
		}
		r := graph.Evaluate(trained, in, func(w graph.WeightID, row int, dst []float64) { copy(dst, m[w][row*len(dst):]) })
		want := 0.0
		for _, l := range r.Vals[trained.Logits] {
			want += l[0]
		}
		var first [][]float32
		for _, walk := range []int{4, 1, 2} {
			n, err := NewNet(clone(g.Graph), NetOptions{Leaf: c.leaf, Leaves: walk, Type: quant.F32, Table: table(), Team: crew(t, 1+walk%3)}, func(w graph.Weight, dst []float32) error {
				for i, x := range m[g.Use(w)] {
					dst[i] = float32(x)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Plan().Check(); err != nil {
				t.Fatal(err)
			}
			sum, got := NewSum(n), 0.0
			sum.Begin(leaves / walk)
			for at := 0; at < leaves; at += walk {
				losses, err := n.Walk(batch[at:at+walk], in.Share, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range losses {
					got += l
				}
				if err := sum.Add(); err != nil {
					t.Fatal(err)
				}
			}
			if math.Abs(got-want) > 1e-5*want {
				t.Errorf("%s, walks of %d: the loss is %v, exactly %v", name, walk, got, want)
			}
			for i, got := range sum.Gradients() {
				p := n.Params[i]
				diff, size := 0.0, 0.0
				for j, x := range got {
					want := 0.0
					for _, v := range grads[trained.Use(p.Weight)] {
						want += r.Vals[v][j/p.Cols][j%p.Cols]
					}
					diff, size = diff+(float64(x)-want)*(float64(x)-want), size+want*want
				}
				if e := math.Sqrt(diff / size); !(e < 1e-5) {
					t.Errorf("%s, walks of %d: %s: the gradient is off by %.2g", name, walk, p.Label(), e)
				}
				if len(first) <= i {
					first = append(first, append([]float32(nil), got...))
				}
				for j := range got {
					if math.Float32bits(got[j]) != math.Float32bits(first[i][j]) {
						t.Fatalf("%s, walks of %d: %s: element %d is %v, in one walk %v", name, walk, p.Label(), j, got[j], first[i][j])
					}
				}
			}
		}
	}
}

// Logits are never whole in memory: what a plan of a large vocabulary holds of them has no more rows than a part.
func TestLogitsInParts(t *testing.T) {
	const leaf, vocab, hidden = 512, 151936, 128
	x, err := cost.OfShape("toy", synth.Shape{Arch: "llama", Layers: 1, Hidden: hidden, FFN: 256, Heads: 4, KVHeads: 2, HeadDim: 32, Vocab: vocab, Context: leaf, RopeBase: 1e4, Tied: true}, "F32")
	if err != nil {
		t.Fatal(err)
	}
	for _, lora := range []*LoRA{nil, {Rank: 4, Alpha: 8, Targets: regexp.MustCompile("attn_q")}} {
		p, err := PlanOf(clone(x.Graph), NetOptions{Leaf: leaf, Leaves: 2, Type: quant.BF16, Table: table(), LoRA: lora}, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		rows := 0
		for _, b := range p.Bufs {
			if n := b.Space.Rows(p.MaxRows, p.MaxPicks); b.Width == vocab {
				rows = max(rows, n)
			}
		}
		taps := 0
		for _, x := range p.Taps {
			taps += p.Bufs[x.Op.Buf].Bytes
		}
		if whole := 4 * 2 * leaf * vocab; rows != step.LossRows || p.Arena-taps > whole/2 {
			t.Errorf("logits of %d rows; buffers take %d bytes beside %d of gradients, whole logits %d", rows, p.Arena-taps, taps, whole)
		}
		if n := needed(p); float64(p.Arena) > 1.15*float64(n) {
			t.Errorf("buffers of %d bytes, %d are needed at once", p.Arena, n)
		}
	}
}
