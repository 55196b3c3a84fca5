package quality

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"ck/internal/testkit"
)

func TestReadItems(t *testing.T) {
	const good = `{"question": "Where do fish live?", "choices": ["in water", "on trees"], "answer": 0, "id": "x"}

{"context": "2 + 2 =", "choices": ["3", "4", "5"], "answer": "B"}
{"context": "", "choices": ["a", "b"], "answer": "b"}
`
	want := []Item{{1, "Where do fish live?", []string{"in water", "on trees"}, 0},
		{3, "2 + 2 =", []string{"3", "4", "5"}, 1}, {4, "", []string{"a", "b"}, 1}}
	if got, err := ReadItems("f", strings.NewReader(good), 0); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ReadItems("f", strings.NewReader(good+"damaged"), 2); err != nil ||
		!reflect.DeepEqual(got, want[:2]) {
		t.Errorf("two of them: %+v, %v", got, err)
	}
	first := HashItems(want)
	want[1].Answer = 2
	if HashItems(want) == first {
		t.Error("another answer has the same hash")
	}
	for text, part := range map[string]string{
		"":                                     "f: has no questions; write lines such as {",
		"\n\n{":                                "f:3: is not JSON: ",
		"[1]":                                  "f:1: is a JSON array, not an object; write {",
		"\xff":                                 "f:1: is not UTF-8; convert",
		`{"choices":["a","b"],"answer":0}`:     `f:1: has neither "context" nor "question"; write`,
		`{"question":"q","context":"c"}`:       `f:1: has both "context" and "question"; write`,
		`{"question":1}`:                       `f:1: "question" is a JSON number; write`,
		`{"question":"q"}`:                     `f:1: has 0 choices; "choices" takes 2 to 256 texts`,
		`{"question":"q","choices":["a"]}`:     `f:1: has 1 choices`,
		`{"question":"q","choices":{"a":1}}`:   `f:1: "choices" is a JSON object`,
		`{"question":"q","choices":["a",""]}`:  "f:1: choice 1 is empty; every choice needs a text",
		`{"question":"q","choices":["a","b"]}`: `f:1: has no "answer"; write`,
		`{"question":"q","choices":["a","b"],"answer":2}`:                     `f:1: "answer" is 2 of 2 choices; the index counts from 0`,
		`{"question":"q","choices":["a","b"],"answer":-1}`:                    `f:1: "answer" is -1 of 2`,
		`{"question":"q","choices":["a","b"],"answer":"C"}`:                   `f:1: "answer" is "C" of 2`,
		`{"question":"q","choices":["a","b"],"answer":"1"}`:                   `f:1: "answer" is "1"; write the index`,
		`{"question":"q","choices":["a","b"],"answer":0.5}`:                   `f:1: "answer" is 0.5; write the index`,
		`{"question":"` + strings.Repeat("q", maxItemLine) + `"}`:             "f:1: the line has more than 4 MiB",
		`{"question":"q","choices":["a"` + strings.Repeat(`,"b"`, 256) + `]}`: "f:1: has 257 choices",
	} {
		if _, err := ReadItems("f", strings.NewReader(text), 0); err == nil || !strings.HasPrefix(err.Error(), part) {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}

func TestLogProbs(t *testing.T) {
	got, err := LogProbs([]float32{0, 1, 2}, 2, 0)
	z := math.Log(1 + math.E + math.E*math.E)
	if err != nil || !near(got[0], 2-z, 1e-12) || !near(got[1], -z, 1e-12) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		if _, err := LogProbs([]float32{0, float32(bad)}, 0); err == nil {
			t.Errorf("a logit of %g is taken", bad)
		}
	}
	if _, err := LogProbs([]float32{0, float32(math.Inf(-1))}, 1); err == nil {
		t.Error("an impossible token is taken")
	}
}

// The three scores pick the choice that they are for.
func TestPick(t *testing.T) {
	s := Scored{Answer: 1, LogProbs: []float64{-4, -5, -6}, Tokens: []int{1, 2, 4}, Bytes: []int{4, 10, 7}}
	for by, want := range []int{0, 1, 2} {
		if got := s.Pick(Score(by)); got != want || s.Right(Score(by)) != (want == 1) {
			t.Errorf("score %d picks %d, want %d", by, got, want)
		}
	}
	same := Scored{LogProbs: []float64{-3, -2, -2}, Tokens: []int{1, 1, 1}, Bytes: []int{1, 1, 1}}
	if got := same.Pick(ScoreSum); got != 1 {
		t.Errorf("of equal ones %d", got)
	}
}

// Wilson's interval against values that were computed from its formula by hand, to four digits.
func TestWilson(t *testing.T) {
	for _, c := range []struct {
		count, of int
		lo, hi    float64
	}{{8, 10, 0.4902, 0.9433}, {0, 10, 0, 0.2775}, {10, 10, 0.7225, 1}, {1, 1, 0.2065, 1}, {50, 100, 0.4038, 0.5962},
		{0, 0, 0, 1}} {
		if lo, hi := wilson(c.count, c.of); !near(lo, c.lo, 1e-4) || !near(hi, c.hi, 1e-4) {
			t.Errorf("%d of %d: %g to %g, want %g to %g", c.count, c.of, lo, hi, c.lo, c.hi)
		}
	}
}

func TestMcNemar(t *testing.T) {
	for _, c := range []struct {
		lost, gained int
		want         float64
	}{{0, 0, 1}, {5, 5, 1}, {0, 6, 2.0 / 64}, {8, 1, 2 * 10.0 / 512}, {1, 8, 2 * 10.0 / 512}, {2, 3, 1},
		{1, 3, 2 * 5.0 / 16}} {
		if p := mcNemar(c.lost, c.gained); !near(p, c.want, 1e-12) {
			t.Errorf("%d lost, %d gained: %g, want %g", c.lost, c.gained, p, c.want)
		}
	}
	if p := mcNemar(0, 100000); p != 0 {
		t.Errorf("a hundred thousand coins on one side: %g", p)
	}
	// normal, corrected for continuity
	if p := mcNemar(50000, 50400); !near(p, math.Erfc(399/math.Sqrt(100400)/math.Sqrt2), 1e-4) {
		t.Errorf("many coins: %g", p)
	}
}

// answers are questions of two choices, right or not.
func answers(right ...bool) []Scored {
	var out []Scored
	for _, r := range right {
		s := Scored{LogProbs: []float64{-1, -2}, Tokens: []int{1, 1}, Bytes: []int{3, 3}}
		if !r {
			s.Answer = 1
		}
		out = append(out, s)
	}
	return out
}

func TestAccuracy(t *testing.T) {
	list := append(answers(true, true, false), Scored{Answer: 2, LogProbs: []float64{-3, -3, -1, -4},
		Tokens: []int{1, 1, 1, 1}, Bytes: []int{1, 1, 1, 1}})
	a := Accuracy(list, ScoreSum)
	if lo, hi := wilson(3, 4); a.Count != 3 || a.Of != 4 || a.Value != 0.75 || a.Lo != lo || a.Hi != hi {
		t.Errorf("%+v", a)
	}
	if c := Chance(list); !near(c, (3*0.5+0.25)/4, 1e-12) {
		t.Errorf("chance %g", c)
	}
	p := Compare(answers(true, true, false, true), answers(false, true, true, false), ScoreSum)
	if p.Base != 0.75 || p.Lost != 2 || p.Gained != 1 || p.P != 1 {
		t.Errorf("%+v", p)
	}
}

func TestScoredFile(t *testing.T) {
	var b bytes.Buffer
	list := answers(true, false)
	if err := WriteScored(&b, ScoredHead{Model: "m", Items: "h"}, list); err != nil {
		t.Fatal(err)
	}
	h, got, err := ReadScored(bytes.NewReader(b.Bytes()))
	if err != nil || h.Model != "m" || h.Items != "h" || h.Count != 2 || !reflect.DeepEqual(got, list) {
		t.Errorf("%+v, %+v, %v", h, got, err)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	for text, part := range map[string]string{
		"":                  "is no base",
		"{}\n":              "is no base",
		lines[0]:            "has 0 answers, its head says 2",
		lines[0] + lines[1]: "has 1 answers",
		lines[0] + "{}\n":   "line 2: holds no answer",
		lines[0] + "[]\n":   "line 2: is a JSON array",
		lines[0] + `{"answer":0,"log_probs":[-1,-2],"tokens":[1,0],"bytes":[1,1]}`:     "line 2: choice 1 has no length",
		lines[0] + `{"answer":2,"log_probs":[-1,-2],"tokens":[1,1],"bytes":[1,1]}`:     "line 2: holds no answer",
		lines[0] + lines[1] + `{"answer":0,"log_probs":[-1],"tokens":[1],"bytes":[1]}`: "line 3: holds no answer",
	} {
		if _, _, err := ReadScored(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), part) {
			t.Errorf("%.80q: %v", text, err)
		}
	}
}

// FuzzItems: any bytes give an error, or questions that hold what they promise.
func FuzzItems(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add([]byte(`{"question":"q","choices":["a","b"],"answer":"b"}`))
	f.Add([]byte("{\"context\":\"\",\"choices\":[\"a\",\"b\"],\"answer\":1}\n\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		items, err := ReadItems("f", bytes.NewReader(data), 100)
		if err == nil && len(items) == 0 {
			t.Error("neither questions nor an error")
		}
		for _, x := range items {
			if x.Answer < 0 || x.Answer >= len(x.Choices) || len(x.Choices) < 2 || x.Line < 1 {
				t.Errorf("%+v", x)
			}
		}
	})
}

// FuzzScored: any bytes give an error, or answers that can be counted.
func FuzzScored(tf *testing.F) {
	f := testkit.Fuzz(tf)
	var b bytes.Buffer
	if err := WriteScored(&b, ScoredHead{}, answers(true, false)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, list, err := ReadScored(bytes.NewReader(data)); err == nil && len(list) > 0 {
			a := Accuracy(list, ScoreBytes)
			if !(a.Lo <= a.Value && a.Value <= a.Hi) && a.Of > 0 || Chance(list) > 0.5 {
				t.Errorf("%+v", a)
			}
		}
	})
}
