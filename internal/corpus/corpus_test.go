package corpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ck/internal/generate"
)

func builtin(t testing.TB) *generate.Model {
	t.Helper()
	m, err := generate.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// counted is the text of an example's tokens that count, and of the others.
func counted(m *generate.Model, l *List, i int) (yes, no string) {
	ids, loss := l.at(i)
	var a, b []int32
	for j, id := range ids {
		if loss[j] {
			a = append(a, id)
		} else {
			b = append(b, id)
		}
	}
	plain := strings.NewReplacer("<s>", "", "</s>", "")
	return plain.Replace(m.TextOf(a)), plain.Replace(m.TextOf(b))
}

// Of conversations the answers count, whatever the template: found in a second way, by what the text is. Control tokens in what people say stay text.
func TestAnswersCount(t *testing.T) {
	m := builtin(t)
	conversation := `{"messages": [{"role": "user", "content": "zig </s> one"}, {"role": "assistant", "content": "ant number one"}, {"role": "user", "content": "zig two"}, {"role": "assistant", "content": "bee number two"}]}` + "\n"
	path := write(t, "a.jsonl", conversation)
	found := 0
	for _, name := range append([]string{""}, m.TemplateNames()...) {
		tm, err := m.FindTemplate(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Open(context.Background(), m, []string{path}, Options{Tokens: 4096, Template: tm})
		if err != nil {
			var e *LineError
			if !errors.As(err, &e) || e.Line != 1 {
				t.Errorf("%s: %v", name, err)
			}
			continue // said, not guessed
		}
		found++
		yes, no := counted(m, &c.Train, 0)
		if !strings.Contains(yes, "ant number one") || !strings.Contains(yes, "bee number two") || strings.Contains(yes, "zig") {
			t.Errorf("%s: what counts is %q", name, yes)
		}
		if !strings.Contains(no, "zig") || strings.Contains(no, "ant number") || strings.Contains(no, "bee number") {
			t.Errorf("%s: what does not count is %q", name, no)
		}
		eos, _ := m.Tok.EOS()
		ids, loss := c.Train.at(0)
		ends := 0
		for i, id := range ids {
			if id == eos && loss[i] {
				ends++
			}
		}
		if ends > 2 {
			t.Errorf("%s: %d ends count", name, ends)
		}
	}
	if found < 3 {
		t.Errorf("%d templates have answers that can be told", found)
	}
}

// A template that drops what earlier answers reasoned, or strips, is refused where that shows.
func TestTemplatesThatRewrite(t *testing.T) {
	m := builtin(t)
	rewriting := write(t, "t.jinja", `{% for x in messages %}{{ x.role }}:{% if x.role == 'assistant' and not loop.last %}{{ x.content.split('#')[-1] }}{% else %}{{ x.content }}{% endif %};{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}`)
	tm, err := m.FindTemplate(rewriting)
	if err != nil {
		t.Fatal(err)
	}
	for text, refused := range map[string]bool{"plain": false, "thought#said": true} {
		path := write(t, "a.jsonl", fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": %q}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]}`, text))
		_, err := Open(context.Background(), m, []string{path}, Options{Tokens: 4096, Template: tm})
		if (err != nil) != refused || err != nil && !strings.Contains(err.Error(), "use another template") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Of prompts the completion counts; of a text all but the first token; documents end at their line, which is never text.
func TestForms(t *testing.T) {
	m := builtin(t)
	c, err := Open(context.Background(), m, []string{
		write(t, "a.jsonl", `{"prompt": "Once upon", "completion": " a time there was"}`+"\n\n"+`{"text": "A dog ran."}`),
		write(t, "b.txt", "One day.\nTwo days.\n<|endoftext|>\n\nThe end.\n<|endoftext|>\n"),
	}, Options{Tokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	if c.Train.Len() != 4 {
		t.Fatalf("%d examples", c.Train.Len())
	}
	for i, want := range []string{" a time there was", "A dog ran.", "One day.\nTwo days.", "The end."} {
		yes, no := counted(m, &c.Train, i)
		if strings.TrimSpace(yes) != strings.TrimSpace(want) || i > 0 && no != "" {
			t.Errorf("example %d: %q counts, %q does not", i, yes, no)
		}
		ids, _ := c.Train.at(i)
		if eos, _ := m.Tok.EOS(); ids[len(ids)-1] != eos {
			t.Errorf("example %d has no end: %v", i, ids)
		}
	}
}

// Lines that cannot be used are named; as many as are allowed are skipped.
func TestBadLines(t *testing.T) {
	m := builtin(t)
	good := `{"text": "A good line."}`
	for what, bad := range map[string]string{"is no JSON": "{", "has not one of the forms": `{"txt": "x"}`, "something behind": good + "{}", "its completion is empty": `{"prompt": "a", "completion": ""}`,
		"is not UTF-8": "{\"text\": \"\xff\"}", "no answer": `{"messages": [{"role": "user", "content": "a"}]}`, "begins with an answer": `{"messages": [{"role": "assistant", "content": "a"}]}`,
		"has not one of the forms ": `{"text": "a", "prompt": "b", "completion": "c"}`} {
		path := write(t, "a.jsonl", good+"\n"+bad+"\n"+good+"\n")
		tm, err := m.FindTemplate("")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(context.Background(), m, []string{path}, Options{Tokens: 32, Template: tm})
		var e *LineError
		if !errors.As(err, &e) || e.Line != 2 || e.Path != path || !strings.Contains(err.Error(), strings.TrimSpace(what)) {
			t.Errorf("%s: %v", bad, err)
		}
		c, err := Open(context.Background(), m, []string{path}, Options{Tokens: 32, Template: tm, SkipBad: 1})
		if err != nil || c.Skipped != 1 || c.Train.Len() != 2 {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, path := range []string{write(t, "e.txt", "\n\n"), write(t, "e.jsonl", "")} {
		if _, err := Open(context.Background(), m, []string{path}, Options{Tokens: 32}); !errors.Is(err, ErrEmpty) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open(context.Background(), m, []string{t.TempDir()}, Options{Tokens: 32}); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("%v", err)
	}
}

// Slots have every example of an epoch once, whole, in an order of the seed; they are the same whoever asks, and from wherever on.
func TestSlots(t *testing.T) {
	m := builtin(t)
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, "%sdog %d.\n<|endoftext|>\n", strings.Repeat("The cat sat. ", i%9), i)
	}
	path := write(t, "a.txt", text.String())
	open := func(opt Options) *Corpus {
		opt.Tokens = 64
		c, err := Open(context.Background(), m, []string{path}, opt)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, pack := range []bool{true, false} {
		c := open(Options{Pack: pack, Seed: 5, Val: 0.1})
		if n := c.Val.Len(); n < 5 || n > 40 {
			t.Errorf("%d of %d are held out", n, c.Val.Len()+c.Train.Len())
		}
		n := 0
		for c.Epoch(n) < 1 {
			n++
		}
		if full := float64(c.Train.Tokens()) / float64(n*64); pack && full < 0.85 || !pack && n != c.Train.Len() {
			t.Errorf("%d slots are %.0f %% full", n, 100*full)
		}
		seen, first := map[string]int{}, make([]Slot, n)
		for i := range n {
			s := c.Slot(i)
			first[i] = s
			for j := 0; j < 64; {
				k := j
				for k < 64 && s.Seq[k] == s.Seq[j] {
					if s.Pos[k] != int32(k-j) {
						t.Fatalf("slot %d: %v", i, s.Pos)
					}
					k++
				}
				if s.Seq[j] >= 0 {
					if s.Loss[j] {
						t.Errorf("slot %d: the first token of a sequence counts", i)
					}
					seen[m.TextOf(s.IDs[j:k])]++
				}
				j = k
			}
		}
		for i := range c.Train.Len() {
			ids, _ := c.Train.at(i)
			if seen[m.TextOf(ids)] != 1 {
				t.Errorf("%q is there %d times", m.TextOf(ids), seen[m.TextOf(ids)])
			}
		}
		other := open(Options{Pack: pack, Seed: 5, Val: 0.1})
		if later := other.Slot(n + 3); !reflect.DeepEqual(later, c.Slot(n+3)) || !reflect.DeepEqual(other.Slot(2), first[2]) || other.Hash() != c.Hash() {
			t.Error("another corpus of the same data has other slots")
		}
		if x := open(Options{Pack: pack, Seed: 6, Val: 0.1}); reflect.DeepEqual(x.Slot(0), first[0]) || x.Hash() == c.Hash() {
			t.Error("another seed has the same order")
		}
		if reflect.DeepEqual(c.Slot(n), first[0]) {
			t.Error("the second epoch has the order of the first")
		}
	}
}

// Long texts become several examples, in which every token but the first is predicted once; prompts are cut, or refused.
func TestLong(t *testing.T) {
	m := builtin(t)
	text := strings.Repeat("The cat sat on the mat. ", 40)
	c, err := Open(context.Background(), m, []string{write(t, "a.txt", text)}, Options{Tokens: 50})
	if err != nil {
		t.Fatal(err)
	}
	one, err := Open(context.Background(), m, []string{write(t, "a.txt", text)}, Options{Tokens: 5000})
	if err != nil {
		t.Fatal(err)
	}
	if c.Cut != 0 || c.Train.Targets() != one.Train.Targets() || c.Train.Len() < 5 {
		t.Errorf("%d are cut; %d to predict in %d parts, %d in one", c.Cut, c.Train.Targets(), c.Train.Len(), one.Train.Targets())
	}
	path := write(t, "a.jsonl", fmt.Sprintf(`{"prompt": "Say:", "completion": %q}`, text))
	if c, err = Open(context.Background(), m, []string{path}, Options{Tokens: 50}); err != nil || c.Train.Len() != 1 || c.Train.Tokens() != 50 || c.Cut != 1 {
		t.Errorf("%v", err)
	}
	if _, err = Open(context.Background(), m, []string{path}, Options{Tokens: 50, Refuse: true}); !errors.Is(err, errLong) {
		t.Errorf("%v", err)
	}
}

// What is shown has no control characters of others.
func TestShow(t *testing.T) {
	m := builtin(t)
	c, err := Open(context.Background(), m, []string{write(t, "a.jsonl", `{"prompt": "Say \u001b[31m:", "completion": "Yes."}`)}, Options{Tokens: 40})
	if err != nil {
		t.Fatal(err)
	}
	s := c.Slot(0)
	var b bytes.Buffer
	if err := s.Show(&b, m, false); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "Yes.") || !strings.Contains(text, "«") || !strings.Contains(text, "padding: ") || !strings.Contains(text, "sequence 0: ") {
		t.Errorf("%q", text)
	}
}
