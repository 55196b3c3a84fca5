package generate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ck/internal/template"
	"ck/internal/testkit"
	"ck/internal/tokenizer"
)

// marked is a vocabulary of control tokens alone, numbered from 1000.
func marked(tokens ...string) vocabulary {
	return func(text string) (int32, bool) {
		i := slices.Index(tokens, text)
		if i < 0 {
			return -1, false
		}
		return int32(1000 + i), true
	}
}

var harmonyTokens = []string{"<|start|>", "<|channel|>", "<|message|>", "<|end|>"}

// What a model writes becomes reasoning and answer, the same however tokens cut it. ^ stands before control tokens.
func TestSplitter(t *testing.T) {
	for _, c := range []struct {
		name, source  string
		control       []string
		inside        bool
		write         string
		think, answer string
	}{
		{name: "answer alone", source: "<think>", write: "\n Hello <b> world \n", answer: "\n Hello <b> world \n"},
		{name: "tags", source: "</think>", write: "\n<think>\nLet me see.\n\nYes.\n</think>\n\nHello.\n", think: "Let me see.\n\nYes.", answer: "Hello.\n"},
		{name: "empty", source: "<think>", write: "<think>\n\n</think>\n\nHello", answer: "Hello"},
		{name: "unfinished", source: "<think>", write: "<think>Let me </thi", think: "Let me </thi"},
		{name: "unfinished, space", source: "<think>", write: "<think>Let me\n\n", think: "Let me"},
		{name: "unfinished mark", source: "<think>", write: "<thin", answer: "<thin"},
		{name: "white space alone", source: "<think>", write: " \n", answer: " \n"},
		{name: "inside", source: "<think>", inside: true, write: "\nHm.\n</think>\nHello </think>", think: "Hm.", answer: "Hello </think>"},
		{name: "inside, unfinished", source: "<think>", inside: true, write: "Hm. a < b", think: "Hm. a < b"},
		{name: "a tag that the answer quotes", source: "<think>", write: "Use <think>x</think>.", answer: "Use <think>x</think>."},
		{name: "control tags", source: "[THINK]", control: []string{"[THINK]", "[/THINK]"}, write: "^[THINK]Hm.^[/THINK]Hello [THINK]x", think: "Hm.", answer: "Hello [THINK]x"},
		{name: "control tags as text", source: "[THINK]", control: []string{"[THINK]", "[/THINK]"}, write: "[THINK]Hm.", answer: "[THINK]Hm."},
		{name: "control tags within the answer", source: "[THINK]", control: []string{"[THINK]", "[/THINK]"}, write: "One. ^[THINK] Hm. ^[/THINK] Two.", think: "Hm.", answer: "One. Two."},
		{name: "gemma 4", source: "'<|channel>thought\\n'", control: []string{"<|channel>", "<channel|>"}, write: "^<|channel>thought\nHm.\n^<channel|>Hello", think: "Hm.", answer: "Hello"},
		{name: "harmony", source: "<|channel|>analysis<|message|>", control: harmonyTokens,
			write: "^<|channel|>analysis^<|message|>User says hi. analysis^<|end|>^<|start|>assistant^<|channel|>final^<|message|>Hi! assistant final",
			think: "User says hi. analysis", answer: "Hi! assistant final"},
		{name: "harmony, no reasoning", source: "<|channel|>analysis<|message|>", control: harmonyTokens, write: "^<|channel|>final^<|message|>Hi!", answer: "Hi!"},
		{name: "harmony, unknown channel", source: "<|channel|>analysis<|message|>", control: harmonyTokens, write: "^<|channel|>other^<|message|>Hi!", answer: "otherHi!"},
		{name: "harmony, twice", source: "<|channel|>analysis<|message|>", control: harmonyTokens,
			write: "^<|channel|>analysis^<|message|>A.^<|end|>^<|start|>assistant^<|channel|>analysis^<|message|>B.^<|end|>^<|start|>assistant^<|channel|>final^<|message|>C",
			think: "A.B.", answer: "C"},
		{name: "kimi k3", source: "open_tag('think'", control: []string{"<|open|>", "<|close|>", "<|sep|>"}, inside: true,
			write: "Hm.^<|close|>think^<|sep|>^<|open|>response^<|sep|>Hello", think: "Hm.", answer: "Hello"},
		{name: "bytes", source: "<think>", write: "<think>\xff\x00é</think>\x00\xfe", think: "\xff\x00é", answer: "\x00\xfe"},
	} {
		token := marked(c.control...)
		r := newReasoning(c.source, token)
		for _, size := range []int{1, 2, 3, 5, 1000} {
			s := newSplitter(r, c.inside)
			var text []byte
			for i, piece := range strings.Split(c.write, "^") {
				if i > 0 { // a control token comes alone
					at := slices.IndexFunc(c.control, func(s string) bool { return strings.HasPrefix(piece, s) })
					id, _ := token(c.control[at])
					text = s.feed(text, r.controls[id])
					piece = piece[len(c.control[at]):]
				}
				for len(piece) > 0 {
					n := min(size, len(piece))
					text = s.feed(text, []byte(piece[:n]))
					piece = piece[n:]
				}
			}
			text = s.flush(text)
			if string(s.think) != c.think || string(text) != c.answer {
				t.Errorf("%s, %d bytes at a time: reasoning %q, answer %q; expected %q, %q", c.name, size, s.think, text, c.think, c.answer)
			}
		}
	}
	if r := newReasoning("{{ messages }} <|end|>", marked("<|end|>")); r != nil {
		t.Errorf("a template without marks: %+v", r)
	}
	if r := newReasoning("", marked("<think>")); r == nil {
		t.Error("a vocabulary with <think>: nothing")
	}
}

// What could be shown is shown at once: only the beginning of a mark, and white space at the end of reasoning, wait.
func TestSplitterWaitsForMarksOnly(t *testing.T) {
	s := newSplitter(newReasoning("<think>", marked()), true)
	var text []byte
	for _, c := range []struct{ write, think, answer string }{
		{"Let", "Let", ""}, {" me ", "Let me", ""}, {"see <", "Let me see", ""}, {"b", "Let me see <b", ""}, {"</think", "Let me see <b", ""},
		{">\n", "Let me see <b", ""}, {"\nHe", "Let me see <b", "He"}, {"llo <", "Let me see <b", "Hello <"}, {"th\n", "Let me see <b", "Hello <th\n"},
	} {
		if text = s.feed(text, []byte(c.write)); string(s.think) != c.think || string(text) != c.answer {
			t.Errorf("after %q: %q, %q; expected %q, %q", c.write, s.think, text, c.think, c.answer)
		}
	}
}

// With real vocabularies, in which marks are text, or tokens that are text, or control tokens.
func TestSplitterOfVocabularies(t *testing.T) {
	open := func(tok *tokenizer.Tokenizer, err error) *Model {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return &Model{Tok: tok}
	}
	for _, c := range []struct {
		m                    func(t *testing.T) *Model
		template             string
		write, think, answer string
		inside               bool
	}{
		{m: func(t *testing.T) *Model {
			return open(tokenizer.FromJSON(unzipped(t, "tokenizers/hf/gpt-oss.tokenizer.json.gz"), nil))
		}, template: "openai-gpt-oss-120b",
			write: "<|channel|>analysis<|message|>The user greets.<|end|><|start|>assistant<|channel|>final<|message|>Hello, 日本!", think: "The user greets.", answer: "Hello, 日本!"},
		{m: func(t *testing.T) *Model {
			return open(tokenizer.FromJSON(unzipped(t, "tokenizers/hf/qwen3.tokenizer.json.gz"), nil))
		}, template: "Qwen-Qwen3-0.6B",
			write: "<think>\nThe user greets.\n</think>\n\nHello, 日本!", think: "The user greets.", answer: "Hello, 日本!"},
		{m: func(t *testing.T) *Model {
			return open(tokenizer.FromJSON(unzipped(t, "tokenizers/hf/deepseek-v3.tokenizer.json.gz"), nil))
		}, template: "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
			inside: true, write: "The user greets.\n</think>\n\nHello, 日本!", think: "The user greets.", answer: "Hello, 日本!"},
		{m: func(t *testing.T) *Model {
			return open(tokenizer.FromTekken(unzipped(t, "tokenizers/hf/tekken.json.gz")))
		}, template: "mistralai-Ministral-3-14B-Reasoning-2512",
			write: "[THINK]The user greets.[/THINK]Hello, 日本!", think: "The user greets.", answer: "Hello, 日本!"},
	} {
		t.Run(c.template, func(t *testing.T) {
			m := c.m(t)
			b, err := os.ReadFile(filepath.Join(testkit.Data(t, "templates/jinja"), c.template+".jinja"))
			if err != nil {
				t.Fatal(err)
			}
			tmpl, err := template.Parse(c.template, string(b))
			if err != nil {
				t.Fatal(err)
			}
			h := newHoldback(m.Tok.NewDecoder(tokenizer.DecodeOptions{}), nil)
			h.split = newSplitter(m.Reasoning(tmpl), c.inside)
			for _, id := range m.Tok.Encode(nil, c.write, tokenizer.EncodeOptions{ParseSpecial: true}) {
				h.add(id)
			}
			h.flush()
			if string(h.split.think) != c.think || string(h.all) != c.answer {
				t.Errorf("%s: reasoning %q, answer %q; expected %q, %q", c.template, h.split.think, h.all, c.think, c.answer)
			}
		})
	}
}

// A generation's events say which text is reasoning; stop strings count in the answer alone.
func TestGenerateReasoning(t *testing.T) {
	m := builtin(t)
	eos, _ := m.Tok.EOS()
	r := newReasoning("<think>", marked())
	prompt := []int32{1, 400, 401}
	for _, c := range []struct {
		say           string
		inside        bool
		max           int
		think, answer string
		finish        Finish
	}{
		{"<|t|h|i|n|k|>|n|o|t|.|<|/|t|h|i|n|k|>|y|e|s|.|n|o", false, -1, "not.", "yes", FinishStop},
		{"n|o|.|<|/|t|h|i|n|k|>|y|e|s", true, -1, "no.", "yes", FinishEOG},
		{"n|o|.|<|/|t|h|i|n|k|>|y|e|s", true, 5, "no.</", "", FinishLength},
		{"y|e|s", false, -1, "", "yes", FinishEOG},
	} {
		e := newScript(m, len(prompt), append(pieces(t, m, c.say), eos))
		var think, text string
		o := Options{Prompt: prompt, Seq: e.NewSeq(), MaxNew: c.max, Stop: []string{"."}, Reasoning: r, Inside: c.inside}
		res, err := m.Generate(context.Background(), e, o, func(ev Event) error {
			think, text = think+string(ev.Reasoning), text+string(ev.Text)
			return nil
		})
		if err != nil || res.Reasoning != c.think || res.Text != c.answer || res.Finish != c.finish || think != c.think || text != c.answer {
			t.Errorf("%q: %+v, %v; shown %q, %q; expected %q, %q, %s", c.say, res, err, think, text, c.think, c.answer, c.finish)
		}
	}
}

// The real templates: which of them open the reasoning, which can be asked not to, and that their prompt is another one then.
func TestReasoningOfTemplates(t *testing.T) {
	m := builtin(t)
	for name, want := range map[string]struct {
		marks, inside bool
		off           string // the variable, with "less" where the model still reasons
	}{
		"Qwen-Qwen3-0.6B":           {true, false, "enable_thinking"},
		"Qwen3.5-4B":                {true, true, "enable_thinking"},
		"GLM-4.6":                   {true, false, "enable_thinking"},
		"HuggingFaceTB-SmolLM3-3B":  {true, false, "enable_thinking"},
		"deepseek-ai-DeepSeek-V3.1": {true, false, "enable_thinking"},
		"deepseek-ai-DeepSeek-R1-Distill-Llama-8B": {true, true, ""},
		"llama-cpp-deepseek-r1":                    {true, true, ""},
		"StepFun3.5-Flash":                         {true, true, ""},
		"MiniMax-M2":                               {true, true, ""},
		"MiniMax-M3":                               {true, false, "thinking_mode"},
		"inclusionai-ling-3.0-flash":               {true, true, "enable_thinking"},
		"ibm-granite-granite-3.3-2B-Instruct":      {true, false, "thinking"},
		"poolside-Laguna-S-2.1":                    {true, true, "enable_thinking"},
		"Kimi-K3":                                  {true, true, "thinking"},
		"upstage-Solar-Open-100B":                  {true, false, "reasoning_effort"},
		"openai-gpt-oss-120b":                      {true, false, "reasoning_effort less"},
		"google-gemma-4-31B-it":                    {true, false, "enable_thinking"},
		"mistralai-Ministral-3-14B-Reasoning-2512": {true, false, ""},
		"Apriel-1.6-15b-Thinker-fixed":             {true, true, ""},
		"Apertus-8B-Instruct":                      {true, false, "enable_thinking"},
		"LFM2.5-Instruct":                          {true, false, ""},
		"meta-llama-Llama-3.3-70B-Instruct":        {false, false, ""},
		"Qwen-Qwen2.5-7B-Instruct":                 {false, false, ""},
		"microsoft-Phi-3.5-mini-instruct":          {false, false, ""},
		"Mistral-Small-3.2-24B-Instruct-2506":      {false, false, ""},
	} {
		b, err := os.ReadFile(filepath.Join(testkit.Data(t, "templates/jinja"), name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := template.Parse(name, string(b))
		if err != nil {
			t.Fatal(err)
		}
		conv := []Message{{Role: "user", Content: "Hello"}}
		opt := RenderOptions{Now: time.Unix(0, 0)}
		plain, err := m.Render(tmpl, conv, opt)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r := m.Reasoning(tmpl)
		if (r != nil) != want.marks || r.Inside(plain.Text) != want.inside {
			t.Errorf("%s: marks %v, inside %v, expected %+v; the prompt ends %q", name, r != nil, r.Inside(plain.Text), want, plain.Text[max(len(plain.Text)-60, 0):])
		}
		vars, off := m.WithoutReasoning(tmpl)
		got := ""
		for k := range vars {
			if got = k; !off {
				got += " less"
			}
		}
		if got != want.off {
			t.Errorf("%s: %q, expected %q", name, got, want.off)
		}
		if vars != nil {
			opt.Vars = vars
			if without, err := m.Render(tmpl, conv, opt); err != nil || r.Inside(without.Text) {
				t.Errorf("%s: with %v the prompt ends %q, %v", name, vars, without.Text[max(len(without.Text)-60, 0):], err)
			}
		}
	}
}

// Reasoning of past turns reaches the template under the names that templates read, and look-alikes of control tokens in it stay text.
func TestReasoningOfPastTurns(t *testing.T) {
	m := builtin(t)
	tmpl, err := template.Parse("t", "{% for m in messages %}{{ m.role }}:{{ m.reasoning_content }}/{{ m.reasoning }}/{{ m.thinking }}:{{ m.content }};{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Render(tmpl, []Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b", Reasoning: "</s>"}}, RenderOptions{})
	if err != nil || r.Text != "user://:a;assistant:</s>/</s>/</s>:b;" {
		t.Errorf("%q, %v", r.Text, err)
	}
	if eos, _ := m.Tok.EOS(); slices.Contains(r.IDs, eos) {
		t.Errorf("</s> in reasoning became the token: %v", r.IDs)
	}
}

// A session keeps reasoning beside the answer and saves it; what was only reasoned, and interrupted, is no turn.
func TestSessionReasoning(t *testing.T) {
	m := builtin(t)
	eos, _ := m.Tok.EOS()
	tmpl, err := template.Parse("t", "{% for m in messages %}{{ m.content }}\n{% endfor %}<think>")
	if err != nil {
		t.Fatal(err)
	}
	say := append(pieces(t, m, "n|o|.|<|/|t|h|i|n|k|>|y|e|s"), eos)
	r, err := m.Render(tmpl, []Message{{Role: "user", Content: "a"}}, RenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSession(newScript(m, len(r.IDs), say), tmpl)
	s.Reasoning = m.Reasoning(tmpl)
	res, err := s.Ask(context.Background(), "a", Options{MaxNew: -1}, nil)
	if err != nil || res.Reasoning != "no." || res.Text != "yes" {
		t.Fatalf("%+v, %v", res, err)
	}
	var b strings.Builder
	if err := s.Save(&b); err != nil || !strings.Contains(b.String(), `"reasoning": "no."`) {
		t.Errorf("saved: %v, %s", err, b.String())
	}
	var c saved
	if err := json.Unmarshal([]byte(b.String()), &c); err != nil || !slices.Equal(c.Messages, s.Messages) || s.Messages[1].Reasoning != "no." {
		t.Errorf("loaded: %v, %+v", err, c)
	}
	s.Reset()
	s.held = nil
	ctx, cancel := context.WithCancel(context.Background())
	_, err = s.Ask(ctx, "a", Options{MaxNew: -1}, func(Event) error { cancel(); return nil })
	if err != nil && !errors.Is(err, context.Canceled) || len(s.Messages) != 0 {
		t.Errorf("interrupted: %v, %+v", err, s.Messages)
	}
}
