package lineedit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Terminal reads messages from a terminal, which is raw only meanwhile.
type Terminal struct {
	Editor
	In, Out *os.File
	// Reader reads In. A Read that waits returns when the context ends.
	Reader func(context.Context, *os.File) io.Reader
	File   *History // keeps what is sent; nil: only Past does

	keys   decoder
	screen screen
	out    bytes.Buffer
	behind []byte // without editing: what came behind the last line

	mu    sync.Mutex
	state *term.State // to go back to; nil where the terminal is as it was
}

// ErrDropped says that the context's end dropped what was typed so far.
var ErrDropped = errors.New("the message was dropped")

// ErrInterrupt is Ctrl-C in an empty line.
var ErrInterrupt = errors.New("interrupted")

const (
	silence      = 100 * time.Millisecond // after which Esc is a key, not the beginning of a sequence
	stopWait     = 100 * time.Millisecond // for the system to stop the process
	pasteOn      = "\x1b[?2004h"
	pasteOff     = "\x1b[?2004l"
	widthDefault = 80
	rowsDefault  = 24
)

// Line reads one message. io.EOF is Ctrl-D in an empty line, ErrInterrupt Ctrl-C there. When ctx ends, the terminal gets what is typed back
// as if it had not been: ErrDropped, or the cause of the end where nothing was typed.
//
// A terminal that cannot move its cursor (TERM=dumb), or does not show what is written to Out, is left to the system's own line editing.
func (t *Terminal) Line(ctx context.Context) (string, error) {
	text, err := t.edit(ctx)
	if err == nil {
		t.Keep(text)
	}
	return text, err
}

// Keep takes a message among the older ones, as if it had been typed.
func (t *Terminal) Keep(text string) {
	if t.Remember(text) && t.File != nil {
		t.File.Append(text)
	}
}

func (t *Terminal) edit(ctx context.Context) (string, error) {
	if name := os.Getenv("TERM"); name == "" || name == "dumb" || !term.IsTerminal(int(t.Out.Fd())) {
		return t.plain(ctx)
	}
	defer t.Restore()
	if err := t.raw(); err != nil {
		return "", err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(signals)
	t.Begin()
	t.screen.forget()
	t.screen.width, t.screen.height = t.size()
	buf := make([]byte, 4096)
	silent := false
	for {
		for event := t.process(silent); event != None; event = t.process(silent) {
			if event != Suspend {
				return t.finish(event)
			}
			t.suspend()
		}
		if !t.keys.pasting || silent { // a large paste is drawn once
			if err := t.draw(false); err != nil {
				return "", err
			}
		}
		n, err := t.read(ctx, buf, signals)
		t.keys.feed(buf[:n])
		silent = errors.Is(err, errSilence)
		switch {
		case err == nil, silent:
		case errors.Is(err, errResized): // draw looks at the size
		case errors.Is(err, errContinued):
			t.screen.forget() // others have written below it
			if err := t.raw(); err != nil {
				return "", err
			}
		default:
			return "", t.abandon(ctx, err)
		}
	}
}

var (
	errSilence   = errors.New("nothing came")
	errResized   = errors.New("the terminal has a new size")
	errContinued = errors.New("the program goes on after a stop")
)

// read waits for keys: for ever, or until it is clear that what came is all.
func (t *Terminal) read(ctx context.Context, b []byte, signals <-chan os.Signal) (int, error) {
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if t.keys.waiting() || t.keys.pasting {
		defer time.AfterFunc(silence, func() { cancel(errSilence) }).Stop()
	}
	changed := make(chan error, 1)
	go func() {
		var cause error
		select {
		case s := <-signals:
			cause = errResized
			if s == syscall.SIGCONT {
				cause = errContinued
			}
		case <-wait.Done():
		}
		cancel(cause)
		changed <- cause
	}()
	n, err := t.Reader(wait, t.In).Read(b)
	cancel(nil)
	if cause := <-changed; cause != nil && ctx.Err() == nil {
		err = cause
	}
	return n, err
}

// process handles all keys that are there.
func (t *Terminal) process(silent bool) Event {
	for {
		k, ok := t.keys.next(silent)
		if !ok {
			return None
		}
		switch event := t.press(k); event {
		case None:
		case Clear:
			t.screen.clear(&t.out)
		default:
			return event
		}
	}
}

// finish leaves the message on the terminal, with the cursor below it.
func (t *Terminal) finish(event Event) (string, error) {
	t.note, t.find = "", nil
	if err := t.draw(true); err != nil {
		return "", err
	}
	switch event {
	case End:
		return "", io.EOF
	case Interrupt:
		return "", ErrInterrupt
	}
	return t.Message(), nil
}

// abandon is the end of a message that cannot be typed to its end.
func (t *Terminal) abandon(ctx context.Context, err error) error {
	if ctx.Err() != nil && t.Drop() {
		t.screen.wipe(&t.out)
		return errors.Join(ErrDropped, t.flush())
	}
	t.finish(None) // the first error counts
	return err
}

// draw shows what changed; with last, the whole message and a line end.
func (t *Terminal) draw(last bool) error {
	if w, h := t.size(); w != t.screen.width || h != t.screen.height {
		t.screen.resize(&t.out, w, h)
	}
	if !last {
		t.screen.draw(&t.out, t.rows(t.screen.width), false)
		return t.flush()
	}
	pos := t.pos
	t.pos = len(t.text)
	t.screen.draw(&t.out, t.rows(t.screen.width), true)
	t.pos = pos
	t.out.WriteString("\r\n")
	t.screen.forget()
	return t.flush()
}

func (t *Terminal) flush() error {
	_, err := t.out.WriteTo(t.Out)
	t.out.Reset()
	return err
}

func (t *Terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.Out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return widthDefault, rowsDefault
	}
	return width, height
}

// raw makes the terminal raw, again where somebody else changed it.
func (t *Terminal) raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	state, err := term.MakeRaw(int(t.In.Fd()))
	if err != nil {
		return err
	}
	if t.state == nil {
		t.state = state
	}
	t.out.WriteString(pasteOn)
	return nil
}

// Restore gives the terminal back as it was. Programs call it on whatever way they end.
func (t *Terminal) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == nil {
		return
	}
	io.WriteString(t.Out, pasteOff)
	term.Restore(int(t.In.Fd()), t.state)
	t.state = nil
}

// suspend stops the program and its companions, as Ctrl-Z does. Where nobody could continue them the system does not stop them.
func (t *Terminal) suspend() {
	t.draw(true) // an error comes again
	t.Restore()
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	unix.Kill(0, unix.SIGTSTP)
	select {
	case <-goesOn:
	case <-time.After(stopWait):
	}
	t.raw() // an error comes again with the next key
}

// plain reads a message with the system's own line editing.
func (t *Terminal) plain(ctx context.Context) (string, error) {
	prompt, text := t.Prompt, ""
	for {
		if _, err := io.WriteString(t.Out, prompt); err != nil {
			return "", err
		}
		s, err := t.plainLine(ctx)
		if err != nil && ctx.Err() != nil && text != "" {
			err = ErrDropped
		}
		if err != nil {
			io.WriteString(t.Out, "\n") // the first error counts
			return "", err
		}
		more, goesOn := strings.CutSuffix(s, `\`)
		if !goesOn {
			return text + s, nil
		}
		text += more + "\n"
		prompt = t.More
	}
}

// plainLine is the next line; the last one may have no end.
func (t *Terminal) plainLine(ctx context.Context) (string, error) {
	r := t.Reader(ctx, t.In)
	buf := make([]byte, 4096)
	for {
		if i := bytes.IndexByte(t.behind, '\n'); i >= 0 {
			s := strings.ToValidUTF8(string(t.behind[:i]), "\ufffd")
			t.behind = t.behind[i+1:]
			return s, nil
		}
		n, err := r.Read(buf)
		t.behind = append(t.behind, buf[:n]...)
		if err == io.EOF && len(t.behind) > 0 {
			s := strings.ToValidUTF8(string(t.behind), "\ufffd")
			t.behind = nil
			return s, nil
		}
		if err != nil {
			return "", err
		}
		if len(t.behind) > textMax {
			return "", errors.New("a line has more than 1 MiB; send it in parts")
		}
	}
}
