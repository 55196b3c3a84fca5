package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"ck/internal/chat"
	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/output"
	"ck/internal/plan"
	"ck/internal/prompt"
)

// complete is ckrun without a command: a prompt in, text out.
func (p *program) complete(cmd *cobra.Command, words []string) error {
	o, ctx := &p.o, cmd.Context()
	p.yield(cmd, len(words) > 0)
	if err := o.check(p.app); err != nil {
		return err
	}
	m, err := p.openModel()
	if err != nil {
		return err
	}
	defer m.Close()
	if o.explain != "" {
		return p.explain(m)
	}
	limit := p.contextOf(m)
	r, err := p.prompt(cmd, m, words, limit)
	if errors.Is(err, prompt.ErrNone) {
		return p.noPrompt(cmd, m)
	}
	if err != nil {
		return err
	}
	if o.show {
		return p.showPrompt(r)
	}
	return p.run(ctx, m, r, limit)
}

// source is where the text of a prompt comes from. named: the command line has -p.
func (p *program) source(words []string, named bool) *prompt.Source {
	return &prompt.Source{In: p.app.In, NoStdin: p.o.noStdin, Words: words, Parts: p.o.parts, Named: named}
}

// prompt is the prompt from --ids, or from words, file and stdin.
func (p *program) prompt(cmd *cobra.Command, m *generate.Model, words []string, limit int) (generate.Prompt, error) {
	o, named := &p.o, cmd.Flags().Changed("prompt")
	source, fit := p.source(words, named), generate.Fit{Context: limit, MaxNew: o.Predict, Cut: generate.End(o.truncate)}
	if cmd.Flags().Changed("ids") {
		if len(words) > 0 || named || len(prompt.Files(o.parts)) > 0 {
			return generate.Prompt{}, cli.Usage("--ids: there is a text too; give the prompt once")
		}
		if o.system != "" {
			return generate.Prompt{}, cli.Usage("--system: --ids is the whole prompt already; leave one out")
		}
		ids, err := source.IDs(cmd.Context(), o.ids, m.Tok.VocabSize())
		if err != nil {
			return generate.Prompt{}, err
		}
		r := m.PromptOf(ids, fit)
		p.warnCut(r, limit)
		return r, nil
	}
	text, err := source.Text(cmd.Context())
	if err != nil {
		return generate.Prompt{}, err
	}
	r, err := p.promptOfText(m, text, fit)
	if err != nil {
		return r, err
	}
	p.warnCut(r, limit)
	output.WarnLost(p.app, m)
	if len(r.IDs) == 0 {
		err = cli.Usage("the prompt is empty, and the model begins with no token of its own; give words")
	}
	return r, err
}

// promptOfText is the prompt that the flags make of the user's text.
func (p *program) promptOfText(m *generate.Model, text string, fit generate.Fit) (generate.Prompt, error) {
	o := &p.o
	t, err := p.useTemplate(m)
	if err != nil {
		return generate.Prompt{}, err
	}
	opt := generate.PromptOptions{RenderOptions: generate.RenderOptions{Encoding: o.encoding()}, Fit: fit, System: o.system}
	opt.Reasoning, opt.Vars = o.Settings.Reasoning(p.app, m, t, p.app.Given("think"))
	if !o.show { // what is shown may be longer
		opt.Max = fit.Context
	}
	return m.Prompt(t, text, opt)
}

// warnCut says that a prompt was cut.
func (p *program) warnCut(r generate.Prompt, limit int) {
	if r.Was > 0 {
		p.app.Warn("the prompt has %d tokens, the context %d; its %s is cut, %d tokens stay", r.Was, limit, p.o.truncate, len(r.IDs))
	}
}

// noPrompt starts a chat on a terminal, if the model can.
func (p *program) noPrompt(cmd *cobra.Command, m *generate.Model) error {
	o := &p.o
	terminal := cli.IsTerminal(p.app.In)
	chat := terminal && cli.IsTerminal(p.app.Out) && !o.noStdin && !o.raw && !o.jsonl && !p.app.Common.JSON && !o.show && o.logits == ""
	if chat && (m.Template != "" || o.template != "") {
		return p.chatWith(cmd, m, "")
	}
	where := "stdin is empty"
	if terminal {
		where = "there are no words"
	}
	return cli.Usage(`no prompt: %s; give words, -f FILE or a pipe, or -p "" for the empty prompt`, where)
}

func (p *program) showPrompt(r generate.Prompt) error {
	switch {
	case p.app.Common.JSON:
		return output.PrintPrompt(p.app, r)
	case p.o.printIDs:
		return output.PrintIDs(p.app.Out, r.IDs)
	}
	return output.PrintText(p.app.Out, r.Text, p.o.newline)
}

// explain prints the plan of a class of walks.
func (p *program) explain(m *generate.Model) error {
	e, _, err := p.openEngine(m)
	if err != nil {
		return err
	}
	defer e.Close()
	class := map[string]plan.Class{"one": plan.One, "few": plan.Few, "many": plan.Many}[p.o.explain]
	return cli.OutError(e.Explain(p.app.Text(), class))
}

// run evaluates a prompt and prints what follows.
func (p *program) run(ctx context.Context, m *generate.Model, r generate.Prompt, limit int) error {
	o := &p.o
	if err := generate.CheckRoom(len(r.IDs), limit, o.Predict); err != nil {
		return err
	}
	opt := generate.Options{Prompt: r.IDs, MaxNew: o.Predict, Context: limit, Stop: o.Stop, IgnoreEOG: o.IgnoreEOS,
		Sample: o.Sample, LogProbs: o.logprobs, StartOfText: m.StartsText(r.IDs),
		Reasoning: r.Reasoning, Inside: r.Reasoning.Inside(r.Text)}
	var logits *cli.File
	if o.logits != "" {
		var err error
		if logits, err = p.app.Create(o.logits, o.force); err != nil {
			return err
		}
		defer logits.Abort()
		opt.Logits = func(_ int, row []float32) error { return writeFloats(logits, row) }
	}
	e, load, err := p.openEngine(m)
	if err != nil {
		return err
	}
	closeEngine := sync.OnceFunc(e.Close)
	defer closeEngine()
	opt.Seq = e.NewSeq()
	opt.Progress = output.PromptProgress(p.app)
	out := p.output(m, e, r, limit, load)
	if err := out.Begin(); err != nil {
		return cli.OutError(err)
	}
	res, err := m.Generate(ctx, e, opt, out.Event)
	if err != nil {
		out.Broken()
		return err
	}
	if logits != nil && (res.Finish != generate.FinishInterrupt || res.Prefill.Tokens > 0) {
		if err := logits.Commit(); err != nil {
			return err
		}
	}
	if out.Form != output.FormText {
		output.WarnEnd(p.app, res, limit) // the documents have the warnings
	}
	if err := out.End(res); err != nil {
		return cli.OutError(err)
	}
	if out.Form == output.FormText {
		output.WarnEnd(p.app, res, limit)
	}
	if o.stat {
		output.PrintStat(p.app.Err, e, res, load, false)
		closeEngine()
		output.PrintRoof(p.app.Err, e, res)
	}
	if res.Finish == generate.FinishInterrupt {
		return cli.Interrupted()
	}
	return nil
}

// output is what shows the generation, in the form that the flags ask for.
func (p *program) output(m *generate.Model, e *engine.Engine, r generate.Prompt, context int, load time.Duration) *output.Generation {
	o := &p.o
	form := output.FormText
	switch {
	case p.app.Common.JSON:
		form = output.FormJSON
	case o.jsonl:
		form = output.FormEvents
	case o.printIDs:
		form = output.FormIDs
	}
	return &output.Generation{App: p.app, Model: m, Notes: e.Notes, Prompt: r, Context: context, Load: load, Seed: o.Sample.Seed, Form: form, LogProbs: o.logprobs > 0,
		Hide: o.Think == chat.ThinkHide, Echo: o.echo, NoNew: o.Predict == 0, Newline: o.newline}
}

// writeFloats writes numbers as float32, little endian.
func writeFloats(w io.Writer, row []float32) error {
	var buf [4096]byte
	for len(row) > 0 {
		n := min(len(row), len(buf)/4)
		for i, v := range row[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], math.Float32bits(v))
		}
		if _, err := w.Write(buf[:4*n]); err != nil {
			return err
		}
		row = row[n:]
	}
	return nil
}
