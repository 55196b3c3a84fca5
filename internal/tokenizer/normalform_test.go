package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

var normForms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

// normalCases are texts with their normal forms by Python's unicodedata; testdata/normal.py made them.
func normalCases(t *testing.T) []map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/normal.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []map[string]string
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// The normal forms are Unicode's, however many marks follow one another; those of norm alone have U+034F after 30.
func TestNormalForms(t *testing.T) {
	for _, c := range normalCases(t) {
		for name, f := range normForms {
			if got := normalForm(f, c["text"]); got != c[name] {
				t.Errorf("%s of %+q:\n got %+q\nwant %+q", name, c["text"], got, c[name])
			}
			// What is no UTF-8 stays as it is, and parts others.
			if got, want := normalForm(f, "\xff"+c["text"]+"\xe2\x80"+c["text"]), "\xff"+c[name]+"\xe2\x80"+c[name]; got != want {
				t.Errorf("%s of %+q between bad bytes:\n got %+q\nwant %+q", name, c["text"], got, want)
			}
		}
	}
}

// Runs of every length are made as norm makes short ones.
func TestNormalizerAgrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	letters := []rune("aeo\u00e9\u1ec7\u03b1\u304b\uff76\uff9e\u212b\ufb01\u0958\uac00\u1100\u1161\u11a8\u0300\u0301\u0323\u0327\u031b\u0345\u0f71\u0f73\u3099\u09be\u09c7\ufdfa")
	for range 20000 {
		text := "x"
		for range rng.IntN(10) {
			text += string(letters[rng.IntN(len(letters))])
		}
		for name, f := range normForms {
			var b strings.Builder
			newNormalizer(f).write(&b, text)
			if want := f.String(text); b.String() != want {
				t.Fatalf("%s of %+q: %+q, want %+q", name, text, b.String(), want)
			}
		}
	}
}

// The ids of a text are those of its normal form.
func TestNormalizedIDs(t *testing.T) {
	tok := sourceOf("qwen3", "json").open(t)
	for _, c := range normalCases(t) {
		want := tok.Encode(nil, c["NFC"], EncodeOptions{})
		got := tok.Encode(nil, c["text"], EncodeOptions{})
		if !slices.Equal(got, want) || string(tok.Decode(nil, got, DecodeOptions{})) != c["NFC"] {
			t.Errorf("%+q: %v, want %v", c["text"], got, want)
		}
	}
	for _, name := range []string{"NFC", "NFKD"} {
		tok, err := FromJSON([]byte(fmt.Sprintf(`{"normalizer":{"type":%q},"model":{"type":"BPE","vocab":{"e":0,"́":1,"é":2},"merges":[]}}`, name)), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := []int32{2}
		if name == "NFKD" {
			want = []int32{0, 1}
		}
		want = append(want, slices.Repeat([]int32{1}, 59)...)
		if got := tok.Encode(nil, "e"+strings.Repeat("\u0301", 60), EncodeOptions{}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
