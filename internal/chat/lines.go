package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/output"
	"ck/internal/prompt"
)

// lines reads messages as JSON and answers each user turn.
func (c *Chat) lines(ctx context.Context, in *os.File) error {
	if c.First != "" {
		if err := c.take(ctx, []generate.Message{{Role: "user", Content: c.First}}); err != nil {
			return err
		}
	}
	dec := json.NewDecoder(&bounded{r: cli.Reader(ctx, in)})
	for {
		var raw json.RawMessage
		stop := c.waiting(ctx)
		err := dec.Decode(&raw)
		stop()
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
		if at := prompt.InvalidUTF8(string(raw)); at >= 0 {
			return prompt.NotUTF8("stdin", dec.InputOffset()-int64(len(raw)-at), raw[at])
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

// bounded is a reader that refuses more than prompt.MaxText bytes.
type bounded struct {
	r io.Reader
	n int64
}

func (r *bounded) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if r.n += int64(n); r.n > prompt.MaxText {
		return 0, fmt.Errorf("more than %d MiB", prompt.MaxText>>20)
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
func (c *Chat) take(ctx context.Context, messages []generate.Message) error {
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
func (c *Chat) answerLine(ctx context.Context) error {
	hide := c.Settings.Think == ThinkHide
	w := &output.Text{Out: c.App.Out, Hide: hide}
	show := w.Event
	if c.App.Common.JSON {
		show = nil
	}
	res, err := c.answer(ctx, "", show)
	if long := (*generate.TooLongError)(nil); errors.As(err, &long) {
		return cli.Input("the conversation has %s, the context %d, and an answer needs room; raise -c or send fewer messages", long.Count(), long.Context)
	}
	if err != nil {
		return err
	}
	if c.App.Common.JSON {
		output.WarnEnd(c.App, res, c.Context) // the object has the warnings
		err = output.PrintAnswer(c.App, res, hide)
	} else {
		if !w.LineEnded() {
			err = output.Newline(c.App.Out)
		}
		output.WarnEnd(c.App, res, c.Context)
	}
	if err == nil && res.Finish == generate.FinishInterrupt {
		return cli.Interrupted()
	}
	return err
}
