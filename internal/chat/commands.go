package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"ck/internal/cli"
	"ck/internal/output"
	"ck/internal/plaintext"
)

// commands of a chat, in the order of /help.
var commands = []struct {
	name, args, text string
	run              func(*Chat, context.Context, string) error
}{
	{"/help", "", "this list", nil},
	{"/reset", "", "forget the conversation; the system message stays", (*Chat).reset},
	{"/undo", "", "take the last turn and its answer back", (*Chat).undo},
	{"/system", "[TEXT]", "show or set the system message", (*Chat).system},
	{"/save", "FILE", "write the conversation as JSON (--force FILE overwrites)", (*Chat).save},
	{"/load", "FILE", "go on with a saved conversation", (*Chat).load},
	{"/set", "[KEY [VALUE]]", "show or change a setting, such as temp, seed, stop, think", (*Chat).set},
	{"/stat", "", "speed and memory of the last answer", (*Chat).stat},
	{"/quit", "", "end, as Ctrl-D does", func(*Chat, context.Context, string) error { return io.EOF }},
}

const chatHelp = `A line that ends with \ goes on in the next one; in a message that comes back with Up, ⏎ is the end of a line. // at its beginning stands for a / that is no command.
Keys are those of a shell: Ctrl-R looks for an older message, Alt-Enter begins a new line, Ctrl-Y brings back what Ctrl-C or Ctrl-K took.
Ctrl-C stops an answer or drops what is typed; in an empty line it ends the chat, as Ctrl-D does.
`

// commandError is an error of a chat command, which never ends the chat.
type commandError struct{ error }

func (e commandError) Unwrap() error { return e.error }

func isCommandError(err error) bool {
	var ce commandError
	return errors.As(err, &ce)
}

// command runs a /command.
func (c *Chat) command(ctx context.Context, line string) error {
	name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
	if name == "/help" {
		return c.help()
	}
	for _, cmd := range commands {
		if cmd.name == name {
			err := cmd.run(c, ctx, strings.TrimSpace(args))
			if err == nil || errors.Is(err, io.EOF) {
				return err
			}
			return commandError{err}
		}
	}
	return cli.Usage("%s: no such command; /help lists them, // at the beginning sends the line as it is", name)
}

func (c *Chat) help() error {
	for _, cmd := range commands {
		fmt.Fprint(c.App.Err, cli.Columns(strings.TrimSpace(cmd.name+" "+cmd.args), cmd.text, 21, c.width()))
	}
	for line := range strings.Lines(chatHelp) {
		fmt.Fprintln(c.App.Err, strings.Join(plaintext.Wrap(strings.TrimSuffix(line, "\n"), c.width()), "\n"))
	}
	return nil
}

func (c *Chat) reset(context.Context, string) error { c.s.Reset(); return nil }

func (c *Chat) undo(context.Context, string) error {
	if !c.s.Undo() {
		c.hint("there is nothing to take back")
		return nil
	}
	c.hint("taken back; %d messages are left", len(c.s.Messages))
	return nil
}

func (c *Chat) system(_ context.Context, text string) error {
	if text != "" {
		c.s.System = text
	} else if c.s.System == "" {
		c.hint("there is no system message")
	} else {
		fmt.Fprintln(c.App.Err, string(plaintext.Printable([]byte(c.s.System))))
	}
	return nil
}

func (c *Chat) save(_ context.Context, path string) error {
	path, force := strings.CutPrefix(path, "--force ")
	if path = strings.TrimSpace(path); path == "" {
		return cli.Usage("/save: name a file")
	}
	f, err := c.App.Create(path, force)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := c.s.Save(f); err != nil {
		return err
	}
	return f.Commit()
}

func (c *Chat) load(ctx context.Context, path string) error {
	if path == "" {
		return cli.Usage("/load: name a file")
	}
	ctx, done := c.App.Interruptible(ctx) // it may be a FIFO
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

func (c *Chat) stat(context.Context, string) error {
	if c.turn == 0 {
		c.hint("there was no answer yet")
		return nil
	}
	output.PrintStat(c.App.Err, c.Engine, c.last, 0, true)
	return nil
}
