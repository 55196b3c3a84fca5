// Package chat holds a conversation between a user and a model: it reads turns from a terminal or as JSON, runs the /commands among them,
// and shows the answers. The conversation itself is a generate.Session; which flags there are is the program's.
package chat

import (
	"context"

	"github.com/spf13/pflag"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/output"
	"ck/internal/template"
)

// Chat is a conversation between the user of App and a model. Its exported fields are set before Run.
type Chat struct {
	App      *cli.App
	Model    *generate.Model
	Engine   *engine.Engine
	Template *template.Template // renders the conversation
	System   string             // the first system message; "": none
	Encoding generate.Encoding
	Settings *Settings      // of the next answer; /set changes them through Flags
	Flags    *pflag.FlagSet // the command's, whose values lie in Settings
	Groups   []string       // of flags that /set changes
	Fixed    []string       // names of flags in Groups that a running chat cannot change
	First    string         // the user's first turn; "": it is read
	Context  int            // positions in force; 0: not known
	History  string         // what was typed: a file, none, or "" for the default

	s    *generate.Session
	turn uint64 // answers that were begun
	last generate.Result
}

// Run talks until the user ends it: on a terminal with a line editor and commands, else over messages as JSON. thinkGiven: the user
// asked for Settings.Think for this model, see Settings.Reasoning.
func (c *Chat) Run(ctx context.Context, thinkGiven bool) error {
	c.begin(thinkGiven)
	if cli.IsTerminal(c.App.In) && !c.App.Common.JSON {
		return c.terminal(ctx)
	}
	return c.lines(ctx, c.App.In)
}

func (c *Chat) begin(thinkGiven bool) {
	c.s = c.Model.NewSession(c.Engine, c.Template)
	c.s.System, c.s.Render.Encoding = c.System, c.Encoding
	c.useThink(thinkGiven)
}

// Last is the last answer; false if none was begun.
func (c *Chat) Last() (generate.Result, bool) { return c.last, c.turn > 0 }

// useThink does what Settings.Think says from the next turn on; given: for this model.
func (c *Chat) useThink(given bool) {
	c.s.Reasoning, c.s.Render.Vars = c.Settings.Reasoning(c.App, c.Model, c.Template, given)
}

// waiting has the engine pack weights until stop is called: nobody needs the workers while the user writes. What cannot be read shows in the next answer.
func (c *Chat) waiting(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Engine.Pack(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// options are those of the next answer. Each turn has a random sequence of its own.
func (c *Chat) options() generate.Options {
	o := c.Settings
	opt := generate.Options{MaxNew: o.Predict, LeaveRoom: !c.Flags.Changed("predict"), Context: c.Context, Stop: o.Stop, IgnoreEOG: o.IgnoreEOS, Sample: o.Sample}
	opt.Sample.Stream = c.turn
	c.turn++
	return opt
}

// answer generates the answer to what was said so far and to text, a turn of the user, unless it is empty. emit shows it.
func (c *Chat) answer(ctx context.Context, text string, emit func(generate.Event) error) (generate.Result, error) {
	opt := c.options()
	opt.Progress = output.PromptProgress(c.App)
	var res generate.Result
	var err error
	if text != "" {
		res, err = c.s.Ask(ctx, text, opt, emit)
	} else {
		res, err = c.s.Answer(ctx, opt, emit)
	}
	if err == nil {
		output.WarnLost(c.App, c.Model)
		c.last = res
	}
	return res, err
}
