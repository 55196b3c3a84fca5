package measure

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"ck/internal/attention"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/imatrix"
	"ck/internal/inspect"
	"ck/internal/quality"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/testkit"
	"ck/internal/tokenizer"
	"ck/internal/verdict"
)

// random is a small model with Gaussian weights.
func random(t *testing.T) *gguf.Model {
	t.Helper()
	m, err := synth.Model("small", synth.Shape{Arch: "llama", Layers: 8, Hidden: 64, FFN: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 400,
		Context: 512, RopeBase: 1e4}, quant.F32, 7)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// drawn is a text of random tokens.
func drawn(block, blocks int) quality.Text {
	rng := rand.New(rand.NewPCG(1, 1))
	text := quality.Text{Block: block}
	for range block * blocks {
		text.IDs = append(text.IDs, int32(300+rng.IntN(100)))
	}
	return text
}

// stories is a trained model with text that it has not seen.
func stories(t *testing.T, block, blocks int) (*gguf.Model, quality.Text) {
	t.Helper()
	m, err := generate.Open(testkit.Data(t, "models/trained-llama-256/hf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	words, err := os.ReadFile(testkit.Data(t, "models/trained-llama-256/heldout-stories.txt"))
	if err != nil {
		t.Fatal(err)
	}
	bos, ok := m.Tok.BOS()
	ids := m.Tok.Encode(nil, string(words[:20*block*blocks]), tokenizer.EncodeOptions{AddSpecial: true})
	return m.Weights, quality.Cut(ids, block, blocks, bos, ok)
}

// looked is the figures of a model on a text.
func looked(t *testing.T, m *gguf.Model, text quality.Text) *verdict.Figures {
	t.Helper()
	f := new(verdict.Figures)
	l := attention.Look{Engine: engine.Options{Threads: 2}, Shares: []float64{0.8, 0.9, 0.95}}
	var err error
	if f.Attention, f.Dropped, err = l.Of(t.Context(), m, text); err != nil {
		t.Fatal(err)
	}
	p := Prune{Engine: engine.Options{Threads: 2}, Workers: 2}
	last := int64(0)
	p.At = func(n int64) {
		if n < last {
			t.Errorf("progress goes from %d to %d", last, n)
		}
		last = n
	}
	if f.Pruned, f.Unpruned, err = p.Of(t.Context(), m, text); err != nil {
		t.Fatal(err)
	}
	if text.Blocks() > 1 && last != p.Tokens(text) {
		t.Errorf("progress ends at %d of %d tokens", last, p.Tokens(text))
	}
	return f
}

// judge checks the verdict on a claim.
func judge(t *testing.T, f *verdict.Figures, id string, want verdict.Answer) {
	t.Helper()
	if r := row(t, f, id); r.Holds != want {
		t.Errorf("%s: %+v, want %s", id, r, want)
	}
}

// starers is a model of which every row attends to token 0 alone, and evenly so: hidden states are the embeddings, of which column 0
// is in all queries and column 1, which has another sign in token 0, in all keys; both lie in the pair that rotates least.
func starers(name string, rows, cols int, x []float32) {
	class := name
	if i := strings.LastIndex(strings.TrimSuffix(name, ".weight"), "."); i >= 0 {
		class = strings.TrimSuffix(name, ".weight")[i+1:]
	}
	column := 0
	switch class {
	case "token_embd.weight":
		clear(x)
		for r := range rows {
			x[r*cols], x[r*cols+1] = 1, -1
		}
		x[1] = 1
		return
	case "attn_output", "ffn_down":
		clear(x)
		return
	case "attn_q":
	case "attn_k":
		column = 1
	default:
		return
	}
	clear(x)
	for head := range rows / 16 {
		x[(16*head+14)*cols+column] = 1
	}
}

// Weights are many and small, or large for one key in three: with up to 256 keys both can be. With more they are always small.
func TestSmallWeights(t *testing.T) {
	m := random(t)
	text := drawn(256, 1)
	judge(t, looked(t, m, text), "attention-small", verdict.Yes)
	for i := range text.IDs {
		if text.IDs[i] = 5; i%50 < 18 {
			text.IDs[i] = 0
		}
	}
	f := looked(t, synth.Planted(m, starers), text)
	judge(t, f, "attention-small", verdict.No)
	others, all, want := 0, 0, 0.0
	for i, id := range text.IDs { // keys that nothing looks at, of rows of 128 and more
		if all++; id != 0 {
			others++
		}
		if i+1 >= 128 {
			want += float64(others) / float64(all) / 129
		}
	}
	if r := row(t, f, "attention-small"); math.Abs(*r.Value-want) > 1e-6 {
		t.Errorf("%v of the weights are small, want %v", *r.Value, want)
	}
	judge(t, looked(t, m, drawn(128, 1)), "attention-small", verdict.Untold)
}

// Last layers that do nothing, and a last one that decides all.
func TestEarlyExit(t *testing.T) {
	m, text := random(t), drawn(64, 1)
	judge(t, looked(t, synth.Planted(m, synth.Scaled("attn_output", 6, 8, 0), synth.Scaled("ffn_down", 6, 8, 0)), text), "early-exit", verdict.Yes)
	judge(t, looked(t, synth.Planted(m, synth.Scaled("ffn_down", 7, 8, 100)), text), "early-exit", verdict.No)
}

// Attention that changes hidden states little loses nothing with the smallest weights; attention to all keys does.
func TestSparseAttention(t *testing.T) {
	m, text := stories(t, 256, 2)
	judge(t, looked(t, synth.Planted(m, synth.Scaled("attn_output", 0, 6, 0.001)), text), "sparse-attention", verdict.Yes)
	judge(t, looked(t, synth.Planted(m, synth.Scaled("attn_q", 0, 6, 0.5)), text), "sparse-attention", verdict.No)
}

// Inputs of uneven sizes hide what counts from who looks at weights alone; of even ones both say the same.
func TestActivations(t *testing.T) {
	m, text := stories(t, 128, 4)
	uneven := synth.Uneven(m, 16, 3)
	judge(t, looked(t, uneven, text), "activation-x-weight", verdict.Yes)
	judge(t, looked(t, random(t), drawn(128, 4)), "activation-x-weight", verdict.No)
	f := looked(t, m, quality.Text{IDs: text.IDs[:128], Block: 128})
	judge(t, f, "activation-x-weight", verdict.Open)
	p := Prune{Memory: 1 << 10}
	if _, why, err := p.Of(t.Context(), m, text); err != nil || !strings.Contains(why, "memory") {
		t.Errorf("with 1 KiB of memory: %q, %v", why, err)
	}
}

// Of each row the half with the smallest scores goes, of the right sums; the rest keeps its bits.
func TestPruned(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	const rows, cols, experts = 6, 33, 2
	m := &inspect.Model{Model: gguf.NewModel("test")}
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	im := &imatrix.Matrix{Entries: []imatrix.Entry{{Name: "blk.0.ffn_up_exps.weight", Counts: []int64{1, 1}}}}
	for range experts * cols {
		im.Entries[0].Sums = append(im.Entries[0].Sums, rng.ExpFloat64())
	}
	var data []byte
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	if err := m.Add(&gguf.Tensor{Name: "blk.0.ffn_up_exps.weight", Type: quant.F32, Shape: []int{cols, rows / experts, experts}, Data: data, File: -1}); err != nil {
		t.Fatal(err)
	}
	for _, product := range []bool{false, true} {
		p := Prune{Workers: 3}
		changed, err := p.pruned(t.Context(), m.Model, im, product)
		if err != nil {
			t.Fatal(err)
		}
		out := changed.Tensor("blk.0.ffn_up_exps.weight")
		got := make([]float32, cols)
		for r := range rows {
			quant.Decode(out.Type, got, out.Row(r))
			score := func(c int) float64 {
				s := math.Abs(float64(x[r*cols+c]))
				if product {
					s *= math.Sqrt(im.Entries[0].Sums[r/(rows/experts)*cols+c])
				}
				return s
			}
			gone := 0
			for c, v := range got {
				if v == 0 {
					gone++
					continue
				}
				larger := 0
				for k := range cols {
					if score(k) > score(c)*(1+1e-6) {
						larger++
					}
				}
				if v != x[r*cols+c] || larger > cols-cols/2 {
					t.Errorf("row %d, column %d: %v of %v, %d are larger", r, c, v, x[r*cols+c], larger)
				}
			}
			if gone != cols/2 {
				t.Errorf("row %d: %d of %d are gone", r, gone, cols)
			}
		}
	}
	ties := []float32{1, 1, 1, 1}
	keepHalf(ties, []float32{2, 2, 2, 2}, make([]float32, 4))
	if fmt.Sprint(ties) != "[1 1 0 0]" {
		t.Error(ties)
	}
}
