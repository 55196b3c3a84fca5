package bpe

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ck/internal/testkit"
	"ck/internal/tokenizer"
)

var chat = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}

func options(vocab int, pre string) Options {
	return Options{Vocab: vocab, Pre: pre, Control: chat, LeastCount: 2, Longest: 24, BOS: chat[1], EOS: chat[2], Pad: chat[0],
		Template: "{{ messages }}<|im_end|>&\n"}
}

// train learns from texts.
func train(t testing.TB, opt Options, texts ...string) (*Vocabulary, error) {
	t.Helper()
	c, err := NewCounter(opt)
	if err != nil {
		return nil, err
	}
	for _, s := range texts {
		if err := c.Add("text", strings.NewReader(s)); err != nil {
			return nil, err
		}
	}
	return c.Train(context.Background())
}

// piece is n bytes of a file of the reference data, or less, from offset on, at whole characters.
func piece(t testing.TB, name string, offset, n int) string {
	t.Helper()
	b, err := os.ReadFile(testkit.Data(t, name))
	if err != nil {
		t.Fatal(err)
	}
	b = b[min(offset, len(b)):]
	return strings.ToValidUTF8(string(b[:min(n, len(b))]), "")
}

// folder writes the files of v and opens them.
func folder(t testing.TB, v *Vocabulary) (string, *tokenizer.Tokenizer) {
	t.Helper()
	dir := t.TempDir()
	files, err := v.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, tok
}

// checkText encodes text by all readers and decodes it.
func checkText(t testing.TB, v *Vocabulary, open *tokenizer.Tokenizer, text string) {
	t.Helper()
	for _, opt := range []tokenizer.EncodeOptions{{}, {AddSpecial: true}, {ParseSpecial: true}, {AddSpecial: true, ParseSpecial: true}} {
		a, b := v.Tokenizer().Encode(nil, text, opt), open.Encode(nil, text, opt)
		if !slices.Equal(a, b) {
			t.Fatalf("%.200q: %+v: keys give %v, the folder %v", text, opt, a, b)
		}
		if !opt.ParseSpecial {
			rest := a
			if opt.AddSpecial && v.opt.AddBOS {
				if int(a[0]) != v.id(v.opt.BOS) {
					t.Fatalf("%.200q: begins with token %d, want BOS %d", text, a[0], v.id(v.opt.BOS))
				}
				rest = a[1:]
			}
			if i := slices.IndexFunc(rest, func(id int32) bool { return int(id) >= len(v.tokens) }); i >= 0 {
				t.Fatalf("%.200q: has control token %d, though the text is not trusted", text, rest[i])
			}
			back := ""
			for _, id := range rest {
				back += v.tokens[id]
			}
			if back != text || decode(open, rest) != text {
				t.Fatalf("%.200q: becomes %.200q and %.200q", text, back, decode(open, rest))
			}
		}
	}
}

func TestReadersAgree(t *testing.T) {
	text := piece(t, "text/stories/tinystories.txt", 0, 120_000) + "naïve façade 日本語 日本 😀😀 I'LL 1234 12345\r\n\r\n\tx  y"
	for _, pre := range []string{"gpt-2", "llama-bpe", "qwen2"} {
		for _, bos := range []bool{false, true} {
			opt := options(700, pre)
			opt.AddBOS = bos
			v, err := train(t, opt, text)
			if err != nil {
				t.Fatal(err)
			}
			if v.Size() != 700 || v.Tokenizer().VocabSize() != 700 {
				t.Fatalf("%s: %d tokens, tokenizer has %d, want 700", pre, v.Size(), v.Tokenizer().VocabSize())
			}
			dir, open := folder(t, v)
			keys, notes, err := tokenizer.Keys(dir, 0)
			if err != nil || len(notes) > 0 {
				t.Fatalf("%s: %v, %q", pre, err, notes)
			}
			if got := v.Keys(); !reflect.DeepEqual(got, keys) {
				t.Fatalf("%s: keys are %.2000v, of the folder they are %.2000v", pre, got, keys)
			}
			for _, tok := range []*tokenizer.Tokenizer{v.Tokenizer(), open} {
				b, _ := tok.BOS()
				e, _ := tok.EOS()
				if b != 698 || e != 699 || tok.AddBOS() != bos || tok.AddEOS() || !tok.IsEOG(697) || !tok.IsEOG(699) || tok.IsEOG(698) || !tok.IsControl(698) {
					t.Errorf("%s: BOS %d, EOS %d, adds %v %v", pre, b, e, tok.AddBOS(), tok.AddEOS())
				}
			}
			if got := open.Encode(nil, "<|im_start|>a<|endoftext|>", tokenizer.EncodeOptions{ParseSpecial: true}); !slices.Equal(got, []int32{698, 'a', 697}) {
				t.Errorf("%s: trusted control tokens become %v", pre, got)
			}
			for _, name := range []string{"text/stories/tinystories.txt", "text/books/alice.txt", "text/perplexity/wikitext-2-test.txt"} {
				checkText(t, v, open, piece(t, name, 150_000, 20_001))
			}
			for _, s := range []string{"", " ", "\x00", "<|im_end|>", "a<|im_start|>b", "\U0010FFFF\u2028\u00a0\ufeff", "  \n\n \t", "Ġ Ċ Ā <0x0A>",
				strings.Repeat("e", 999)} {
				checkText(t, v, open, s)
			}
		}
	}
}

// TestJSON holds what other readers of the files need and ours does not.
func TestJSON(t *testing.T) {
	for _, c := range []struct{ pre, ignore string }{{"gpt-2", `"ignore_merges": false`}, {"llama-bpe", `"ignore_merges": true`}} {
		opt := options(260, c.pre)
		opt.AddBOS = true
		v, err := train(t, opt, "ab ab")
		if err != nil {
			t.Fatal(err)
		}
		files, err := v.Files()
		if err != nil {
			t.Fatal(err)
		}
		for i, list := range [][]string{
			{c.ignore, `"ab": 256`, `"a b"`, `"content": "<|im_end|>"`, `"type": "ByteLevel"`, `"type": "TemplateProcessing"`, `"\"": 34`, `"Ġ": 32`},
			{`"chat_template": "{{ messages }}<|im_end|>&\n"`, `"eos_token": "<|im_end|>"`, `"pad_token": "<|endoftext|>"`, `"259": {`,
				`"tokenizer_class": "PreTrainedTokenizerFast"`},
		} {
			for _, want := range list {
				if !strings.Contains(string(files[i].Data), want) {
					t.Errorf("%s: %s lacks %s", c.pre, files[i].Name, want)
				}
			}
		}
	}
}

func TestEveryByte(t *testing.T) {
	v, err := train(t, options(259, "gpt-2"))
	if err != nil {
		t.Fatal(err)
	}
	_, open := folder(t, v)
	for b := range 256 {
		s := string([]byte{byte(b)})
		for _, tok := range []*tokenizer.Tokenizer{v.Tokenizer(), open} {
			if got := tok.Encode(nil, s, tokenizer.EncodeOptions{}); !slices.Equal(got, []int32{int32(b)}) || string(tok.Bytes(int32(b))) != s {
				t.Errorf("byte 0x%02X becomes %v, and that %q", b, got, tok.Bytes(int32(b)))
			}
		}
	}
}

// TestOrder: any order of files, any number of goroutines, any cut into files between documents.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i := range 7 {
		paths = append(paths, filepath.Join(dir, string(rune('a'+i))))
		if err := os.WriteFile(paths[i], []byte(piece(t, "text/stories/tinystories.txt", i*20_000, 20_000+i)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var want []tokenizer.Key
	for _, workers := range []int{0, 1, 2, 3, 16} {
		v, err := Files(context.Background(), paths, workers, options(900, "llama-bpe"))
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = v.Keys()
		}
		if !reflect.DeepEqual(v.Keys(), want) {
			t.Fatalf("%d workers, files in the order %q: other keys", workers, paths)
		}
		slices.Reverse(paths)
		paths = append(paths[2:], paths[:2]...)
	}
}

// TestGivenVocabulary holds a small vocabulary that was worked out by hand.
func TestGivenVocabulary(t *testing.T) {
	opt := Options{Vocab: 256 + 2 + 2, Pre: "gpt-2", Control: []string{"<a>", "[ab]"}, LeastCount: 1, Longest: 8}
	// Words: "ab" 3 times, " ab" twice; control tokens are no words.
	const text = "ab ab<a>ab[ab]ab ab"
	v, err := train(t, opt, text)
	if want := []pair{{'a', 'b'}, {' ', 256}}; err != nil || !slices.Equal(v.merges, want) {
		t.Fatalf("%v: merges %v, want %v", err, v.merges, want)
	}
	if v.tokens[257] != " ab" || v.id("<a>") != 258 || v.id("[ab]") != 259 {
		t.Errorf("tokens %q, control tokens %d and %d", v.tokens[256:], v.id("<a>"), v.id("[ab]"))
	}
	if opt.Vocab++; err == nil {
		_, err = train(t, opt, text)
	}
	if !errors.Is(err, ErrTooSmall) {
		t.Errorf("a third join: %v, want ErrTooSmall", err)
	}
}

func TestCut(t *testing.T) {
	o := Options{Control: []string{"<b>", "<b><", "<b", "<|im_end|>"}}
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"x<y>z[", []string{"x<y>z["}},
		{"x<b>y", []string{"x", "y"}},
		{"x<b><b>y", []string{"x", "b>y"}}, // the longest counts
		{"<|endoftext|>", []string{""}},
		{"a\n<|endoftext|>\nb", []string{"a\n", "b"}},
		{"a\n<|endoftext|>\r\n\nb<|im_end|>\n", []string{"a\n", "\nb", "\n"}},
		{"a\n<|endoftext|>", []string{"a\n"}},
		{"a <|endoftext|>\nb", []string{"a <|endoftext|>\nb"}},     // no line of its own, and no control token here
		{"a\n<|endoftext|> \nb", []string{"a\n<|endoftext|> \nb"}}, // nor here
	} {
		var got []string
		for text := c.text; text != ""; {
			var piece string
			piece, text = o.cut(text)
			got = append(got, piece)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestNothingAcrossControls(t *testing.T) {
	text := strings.Repeat("zq<|im_end|>qz<|im_start|>\nzq\n<|endoftext|>\nqz\n", 9)
	v, err := train(t, options(259+2, "gpt-2"), text)
	if err != nil || !slices.Equal(v.tokens[256:], []string{"qz", "zq"}) {
		t.Fatalf("%v: learned %q, want qz and zq", err, v.tokens[256:])
	}
	if _, err = train(t, options(259+3, "gpt-2"), text); !errors.Is(err, ErrTooSmall) {
		t.Fatalf("a third join: %v", err)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		change func(o *Options)
		text   string
		want   string
	}{
		{func(o *Options) { o.Vocab = 258 }, "", "vocabulary: 258 tokens are too few: 256 are bytes and 3 control tokens"},
		{func(o *Options) { o.Vocab = 1<<20 + 1 }, "", "limit is 1048576"},
		{func(o *Options) { o.LeastCount = 0 }, "", "least count: is 0"},
		{func(o *Options) { o.Longest = 1 }, "", "longest token: is 1 bytes"},
		{func(o *Options) { o.Longest = 1025 }, "", "longest token: is 1025 bytes"},
		{func(o *Options) { o.Template = "\xff" }, "", "chat template: is not UTF-8"},
		{func(o *Options) { o.Template = strings.Repeat("x", 1<<20+1) }, "", "chat template: 1048577 bytes"},
		{func(o *Options) { o.BOS, o.AddBOS = "", true }, "", "none is named"},
		{func(o *Options) { o.EOS = "<eos>" }, "", `EOS is "<eos>", which is no control token`},
		{func(o *Options) { o.BOS = "x" }, "", `BOS is "x"`},
		{func(o *Options) { o.Pad = "x" }, "", `padding is "x"`},
		{func(o *Options) { o.Control = []string{"<a>", "<a>"} }, "", "given twice"},
		{func(o *Options) { o.Pre = "gemma4" }, "", `pre is "gemma4", which is no name of a byte-level tokenizer`},
		{func(o *Options) { o.Pre = "" }, "", `pre is ""`},
		{func(o *Options) { o.Control, o.BOS, o.EOS, o.Pad = []string{"<s>"}, "", "", "" }, strings.Repeat("abcde", 90), "take it for BOS by its name"},
		{func(o *Options) {}, "", "there are 0 to join, which makes 259 tokens, and 262 are wanted"},
		{func(o *Options) {}, "ab ab", "there are 1 to join, which makes 260 tokens, and 262 are wanted"},
		{func(o *Options) {}, "日本\xe6\x97", "text: offset 6: byte 0xE6 is not UTF-8"},
		{func(o *Options) {}, "\xed\xa0\x80", "text: offset 0: byte 0xED is not UTF-8"},
	} {
		o := options(262, "gpt-2")
		c.change(&o)
		v, err := train(t, o, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || v != nil {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
	}
	for _, bad := range []string{"", "<>", "ab", "x<a>", "<a>x", "<a b>", "<é>", "<a\n>", "[a>", "<" + strings.Repeat("a", 1023) + ">"} {
		if _, err := NewCounter(Options{Vocab: 300, Pre: "gpt-2", LeastCount: 1, Longest: 9, Control: []string{bad}}); err == nil {
			t.Errorf("control token %.40q: no error", bad)
		}
	}
	if v, err := train(t, options(261, "gpt-2"), "\uFFFD\uFFFD \uFFFD"); err != nil || v.Size() != 261 { // the character itself is right
		t.Errorf("U+FFFD: %v", err)
	}
}

func TestFileErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("ab\x80"), 0o666); err != nil {
		t.Fatal(err)
	}
	opt := options(259, "gpt-2")
	if _, err := Files(context.Background(), []string{bad}, 2, opt); err == nil || !strings.Contains(err.Error(), bad+": offset 2: byte 0x80") {
		t.Error(err)
	}
	if _, err := Files(context.Background(), []string{filepath.Join(dir, "none")}, 2, opt); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Files(ctx, []string{bad}, 2, opt); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c, err := NewCounter(options(261, "gpt-2"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Add("x", strings.NewReader("abcabcabc")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Train(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	broken := errors.New("broken")
	if err := c.Add("y", io.MultiReader(strings.NewReader("a"), iotestErr{broken})); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "y: ") {
		t.Error(err)
	}
}

type iotestErr struct{ err error }

func (r iotestErr) Read([]byte) (int, error) { return 0, r.err }

// TestLongWord: joining looks at the places of a pair alone, not at the whole word.
func TestLongWord(t *testing.T) {
	start := testkit.CPUTime(t)
	opt := Options{Vocab: 256 + 700, Pre: "gpt-2", LeastCount: 1, Longest: 64}
	letters := make([]byte, 300_000)
	x := uint32(1)
	for i := range letters {
		x = x*1664525 + 1013904223
		letters[i] = 'a' + byte(x>>24)%26
	}
	if _, err := train(t, opt, string(letters)); err != nil {
		t.Fatal(err)
	}
	if d := testkit.CPUTime(t) - start; d > 10*time.Second {
		t.Errorf("took %v", d)
	}
}

// TestCompression reports what vocabularies do on text that they have not seen.
func TestCompression(t *testing.T) {
	training := piece(t, "text/stories/tinystories.txt", 0, 800_000)
	held := piece(t, "text/stories/tinystories.txt", 800_000, 200_000)
	last := 1.0
	for _, n := range []int{259, 512, 1024, 4096} {
		v, err := train(t, options(n, "gpt-2"), training)
		if err != nil {
			t.Fatal(err)
		}
		rate := float64(len(held)) / float64(len(v.Tokenizer().Encode(nil, held, tokenizer.EncodeOptions{})))
		t.Logf("%d tokens, trained on %d bytes: %.3f bytes a token of %d held-out bytes", n, len(training), rate, len(held))
		if n > 259 && rate < last+0.2 {
			t.Errorf("%d tokens: %.3f bytes a token, the vocabulary before had %.3f", n, rate, last)
		}
		last = rate
	}
	if last < 3.6 {
		t.Errorf("4096 tokens: %.3f bytes a token, expected 3.6 at least", last)
	}
}

// FuzzTrain: any text trains, or an error says why; what comes out has no token twice, and all its readers agree about any text.
func FuzzTrain(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add("hello hello <|endoftext|>\nhelp\n", "help <|im_end|>", uint16(5), false)
	f.Add("aaaa aaaaa aaa", "aaaaaaa", uint16(3), true)
	f.Add("日本語日本 äöäö\r\n\r\n 😀😀", "語日 ä", uint16(9), true)
	f.Add("a\n<|endoftext|>\nb<|im_start|>a\n\n\n 1234 1234's", "it's 12345", uint16(2), false)
	f.Add("", "\xff\x00", uint16(0), false)
	f.Fuzz(func(t *testing.T, text, other string, n uint16, llama bool) {
		opt := options(259+int(n%300), "gpt-2")
		if llama {
			opt.Pre = "llama-bpe"
		}
		opt.LeastCount = 1 + int64(n%3)
		v, err := train(t, opt, text)
		if err != nil {
			if !errors.Is(err, ErrTooSmall) && !strings.Contains(err.Error(), "is not UTF-8") {
				t.Fatal(err)
			}
			opt.Vocab = 259
			if v, err = train(t, opt, strings.ToValidUTF8(text, "")); err != nil {
				t.Fatal(err)
			}
		}
		files, err := v.Files()
		if err != nil {
			t.Fatal(err)
		}
		open, err := tokenizer.FromJSON(files[0].Data, files[1].Data)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, s := range v.Keys()[2].Value.([]string) {
			if seen[s] {
				t.Fatalf("token %q is there twice", s)
			}
			seen[s] = true
		}
		for _, s := range []string{text, other} {
			if s = strings.ToValidUTF8(s, "?"); s != "" {
				checkText(t, v, open, s)
			}
		}
	})
}

// TestBigText: 10 MB and 4,096 tokens take seconds of one core.
func TestBigText(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	paths, err := filepath.Glob(filepath.Join(testkit.Data(t, "text/books"), "*.txt"))
	if err != nil || len(paths) < 20 {
		t.Skip("the books are not here")
	}
	slices.Sort(paths)
	start := testkit.CPUTime(t)
	v, err := Files(context.Background(), paths, 1, options(4096, "llama-bpe"))
	if err != nil {
		t.Fatal(err)
	}
	d := testkit.CPUTime(t) - start
	held := piece(t, "text/perplexity/wells-time-machine.txt", 0, 1<<20)
	ids := v.Tokenizer().Encode(nil, held, tokenizer.EncodeOptions{})
	t.Logf("%d books: %.1f s of CPU time; %.3f bytes a token of %d held-out bytes", len(paths), d.Seconds(), float64(len(held))/float64(len(ids)), len(held))
	if d > 30*time.Second { // 10 s on an idle machine
		t.Errorf("took %v of CPU time", d)
	}
	if v.Size() != 4096 {
		t.Errorf("%d tokens, want 4096", v.Size())
	}
}

func decode(t *tokenizer.Tokenizer, ids []int32) string {
	return string(t.Decode(nil, ids, tokenizer.DecodeOptions{}))
}

// TestFrom: what was learned from is as many bytes and tokens as encoding it makes; texts given apart count as in a file, and alone.
func TestFrom(t *testing.T) {
	text := piece(t, "text/stories/tinystories.txt", 0, 60_001)
	for _, pre := range []string{"gpt-2", "llama-bpe", "qwen2"} {
		opt := options(900, pre)
		told := 0
		opt.Progress = func(n int) {
			if n != told+1 {
				t.Fatalf("%s: learned %d behind %d", pre, n, told)
			}
			told = n
		}
		v, err := train(t, opt, text)
		if err != nil {
			t.Fatal(err)
		}
		bytes, tokens := 0, 0
		for rest := text; rest != ""; {
			var one string
			one, rest = opt.cut(rest)
			bytes += len(one)
			tokens += len(v.Tokenizer().Encode(nil, one, tokenizer.EncodeOptions{}))
		}
		if b, n := v.From(); b != int64(bytes) || n != int64(tokens) || told != 900-259 {
			t.Errorf("%s: from %d bytes in %d tokens, encoding has %d in %d; told of %d", pre, b, n, bytes, tokens, told)
		}

		c, err := NewCounter(opt)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for rest := text; rest != ""; {
			var one string
			one, rest = opt.cut(rest)
			texts = append(texts, one)
		}
		told = 0
		if err := errors.Join(c.AddTexts("x", texts[:20]...), c.AddTexts("x", texts[20:]...)); err != nil {
			t.Fatal(err)
		}
		apart, err := c.Train(context.Background())
		if err != nil || !reflect.DeepEqual(apart.Keys(), v.Keys()) {
			t.Errorf("%s: texts that are given apart make another vocabulary: %v", pre, err)
		}
	}
}
