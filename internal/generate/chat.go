package generate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"ck/internal/template"
	"ck/internal/template/value"
	"ck/internal/tokenizer"
)

// Message is a turn of a conversation.
type Message struct {
	Role    string `json:"role"` // system, user, assistant, or what else the template knows
	Content string `json:"content"`

	// Reasoning is what the model reasoned before it answered; templates leave that of past turns out, or do not.
	Reasoning string `json:"reasoning,omitempty"`
}

// Encoding says how text becomes the ids of a prompt.
type Encoding struct {
	NoBOS   bool // no token of a text's beginning, whatever file and template say
	Special bool // the text of special tokens in the user's text becomes these tokens
	Max     int  // ids; a text that is certain to have more is refused before it is encoded. 0: no limit
}

// EncodePrompt returns the ids of a plain text, with BOS and EOS as the file says. A text that begins with BOS itself, with
// enc.Special, gets no second one. Errors are *InputError: see encode.
func (m *Model) EncodePrompt(text string, enc Encoding) ([]int32, error) {
	opt := tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: enc.Special}
	ids, err := m.encode([]tokenizer.Part{{Text: text, Special: enc.Special}}, text, enc, opt)
	if err != nil {
		return nil, err
	}
	if bos, ok := m.Tok.BOS(); ok && m.Tok.AddBOS() && ids[0] == bos && (enc.NoBOS || len(ids) > 1 && ids[1] == bos) {
		ids = ids[1:]
	}
	return ids, nil
}

// encode returns the ids of parts, which text joins. It is an error (an *InputError) if they are certain to be more than enc.Max, around
// a *TooLongError, and if nothing is left of the text because the vocabulary lacks its bytes.
func (m *Model) encode(parts []tokenizer.Part, text string, enc Encoding, opt tokenizer.EncodeOptions) ([]int32, error) {
	if n := m.Tok.AtLeast(text); enc.Max > 0 && n > enc.Max {
		return nil, &InputError{&TooLongError{Tokens: n, Context: enc.Max, AtLeast: true}}
	}
	ids := m.Tok.EncodeParts(nil, parts, opt)
	if frame := m.Tok.EncodeParts(nil, nil, opt); text != "" && len(ids) == len(frame) {
		if lost := m.Tok.Lost(); len(lost) > 0 {
			return nil, inputf("%s: the vocabulary has no token for %s: nothing is left of the text; take another model file", cmp.Or(m.Path, m.Name), bytesText(lost))
		}
	}
	return ids, nil
}

// LostText says once, for a warning, which bytes of the texts so far were dropped; "" if there is nothing to say.
func (m *Model) LostText() string {
	lost := m.Tok.Lost()
	if len(lost) == 0 || m.saidLost {
		return ""
	}
	m.saidLost = true
	return "the vocabulary has no token for " + bytesText(lost) + ": what the text has of them is dropped"
}

// bytesText lists bytes, not too many.
func bytesText(list []byte) string {
	const most = 8
	words := make([]string, 0, most)
	for _, b := range list[:min(most, len(list))] {
		words = append(words, fmt.Sprintf("0x%02x", b))
	}
	s := "byte " + strings.Join(words, ", ")
	if len(list) > 1 {
		s = "bytes " + strings.Join(words, ", ")
	}
	if len(list) > most {
		s += fmt.Sprintf(" and %d more", len(list)-most)
	}
	return s
}

// StartsText reports whether what follows ids begins a text: there is nothing but control tokens.
func (m *Model) StartsText(ids []int32) bool {
	return !slices.ContainsFunc(ids, func(id int32) bool { return !m.Tok.IsControl(id) })
}

// Rendering is a conversation as the model sees it.
type Rendering struct {
	Text string // with the names of special tokens
	IDs  []int32
}

// RenderOptions are the settings of a rendering.
type RenderOptions struct {
	Encoding
	Continue bool      // without the header of an answer: the last message is not answered
	Now      time.Time // for templates that write the date; zero: the present
	Vars     template.Vars
}

// roles are the words for roles that templates may build the names of control tokens from, as in '<|' + role + '|>'. Any other role is
// a text from outside, as what a message says is.
var roles = []string{"system", "developer", "user", "assistant", "model", "tool", "function", "ipython", "environment"}

// Render renders a conversation with a template. Control tokens are cut only where the template itself wrote all of their text: what
// messages say stays text, whatever the template makes of it, unless opt.Special. Errors are *InputError around the template's.
func (m *Model) Render(t *template.Template, messages []Message, opt RenderOptions) (Rendering, error) {
	text := func(s string) value.Value {
		if opt.Special {
			return s
		}
		return value.Untrusted(s)
	}
	list := make([]value.Value, len(messages))
	for i, msg := range messages {
		role := text(msg.Role)
		if slices.Contains(roles, msg.Role) {
			role = msg.Role
		}
		d := value.NewDict().Set("role", role).Set("content", text(msg.Content))
		if msg.Reasoning != "" {
			for _, name := range reasoningNames {
				d.Set(name, text(msg.Reasoning))
			}
		}
		list[i] = d
	}
	bos := m.bos
	if opt.NoBOS {
		bos = ""
	}
	vars := template.Vars{
		"messages":              value.NewList(list...),
		"bos_token":             bos,
		"eos_token":             m.eos,
		"add_generation_prompt": !opt.Continue,
		"tools":                 nil,
		"documents":             nil,
	}
	maps.Copy(vars, opt.Vars)
	rendered, err := t.RenderParts(vars, template.Options{Now: opt.Now})
	if err != nil {
		return Rendering{}, &InputError{err}
	}
	parts := make([]tokenizer.Part, len(rendered))
	var whole strings.Builder
	for i, p := range rendered {
		parts[i] = tokenizer.Part{Text: p.Text, Special: p.Own}
		whole.WriteString(p.Text)
	}
	r := Rendering{Text: whole.String()}
	if r.IDs, err = m.encode(parts, r.Text, opt.Encoding, tokenizer.EncodeOptions{}); err != nil {
		return Rendering{}, err
	}
	// The template may have written BOS; else it is added where the file asks for it.
	if id, ok := m.Tok.BOS(); ok && m.Tok.AddBOS() && !opt.NoBOS && (len(r.IDs) == 0 || r.IDs[0] != id) {
		r.IDs = slices.Insert(r.IDs, 0, id)
	}
	return r, nil
}

// reasoningNames are what templates call a message's reasoning: most of them, then those of gemma 4 and solar, then that of gpt-oss.
var reasoningNames = []string{"reasoning_content", "reasoning", "thinking"}

// RenderPrompt renders one user turn, after a system message if there is one.
func (m *Model) RenderPrompt(t *template.Template, system, prompt string, opt RenderOptions) (Rendering, error) {
	return m.Render(t, conversation(system, Message{Role: "user", Content: prompt}), opt)
}

func conversation(system string, turns ...Message) []Message {
	if system == "" {
		return turns
	}
	return append([]Message{{Role: "system", Content: system}}, turns...)
}

// Session is a conversation with a model. The state of what was evaluated stays in the engine, and a turn evaluates only what is new.
type Session struct {
	Messages []Message // without the system message
	System   string
	Render   RenderOptions

	// Reasoning divides answers; nil: they are text alone.
	Reasoning *Reasoning

	m    *Model
	e    Engine
	tmpl *template.Template
	seq  int
	held []int32 // ids whose state the sequence holds
}

// NewSession begins a conversation; t renders it.
func (m *Model) NewSession(e Engine, t *template.Template) *Session {
	return &Session{m: m, e: e, tmpl: t, seq: e.NewSeq()}
}

// Close gives the state back.
func (s *Session) Close() { s.e.Drop(s.seq) }

// Prompt renders the conversation so far, as an answer would see it.
func (s *Session) Prompt() (Rendering, error) {
	return s.m.Render(s.tmpl, conversation(s.System, s.Messages...), s.Render)
}

// Ask adds a user turn and the model's answer to it; see Answer. If there is no answer the turn is taken back.
func (s *Session) Ask(ctx context.Context, text string, o Options, emit func(Event) error) (Result, error) {
	n := len(s.Messages)
	s.Messages = append(s.Messages, Message{Role: "user", Content: text})
	res, err := s.Answer(ctx, o, emit)
	if len(s.Messages) == n+1 {
		s.Messages = s.Messages[:n]
	}
	return res, err
}

// Answer generates an answer to the conversation and adds it as the assistant's turn, also the beginning of one that was interrupted
// or broke off with an error, if there is any. Prompt, Seq, Reuse, StartOfText, Reasoning and Inside of o are set here.
func (s *Session) Answer(ctx context.Context, o Options, emit func(Event) error) (Result, error) {
	opt := s.Render
	opt.Max = o.Context
	r, err := s.m.Render(s.tmpl, conversation(s.System, s.Messages...), opt)
	if err != nil {
		return Result{}, err
	}
	o.Prompt, o.Seq, o.StartOfText = r.IDs, s.seq, s.m.StartsText(r.IDs)
	o.Reuse = commonPrefix(s.held, r.IDs)
	o.Reasoning, o.Inside = s.Reasoning, s.Reasoning.Inside(r.Text)
	res, err := s.m.Generate(ctx, s.e, o, emit)
	s.held = append(append(s.held[:0], r.IDs...), res.IDs...)
	s.held = s.held[:min(len(s.held), s.e.Len(s.seq))]
	if res.Text != "" || err == nil && res.Finish != FinishInterrupt && o.MaxNew != 0 {
		s.Messages = append(s.Messages, Message{Role: "assistant", Content: res.Text, Reasoning: res.Reasoning})
	}
	return res, err
}

// Undo takes the last user turn and what followed it back; false if there is none. The state is cut when the next turn needs it.
func (s *Session) Undo() bool {
	for i := len(s.Messages) - 1; i >= 0; i-- {
		if s.Messages[i].Role == "user" {
			s.Messages = s.Messages[:i]
			return true
		}
	}
	return false
}

// Reset forgets all turns; the system message stays.
func (s *Session) Reset() { s.Messages = nil }

// saved is a conversation in a file.
type saved struct {
	Schema   string    `json:"schema"`
	Model    string    `json:"model"`
	System   string    `json:"system,omitempty"`
	Messages []Message `json:"messages"`
}

const savedSchema = "ck.chat/1"

// Save writes the conversation as one JSON document.
func (s *Session) Save(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	messages := s.Messages
	if messages == nil {
		messages = []Message{}
	}
	return enc.Encode(saved{savedSchema, s.m.Name, s.System, messages})
}

// Load replaces the conversation by one that Save wrote, or by a JSON array of messages, of which the first may be the system's.
// After an error the conversation is as before.
func (s *Session) Load(r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, maxJSONFile+1))
	if err != nil {
		return err
	}
	if len(b) > maxJSONFile {
		return inputf("conversation has more than %d bytes", maxJSONFile)
	}
	var c saved
	if json.Unmarshal(b, &c.Messages) != nil {
		if err := json.Unmarshal(b, &c); err != nil {
			return inputf("no saved conversation: %w", err)
		}
		if c.Schema != savedSchema {
			return inputf("no saved conversation: schema is %q, expected %q", c.Schema, savedSchema)
		}
	}
	for i, m := range c.Messages {
		if m.Role == "" {
			return inputf("message %d of the conversation has no role", i+1)
		}
	}
	if len(c.Messages) > 0 && c.Messages[0].Role == "system" {
		c.System, c.Messages = c.Messages[0].Content, c.Messages[1:]
	}
	s.System, s.Messages = c.System, c.Messages
	return nil
}

// commonPrefix is the number of ids at the start of a that b begins with too.
func commonPrefix(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
