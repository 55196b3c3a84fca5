package dataset

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ck/internal/generate"
	"ck/internal/template"
	"ck/internal/testkit"
	"ck/internal/tokenizer"
)

// now is the day of the tests.
var now = time.Date(2024, 7, 26, 13, 5, 9, 0, time.UTC)

// asked is the prompt that turns make when the model is asked, as chats make it.
func asked(t *testing.T, m *generate.Model, tmpl *template.Template, turns []generate.Message) []int32 {
	t.Helper()
	r, err := m.Render(tmpl, turns, generate.RenderOptions{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return r.IDs
}

// all is the tokens of words.
func all(words []int32) []int32 {
	ids := make([]int32, len(words))
	for i, w := range words {
		ids[i] = token(w)
	}
	return ids
}

// changed is turns with other texts from answers, or from all others.
func changed(turns []generate.Message, answers bool) []generate.Message {
	list := slices.Clone(turns)
	for i := range list {
		if isAnswer(list[i].Role) == answers && list[i].Role != "system" {
			list[i].Content = "Zweierlei " + strings.Repeat("x", i) + " Ding"
		}
	}
	return list
}

// texts are the tokens of the runs that count, or of the others.
func texts(words []int32, counts bool) (list [][]int32) {
	for _, r := range runs(words) {
		if r.counts == counts {
			list = append(list, r.ids)
		}
	}
	return list
}

// checkSpans sees in a second way that the answers count and nothing else: each run that counts stands behind exactly the prompt that a chat would
// make there, holds the answer and none of the user's texts; other answers change nothing of what does not count, other questions nothing of what does.
func checkSpans(t *testing.T, what string, m *generate.Model, tmpl *template.Template, turns []generate.Message, words []int32) {
	t.Helper()
	at, answer := 0, 0
	got := runs(words)
	for i, turn := range turns {
		if !isAnswer(turn.Role) {
			continue
		}
		for answer*2+1 < len(got) && len(got) > 0 && got[0].counts {
			t.Fatalf("%s: the first token counts", what)
		}
		if answer*2+1 >= len(got) {
			t.Fatalf("%s: %d runs, answer %d has none", what, len(got), answer+1)
		}
		at += len(got[2*answer].ids)
		if q := asked(t, m, tmpl, turns[:i]); !slices.Equal(q, all(words[:at])) {
			t.Errorf("%s: answer %d does not stand behind what the model is asked: %q, not %q", what, answer+1, m.TextOf(all(words[:at])), m.TextOf(q))
		}
		run := got[2*answer+1]
		text, said := string(m.Tok.Decode(nil, run.ids, tokenizer.DecodeOptions{Special: true})), turn.Content
		if m.Tok.Kind() == "spm" { // special tokens of such vocabularies take blanks beside them
			said = strings.TrimSpace(said)
		}
		if !strings.Contains(text, said) && !strings.HasPrefix(said, "<think>") {
			t.Errorf("%s: what counts of answer %d is %q", what, answer+1, text)
		}
		behind := max(0, strings.LastIndex(text, said)) + len(said)
		for k, id := range run.ids[:len(run.ids)-1] {
			if before := m.Tok.Decode(nil, run.ids[:k], tokenizer.DecodeOptions{Special: true}); m.Tok.IsEOG(id) && len(before) >= behind {
				t.Errorf("%s: answer %d goes on behind its end: %q", what, answer+1, text)
			}
		}
		at += len(run.ids)
		answer++
	}
	if n := len(texts(words, true)); n != answer {
		t.Errorf("%s: %d runs count, there are %d answers", what, n, answer)
	}
	var span *SpanError // of other texts, tokens may reach over borders
	if other, _, err := encoded(m, tmpl, changed(turns, true)); !errors.As(err, &span) && (err != nil || !reflectEqual(texts(other, false), texts(words,
		false))) {
		t.Errorf("%s: with other answers, other tokens do not count (%v)", what, err)
	}
	if other, _, err := encoded(m, tmpl, changed(turns, false)); !errors.As(err, &span) && (err != nil || !reflectEqual(texts(other, true), texts(words,
		true))) {
		t.Errorf("%s: with other questions, other tokens count (%v)", what, err)
	}
}

func reflectEqual(a, b [][]int32) bool {
	return slices.EqualFunc(a, b, func(x, y []int32) bool { return slices.Equal(x, y) })
}

// checkRefusal sees that a conversation was refused with right: its renderings do not fit into each other, or lack what is said.
func checkRefusal(t *testing.T, what string, m *generate.Model, tmpl *template.Template, turns []generate.Message, err error) {
	t.Helper()
	var span *SpanError
	if !errors.As(err, &span) {
		var raised *template.ErrRaised
		var failed *template.Error
		if !errors.As(err, &raised) && !errors.As(err, &failed) {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	render := func(turns []generate.Message, whole bool) generate.Rendering {
		r, err := m.Render(tmpl, turns, generate.RenderOptions{Continue: whole, Now: now})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return r
	}
	for !isAnswer(turns[len(turns)-1].Role) {
		turns = turns[:len(turns)-1]
	}
	w := render(turns, true)
	for i, turn := range turns {
		if !isAnswer(turn.Role) {
			continue
		}
		q, a := render(turns[:i], false), render(turns[:i+1], true)
		if !strings.HasPrefix(a.Text, q.Text) || !strings.HasPrefix(w.Text, a.Text) || !begins(w.IDs, q.IDs) || !begins(w.IDs, a.IDs) ||
			!strings.Contains(a.Text[len(q.Text):], turn.Content) || !strings.Contains(a.Text, turn.Reasoning) {
			return
		}
	}
	t.Errorf("%s: is refused, but its renderings fit: %v", what, err)
}

// encoded is words with the day of the tests.
func encoded(m *generate.Model, tmpl *template.Template, turns []generate.Message) ([]int32, Stats, error) {
	st := Stats{}
	e := encoder{m, &Options{Template: tmpl, Now: now}, &st}
	w, err := e.conversation(turns)
	if err != nil {
		return nil, st, err
	}
	return trim(w), st, nil
}

// conversations are those of the data that have an answer and texts alone, and our own.
func conversations(t *testing.T) map[string][]generate.Message {
	t.Helper()
	out := map[string][]generate.Message{
		"one":        talk("", "a1 b", "c2 d"),
		"two":        talk("", "a1 b", "c2 d", "e3 f", "g4 h"),
		"system":     talk("Be kind.", "zig one", "ant one", "zig two", "bee two"),
		"unanswered": talk("", "zig one", "ant one", "zig two"),
		"blanks":     talk("", "zig", " ant \n", "zog", "\n\nbee"),
		"reasoned":   {{Role: "user", Content: "zig"}, {Role: "assistant", Content: "ant", Reasoning: "because of it"}},
		"lines":      talk("", "zig\nzog", "ant\n\nbee\n- cow", "zag", "ünï 🦙 cödé"),
	}
	b, err := os.ReadFile(testkit.Data(t, "templates/conversations.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]struct {
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	for name, c := range list {
		if turns, err := parseMessages(c.Messages); err == nil {
			out["data "+name] = turns
		}
	}
	return out
}

// Of every template and vocabulary the answers count, or the conversation is refused with right.
func TestSpansOfTemplates(t *testing.T) {
	list, talks := templates(t), conversations(t)
	if len(talks) < 12 {
		t.Errorf("%d conversations", len(talks))
	}
	for vocab, least := range map[string]int{"qwen2": 150, "llama-spm": 100, "phi-3": 100, "llama-bpe": 150} {
		t.Run(vocab, func(t *testing.T) {
			m := vocabulary(t, vocab)
			found, reasons := 0, map[string]int{}
			for _, name := range slices.Sorted(maps.Keys(list)) {
				for _, talk := range slices.Sorted(maps.Keys(talks)) {
					words, _, err := encoded(m, list[name], talks[talk])
					var span *SpanError
					switch {
					case err == nil:
						found++
						checkSpans(t, name+", "+talk, m, list[name], talks[talk], words)
					case errors.As(err, &span):
						reasons[span.Why]++
						fallthrough
					default:
						checkRefusal(t, name+", "+talk, m, list[name], talks[talk], err)
					}
				}
			}
			t.Logf("%d found; refused: %v", found, reasons)
			if found < least {
				t.Errorf("spans were found in %d renderings, expected at least %d", found, least)
			}
		})
	}
}

// Models with their own templates: what counts, to the token, and why others are refused.
func TestSpansOfModels(t *testing.T) {
	list := templates(t)
	two := talk("", "zig", "ant one", "zog", "bee two")
	models := map[string]*generate.Model{}
	for _, c := range []struct {
		vocab, template string
		turns           []generate.Message
		want            []string // what counts; nil: refused
		why             string
	}{
		{"qwen2", "Qwen-Qwen2.5-7B-Instruct", two, []string{"ant one<|im_end|>", "bee two<|im_end|>"}, ""},
		{"qwen2", "Qwen-Qwen3-0.6B", two[:2], []string{"<think>\n\n</think>\n\nant one<|im_end|>"}, ""},
		{"qwen2", "Qwen-Qwen3-0.6B", two, nil, "the template writes earlier turns otherwise when more follow"},
		{"qwen2", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", two, nil, "the template does not write it behind what it writes to ask for it"},
		{"llama-bpe", "meta-llama-Llama-3.1-8B-Instruct", talk("", "zig", "ant one\n"), nil, "drops it, or parts of it, strips it"},
		{"llama-bpe", "meta-llama-Llama-3.1-8B-Instruct", talk("", "zig", "\nant one"), nil, "the template strips it"},
		{"llama-bpe", "meta-llama-Llama-3.1-8B-Instruct", two, []string{"ant one<|eot_id|>", "bee two<|eot_id|>"}, ""},
		{"qwen2", "Qwen-Qwen2.5-7B-Instruct", []generate.Message{{Role: "user", Content: "zig"}, {Role: "assistant", Content: "ant", Reasoning: "why"}}, nil,
			"drops or alters what it was reasoned with"},
		{"llama-spm", "mistralai-Mistral-Nemo-Instruct-2407", two, []string{"ant one</s>", "bee two</s>"}, ""},
		{"phi-3", "microsoft-Phi-3.5-mini-instruct", two[:2], []string{"ant one<|end|>"}, ""}, // <|endoftext|> stands behind it
		{"phi-3", "openai-gpt-oss-120b", []generate.Message{{Role: "user", Content: "zig"}, {Role: "assistant", Content: "ant", Reasoning: "why"}},
			// <|end|> ends a generation, <|return|> is no token
			[]string{"<|channel|>analysis<|message|>why<|end|> <|start|>assistant<|channel|>final<|message|>ant<|return|>"}, "no end"},
	} {
		if models[c.vocab] == nil {
			models[c.vocab] = vocabulary(t, c.vocab)
		}
		t.Run(c.vocab+" "+c.template, func(t *testing.T) {
			m := models[c.vocab]
			words, st, err := encoded(m, list[c.template], c.turns)
			if c.want == nil {
				var span *SpanError
				if !errors.As(err, &span) || !strings.Contains(err.Error(), c.why) {
					t.Errorf("%v, expected that it is refused: %s", err, c.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ids := range texts(words, true) {
				got = append(got, m.TextOf(ids))
			}
			if !slices.Equal(got, c.want) || (st.NoEnd != 0) != (c.why == "no end") {
				t.Errorf("%q counts, expected %q; %d without an end", got, c.want, st.NoEnd)
			}
		})
	}
}

// Templates that were made to be hard.
func TestHardTemplates(t *testing.T) {
	m := builtin(t)
	two := talk("", "zig", "ant one", "zog", "bee two")
	turn := `{% for x in messages %}{{ x.role }}:{{ x.content }}` + "\n" + `{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}`
	late := `{% for x in messages %}{% if x.role == 'user' %}{% if not loop.first %}[{{ messages[loop.index0 - 1].content }}]{% endif %}user:{{ x.content }};` +
		`{% else %}assistant:{% if loop.last and loop.index > 2 %}{{ x.content }}{% endif %};{% endif %}{% endfor %}` +
		`{% if add_generation_prompt %}assistant:{% endif %}`
	for name, c := range map[string]struct {
		source string
		turns  []generate.Message
		why    string // "": found
		noEnd  int
	}{
		"plain": {turn, two, "", 2},
		"ends":  {strings.Replace(turn, "x.content }}", "x.content }}{% if x.role == 'assistant' %}{{ eos_token }}{% endif %}", 1), two, "", 0},
		"ends before next": {strings.Replace(turn, "{{ x.role", "{% if x.role == 'user' and not loop.first %}{{ eos_token }}{% endif %}{{ x.role", 1), two,
			"", 1},
		"no question": {strings.Replace(turn, "%}assistant:", "%}Answer:", 1), two, "does not write it behind what it writes to ask", 0},
		"drops old": {strings.Replace(turn, "x.content }}", "x.content if loop.last or x.role == 'user' else '…' }}", 1), two,
			"answer 1: the template drops it", 0},
		"drops thoughts": {strings.Replace(turn, "x.content }}", "x.content.split('#')[-1] }}", 1), talk("", "zig", "think#ant"), "drops it, or parts", 0},
		"strips":         {strings.Replace(turn, "x.content }}", "x.content | trim }}", 1), talk("", "zig", "ant "), "strips it", 0},
		"strips the first": {strings.Replace(turn, "x.content }}", "x.content | trim }}", 1), talk("", "zig", "ant ", "zog", "bee"),
			"answer 1: the template drops it", 0},
		"upper":           {strings.Replace(turn, "x.content }}", "x.content | upper }}", 1), two, "writes it otherwise", 0},
		"twice":           {strings.Replace(turn, "x.content }}", "x.content }}{{ x.content }}", 1), two, "writes it otherwise", 0},
		"twice, the last": {turn + `{{ messages[-1].content }}`, talk("", "zig", "ant"), "or writes them otherwise", 0},
		"first":           {`{% if not add_generation_prompt %}{{ messages[-1].content }};{% endif %}` + turn, two[:2], "or writes them otherwise", 0},
		"counts":          {`{{ messages | length }}` + turn, two, "does not write it behind", 0},
		"measures": {strings.Replace(turn, "x.content }}", "x.content | length }}{{ x.content }}", 1), talk("", "zig", "ten number"),
			"or writes them otherwise", 0},
		"late":             {late, two, "answer 1: the template writes it at another place", 0},
		"reversed":         {strings.Replace(turn, "in messages", "in messages | reverse", 1), two, "answer 1", 0},
		"date":             {`{{ strftime_now('%d') }}` + turn, two, "writes the date", 0},
		"half a date":      {`{% if false %}{{ strftime_now('%d') }}{% endif %}` + turn, two, "", 2},
		"looks like signs": {turn, talk("", "zig ⁂ck⁂", "ant ⁂ck⁂", "zog", "⁂ck⁂ck⁂ bee"), "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			st := Stats{}
			e := encoder{m, &Options{Template: parsed(t, name, c.source)}, &st}
			words, err := e.conversation(c.turns)
			if c.why != "" {
				if err == nil || !strings.Contains(err.Error(), c.why) {
					t.Errorf("%v, expected an error with %q", err, c.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if st.NoEnd != c.noEnd {
				t.Errorf("%d answers without an end, expected %d", st.NoEnd, c.noEnd)
			}
			for i, ids := range texts(trim(words), true) {
				if last := ids[len(ids)-1]; m.Tok.IsEOG(last) != (c.noEnd == 0 || name == "ends before next" && i == 0) {
					t.Errorf("answer %d ends with %q", i+1, m.Tok.Piece(last))
				}
				if text := m.TextOf(ids); !strings.Contains(text, c.turns[2*i+1].Content) {
					t.Errorf("answer %d: %q counts", i+1, text)
				}
			}
		})
	}
}

// What people say that looks like control tokens is text: there are the control tokens of a harmless conversation, and each answer ends at its own.
func TestLookAlikes(t *testing.T) {
	m := vocabulary(t, "qwen2")
	tmpl := templates(t)["Qwen-Qwen2.5-7B-Instruct"]
	controls := func(words []int32) (n int) {
		for _, w := range words {
			if m.Tok.IsControl(token(w)) {
				n++
			}
		}
		return n
	}
	harmless, _, err := encoded(m, tmpl, talk("", "zig", "ant", "zog", "bee"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"<|im_end|>", "<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>user\n", "<|endoftext|>", "a<|im_end|><|im_end|>b"} {
		for at := range 4 {
			turns := talk("", "zig", "ant", "zog", "bee")
			turns[at].Content += s + "x"
			words, st, err := encoded(m, tmpl, turns)
			if err != nil {
				t.Errorf("%q in turn %d: %v", s, at, err)
				continue
			}
			if controls(words) != controls(harmless) || st.NoEnd != 0 {
				t.Errorf("%q in turn %d: %d control tokens, expected %d", s, at, controls(words), controls(harmless))
			}
			checkSpans(t, s, m, tmpl, turns, words)
		}
		for _, r := range []record{{form: document, text: "a " + s + " b"}, {form: completed, prompt: "a " + s, completion: " b" + s}} {
			e := encoder{m, &Options{}, &Stats{}}
			words, err := e.encode(r)
			if eos, _ := m.Tok.EOS(); err != nil || controls(words) != 1 || token(words[len(words)-1]) != eos {
				t.Errorf("%q: %d control tokens (%v)", s, controls(words), err)
			}
		}
	}
}
