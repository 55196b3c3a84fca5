package train

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"ck/internal/cost"
	"ck/internal/gguf"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/synth"
)

// allLayers is more than any model has.
const allLayers = 1000

// againCase is how a model trains; what is made again changes none of it.
type againCase struct {
	model   string
	typ     quant.Type
	balance float64
	rank    int
	dropout float64
}

// trainer trains so, on so many replicas with so many workers each.
func (c againCase) trainer(t *testing.T, replicas, workers, leaves, recompute int) *Trainer {
	t.Helper()
	get := func() *gguf.Model { return open(t, c.model) }
	if c.model == "Q4_K_M" {
		get = func() *gguf.Model { return quantized(t) }
	}
	m := get()
	opt := NetOptions{Leaf: 32, Leaves: leaves, Type: c.typ, Table: table(), Balance: c.balance, Dropout: c.dropout, Seed: 5, Recompute: recompute}
	if c.rank > 0 {
		opt.LoRA = &LoRA{Rank: c.rank, Alpha: 8, Targets: regexp.MustCompile("attn_(q|output)|ffn_(up|down)")}
	}
	x, err := NewReplicas(toyPlaces(t, replicas, workers), opt, func(opt NetOptions) (*Net, error) { return Open(m, opt) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	for _, n := range x.Nets {
		if err := n.Plan().Check(); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := NewTrainer(x.Nets[0], Options{Batch: 4, Optimizer: adamw(), Schedule: Schedule{Kind: "constant", Rate: 1e-2, Steps: 6}, CheckReplicas: 1}, x.Nets[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// Whatever is made again, by however many workers and replicas: losses, norms and checkpoints are the same, also where training goes on with another setting.
func TestAgainSameBits(t *testing.T) {
	data := batches(40, 32, 4, 6)
	for _, c := range []againCase{{"qwen3", quant.BF16, 0, 0, 0.1}, {"gemma4-kv", quant.F32, 0, 0, 0}, {"gpt-oss", quant.BF16, 0.1, 0, 0}, {"llama4", quant.F32, 0.3, 0, 0.3},
		{"phi3", quant.BF16, 0, 4, 0.2}, {"Q4_K_M", quant.F32, 0, 3, 0}} {
		var want string
		var half []byte
		for _, s := range []struct{ replicas, workers, leaves, recompute int }{{1, 1, 4, 0}, {1, 1, 4, allLayers}, {1, 3, 2, allLayers}, {1, 3, 4, 1}, {2, 2, 1, allLayers}, {2, 1, 2, 1}} {
			x, got := c.trainer(t, s.replicas, s.workers, s.leaves, s.recompute), ""
			for i, b := range data {
				step, err := x.Step(b, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got += fmt.Sprintf("%+v, ", step); i == len(data)/2-1 && s.recompute > 1 {
					half = saved(t, x)
				}
			}
			got += fmt.Sprintf("%x", sha256.Sum256(saved(t, x)))
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%+v, %+v: %s, expected %s", c, s, got, want)
			}
		}
		x := c.trainer(t, 1, 2, 4, 1)
		m, err := gguf.FromBytes("half", half)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Restore(m, State{Options: map[string]string{"lr": "0.003"}, Data: "abc"}); err != nil {
			t.Fatal(err)
		}
		for _, b := range data[x.Done:] {
			if _, err := x.Step(b, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(saved(t, x))); !strings.HasSuffix(want, got) {
			t.Errorf("%+v: what went on with another setting made another checkpoint", c)
		}
	}
}

// In models of all families, gradients of what is made again have the bits of what is kept, and plans are free of conflicts.
func TestAgainOfFamilies(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			m := open(t, name)
			rng := rand.New(rand.NewPCG(7, 9))
			var batch []Leaf
			var want [][]float32
			var arena int
			for _, recompute := range []int{0, allLayers} {
				opt := NetOptions{Leaf: 32, Leaves: 2, Type: quant.BF16, Table: table(), Team: crew(t, 2), Recompute: recompute}
				if mixed(t, m) {
					opt.Balance = 0.25
				}
				n, err := Open(m, opt)
				if err != nil {
					t.Fatal(err)
				}
				if err := n.Plan().Check(); err != nil {
					t.Fatal(err)
				}
				for len(batch) < 2 {
					batch = append(batch, randomLeaf(rng, n.G.Vocab, 32))
				}
				if _, err := n.Walk(batch, 0.02, nil); err != nil {
					t.Fatal(err)
				}
				if want == nil {
					for _, g := range n.gradients() {
						want = append(want, append([]float32(nil), g...))
					}
					arena = n.Plan().Arena
					continue
				}
				for i, g := range n.gradients() {
					for j := range g {
						if math.Float32bits(g[j]) != math.Float32bits(want[i][j]) {
							t.Fatalf("term %d: element %d is %v, of activations that were kept %v", i, j, g[j], want[i][j])
						}
					}
				}
				for i := range n.G.Steps {
					s := &n.G.Steps[i]
					if _, ok := s.Op.(step.Route); ok && strings.HasPrefix(s.Name, "again.") {
						t.Errorf("%s: experts are chosen again", s.Name)
					}
				}
				if n.Plan().Arena >= arena {
					t.Errorf("buffers take %d bytes, %d where all is kept", n.Plan().Arena, arena)
				}
			}
		})
	}
}

// needed is the most bytes of buffers that items need at once.
func needed(p *plan.Plan) (most int) {
	first, last := map[plan.BufID]int{}, map[plan.BufID]int{}
	for i := range p.Items {
		for _, o := range append(append([]plan.Operand{}, p.Items[i].In...), p.Items[i].Out...) {
			if _, ok := first[o.Buf]; !ok {
				first[o.Buf] = i
			}
			last[o.Buf] = i
		}
	}
	for _, t := range p.Taps {
		last[t.Op.Buf] = len(p.Items)
	}
	for i := range p.Items {
		n := 0
		for b := range first {
			if first[b] <= i && i <= last[b] {
				n += p.Bufs[b].Bytes
			}
		}
		most = max(most, n)
	}
	return most
}

// A layer that is made again adds its input and the gradients of its weights to the buffers, nothing else: the layers' activations share memory. There is hardly
// more of it than what is needed at once. The estimate has the memory and the work.
func TestAgainMemory(t *testing.T) {
	const leaf, leaves, hidden, batch = 512, 4, 64, 8
	forward := func(layers, recompute, workers int) (p *plan.Plan, mem Memory, ops float64) {
		x, err := cost.OfShape("toy", synth.Shape{Arch: "llama", Layers: layers, Hidden: hidden, FFN: 160, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 512, Context: leaf, RopeBase: 1e4}, "F32")
		if err != nil {
			t.Fatal(err)
		}
		opt := NetOptions{Leaf: leaf, Leaves: leaves, Type: quant.BF16, Table: table(), Recompute: recompute}
		if p, err = PlanOf(clone(x.Graph), opt, workers); err != nil {
			t.Fatal(err)
		}
		if mem, ops, err = Estimate(clone(x.Graph), opt, workers, batch, "adamw"); err != nil {
			t.Fatal(err)
		}
		if mem.Walk != int64(p.Arena) {
			t.Errorf("buffers of %d bytes, estimated %d", p.Arena, mem.Walk)
		}
		if n := needed(p); p.Arena < n || float64(p.Arena) > 1.1*float64(n) {
			t.Errorf("%d layers, %d made again, %d workers: buffers of %d bytes, %d are needed at once", layers, recompute, workers, p.Arena, n)
		}
		return p, mem, ops
	}
	taps := func(p *plan.Plan) (n int) {
		for _, x := range p.Taps {
			n += p.Bufs[x.Op.Buf].Bytes
		}
		return n
	}
	for _, workers := range []int{1, 3} {
		few, _, _ := forward(6, allLayers, workers)
		many, _, again := forward(18, allLayers, workers)
		input, weights := 4*leaf*leaves*hidden, (taps(many)-taps(few))/12
		if each := (many.Arena - few.Arena) / 12; each < input || each > input+weights {
			t.Errorf("%d workers: a layer adds %d bytes; its input takes %d, gradients %d", workers, each, input, weights)
		}
		kept, _, ops := forward(18, 0, workers)
		if kept.Arena < 4*many.Arena {
			t.Errorf("%d workers: buffers take %d bytes, %d where all is kept", workers, many.Arena, kept.Arena)
		}
		last, each, before := 0, 0, math.MaxInt
		for n := 0; n < 18; n += 3 {
			p, _, _ := forward(18, n, workers)
			count := 0
			for i := range p.Items {
				if name := p.Items[i].Name; strings.HasPrefix(name, "again.") {
					count++
					if strings.Contains(name, "ffn_down") {
						t.Errorf("%s: a layer's output is kept as the input of the next one", name)
					}
				}
			}
			if n == 3 {
				each = count
			}
			if p.Arena >= before || count-last != each || n == 3 && each < 3*12 {
				t.Errorf("%d workers, %d layers again: %d items again, of 3 layers less %d; buffers take %d bytes, of 3 layers less %d", workers, n, count, last, p.Arena, before)
			}
			last, before = count, p.Arena
		}
		if by := again / ops; by < 1.2 || by > 4.0/3 { // the forward pass is a third; ffn_down and the logits are not made again
			t.Errorf("%d workers: %.3f times the work", workers, by)
		}
	}
}
