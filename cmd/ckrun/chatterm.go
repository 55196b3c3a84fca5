package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	{"/stat", "", "speed and memory of the last answer", (*talk).stat},
	{"/quit", "", "end, as Ctrl-D does", func(*talk, string) error { return io.EOF }},
}

const chatHelp = `A line that ends with \ goes on in the next one; in a message that comes back with Up, ⏎ is the end of a line. // at its beginning stands for a / that is no command.
Ctrl-C stops an answer, Ctrl-D ends.
`

// editor reads lines from the terminal with line editing and history. The terminal is raw only while a line is typed, so that Ctrl-C is a
// signal while an answer comes.
type editor struct {
	in    *os.File
	out   *os.File
	t     *term.Terminal
	state *term.State
	past  history
	lines []string // of the message so far, without the one that is typed
}

// history holds the messages for the Up and Down keys, each on one line.
type history struct {
	lines    []string // oldest first
	recalled bool     // one of several lines was shown
}

const (
	historyMax = 100
	historyEnd = "⏎" // of a line within a message
)

// Add does nothing: the terminal knows lines only, and remember gets messages.
func (h *history) Add(string) {}

// Len is part of term.History.
func (h *history) Len() int { return len(h.lines) }

// At is the message i messages ago.
func (h *history) At(i int) string {
	s := h.lines[len(h.lines)-1-i]
	h.recalled = h.recalled || strings.Contains(s, historyEnd)
	return s
}

func (h *history) remember(text string) {
	text = strings.ReplaceAll(text, "\n", historyEnd)
	if strings.TrimSpace(text) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == text {
		return
	}
	h.lines = append(h.lines[max(len(h.lines)-historyMax+1, 0):], text)
}

// keyCancel is what Ctrl-C becomes on its way to term.Terminal, which takes Ctrl-C for the end: a control character that it does not know
// and hands to the callback.
const keyCancel = 0x1c

func newEditor(app *cli.App) *editor {
	e := &editor{in: app.In, out: app.Out}
	if !cli.IsTerminal(app.Out) {
		e.out = app.Err // answers go to a file or pipe; typing stays visible
	}
	e.t = term.NewTerminal(e, "> ")
	e.t.History = &e.past
	e.t.AutoCompleteCallback = e.key
	app.OnExit(e.restore)
	return e
}

// Read reads keys.
func (e *editor) Read(b []byte) (int, error) {
	n, err := e.in.Read(b)
	for i := range n {
		if b[i] == 3 {
			b[i] = keyCancel
		}
	}
	return n, err
}

func (e *editor) Write(b []byte) (int, error) { return e.out.Write(b) }

// key clears the message on Ctrl-C and completes commands on Tab.
func (e *editor) key(line string, pos int, key rune) (string, int, bool) {
	switch {
	case key == keyCancel:
		switch {
		case len(e.lines) > 0:
			e.lines = nil
			e.t.SetPrompt("> ")
			fmt.Fprint(e.t, "[the message is dropped]\n")
		case line == "":
			fmt.Fprint(e.t, "[Ctrl-D ends the chat]\n")
		}
		return "", 0, true
	case key == '\t' && strings.HasPrefix(line, "/"):
		match := ""
		for _, c := range commands {
			if strings.HasPrefix(c.name, line) {
				if match != "" {
					return line, pos, true
				}
				match = c.name
			}
		}
		if match != "" {
			return match + " ", len(match) + 1, true
		}
	}
	return line, pos, key == '\t'
}

func (e *editor) restore() {
	if e.state != nil {
		e.t.SetBracketedPasteMode(false)
		term.Restore(int(e.in.Fd()), e.state)
		e.state = nil
	}
}

// line reads one message, which may have several lines: pasted ones, or lines that end with a backslash. io.EOF is Ctrl-D.
func (e *editor) line() (string, error) {
	if w, h, err := term.GetSize(int(e.out.Fd())); err == nil && w > 0 {
		e.t.SetSize(w, h)
	}
	state, err := term.MakeRaw(int(e.in.Fd()))
	if err != nil {
		return "", err
	}
	e.state = state
	defer e.restore()
	e.t.SetBracketedPasteMode(true)
	e.t.SetPrompt("> ")
	e.past.recalled, e.lines = false, nil
	for {
		s, err := e.t.ReadLine()
		pasted := errors.Is(err, term.ErrPasteIndicator)
		if err != nil && !pasted {
			return "", err
		}
		more, goesOn := strings.CutSuffix(s, `\`)
		if !pasted && !goesOn {
			text := strings.Join(append(e.lines, s), "\n")
			e.past.remember(text)
			if e.past.recalled {
				text = strings.ReplaceAll(text, historyEnd, "\n")
			}
			return text, nil
		}
		if pasted {
			more = s
		}
		e.lines = append(e.lines, more)
		e.t.SetPrompt("… ")
	}
}

// terminal chats on a terminal until Ctrl-D.
func (c *talk) terminal(ctx context.Context) error {
	ed := newEditor(c.p.app)
	if !c.p.app.Common.Quiet {
		fmt.Fprintf(ed.out, "%s. /help lists commands, Ctrl-D ends.\n", cli.Escape(c.m.Name))
	}
	for ctx.Err() == nil {
		text, err := ed.line()
		switch {
		case errors.Is(err, io.EOF):
			_, err := fmt.Fprintln(ed.out)
			return err
		case err != nil:
			return err
		}
		err = c.said(ctx, text)
		if errors.Is(err, io.EOF) {
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
			c.hint("stopped after %s, half of what the context had left; /undo or /reset makes room, -c larger than %d has more", fmtTokens(res.NewTokens), c.context)
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
		fmt.Fprintf(c.p.app.Err, "[%s]\n", cli.Escape(fmt.Sprintf(format, a...)))
	}
}

// mend shows an error and lets the chat go on, unless the program cannot.
func (c *talk) mend(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var long *generate.TooLongError
	if errors.As(err, &long) {
		c.hint("the conversation has %d tokens, the context %d, and an answer needs room; /undo or /reset makes it, -c has more", long.Tokens, long.Context)
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
		fmt.Fprintf(c.p.app.Err, "%-16s %s\n", strings.TrimSpace(cmd.name+" "+cmd.args), cmd.text)
	}
	fmt.Fprint(c.p.app.Err, chatHelp)
	return nil
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
