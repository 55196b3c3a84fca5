package output

import (
	"bytes"
	"os"
	"strings"

	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/plaintext"
)

// Reasoning on a terminal is faint; each piece ends what it began, so that nothing stays so when the program is stopped.
const (
	faint      = "\x1b[2m"
	faintEnd   = "\x1b[0m"
	thinkOpen  = "<think>\n"
	thinkClose = "\n</think>"
)

// Text writes a generation as text while it comes: reasoning, then the answer.
type Text struct {
	Out  *os.File
	Hide bool // reasoning is left out

	last     byte // of what was written; 0: nothing was
	thinking bool // what was written last is reasoning
}

// Event writes what an event has of reasoning and of the answer.
func (w *Text) Event(ev generate.Event) error {
	if err := w.think(ev.Reasoning); err != nil {
		return err
	}
	return w.answer(ev.Text)
}

// Add writes text that is no reasoning.
func (w *Text) Add(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	w.last = text[len(text)-1]
	return cli.OutError(write(w.Out, text))
}

// LineOpen reports whether something was written and no line end behind it.
func (w *Text) LineOpen() bool { return w.last != 0 && w.last != '\n' }

// LineEnded reports whether a line end was written last.
func (w *Text) LineEnded() bool { return w.last == '\n' }

// think writes reasoning: faint where there are colours, else between marks that are the same for every model.
func (w *Text) think(text []byte) error {
	if len(text) == 0 || w.Hide {
		return nil
	}
	plain := !cli.Color(w.Out)
	if !w.thinking {
		w.thinking = true
		if plain {
			if err := w.raw(thinkOpen); err != nil {
				return err
			}
		}
	}
	if plain {
		return w.Add(text)
	}
	w.last = text[len(text)-1]
	text = plaintext.Printable(text)
	// Whole lines: a terminal's own line ends are not faint.
	return w.raw(faint + string(bytes.ReplaceAll(text, []byte("\n"), []byte(faintEnd+"\n"+faint))) + faintEnd)
}

// answer writes text of the answer. What was reasoned before it ends with a blank line.
func (w *Text) answer(text []byte) error {
	if len(text) > 0 && w.thinking {
		w.thinking = false
		end := "\n\n"
		if !cli.Color(w.Out) {
			end = thinkClose + end
		}
		if err := w.raw(end); err != nil {
			return err
		}
	}
	return w.Add(text)
}

// raw writes text of our own.
func (w *Text) raw(text string) error {
	_, err := w.Out.WriteString(text)
	return cli.OutError(err)
}

// Newline ends a line on stdout.
func Newline(out *os.File) error {
	_, err := out.WriteString("\n")
	return cli.OutError(err)
}

// PrintText writes a whole text, with a newline behind it where newline or a terminal wants one and the text has none.
func PrintText(out *os.File, text string, newline bool) error {
	if err := write(out, []byte(text)); err != nil {
		return cli.OutError(err)
	}
	if !strings.HasSuffix(text, "\n") && (newline || cli.IsTerminal(out)) {
		return Newline(out)
	}
	return nil
}

// write writes text; to a terminal without control characters, which a model must not be able to send there.
func write(out *os.File, text []byte) error {
	if cli.IsTerminal(out) {
		text = plaintext.Printable(text)
	}
	_, err := out.Write(text)
	return err
}
