package synth

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// A written model opens, has the announced size and shape, and is the same for the same seed.
func TestWrite(t *testing.T) {
	for _, name := range []string{"llama-3.1-8b", "llama-3.2-1b", "qwen2.5-7b", "qwen3-0.6b"} { // the others differ in numbers only
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
			if size != Bytes(s.Pure(typ)) {
				t.Errorf("%s %s: %d bytes of tensors, announced %d", name, typ, size, Bytes(s.Pure(typ)))
			}
			if v, _, _ := m.KV.Strings("tokenizer.ggml.tokens"); len(v) != s.Vocab {
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

// A recipe's types are in the file, with its number, and the progress ends at the announced size.
func TestMixed(t *testing.T) {
	s, err := Find("llama-3.2-1b")
	if err != nil {
		t.Fatal(err)
	}
	s.Layers, s.Vocab, s.FFN = 8, 2000, 512
	r, _ := quant.FindRecipe("Q4_K_M")
	tensors := s.Mixed(r)
	var b bytes.Buffer
	last := int64(0)
	if err := WriteTensors(&b, "mixed", s, tensors, r.FileType, 1, func(n int64) error { last = n; return nil }); err != nil {
		t.Fatal(err)
	}
	if last != Bytes(tensors) {
		t.Errorf("progress ends at %d, announced %d", last, Bytes(tensors))
	}
	m, err := gguf.FromBytes("mixed", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]quant.Type{"token_embd.weight": quant.Q6_K, "blk.0.attn_v.weight": quant.Q6_K, "blk.1.attn_v.weight": quant.Q4_K,
		"blk.7.ffn_down.weight": quant.Q6_K, "blk.3.attn_q.weight": quant.Q4_K, "blk.3.attn_norm.weight": quant.F32} {
		if got := m.Tensor(name).Type; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if n, _, _ := m.KV.Int("general.file_type"); n != 15 {
		t.Errorf("file type %d", n)
	}
	stop := errors.New("enough")
	if err := WriteTensors(&b, "mixed", s, tensors, 0, 1, func(int64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the progress said stop, the error is %v", err)
	}
}

func TestCheck(t *testing.T) {
	ok, err := Find("qwen3-0.6b")
	if err != nil || ok.Check() != nil {
		t.Fatal(err, ok.Check())
	}
	for what, spoil := range map[string]func(*Shape){"layers": func(s *Shape) { s.Layers = 0 }, "evenly": func(s *Shape) { s.KVHeads = 3 },
		"pairs": func(s *Shape) { s.HeadDim = 63 }, "vocabulary": func(s *Shape) { s.Vocab = 300 }, "ffn": func(s *Shape) { s.FFN = 1 << 30 }} {
		s := ok
		spoil(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
