package generate

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"ck/internal/template"
	"ck/internal/template/value"
)

// Many models reason aloud before they answer. What they reason stands between marks: plain text such as <think>, or control tokens, which
// are no text at all. Which marks count is said by the template and the vocabulary, never by a model's name.

// family is a pair of marks, in pieces: each is a control token where the vocabulary has one of that text.
type family struct {
	open, close []string
	skip        [][]string // headers of the answer, which are no text
	key         []string   // in a template's source they say that the family is used; nil: the marks do, of one piece each
}

func tags(open, close string) family { return family{open: []string{open}, close: []string{close}} }

var families = []family{
	tags("<think>", "</think>"), // deepseek, qwen, glm, smollm, nemotron, kimi-k2 and most others
	tags("<thinking>", "</thinking>"),
	tags("<mm:think>", "</mm:think>"),              // minimax-m3
	tags("<seed:think>", "</seed:think>"),          // seed-oss
	tags("[THINK]", "[/THINK]"),                    // mistral: control tokens
	tags("<|inner_prefix|>", "<|inner_suffix|>"),   // apertus
	tags("<|START_THINKING|>", "<|END_THINKING|>"), // command-a
	{open: []string{"<|channel>", "thought"}, close: []string{"<channel|>"}, key: []string{"<|channel>thought"}}, // gemma 4
	{open: []string{"<|channel|>", "analysis", "<|message|>"}, close: []string{"<|end|>"}, skip: [][]string{ // gpt-oss: the harmony format
		{"<|start|>", "assistant"}, {"<|channel|>", "final", "<|message|>"}, {"<|channel|>", "commentary", "<|message|>"}},
		key: []string{"<|channel|>analysis<|message|>"}},
	{open: []string{"<|think|>"}, close: []string{"<|end|>"}, skip: [][]string{{"<|begin|>", "assistant"}, {"<|content|>"}}, key: []string{"assistant<|think|>"}}, // solar
	{open: []string{"<|open|>", "think", "<|sep|>"}, close: []string{"<|close|>", "think", "<|sep|>"}, skip: [][]string{ // kimi-k3
		{"<|open|>", "response", "<|sep|>"}, {"<|close|>", "response", "<|sep|>"}}, key: []string{"open_tag('think'"}},
	{open: []string{"Here are my reasoning steps:"}, close: []string{"[BEGIN FINAL RESPONSE]"}, key: []string{"Here are my reasoning steps:"}}, // apriel
}

// used reports whether a template, or the vocabulary, says that marks of the family come.
func (f *family) used(source string, token vocabulary) bool {
	keys := f.key
	if keys == nil {
		if id, _ := token(f.open[0]); id >= 0 {
			return true
		}
		keys = []string{f.open[0], f.close[0]}
	}
	return slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(source, k) })
}

// state is where a text is.
type state uint8

const (
	beginning state = iota // nothing but white space so far
	reasoning
	answering
)

// A mark leads to another state. Control tokens in it stand behind a zero byte.
type mark struct {
	text []byte
	from []state
	to   state
}

// Reasoning is how a model reasons aloud under a template.
type Reasoning struct {
	marks    []mark
	controls map[int32][]byte // control tokens that are parts of marks: a zero byte and the text
	opens    []string         // marks that begin reasoning, as a prompt ends with them
}

// Reasoning is how the model may reason under t; nil if neither the template nor the vocabulary knows a way.
func (m *Model) Reasoning(t *template.Template) *Reasoning {
	return newReasoning(t.Source(), func(text string) (int32, bool) {
		id, ok := m.Tok.TokenID(text)
		if !ok {
			return -1, false
		}
		return id, m.Tok.IsControl(id)
	})
}

// vocabulary is the id of the token of a text, -1 if there is none, and whether it is a control token.
type vocabulary func(text string) (id int32, control bool)

func newReasoning(source string, token vocabulary) *Reasoning {
	r := &Reasoning{controls: map[int32][]byte{}}
	for i := range families {
		f := &families[i]
		if !f.used(source, token) {
			continue
		}
		open, control := r.compile(token, f.open)
		from := []state{beginning}
		if control { // it is no text that an answer could quote
			from = append(from, answering)
		}
		shut, _ := r.compile(token, f.close)
		r.marks = append(r.marks, mark{open, from, reasoning}, mark{shut, []state{reasoning}, answering})
		for _, s := range f.skip {
			text, _ := r.compile(token, s)
			r.marks = append(r.marks, mark{text, []state{beginning, reasoning, answering}, answering})
		}
		r.opens = append(r.opens, strings.Join(f.open, ""))
	}
	if len(r.marks) == 0 {
		return nil
	}
	return r
}

// compile is a mark as the splitter meets it, and whether it begins with a control token.
func (r *Reasoning) compile(token vocabulary, pieces []string) (text []byte, control bool) {
	for i, p := range pieces {
		if id, is := token(p); is {
			r.controls[id] = append([]byte{0}, p...)
			text = append(text, 0)
			control = control || i == 0
		}
		text = append(text, p...)
	}
	return text, control
}

// Inside reports whether what follows a prompt is reasoning already: the template has opened it.
func (r *Reasoning) Inside(prompt string) bool {
	if r == nil {
		return false
	}
	prompt = strings.TrimRight(prompt, white)
	return slices.ContainsFunc(r.opens, func(s string) bool { return strings.HasSuffix(prompt, s) })
}

const white = " \t\r\n"

// switches are variables with which templates are asked not to reason, and the values that ask for it: the first that changes the prompt is
// taken. Sources: the model cards of qwen3, deepseek-v3.1, minimax-m3, ling-3.0, mistral-small-4, solar-open.
var switches = []struct {
	name    string
	off, on value.Value
	literal string // the template must name this value: it writes others out as they come
	less    bool   // the model reasons less, and still does
}{
	{name: "enable_thinking", off: false, on: true},
	{name: "thinking", off: false, on: true},
	{name: "thinking_mode", off: "disabled", on: "enabled"},
	{name: "thinking_option", off: "off", on: "on"},
	{name: "reasoning_effort", off: "none", on: "high", literal: "none"},
	{name: "reasoning_effort", off: "minimal", on: "high", literal: "minimal"},
	{name: "reasoning_effort", off: "low", on: "high", less: true},
	{name: "reasoning_strength", off: "low", on: "high", less: true},
}

// WithoutReasoning returns the variable with which t asks the model not to reason, by trying which one changes a prompt; nil if the template
// has none. off is false if the model can only be asked to reason less.
func (m *Model) WithoutReasoning(t *template.Template) (vars template.Vars, off bool) {
	render := func(name string, v value.Value) (string, bool) {
		r, err := m.Render(t, []Message{{Role: "user", Content: "Hello"}}, RenderOptions{Vars: template.Vars{name: v}, Now: time.Unix(0, 0)})
		return r.Text, err == nil
	}
	for _, s := range switches {
		if s.literal != "" && !strings.Contains(t.Source(), `"`+s.literal+`"`) && !strings.Contains(t.Source(), "'"+s.literal+"'") {
			continue
		}
		off, ok := render(s.name, s.off)
		on, okOn := render(s.name, s.on)
		if ok && okOn && off != on {
			return template.Vars{s.name: s.off}, !s.less
		}
	}
	return nil, false
}

// splitter divides what a model writes into reasoning and answer as it comes. White space around the reasoning goes with the marks. What
// may be the beginning of a mark waits.
type splitter struct {
	r     *Reasoning
	state state
	trim  bool   // white space at the beginning of what comes is dropped
	wait  []byte // what was not decided yet
	think []byte // all reasoning so far
}

func newSplitter(r *Reasoning, inside bool) *splitter {
	s := &splitter{r: r, wait: make([]byte, 0, 256)}
	if inside {
		s.state, s.trim = reasoning, true
	}
	return s
}

// feed takes the next bytes and appends those of the answer that are certain to text.
func (s *splitter) feed(text, b []byte) []byte {
	s.wait = append(s.wait, b...)
	for i := 0; i < len(s.wait); {
		rest := s.wait[i:]
		mk, may := s.find(rest)
		switch {
		case mk != nil:
			text = s.put(text, s.wait[:i], true)
			s.drop(i + len(mk.text))
			s.state, s.trim, i = mk.to, true, 0
		case may:
			if s.state == beginning {
				return text
			}
			text = s.put(text, s.wait[:i], false)
			return text
		case rest[0] == 0 && s.control(rest) > 0: // a control token that is no mark: no text
			n := s.control(rest)
			s.wait = slices.Delete(s.wait, i, i+n)
		default:
			if s.state == beginning && bytes.IndexByte([]byte(white), rest[0]) < 0 {
				s.state = answering
			}
			i++
		}
	}
	if s.state != beginning {
		text = s.put(text, s.wait, false)
	}
	return text
}

// find is the mark that begins rest, and whether rest may become one.
func (s *splitter) find(rest []byte) (found *mark, may bool) {
	for i := range s.r.marks {
		m := &s.r.marks[i]
		switch {
		case !slices.Contains(m.from, s.state):
		case bytes.HasPrefix(rest, m.text):
			return m, false
		case bytes.HasPrefix(m.text, rest):
			may = true
		}
	}
	return nil, may
}

// control is the length of the control token at the beginning of rest, 0 if there is none.
func (s *splitter) control(rest []byte) int {
	for _, c := range s.r.controls {
		if bytes.HasPrefix(rest, c) {
			return len(c)
		}
	}
	return 0
}

// put gives the beginning of what waits out, which b is. White space at the end of reasoning stays, unless a mark follows: then it goes.
func (s *splitter) put(text, b []byte, marked bool) []byte {
	n := len(b)
	if s.trim {
		b = bytes.TrimLeft(b, white)
		s.trim = len(b) == 0
	}
	switch {
	case s.state == reasoning:
		short := bytes.TrimRight(b, white)
		n -= len(b) - len(short)
		s.think = append(s.think, short...)
	case s.state == beginning && marked: // white space before the first mark
	default:
		text = append(text, b...)
	}
	if !marked {
		s.drop(n)
	}
	return text
}

// drop forgets the first n bytes of what waits.
func (s *splitter) drop(n int) { s.wait = append(s.wait[:0], s.wait[n:]...) }

// flush gives out what waits, at the end.
func (s *splitter) flush(text []byte) []byte {
	if s.state == reasoning {
		s.put(nil, s.wait, true)
		return text
	}
	b := s.wait
	if s.trim {
		b = bytes.TrimLeft(b, white)
	}
	for len(b) > 0 {
		if n := s.control(b); n > 0 {
			b = b[n:]
			continue
		}
		text, b = append(text, b[0]), b[1:]
	}
	return text
}
