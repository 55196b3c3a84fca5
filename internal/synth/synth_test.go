package synth

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// A written model opens, has the announced size and shape, and is the same for the same seed.
func TestWrite(t *testing.T) {
	for _, name := range Names() {
		s, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		s.Layers, s.Vocab, s.FFN = 1, 2000, 512
		for _, typ := range []quant.Type{quant.Q8_0, quant.Q4_K, quant.BF16} {
			var a, b bytes.Buffer
			for _, w := range []*bytes.Buffer{&a, &b} {
				if err := Write(w, name, s, typ, 7); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Fatalf("%s %s: two files of one seed differ", name, typ)
			}
			path := filepath.Join(t.TempDir(), "m.gguf")
			if err := os.WriteFile(path, a.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			size := int64(0)
			for _, x := range m.Tensors {
				size += int64(len(x.Data))
			}
			if size != s.Bytes(typ) {
				t.Errorf("%s %s: %d bytes of tensors, announced %d", name, typ, size, s.Bytes(typ))
			}
			if v, _ := m.KV.Strings("tokenizer.ggml.tokens"); len(v) != s.Vocab {
				t.Errorf("%s: %d tokens, want %d", name, len(v), s.Vocab)
			}
			in, err := Model(name, s, typ, 7)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range m.Tensors {
				if !bytes.Equal(x.Data, in.Tensors[i].Data) {
					t.Errorf("%s: in memory it is another one", x.Name)
				}
			}
		}
	}
	if _, err := Find("gpt-9"); err == nil {
		t.Error("an unknown shape was found")
	}
}

// All tokens of a vocabulary of full size differ.
func TestVocabularyIsDistinct(t *testing.T) {
	tokens, _, _ := vocabulary(151936)
	seen := map[string]bool{}
	for _, s := range tokens {
		if seen[s] {
			t.Fatalf("token %q twice", s)
		}
		seen[s] = true
	}
}
