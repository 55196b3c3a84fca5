package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"ck/internal/cli"
	"ck/internal/generate"
)

// commands of a chat, in the order of /help.
var commands = []struct {
	name, args, text string
	run              func(*talk, string) error
}{
	{"/help", "", "this list", nil},
	{"/reset", "", "forget the conversation; the system message stays", (*talk).reset},
	{"/undo", "", "take the last turn and its answer back", (*talk).undo},
	{"/system", "[TEXT]", "show or set the system message", (*talk).system},
	{"/save", "FILE", "write the conversation as JSON (--force FILE overwrites)", (*talk).save},
	{"/load", "FILE", "go on with a saved conversation", (*talk).load},
	{"/set", "[KEY [VALUE]]", "show or change a setting, such as temp, seed, stop, think", (*talk).set},
	{"/stat", "", "speed and memory of the last answer", (*talk).stat},
	{"/quit", "", "end, as Ctrl-D does", func(*talk, string) error { return io.EOF }},
}

const chatHelp = `A line that ends with \ goes on in the next one; in a message that comes back with Up, ⏎ is the end of a line. // at its beginning stands for a / that is no command.
Keys are those of a shell: Ctrl-R looks for an older message, Alt-Enter begins a new line, Ctrl-Y brings back what Ctrl-C or Ctrl-K took.
Ctrl-C stops an answer or drops what is typed; in an empty line it ends the chat, as Ctrl-D does.
`

// terminal chats on a terminal until Ctrl-D.
func (c *talk) terminal(ctx context.Context) error {
	ed := newEditor(c.p)
	if !c.p.app.Common.Quiet {
		fmt.Fprintf(ed.Out, "%s. /help lists commands, Ctrl-D ends.\n", cli.Escape(c.m.Name))
	}
	if c.first != "" {
		fmt.Fprintf(ed.Out, "> %s\n", cli.Printable([]byte(c.first)))
		ed.Keep(c.first)
		if err := c.say(ctx, c.first); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		text, err := c.message(ctx, ed)
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
func (c *talk) said(ctx context.Context, text string) error {
	if err := checkUTF8("message", text); err != nil {
		return c.mend(err)
	}
	switch {
	case strings.TrimSpace(text) == "":
		return nil
	case strings.HasPrefix(text, "//"):
		text = text[1:]
	case strings.HasPrefix(text, "/"):
		return c.mend(c.command(text))
	}
	return c.say(ctx, text)
}

// say answers a turn of the user.
func (c *talk) say(ctx context.Context, text string) error {
	ctx, done := c.p.app.Interruptible(ctx)
	defer done()
	w := &output{p: c.p, text: true}
	res, err := c.answer(ctx, text, w.event)
	if w.last != 0 && w.last != '\n' {
		if err := c.p.newline(); err != nil {
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
		if !c.flags.Changed("predict") && res.NewTokens < c.p.o.predict {
			c.hint("stopped after %s to leave room in the context of %d; /undo or /reset makes more, as does -c", fmtTokens(res.NewTokens), c.context)
		} else {
			c.hint("stopped after %s; /set predict N allows more", fmtTokens(res.NewTokens))
		}
	case generate.FinishContext:
		c.hint("the context of %d tokens is full; /undo or /reset makes room, -c has more", c.context)
	}
	return nil
}

func (c *talk) hint(format string, a ...any) {
	if !c.p.app.Common.Quiet {
		text := "[" + cli.Escape(fmt.Sprintf(format, a...)) + "]"
		fmt.Fprintln(c.p.app.Err, strings.Join(cli.Wrap(text, c.width()), "\n"))
	}
}

// mend shows an error and lets the chat go on, unless the program cannot.
func (c *talk) mend(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var long *generate.TooLongError
	if errors.As(err, &long) {
		c.hint("the conversation has %s, the context %d, and an answer needs room; /undo or /reset makes it, -c has more", long.Count(), long.Context)
		return nil
	}
	if code := c.p.app.Code(err); code == cli.ExitInternal || code == cli.ExitPipe || code == cli.ExitResource && !isCommandError(err) {
		return err
	}
	c.p.app.Report(err)
	return nil
}

// commandError is an error of a chat command, which never ends the chat.
type commandError struct{ error }

func (e commandError) Unwrap() error { return e.error }

func isCommandError(err error) bool {
	var ce commandError
	return errors.As(err, &ce)
}

// command runs a /command.
func (c *talk) command(line string) error {
	name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
	if name == "/help" {
		return c.help()
	}
	for _, cmd := range commands {
		if cmd.name == name {
			err := cmd.run(c, strings.TrimSpace(args))
			if err == nil || errors.Is(err, io.EOF) {
				return err
			}
			return commandError{err}
		}
	}
	return cli.Usage("%s: no such command; /help lists them, // at the beginning sends the line as it is", name)
}

func (c *talk) help() error {
	for _, cmd := range commands {
		fmt.Fprint(c.p.app.Err, cli.Columns(strings.TrimSpace(cmd.name+" "+cmd.args), cmd.text, 21, c.width()))
	}
	for line := range strings.Lines(chatHelp) {
		fmt.Fprintln(c.p.app.Err, strings.Join(cli.Wrap(strings.TrimSuffix(line, "\n"), c.width()), "\n"))
	}
	return nil
}

// width is that of texts for people: the terminal's, at most 80 columns.
func (c *talk) width() int {
	if w, _, err := term.GetSize(int(c.p.app.Err.Fd())); err == nil && w > 0 {
		return min(w, 80)
	}
	return 80
}

func (c *talk) reset(string) error { c.s.Reset(); return nil }

func (c *talk) undo(string) error {
	if !c.s.Undo() {
		c.hint("there is nothing to take back")
		return nil
	}
	c.hint("taken back; %d messages are left", len(c.s.Messages))
	return nil
}

func (c *talk) system(text string) error {
	if text != "" {
		c.s.System = text
	} else if c.s.System == "" {
		c.hint("there is no system message")
	} else {
		fmt.Fprintln(c.p.app.Err, string(cli.Printable([]byte(c.s.System))))
	}
	return nil
}

func (c *talk) save(path string) error {
	path, force := strings.CutPrefix(path, "--force ")
	if path = strings.TrimSpace(path); path == "" {
		return cli.Usage("/save: name a file")
	}
	f, err := c.p.app.Create(path, force)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := c.s.Save(f); err != nil {
		return err
	}
	return f.Commit()
}

func (c *talk) load(path string) error {
	if path == "" {
		return cli.Usage("/load: name a file")
	}
	ctx, done := c.p.app.Interruptible(c.ctx) // it may be a FIFO
	defer done()
	f, err := cli.OpenReader(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.s.Load(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	c.hint("%d messages", len(c.s.Messages))
	return nil
}

func (c *talk) stat(string) error {
	if c.turn == 0 {
		c.hint("there was no answer yet")
		return nil
	}
	c.p.printStat(c.e, c.last, 0, true)
	return nil
}
