package imatrix

import (
	"bytes"
	"reflect"
	"testing"

	"ck/internal/engine"
	"ck/internal/graph"
	"ck/internal/quality"
	"ck/internal/quant"
	"ck/internal/synth"
)

// Of experts each has sums of the rows that chose it, those of the graph's definition, and counts them; they do not depend on how walks are cut, and
// a matrix that was kept half way goes on.
func TestCollectExperts(t *testing.T) {
	m, err := synth.Model("mixture", synth.Shape{Arch: "qwen3moe", Layers: 2, Hidden: 64, FFN: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 512, Context: 256, QKNorm: true,
		RopeBase: 1e4, Experts: 5, Used: 2, ExpertFFN: 48}, quant.F32, 3)
	if err != nil {
		t.Fatal(err)
	}
	text := quality.Text{Block: 40}
	for i := range 3 * text.Block {
		text.IDs = append(text.IDs, int32(300+i*i%97))
	}
	e := open(t, m, engine.Options{Threads: 2, F32Act: true})
	var half *Matrix
	opt := Options{Block: text.Block, Blocks: 1, Dataset: "x", Model: "m", Every: 1, Save: func(x *Matrix) error {
		var b bytes.Buffer
		err := x.WritePart(&b)
		if err == nil && half == nil {
			half, err = Read("half", b.Bytes())
		}
		return err
	}}
	got, err := CollectBlocks(t.Context(), e, text, opt)
	if err != nil {
		t.Fatal(err)
	}
	small := open(t, m, engine.Options{Threads: 1, F32Act: true, UBatch: 17})
	other, err := CollectBlocks(t.Context(), small, text, Options{Block: text.Block, Dataset: "x", Model: "m"})
	if err != nil || !reflect.DeepEqual(got, other) {
		t.Errorf("other sums with walks of 17 rows, %v", err)
	}
	on, err := CollectBlocks(t.Context(), e, text, Options{Block: text.Block, Dataset: "x", Model: "m", From: half})
	if err != nil || half.Chunks == 0 || !reflect.DeepEqual(got, on) {
		t.Errorf("from %d blocks on: other sums, %v", half.Chunks, err)
	}

	want := map[string][]float64{}
	counts := map[string][]int64{}
	g := e.Graph
	for at := 0; at < len(text.IDs); at += text.Block {
		in := graph.Input{IDs: text.IDs[at:][:text.Block]}
		for i := range in.IDs {
			in.Pos, in.Seq, in.Pick = append(in.Pos, int32(i)), append(in.Seq, 0), append(in.Pick, int32(i))
		}
		ref := graph.Evaluate(g, in, func(w graph.WeightID, row int, dst []float64) {
			x := m.Tensor(g.Weights[w].Name)
			quant.Exact(x.Type, dst, x.Row(row))
		})
		for i := range g.Steps {
			s := &g.Steps[i]
			if len(s.W) == 0 || g.Weights[s.W[0]].Experts == 0 {
				continue
			}
			w := g.Weights[s.W[0]]
			if want[w.Name] == nil {
				want[w.Name], counts[w.Name] = make([]float64, w.Experts*w.Cols), make([]int64, w.Experts)
			}
			for r, row := range ref.Vals[s.In[0]] {
				id := int(ref.Vals[s.In[1]][r/2][r%2])
				counts[w.Name][id]++
				for c, v := range row {
					want[w.Name][id*w.Cols+c] += v * v
				}
			}
		}
	}
	if len(want) != 6 {
		t.Fatalf("%d tensors of experts", len(want))
	}
	for name, sums := range want {
		x := got.Find(name)
		if x == nil || len(x.Sums) != len(sums) || !reflect.DeepEqual(x.Counts, counts[name]) {
			t.Fatalf("%s: %+v, want counts %v", name, x, counts[name])
		}
		for i, v := range sums {
			if !near(x.Sums[i], v, 1e-3) {
				t.Fatalf("%s: column %d of %d is %v, want %v", name, i, len(sums), x.Sums[i], v)
			}
		}
	}
}
