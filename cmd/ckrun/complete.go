package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/plan"
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
	if errors.Is(err, errNoPrompt) {
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

// prompt is the prompt from --ids, or from words, file and stdin.
func (p *program) prompt(cmd *cobra.Command, m *generate.Model, words []string, limit int) (request, error) {
	o, ctx, named := &p.o, cmd.Context(), cmd.Flags().Changed("prompt")
	if cmd.Flags().Changed("ids") {
		if len(words) > 0 || named || len(o.files()) > 0 {
			return request{}, cli.Usage("--ids: there is a text too; give the prompt once")
		}
		if o.system != "" {
			return request{}, cli.Usage("--system: --ids is the whole prompt already; leave one out")
		}
		ids, err := p.idsFlag(ctx, m.Tok.VocabSize())
		if err != nil {
			return request{}, err
		}
		return p.cutIDs(m, request{ids: ids, text: p.textOf(m, ids)}, limit), nil
	}
	text, err := p.readText(ctx, words, named)
	if err != nil {
		return request{}, err
	}
	r, err := p.request(m, text, limit)
	if err == nil {
		p.warnLost(m)
	}
	if err == nil && len(r.ids) == 0 {
		err = cli.Usage("the prompt is empty, and the model begins with no token of its own; give words")
	}
	return r, err
}

// noPrompt starts a chat on a terminal, if the model can.
func (p *program) noPrompt(cmd *cobra.Command, m *generate.Model) error {
	o := &p.o
	terminal := cli.IsTerminal(p.app.In)
	chat := terminal && cli.IsTerminal(p.app.Out) && !o.noStdin && !o.raw && !o.jsonl && !p.app.Common.JSON && !o.show && o.logits == ""
	if chat && (m.Template != "" || o.template != "") {
		return p.chatWith(cmd, m, "")
	}
	return noPrompt(terminal)
}

func (p *program) showPrompt(r request) error {
	switch {
	case p.app.Common.JSON:
		return p.app.PrintJSON(struct {
			Schema   string   `json:"schema"`
			Text     string   `json:"text"`
			IDs      []int32  `json:"ids"`
			Warnings []string `json:"warnings"`
		}{"ckrun.prompt/1", validUTF8([]byte(r.text)), r.ids, p.app.Warnings()})
	case p.o.printIDs:
		return p.printIDs(r.ids)
	}
	return cli.OutError(p.writeText(r.text))
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
func (p *program) run(ctx context.Context, m *generate.Model, r request, limit int) error {
	o := &p.o
	if err := generate.CheckRoom(len(r.ids), limit, o.predict); err != nil {
		return err
	}
	opt := generate.Options{Prompt: r.ids, MaxNew: o.predict, Context: limit, Stop: o.stop, IgnoreEOG: o.ignoreEOS,
		Sample: o.sample, LogProbs: o.logprobs, StartOfText: m.StartsText(r.ids),
		Reasoning: r.reasoning, Inside: r.reasoning.Inside(r.text)}
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
	opt.Progress = p.promptProgress
	out := p.newOutput(m, e, r, limit, load)
	if err := out.begin(); err != nil {
		return cli.OutError(err)
	}
	res, err := m.Generate(ctx, e, opt, out.event)
	if err != nil {
		out.broken()
		return err
	}
	if logits != nil && (res.Finish != generate.FinishInterrupt || res.Prefill.Tokens > 0) {
		if err := logits.Commit(); err != nil {
			return err
		}
	}
	if !out.text {
		p.warnEnd(res, limit) // the documents have the warnings
	}
	if err := out.end(res); err != nil {
		return cli.OutError(err)
	}
	if out.text {
		p.warnEnd(res, limit)
	}
	if o.stat {
		p.printStat(e, res, load, false)
		closeEngine()
		p.printRoof(e, res)
	}
	if res.Finish == generate.FinishInterrupt {
		return cli.Interrupted()
	}
	return nil
}

// promptProgress shows how far the evaluation of a prompt is.
func (p *program) promptProgress(rows int) generate.Meter {
	return p.app.NewProgress("prompt", "tokens", int64(rows))
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
