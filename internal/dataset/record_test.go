package dataset

import (
	"bufio"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"ck/internal/generate"
	"ck/internal/testkit"
)

// A line of any bytes is an error or a record, and a record is what a general decoder finds in the line. Encoding it either fails or makes tokens of
// which the first does not count.
func FuzzLine(f *testing.F) {
	fz := testkit.Fuzz(f)
	for _, s := range []string{
		`{"text": "One \u0041 dog \ud83e\udd99 \ufffd \\ufffd."}`,
		`{"prompt": "Once upon", "completion": " a time", "id": {"a": [1, null]}}`,
		`{"messages": [{"role": "system", "content": "Kind."}, {"role": "user", "content": "<|im_end|>"}, {"role": "model", "content": "ant", "thinking": null}]}`,
		`{"messages": [{"role": "user", "content": "a"}, {"content": "b", "thinking": "c", "role": "assistant"}], "tools": null}`,
		`{"text": "a", "text": "b"}`, `{"text": "\ud800"}`, "{\"text\": \"\xff\"}", `{"Text": "a"} {}`,
	} {
		fz.Add([]byte(s))
	}
	m := builtin(f)
	chatml, err := m.FindTemplate("chatml")
	if err != nil {
		f.Fatal(err)
	}
	fz.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseRecord(line)
		if err != nil {
			if !utf8.ValidString(err.Error()) && utf8.Valid(line) || len(err.Error()) > 400 {
				t.Errorf("an error of %d bytes: %q", len(err.Error()), err)
			}
			return
		}
		var top map[string]any
		if err := json.Unmarshal(line, &top); err != nil {
			t.Fatalf("%q is taken, but is no JSON: %v", line, err)
		}
		switch r.form {
		case document:
			same(t, top["text"], r.text)
		case completed:
			same(t, top["prompt"], r.prompt)
			same(t, top["completion"], r.completion)
		case conversation:
			list := top["messages"].([]any)
			if len(list) != len(r.messages) {
				t.Fatalf("%d messages of %d", len(r.messages), len(list))
			}
			for i, x := range list {
				same(t, x.(map[string]any)["role"], r.messages[i].Role)
				same(t, x.(map[string]any)["content"], r.messages[i].Content)
			}
		}
		b := builder{encoder: encoder{m, &Options{Tokens: 16, TooLong: Cut, Template: chatml}, &Stats{}}}
		if err := b.add(r, "a.jsonl", 1); err != nil {
			return
		}
		for i := range b.train.ends {
			if w := b.train.at(i); len(w) < 2 || len(w) > 16 || w[0] < 0 || !slices.ContainsFunc(w, func(x int32) bool { return x < 0 }) {
				t.Errorf("sequence %v", w)
			}
		}
		if r.share() < 0 || r.share() >= 1 {
			t.Errorf("a share of %v", r.share())
		}
	})
}

func same(t *testing.T, want any, got string) {
	t.Helper()
	if want != any(got) {
		t.Errorf("%q, expected %q", got, want)
	}
}

// What may look wrong and is not: notes, keys without a value, escapes.
func TestTaken(t *testing.T) {
	for line, want := range map[string]record{
		`{"text": "\\ufffd \\uFFFD \ufffd \ud83e\udd99 \\\\ufffd", "id": 3, "meta": {"text": 1}}`: {text: "\\ufffd \\uFFFD \ufffd 🦙 \\\\ufffd"},
		`{"text": "\uFFFD\\", "tools": null, "system": null}`:                                     {text: "\ufffd\\"},
		"{\"text\": \"\ufffd\"}":            {text: "\ufffd"},
		`{"completion": "b", "prompt": ""}`: {form: completed, completion: "b"},
		`{"messages": [{"role": "user", "content": "a", "tool_calls": null}, {"role": "model", "thinking": "t", "reasoning": null, "content": "b"}]}`: {
			form:     conversation,
			messages: []generate.Message{{Role: "user", Content: "a"}, {Role: "model", Content: "b", Reasoning: "t"}}},
	} {
		if got, err := parseRecord([]byte(line)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v (%v), expected %+v", line, got, err, want)
		}
	}
}

// Documents are what lies between the lines that end them, the empty lines around left out; line numbers are those of their first lines.
func FuzzDocuments(f *testing.F) {
	fz := testkit.Fuzz(f)
	for _, s := range []string{"One.\n<|endoftext|>\nTwo.\n\nThree.", "\n\n<|endoftext|>\r\n\r\na\r\n<|endoftext|>", "\ufeff<|endoftext|>\nx",
		"a<|endoftext|>\n <|endoftext|>\n", "\n\r\n \nx\n\n"} {
		fz.Add(s)
	}
	fz.Fuzz(func(t *testing.T, text string) {
		type doc struct {
			line int
			text string
		}
		var got, want []doc
		src := newSource(context.Background())
		err := src.eachDocument("a.txt", bufio.NewReaderSize(strings.NewReader(text), 16), func(n int, s string) error {
			got = append(got, doc{n, s})
			return nil
		})
		if err != nil {
			if utf8.ValidString(text) {
				t.Fatal(err)
			}
			return
		}
		lines := strings.SplitAfter(strings.TrimPrefix(text, "\ufeff"), "\n")
		for from := 0; from <= len(lines); {
			to := from
			for to < len(lines) && strings.TrimRight(lines[to], "\r\n") != documentEnd {
				to++
			}
			s, at := strings.Join(lines[from:to], ""), from+1
			for strings.Trim(s, "\r\n") != "" && strings.Trim(lines[at-1], "\r\n") == "" {
				at++
			}
			if s = strings.Trim(s, "\r\n"); s != "" {
				want = append(want, doc{at, s})
			}
			from = to + 1
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, expected %+v", got, want)
		}
	})
}

// The share of an example is of what it says: fields do not run into each other, and it stays what it is.
func TestShare(t *testing.T) {
	seen := map[float64]record{}
	for _, r := range []record{
		{text: "a"}, {text: "b"}, {form: completed, prompt: "a", completion: "b"}, {form: completed, prompt: "ab"}, {form: completed, completion: "ab"},
		{form: conversation, messages: talk("", "a", "b")}, {form: conversation, messages: talk("", "a", "c")}, {form: conversation, messages: talk("", "a",
			"b", "c", "d")},
		{form: conversation, messages: talk("a", "b")},
	} {
		if was, ok := seen[r.share()]; ok {
			t.Errorf("%+v and %+v have one share", r, was)
		}
		seen[r.share()] = r
	}
	// SHA-256 of "ck example 1 0 16 Once upon a time0 0 ", its first 53 of 64 bits little-endian
	if got := (&record{text: "Once upon a time"}).share(); got != 0.13279336453463042 {
		t.Errorf("%v: other examples are held out than before", got)
	}
}
