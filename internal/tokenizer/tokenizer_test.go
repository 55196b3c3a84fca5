package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"ck/internal/testkit"
)

func sourceOf(vocab, form string) source {
	for _, s := range sources {
		if s.vocab == vocab && s.form == form {
			return s
		}
	}
	panic("no source " + vocab + " " + form)
}

// normalized is what decoding gives back for text: the normal form, with U+2581 as the space that it stands for.
func normalized(t *Tokenizer, text string) string {
	for _, n := range t.normal {
		if n.form != nil {
			text = normalForm(*n.form, text)
		}
	}
	if t.escape {
		text = strings.ReplaceAll(text, escapedSpace, " ")
	}
	return text
}

// lacks reports whether text has a byte for which the vocabulary has no token (some were trained without the rarest).
func (t *Tokenizer) lacks(text string) bool {
	for _, b := range []byte(text) {
		if t.bytes[b] < 0 {
			return true
		}
	}
	return false
}

// decode(encode(x)) = x up to the normalizer, in one piece and as a stream.
func TestRoundTrip(t *testing.T) {
	texts := randomTexts(150)
	for _, c := range readCases(t, "gpt-2") {
		texts = append(texts, c.Text)
	}
	texts = append(texts, "▁a▁ ▁", "a</s> b", strings.Repeat("x", 5000), strings.Repeat(" ", 3000)+"y", "<0x41> <0xE2>")
	for _, s := range there(t, sources[:17]) {
		tok := s.open(t)
		for _, text := range texts {
			if tok.lacks(text) {
				continue
			}
			want := normalized(tok, text)
			ids := tok.Encode(nil, text, EncodeOptions{AddSpecial: true})
			opt := DecodeOptions{SkipSpaceAtStart: true}
			if got := string(tok.Decode(nil, ids, opt)); got != want {
				t.Fatalf("%v: %q becomes %v, which is %q", s, text, ids, got)
			}
			d := tok.NewDecoder(opt)
			var b strings.Builder
			for _, id := range ids {
				part := d.Append(id)
				if !utf8.ValidString(part) {
					t.Fatalf("%v: %q: token %d gives %q", s, text, id, part)
				}
				b.WriteString(part)
			}
			b.WriteString(d.Flush())
			if b.String() != want {
				t.Fatalf("%v: %q as a stream: %q", s, text, b.String())
			}
		}
	}
}

// Text that is not UTF-8 comes back too where the vocabulary has all bytes.
func TestRoundTripOfBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for _, s := range there(t, []source{sourceOf("llama-bpe", "gguf"), sourceOf("gpt-2", "gguf"), sourceOf("mistral-v1", "model"), sourceOf("gemma-4", "gguf"),
		sourceOf("tekken", "tekken"), sourceOf("gpt-oss", "json")}) {
		tok := s.open(t)
		for range 300 {
			b := make([]byte, rng.IntN(40))
			for i := range b {
				b[i] = byte(rng.Uint32())
				if rng.IntN(2) == 0 {
					b[i] = " ab\xe2\x96\x81\xf0\x9f"[rng.IntN(8)]
				}
			}
			want := []byte(normalized(tok, string(b)))
			ids := tok.Encode(nil, string(b), EncodeOptions{})
			if got := tok.Decode(nil, ids, DecodeOptions{SkipSpaceAtStart: true}); !bytes.Equal(got, want) {
				t.Fatalf("%v: %q becomes %q", s, b, got)
			}
			d := tok.NewDecoder(DecodeOptions{SkipSpaceAtStart: true})
			var got []byte
			for _, id := range ids {
				got = d.AppendBytes(got, id)
			}
			if got = d.FlushBytes(got); !bytes.Equal(got, want) {
				t.Fatalf("%v: %q as a stream: %q", s, b, got)
			}
		}
	}
}

func TestDecoderHoldsUnfinishedCharacters(t *testing.T) {
	tok := sourceOf("mistral-v1", "model").open(t)
	id := func(b byte) int32 { return tok.bytes[b] }
	hello, ok := tok.TokenID(" Hello")
	if !ok {
		t.Fatal("no token for Hello")
	}
	d := tok.NewDecoder(DecodeOptions{SkipSpaceAtStart: true})
	steps := []struct {
		id   int32
		want string
	}{{1, ""}, {hello, "Hello"}, {hello, " Hello"}, {id(0xF0), ""}, {id(0x9F), ""}, {id(0x98), ""}, {id(0x80), "😀"}, {id(0xE2), ""}, {hello, "\ufffd Hello"},
		{id(0x80), "\ufffd"}, {id(0xFF), "\ufffd"}, {id(0xC3), ""}, {2, ""}, {id(0xA9), "é"}, {-1, ""}, {1 << 30, ""}, {id(0xE2), ""}, {id(0x82), ""}}
	for i, s := range steps {
		if got := d.Append(s.id); got != s.want {
			t.Errorf("step %d: %q, want %q", i, got, s.want)
		}
	}
	if got := d.Flush(); got != "\ufffd\ufffd" {
		t.Errorf("flush: %q", got)
	}
	if got := d.Flush(); got != "" {
		t.Errorf("second flush: %q", got)
	}
	for opt, want := range map[DecodeOptions]string{{}: " Hello", {SkipSpaceAtStart: true}: "Hello", {Special: true}: "<s> Hello",
		{Special: true, SkipSpaceAtStart: true}: "<s>Hello"} {
		if got := string(tok.Decode(nil, []int32{1, hello}, opt)); got != want {
			t.Errorf("%+v: %q, want %q", opt, got, want)
		}
	}
}

func TestDecodeWithoutSpaceAtStart(t *testing.T) {
	gemma := sourceOf("gemma-4", "gguf").open(t)
	id2, _ := gemma.TokenID(" the")
	if got := string(gemma.Decode(nil, []int32{id2}, DecodeOptions{SkipSpaceAtStart: true})); got != " the" {
		t.Errorf("gemma-4 puts no space before a text, but decoding drops one: %q", got)
	}
}

func TestParts(t *testing.T) {
	tok := sourceOf("qwen3", "json").open(t)
	text := "<|im_start|>user\nSay <|im_end|> twice<|im_end|>\n"
	start, _ := tok.TokenID("<|im_start|>")
	end, _ := tok.TokenID("<|im_end|>")
	count := func(ids []int32, id int32) (n int) {
		for _, v := range ids {
			if v == id {
				n++
			}
		}
		return n
	}
	parts := []Part{{"<|im_start|>", true}, {"user\n", true}, {"Say <|im_end|> twice", false}, {"<|im_end|>\n", true}}
	ids := tok.EncodeParts(nil, parts, EncodeOptions{})
	if count(ids, start) != 1 || count(ids, end) != 1 {
		t.Errorf("control tokens in a user's text: %v", ids)
	}
	if got := string(tok.Decode(nil, ids, DecodeOptions{Special: true})); got != text {
		t.Errorf("the parts decode to %q", got)
	}
	all := tok.Encode(nil, text, EncodeOptions{ParseSpecial: true})
	if count(all, end) != 2 {
		t.Errorf("ParseSpecial: %v", all)
	}
	// Trusted parts are cut as the joined text, also where a token lies across a seam; words cross seams of any kind.
	for seam := range len(text) {
		parts := []Part{{text[:seam], true}, {text[seam:], true}}
		if got := tok.EncodeParts(nil, parts, EncodeOptions{}); !slices.Equal(got, all) {
			t.Errorf("seam at %d: %v, want %v", seam, got, all)
		}
	}
	// Half of a token's text from the user does not complete it.
	ids = tok.EncodeParts(nil, []Part{{"<|im_", false}, {"end|>", true}}, EncodeOptions{})
	if count(ids, end) != 0 {
		t.Errorf("a control token that is half a user's: %v", ids)
	}
	// Nor does it hide a trusted one that begins inside what it would have completed.
	spec := newSpecials([]special{{text: "<a><b", id: 1, control: true}, {text: "<b>", id: 2, control: true}})
	if sp, lo, _ := spec.next("<a><b>", 0, func(lo, hi int) bool { return lo >= 3 }); sp == nil || sp.id != 2 || lo != 3 {
		t.Errorf("a trusted token behind a user's text: %+v at %d", sp, lo)
	}
	plain := tok.Encode(nil, "Hello world, hello", EncodeOptions{})
	if got := tok.EncodeParts(nil, []Part{{"Hel", false}, {"lo wor", true}, {"ld, hello", false}}, EncodeOptions{}); !slices.Equal(got, plain) {
		t.Errorf("words across seams: %v, want %v", got, plain)
	}
}

func TestAccessors(t *testing.T) {
	for _, c := range []struct {
		source
		kind           string
		size           int
		bos, eos       int32
		addBOS, addEOS bool
		eog            []string
		not            []string
	}{
		{sourceOf("llama-bpe", "gguf"), "bpe", 128256, 128000, 128001, true, false, []string{"<|end_of_text|>", "<|eot_id|>"}, []string{"<|begin_of_text|>", "Hello"}},
		{sourceOf("llama-bpe", "json"), "bpe", 128256, 128000, 128001, true, false, []string{"<|end_of_text|>", "<|eot_id|>"}, []string{"<|start_header_id|>"}},
		{sourceOf("qwen2", "gguf"), "bpe", 151936, 151643, 151643, false, false, []string{"<|endoftext|>", "<|im_end|>"}, []string{"<|im_start|>", "</s>"}},
		{sourceOf("qwen3", "json"), "bpe", 151669, -1, 151645, false, false, []string{"<|endoftext|>", "<|im_end|>"}, []string{"<think>", "</tool_call>"}},
		{sourceOf("gpt-oss", "json"), "bpe", 200019, 199998, 200002, false, false, []string{"<|return|>", "<|call|>", "<|endoftext|>"}, []string{"<|end|>", "<|start|>"}},
		{sourceOf("deepseek-v3", "json"), "bpe", 128815, 0, 1, true, false, []string{"<｜end▁of▁sentence｜>"}, nil},
		{sourceOf("phi-3", "gguf"), "spm", 32064, 1, 32000, true, false, []string{"<|endoftext|>", "<|end|>", "</s>"}, []string{"<|user|>"}},
		{sourceOf("llama-spm", "model"), "spm", 32000, 1, 2, true, false, []string{"</s>"}, []string{"<s>"}},
		{sourceOf("gemma-4", "gguf"), "bpe", 262144, 2, 1, true, false, []string{"<eos>", "<turn|>", "<|tool_response>"}, []string{"<|turn>", "<bos>", "</s>"}},
		{sourceOf("tekken", "tekken"), "bpe", 131072, 1, 2, true, false, []string{"</s>"}, []string{"[INST]"}},
	} {
		if _, ok := testkit.Lookup(t, "tokenizers/"+c.file()); !ok {
			continue
		}
		tok := c.open(t)
		bos, hasBOS := tok.BOS()
		eos, _ := tok.EOS()
		if tok.Kind() != c.kind || tok.VocabSize() != c.size || bos != c.bos || hasBOS != (c.bos >= 0) || eos != c.eos || tok.AddBOS() != c.addBOS || tok.AddEOS() != c.addEOS {
			t.Errorf("%v: kind %s, size %d, BOS %d, EOS %d, add %v %v", c.source, tok.Kind(), tok.VocabSize(), bos, eos, tok.AddBOS(), tok.AddEOS())
		}
		for _, text := range c.eog {
			if id, ok := tok.TokenID(text); !ok || !tok.IsEOG(id) || !tok.IsControl(id) || tok.Piece(id) != text {
				t.Errorf("%v: %s is %d, %v: not the end of a generation", c.source, text, id, ok)
			}
		}
		for _, text := range c.not {
			if id, ok := tok.TokenID(text); !ok || tok.IsEOG(id) {
				t.Errorf("%v: %s is %d, %v: the end of a generation", c.source, text, id, ok)
			}
		}
		for _, id := range []int32{-1, int32(tok.VocabSize()), 1 << 30} {
			if tok.Piece(id) != "" || tok.Bytes(id) != nil || tok.IsControl(id) || tok.IsEOG(id) {
				t.Errorf("%v: id %d is something", c.source, id)
			}
		}
		if id, ok := tok.TokenID(" the"); !ok || string(tok.Bytes(id)) != " the" {
			t.Errorf("%v: token of ' the': %d, %v", c.source, id, ok)
		}
	}
}

// Every model of the data that has a text and the ids of it, from its GGUF file and from its folder.
func TestModels(t *testing.T) {
	root := testkit.Data(t, "models")
	lists, err := filepath.Glob(root + "/*/ids.json")
	if err != nil {
		t.Fatal(err)
	}
	checked, folders := 0, 0
	for _, name := range lists {
		dir := filepath.Dir(name)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Sequences []struct {
				Name string
				IDs  []int32
				Text *string
			}
		}
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatal(err)
		}
		var toks []*Tokenizer
		if b, err := os.ReadFile(dir + "/model.gguf"); err == nil {
			tok, err := FromGGUF(readKV(b))
			if errors.Is(err, ErrUnsupported) {
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", dir, err)
				continue
			}
			toks = append(toks, tok)
		}
		if _, err := os.Stat(dir + "/hf"); err == nil {
			tok, err := Open(dir + "/hf")
			if err != nil {
				t.Errorf("%s: %v", dir, err)
				continue
			}
			toks = append(toks, tok)
			folders++
			if b, err := os.ReadFile(dir + "/hf/tokenizer.model"); err == nil {
				config, err := os.ReadFile(dir + "/hf/tokenizer_config.json")
				if err != nil {
					t.Fatal(err)
				}
				if tok, err = FromSentencePiece(b, config); err != nil {
					t.Errorf("%s: %v", dir, err)
					continue
				}
				toks = append(toks, tok)
			}
		}
		for _, seq := range list.Sequences {
			if seq.Text == nil {
				continue
			}
			for i, tok := range toks {
				if got := tok.Encode(nil, *seq.Text, EncodeOptions{AddSpecial: true}); !slices.Equal(got, seq.IDs) {
					t.Errorf("%s, %s, form %d: %q:\n got %v\nwant %v", dir, seq.Name, i, *seq.Text, got, seq.IDs)
				}
				checked++
			}
		}
	}
	t.Logf("%d texts, %d folders", checked, folders)
	if checked < testkit.Least(t, 50, 20) || folders < 5 {
		t.Errorf("%d texts and %d folders checked, want more", checked, folders)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.model", string(tinyModel()))
	tok, err := Open(dir)
	if err != nil || tok.Kind() != "spm" {
		t.Fatalf("tokenizer.model: %v", err)
	}
	write("tokenizer.json", `{"model":{"type":"Unigram","vocab":[["a",-1.5]]}}`)
	if tok, err = Open(dir); err != nil || tok.Kind() != "spm" {
		t.Errorf("a Unigram tokenizer.json beside tokenizer.model: %v", err)
	}
	write("tekken.json", tinyTekken)
	if tok, err = Open(dir); err != nil || tok.VocabSize() != 5 {
		t.Errorf("tekken.json: %v", err)
	}
	write("tokenizer.json", tinyJSON)
	write("generation_config.json", `{"eos_token_id":[4,1]}`)
	if tok, err = Open(dir); err != nil || tok.VocabSize() != 7 || !tok.IsEOG(4) || !tok.IsEOG(1) || tok.IsEOG(0) {
		t.Errorf("tokenizer.json: %v", err)
	}
	for _, bad := range []string{"99", "[4,7]", "-1", "1.5", `"1"`, "[[1]]", "true"} {
		write("generation_config.json", `{"eos_token_id":`+bad+`}`)
		if _, err = Open(dir); err == nil || !strings.Contains(err.Error(), "generation_config.json: eos_token_id: ") {
			t.Errorf("eos_token_id %s: %v", bad, err)
		}
	}
	write("generation_config.json", `{"eos_token_id":null}`)
	write("tokenizer.json", tinyJSON[:len(tinyJSON)/2])
	if _, err = Open(dir); err == nil || !strings.Contains(err.Error(), "tokenizer.json: offset") {
		t.Errorf("half a tokenizer.json: %v", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := sourceOf("gpt-2", "gguf").open(t)
	cases := readCases(t, "gpt-2")
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		wg.Go(func() {
			for i := range cases {
				c := cases[(i+w*40)%len(cases)]
				if got := tok.Encode(nil, c.Text, EncodeOptions{c.AddSpecial, c.ParseSpecial}); !slices.Equal(got, c.IDs) {
					errs[w] = fmt.Errorf("%q: %v", c.Text, got)
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// One long word: the candidates that merging looks at are at most three for each symbol, each at the cost of a heap.
func TestLongWords(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	var random strings.Builder
	for random.Len() < 1<<18 {
		random.WriteByte(byte('a' + rng.IntN(26)))
	}
	for _, s := range there(t, []source{sourceOf("llama-bpe", "gguf"), sourceOf("mistral-v1", "model"), sourceOf("tekken", "tekken"), sourceOf("gemma-4", "gguf")}) {
		tok := s.open(t)
		for name, word := range map[string]string{"a": strings.Repeat("a", 1<<18), "ab": strings.Repeat("ab", 1<<17), "random": random.String(),
			"spaces": strings.Repeat(" ", 1<<18)} {
			m := &merger{}
			ids := tok.encodeWord(nil, m, word)
			if m.work > 3*len(word) {
				t.Errorf("%v: %s: %d candidates for %d bytes", s, name, m.work, len(word))
			}
			if got := string(tok.Decode(nil, ids, DecodeOptions{})); got != word {
				t.Errorf("%v: %s does not come back", s, name)
			}
		}
	}
}

// A word is cut the same through the cache as without it.
func TestCache(t *testing.T) {
	tok := sourceOf("gpt-2", "gguf").open(t)
	rng := rand.New(rand.NewPCG(4, 4))
	s := tok.pool.get(tok)
	words := make([]string, 30000)
	for i := range words {
		words[i] = " " + strings.Repeat("ab", rng.IntN(4)) + fmt.Sprint(rng.IntN(100000))
	}
	for range 2 {
		for _, w := range words {
			if got, want := tok.word(nil, s, w), tok.encodeWord(nil, &merger{}, w); !slices.Equal(got, want) {
				t.Fatalf("%q: %v, want %v", w, got, want)
			}
		}
	}
}

// Merging by the heap gives what joining the best pair again and again gives.
func TestMergeOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	for _, s := range []source{sourceOf("gpt-2", "gguf"), sourceOf("mistral-v1", "model"), sourceOf("tekken", "tekken")} {
		tok := s.open(t)
		for range 2000 {
			word := ""
			for range 1 + rng.IntN(14) {
				word += string("aabeinorst  é中"[rng.IntN(12)])
			}
			type part struct {
				text string
				id   int32
			}
			m := merger{}
			tok.initial(&m, word)
			var parts []part
			for i := range m.syms {
				parts = append(parts, part{word[m.syms[i].pos:m.end(int32(i), len(word))], m.syms[i].id})
			}
			for {
				best, at, id := uint32(1<<32-1), -1, int32(0)
				for i := 0; i+1 < len(parts); i++ {
					if tok.spans {
						if k := tok.findString(parts[i].text + parts[i+1].text); k >= 0 && tok.priority[k] < best {
							best, at, id = tok.priority[k], i, k
						}
					} else if r, ok := tok.merges.find(parts[i].id, parts[i+1].id); ok && r < best {
						best, at, id = r, i, tok.merges.ids[r]
					}
				}
				if at < 0 {
					break
				}
				parts[at] = part{parts[at].text + parts[at+1].text, id}
				parts = slices.Delete(parts, at+1, at+2)
			}
			var want []int32
			for _, p := range parts {
				want = append(want, p.id)
			}
			if tok.ignoreMerges {
				if id := tok.findString(word); id >= 0 {
					want = []int32{id}
				}
			}
			if got := tok.encodeWord(nil, &merger{}, word); !slices.Equal(got, want) {
				t.Fatalf("%v: %q: %v, want %v", s, word, got, want)
			}
		}
	}
}

// Of two merges whose ranks are neighbours the lower goes first, wherever the list begins.
func TestNeighbouringMerges(t *testing.T) {
	for _, before := range []string{``, `"d e",`, `"d e","e d",`} {
		for merges, want := range map[string][]int32{`"a b","b c"`: {4, 3}, `"b c","a b"`: {1, 5}} {
			tok, err := FromJSON([]byte(`{"added_tokens":[],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},
				"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"x":0,"a":1,"b":2,"c":3,"ab":4,"bc":5,"d":6,"e":7,"de":8,"ed":9},
				"merges":[`+before+merges+`]}}`), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.Encode(nil, "abc", EncodeOptions{}); !slices.Equal(got, want) {
				t.Errorf("merges %s%s: abc is %v, want %v", before, merges, got, want)
			}
		}
	}
}

// allocated is the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

const tinyJSON = `{"added_tokens":[{"id":0,"content":"<s>","special":true},{"id":5,"content":"<x>","special":false,"rstrip":true},
	{"id":6,"content":"</s>","special":true}],"normalizer":{"type":"NFC"},
	"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\w+|\\s+"},"behavior":"Isolated"},
	{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},"decoder":{"type":"ByteLevel"},
	"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[0]}}},
	"model":{"type":"BPE","vocab":{"a":1,"b":2,"ab":3,"\u0120":4},"merges":["a b"]}}`

const tinyTekken = `{"config":{"pattern":"\\w+|\\s+","default_vocab_size":5,"default_num_special_tokens":2},
	"special_tokens":[{"rank":0,"token_str":"<s>","is_control":true},{"rank":1,"token_str":"</s>"}],
	"vocab":[{"rank":0,"token_bytes":"YQ==","token_str":"a"},{"rank":1,"token_bytes":"Yg==","token_str":null},{"rank":2,"token_bytes":"YWI="}]}`

// tinyModel is a sentencepiece model with all kinds of pieces.
func tinyModel() []byte {
	var b []byte
	message := func(num byte, body []byte) { b = append(append(b, num<<3|2, byte(len(body))), body...) }
	for i, p := range []struct {
		text string
		kind byte
	}{{"<unk>", 2}, {"<s>", 3}, {"</s>", 3}, {"▁", 1}, {"a", 1}, {"b", 1}, {"▁a", 1}, {"ab", 5}, {"abb", 1}, {"<u>", 4}, {"<0x41>", 6}} {
		body := append([]byte{1<<3 | 2, byte(len(p.text))}, p.text...)
		body = append(body, 2<<3|5, 0, 0, byte(i)<<4, 0xC1) // a negative score, the later the lower
		message(1, append(body, 3<<3, p.kind))
	}
	message(2, []byte{3 << 3, 2})
	message(3, []byte{4 << 3, 0})
	return b
}

func TestTinyFiles(t *testing.T) {
	tok, err := FromJSON([]byte(tinyJSON), nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int32{"ab ba": {0, 3, 4, 2, 1}, "<x>   a<s>": {0, 5, 1}, "zz": {0}, "": {0}} {
		if got := tok.Encode(nil, text, EncodeOptions{AddSpecial: true}); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := tok.Encode(nil, "a<s>", EncodeOptions{ParseSpecial: true}); !slices.Equal(got, []int32{1, 0}) {
		t.Errorf("parsed: %v", got)
	}
	if tok, err = FromJSON([]byte(tinyJSON), []byte(`{"bos_token":"</s>","add_bos_token":true,"eos_token":{"content":"</s>"},"add_eos_token":true}`)); err != nil {
		t.Fatal(err)
	}
	if got := tok.Encode(nil, "a", EncodeOptions{AddSpecial: true}); !slices.Equal(got, []int32{6, 0, 1, 6}) {
		t.Errorf("by configuration: %v", got)
	}
	if tok, err = FromTekken([]byte(tinyTekken)); err != nil {
		t.Fatal(err)
	}
	if got := tok.Encode(nil, "abba c", EncodeOptions{AddSpecial: true}); !slices.Equal(got, []int32{0, 4, 3, 2}) {
		t.Errorf("tekken: %v", got)
	}
	if tok, err = FromSentencePiece(tinyModel(), []byte(`{"added_tokens_decoder":{"11":{"content":"<new>","special":true}}}`)); err != nil {
		t.Fatal(err)
	}
	// ab is unused: a word that ends in it is taken apart again; one where it is a step to abb is not.
	for text, want := range map[string][]int32{"a": {1, 6}, "bab": {1, 3, 5, 4, 5}, "babb": {1, 3, 5, 8}, "b<u>b": {1, 3, 5, 9, 5}, "A": {1, 3, 10}, "Z": {1, 3, 0},
		"ZZ": {1, 3, 0}} {
		if got := tok.Encode(nil, text, EncodeOptions{AddSpecial: true}); !slices.Equal(got, want) {
			t.Errorf("sentencepiece: %q: %v, want %v", text, got, want)
		}
	}
	if got := tok.Encode(nil, "b</s>b<new>b", EncodeOptions{ParseSpecial: true}); !slices.Equal(got, []int32{3, 5, 2, 3, 5, 11, 3, 5}) {
		t.Errorf("sentencepiece, specials: %v", got)
	}
}

// What tokenizer.json can ask for beyond what the vocabularies of the data use.
func TestJSONParts(t *testing.T) {
	const vocab = `"model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"▁":3,"▁a":4,"ab":5,"1":6,"12":7,"!":8,"!!":9,"A":10,"2":11},
		"merges":["▁ a","a b","1 2","! !"]}`
	for _, c := range []struct{ parts, text, want string }{
		{`"pre_tokenizer":{"type":"Metaspace","replacement":"▁"}`, "a b", "▁a|▁|b"},
		{`"pre_tokenizer":{"type":"Metaspace","replacement":"▁"}`, " a", "▁a"},
		{`"pre_tokenizer":{"type":"Metaspace","prepend_scheme":"never","split":false}`, "a a", "a|▁a"},
		{`"pre_tokenizer":{"type":"Metaspace","add_prefix_space":false}`, "a", "a"},
		{`"pre_tokenizer":{"type":"WhitespaceSplit"}`, "ab  ab", "ab|ab"},
		{`"pre_tokenizer":{"type":"Whitespace"}`, "ab! ab", "ab|!|ab"},
		{`"pre_tokenizer":{"type":"Digits","individual_digits":true}`, "a12", "a|1|2"},
		{`"pre_tokenizer":{"type":"Digits"}`, "a12", "a|12"},
		{`"pre_tokenizer":{"type":"Punctuation"}`, "!!", "!|!"},
		{`"pre_tokenizer":{"type":"Punctuation","behavior":"Contiguous"}`, "a!!", "a|!!"},
		{`"pre_tokenizer":{"type":"Split","pattern":{"String":"."},"behavior":"Removed"}`, "a.b", "a|b"},
		{`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"b"},"behavior":"Isolated"}`, "abab", "a|b|a|b"},
		{`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"b"},"behavior":"MergedWithPrevious"}`, "abab", "ab|ab"},
		{`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"MergedWithNext"}`, "abab", "ab|ab"},
		{`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"MergedWithPrevious","invert":true}`, "bab", "b|ab"},
		{`"normalizer":{"type":"Lowercase"}`, "AB", "ab"},
		{`"normalizer":{"type":"Strip","strip_left":true,"strip_right":true}`, "\u3000ab\n", "ab"},
		{`"normalizer":{"type":"Replace","pattern":{"Regex":"x+"},"content":"a"}`, "xxb", "ab"},
		{`"normalizer":{"type":"Replace","pattern":{"String":"xx"},"content":"a"}`, "xxb", "ab"},
		{`"normalizer":{"type":"Prepend","prepend":"a"}`, "b", "ab"},
		{`"normalizer":{"type":"NFKC"}`, "\uff41b", "ab"},
		{`"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}`, "a", "▁a"},
		{`"post_processor":{"type":"RobertaProcessing","cls":["!",8],"sep":["?",0]}`, "a", "!|a|?"},
	} {
		tok, err := FromJSON([]byte("{"+c.parts+","+vocab+"}"), nil)
		if err != nil {
			t.Errorf("%s: %v", c.parts, err)
			continue
		}
		var got []string
		for _, id := range tok.Encode(nil, c.text, EncodeOptions{AddSpecial: true}) {
			got = append(got, tok.Piece(id))
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q: %q, want %q", c.parts, c.text, strings.Join(got, "|"), c.want)
		}
	}
	for _, parts := range []string{`"pre_tokenizer":{"type":"BertPreTokenizer"}`, `"normalizer":{"type":"BertNormalizer"}`, `"post_processor":{"type":"Other"}`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?<=a)"}}`, `"pre_tokenizer":{"type":"Split"}`, `"post_processor":{"type":"BertProcessing"}`,
		`"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Sideways"}`, `"added_tokens":[{"id":99999999,"content":"x"}]`,
		`"added_tokens":[{"id":-1,"content":"x"}]`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"}`} {
		if _, err := FromJSON([]byte("{"+parts+","+vocab+"}"), nil); err == nil {
			t.Errorf("%s: no error", parts)
		}
	}
}

// The character map of T5 is NFKC with sentencepiece's additions.
func TestCharMap(t *testing.T) {
	kv := readKV(readData(t, "gguf/t5-small.gguf.gz"))
	ints, ok, _ := kv.Ints(ggml + "precompiled_charsmap")
	if !ok {
		t.Fatal("no character map")
	}
	raw := make([]byte, len(ints))
	for i, v := range ints {
		raw[i] = byte(v)
	}
	m, err := parseCharMap(raw)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"plain": "plain", "ﬁ": "fi", "①": "1", "Ａ": "A", "e\u0301": "é", "㍿": "株式会社", "\xff中": "\xff中", "": ""} {
		if got := m.apply(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for n := range 64 {
		if m, err := parseCharMap(raw[:n]); err == nil && m != nil {
			m.apply("damaged ①")
		}
	}
	if m, err := parseCharMap([]byte{4, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 'x'}); err != nil || m.apply("abc") != "abc" {
		t.Errorf("a trie that leads nowhere: %v", err)
	}
}

// Vocabularies of other kinds are refused as that.
func TestUnsupportedVocabularies(t *testing.T) {
	for _, name := range []string{"bert-bge", "t5-small"} {
		if _, err := FromGGUF(readKV(readData(t, "gguf/"+name+".gguf.gz"))); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := FromJSON(readData(t, "hf/t5-small.tokenizer.json.gz"), nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("t5-small: %v", err)
	}
}

// Damage and lies about sizes end in an error, without allocating more than the file justifies.
func TestBadFiles(t *testing.T) {
	bad := map[string]func() error{}
	for _, s := range []string{"", "{", "[]", "null", `{"model"`, `{"model":1}`, `{"model":{"type":"BPE","vocab":{"a":2000000},"merges":[]}}`,
		`{"model":{"type":"BPE","vocab":{"a":-1}}}`, `{"model":{"type":"BPE","vocab":{"a":"x"}}}`, `{"model":{"type":"BPE","vocab":{}}}`,
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`, `{"model":{"type":"BPE","vocab":{"a":0},"merges":[1]}}`,
		`{"model":{"type":"WordPiece","vocab":{"a":0}}}`, strings.Repeat("[", 100000), `{"a":` + strings.Repeat("[", 5000), `{"model":{"type":"BPE","vocab":{"\ud8":0}}}`,
		`{"model":{"type":"BPE","vocab":{"a":0},"continuing_subword_prefix":"##"}}`, tinyJSON[:300],
		`{"normalizer":{"type":"Sequence","normalizers":[` + strings.Repeat(`{"type":"NFC"},`, 100) + `{"type":"NFC"}]},"model":{"type":"BPE","vocab":{"a":0}}}`} {
		bad["json "+s] = func() error { _, err := FromJSON([]byte(s), nil); return err }
		bad["tekken "+s] = func() error { _, err := FromTekken([]byte(s)); return err }
	}
	for i, s := range []string{strings.Replace(tinyTekken, `"default_vocab_size":5`, `"default_vocab_size":5000000`, 1),
		strings.Replace(tinyTekken, `"default_num_special_tokens":2`, `"default_num_special_tokens":-2`, 1),
		strings.Replace(tinyTekken, `"rank":2`, `"rank":7`, 1), strings.Replace(tinyTekken, "YQ==", "Y", 1), strings.Replace(tinyTekken, `\\w+`, `(`, 1)} {
		bad[fmt.Sprint("tekken ", i)] = func() error { _, err := FromTekken([]byte(s)); return err }
	}
	model := tinyModel()
	for i, b := range [][]byte{nil, model[:3], model[:40], {0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F}, {0x0B}, {0xFF}, {0x0A, 0x02, 0x18, 0x09}, {0x12, 0x02, 0x18, 0x02},
		bytes.Repeat([]byte{0x0A, 0x00}, 3), {0x0A, 0x02, 0x18, 0x01, 0x12, 0x02, 0x18, 0x01}} {
		bad[fmt.Sprint("model ", i)] = func() error { _, err := FromSentencePiece(b, nil); return err }
	}
	for _, c := range []string{"[", `{"added_tokens_decoder":{"x":{"content":"a"}}}`, `{"added_tokens_decoder":{"999999999":{"content":"a"}}}`, `{"bos_token":[]}`} {
		bad["config "+c] = func() error { _, err := FromSentencePiece(model, []byte(c)); return err }
	}
	good := func() mapKV {
		return mapKV{ggml + "model": "llama", ggml + "tokens": []string{"<unk>", "<s>", "a"}, ggml + "scores": []float32{0, 0, 0}, ggml + "token_type": []int64{2, 3, 1}}
	}
	if _, err := FromGGUF(good()); err != nil {
		t.Error(err)
	}
	for key, value := range map[string]any{"model": nil, "tokens": nil, "scores": []float32{1}, "token_type": []int64{1}, "bos_token_id": int64(3), "eos_token_id": int64(99),
		"unknown_token_id": int64(5)} {
		bad["gguf "+key] = func() error {
			kv := good()
			kv[ggml+key] = value
			_, err := FromGGUF(kv)
			return err
		}
	}
	for _, kv := range []mapKV{{ggml + "token_type": []int64{9, 1, 1}}, {ggml + "model": "other"}, {ggml + "model": "gpt2"}, {ggml + "tokens": []string{}, ggml + "scores": []float32{}, ggml + "token_type": []int64{}},
		{ggml + "model": "gpt2", ggml + "merges": []string{}, ggml + "pre": "unheard-of"}, {ggml + "model": "gpt2", ggml + "merges": []string{}, ggml + "add_bos_token": true},
		{ggml + "eos_token_id": int64(4294967295), ggml + "tokens": []string{"a"}, ggml + "scores": []float32{0}, ggml + "token_type": []int64{1}, ggml + "add_eos_token": true}} {
		bad[fmt.Sprint("gguf ", kv)] = func() error {
			all := good()
			for k, v := range kv {
				all[k] = v
			}
			_, err := FromGGUF(all)
			return err
		}
	}
	for name, f := range bad {
		var err error
		bytes := allocated(func() { err = f() })
		if err == nil {
			t.Errorf("%.80s: no error", name)
		}
		if bytes > uint64(4<<20+200*len(name)) {
			t.Errorf("%.80s: %d bytes allocated", name, bytes)
		}
	}
}

// exercise encodes and decodes with whatever a parser accepted.
func exercise(t *testing.T, tok *Tokenizer) {
	for _, text := range []string{"", "ab <s> ▁12\xff", "Hello wörld\n\n  x"} {
		for _, opt := range []EncodeOptions{{}, {true, true}} {
			ids := tok.Encode(nil, text, opt)
			tok.Decode(nil, ids, DecodeOptions{Special: true})
			for _, id := range ids {
				if !tok.valid(id) {
					t.Fatalf("%q gives the id %d of %d", text, id, tok.VocabSize())
				}
			}
		}
	}
}

func FuzzFromJSON(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add([]byte(tinyJSON), []byte(`{"bos_token":"<s>","add_bos_token":true}`))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"▁":0,"a":1},"merges":[["▁","a"]],"byte_fallback":true}}`), []byte{})
	f.Fuzz(func(t *testing.T, b, config []byte) {
		if tok, err := FromJSON(b, config); err == nil {
			exercise(t, tok)
		}
	})
}

func FuzzFromTekken(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add([]byte(tinyTekken))
	f.Fuzz(func(t *testing.T, b []byte) {
		if tok, err := FromTekken(b); err == nil {
			exercise(t, tok)
		}
	})
}

func FuzzFromSentencePiece(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add(tinyModel(), []byte(`{"added_tokens_decoder":{"11":{"content":"<new>"}}}`))
	f.Fuzz(func(t *testing.T, b, config []byte) {
		if tok, err := FromSentencePiece(b, config); err == nil {
			exercise(t, tok)
		}
	})
}

// The metadata of a GGUF file as the fuzzer can reach it: a model, a pre-tokenizer, and one string cut into tokens and merges.
func FuzzFromGGUF(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add("llama", "", "<s>|a|b|ab", "", []byte{3, 1, 1, 1}, int64(0), true)
	f.Add("gpt2", "llama-bpe", "a|b|ab|\u0120", "a b", []byte{1, 1, 1, 1}, int64(1), false)
	f.Add("gemma4", "", "<bos>|▁|a|▁a|<0x41>", "▁ a", []byte{3, 1, 1, 1, 6}, int64(0), true)
	f.Fuzz(func(t *testing.T, model, pre, tokens, merges string, types []byte, bos int64, flag bool) {
		kv := mapKV{ggml + "model": model, ggml + "pre": pre, ggml + "tokens": strings.Split(tokens, "|"), ggml + "merges": strings.Split(merges, "|"),
			ggml + "bos_token_id": bos, ggml + "add_bos_token": flag, ggml + "add_space_prefix": flag}
		var kinds []int64
		var scores []float32
		for i, k := range types {
			kinds, scores = append(kinds, int64(k)), append(scores, float32(int8(k))/float32(i+1))
		}
		kv[ggml+"token_type"], kv[ggml+"scores"] = kinds, scores
		if tok, err := FromGGUF(kv); err == nil {
			exercise(t, tok)
		}
	})
}

// Any string can be encoded, and comes back.
func FuzzEncode(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for _, c := range readCases(f, "gpt-2")[:60] {
		f.Add(c.Text)
	}
	f.Add("\xff\xfe▁ \x80")
	toks := []*Tokenizer{sourceOf("gpt-2", "gguf").open(f), sourceOf("mistral-v1", "model").open(f), sourceOf("phi-3", "gguf").open(f)}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range toks {
			ids := tok.Encode(nil, text, EncodeOptions{})
			if got := string(tok.Decode(nil, ids, DecodeOptions{SkipSpaceAtStart: true})); got != normalized(tok, text) && !tok.lacks(text) {
				t.Errorf("%s: %q becomes %q", tok.Kind(), text, got)
			}
			tok.Encode(nil, text, EncodeOptions{true, true})
		}
	})
}

// Added tokens with flags: white space on a side goes with them, and single words are not found inside words.
func TestSpecialFlags(t *testing.T) {
	s := newSpecials([]special{{text: "<l>", id: 1, lstrip: true}, {text: "<r>", id: 2, rstrip: true}, {text: "one", id: 3, singleWord: true},
		{text: "<", id: 4}, {text: "<<", id: 5}, {text: "<<c>", id: 6, control: true}, {text: "é", id: 7}, {text: "", id: 8}})
	type cut struct {
		id     int32
		lo, hi int
	}
	for text, want := range map[string][]cut{
		"a \u3000<l> b": {{1, 1, 8}}, "a <r> \n b": {{2, 2, 8}}, "<r> <l>": {{2, 0, 4}, {1, 4, 7}},
		"one once, one": {{3, 0, 3}, {3, 10, 13}}, "none ones": nil, "<<<": {{5, 0, 2}, {4, 2, 3}}, "x<<c>": {{5, 1, 3}}, "né": {{7, 1, 3}}, "": nil,
	} {
		var got []cut
		for pos := 0; pos < len(text); {
			sp, lo, hi := s.next(text, pos, func(lo, hi int) bool { return text != "x<<c>" })
			if sp == nil {
				break
			}
			got = append(got, cut{sp.id, lo, hi})
			pos = hi
		}
		if text == "x<<c>" {
			want = nil // the longest one begins there, though it may not be cut
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
