package scratch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ck/internal/bpe"
	"ck/internal/dataset"
	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/tokenizer"
)

// small is a shape of odd sizes.
func small(arch string) synth.Shape {
	s := Own(arch)
	s.Layers, s.Hidden, s.FFN, s.Heads, s.KVHeads, s.HeadDim, s.Vocab, s.Context, s.RopeBase = 3, 66, 99, 6, 2, 22, 515, 77, 5e3
	return s
}

func model(t testing.TB, s synth.Shape, o Options) *gguf.Model {
	t.Helper()
	m, err := Model(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// values decodes a tensor.
func values(t *gguf.Tensor) []float32 {
	x := make([]float32, t.Rows()*t.Cols())
	r := t.Reader()
	for i := range t.Rows() {
		quant.Decode(t.Type, x[i*t.Cols():(i+1)*t.Cols()], r.Row(i))
	}
	return x
}

// moments are the mean, the standard deviation, and the share within one of these.
func moments(x []float32) (mean, sd, within float64) {
	for _, v := range x {
		mean += float64(v) / float64(len(x))
	}
	for _, v := range x {
		sd += (float64(v) - mean) * (float64(v) - mean) / float64(len(x))
	}
	sd = math.Sqrt(sd)
	for _, v := range x {
		if math.Abs(float64(v)-mean) < sd {
			within += 1 / float64(len(x))
		}
	}
	return mean, sd, within
}

// Every tensor is what the definition says: its spread, the shape of the normal distribution, no row and no tensor like another one.
func TestWeights(t *testing.T) {
	for _, arch := range Archs {
		s := small(arch)
		m := model(t, s, Options{Name: "x", Type: quant.F32, Seed: 5})
		if _, _, err := engine.GraphOf(m); err != nil {
			t.Fatal(err)
		}
		rows := map[string]string{}
		for _, w := range m.Tensors {
			x := values(w)
			if len(w.Shape) == 1 {
				want := float32(1)
				if strings.HasSuffix(w.Name, ".bias") {
					want = 0
				}
				if w.Type != quant.F32 || slices.ContainsFunc(x, func(v float32) bool { return v != want }) {
					t.Errorf("%s: %s is not %v everywhere", arch, w.Name, want)
				}
				continue
			}
			want := 0.02
			if strings.Contains(w.Name, "attn_output") || strings.Contains(w.Name, "ffn_down") {
				want = 0.02 / math.Sqrt(6)
			}
			n := math.Sqrt(float64(len(x)))
			mean, sd, within := moments(x)
			if math.Abs(mean) > 5*want/n || math.Abs(sd/want-1) > 5/math.Sqrt2/n || math.Abs(within-0.6827) > 5*0.4655/n {
				t.Errorf("%s: %s has mean %g, deviation %g, %.4f within it; wanted 0, %g, 0.6827", arch, w.Name, mean, sd, within, want)
			}
			for r := range w.Rows() {
				key := string(w.Row(r)[:16])
				if other, ok := rows[key]; ok {
					t.Fatalf("%s: row %d of %s is that of %s", arch, r, w.Name, other)
				}
				rows[key] = fmt.Sprint(w.Name, " ", r)
			}
		}
		if got := m.Tensor("blk.0.attn_q.bias") != nil; got != (arch == "qwen2") {
			t.Errorf("%s: biases: %v", arch, got)
		}
		if got := m.Tensor("blk.0.attn_q_norm.weight") != nil; got != (arch == "qwen3") {
			t.Errorf("%s: norms of queries: %v", arch, got)
		}
	}
}

// The seed decides, and so that it stays so: the hash of all rows. Types are roundings of the same values.
func TestSeedAndTypes(t *testing.T) {
	s := small("llama")
	s.Tied = true
	m := model(t, s, Options{Name: "x", Type: quant.F32, Seed: 1})
	h := sha256.New()
	for _, w := range m.Tensors {
		for r := range w.Rows() {
			h.Write(w.Row(r))
		}
	}
	const want = "d143a5bae5556600"
	if got := hex.EncodeToString(h.Sum(nil))[:16]; got != want {
		t.Errorf("the weights of seed 1 have the hash %s, once it was %s", got, want)
	}
	other := model(t, s, Options{Name: "y", Type: quant.F32, Seed: 2})
	for _, typ := range []quant.Type{quant.F16, quant.BF16} {
		rounded := model(t, s, Options{Name: "x", Type: typ, Seed: 1})
		for _, w := range rounded.Tensors {
			from := values(m.Tensor(w.Name))
			if len(w.Shape) == 1 {
				continue
			}
			if w.Type != typ {
				t.Fatalf("%s is %v", w.Name, w.Type)
			}
			b := make([]byte, w.Bytes())
			if err := quant.Quantize(typ, b, from, nil); err != nil {
				t.Fatal(err)
			}
			for r := range w.Rows() {
				if n := typ.RowBytes(w.Cols()); !bytes.Equal(w.Row(r), b[r*n:(r+1)*n]) {
					t.Fatalf("%v: %s: row %d is not that of F32, rounded", typ, w.Name, r)
				}
			}
			if slices.Equal(from, values(other.Tensor(w.Name))) {
				t.Errorf("%s is the same for two seeds", w.Name)
			}
		}
	}
}

// A file is the same bytes for any number of workers: those of a loop over the rows.
func TestWrite(t *testing.T) {
	s := small("qwen3")
	s.Hidden, s.Vocab = 1030, 700 // an embedding of several pieces for each of a few workers
	m := model(t, s, Options{Name: "x", Type: quant.F32, Seed: 3, Raw: true})
	v := vocabulary(t, s.Vocab)
	if err := AddVocabulary(m, v); err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	w, err := gguf.NewWriter(&want, m.KV, infos(m))
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, x := range m.Tensors {
		for r := range x.Rows() {
			if _, err := w.Write(x.Row(r)); err != nil {
				t.Fatal(err)
			}
		}
		sum += x.Bytes()
	}
	for _, workers := range []int{0, 1, 2, 3, 8} {
		var got bytes.Buffer
		last := int64(0)
		if err := Write(context.Background(), &got, m, workers, func(n int64) {
			if n < last {
				t.Fatalf("%d bytes were written, before it %d", n, last)
			}
			last = n
		}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) || last != sum {
			t.Errorf("%d workers: other bytes than one row after another; told of %d of %d", workers, last, sum)
		}
	}
	if n, err := Bytes(m); err != nil || n != int64(want.Len()) {
		t.Errorf("the file has %d bytes, said were %d, %v", want.Len(), n, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var part bytes.Buffer
	if err := Write(ctx, &part, m, 2, func(int64) { stop() }); !errors.Is(err, context.Canceled) || part.Len() >= want.Len() {
		t.Errorf("ended: %v behind %d bytes", err, part.Len())
	}
	broken := errors.New("broken")
	if err := Write(context.Background(), failing{broken}, m, 2, nil); !errors.Is(err, broken) {
		t.Error(err)
	}

	// Read again it says what it is.
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, want.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	back, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	for key, want := range map[string]any{"general.name": "x", "general.architecture": "qwen3", "qwen3.context_length": uint32(77),
		"qwen3.rope.freq_base": float32(5e3),
		"general.file_type":    uint32(0), "ck.prompt.default": "raw", "tokenizer.ggml.eot_token_id": uint32(699), "tokenizer.ggml.eos_token_id": uint32(697),
		"tokenizer.ggml.add_bos_token": true} {
		if got := back.KV.Value(key); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Models that are larger than memory are made all the same: weights are drawn when they are read.
func TestNoMemory(t *testing.T) {
	s, err := synth.Find("qwen3-32b")
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := model(t, s, Options{Name: "x", Type: quant.BF16, Seed: 1})
	m.Tensor("blk.63.ffn_up.weight").Row(25599)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
		t.Errorf("a model of 66 GB takes %d MB", n>>20)
	}
	if p := Parts(m); p[len(p)-1].Parameters != 32762123264 {
		t.Errorf("%+v", p[len(p)-1])
	}
}

func TestParts(t *testing.T) {
	s := small("qwen2")
	got := Parts(model(t, s, Options{Name: "x", Type: quant.BF16}))
	attention := int64(66*(6*22)*2 + 66*(2*22)*2)
	want := []Part{
		{"embedding", 1, 515 * 66, 2 * 515 * 66}, {"norms", 7, 7 * 66, 4 * 7 * 66},
		{"attention", 3 * 7, 3 * (attention + 10*22), 3 * (2*attention + 4*10*22)},
		{"feed-forward", 9, 9 * 66 * 99, 18 * 66 * 99}, {"output", 1, 515 * 66, 2 * 515 * 66},
	}
	all := Part{Name: "all"}
	for _, p := range want {
		all.Tensors, all.Parameters, all.Bytes = all.Tensors+p.Tensors, all.Parameters+p.Parameters, all.Bytes+p.Bytes
	}
	if want = append(want, all); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	s.Tied = true
	if got := Parts(model(t, s, Options{Name: "x", Type: quant.BF16})); len(got) != 5 || got[4].Parameters != all.Parameters-515*66 {
		t.Errorf("tied: %+v", got)
	}
}

func TestRefused(t *testing.T) {
	for want, change := range map[string]func(s *synth.Shape){
		`architecture "gemma3": cannot be trained from scratch; choose one of llama, qwen2, qwen3`: func(s *synth.Shape) { s.Arch = "gemma3" },
		"a mixture of 8 experts":     func(s *synth.Shape) { s.Experts, s.Used, s.ExpertFFN = 8, 2, 9 },
		"cannot share 4 KV heads":    func(s *synth.Shape) { s.KVHeads = 4 },
		"cannot be rotated in pairs": func(s *synth.Shape) { s.HeadDim = 21 },
		"limit is 1048576":           func(s *synth.Shape) { s.Vocab = 1<<20 + 1 },
		"a context of 0 positions":   func(s *synth.Shape) { s.Context = 0 },
		"the base 0.5":               func(s *synth.Shape) { s.RopeBase = 0.5 },
		"the base NaN":               func(s *synth.Shape) { s.RopeBase = float32(math.NaN()) },
	} {
		s := small("llama")
		change(&s)
		if _, err := Model(s, Options{Name: "x", Type: quant.F32}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Model(small("llama"), Options{Name: "x", Type: quant.Q8_0}); err == nil || !strings.Contains(err.Error(), "Q8_0 cannot be trained") {
		t.Error(err)
	}
	m := model(t, small("llama"), Options{Name: "x", Type: quant.F32})
	if err := AddVocabulary(m, vocabulary(t, 300)); err == nil || !strings.Contains(err.Error(), "the model has 515 tokens, the vocabulary 300") {
		t.Error(err)
	}
}

// story is a text with many words, by its number.
func story(n int) string {
	var b strings.Builder
	x := uint32(n)
	for range 120 {
		x = x*1664525 + 1013904223
		fmt.Fprintf(&b, "%c%c%c ", 'a'+x>>24%8, "aeiou"[x>>16%5], 'k'+x>>8%9)
	}
	return strings.TrimSpace(b.String())
}

// files are a text and conversations.
func files(t testing.TB) []string {
	t.Helper()
	dir := t.TempDir()
	var text, lines strings.Builder
	for i := range 30 {
		fmt.Fprintf(&text, "%s\n<|endoftext|>\n", story(i))
		fmt.Fprintf(&lines, "{\"messages\": [{\"role\": \"user\", \"content\": %q}, {\"role\": \"assistant\", \"content\": %q}]}\n", story(100+i), story(200+i))
		fmt.Fprintf(&lines, "{\"prompt\": %q, \"completion\": %q}\n", story(300+i), " "+story(400+i))
	}
	paths := []string{filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.jsonl")}
	for i, s := range []string{text.String(), lines.String()} {
		if err := os.WriteFile(paths[i], []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func learnOptions(vocab int) LearnOptions {
	return LearnOptions{Vocab: vocab, Pre: "llama-bpe", Workers: 2, Template: "{{ messages }}"}
}

func vocabulary(t testing.TB, vocab int) *bpe.Vocabulary {
	t.Helper()
	o := learnOptions(vocab)
	v, _, err := Learn(context.Background(), files(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What is learned is what a counter learns of all texts one by one, for any number of workers and any order of files.
func TestLearn(t *testing.T) {
	paths := files(t)
	o := learnOptions(700)
	c, err := bpe.NewCounter(bpe.Options{Vocab: 700, Pre: "llama-bpe", Control: []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<x>"}, LeastCount: 2,
		Longest: 32, BOS: "<|endoftext|>", EOS: "<|endoftext|>", Pad: "<|endoftext|>", AddBOS: true, Template: "{{ messages }}"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if err := c.AddTexts("x", story(i), "user", story(100+i), "assistant", story(200+i), story(300+i)+" "+story(400+i)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := c.Train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	o.Control = []string{"<x>"}
	size := int64(0)
	for _, path := range paths {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += st.Size()
	}
	for _, workers := range []int{0, 1, 2, 5} {
		o.Workers = workers
		read, learned := int64(0), 0
		o.Read, o.Learned = func(n int64) { read = n }, func(n int) { learned = n }
		v, st, err := Learn(context.Background(), paths, o)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(v.Keys(), want.Keys()) {
			t.Errorf("%d workers: another vocabulary", workers)
		}
		a, b := v.From()
		if c, d := want.From(); a != c || b != d {
			t.Errorf("%d workers: learned from %d bytes in %d tokens, want %d in %d", workers, a, b, c, d)
		}
		if st.Examples != 90 || read != size || learned != 700-260 {
			t.Errorf("%+v; read %d bytes of %d, learned %d", st, read, size, learned)
		}
		slices.Reverse(paths)
	}
	tok := want.Tokenizer()
	if id, ok := tok.EOS(); !ok || id != 696 || !tok.AddBOS() || tok.AddEOS() || !tok.IsEOG(698) || tok.IsEOG(697) {
		t.Errorf("EOS %d; tokens that end a generation: %v %v", id, tok.IsEOG(697), tok.IsEOG(698))
	}
	if ids := tok.Encode(nil, "a<|im_end|>", tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true}); !slices.Equal(ids, []int32{696, 'a', 698}) {
		t.Errorf("%v", ids)
	}
}

// Texts of more than a chunk are counted whole, whoever counts them.
func TestLearnChunks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txt")
	var b strings.Builder
	c, err := bpe.NewCounter(bpe.Options{Vocab: 259, Pre: "llama-bpe", Control: []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, LeastCount: 2, Longest: 32,
		BOS: "<|endoftext|>", EOS: "<|endoftext|>"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		text := strings.TrimSpace(strings.Repeat(story(i)+" ", 3+i%61))
		fmt.Fprintf(&b, "%s\n<|endoftext|>\n", text)
		if err := c.AddTexts("x", text); err != nil {
			t.Fatal(err)
		}
	}
	want, err := c.Train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if b.Len() < 4<<20 {
		t.Fatalf("%d bytes are not several chunks", b.Len())
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	v, st, err := Learn(context.Background(), []string{path}, learnOptions(259))
	if err != nil {
		t.Fatal(err)
	}
	n, _ := v.From()
	if m, _ := want.From(); n != m || st.Examples != 300 {
		t.Errorf("learned from %d bytes in %d documents, want %d in 300", n, st.Examples, m)
	}
}

func TestLearnErrors(t *testing.T) {
	paths := files(t)
	var option *OptionError
	o := learnOptions(258)
	if _, _, err := Learn(context.Background(), paths, o); !errors.As(err, &option) {
		t.Errorf("too few tokens: %v", err)
	}
	o = learnOptions(600)
	o.Control = []string{"x"}
	if _, _, err := Learn(context.Background(), paths, o); !errors.As(err, &option) {
		t.Errorf("a control token that is none: %v", err)
	}
	_, _, err := Learn(context.Background(), paths, learnOptions(30_000))
	if !errors.Is(err, bpe.ErrTooSmall) || !strings.Contains(err.Error(), "which makes") {
		t.Errorf("too many tokens: %v", err)
	}
	var line *dataset.LineError
	bad := filepath.Join(t.TempDir(), "c.jsonl")
	if err := os.WriteFile(bad, []byte("{\"text\": \"a\"}\n{\"say\": 1}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	o = learnOptions(600)
	if _, _, err := Learn(context.Background(), append(paths, bad), o); !errors.As(err, &line) || line.Line != 2 {
		t.Errorf("a bad line: %v", err)
	}
	o.SkipBadLines = 1
	if _, st, err := Learn(context.Background(), append(paths, bad), o); err != nil || st.Skipped != 1 {
		t.Errorf("a bad line that is skipped: %v, %+v", err, st)
	}
	for name, when := range map[string]func(o *LearnOptions, stop func()){
		"reading":  func(o *LearnOptions, stop func()) { o.Read = func(int64) { stop() } },
		"learning": func(o *LearnOptions, stop func()) { o.Learned = func(int) { stop() } },
	} {
		ctx, stop := context.WithCancel(context.Background())
		o := learnOptions(600)
		when(&o, stop)
		if _, _, err := Learn(ctx, paths, o); !errors.Is(err, context.Canceled) {
			t.Errorf("ended while %s: %v", name, err)
		}
	}
}

// A folder of the model is the same model, with the same tokenizer.
func TestFolder(t *testing.T) {
	for _, arch := range Archs {
		for _, tied := range []bool{false, true} {
			s := small(arch)
			s.Tied = tied
			m := model(t, s, Options{Name: "x", Type: quant.F32, Seed: 9})
			v := vocabulary(t, s.Vocab)
			if err := AddVocabulary(m, v); err != nil {
				t.Fatal(err)
			}
			files, err := v.Files()
			if err != nil {
				t.Fatal(err)
			}
			texts := map[string][]byte{}
			for _, f := range files {
				texts[f.Name] = f.Data
			}
			dir := filepath.Join(t.TempDir(), "m")
			if err := hf.Write(context.Background(), dir, m, hf.WriteOptions{Type: quant.F32, Texts: texts}); err != nil {
				t.Fatalf("%s: %v", arch, err)
			}
			back, err := hf.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range m.Tensors {
				g := back.Tensor(w.Name)
				if g == nil || !slices.Equal(values(g), values(w)) {
					t.Errorf("%s: tensor %s differs", arch, w.Name)
				}
			}
			if len(back.Tensors) != len(m.Tensors) {
				t.Errorf("%s: %d tensors, want %d", arch, len(back.Tensors), len(m.Tensors))
			}
			back.Close()
			tok, err := tokenizer.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{story(7), story(8) + "\n\n 12345é", ""} {
				opt := tokenizer.EncodeOptions{AddSpecial: true}
				if a, b := v.Tokenizer().Encode(nil, text, opt), tok.Encode(nil, text, opt); !slices.Equal(a, b) {
					t.Errorf("%s: %q is %v in the file, %v in the folder", arch, text, a, b)
				}
			}
			for id := range int32(s.Vocab) {
				if tok.IsEOG(id) != v.Tokenizer().IsEOG(id) || tok.IsControl(id) != v.Tokenizer().IsControl(id) {
					t.Errorf("%s: token %d ends a generation: %v in the folder", arch, id, tok.IsEOG(id))
				}
			}
		}
	}
}
