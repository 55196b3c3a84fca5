package imatrix

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/quality"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/testkit"
	"ck/internal/tokenizer"
)

// stories is a small trained model with its tokenizer, and a text.
func stories(t *testing.T) (*gguf.Model, *tokenizer.Tokenizer, string) {
	t.Helper()
	m, err := gguf.Open(testkit.Data(t, "models/stories260K/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	tok, err := tokenizer.FromGGUF(m.KV)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(testkit.Data(t, "models/stories260K/expected_greedy_200.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return m, tok, string(b)
}

func open(t *testing.T, m *gguf.Model, opt engine.Options) *engine.Engine {
	t.Helper()
	opt.KV, opt.KVSet = quant.F32, true
	e, err := engine.Open(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// collect gathers, or ends the test.
func collect(t *testing.T, e *engine.Engine, tok *tokenizer.Tokenizer, text string, opt Options) *Matrix {
	t.Helper()
	m, err := Collect(t.Context(), e, tok, text, opt)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// part is the bytes of a matrix with all that it has.
func part(t *testing.T, m *Matrix) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.WritePart(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// near reports whether sums agree but for the rounding of activations.
func near(a, b, tol float64) bool { return math.Abs(a-b) <= tol*max(math.Abs(a), math.Abs(b))+1e-6 }

// The sums are those of llama-imatrix and those of the graph's definition, column by column, and so is a covariance.
func TestCollect(t *testing.T) {
	m, tok, text := stories(t)
	e := open(t, m, engine.Options{Threads: 2})
	const down = "blk.3.ffn_down.weight"
	got := collect(t, e, tok, text, Options{Block: 64, Dataset: "story.txt", Output: true,
		Covariance: func(name string) bool { return name == down }})
	want, _ := read(t, "stories.gguf")
	if got.Chunks != 3 || got.ChunkSize != 64 || got.Find("output.weight") != nil ||
		len(got.Entries) != len(want.Entries) {
		t.Fatalf("%d blocks of %d, %d entries", got.Chunks, got.ChunkSize, len(got.Entries))
	}
	ref := reference(t, m, e.Graph, tok, text, 64)
	for i := range want.Entries {
		w, x := &want.Entries[i], &got.Entries[i]
		if w.Name != x.Name || !slices.Equal(w.Counts, x.Counts) || len(w.Sums) != len(x.Sums) ||
			(x.Covariance != nil) != (x.Name == down) {
			t.Fatalf("entry %d: %s with counts %v and %d sums, want %s, %v, %d", i, x.Name, x.Counts, len(x.Sums),
				w.Name, w.Counts, len(w.Sums))
		}
		rows := ref(w.Name)
		for j, sum := range x.Sums {
			exact := 0.0
			for _, r := range rows {
				exact += r[j] * r[j]
			}
			if !near(sum, exact, 1e-5) || !near(sum, w.Sums[j], 1e-2) {
				t.Errorf("%s: sum %d is %g, by definition %g, of llama-imatrix %g", x.Name, j, sum, exact, w.Sums[j])
			}
		}
		if x.Covariance == nil {
			continue
		}
		n := len(x.Sums)
		for j := range n {
			for k := range n {
				exact := 0.0
				for _, r := range rows {
					exact += r[j] * r[k]
				}
				if c := x.Covariance[j*n+k]; math.Abs(c-exact) > 1e-5*math.Sqrt(x.Sums[j]*x.Sums[k])+1e-6 ||
					c != x.Covariance[k*n+j] {
					t.Fatalf("covariance of %d and %d is %g, by definition %g", j, k, c, exact)
				}
			}
			if x.Covariance[j*n+j] != x.Sums[j] {
				t.Errorf("covariance of %d with itself is %g, the sum of squares %g", j, x.Covariance[j*n+j],
					x.Sums[j])
			}
		}
	}
}

// reference gives the inputs of a matrix, row by row, over all blocks of a text, in float64.
func reference(t *testing.T, m *gguf.Model, g *graph.Graph, tok *tokenizer.Tokenizer, text string,
	block int) func(tensor string) [][]float64 {
	t.Helper()
	ids := tok.Encode(nil, text, tokenizer.EncodeOptions{AddSpecial: true})
	bos, _ := tok.BOS()
	blocks := quality.Cut(ids, block, 0, bos, true)
	in := graph.Input{IDs: blocks.IDs}
	for i := range blocks.IDs {
		in.Pos, in.Seq, in.Pick = append(in.Pos, int32(i%block)), append(in.Seq, int32(i/block)),
			append(in.Pick, int32(i))
	}
	r := graph.Evaluate(g, in, func(w graph.WeightID, row int, dst []float64) {
		x := m.Tensor(g.Weights[w].Name)
		f := make([]float32, len(dst))
		quant.Decode(x.Type, f, x.Row(row))
		for i, v := range f {
			dst[i] = float64(v)
		}
	})
	return func(tensor string) [][]float64 {
		for i := range g.Steps {
			if s := &g.Steps[i]; len(s.W) > 0 && g.Weights[s.W[0]].Name == tensor {
				return r.Vals[s.In[0]]
			}
		}
		t.Fatalf("no step reads %s", tensor)
		return nil
	}
}

// The same bytes for any number of workers, of blocks in a walk, of rows in a walk, and after any interruption; with
// the output matrix and covariances, of odd widths too.
func TestCollectSameBytes(t *testing.T) {
	m, tok, text := stories(t)
	text = strings.Repeat(text, 5)
	opt := Options{Block: 48, Dataset: "d", Model: "m", Covariance: func(name string) bool {
		return name == "blk.1.ffn_down.weight" || name == "blk.4.attn_v.weight"
	}}
	want := part(t, collect(t, open(t, m, engine.Options{Threads: 1, UBatch: 48}), tok, text, opt))
	blocks := 0
	for _, c := range []struct{ threads, ubatch, blocks, every int }{
		{2, 512, 1, 0}, {3, 512, 3, 0}, {1, 512, 8, 0}, {2, 100, 0, 4}, {3, 20, 0, 1}, {2, 7, 0, 5}, {2, 512, 0, 7},
	} {
		e := open(t, m, engine.Options{Threads: c.threads, UBatch: c.ubatch})
		opt := opt
		opt.Blocks, opt.Every = c.blocks, c.every
		last := int64(0)
		opt.At = func(n int64) {
			if n <= last {
				t.Errorf("%d tokens are done after %d", n, last)
			}
			last = n
		}
		var saved [][]byte
		opt.Save = func(m *Matrix) error {
			saved = append(saved, part(t, m))
			return nil
		}
		got := collect(t, e, tok, text, opt)
		blocks = got.Chunks
		if !bytes.Equal(part(t, got), want) || last != int64(48*got.Chunks) {
			t.Errorf("%+v: other bytes; %d tokens of %d blocks", c, last, got.Chunks)
		}
		if c.every > 0 && len(saved) == 0 || c.every == 1 && len(saved) != got.Chunks-1 {
			t.Errorf("%+v: saved %d times", c, len(saved))
		}
		for _, b := range saved[:min(len(saved), 3)] {
			from, err := Read("part", b)
			if err != nil {
				t.Fatal(err)
			}
			on := Options{Block: 48, Dataset: "d", Model: "m", Covariance: opt.Covariance, From: from}
			if !bytes.Equal(part(t, collect(t, e, tok, text, on)), want) {
				t.Errorf("%+v: other bytes when it goes on at block %d", c, from.Chunks)
			}
		}
	}
	if blocks < 16 {
		t.Errorf("only %d blocks", blocks)
	}
}

// Wide and odd numbers of columns, and the output matrix if it is asked for.
func TestCollectShapes(t *testing.T) {
	_, tok, text := stories(t)
	m, err := synth.Model("odd", synth.Shape{Arch: "llama", Layers: 2, Hidden: 66, FFN: 1029, Heads: 3, KVHeads: 1,
		HeadDim: 22, Vocab: 512, Context: 512, RopeBase: 1e4},
		quant.F32, 7)
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, m, engine.Options{Threads: 2})
	opt := Options{Block: 50, Output: true}
	opt.Covariance = func(name string) bool { return name == "blk.1.ffn_down.weight" || name == "output.weight" }
	got := collect(t, e, tok, text, opt)
	opt.Output = false
	if without := collect(t, e, tok, text, opt); len(without.Entries) != 14 || len(got.Entries) != 15 ||
		without.Find("output.weight") != nil {
		t.Fatalf("%d entries, with the output matrix %d", len(without.Entries), len(got.Entries))
	}
	ref := reference(t, m, e.Graph, tok, text, 50)
	for i := range got.Entries {
		x := &got.Entries[i]
		rows, n := ref(x.Name), len(x.Sums)
		for j := range n {
			for k := range n {
				if j != k && x.Covariance == nil || k%7 != j%7 {
					continue
				}
				exact := 0.0
				for _, r := range rows {
					exact += r[j] * r[k]
				}
				c := x.Sums[j]
				if x.Covariance != nil {
					c = x.Covariance[j*n+k]
				}
				if math.Abs(c-exact) > 2e-5*math.Sqrt(x.Sums[j]*x.Sums[k])+1e-6 {
					t.Fatalf("%s: columns %d and %d: %g, by definition %g", x.Name, j, k, c, exact)
				}
			}
		}
	}
}

// A matrix goes on only with the text, blocks, model and matrices that it was begun with; what differs is named.
func TestResumeRefused(t *testing.T) {
	m, tok, text := stories(t)
	e := open(t, m, engine.Options{Threads: 1})
	opt := Options{Block: 40, Dataset: "d", Model: "m", Most: 2}
	two := collect(t, e, tok, text, opt)
	for what, change := range map[string]func(o *Options, from *Matrix, text *string){
		"the name of the text":            func(o *Options, _ *Matrix, _ *string) { o.Dataset = "e" },
		"the number of tokens of a block": func(o *Options, _ *Matrix, _ *string) { o.Block = 41 },
		"the model":                       func(o *Options, _ *Matrix, _ *string) { o.Model = "n" },
		"the type of activations (--act)": func(_ *Options, m *Matrix, _ *string) { m.Act = "f32" },
		"the type of the KV cache (--kv)": func(_ *Options, m *Matrix, _ *string) { m.KV = "Q8_0" },
		"the matrix":                      func(_ *Options, m *Matrix, _ *string) { m.Text = "" },
		"the number of blocks":            func(o *Options, _ *Matrix, _ *string) { o.Most = 1 },
		"the text":                        func(_ *Options, _ *Matrix, s *string) { *s = "Once" + *s },
		"tensor blk.2.attn_q.weight": func(_ *Options, m *Matrix, _ *string) {
			m.Find("blk.2.attn_q.weight").Counts[0]++
		},
		"the number of matrices": func(_ *Options, m *Matrix, _ *string) {
			m.Entries = append(m.Entries, Entry{Name: "z"})
		},
		"the covariance of tensor blk.0.attn_k.weight": func(o *Options, _ *Matrix, _ *string) {
			o.Covariance = func(name string) bool { return name == "blk.0.attn_k.weight" }
		},
	} {
		on, from, other := opt, &Matrix{}, text
		*from = *two
		from.Entries = nil
		for i := range two.Entries {
			from.Entries = append(from.Entries, two.Entries[i].clone())
		}
		on.From, on.Most = from, 3
		change(&on, from, &other)
		var bad *ResumeError
		if _, err := Collect(t.Context(), e, tok, other, on); !errors.As(err, &bad) || bad.What != what {
			t.Errorf("%s: %v", what, err)
		}
	}
	f32 := open(t, m, engine.Options{Threads: 1, F32Act: true})
	other, bad := opt, (*ResumeError)(nil)
	other.From, other.Most = two, 3
	if _, err := Collect(t.Context(), f32, tok, text, other); !errors.As(err, &bad) || bad.Have != "auto" ||
		bad.Want != "f32" {
		t.Errorf("an engine with other activations goes on: %v", err)
	}
	two.Entries[0].Sums[0]++
	if two.Entries[0].Sums[0] == two.Find("blk.0.attn_q.weight").Sums[0] {
		t.Error("entries of a result share sums")
	}
	two.Entries[0].Sums[0]--
	opt.From = two
	if again := collect(t, e, tok, text, opt); !bytes.Equal(part(t, again), part(t, two)) {
		t.Error("a whole matrix that goes on is another one")
	}
	opt.From, opt.Most, opt.Skip = nil, 1, 1
	second := collect(t, e, tok, text, opt)
	opt.Skip = 0
	first := collect(t, e, tok, text, opt)
	if err := first.Add(second); err != nil {
		t.Fatal(err)
	}
	for i := range two.Entries {
		for j, x := range first.Entries[i].Sums {
			if !near(x, two.Entries[i].Sums[j], 1e-12) {
				t.Fatalf("%s: blocks by themselves add up to %g, together to %g", two.Entries[i].Name, x,
					two.Entries[i].Sums[j])
			}
		}
	}
}

// What ends a run: the end of its context, an error of Save, a text that is too short, inputs that overflow. The
// engine goes on after it.
func TestCollectEnds(t *testing.T) {
	m, tok, text := stories(t)
	e := open(t, m, engine.Options{Threads: 2, UBatch: 32})
	ctx, cancel := context.WithCancel(t.Context())
	opt := Options{Block: 32, At: func(n int64) {
		if n >= 64 {
			cancel()
		}
	}}
	if _, err := Collect(ctx, e, tok, text, opt); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: %v", err)
	}
	full := errors.New("full")
	if _, err := Collect(t.Context(), e, tok, text, Options{Block: 32, Every: 1,
		Save: func(*Matrix) error { return full }}); !errors.Is(err, full) {
		t.Errorf("Save fails: %v", err)
	}
	var short *TextError
	if _, err := Collect(t.Context(), e, tok, text, Options{}); !errors.As(err, &short) || short.Block != 512 {
		t.Errorf("a short text: %v", err)
	}
	if _, err := Collect(t.Context(), e, tok, text, Options{Block: 64, Skip: 3}); !errors.As(err, &short) ||
		short.Block != 256 {
		t.Errorf("nothing behind what is left out: %v", err)
	}
	if n := e.CacheUsedBytes(); n != 0 {
		t.Errorf("%d bytes of sequences are left", n)
	}
	rows := 0
	err := e.Forward(t.Context(), e.NewSeq(), []int32{1, 2}, engine.Last,
		func(int, []float32) error { rows++; return nil })
	if err != nil || rows != 1 {
		t.Errorf("afterwards: %d rows of logits, %v", rows, err)
	}
	var inputs *InputsError
	if err := (&source{matrices: []string{"a"}, sums: []float64{1, math.Inf(1)}}).check(); !errors.As(err, &inputs) ||
		inputs.Column != 1 {
		t.Errorf("an overflow: %v", err)
	}
	if err := (&source{matrices: []string{"a"}, sums: []float64{math.NaN()}}).check(); err == nil {
		t.Error("NaN is a sum")
	}
}
