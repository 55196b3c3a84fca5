package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/demotext"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/testkit"
)

// alone tells the story of a number as ckrun would: one sequence, one token after the other.
func alone(t *testing.T, m *generate.Model, e *engine.Engine, seed, number uint64) string {
	t.Helper()
	p := generate.DefaultParams()
	p.Temp, p.Seed, p.Stream = []float64{0.7, 0.8, 0.9}[number%3], seed, number
	s := generate.NewSampler(p)
	seq := e.NewSeq()
	defer e.Drop(seq)
	var ids []int32
	for next := int32(1); len(ids) < 511; { // BOS of the model is 1
		err := e.Forward(context.Background(), seq, []int32{next}, engine.Last, func(_ int, logits []float32) error {
			next = s.Sample(logits, nil)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if next == 1 || next == 2 {
			return strings.TrimSpace(m.TextOf(ids))
		}
		ids = append(ids, next)
	}
	return ""
}

// TestSamples holds stories that are told many at once against those told alone, and engines against one.
func TestSamples(t *testing.T) {
	m, err := generate.Open(testkit.Data(t, "models/stories260K/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var one, two bytes.Buffer
	n, err := samples(context.Background(), m, &one, 5, 2500, 1)
	if err != nil {
		t.Fatal(err)
	}
	if n2, err := samples(context.Background(), m, &two, 5, 2500, 2); err != nil || n2 != n || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("two engines: %+v, one %+v: %v; or other bytes", n2, n, err)
	}
	got, err := demotext.ReadStories(&one)
	if err != nil || len(got) != n.stories || n.bytes < 2500 || n.stories < 2 {
		t.Fatalf("%d stories, %+v: %v", len(got), n, err)
	}
	e, err := engine.Open(m.Weights, engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var want []string
	for i := range uint64(n.stories + n.cut) {
		if s := alone(t, m, e, 5, i); s != "" {
			want = append(want, s)
		}
	}
	if want, err = demotext.ReadStories(strings.NewReader(strings.Join(want, "\n<|endoftext|>\n"))); err != nil || !slices.Equal(got, want) {
		t.Errorf("stories differ from those told alone: %v\n%q\n%q", err, got, want)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := samples(ctx, m, &one, 5, 1<<40, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

func TestCommands(t *testing.T) {
	// The text comes with the larger set alone, so the test asks for it first.
	data := filepath.Join(filepath.Dir(testkit.Data(t, "text/stories/tinystories.txt")), "..", "..")
	model := testkit.Data(t, "models/stories260K/model.gguf")
	dir := t.TempDir()
	raw, out := filepath.Join(dir, "raw.txt"), filepath.Join(dir, "out")
	do := func(args ...string) (string, error) {
		var b bytes.Buffer
		err := run(context.Background(), args, &b)
		return b.String(), err
	}
	if s, err := do("sample", "-model", model, "-bytes", "1500", "-o", raw); err != nil || !strings.Contains(s, "tokens/s") {
		t.Fatalf("%s %v", s, err)
	}
	s, err := do("text", "-data", data, "-o", out, "-samples", raw, "-stories", "20000", "-dialogues", "10000", "-books", "30000")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(out, "report.txt"))
	if err != nil || string(b) != s || !strings.Contains(s, demotext.SamplesFile) {
		t.Errorf("report %q, shown %q: %v", b, s, err)
	}
	for _, name := range []string{demotext.TextFile, demotext.TalksFile, demotext.HeldTextFile} {
		if i, err := os.Stat(filepath.Join(out, name)); err != nil || i.Size() < 10000 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, args := range [][]string{{}, {"all"}, {"text"}, {"text", "-o", out}, {"sample", "-o", raw, "-model", model}, {"sample", "-t", "0"},
		{"sample", "-x"}, {"text", "-o", out, "-data", data, "more"}} {
		if _, err := do(args...); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, args := range [][]string{{"text", "-data", data, "-o", out}, {"text", "-data", dir, "-o", out + "2"},
		{"text", "-data", data, "-o", out + "3", "-samples", out},
		{"sample", "-model", model, "-bytes", "1", "-o", raw}, {"sample", "-model", raw, "-bytes", "1", "-o", out + "4"}} {
		if _, err := do(args...); err == nil || errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
