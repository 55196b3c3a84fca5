package tokenizer

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// AtLeast never exceeds the number of ids, with special tokens or without, and is known for the vocabularies that people use.
func TestAtLeast(t *testing.T) {
	for _, s := range there(t, sources) {
		tok := s.open(t)
		texts := []string{"", "x", strings.Repeat("▁", 3000), strings.Repeat(" ", 5000), strings.Repeat("\u1112\u1161\u11ab", 500), strings.Repeat("𝟎", 500),
			strings.Repeat("e\u0301\u0323", 900), strings.Repeat("\u0301", 900), strings.Repeat("\u212a", 900)}
		long := int32(0)
		for id := range int32(tok.VocabSize()) {
			if len(tok.Bytes(id)) > len(tok.Bytes(long)) {
				long = id
			}
			if tok.IsEOG(id) {
				texts = append(texts, strings.Repeat(tok.Piece(id), 300))
			}
		}
		texts = append(texts, strings.Repeat(tok.Piece(long), 50), strings.Repeat(string(tok.Bytes(long)), 50))
		for _, c := range readCases(t, s.vocab) {
			texts = append(texts, c.Text)
		}
		for _, text := range texts {
			if !utf8.ValidString(text) {
				continue
			}
			for _, special := range []bool{false, true} {
				if least, n := tok.AtLeast(text), len(tok.Encode(nil, text, EncodeOptions{ParseSpecial: special})); least > n {
					t.Errorf("%v: %.60q has %d ids, not at least %d", s, text, n, least)
				}
			}
		}
		known := tok.AtLeast(strings.Repeat("a", 1<<20))
		switch s.vocab {
		case "llama-bpe", "qwen2", "qwen3", "gpt-oss", "gemma-4", "tekken", "deepseek-v3", "gpt-2":
			if known < 1<<12 {
				t.Errorf("%v: 1 MiB of text has at least %d ids", s, known)
			}
		case "phi-3": // white space behind its special tokens goes with them
			if known != 0 {
				t.Errorf("%v: 1 MiB of text has at least %d ids", s, known)
			}
		}
	}
}

// What makes fewer tokens of a text than its bytes say makes the bound unknown, or smaller.
func TestAtLeastOfFiles(t *testing.T) {
	const head, tail = `{"added_tokens":[{"id":9,"content":"<longest>","special":true}],`, `"model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"aa":2},"merges":["a a"]`
	for _, c := range []struct {
		parts, end, text string
		want             int
	}{
		{``, `}}`, strings.Repeat("a", 900), 100},
		{``, `}}`, strings.Repeat("中", 300), 100},
		{``, `,"fuse_unk":true}}`, strings.Repeat("a", 900), 0},
		{`"normalizer":{"type":"NFC"},`, `}}`, strings.Repeat("a", 900), 100},
		{`"normalizer":{"type":"NFC"},`, `}}`, strings.Repeat("é", 450), 25},
		{`"normalizer":{"type":"Strip","strip_left":true},`, `}}`, strings.Repeat(" ", 900), 0},
		{`"normalizer":{"type":"Replace","pattern":{"String":"aa"},"content":""},`, `}}`, strings.Repeat("a", 900), 0},
		{`"pre_tokenizer":{"type":"WhitespaceSplit"},`, `}}`, strings.Repeat(" ", 900), 0},
	} {
		tok, err := FromJSON([]byte(head+c.parts+tail+c.end), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, n := tok.AtLeast(c.text), len(tok.Encode(nil, c.text, EncodeOptions{}))
		if got != c.want || got > n {
			t.Errorf("%s%s: %.20q has at least %d ids, expected %d; it has %d", c.parts, c.end, c.text, got, c.want, n)
		}
	}
}

// Bytes that become nothing are known afterwards, each once; those that an unknown token stands for are not among them.
func TestLost(t *testing.T) {
	for _, s := range there(t, sources) {
		tok := s.open(t)
		missing := []byte{}
		for b := range 256 {
			if tok.bytes[b] < 0 && tok.unknown < 0 {
				missing = append(missing, byte(b))
			}
		}
		text := make([]byte, 256)
		for b := range text {
			text[b] = byte(b)
		}
		for range 2 {
			tok.Encode(nil, string(text), EncodeOptions{})
		}
		if got := tok.Lost(); len(missing) > 0 != (len(got) > 0) || !tok.chars && !bytes.Equal(got, missing) {
			t.Errorf("%v: %x were lost, the vocabulary lacks %x", s, got, missing)
		}
	}
	for _, c := range []struct {
		json, text, lost string
		ids              []int32
	}{
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`, "a中a", "\xad\xb8\xe4", []int32{0, 0}},
		{`{"model":{"type":"BPE","unk_token":"?","vocab":{"a":0,"?":1},"merges":[]}}`, "a中a", "", []int32{0, 1, 0}},
		{`{"model":{"type":"BPE","byte_fallback":true,"vocab":{"a":0,"<0xE4>":1},"merges":[]}}`, "a中a", "\xad\xb8", []int32{0, 1, 0}},
		{`{"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`, "ab ab", " b", []int32{0, 0}},
	} {
		tok, err := FromJSON([]byte(c.json), nil)
		if err != nil {
			t.Fatal(err)
		}
		if ids := tok.Encode(nil, c.text, EncodeOptions{}); !slices.Equal(ids, c.ids) || string(tok.Lost()) != c.lost {
			t.Errorf("%s: %v, lost %q; expected %v and %q", c.json, ids, tok.Lost(), c.ids, c.lost)
		}
	}
}
