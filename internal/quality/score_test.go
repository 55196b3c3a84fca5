package quality

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/generate"
)

var storyItems = []Item{
	{Line: 1, Context: "Once upon a time, there was a little girl named Lily. She loved to",
		Choices: []string{"play outside.", "xylophone!", "moon the cat"}},
	{Line: 2, Context: "The dog was very", Choices: []string{"happy", "of"}},
	{Line: 3, Context: "", Choices: []string{"Once upon a time", "Zebra quantum", "The end", "One day, a boy"}},
	{Line: 4, Context: "Tom and Sam went to the park.\n", Choices: []string{"They played on the swings and had lots " +
		"of fun together", "No"}, Answer: 1},
	{Line: 5, Context: "The dog ran to the ", Choices: []string{"park", "tree and sat down"}},
}

// plainScore is a choice's log probability by definition: the whole text in a sequence of its own, one softmax in
// float64 for each token that stands behind the first common ones.
func plainScore(t *testing.T, e *engine.Engine, ids []int32, common int) float64 {
	t.Helper()
	seq := e.NewSeq()
	defer e.Drop(seq)
	sum := 0.0
	err := e.Forward(context.Background(), seq, ids, engine.All, func(i int, logits []float32) error {
		if i+1 < common || i+1 == len(ids) {
			return nil
		}
		z := 0.0
		for _, x := range logits {
			z += math.Exp(float64(x))
		}
		sum += float64(logits[ids[i+1]]) - math.Log(z)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// With contexts that are evaluated once and choices of several questions in one walk, however it is cut, every choice
// has the log probability that it has alone.
func TestChoicesByDefinition(t *testing.T) {
	m, err := generate.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var first []Scored
	for _, ubatch := range []int{512, 40, 7, 1} {
		e, err := engine.Open(m.Weights, engine.Options{Threads: 1, UBatch: ubatch})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s := &Scorer{Model: OfEngine(e), Tok: m.Tok, UBatch: ubatch, Name: "f"}
		questions, err := s.Prepare(storyItems)
		if err != nil {
			t.Fatal(err)
		}
		done := int64(0)
		list, err := s.Score(t.Context(), questions, func(n int64) { done = n })
		if err != nil || done != int64(len(storyItems)) || len(list) != len(storyItems) {
			t.Fatalf("%d of %d, %v", done, len(list), err)
		}
		if first == nil {
			first = list
		}
		rows := 0
		for i, q := range questions {
			rows += len(q.context)
			for j, c := range q.item.Choices {
				rows += len(q.choices[j]) - 1
				text := q.item.Context + c
				if i < 2 {
					text = q.item.Context + " " + c
				}
				whole, err := m.EncodePrompt(text, generate.Encoding{})
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(whole, slices.Concat(q.context, q.choices[j])) {
					t.Errorf("question %d, choice %d: ids %v and %v, want %v", i, j, q.context, q.choices[j], whole)
				}
				if want := plainScore(t, e, whole,
					len(q.context)); math.Abs(list[i].LogProbs[j]-want) > 1e-9*math.Abs(want) {
					t.Errorf("walks of %d, question %d, choice %d: %g, want %g", ubatch, i, j, list[i].LogProbs[j],
						want)
				}
				if list[i].LogProbs[j] != first[i].LogProbs[j] {
					t.Errorf("walks of %d change question %d, choice %d", ubatch, i, j)
				}
				if list[i].Tokens[j] != len(whole)-len(q.context) || list[i].Bytes[j] != len(c) {
					t.Errorf("question %d, choice %d: %d tokens, %d bytes", i, j, list[i].Tokens[j], list[i].Bytes[j])
				}
			}
		}
		if s.Walked != rows {
			t.Errorf("%d rows were evaluated, %d are enough", s.Walked, rows)
		}
		if e.CacheUsedBytes() != 0 {
			t.Errorf("%d bytes of keys and values are left", e.CacheUsedBytes())
		}
	}
	if first[0].Pick(ScoreTokens) != 0 || first[1].Pick(ScoreSum) != 0 {
		t.Errorf("a story model prefers %+v", first[:2])
	}
}

func TestChoicesEncode(t *testing.T) {
	m, err := generate.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e, err := engine.Open(m.Weights, engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := &Scorer{Model: OfEngine(e), Tok: m.Tok, UBatch: 512, Name: "f", Limit: 20}
	// The space at the question's end belongs to the choice's first token: what is common ends before it.
	q, err := s.encode(&Item{Context: "The dog ", Choices: []string{"was", "ran"}})
	if alone, err2 := m.EncodePrompt("The dog ", generate.Encoding{}); err2 != nil || err != nil ||
		len(q.context) >= len(alone) || len(q.choices[0]) != 1 {
		t.Errorf("%v and %v, the question alone is %v; %v", q.context, q.choices, alone, err)
	}
	long := Item{Line: 7, Context: strings.Repeat("dog ", 30), Choices: []string{"a", "b"}}
	if _, err := s.Prepare([]Item{long}); err == nil || !strings.HasPrefix(err.Error(), "f:7: choice 0 makes ") ||
		!strings.HasSuffix(err.Error(), " tokens, the model's context is 20; shorten the question") {
		t.Errorf("too long: %v", err)
	}
	for _, c := range []struct{ context, choice, want string }{{"a", "b", " "}, {"a ", "b", ""}, {"a\n", "b", ""},
		{"a", " b", ""}, {"", "b", ""}} {
		if got := seam(c.context, c.choice); got != c.want {
			t.Errorf("%q and %q: %q", c.context, c.choice, got)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	s.Limit = 0
	questions, err := s.Prepare(storyItems)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Score(ctx, questions, func(int64) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
