package generate

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"ck/internal/engine"
	"ck/internal/testkit"
)

// openEngine opens a model and an engine for it, of threads workers: with one, tests do not wait for what else runs on the machine.
func openEngine(t testing.TB, path string, threads int) (*Model, *engine.Engine) {
	t.Helper()
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	e, err := engine.Open(m.Weights, engine.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return m, e
}

func readJSON(t testing.TB, name string, to any) {
	t.Helper()
	b, err := os.ReadFile(testkit.Data(t, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		t.Fatal(err)
	}
}

// The published text of stories260K: 200 tokens after BOS, greedy; from the model's file, its folder, and the built-in one.
func TestPublishedText(t *testing.T) {
	var ids []int32
	readJSON(t, "models/stories260K/expected_greedy_200.ids.json", &ids)
	text, err := os.ReadFile(testkit.Data(t, "models/stories260K/expected_greedy_200.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{testkit.Data(t, "models/stories260K/model.gguf"), testkit.Data(t, "models/stories260K/hf"), ""} {
		m, e := openEngine(t, path, 1)
		prompt := encodePrompt(t, m, "", Encoding{})
		if !slices.Equal(prompt, ids[:1]) {
			t.Fatalf("%q: the empty prompt is %v, expected %v", path, prompt, ids[:1])
		}
		shown := ""
		res, err := m.Generate(context.Background(), e, Options{Prompt: prompt, Seq: e.NewSeq(), MaxNew: 200, Context: 512,
			StartOfText: m.StartsText(prompt)}, func(ev Event) error {
			shown += string(ev.Text)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(res.IDs, ids[1:]) {
			t.Errorf("%q: ids %v, expected %v", path, res.IDs, ids[1:])
		}
		if res.Text != string(text) || shown != res.Text {
			t.Errorf("%q: text %q, shown %q, expected %q", path, res.Text, shown, text)
		}
		if res.Finish != FinishLength || res.PromptTokens != 1 || res.NewTokens != 200 || res.Prefill.Tokens != 1 || res.Decode.Tokens != 199 {
			t.Errorf("%q: %+v", path, res)
		}
	}
}

func TestTrainedQwen3(t *testing.T) {
	var want struct {
		Start, Text string
		IDs         []int32
	}
	readJSON(t, "models/trained-qwen3/expected_greedy.json", &want)
	for _, form := range []string{"model.gguf", "hf"} {
		m, e := openEngine(t, testkit.Data(t, "models/trained-qwen3/"+form), 1)
		prompt := encodePrompt(t, m, want.Start, Encoding{})
		res, err := m.Generate(context.Background(), e, Options{Prompt: prompt, Seq: e.NewSeq(), MaxNew: len(want.IDs) - len(prompt)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := append(prompt, res.IDs...); !slices.Equal(got, want.IDs) {
			t.Errorf("%s: ids %v, expected %v", form, got, want.IDs)
		}
		if got := want.Start + res.Text; got != want.Text {
			t.Errorf("%s: text %q, expected %q", form, got, want.Text)
		}
	}
}

// A seed gives one text, whatever the threads; other seeds give others. Greedy text does not depend on them either.
func TestSeedAndThreads(t *testing.T) {
	texts := map[uint64]string{}
	for threads := 1; threads <= 2; threads++ {
		m, e := openEngine(t, "", threads)
		for seed := range uint64(4) {
			o := Options{Prompt: encodePrompt(t, m, "Once upon", Encoding{}), Seq: e.NewSeq(), MaxNew: 30}
			if seed > 0 {
				o.Sample = DefaultParams()
				o.Sample.Seed = seed
			}
			res, err := m.Generate(context.Background(), e, o, nil)
			if err != nil {
				t.Fatal(err)
			}
			if want, ok := texts[seed]; ok && res.Text != want {
				t.Errorf("seed %d, %d threads: %q, with one thread %q", seed, threads, res.Text, want)
			}
			if res.Seed != seed {
				t.Errorf("seed %d is reported as %d", seed, res.Seed)
			}
			texts[seed] = res.Text
			e.Drop(o.Seq)
		}
	}
	different := map[string]bool{}
	for _, text := range texts {
		different[text] = true
	}
	if len(different) != len(texts) {
		t.Errorf("the seeds' texts are not all different: %v", texts)
	}
}
