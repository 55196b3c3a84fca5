package train

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ck/internal/graph"
	"ck/internal/kv"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/walk"
)

// Whatever the replicas, their workers and the walks, and where a run went on from a checkpoint: training with dropout makes the same bytes, of all weights and
// of adapters. Another seed makes others. What is held out is judged without dropout.
func TestSameDropout(t *testing.T) {
	const leaf, batch, steps = 16, 8, 6
	data := batches(toyShape.Vocab, leaf, batch, steps)
	val := batches(toyShape.Vocab, leaf, 8, 1)[0]
	state := State{Options: map[string]string{"lr": "0.003"}, Data: "abc"}
	seen := map[string]string{}
	for _, rank := range []int{0, 3} {
		var want, half []byte
		options := func(leaves int) NetOptions {
			opt := NetOptions{Leaf: leaf, Leaves: leaves, Type: quant.F32, Table: table(), Dropout: 0.2, Seed: 5}
			if rank > 0 {
				opt.LoRA = &LoRA{Rank: rank, Alpha: 60, Targets: regexp.MustCompile("attn_(q|k)|ffn"), Seed: 5}
			}
			return opt
		}
		run := func(opt NetOptions, replicas, workers, from int) []byte {
			x, y := toyTrainerOf(t, toyPlaces(t, replicas, workers), batch, opt)
			defer y.Close()
			if from > 0 {
				if err := x.Restore(checkpoint(t, half), state); err != nil {
					t.Fatal(err)
				}
			}
			for i, b := range data[from:] {
				if from+i == steps/2 && half == nil {
					half = saved(t, x)
				}
				if _, err := x.Step(b, nil); err != nil {
					t.Fatal(err)
				}
			}
			return saved(t, x)
		}
		for i, c := range []struct{ replicas, workers, leaves, from int }{
			{1, 1, 8, 0}, {1, 2, 4, 0}, {1, 3, 2, 0}, {1, 2, 1, 0}, {2, 1, 1, 0}, {2, 3, 4, 0}, {4, 2, 2, 0},
			{4, 1, 1, 0}, {1, 2, 8, steps / 2}, {4, 1, 2, steps / 2}} {
			got := run(options(c.leaves), c.replicas, c.workers, c.from)
			if i == 0 {
				want = got
			}
			if !bytes.Equal(got, want) {
				t.Errorf("rank %d, %+v: another checkpoint", rank, c)
			}
		}
		for what, change := range map[string]func(*NetOptions){
			"dropout": func(*NetOptions) {}, "no dropout": func(o *NetOptions) { o.Dropout = 0 }, "another seed": func(o *NetOptions) { o.Seed = 6 },
			"another share": func(o *NetOptions) { o.Dropout = 0.3 },
		} {
			opt := options(8)
			change(&opt)
			sum := fmt.Sprintf("%x", sha256.Sum256(run(opt, 1, 2, 0)))
			if other := seen[sum]; other != "" {
				t.Errorf("rank %d: %s makes the bytes of %s", rank, what, other)
			}
			seen[sum] = what
		}
		judge := func(dropout float64) float64 {
			opt := options(2)
			opt.Dropout = dropout
			x, y := toyTrainerOf(t, toyPlaces(t, 1, 2), batch, opt)
			defer y.Close()
			if err := x.Restore(checkpoint(t, want), state); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Step(data[0], nil); err != nil { // which draws
				t.Fatal(err)
			}
			if err := x.Restore(checkpoint(t, want), state); err != nil {
				t.Fatal(err)
			}
			loss, _, err := x.Evaluate(val, nil)
			if err != nil {
				t.Fatal(err)
			}
			return loss
		}
		if a, b := judge(0.2), judge(0); math.Float64bits(a) != math.Float64bits(b) {
			t.Errorf("rank %d: what is held out has a loss of %v with dropout, %v without", rank, a, b)
		}
	}
}

// Without dropout the plan has none; with it one of the embedding and one of each block, with its backward. Of gemma4 the embeddings of layers make a third
// block.
func TestDropoutOfModels(t *testing.T) {
	for _, c := range []struct {
		model string
		layer int // places in a layer
	}{{"llama-bias", 2}, {"qwen3", 2}, {"olmo2", 2}, {"granite", 2}, {"gemma4", 3}, {"gemma4-moe", 2}, {"qwen2moe", 2}, {"phi3", 2}} {
		m := open(t, c.model)
		items := func(opt NetOptions) (n int) {
			x, err := Open(m, opt)
			if err != nil {
				t.Fatalf("%s: %v", c.model, err)
			}
			if err := x.Plan().Check(); err != nil {
				t.Fatalf("%s: %v", c.model, err)
			}
			var b strings.Builder
			if err := x.Plan().Explain(&b); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(b.String(), "dropout"); n > 0 && opt.Dropout == 0 {
				t.Errorf("%s: the plan has dropout %d times", c.model, n)
			}
			places := map[int]int{}
			for i := range x.Plan().Items {
				if op, ok := x.Plan().Items[i].Op.(step.Dropout); ok {
					n++
					places[op.Place]++
				}
			}
			for i := range places { // each once forward, and backward but where no weight that is trained is behind
				if places[i] > 2 {
					t.Errorf("%s: place %d has %d items", c.model, i, places[i])
				}
			}
			if opt.LoRA != nil && len(places) != len(opt.LoRA.adapters) {
				t.Errorf("%s: %d places of %d adapters", c.model, len(places), len(opt.LoRA.adapters))
			}
			return n
		}
		opt := NetOptions{Leaf: 32, Leaves: 1, Type: quant.BF16, Table: table(), Team: crew(t, 2)}
		arch, _, _ := m.KV.String("general.architecture")
		layers, _, err := m.KV.Int(arch + ".block_count")
		if err != nil {
			t.Fatal(err)
		}
		if items(opt) != 0 {
			t.Errorf("%s", c.model)
		}
		opt.Dropout = 0.1
		if got, want := items(opt), 2*(1+c.layer*int(layers)); got != want {
			t.Errorf("%s: %d items, want %d", c.model, got, want)
		}
		opt.LoRA = &LoRA{Rank: 2, Alpha: 2, Targets: regexp.MustCompile("attn_(q|k|v|output|qkv)")}
		items(opt)
	}
}

// Adapters are W*x + by * B*(A*dropout(x)), by a plain loop in float64; losses and gradients of a walk are those of float64, with the masks of its leaves.
func TestDropoutOfAdapters(t *testing.T) {
	const leaf, rows, first, done = 8, 16, 6, 9
	g := newToy(8)
	x := g.do(step.Embed{}, 12, nil, g.weight(g.Vocab, 12))
	x = g.do(step.Add{}, 12, []graph.ValueID{x, g.do(step.Activate{}, 12, []graph.ValueID{g.linear(x, 12, false)})})
	g.end(x, true, 0)
	m := g.values()
	lora := &LoRA{Rank: 3, Alpha: 4, Targets: regexp.MustCompile("^w2$"), Seed: 1}
	opt := NetOptions{Leaf: leaf, Leaves: rows / leaf, Type: quant.F32, Table: table(), Team: crew(t, 2), LoRA: lora, Dropout: 0.4, Seed: 77}
	n, err := NewNet(g.Graph, opt, func(w graph.Weight, dst []float32) error {
		for i, x := range m[g.Use(w)] {
			dst[i] = float32(x)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 2))
	for _, p := range n.Params {
		for i := range p.Value {
			p.Value[i] = float32(rng.NormFloat64())
		}
	}
	if err := n.Renew(); err != nil {
		t.Fatal(err)
	}
	in := graph.Input{Share: 0.1, Draw: graph.Draw{On: true, Seed: 77, Step: done, Row: first * leaf}}
	var leaves []Leaf
	for range rows / leaf {
		l := randomLeaf(rng, g.Vocab, leaf)
		leaves = append(leaves, l)
		for i := range l.IDs {
			in.IDs, in.Pos, in.Seq = append(in.IDs, l.IDs[i]), append(in.Pos, l.Pos[i]), append(in.Seq, l.Seq[i])
			in.Pick, in.Target = append(in.Pick, int32(len(in.Pick))), append(in.Target, l.target(i))
		}
	}
	r := graph.Evaluate(n.G, in, func(w graph.WeightID, row int, dst []float64) {
		x := n.G.Weights[w]
		v := n.values[slices.IndexFunc(n.G.Weights, func(o graph.Weight) bool { return o.Name == x.Name })]
		for i := range dst {
			if v == nil {
				dst[i] = float64(float32(m[w][row*len(dst)+i]))
				continue
			}
			dst[i] = float64(v[row*len(dst)+i])
		}
	})
	n.draw(done, first)
	losses, err := n.Walk(leaves, in.Share, nil)
	if err != nil {
		t.Fatal(err)
	}
	exactly := make([]float64, len(leaves))
	for i, l := range r.Vals[n.G.Logits] {
		exactly[i/leaf] += l[0]
	}
	for i := range losses {
		if math.Abs(losses[i]-exactly[i]) > 1e-5*exactly[i] {
			t.Errorf("leaf %d: a loss of %v, exactly %v", i, losses[i], exactly[i])
		}
	}
	drops := 0
	for _, s := range n.G.Steps {
		if _, ok := s.Op.(step.Dropout); ok && !strings.HasPrefix(s.Name, "d.") {
			drops++
			plainAdapter(t, n, r, s, m[1])
		}
	}
	if drops != 1 {
		t.Errorf("%d places of dropout", drops)
	}
	s := NewSum(n)
	s.Begin(1)
	s.Add()
	for i, got := range s.Gradients() {
		p := n.Params[i]
		for j, x := range got {
			want := r.Vals[p.gradients[0]][j/p.Cols][j%p.Cols]
			if math.Abs(float64(x)-want) > 1e-5*(1+math.Abs(want)) {
				t.Fatalf("%s: element %d of the gradient is %v, exactly %v", p.Name, j, x, want)
			}
		}
	}
}

// plainAdapter holds an adapter's product against the formula, with the mask that dropout s drew.
func plainAdapter(t *testing.T, n *Net, r *graph.Ref, s graph.Step, w []float64) {
	t.Helper()
	out, ok := n.G.Find("v1") // of the matmul
	if !ok {
		t.Fatal("no product")
	}
	a, b := n.Params[0].Value, n.Params[1].Value
	if n.Params[0].Name != "w2"+step.AdapterA {
		a, b = b, a
	}
	zeros := 0
	for row, x := range r.Vals[s.In[0]] {
		var kept [12]float64 // x * mask / (1 - p)
		for k := range x {
			if r.Vals[s.Out[0]][row][k] != 0 {
				kept[k] = x[k] / (1 - 0.4)
			} else {
				zeros++
			}
		}
		for o := range 12 {
			sum := 0.0
			for k := range 12 {
				sum += float64(float32(w[12*o+k])) * x[k]
				for j := range 3 {
					sum += 4.0 / 3 * float64(b[3*o+j]) * float64(a[12*j+k]) * kept[k]
				}
			}
			if got := r.Vals[out][row][o]; math.Abs(got-sum) > 1e-6*(1+math.Abs(sum)) {
				t.Fatalf("row %d, output %d: %v, by the formula %v", row, o, got, sum)
			}
		}
	}
	if share := float64(zeros) / (16 * 12); share < 0.25 || share > 0.55 {
		t.Errorf("a share of %v is dropped", share)
	}
}

// Each step draws masks of its own: the same weights have another loss over the same leaves, and the same one again in the same step.
func TestDropoutOfSteps(t *testing.T) {
	const leaf, batch = 16, 4
	x, _ := toyTrainerOf(t, toyPlaces(t, 1, 2), batch, NetOptions{Leaf: leaf, Leaves: 2, Type: quant.F32, Table: table(), Dropout: 0.2, Seed: 5})
	begin, data := saved(t, x), batches(toyShape.Vocab, leaf, batch, 1)[0]
	losses := map[float64]int{}
	for _, done := range []int{0, 1, 2, 1, 0} {
		if err := x.Restore(checkpoint(t, begin), State{Options: map[string]string{"lr": "0.003"}, Data: "abc"}); err != nil {
			t.Fatal(err)
		}
		x.Done = done
		s, err := x.Step(data, nil)
		if err != nil {
			t.Fatal(err)
		}
		if was, ok := losses[s.Loss]; ok && was != done {
			t.Errorf("steps %d and %d have a loss of %v", was, done, s.Loss)
		}
		losses[s.Loss] = done
	}
	if len(losses) != 3 {
		t.Errorf("%d losses of three steps", len(losses))
	}
}

// Of picked rows the masks are those of the rows that they were picked from.
func TestDropoutOfPickedRows(t *testing.T) {
	const rows, width = 40, 21
	g := newToy(2)
	x := g.do(step.Embed{}, width, nil, g.weight(g.Vocab, width))
	last := g.NewValue("last", width)
	g.Values[last].Space.Picked = true
	g.Add(step.Pick{}, "pick", []graph.ValueID{x}, []graph.ValueID{last})
	g.Logits = g.do(step.Dropout{P: 0.5, Place: 3}, width, []graph.ValueID{last})
	m := g.values()
	in := graph.Input{Draw: graph.Draw{On: true, Seed: 1, Step: 2, Row: 3}}
	b := walk.Batch{Draw: in.Draw}
	for r := range rows {
		in.IDs, in.Pos, in.Seq = append(in.IDs, int32(g.rng.IntN(g.Vocab))), append(in.Pos, int32(r)), append(in.Seq, 0)
		if b.Seq = append(b.Seq, 0); r%3 == 1 {
			in.Pick = append(in.Pick, int32(r))
		}
	}
	b.IDs, b.Pos, b.Pick = in.IDs, in.Pos, in.Pick
	want := graph.Interpret(g.Graph, in, func(w graph.WeightID, row int, dst []float64) { copy(dst, m[w][row*width:]) })
	p, err := plan.Build(g.Graph, plan.Machine{Workers: 2, MaxRows: rows, MaxPicks: rows})
	if err != nil {
		t.Fatal(err)
	}
	decode := func(row int, dst []float32) {
		for i := range dst {
			dst[i] = float32(m[0][row*width+i])
		}
	}
	w := walk.Weights{Slots: make([][]*walk.Slot, 1), Vectors: make([][]float32, 1), Decode: []func(int, []float32){decode}}
	walker, err := walk.New(p, step.Routines, table(), w, kv.New(nil, 1, 1, func(_, n int) ([]byte, error) { return aligned(n), nil }, 0), aligned(p.Arena+64))
	if err != nil {
		t.Fatal(err)
	}
	if err := walker.Run(crew(t, 2), &b, nil); err != nil {
		t.Fatal(err)
	}
	for i, row := range want {
		for k, v := range walker.Logits(i) {
			if math.Abs(float64(v)-row[k]) > 1e-6 {
				t.Fatalf("picked row %d, column %d: %v, want %v", i, k, v, row[k])
			}
		}
	}
}
