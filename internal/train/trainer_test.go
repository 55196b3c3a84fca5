package train

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/quant"
)

func adamw() Optimizer {
	return Optimizer{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Clip: 1}
}

func trainer(t *testing.T, m *gguf.Model, workers, leaf, leaves, batch, steps int, typ quant.Type) *Trainer {
	t.Helper()
	n, err := Open(m, NetOptions{Leaf: leaf, Leaves: leaves, Type: typ, Table: table(), Team: crew(t, workers)})
	if err != nil {
		t.Fatal(err)
	}
	x, err := NewTrainer(n, Options{Batch: batch, Optimizer: adamw(), Schedule: Schedule{Kind: "cosine", Rate: 3e-3, Floor: 0.1, Warmup: 2, Steps: steps}})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// batches are leaves of text that can be learned: runs of ids.
func batches(vocab, leaf, batch, steps int) (all [][]Leaf) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range steps {
		var b []Leaf
		for range batch {
			l := randomLeaf(rng, vocab, leaf)
			id := rng.IntN(vocab)
			for i := range l.IDs {
				l.IDs[i] = int32((id + i) % min(vocab, 50))
			}
			b = append(b, l)
		}
		all = append(all, b)
	}
	return all
}

// saved is a checkpoint as bytes.
func saved(t *testing.T, x *Trainer) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := x.Save(&b, State{Options: map[string]string{"lr": "0.003"}, Data: "abc"}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Whatever the workers and the walks: checkpoints are the same bytes, and so is one that was made after going on from an earlier one. The loss falls.
func TestSameCheckpoints(t *testing.T) {
	m := open(t, "qwen3")
	const leaf, batch, steps = 32, 4, 12
	data := batches(40, leaf, batch, steps)
	for _, typ := range []quant.Type{quant.F32, quant.BF16} {
		var want, half []byte
		for _, c := range []struct{ workers, leaves int }{{1, 4}, {2, 2}, {3, 1}} {
			x := trainer(t, m, c.workers, leaf, c.leaves, batch, steps, typ)
			first, last := 0.0, 0.0
			for i, b := range data {
				s, err := x.Step(b, nil)
				if err != nil {
					t.Fatal(err)
				}
				if last = s.Loss; i == 0 {
					first = last
				}
				if i == steps/2-1 && half == nil {
					half = saved(t, x)
				}
			}
			if last > 0.7*first {
				t.Errorf("%v: the loss went from %.3f to %.3f", typ, first, last)
			}
			got := saved(t, x)
			if want == nil {
				want = got
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%v, %+v: another checkpoint", typ, c)
			}
		}
		x := trainer(t, m, 2, leaf, 4, batch, steps, typ)
		c, err := gguf.FromBytes("half", half)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Restore(c, State{Options: map[string]string{"lr": "0.003"}, Data: "abc"}); err != nil {
			t.Fatal(err)
		}
		for _, b := range data[x.Done:] {
			if _, err := x.Step(b, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(saved(t, x), want) {
			t.Errorf("%v: training that went on from a checkpoint made another one", typ)
		}
	}
}

// What does not fit a checkpoint is named, and damage is found, wherever it is.
func TestCheckpointRefused(t *testing.T) {
	m := open(t, "qwen2")
	x := trainer(t, m, 1, 32, 1, 1, 5, quant.F32)
	b := saved(t, x)
	for what, c := range map[string]struct {
		state State
		says  string
	}{
		"option": {State{Options: map[string]string{"lr": "0.1"}, Data: "abc"}, "--lr: the checkpoint has \"0.003\""},
		"data":   {State{Options: map[string]string{"lr": "0.003"}, Data: "xyz"}, "the data"},
	} {
		c2, err := gguf.FromBytes("c", b)
		if err != nil {
			t.Fatal(err)
		}
		var mismatch *MismatchError
		if err := x.Restore(c2, c.state); !errors.As(err, &mismatch) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 40 {
		broken := bytes.Clone(b)
		broken[len(b)/3+rng.IntN(len(b)*2/3)] ^= 1 << rng.IntN(8)
		c, err := gguf.FromBytes("c", broken)
		if err == nil {
			err = x.Restore(c, State{Options: map[string]string{"lr": "0.003"}, Data: "abc"})
		}
		if err != nil {
			found++
		}
	}
	if found < 38 { // padding between tensors is nobody's
		t.Errorf("%d of 40 damages were found", found)
	}
}

// Schedules, by hand.
func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		s    Schedule
		want []float64
	}{
		{Schedule{Kind: "constant", Rate: 2, Warmup: 2, Steps: 4}, []float64{1, 2, 2, 2}},
		{Schedule{Kind: "linear", Rate: 2, Steps: 4}, []float64{2, 1.5, 1, 0.5}},
		{Schedule{Kind: "cosine", Rate: 2, Floor: 0.5, Warmup: 1, Steps: 5}, []float64{2, 2, 1 + (2+math.Sqrt2)/4, 1.5, 1 + (2-math.Sqrt2)/4}},
		{Schedule{Kind: "wsd", Rate: 2, Steps: 10, End: 0.2}, []float64{2, 2, 2, 2, 2, 2, 2, 2, 2, 1}},
	} {
		for n, want := range c.want {
			if got := c.s.At(n); math.Abs(got-want) > 1e-12 {
				t.Errorf("%+v: step %d has %v, expected %v", c.s, n, got, want)
			}
		}
	}
	for _, s := range []Schedule{{Kind: "x", Rate: 1, Steps: 1}, {Kind: "linear", Steps: 1}, {Kind: "linear", Rate: 1}, {Kind: "linear", Rate: math.NaN(), Steps: 1}, {Kind: "wsd", Rate: 1, Steps: 2, End: 2},
		{Kind: "linear", Rate: 1, Steps: 2, Warmup: 3}} {
		if s.Check() == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}

// AdamW as its authors write it, in float64; clipping scales all gradients by one factor.
func TestAdamW(t *testing.T) {
	m := open(t, "qwen2")
	x := trainer(t, m, 2, 32, 1, 1, 3, quant.F32)
	before := make([][]float64, len(x.Net.Params))
	m1, m2 := make([][]float64, len(before)), make([][]float64, len(before))
	for i, p := range x.Net.Params {
		m1[i], m2[i] = make([]float64, len(p.Value)), make([]float64, len(p.Value))
		for _, v := range p.Value {
			before[i] = append(before[i], float64(v))
		}
	}
	o := adamw()
	for step, b := range batches(40, 32, 1, 3) {
		s, err := x.Step(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		scale, norm := min(1, o.Clip/s.Norm), 0.0
		for i, g := range x.tops.whole[0] {
			p := x.Net.Params[i]
			for j, v := range g {
				norm += float64(v) * float64(v)
				d := float64(v) * scale
				m1[i][j] = o.Beta1*m1[i][j] + (1-o.Beta1)*d
				m2[i][j] = o.Beta2*m2[i][j] + (1-o.Beta2)*d*d
				n := float64(step + 1)
				if p.Rows > 1 {
					before[i][j] -= s.Rate * o.Decay * before[i][j]
				}
				before[i][j] -= s.Rate * m1[i][j] / (1 - math.Pow(o.Beta1, n)) / (math.Sqrt(m2[i][j]/(1-math.Pow(o.Beta2, n))) + o.Eps)
				if e := math.Abs(before[i][j] - float64(p.Value[j])); e > 1e-5*s.Rate*n+3e-7*math.Abs(before[i][j])*n {
					t.Fatalf("step %d: %s: element %d is %v, expected %v", step, p.Name, j, p.Value[j], before[i][j])
				}
			}
		}
		if math.Abs(math.Sqrt(norm)-s.Norm) > 1e-9*s.Norm {
			t.Errorf("a norm of %v, expected %v", s.Norm, math.Sqrt(norm))
		}
	}
}

// A step without numbers changes nothing and names the first weight that is none, the loss, or a gradient. What follows has the bits that it would have had
// without it.
func TestBadStep(t *testing.T) {
	m := open(t, "qwen2")
	nan := float32(math.NaN())
	for i, what := range []float32{float32(math.Inf(1)), nan} {
		data := batches(40, 32, 2, 4)
		x, calm := trainer(t, m, 1, 32, 1, 2, 4, quant.F32), trainer(t, m, 1, 32, 1, 2, 4, quant.F32)
		for _, b := range data[:2] {
			for _, x := range []*Trainer{x, calm} {
				if _, err := x.Step(b, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		p := x.Net.Params[1+i]
		last := x.Net.Params[len(x.Net.Params)-1]
		kept, keptLast := p.Value[3], last.Value[0]
		p.Value[3], last.Value[0] = what, what
		if err := x.Net.Renew(); err != nil {
			t.Fatal(err)
		}
		before := saved(t, x)
		var bad *BadStepError
		if _, err := x.Step(data[2], nil); !errors.As(err, &bad) || bad.Step != 3 || bad.Where != p.Name {
			t.Errorf("%v, expected %s of step 3", err, p.Name)
		}
		if !bytes.Equal(before, saved(t, x)) {
			t.Error("a bad step changed something")
		}
		p.Value[3], last.Value[0] = kept, keptLast
		if err := x.Net.Renew(); err != nil {
			t.Fatal(err)
		}
		for _, x := range []*Trainer{x, calm} {
			if _, err := x.Step(data[3], nil); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(saved(t, calm), saved(t, x)) {
			t.Error("a step behind a bad one has other bits")
		}
	}
	x := trainer(t, m, 1, 32, 1, 1, 3, quant.F32)
	of := make([][]float32, len(x.Net.Params))
	for i, p := range x.Net.Params {
		of[i] = make([]float32, len(p.Value))
	}
	of[2][1], of[4][0] = nan, nan
	for _, c := range []struct {
		s    Step
		want string
	}{{Step{Loss: 1, Norm: math.NaN()}, "the gradient of " + x.Net.Params[4].Name}, {Step{Loss: math.Inf(1), Norm: math.NaN()}, "the loss"}} {
		var bad *BadStepError
		x.tops.whole[0] = of
		if err := x.check(c.s); !errors.As(err, &bad) || bad.Where != c.want {
			t.Errorf("%v, expected %s", err, c.want)
		}
	}
}

// What is estimated is what a net takes, part by part, with all weights and with adapters; the plan is the one that is printed.
func TestEstimate(t *testing.T) {
	for _, name := range []string{"qwen2", "llama-rope-llama3"} {
		for _, rank := range []int{0, 4} {
			m := open(t, name)
			lora := func() *LoRA {
				if rank == 0 {
					return nil
				}
				return &LoRA{Rank: rank, Alpha: 8, Targets: regexp.MustCompile("attn_q|ffn_up")}
			}
			const leaf, leaves, batch, workers = 32, 2, 8, 2
			opt := NetOptions{Leaf: leaf, Leaves: leaves, Type: quant.BF16, Table: table(), Team: crew(t, workers), LoRA: lora()}
			n, err := Open(m, opt)
			if err != nil {
				t.Fatal(err)
			}
			x, err := NewTrainer(n, Options{Batch: batch, Optimizer: adamw(), Schedule: Schedule{Kind: "constant", Rate: 1e-3, Steps: 3}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := x.Step(batches(40, leaf, batch, 1)[0], nil); err != nil {
				t.Fatal(err)
			}
			opt.LoRA = lora()
			g, _, err := engine.GraphOf(m)
			if err != nil {
				t.Fatal(err)
			}
			mem, ops, err := Estimate(g, opt, workers, batch, "adamw")
			if err != nil {
				t.Fatal(err)
			}
			moments, values := 0, 0
			for i, p := range n.Params {
				values += 4 * len(p.Value)
				moments += 4 * (len(x.Moments[i].M) + len(x.Moments[i].V))
			}
			sums := 0
			for _, room := range append(slices.Clone(x.sums[0].spare), x.sums[0].waits...) {
				for _, v := range room {
					sums += 4 * len(v)
				}
			}
			if mem.Moments != int64(moments) || rank == 0 && mem.Values != int64(values) || rank > 0 && mem.Values < int64(values) || mem.Sums != int64(sums) || mem.Walk != int64(n.Plan().Arena) {
				t.Errorf("%s, rank %d: %+v; held: values %d, moments %d, sums %d, buffers %d", name, rank, mem, values, moments, sums, n.Plan().Arena)
			}
			products := 0.0 // of every matrix there are three, or two where it is frozen; attention comes to them
			for i, w := range n.G.Weights {
				if id := graph.WeightID(i); !w.Turned && n.G.Roles(id)[graph.Matrix] {
					each := 6.0
					if rank > 0 && !strings.Contains(w.Name, "lora") {
						each = 4
					}
					products += each * float64(w.Rows) * float64(w.Cols) * leaf * batch
				}
			}
			if got := n.Operations() * batch / leaves; got != ops || ops < 0.8*products || ops > 1.3*products {
				t.Errorf("%s, rank %d: %g operations of a step, estimated %g, products %g", name, rank, got, ops, products)
			}
			opt.LoRA = lora()
			if g, _, err = engine.GraphOf(m); err != nil {
				t.Fatal(err)
			}
			p, err := PlanOf(g, opt, workers)
			if err != nil {
				t.Fatal(err)
			}
			var a, b bytes.Buffer
			if p.Explain(&a) != nil || n.Plan().Explain(&b) != nil || a.String() != b.String() || !strings.Contains(a.String(), "cross-entropy") {
				t.Errorf("%s: another plan:\n%s\n%s", name, a.String(), b.String())
			}
		}
	}
}

// A model that is written is read as the values that it has, in its own types; what is not trained stays.
func TestWriteModel(t *testing.T) {
	for _, name := range []string{"llama-rope-llama3", "phi3"} {
		t.Run(name, func(t *testing.T) { writeModel(t, open(t, name)) })
	}
}

func writeModel(t *testing.T, m *gguf.Model) {
	x := trainer(t, m, 2, 32, 1, 1, 2, quant.F32)
	for _, b := range batches(40, 32, 1, 2) {
		if _, err := x.Step(b, nil); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := x.Net.WriteModel(&b, m); err != nil {
		t.Fatal(err)
	}
	out, err := gguf.FromBytes("out", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	again, err := Open(out, x.Net.opt)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for i, p := range x.Net.Params {
		was := make([]float32, len(p.Value))
		if err := load(m, p.Weight, was); err != nil {
			t.Fatal(err)
		}
		row := make([]byte, m.Tensor(p.Name).Type.RowBytes(len(was))) // rows are whole blocks
		want := make([]float32, len(was))
		if err := quant.Quantize(m.Tensor(p.Name).Type, row, p.Value, nil); err != nil {
			t.Fatal(err)
		}
		quant.Decode(m.Tensor(p.Name).Type, want, row)
		for j, v := range again.Params[i].Value {
			if v != want[j] {
				t.Fatalf("%s: element %d is %v, expected %v", p.Name, j, v, want[j])
			}
			if v != was[j] {
				changed++
			}
		}
	}
	if changed == 0 || len(out.Tensors) != len(m.Tensors) {
		t.Errorf("%d values changed; %d tensors of %d", changed, len(out.Tensors), len(m.Tensors))
	}
}

// Differences of a mixture are taken where rows choose the same experts; balancing counts.
func TestCheckGradientsOfExperts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 9))
	n, err := Open(open(t, "mixtral"), NetOptions{Leaf: 32, Leaves: 1, Type: quant.F32, Table: table(), Team: crew(t, 1), Balance: 3})
	if err != nil {
		t.Fatal(err)
	}
	sure := 0
	if err := n.CheckGradients([]Leaf{randomLeaf(rng, n.G.Vocab, 32)}, 1, func(c GradientCheck) error {
		if c.Bad() {
			t.Errorf("%+v", c)
		}
		if c.Noise < 0.1 {
			sure++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if sure < len(n.Params)/2 {
		t.Errorf("%d of %d gradients could be compared", sure, len(n.Params))
	}
}

// Gradients that are wrong are found; what is estimated is what is taken.
func TestCheckGradients(t *testing.T) {
	m := open(t, "qwen3")
	rng := rand.New(rand.NewPCG(5, 8))
	opt := NetOptions{Leaf: 32, Leaves: 2, Type: quant.F32, Table: table(), Team: crew(t, 2)}
	n, err := Open(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	leaves := []Leaf{randomLeaf(rng, n.G.Vocab, 32), randomLeaf(rng, n.G.Vocab, 32)}
	checked := 0
	if err := n.CheckGradients(leaves, 1, func(c GradientCheck) error {
		if c.Bad() {
			t.Errorf("%+v", c)
		}
		if c.Gradient = -c.Gradient; c.Noise < 0.1 {
			if c.Error = 2; c.Bad() {
				checked++
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if checked < len(n.Params)/2 {
		t.Errorf("%d of %d would be found", checked, len(n.Params))
	}
	g, _, err := engine.GraphOf(m)
	if err != nil {
		t.Fatal(err)
	}
	uneven := opt
	uneven.Balance = 0.1
	if _, err := Open(m, uneven); !errors.Is(err, ErrNoExperts) {
		t.Errorf("%v, expected %v", err, ErrNoExperts)
	}
	mem, ops, err := Estimate(g, opt, 2, 4, "adamw")
	if err != nil {
		t.Fatal(err)
	}
	values, panels := int64(0), int64(0)
	for _, p := range n.Params {
		values += 4 * int64(len(p.Value))
		for _, s := range p.slots {
			panels += int64(s.PackedBytes())
		}
	}
	if mem.Values != values || mem.Panels != panels || mem.Walk != int64(n.Plan().Arena) || mem.Moments != 2*values || ops <= 0 {
		t.Errorf("%+v; values take %d, panels %d, buffers %d", mem, values, panels, n.Plan().Arena)
	}
}

// checkpoint opens one.
func checkpoint(t *testing.T, b []byte) *gguf.Model {
	t.Helper()
	m, err := gguf.FromBytes("checkpoint", b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What is held out is judged by the forward alone: the same losses, no item behind them, and the steps that follow have the bits that they would have had.
func TestJudgedForward(t *testing.T) {
	for _, name := range []string{"qwen3", "mixtral"} {
		m := open(t, name)
		for _, workers := range []int{1, 3} {
			x, calm := trainer(t, m, workers, 32, 2, 4, 9, quant.BF16), trainer(t, m, workers, 32, 2, 4, 9, quant.BF16)
			data := batches(40, 32, 4, 3)
			var all []float64
			for at := 0; at < 4; at += 2 {
				l, err := x.Net.Walk(data[0][at:at+2], 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, l...)
			}
			items, last := x.Net.walk.Plan.Items, 0
			x.Net.Look(func(w, i int) {
				if w == 0 && i < len(items) {
					last = i
				}
			})
			got, targets, err := x.Evaluate(data[0], nil)
			if err != nil {
				t.Fatal(err)
			}
			x.Net.Look(nil)
			want := 0.0
			for _, l := range all {
				want += l
			}
			if want /= float64(targets); math.Float64bits(got) != math.Float64bits(want) {
				t.Errorf("%s: a loss of %v, walks have %v", name, got, want)
			}
			if it := &items[last]; it.Name != "loss" || last > 2*len(items)/3 {
				t.Errorf("%s: the last of %d items is %d, %s %s", name, len(items), last, it.Do, it.Name)
			}
			for _, b := range data {
				for _, y := range []*Trainer{x, calm} {
					if _, err := y.Step(b, nil); err != nil {
						t.Fatal(err)
					}
				}
				if _, _, err := x.Evaluate(b, nil); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(saved(t, x), saved(t, calm)) {
				t.Errorf("%s: steps behind what was judged have other bits", name)
			}
		}
	}
}
