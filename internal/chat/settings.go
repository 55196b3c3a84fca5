package chat

import (
	crand "crypto/rand"
	"encoding/binary"
	"slices"
	"strconv"

	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/template"
)

// Settings are what an answer is generated with.
type Settings struct {
	Predict   int      // new tokens at most; below 0: until the end or until the context is full
	Stop      []string // the answer ends before one of them
	IgnoreEOS bool     // tokens that end a text are never drawn
	Think     string   // ThinkShow, ThinkHide or ThinkOff
	Sample    generate.Params
	Seed      string // a whole number; empty or -1: random. TakeSeed makes it Sample.Seed
}

// The words of --think.
const (
	ThinkShow = "show" // reasoning is shown
	ThinkHide = "hide" // it is hidden
	ThinkOff  = "off"  // the template is asked for an answer without reasoning
)

// Check finds settings that cannot be meant.
func (o *Settings) Check() error {
	if slices.Contains(o.Stop, "") {
		return cli.Usage("--stop: the empty text stops nothing; leave it out")
	}
	return nil
}

// TakeSeed sets Sample.Seed from Seed.
func (o *Settings) TakeSeed() error {
	if o.Seed == "" || o.Seed == "-1" {
		var b [4]byte // 32 bits are easy to type, and exact in every JSON reader
		if _, err := crand.Read(b[:]); err != nil {
			return err
		}
		o.Sample.Seed = uint64(binary.LittleEndian.Uint32(b[:]))
		return nil
	}
	n, err := strconv.ParseUint(o.Seed, 10, 64)
	if err != nil {
		return cli.Usage("--seed: %q is no whole number in 0..2^64-1", o.Seed)
	}
	o.Sample.Seed = n
	return nil
}

// Reasoning is how the model reasons under t (nil: no template, so nothing is told apart), and the variables that ThinkOff gives the
// template. What it cannot do is said: always where it is given for this model, as by a flag; to a setting, which is meant for many
// models, if this one may reason.
func (o *Settings) Reasoning(app *cli.App, m *generate.Model, t *template.Template, given bool) (*generate.Reasoning, template.Vars) {
	off := o.Think == ThinkOff
	if t == nil {
		if off && given {
			app.Warn("--think off: the text goes to the model without a template, which could ask it not to reason")
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
		app.Warn("--think off: the template has no variable that turns reasoning off; --think hide shows the answer alone")
	default:
		for name, v := range vars {
			app.Warn("--think off: the template can ask for less reasoning only, and does (%s = %v); --think hide shows the answer alone", name, v)
		}
	}
	return r, vars
}
