package generate

import (
	"slices"
	"strings"

	"ck/internal/template"
	"ck/internal/tokenizer"
)

// Prompt is what a model is asked to go on with.
type Prompt struct {
	Rendering            // of ids, Text is what they say, with the names of control tokens
	Reasoning *Reasoning // nil: nothing is told apart
	Was       int        // tokens before it was cut; 0: it was not cut
}

// End is the end of a prompt that may be cut off.
type End string

// The ends, as --truncate names them.
const (
	NoEnd End = ""
	Head  End = "head"
	Tail  End = "tail"
)

// Fit says how a prompt is made to fit into a context.
type Fit struct {
	Context int // positions of prompt and new tokens together; 0: any prompt fits
	MaxNew  int // new tokens to leave room for, at most half of the context; 0: none; below 0: half of it
	Cut     End // of a prompt that is too long; NoEnd: it stays too long
}

// PromptOptions say how a text becomes a prompt.
type PromptOptions struct {
	RenderOptions // with Fit.Cut, Max counts for nothing
	Fit
	System    string
	Reasoning *Reasoning
}

// Prompt turns the user's text into a prompt: one turn of a conversation under t, or with t nil the text as it is. A prompt that is too
// long is cut as o.Fit says. Errors are those of Render and EncodePrompt; that the prompt does not fit is none, see CheckRoom.
func (m *Model) Prompt(t *template.Template, text string, o PromptOptions) (Prompt, error) {
	if o.Cut != NoEnd {
		o.Max = 0
	}
	if t == nil {
		ids, err := m.EncodePrompt(text, o.Encoding)
		if err != nil {
			return Prompt{}, err
		}
		return m.cutIDs(Prompt{Rendering: Rendering{IDs: ids, Text: text}}, o.Fit), nil
	}
	render := func(text string) (Rendering, error) { return m.RenderPrompt(t, o.System, text, o.RenderOptions) }
	r, err := render(text)
	p := Prompt{Rendering: r, Reasoning: o.Reasoning}
	if err != nil || o.Cut == NoEnd || o.fits(r.IDs) {
		return p, err
	}
	return m.cutText(p, o.Fit, render, text)
}

// PromptOf is the prompt that ids are, cut as f says.
func (m *Model) PromptOf(ids []int32, f Fit) Prompt {
	return m.cutIDs(Prompt{Rendering: Rendering{IDs: ids, Text: m.TextOf(ids)}}, f)
}

// TextOf is the text of ids, with the names of control tokens.
func (m *Model) TextOf(ids []int32) string {
	return string(m.Tok.Decode(nil, ids, tokenizer.DecodeOptions{Special: true, SkipSpaceAtStart: true}))
}

// fits reports whether a prompt leaves room for the first new token, if there is to be one.
func (f *Fit) fits(ids []int32) bool { return CheckRoom(len(ids), f.Context, f.MaxNew) == nil }

// room is the number of prompt tokens that stay: the context less MaxNew, at least half of it.
func (f *Fit) room() int {
	if f.MaxNew < 0 {
		return f.Context - f.Context/2
	}
	return f.Context - min(f.MaxNew, f.Context/2)
}

// cutIDs cuts a plain prompt. BOS stays.
func (m *Model) cutIDs(p Prompt, f Fit) Prompt {
	if f.Cut == NoEnd || f.fits(p.IDs) {
		return p
	}
	n := f.room()
	p.Was = len(p.IDs)
	if f.Cut == Tail {
		p.IDs = p.IDs[:n]
	} else {
		first := 0
		if bos, ok := m.Tok.BOS(); ok && p.IDs[0] == bos {
			first = 1
		}
		p.IDs = append(slices.Clone(p.IDs[:first]), p.IDs[len(p.IDs)-n+first:]...)
	}
	p.Text = m.TextOf(p.IDs)
	return p
}

// cutText cuts the user's text so that its rendering fits. Cut text is not encoded as a part of the whole was, so it is tried again
// where the rendering is still too long. Where the template alone leaves no room, the prompt stays too long.
func (m *Model) cutText(p Prompt, f Fit, render func(string) (Rendering, error), text string) (Prompt, error) {
	encode := func() ([]int32, error) { return m.EncodePrompt(text, Encoding{NoBOS: true}) }
	was := len(p.IDs)
	ids, err := encode()
	if err != nil {
		return p, err
	}
	frame := was - len(ids) // tokens of the template
	// If the template takes more than half, the text and the answer share the rest.
	n := max(f.room(), (f.Context+frame)/2)
	for !f.fits(p.IDs) || len(p.IDs) > n && len(p.IDs) < was {
		over := max(len(p.IDs)-n, 1)
		if ids, err = encode(); err != nil {
			return p, err
		}
		if over >= len(ids) {
			break
		}
		if f.Cut == Tail {
			ids = ids[:len(ids)-over]
		} else {
			ids = ids[over:]
		}
		text = strings.ToValidUTF8(m.TextOf(ids), "")
		if p.Rendering, err = render(text); err != nil {
			return p, err
		}
	}
	if len(p.IDs) < was {
		p.Was = was
	}
	return p, nil
}
