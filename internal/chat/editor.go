package chat

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"ck/internal/cli"
	"ck/internal/lineedit"
)

// newEditor is what messages are typed with; history is as Chat.History. The terminal is raw only meanwhile, so that Ctrl-C is a signal while an answer comes.
func newEditor(app *cli.App, history string) *lineedit.Terminal {
	ed := &lineedit.Terminal{
		Editor: lineedit.Editor{Prompt: "> ", More: "… ", Complete: completeCommand},
		In:     app.In,
		Out:    app.Out,
		Reader: func(ctx context.Context, f *os.File) io.Reader { return cli.Reader(ctx, f) },
	}
	if !cli.IsTerminal(app.Out) {
		ed.Out = app.Err // answers go to a file or pipe; typing stays visible
	}
	app.OnExit(ed.Restore)
	if history == "none" {
		return ed
	}
	trouble := func(err error) { app.Info("the chat's history is not kept: %v", err) }
	path, err := historyPath(history)
	if err != nil {
		trouble(err)
		return ed
	}
	ed.File = &lineedit.History{Path: path, Trouble: trouble}
	ed.Past = ed.File.Load()
	return ed
}

// historyPath is the file of --history, else ck/history among the user's files of state. XDG Base Directory Specification 0.8: a variable
// with a relative path counts as not set.
func historyPath(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", errors.New("neither XDG_STATE_HOME nor HOME is set; set one, or name a file with --history")
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "ck", "history"), nil
}

// completeCommand lists the commands that begin with what stands before the cursor.
func completeCommand(before string) []string {
	var list []string
	for _, c := range commands {
		if before != "" && strings.HasPrefix(c.name, before) {
			list = append(list, c.name+" ")
		}
	}
	return list
}

// message reads the next one. SIGINT drops what was typed so far, and ends the chat in an empty line; SIGTERM and SIGHUP end it.
func (c *Chat) message(ctx context.Context, ed *lineedit.Terminal) (string, error) {
	for {
		idle, done := c.App.Interruptible(ctx)
		text, err := ed.Line(idle)
		done()
		switch {
		case errors.Is(err, lineedit.ErrDropped) && ctx.Err() == nil:
			continue
		case errors.Is(err, lineedit.ErrDropped), errors.Is(err, lineedit.ErrInterrupt), errors.Is(err, cli.ErrInterrupt):
			err = cli.Interrupted()
		}
		return text, err
	}
}
