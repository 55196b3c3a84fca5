package main

import (
	"bytes"

	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/template"
)

// The words of --think.
const (
	thinkShow = "show"
	thinkHide = "hide"
	thinkOff  = "off"
)

// reasoning is how the model reasons under t (nil: no template, so nothing is told apart), and the variables that --think off gives the
// template. What off cannot do is said: always where it is given for this
// model, as by a flag; to a setting, which is meant for many models, if this one may reason.
func (p *program) reasoning(m *generate.Model, t *template.Template, given bool) (*generate.Reasoning, template.Vars) {
	off := p.o.think == thinkOff
	if t == nil {
		if off && given {
			p.app.Warn("--think off: the text goes to the model without a template, which could ask it not to reason")
		}
		return nil, nil
	}
	r := m.Reasoning(t)
	if !off {
		return r, nil
	}
	vars, all := m.WithoutReasoning(t)
	switch {
	case all || !given && r == nil:
	case vars == nil:
		p.app.Warn("--think off: the template has no variable that turns reasoning off; --think hide shows the answer alone")
	default:
		for name, v := range vars {
			p.app.Warn("--think off: the template can ask for less reasoning only, and does (%s = %v); --think hide shows the answer alone", name, v)
		}
	}
	return r, vars
}

// Reasoning on a terminal is faint; each piece ends what it began, so that nothing stays so when the program is stopped.
const (
	faint      = "\x1b[2m"
	faintEnd   = "\x1b[0m"
	thinkOpen  = "<think>\n"
	thinkClose = "\n</think>"
)

// think writes reasoning to stdout: faint where there are colours, else between marks that are the same for every model.
func (w *output) think(text []byte) error {
	if len(text) == 0 || w.p.o.think == thinkHide {
		return nil
	}
	plain := !cli.Color(w.p.app.Out)
	if !w.thinking {
		w.thinking = true
		if plain {
			if err := w.raw(thinkOpen); err != nil {
				return err
			}
		}
	}
	if plain {
		return w.write(text)
	}
	w.last = text[len(text)-1]
	text = cli.Printable(text)
	// Whole lines: a terminal's own line ends are not faint.
	return w.raw(faint + string(bytes.ReplaceAll(text, []byte("\n"), []byte(faintEnd+"\n"+faint))) + faintEnd)
}

// answer writes text of the answer. What was reasoned before it ends with a blank line.
func (w *output) answer(text []byte) error {
	if len(text) > 0 && w.thinking {
		w.thinking = false
		end := "\n\n"
		if !cli.Color(w.p.app.Out) {
			end = thinkClose + end
		}
		if err := w.raw(end); err != nil {
			return err
		}
	}
	return w.write(text)
}

// reasoned is the reasoning as documents have it.
func (p *program) reasoned(text []byte) string {
	if p.o.think == thinkHide {
		return ""
	}
	return validUTF8(text)
}

// warnEnd says that a text ended before its time: because the context was full, or within the reasoning, without an answer.
func (p *program) warnEnd(res generate.Result, limit int) {
	if res.Finish == generate.FinishContext {
		p.app.Warn("the context is full: %s of the prompt and %d new ones are %d; a larger -c has room for more", fmtTokens(res.PromptTokens), res.NewTokens, limit)
	}
	if res.Text == "" && res.Reasoning != "" && (res.Finish == generate.FinishContext || res.Finish == generate.FinishLength) {
		p.app.Warn("there is no answer: the model still reasoned after %s; raise -n, or try --think off", fmtTokens(res.NewTokens))
	}
}
