package bpe

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"ck/internal/tokenizer"
)

// The vocabulary of keys writes the same keys and files; what it could not write is refused.
func TestFromKeys(t *testing.T) {
	text := piece(t, "text/stories/tinystories.txt", 0, 30_000) + " naïve\x00"
	for _, template := range []string{"", "{{ messages }}"} {
		for _, bos := range []bool{false, true} {
			opt := options(500, "llama-bpe")
			opt.AddBOS, opt.Template = bos, template
			v, err := train(t, opt, text)
			if err != nil {
				t.Fatal(err)
			}
			keys := append(v.Keys(), tokenizer.Key{Name: "tokenizer.ggml.eot_token_id", Value: uint32(499)})
			slices.Reverse(keys)
			back, err := FromKeys(keys)
			if err != nil {
				t.Fatal(err)
			}
			want, err := v.Files()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := back.Files(); err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(back.Keys(), v.Keys()) {
				t.Errorf("BOS %v: other files or keys, %v", bos, err)
			}
			if a, b := v.Tokenizer().Encode(nil, text, tokenizer.EncodeOptions{}), back.Tokenizer().Encode(nil, text, tokenizer.EncodeOptions{}); !slices.Equal(a, b) {
				t.Error("it encodes otherwise")
			}
		}
	}

	v, err := train(t, options(400, "gpt-2"), text)
	if err != nil {
		t.Fatal(err)
	}
	change := func(name string, f func(v any) any) []tokenizer.Key {
		keys := v.Keys()
		for i, k := range keys {
			if k.Name == "tokenizer.ggml."+name {
				keys[i].Value = f(k.Value)
			}
		}
		return keys
	}
	swapped := func(x any) any {
		s := slices.Clone(x.([]string))
		s[300], s[301] = s[301], s[300]
		return s
	}
	for what, keys := range map[string][]tokenizer.Key{
		"no keys":         nil,
		"swapped tokens":  change("tokens", swapped),
		"other model":     change("model", func(any) any { return "llama" }),
		"other pre":       change("pre", func(any) any { return "default-spm" }),
		"a type":          change("token_type", func(x any) any { s := slices.Clone(x.([]int32)); s[300] = 4; return s }),
		"fewer types":     change("token_type", func(x any) any { return x.([]int32)[1:] }),
		"first merge":     change("merges", func(x any) any { return x.([]string)[1:] }),
		"merge of none":   change("merges", func(x any) any { s := slices.Clone(x.([]string)); s[7] = "zzzz q"; return s }),
		"an ID too large": change("bos_token_id", func(any) any { return uint32(400) }),
		"an ID of a word": change("eos_token_id", func(any) any { return uint32(300) }),
		"EOS added":       change("add_eos_token", func(any) any { return true }),
		"another key":     append(v.Keys(), tokenizer.Key{Name: "tokenizer.ggml.scores", Value: []float32{1}}),
		"no chat token":   change("tokens", func(x any) any { s := slices.Clone(x.([]string)); s[399] = "word"; return s }),
	} {
		if got, err := FromKeys(keys); !errors.Is(err, ErrForeign) || got != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
