package synth

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"ck/internal/template"
	"ck/internal/testkit"
	"ck/internal/tokenizer"
)

// A shorter list is the beginning of a longer one; all tokens differ, and each but the bytes is what its merge makes of two earlier ones.
func TestMergesAreLists(t *testing.T) {
	long := newBPE(151771)
	if len(long.text) != 151771 || len(long.merges) != 151771-256 {
		t.Fatalf("%d tokens, %d merges", len(long.text), len(long.merges))
	}
	at := map[string]int{}
	for i, s := range long.text {
		if _, ok := at[s]; ok {
			t.Fatalf("token %q twice", s)
		}
		if at[s] = i; i < 256 {
			continue
		}
		l, r, _ := strings.Cut(long.merges[i-256], " ")
		a, okA := at[l]
		b, okB := at[r]
		if !okA || !okB || a >= i || b >= i || l+r != s {
			t.Fatalf("token %d, %q: merge %q", i, s, long.merges[i-256])
		}
	}
	for _, n := range []int{300, 5000, 40000} {
		if b := newBPE(n); !slices.Equal(b.text, long.text[:n]) || !slices.Equal(b.merges, long.merges[:n-256]) {
			t.Errorf("a list of %d is another one", n)
		}
	}
}

// plainText is of today, and from none of the books that the words are from.
const plainText = `Last Tuesday the committee published its annual report on public transport. It says that 42 percent of all passengers
now travel by bus, compared with 38 percent five years ago, and that most complaints concern delays in the early morning. "We cannot
promise that every train will be on time," said the chairman, "but we're going to explain why it isn't." The new software, which was
tested in three cities, predicts where problems are likely to appear and informs the drivers directly. Critics wonder whether the data
are good enough: a model is only as useful as the measurements behind it.

Similar projects exist in Norway and in Canada. They show what can be achieved when engineers, planners and the people who use the
service every day talk to each other before decisions are made.
`

func open(t *testing.T, arch string, n int) (*tokenizer.Tokenizer, string) {
	t.Helper()
	s, err := Find("llama-3.2-1b")
	if err != nil {
		t.Fatal(err)
	}
	s.Arch, s.Vocab = arch, n
	kv := s.metadata("test")
	tok, err := tokenizer.FromGGUF(kv)
	if err != nil {
		t.Fatal(err)
	}
	if tok.VocabSize() != n {
		t.Fatalf("%d tokens, want %d", tok.VocabSize(), n)
	}
	chat, _, _ := kv.String("tokenizer.chat_template")
	return tok, chat
}

// rate is characters per token; the text must come back.
func rate(t *testing.T, tok *tokenizer.Tokenizer, text string) float64 {
	t.Helper()
	ids := tok.Encode(nil, text, tokenizer.EncodeOptions{})
	if got := string(tok.Decode(nil, ids, tokenizer.DecodeOptions{})); got != text {
		t.Errorf("the text comes back as %.80q", got)
	}
	return float64(utf8.RuneCountInString(text)) / float64(len(ids))
}

// English text has about four characters a token, as with the vocabularies of real models; the chat template's control tokens are one
// token each.
func TestVocabulariesMerge(t *testing.T) {
	for _, c := range []struct {
		arch     string
		n        int
		least    float64
		eos      string
		controls []string
	}{{"llama", 128256, 4, "<|eot_id|>", []string{"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
		{"qwen3", 151936, 4, "<|im_end|>", []string{"<|im_start|>", "<|im_end|>"}}, {"qwen2", 152064, 4, "<|im_end|>", []string{"<|im_start|>", "<|im_end|>"}},
		{"llama", 32000, 3.7, "<|eot_id|>", nil}, {"llama", 4000, 2.5, "<|eot_id|>", nil}, {"qwen3", 512, 1.2, "<|im_end|>", nil}} {
		tok, chat := open(t, c.arch, c.n)
		if r := rate(t, tok, plainText); r < c.least || r > 5.5 {
			t.Errorf("%s %d: %.2f characters a token, want %g to 5.5", c.arch, c.n, r, c.least)
		} else {
			t.Logf("%s %d: %.2f characters a token", c.arch, c.n, r)
		}
		rate(t, tok, "Füße, naïve, 日本語 🙂, tabs\t\tand \u0000 zeros\r\n")
		if eos, ok := tok.EOS(); !ok || tok.Piece(eos) != c.eos {
			t.Errorf("%s %d: eos is %q", c.arch, c.n, tok.Piece(eos))
		}
		if _, err := template.Parse("chat", chat); err != nil {
			t.Errorf("%s: %v", c.arch, err)
		}
		for _, s := range c.controls {
			if ids := tok.Encode(nil, s, tokenizer.EncodeOptions{ParseSpecial: true}); len(ids) != 1 || tok.Piece(ids[0]) != s {
				t.Errorf("%s: %s is %d", c.arch, s, ids)
			}
			if !strings.Contains(chat, s) && s != "<|begin_of_text|>" {
				t.Errorf("%s: the template has no %s", c.arch, s)
			}
		}
	}
	tok, _ := open(t, "llama", 128256)
	if id := tok.Encode(nil, "<|eot_id|>", tokenizer.EncodeOptions{ParseSpecial: true}); id[0] != 128009 {
		t.Errorf("<|eot_id|> is %d, in the real model 128009", id[0])
	}
	tok, _ = open(t, "qwen2", 152064)
	if id := tok.Encode(nil, "<|im_end|>", tokenizer.EncodeOptions{ParseSpecial: true}); id[0] != 151645 {
		t.Errorf("<|im_end|> is %d, in the real model 151645", id[0])
	}
}

// The same on whole books and an encyclopedia, none of which the words were taken from.
func TestVocabulariesMergeBooks(t *testing.T) {
	tok, _ := open(t, "llama", 128256)
	for name, least := range map[string]float64{"stories/tinystories.txt": 3.8, "perplexity/doyle-study-in-scarlet.txt": 3.8, "perplexity/wells-time-machine.txt": 3.8,
		"perplexity/wikitext-2-test.txt": 3.2} {
		b, err := os.ReadFile(testkit.Data(t, "text/"+name))
		if err != nil {
			t.Fatal(err)
		}
		r := rate(t, tok, string(b))
		t.Logf("%s: %.2f characters a token", name, r)
		if r < least || r > 5.5 {
			t.Errorf("%s: %.2f characters a token, want %g to 5.5", name, r, least)
		}
	}
}
