package generate

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"ck/internal/template"
	"ck/internal/tokenizer"
)

// Message is a turn of a conversation.
type Message struct {
	Role    string `json:"role"` // system, user, assistant, or what else the template knows
	Content string `json:"content"`
}

// Encoding says how text becomes the ids of a prompt.
type Encoding struct {
	NoBOS   bool // no token of a text's beginning, whatever file and template say
	Special bool // the text of special tokens in the user's text becomes these tokens
}

// EncodePrompt returns the ids of a plain text, with BOS and EOS as the file says. A text that begins with BOS itself, with
// enc.Special, gets no second one.
func (m *Model) EncodePrompt(text string, enc Encoding) []int32 {
	opt := tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: enc.Special}
	ids := m.Tok.Encode(nil, text, opt)
	if bos, ok := m.Tok.BOS(); ok && m.Tok.AddBOS() && ids[0] == bos && (enc.NoBOS || len(ids) > 1 && ids[1] == bos) {
		ids = ids[1:]
	}
	return ids
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
}

// roles are the words for roles that templates may build the names of control tokens from, as in '<|' + role + '|>'. Any other role is
// a text from outside, as what a message says is.
var roles = []string{"system", "developer", "user", "assistant", "model", "tool", "function", "ipython", "environment"}

// Render renders a conversation with a template. Control tokens are cut only where the template itself wrote all of their text: what
// messages say stays text, whatever the template makes of it, unless opt.Special. Errors are *InputError around the template's.
func (m *Model) Render(t *template.Template, messages []Message, opt RenderOptions) (Rendering, error) {
	text := func(s string) template.Value {
		if opt.Special {
			return s
		}
		return template.Untrusted(s)
	}
	list := make([]template.Value, len(messages))
	for i, msg := range messages {
		role := text(msg.Role)
		if slices.Contains(roles, msg.Role) {
			role = msg.Role
		}
		list[i] = template.NewDict().Set("role", role).Set("content", text(msg.Content))
	}
	bos := m.bos
	if opt.NoBOS {
		bos = ""
	}
	rendered, err := t.RenderParts(template.Vars{
		"messages":              template.NewList(list...),
		"bos_token":             bos,
		"eos_token":             m.eos,
		"add_generation_prompt": !opt.Continue,
		"tools":                 nil,
		"documents":             nil,
	}, template.Options{Now: opt.Now})
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
	r.IDs = m.Tok.EncodeParts(nil, parts, tokenizer.EncodeOptions{})
	// The template may have written BOS; else it is added where the file asks for it.
	if id, ok := m.Tok.BOS(); ok && m.Tok.AddBOS() && !opt.NoBOS && (len(r.IDs) == 0 || r.IDs[0] != id) {
		r.IDs = slices.Insert(r.IDs, 0, id)
	}
	return r, nil
}

// RenderPrompt renders one user turn, after a system message if there is one.
func (m *Model) RenderPrompt(t *template.Template, system, prompt string, opt RenderOptions) (Rendering, error) {
	return m.Render(t, conversation(system, Message{"user", prompt}), opt)
}

func conversation(system string, turns ...Message) []Message {
	if system == "" {
		return turns
	}
	return append([]Message{{"system", system}}, turns...)
}

// Session is a conversation with a model. The state of what was evaluated stays in the engine, and a turn evaluates only what is new.
type Session struct {
	Messages []Message // without the system message
	System   string
	Render   RenderOptions

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
	s.Messages = append(s.Messages, Message{"user", text})
	res, err := s.Answer(ctx, o, emit)
	if len(s.Messages) == n+1 {
		s.Messages = s.Messages[:n]
	}
	return res, err
}

// Answer generates an answer to the conversation and adds it as the assistant's turn, also the beginning of one that was interrupted
// or broke off with an error, if there is any. Prompt, Seq, Reuse and StartOfText of o are set here.
func (s *Session) Answer(ctx context.Context, o Options, emit func(Event) error) (Result, error) {
	r, err := s.Prompt()
	if err != nil {
		return Result{}, err
	}
	o.Prompt, o.Seq, o.StartOfText = r.IDs, s.seq, s.m.StartsText(r.IDs)
	o.Reuse = commonPrefix(s.held, r.IDs)
	res, err := s.m.Generate(ctx, s.e, o, emit)
	s.held = append(append(s.held[:0], r.IDs...), res.IDs...)
	s.held = s.held[:min(len(s.held), s.e.Len(s.seq))]
	if res.Text != "" || err == nil && res.Finish != FinishInterrupt && o.MaxNew != 0 {
		s.Messages = append(s.Messages, Message{"assistant", res.Text})
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
