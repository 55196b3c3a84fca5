package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/template"
)

const chatLong = `Talks with a model that has a chat template. On a terminal there are line editing, history and commands; /help lists them. Ctrl-C stops an answer or drops what is typed; in an empty line it ends the chat, as Ctrl-D does.

The keys are those of a shell; Ctrl-R looks for an older message. What is typed is kept for later chats: --history.

WORDS are the first turn.

With piped stdin it reads messages as JSON, {"role": "user", "content": "Hello"} or arrays of them, and answers after each user turn, unless the same array holds the answer.`

// chat is "ckrun chat".
func (p *program) chat(cmd *cobra.Command, words []string) error {
	first := strings.Join(words, " ")
	if err := checkUTF8("prompt", first); err != nil {
		return err
	}
	p.yield(cmd, false)
	if err := p.o.check(p.app); err != nil {
		return err
	}
	m, err := p.openModel()
	if err != nil {
		return err
	}
	defer m.Close()
	return p.chatWith(cmd, m, first)
}

// talk is a running chat.
type talk struct {
	p       *program
	ctx     context.Context // the program's, for commands
	m       *generate.Model
	e       *engine.Engine
	s       *generate.Session
	t       *template.Template
	flags   *pflag.FlagSet // the command's
	first   string         // the first turn, from the command line
	context int
	turn    uint64
	last    generate.Result
}

// chatWith chats; first is the user's first turn, if it is not empty.
func (p *program) chatWith(cmd *cobra.Command, m *generate.Model, first string) error {
	ctx := cmd.Context()
	t, err := p.findTemplate(m)
	if err != nil {
		return err
	}
	limit := p.contextOf(m)
	e, load, err := p.openEngine(m)
	if err != nil {
		return err
	}
	closeEngine := sync.OnceFunc(e.Close)
	defer closeEngine()
	c := &talk{p: p, ctx: ctx, m: m, e: e, s: m.NewSession(e, t), t: t, flags: cmd.Flags(), context: limit, first: first}
	c.s.System, c.s.Render.Encoding = p.o.system, p.o.encoding()
	c.useThink(p.app.Given("think"))
	if cli.IsTerminal(p.app.In) && !p.app.Common.JSON {
		err = c.terminal(ctx)
	} else {
		err = c.lines(ctx, p.app.In)
	}
	if p.o.stat && c.turn > 0 {
		p.printStat(e, c.last, load, true)
		closeEngine()
		p.printRoof(e, c.last)
	}
	return err
}

// useThink does what --think says from the next turn on; given: for this model.
func (c *talk) useThink(given bool) { c.s.Reasoning, c.s.Render.Vars = c.p.reasoning(c.m, c.t, given) }

// options are those of the next answer. Each turn has a random sequence of its own.
func (c *talk) options() generate.Options {
	o := &c.p.o
	opt := generate.Options{MaxNew: o.predict, LeaveRoom: !c.flags.Changed("predict"), Context: c.context, Stop: o.stop, IgnoreEOG: o.ignoreEOS, Sample: o.sample}
	opt.Sample.Stream = c.turn
	c.turn++
	return opt
}

// answer generates the answer to what was said so far and to text, a turn of the user, unless it is empty. emit shows it.
func (c *talk) answer(ctx context.Context, text string, emit func(generate.Event) error) (generate.Result, error) {
	opt := c.options()
	opt.Progress = c.p.promptProgress
	var res generate.Result
	var err error
	if text != "" {
		res, err = c.s.Ask(ctx, text, opt, emit)
	} else {
		res, err = c.s.Answer(ctx, opt, emit)
	}
	if err == nil {
		c.p.warnLost(c.m)
		c.last = res
	}
	return res, err
}

// lines reads messages as JSON and answers each user turn.
func (c *talk) lines(ctx context.Context, in *os.File) error {
	if c.first != "" {
		if err := c.take(ctx, []generate.Message{{Role: "user", Content: c.first}}); err != nil {
			return err
		}
	}
	dec := json.NewDecoder(&bounded{r: cli.Reader(ctx, in)})
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		switch {
		case errors.Is(err, io.EOF):
			if c.turn == 0 && len(c.s.Messages) == 0 {
				return cli.Usage(`chat: stdin has no messages; pipe lines such as {"role": "user", "content": "Hello"}`)
			}
			return nil
		case errors.Is(err, cli.ErrInterrupt):
			return cli.Interrupted()
		case err != nil:
			return cli.Input("stdin: byte %d: no JSON: %s; give lines such as {\"role\": \"user\", \"content\": \"Hello\"}", dec.InputOffset(), jsonWhy(err))
		}
		if at := invalidUTF8(string(raw)); at >= 0 {
			return notUTF8("stdin", dec.InputOffset()-int64(len(raw)-at), raw[at])
		}
		messages, err := parseMessages(raw)
		if err != nil {
			return cli.Input("stdin: message that ends at byte %d: %w", dec.InputOffset(), err)
		}
		if err := c.take(ctx, messages); err != nil {
			return err
		}
	}
}

// bounded is a reader that refuses more than maxText bytes.
type bounded struct {
	r io.Reader
	n int64
}

func (r *bounded) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if r.n += int64(n); r.n > maxText {
		return 0, fmt.Errorf("more than %d MiB", maxText>>20)
	}
	return n, err
}

func jsonWhy(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends in the middle of a value"
	}
	return err.Error()
}

// parseMessages reads one message or an array of them.
func parseMessages(raw json.RawMessage) ([]generate.Message, error) {
	type message struct {
		Role    *string `json:"role"`
		Content *string `json:"content"`

		Reasoning string `json:"reasoning"`
	}
	var list []message
	if strings.HasPrefix(strings.TrimSpace(string(raw)), "[") {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, errors.New("role and content must be texts")
		}
	} else {
		var one message
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, errors.New("is neither a message {role, content} with two texts nor an array of them")
		}
		list = append(list, one)
	}
	out := make([]generate.Message, len(list))
	for i, m := range list {
		if m.Role == nil || *m.Role == "" || m.Content == nil {
			return nil, errors.New("a message needs role and content")
		}
		out[i] = generate.Message{Role: *m.Role, Content: *m.Content, Reasoning: m.Reasoning}
	}
	return out, nil
}

// take adds messages to the conversation and answers user turns that are not followed by their answer.
func (c *talk) take(ctx context.Context, messages []generate.Message) error {
	for i, msg := range messages {
		if msg.Role == "system" && len(c.s.Messages) == 0 {
			c.s.System = msg.Content
			continue
		}
		c.s.Messages = append(c.s.Messages, msg)
		if msg.Role != "user" || i+1 < len(messages) && messages[i+1].Role != "user" {
			continue
		}
		if err := c.answerLine(ctx); err != nil {
			return err
		}
	}
	return nil
}

// answerLine prints the answer to a piped message: its text and a newline, or one JSON object.
func (c *talk) answerLine(ctx context.Context) error {
	w := &output{p: c.p, text: true}
	show := w.event
	if c.p.app.Common.JSON {
		show = nil
	}
	res, err := c.answer(ctx, "", show)
	if long := (*generate.TooLongError)(nil); errors.As(err, &long) {
		return cli.Input("the conversation has %s, the context %d, and an answer needs room; raise -c or send fewer messages", long.Count(), long.Context)
	}
	if err != nil {
		return err
	}
	if c.p.app.Common.JSON {
		c.p.warnEnd(res, c.context)
		err = c.p.app.PrintJSON(struct {
			Schema       string          `json:"schema"`
			Role         string          `json:"role"`
			Content      string          `json:"content"`
			Reasoning    string          `json:"reasoning,omitempty"`
			Finish       generate.Finish `json:"finish"`
			PromptTokens int             `json:"prompt_tokens"`
			NewTokens    int             `json:"new_tokens"`
			Seed         uint64          `json:"seed"`
			Warnings     []string        `json:"warnings"`
		}{"ckrun.chat/1", "assistant", validUTF8([]byte(res.Text)), c.p.reasoned([]byte(res.Reasoning)), res.Finish, res.PromptTokens, res.NewTokens, res.Seed, c.p.app.Warnings()})
	} else {
		if w.last != '\n' {
			err = c.p.newline()
		}
		c.p.warnEnd(res, c.context)
	}
	if err == nil && res.Finish == generate.FinishInterrupt {
		return cli.Interrupted()
	}
	return err
}
