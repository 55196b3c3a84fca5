package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/output"
	"ck/internal/plaintext"
	"ck/internal/prompt"
)

// terminal chats on a terminal until Ctrl-D.
func (c *Chat) terminal(ctx context.Context) error {
	ed := newEditor(c.App, c.History)
	if !c.App.Common.Quiet {
		fmt.Fprintf(ed.Out, "%s. /help lists commands, Ctrl-D ends.\n", plaintext.Escape(c.Model.Name))
	}
	if c.First != "" {
		fmt.Fprintf(ed.Out, "> %s\n", plaintext.Printable([]byte(c.First)))
		ed.Keep(c.First)
		if err := c.say(ctx, c.First); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		stop := c.waiting(ctx)
		text, err := c.message(ctx, ed)
		stop()
		if err == nil {
			err = c.said(ctx, text)
		}
		if errors.Is(err, io.EOF) { // Ctrl-D, /quit
			return nil
		}
		if err != nil {
			return err
		}
	}
	return cli.Interrupted()
}

// said handles a line of the user. Errors that the user can mend are shown, and the chat goes on.
func (c *Chat) said(ctx context.Context, text string) error {
	if err := prompt.CheckUTF8("message", text); err != nil {
		return c.mend(err)
	}
	switch {
	case strings.TrimSpace(text) == "":
		return nil
	case strings.HasPrefix(text, "//"):
		text = text[1:]
	case strings.HasPrefix(text, "/"):
		return c.mend(c.command(ctx, text))
	}
	return c.say(ctx, text)
}

// say answers a turn of the user.
func (c *Chat) say(ctx context.Context, text string) error {
	ctx, done := c.App.Interruptible(ctx)
	defer done()
	w := &output.Text{Out: c.App.Out, Hide: c.Settings.Think == ThinkHide}
	res, err := c.answer(ctx, text, w.Event)
	if w.LineOpen() {
		if err := output.Newline(c.App.Out); err != nil {
			return err
		}
	}
	if err != nil {
		return c.mend(err)
	}
	switch res.Finish {
	case generate.FinishInterrupt:
		c.hint("stopped")
	case generate.FinishLength:
		if !c.Flags.Changed("predict") && res.NewTokens < c.Settings.Predict {
			c.hint("stopped after %s to leave room in the context of %d; /undo or /reset makes more, as does -c", output.Tokens(res.NewTokens), c.Context)
		} else {
			c.hint("stopped after %s; /set predict N allows more", output.Tokens(res.NewTokens))
		}
	case generate.FinishContext:
		c.hint("the context of %d tokens is full; /undo or /reset makes room, -c has more", c.Context)
	}
	return nil
}

func (c *Chat) hint(format string, a ...any) {
	if !c.App.Common.Quiet {
		text := "[" + plaintext.Escape(fmt.Sprintf(format, a...)) + "]"
		fmt.Fprintln(c.App.Err, strings.Join(plaintext.Wrap(text, c.width()), "\n"))
	}
}

// mend shows an error and lets the chat go on, unless the program cannot.
func (c *Chat) mend(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var long *generate.TooLongError
	if errors.As(err, &long) {
		c.hint("the conversation has %s, the context %d, and an answer needs room; /undo or /reset makes it, -c has more", long.Count(), long.Context)
		return nil
	}
	if code := c.App.Code(err); code == cli.ExitInternal || code == cli.ExitPipe || code == cli.ExitResource && !isCommandError(err) {
		return err
	}
	c.App.Report(err)
	return nil
}

// width is that of texts for people: the terminal's, at most 80 columns.
func (c *Chat) width() int {
	if w, _, err := term.GetSize(int(c.App.Err.Fd())); err == nil && w > 0 {
		return min(w, 80)
	}
	return 80
}
