package generate

import (
	"slices"
	"strings"
	"testing"

	"ck/internal/template"
)

// openBuiltinModel opens the built-in model and a template that frames a turn.
func openBuiltinModel(t *testing.T) (*Model, *template.Template) {
	t.Helper()
	m, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	tmpl, err := m.FindTemplate("chatml")
	if err != nil {
		t.Fatal(err)
	}
	return m, tmpl
}

const longText = "Once upon a time there was a little dog named Spot. He liked to play in the park with the children all day."

func TestPromptPlain(t *testing.T) {
	m, _ := openBuiltinModel(t)
	whole, err := m.EncodePrompt(longText, Encoding{})
	if err != nil {
		t.Fatal(err)
	}
	bos, _ := m.Tok.BOS()
	for _, c := range []struct {
		fit  Fit
		want []int32
	}{
		{Fit{}, whole},
		{Fit{Context: len(whole) + 1, MaxNew: 5, Cut: Head}, whole},
		{Fit{Context: len(whole), MaxNew: 0, Cut: Head}, whole}, // nothing new: the prompt alone must fit
		{Fit{Context: 8, MaxNew: 4}, whole},
		{Fit{Context: 8, MaxNew: 2, Cut: Tail}, whole[:6]},
		{Fit{Context: 8, MaxNew: 2, Cut: Head}, append([]int32{bos}, whole[len(whole)-5:]...)},
		{Fit{Context: 8, MaxNew: 100, Cut: Tail}, whole[:4]}, // at most half is for new tokens
		{Fit{Context: 9, MaxNew: -1, Cut: Tail}, whole[:5]},
	} {
		p, err := m.Prompt(nil, longText, PromptOptions{Fit: c.fit})
		if err != nil || !slices.Equal(p.IDs, c.want) {
			t.Errorf("%+v: %v, want %v; %v", c.fit, p.IDs, c.want, err)
		}
		cut := len(c.want) < len(whole)
		if cut && (p.Was != len(whole) || p.Text != m.TextOf(c.want)) || !cut && (p.Was != 0 || p.Text != longText) {
			t.Errorf("%+v: was %d, text %q", c.fit, p.Was, p.Text)
		}
		if q := m.PromptOf(whole, c.fit); !slices.Equal(q.IDs, c.want) || q.Was != p.Was || q.Text != m.TextOf(c.want) {
			t.Errorf("%+v: of ids %+v", c.fit, q)
		}
	}
}

// A prompt that is cut under a template fits, keeps the template's frame, and the end of the text that was asked for.
func TestPromptCutUnderTemplate(t *testing.T) {
	m, tmpl := openBuiltinModel(t)
	empty, err := m.Prompt(tmpl, "", PromptOptions{System: "S"})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := m.Prompt(tmpl, longText, PromptOptions{System: "S"})
	if err != nil {
		t.Fatal(err)
	}
	open, shut, _ := strings.Cut(whole.Text, longText)
	for _, cut := range []End{Head, Tail} {
		for context := len(empty.IDs) + 4; context <= len(whole.IDs); context++ {
			p, err := m.Prompt(tmpl, longText, PromptOptions{System: "S", Fit: Fit{Context: context, MaxNew: 8, Cut: cut}})
			if err != nil {
				t.Fatal(err)
			}
			text, framed := strings.CutPrefix(p.Text, open)
			text, framed2 := strings.CutSuffix(text, shut)
			if !framed || !framed2 || len(p.IDs) >= context || p.Was != len(whole.IDs) {
				t.Fatalf("%s, context %d: %d tokens, was %d: %q", cut, context, len(p.IDs), p.Was, p.Text)
			}
			if text = strings.TrimSpace(text); text == "" || cut == Tail && !strings.HasPrefix(longText, text) || cut == Head && !strings.HasSuffix(longText, text) {
				t.Errorf("%s, context %d: %q stays of the text", cut, context, text)
			}
		}
	}
	p, err := m.Prompt(tmpl, longText, PromptOptions{System: "S", Fit: Fit{Context: 4, MaxNew: 1, Cut: Tail}})
	if err != nil || CheckRoom(len(p.IDs), 4, 1) == nil {
		t.Errorf("the template alone has no room, but the prompt fits: %d tokens, %v", len(p.IDs), err)
	}
}
