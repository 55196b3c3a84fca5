package train

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"ck/internal/adapter"
	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// adapted is a net of a model with adapters.
func adapted(t *testing.T, m *gguf.Model, workers, leaves int, typ quant.Type) *Net {
	t.Helper()
	n, err := Open(m, NetOptions{Leaf: 32, Leaves: leaves, Type: typ, Table: table(), Team: crew(t, workers),
		LoRA: &LoRA{Rank: 6, Alpha: 9, Targets: regexp.MustCompile(`attn_(q|output)|ffn_down`), Seed: 4}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func quantized(t *testing.T) *gguf.Model {
	t.Helper()
	m, err := gguf.Open(filepath.Join(testkit.Data(t, "models/kq-llama"), "Q4_K_M.gguf"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// Adapters train beside frozen weights, quantized ones too: at first they change nothing, their gradients are those of differences, the loss falls, and the
// merged model has the loss that the adapted one has. The file of adapters reads back.
func TestLoRA(t *testing.T) {
	matrices := map[string]int{"qwen3": 6, "Q4_K_M": 6, "phi3": 8} // of a layer: attn_qkv of phi3 has one A and three parts of B
	for name, m := range map[string]*gguf.Model{"qwen3": open(t, "qwen3"), "Q4_K_M": quantized(t), "phi3": open(t, "phi3")} {
		n := adapted(t, m, 2, 2, quant.F32)
		plain, err := Open(m, NetOptions{Leaf: 32, Leaves: 2, Type: quant.F32, Table: table(), Team: n.opt.Team})
		if err != nil {
			t.Fatal(err)
		}
		batch := batches(40, 32, 2, 1)[0]
		loss := func(n *Net) float64 {
			l, err := n.Walk(batch, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			return l[0] + l[1]
		}
		first := loss(n)
		if want := loss(plain); math.Abs(first-want) > 1e-6*want {
			t.Errorf("%s: a loss of %v with adapters that add nothing, %v without", name, first, want)
		}
		if len(n.Params) == 0 || len(n.Params)%matrices[name] != 0 {
			t.Errorf("%s: %d matrices of adapters", name, len(n.Params))
		}
		x, err := NewTrainer(n, Options{Batch: 2, Optimizer: adamw(), Schedule: Schedule{Kind: "constant", Rate: 1e-2, Steps: 30}})
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			if _, err := x.Step(batch, nil); err != nil {
				t.Fatal(err)
			}
		}
		last := loss(n)
		if last > 0.9*first {
			t.Errorf("%s: the loss went from %v to %v", name, first, last)
		}
		if err := n.CheckGradients(batch, 1, func(c GradientCheck) error {
			if c.Bad() {
				t.Errorf("%s: %+v", name, c)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		a, err := n.Adapter(m)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "adapter.gguf")
		var b bytes.Buffer
		if err := a.WriteGGUF(&b, quant.F32); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		read, err := adapter.ReadGGUF(path, m)
		if err != nil {
			t.Fatal(err)
		}
		if len(read.Targets) != len(a.Targets) || len(read.Targets)*matrices[name] != 3*len(n.Params) || read.Targets[0].Rank != 6 {
			t.Errorf("%s: %d adapters of %d", name, len(read.Targets), len(a.Targets))
		}
		b.Reset()
		if err := Merge(&b, m, read, quant.F32); err != nil {
			t.Fatal(err)
		}
		merged, err := gguf.FromBytes("merged", b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		whole, err := Open(merged, plain.opt)
		if err != nil {
			t.Fatal(err)
		}
		tolerance := 1e-5
		if m.Tensor("blk.0.ffn_down.weight").Type == quant.BF16 || m.Tensor("blk.0.ffn_down.weight").Type == quant.F16 {
			tolerance = 2e-2 // the merged weights are rounded to it
		}
		if got := loss(whole); math.Abs(got-last) > tolerance*last {
			t.Errorf("%s: the merged model has a loss of %v, the adapted %v", name, got, last)
		}
	}
}

// The product counts alpha/rank or alpha/sqrt(rank) times; the adapter says which, and what is merged computes what the adapted net does: each matrix has its
// own A and B, also where others have the same shape.
func TestLoRAScales(t *testing.T) {
	m := open(t, "qwen2")
	for _, root := range []bool{false, true} {
		lora := &LoRA{Rank: 9, Alpha: 6, RankRoot: root, Targets: regexp.MustCompile(`attn_|ffn_`), Seed: 4}
		if want := map[bool]float64{false: 6.0 / 9, true: 2}[root]; math.Abs(lora.By()-want) > 1e-12 {
			t.Errorf("root %v: counts %v times, want %v", root, lora.By(), want)
		}
		opt := NetOptions{Leaf: 32, Leaves: 1, Type: quant.F32, Table: table(), Team: crew(t, 1)}
		adapting := opt
		adapting.LoRA = lora
		n, err := Open(m, adapting)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(3, 1))
		for _, p := range n.Params {
			for i := range p.Value {
				p.Value[i] = float32(rng.NormFloat64()) * 0.05
			}
		}
		if err := n.Renew(); err != nil {
			t.Fatal(err)
		}
		a, err := n.Adapter(m)
		if err != nil {
			t.Fatal(err)
		}
		if a.Alpha != 6 || a.RSLoRA != root {
			t.Errorf("root %v: an adapter of alpha %v, root %v", root, a.Alpha, a.RSLoRA)
		}
		merged, err := a.Merge(m, func(*gguf.Tensor) quant.Type { return quant.F32 })
		if err != nil {
			t.Fatal(err)
		}
		whole, err := Open(merged, opt)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := Open(m, opt)
		if err != nil {
			t.Fatal(err)
		}
		var losses []float64
		for _, n := range []*Net{n, whole, plain} {
			l, err := n.Losses(batches(40, 32, 1, 1)[0], nil)
			if err != nil {
				t.Fatal(err)
			}
			losses = append(losses, l[0])
		}
		if math.Abs(losses[0]-losses[1]) > 1e-5*losses[1] || math.Abs(losses[0]-losses[2]) < 1e-3*losses[2] {
			t.Errorf("root %v: losses of the adapted net, the merged model and the plain one are %v", root, losses)
		}
	}
}

// Adapters have the same bits for any number of workers and walks.
func TestLoRASameBits(t *testing.T) {
	m := quantized(t)
	data := batches(40, 32, 4, 5)
	var want []byte
	for _, c := range []struct{ workers, leaves int }{{1, 4}, {3, 1}, {2, 2}} {
		n := adapted(t, m, c.workers, c.leaves, quant.BF16)
		x, err := NewTrainer(n, Options{Batch: 4, Optimizer: adamw(), Schedule: Schedule{Kind: "linear", Rate: 1e-2, Steps: 5}})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range data {
			if _, err := x.Step(b, nil); err != nil {
				t.Fatal(err)
			}
		}
		got := saved(t, x)
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%+v: another checkpoint", c)
		}
	}
}

// Targets without a match are refused; what adapters take is estimated.
func TestAdapterTargets(t *testing.T) {
	m := open(t, "qwen3")
	n := adapted(t, m, 1, 1, quant.F32)
	_, err := Open(m, NetOptions{Leaf: 32, Leaves: 1, Type: quant.F32, Table: table(), Team: crew(t, 1), LoRA: &LoRA{Rank: 2, Alpha: 2, Targets: regexp.MustCompile("nothing")}})
	var none *NoTargetError
	if !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
	g, _, err := engine.GraphOf(m)
	if err != nil {
		t.Fatal(err)
	}
	opt := n.opt
	opt.LoRA = &LoRA{Rank: 6, Alpha: 9, Targets: n.opt.LoRA.Targets}
	mem, _, err := Estimate(g, opt, 1, 1, "adamw")
	if err != nil {
		t.Fatal(err)
	}
	trained := int64(0)
	for _, p := range n.Params {
		trained += 4 * int64(len(p.Value))
	}
	if mem.Moments != 2*trained || mem.Walk != int64(n.Plan().Arena) {
		t.Errorf("%+v: %d bytes are trained, buffers take %d", mem, trained, n.Plan().Arena)
	}
}
