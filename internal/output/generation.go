package output

import (
	"os"
	"strconv"
	"time"

	"ck/internal/cli"
	"ck/internal/generate"
)

// Form is what stdout gets.
type Form uint8

// The forms.
const (
	FormText   Form = iota // the text as it comes
	FormIDs                // ids of the new tokens on one line
	FormJSON               // one document at the end
	FormEvents             // a start, each token and an end, an object a line
)

// Generation prints one generation from its beginning to its end.
type Generation struct {
	App     *cli.App // its stdout, and the warnings that documents have
	Model   *generate.Model
	Notes   []string // what the engine decided, for documents
	Prompt  generate.Prompt
	Context int           // in force; 0: not known
	Load    time.Duration // from the program's start until the engine was there
	Seed    uint64

	Form     Form
	LogProbs bool // events have log probabilities
	Hide     bool // reasoning is left out
	Echo     bool // the prompt's text stands before the new text
	NoNew    bool // no token will be drawn
	Newline  bool // text ends with a newline also where stdout is no terminal

	text      Text
	begun     bool   // there were ids
	tail      string // text that no token event had
	thinkTail string // reasoning that no token event had
}

// Begin prints what stands before the first token.
func (g *Generation) Begin() error {
	g.text = Text{Out: g.App.Out, Hide: g.Hide}
	switch {
	case g.Form == FormEvents:
		return g.App.PrintJSON(startEvent{eventSchema, "start", g.Model.Name, g.Model.Path, len(g.Prompt.IDs), g.Context, g.Seed})
	case g.Form == FormText && g.Echo && g.Prompt.Text != "":
		return g.text.Add([]byte(g.Prompt.Text))
	}
	return nil
}

// Event prints a token, or text that was held back.
func (g *Generation) Event(ev generate.Event) error {
	switch {
	case g.Form == FormText:
		return g.text.Event(ev)
	case g.Form == FormEvents && ev.ID < 0:
		g.tail, g.thinkTail = ValidUTF8(ev.Text), reasoned(ev.Reasoning, g.Hide)
	case g.Form == FormEvents:
		return g.App.PrintJSON(g.tokenEvent(ev))
	case g.Form == FormIDs && ev.ID >= 0:
		s := strconv.Itoa(int(ev.ID))
		if g.begun {
			s = " " + s
		}
		g.begun = true
		_, err := g.App.Out.WriteString(s)
		return cli.OutError(err)
	}
	return nil
}

// End prints what stands behind the last token.
func (g *Generation) End(res generate.Result) error {
	switch g.Form {
	case FormJSON:
		return g.App.PrintJSON(g.document(completeSchema, res))
	case FormEvents:
		return g.App.PrintJSON(endEvent{eventSchema, "end", g.tail, g.thinkTail, g.document("", res)})
	case FormIDs:
		if !g.begun {
			return nil
		}
		return Newline(g.App.Out)
	}
	return g.lineEnd()
}

// lineEnd ends the text with a newline on a terminal, or with Newline.
func (g *Generation) lineEnd() error {
	shown := !g.NoNew || g.Echo
	if !shown || g.text.LineEnded() || !g.Newline && !cli.IsTerminal(g.App.Out) {
		return nil
	}
	return Newline(g.App.Out)
}

// Broken ends the line on a terminal before an error is reported.
func (g *Generation) Broken() {
	if g.Form == FormText && g.text.LineOpen() && cli.IsTerminal(g.App.Out) {
		_ = Newline(g.App.Out) // the error that is about to be reported matters more
	}
}

// PrintIDs prints ids on one line.
func PrintIDs(out *os.File, ids []int32) error {
	b := make([]byte, 0, 6*len(ids)+1)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	_, err := out.Write(append(b, '\n'))
	return cli.OutError(err)
}
