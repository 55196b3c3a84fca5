package dataset

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/generate"
	"ck/internal/template"
	"ck/internal/testkit"
)

// builtin is the model that ckrun has built in: a vocabulary of SentencePiece with bytes.
func builtin(t testing.TB) *generate.Model {
	t.Helper()
	m, err := generate.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// vocabulary is a model without weights, of a vocabulary of the data.
func vocabulary(t testing.TB, name string) *generate.Model {
	t.Helper()
	f, err := os.Open(testkit.Data(t, "tokenizers/gguf/"+name+".gguf.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	m, err := generate.Open(write(t, name+".gguf", string(b)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// templates are the real ones of the data.
func templates(t testing.TB) map[string]*template.Template {
	t.Helper()
	dir := testkit.Data(t, "templates/jinja")
	list, err := filepath.Glob(filepath.Join(dir, "*.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*template.Template{}
	for _, path := range list {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".jinja")
		out[name] = parsed(t, name, string(b))
	}
	return out
}

func parsed(t testing.TB, name, source string) *template.Template {
	t.Helper()
	tmpl, err := template.Parse(name, source)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// options are sound ones.
func options(T int) Options { return Options{Tokens: T, TooLong: Cut, NoCache: true} }

func open(t testing.TB, m *generate.Model, opt Options, paths ...string) *Set {
	t.Helper()
	s, err := Open(context.Background(), m, paths, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON is a value as a line.
func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b) + "\n"
}

// talk is turns of user and assistant, behind a system message if there is one.
func talk(system string, texts ...string) []generate.Message {
	var list []generate.Message
	if system != "" {
		list = append(list, generate.Message{Role: "system", Content: system})
	}
	for i, s := range texts {
		list = append(list, generate.Message{Role: []string{"user", "assistant"}[i%2], Content: s})
	}
	return list
}

// run is a stretch of words that all count, or do not.
type run struct {
	ids    []int32
	counts bool
}

func runs(words []int32) (list []run) {
	for i, w := range words {
		if i == 0 || (w < 0) != (words[i-1] < 0) {
			list = append(list, run{counts: w < 0})
		}
		r := &list[len(list)-1]
		r.ids = append(r.ids, token(w))
	}
	return list
}
