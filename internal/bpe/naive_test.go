package bpe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ck/internal/tokenizer"
)

// naive learns as the definition says: it counts everything again before every join. It gives the joins and the words as they are then cut.
func naive(words map[string]int64, opt Options) (merges [][2]string, cut map[string][]string) {
	cut = map[string][]string{}
	for w := range words {
		for i := range len(w) {
			cut[w] = append(cut[w], w[i:i+1])
		}
	}
	made := map[string]bool{}
	for len(merges) < opt.Vocab-256-len(opt.Control) {
		count := map[[2]string]int64{}
		for w, parts := range cut {
			for i := 1; i < len(parts); i++ {
				count[[2]string{parts[i-1], parts[i]}] += words[w]
			}
		}
		maps.DeleteFunc(count, func(p [2]string, n int64) bool {
			text := p[0] + p[1]
			return n < opt.LeastCount || len(text) > opt.Longest
		})
		if len(count) == 0 {
			break
		}
		best := slices.MinFunc(slices.Collect(maps.Keys(count)), func(a, b [2]string) int {
			return cmp.Or(-cmp.Compare(count[a], count[b]), cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
		})
		merges = append(merges, best)
		if made[best[0]+best[1]] {
			panic("two joins make " + best[0] + best[1])
		}
		made[best[0]+best[1]] = true
		for w, parts := range cut {
			var out []string
			for i := 0; i < len(parts); i++ {
				if i+1 < len(parts) && parts[i] == best[0] && parts[i+1] == best[1] {
					out = append(out, parts[i]+parts[i+1])
					i++
					continue
				}
				out = append(out, parts[i])
			}
			cut[w] = out
		}
	}
	return merges, cut
}

// compareNaive trains on words both ways, and cuts the words by the vocabulary.
func compareNaive(t *testing.T, words map[string]int64, opt Options) {
	t.Helper()
	want, cut := naive(words, opt)
	n := 0
	for w := range words {
		n += len(w)
	}
	tr := newTrainer(&opt, words, n)
	for len(tr.merges) < len(want) && tr.learn() {
	}
	var got [][2]string
	for _, m := range tr.merges {
		got = append(got, [2]string{tr.tokens[m.left], tr.tokens[m.right]})
	}
	if !slices.Equal(got, want) {
		t.Fatalf("words %v: joins\n%q, want\n%q", words, got, want)
	}
	if len(want) < opt.Vocab-256-len(opt.Control) {
		if tr.learn() {
			t.Fatalf("words %v: there is a join more: %q", words, tr.tokens[len(tr.tokens)-1])
		}
		opt.Vocab = 256 + len(opt.Control) + len(want)
	}
	c, err := NewCounter(opt)
	if err != nil {
		t.Fatal(err)
	}
	c.count, c.bytes = words, n
	v, err := c.Train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for w, parts := range cut {
		if strings.ContainsAny(w, " \n") { // more than one word for the tokenizer
			continue
		}
		var texts []string
		for _, id := range v.Tokenizer().Encode(nil, w, tokenizer.EncodeOptions{}) {
			texts = append(texts, v.tokens[id])
		}
		if !slices.Equal(texts, parts) {
			t.Fatalf("joins %q: word %q becomes %q, and was %q when the last one was learned", want, w, texts, parts)
		}
	}
}

func TestAgainstNaive(t *testing.T) {
	opt := Options{Vocab: 256 + 40, Pre: "gpt-2", LeastCount: 1, Longest: 64}
	for i, words := range []map[string]int64{
		{"a": 5},
		{"aa": 1},
		{"aaa": 2, "aaaa": 3, "aaaaa": 1, strings.Repeat("a", 97): 1},
		{"abab": 1, "baba": 1, "ab": 2, "ba": 2}, // ties and overlaps
		{"abcabc": 3, "bcabca": 3, "cabcab": 3},
		{"abc": 1, "bcd": 1, "cde": 1}, // nothing but ties
		{"ababababab": 2, "aabbaabb": 5, "abbabba": 3, "baaab": 4},
		{"äöüäöü": 2, "öüä": 3, "日本語日本": 4, "本日": 1, "😀😀😀😁": 2, "é": 9},
		{"xaaax": 3, "aaa": 1, "aaax": 2, "xaa": 7}, // where two pairs might make one text
		{"\x00\xff"[:1]: 3, "ÿÿ": 2},
	} {
		for _, longest := range []int{2, 3, 64} {
			for _, least := range []int64{1, 2, 3} {
				o := opt
				o.Longest, o.LeastCount = longest, least
				t.Run(fmt.Sprintf("%d/longest=%d/least=%d", i, longest, least), func(t *testing.T) { compareNaive(t, words, o) })
			}
		}
	}
}

func TestRandomAgainstNaive(t *testing.T) {
	n := 250
	if testing.Short() {
		n = 40
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 23))
		letters := []string{"a", "b", "ab", "c", "é", "日"}[:1+r.IntN(6)]
		words := map[string]int64{}
		for range 1 + r.IntN(12) {
			w := ""
			for range 1 + r.IntN(1+r.IntN(40)) {
				w += letters[r.IntN(len(letters))]
			}
			words[w] += 1 + r.Int64N(4)
		}
		opt := Options{Vocab: 256 + r.IntN(60), Pre: []string{"gpt-2", "llama-bpe"}[seed%2], LeastCount: 1 + r.Int64N(3), Longest: 2 + r.IntN(20)}
		compareNaive(t, words, opt)
	}
}
