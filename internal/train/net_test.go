package train

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/team"
	"ck/internal/testkit"
)

func crew(t testing.TB, workers int) *team.Team {
	t.Helper()
	c, err := team.New(make([]int, workers), team.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func table() *kernel.Table { return kernel.For(isa.Best(isa.Detect()), isa.Detect()) }

// open opens a reference model.
func open(t testing.TB, name string) *gguf.Model {
	t.Helper()
	path := filepath.Join(testkit.Data(t, "models/"+name), "model.gguf")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s has no GGUF file", name)
	}
	m, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// randomLeaf is a leaf with sequences of several lengths, tokens that do not count, and padding.
func randomLeaf(rng *rand.Rand, vocab, n int) Leaf {
	var l Leaf
	pos, seq := int32(0), int32(0)
	for i := range n {
		if i > 0 && rng.IntN(n/3) == 0 {
			pos, seq = 0, seq+1
		}
		l.IDs, l.Pos, l.Seq, l.Loss = append(l.IDs, int32(rng.IntN(vocab))), append(l.Pos, pos), append(l.Seq, seq), append(l.Loss, rng.IntN(4) > 0)
		if i >= n-3 {
			l.Seq[i], l.Loss[i] = -1, false
		}
		pos++
	}
	return l
}

// exact is the training graph of a model over leaves in float64.
func exact(t *testing.T, m *gguf.Model, leaves []Leaf, share float64, balance float32) (*graph.Ref, map[string][]graph.ValueID) {
	t.Helper()
	g, _, err := engine.GraphOf(m)
	if err != nil {
		t.Fatal(err)
	}
	step.Balanced(g, balance)
	n := len(leaves[0].IDs)
	grads, err := step.Train(g, n*len(leaves), n, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := graph.Input{Share: share}
	for s, l := range leaves {
		for i := range l.IDs {
			in.IDs, in.Pos, in.Seq = append(in.IDs, l.IDs[i]), append(in.Pos, l.Pos[i]), append(in.Seq, int32(1000*s)+l.Seq[i])
			in.Pick, in.Target = append(in.Pick, int32(len(in.Pick))), append(in.Target, l.target(i))
		}
	}
	by := map[string][]graph.ValueID{}
	for w, v := range grads {
		by[g.Weights[w].Label()] = v
	}
	return graph.Evaluate(g, in, func(w graph.WeightID, row int, dst []float64) {
		x, of := m.Tensor(g.Weights[w].Name), g.Weights[w]
		if of.Of > 0 && x.Rows() == 1 {
			whole := make([]float64, of.Of)
			quant.Exact(x.Type, whole, x.Reader().Row(0))
			copy(dst, whole[of.From:])
			return
		}
		quant.Exact(x.Type, dst, x.Reader().Row(of.TensorRow(row)))
	}), by
}

// mixed reports whether a model has experts.
func mixed(t *testing.T, m *gguf.Model) bool {
	t.Helper()
	g, _, err := engine.GraphOf(m)
	if err != nil {
		t.Fatal(err)
	}
	return g.Routes > 0
}

// families are models of all families that can be trained.
var families = []string{"llama-gqa", "llama-bias", "llama-spm-tied", "llama-rope-llama3", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "olmo2", "smollm3", "arcee",
	"apertus", "granite", "exaone4", "seed-oss", "ernie4_5", "hunyuan-dense", "glm4", "phi3", "phi3-longrope",
	"ernie4_5-moe", "exaone-moe", "glm4moe", "granitemoe", "hunyuan-moe", "llama4", "minimax-m2", "mixtral", "olmoe", "qwen2moe", "qwen3moe", "gpt-oss", "gemma4", "gemma4-kv", "gemma4-moe"}

// They have the losses and gradients of float64.
func TestModels(t *testing.T) {
	trained := 0
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			m := open(t, name)
			leaf, leaves := 35, 2
			if name == "llama-bias" || name == "qwen3" {
				leaf = 130 // several blocks of rows and of keys
			}
			rng := rand.New(rand.NewPCG(7, 8))
			opt := NetOptions{Leaf: leaf, Leaves: leaves, Type: quant.F32, Table: table(), Team: crew(t, 3)}
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
			var batch []Leaf
			for range leaves {
				batch = append(batch, randomLeaf(rng, n.G.Vocab, leaf))
			}
			const share = 1.0 / 50
			losses, err := n.Walk(batch, share, nil)
			if err != nil {
				t.Fatal(err)
			}
			ref, grads := exact(t, m, batch, share, float32(opt.Balance))
			want := make([]float64, leaves)
			for r, l := range ref.Vals[ref.G.Logits] {
				want[r/leaf] += l[0]
			}
			for i := range want {
				if math.Abs(losses[i]-want[i]) > 2e-5*want[i] {
					t.Errorf("leaf %d: loss %.7g, exactly %.7g", i, losses[i], want[i])
				}
			}
			if got, want := n.Balance(), balance(ref); math.Abs(got-want) > 2e-5*want || (got > 0) != mixed(t, m) {
				t.Errorf("balancing adds %v, exactly %v", got, want)
			}
			total := NewSum(n)
			total.Begin(1)
			total.Add()
			for j, got := range total.Gradients() {
				p := n.Params[j]
				diff, sum := 0.0, 0.0
				for i, got := range got {
					x := 0.0
					for _, v := range grads[p.Label()] {
						x += ref.Vals[v][i/p.Cols][i%p.Cols]
					}
					diff, sum = diff+(float64(got)-x)*(float64(got)-x), sum+x*x
				}
				if len(got) == 1 && sum < 1e-10 {
					sum = 1e-4 // a factor before a norm: nearly nothing depends on it, and its terms, which are far larger, add up to nearly nothing
				}
				if e := math.Sqrt(diff / (sum + 1e-30)); !(e < 3e-5) {
					t.Errorf("%s: the gradient is off by %.2g of %.3g", p.Label(), e, math.Sqrt(sum))
				}
			}
			trained++
		})
	}
	t.Logf("%d models", trained)
}

// The gradients of leaves are the same bits for any number of workers, and walks of single leaves, added by the tree, make those of a walk of several.
func TestSameGradients(t *testing.T) {
	for _, name := range []string{"llama-bias", "qwen3", "qwen3moe", "llama4"} {
		m := open(t, name)
		const leaf, leaves = 64, 4
		rng := rand.New(rand.NewPCG(9, 8))
		g, _, err := engine.GraphOf(m)
		if err != nil {
			t.Fatal(err)
		}
		var batch []Leaf
		for range leaves {
			batch = append(batch, randomLeaf(rng, g.Vocab, leaf))
		}
		for _, typ := range []quant.Type{quant.F32, quant.BF16} {
			var want [][]float32
			for _, c := range []struct{ workers, leaves int }{{1, 4}, {2, 4}, {3, 4}, {2, 1}, {3, 2}} {
				opt := NetOptions{Leaf: leaf, Leaves: c.leaves, Type: typ, Table: table(), Team: crew(t, c.workers)}
				if g.Routes > 0 {
					opt.Balance = 0.01
				}
				n, err := Open(m, opt)
				if err != nil {
					t.Fatal(err)
				}
				sum := NewSum(n)
				sum.Begin(leaves / c.leaves)
				for at := 0; at < leaves; at += c.leaves {
					if _, err := n.Walk(batch[at:at+c.leaves], 0.01, nil); err != nil {
						t.Fatal(err)
					}
					if err := sum.Add(); err != nil {
						t.Fatal(err)
					}
				}
				for i, got := range sum.Gradients() {
					p := n.Params[i]
					if len(want) <= i {
						want = append(want, append([]float32(nil), got...))
						continue
					}
					for j := range got {
						if math.Float32bits(got[j]) != math.Float32bits(want[i][j]) {
							t.Fatalf("%s, %v, %+v: %s: element %d is %v, with one worker and one walk %v", name, typ, c, p.Name, j, got[j], want[i][j])
						}
					}
				}
			}
		}
	}
}
