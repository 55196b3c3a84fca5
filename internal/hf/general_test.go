package hf

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/testkit"
	"ck/internal/tokenizer"
)

// differences are the keys in which a model of a folder is not what the converter wrote of it, and why. Keys of the
// architecture that only Open sets stand in pairs.
var differences = map[string]struct{ why, models string }{
	"only converter's: tokenizer.ggml.add_sep_token": {"it is about pairs of texts, which are for models that rank them",
		"llama-gqa llama-spm-tied mistral stories260K"},
	"only ours: tokenizer.ggml.add_bos_token": {"always written, so that no reader's default decides",
		"qwen2 qwen3 trained-qwen3"},
	"only ours: tokenizer.ggml.add_eos_token": {"always written, so that no reader's default decides",
		"llama-gqa qwen2 qwen3 trained-qwen3"},
	"only ours: tokenizer.ggml.add_space_prefix": {"always written for SentencePiece, so that no reader's default decides",
		"llama-spm-tied mistral stories260K"},
}

// described is the whole model of a folder, under the name of its model as the folder's name.
func described(t *testing.T, name string) *gguf.Model {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(testkit.Data(t, "models/"+name+"/hf"), dir); err != nil {
		t.Fatal(err)
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := Describe(m, dir); err != nil {
		t.Fatal(err)
	}
	embd := m.Tensor("token_embd.weight")
	keys, notes, err := tokenizer.Keys(dir, embd.Rows())
	if err != nil || len(notes) > 0 {
		t.Fatalf("%v, notes %q", err, notes)
	}
	for _, k := range keys {
		m.KV.Set(k.Name, k.Value)
	}
	return m
}

// All keys are those that the converter wrote, but for the table of differences.
func TestKeysAsConverted(t *testing.T) {
	found := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		h := described(t, name)
		g, err := gguf.Open(testkit.Data(t, "models/"+name+"/model.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		differ := func(how, key string) { found[how+": "+key] = append(found[how+": "+key], name) }
		for _, k := range g.KV.Keys() {
			got, want := h.KV.Value(k), g.KV.Value(k)
			switch {
			case got == nil:
				differ("only converter's", k)
			case !reflect.DeepEqual(got, want):
				t.Errorf("%s: %s is %T %.300v, the converter wrote %T %.300v", name, k, got, fmt.Sprint(got), want,
					fmt.Sprint(want))
			}
		}
		for _, k := range h.KV.Keys() {
			if g.KV.Value(k) == nil && !slices.Contains(pairs[name], k) {
				differ("only ours", k)
			}
		}
	}
	for what, models := range found {
		if got := strings.Join(models, " "); differences[what].models != got {
			t.Errorf("%s: in %s, the table of differences has %q", what, got, differences[what].models)
		}
	}
	for what := range differences {
		if found[what] == nil {
			t.Errorf("%s: there is no such difference", what)
		}
	}
}

// The keys of every folder make the tokenizer that the folder makes, the ones without a GGUF file beside them too.
func TestKeysOfFolders(t *testing.T) {
	text := "Once upon a time, there were 1234 cats.\n\n  \"Hello\", said Lily's mom; ünïcödé 你好 😀\t<s> </s><|endoftext|><|im_end|>"
	for _, name := range append(slices.Sorted(maps.Keys(pairs)), "trained-llama-256", "mistral-window-hf") {
		own, err := tokenizer.Open(testkit.Data(t, "models/"+name+"/hf"))
		if err != nil {
			t.Fatal(err)
		}
		back, err := tokenizer.FromGGUF(described(t, name).KV)
		if err != nil {
			t.Fatal(err)
		}
		for _, opt := range []tokenizer.EncodeOptions{{}, {AddSpecial: true}, {ParseSpecial: true}, {AddSpecial: true,
			ParseSpecial: true}} {
			want, got := own.Encode(nil, text, opt), back.Encode(nil, text, opt)
			if !slices.Equal(got, want) {
				t.Errorf("%s, %+v: %v, the folder's tokenizer gives %v", name, opt, got, want)
			}
			for _, special := range []bool{false, true} {
				o := tokenizer.DecodeOptions{Special: special}
				if got, want := back.Decode(nil, want, o), own.Decode(nil, want, o); string(got) != string(want) {
					t.Errorf("%s: decodes to %q, the folder's to %q", name, got, want)
				}
			}
		}
	}
}
