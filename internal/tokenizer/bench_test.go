package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// english is about n bytes of ordinary English.
func english(t testing.TB, n int) string {
	t.Helper()
	files, err := filepath.Glob(testkit.Data(t, "text") + "/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Skipf("no texts: %v", err)
	}
	var b strings.Builder
	for b.Len() < n {
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
		}
	}
	return strings.ToValidUTF8(b.String()[:n], "")
}

func BenchmarkEncode(b *testing.B) {
	text := english(b, 1<<20)
	for _, s := range []source{{"llama-bpe", "gguf", ""}, {"qwen2", "gguf", ""}, {"gpt-2", "gguf", ""}, {"deepseek-llm", "gguf", ""}, {"gemma-4", "gguf", ""},
		{"llama-spm", "gguf", ""}, {"tekken", "tekken", ""}} {
		b.Run("vocab="+s.vocab, func(b *testing.B) {
			tok := s.open(b)
			var ids []int32
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				ids = tok.Encode(ids[:0], text, EncodeOptions{})
			}
			b.ReportMetric(float64(len(ids)), "tokens")
		})
	}
}

func BenchmarkLongWord(b *testing.B) {
	for _, s := range []source{{"llama-bpe", "gguf", ""}, {"llama-spm", "gguf", ""}} {
		b.Run("vocab="+s.vocab, func(b *testing.B) {
			tok := s.open(b)
			text := strings.Repeat("abcdefghijklmnopqrstuvwxyzetaoin", 1<<15)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(nil, text, EncodeOptions{})
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"llama-bpe", "qwen2", "gemma-4", "llama-spm"} {
		b.Run("gguf="+name, func(b *testing.B) {
			kv := readKV(readData(b, "gguf/"+name+".gguf.gz"))
			for b.Loop() {
				if _, err := FromGGUF(kv); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, name := range []string{"llama-bpe", "qwen3"} {
		b.Run("json="+name, func(b *testing.B) {
			file := readData(b, "hf/"+name+".tokenizer.json.gz")
			for b.Loop() {
				if _, err := FromJSON(file, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("tekken", func(b *testing.B) {
		file := readData(b, "hf/tekken.json.gz")
		for b.Loop() {
			if _, err := FromTekken(file); err != nil {
				b.Fatal(err)
			}
		}
	})
}
