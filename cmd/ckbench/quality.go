package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"

	"ck/internal/bench"
	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/quality"
	"ck/internal/quality/format"
)

// qualityOptions are the flags of ckbench quality.
type qualityOptions struct {
	engineFlags
	file, base, save string
	force            bool
	block, blocks    int
	maxKLD, maxPPL   float64
	choices          string
	questions        int
	minAccuracy      string
	leastAccuracy    float64 // share that minAccuracy means
}

const qualityLong = `Evaluates a text in blocks of --ctx-size tokens, each with BOS in place of its first token where the model has one, and counts the second half of each block, as llama-perplexity does. The perplexity has an interval of 95 % over blocks.

--save keeps the most probable tokens of each position and the mass of the others in a file, about half a kilobyte for each; --base compares with such a file of another model with the same vocabulary, the unquantized one for example: the mean KL divergence from the base's distribution to this one in nats, how often the most probable token is the same, and the root mean square of the difference of the probabilities of the text's tokens.

  ckbench quality -m bf16.gguf -f text.txt --save text.base
  ckbench quality -m q4.gguf -f text.txt --base text.base --max-kld 0.05` + choicesLong

func (p *program) qualityCommand() {
	o := &p.quality
	c := p.app.NewCommand("quality [flags]", "perplexity, distance to a base, multiple choice", qualityLong, p.runQuality)
	g := cli.NewGroup(c.Flags(), "Text")
	g.Text(&o.file, "file", "f", "", "FILE", "the text; - is stdin")
	g.Int(&o.block, "ctx-size", "c", 512, 8, maxTokens, "N", "tokens of a block")
	g.Int(&o.blocks, "blocks", "", 0, 1, maxTokens, "N", "evaluate the first N blocks; default: all")
	g = cli.NewGroup(c.Flags(), "Multiple choice")
	g.Text(&o.choices, "choices", "", "", "FILE", "score these questions instead of a text, JSON lines; - is stdin")
	g.Int(&o.questions, "questions", "", 0, 1, maxTokens, "N", "score the first N questions; default: all")
	g.Text(&o.minAccuracy, "min-accuracy", "", "", "SHARE", "end with code 1 if the accuracy is below this, such as 60%")
	g = cli.NewGroup(c.Flags(), "Base")
	g.Text(&o.base, "base", "", "", "FILE", "compare with this base")
	g.Text(&o.save, "save", "", "", "FILE", "write a base of this model")
	g.Bool(&o.force, "force", "", "overwrite the file of --save")
	g.Float(&o.maxKLD, "max-kld", "", 0, 0, math.MaxFloat64, "X", "end with code 1 if the mean KL divergence is above this; 0: no bound")
	g.Float(&o.maxPPL, "max-ppl", "", 0, 0, math.MaxFloat64, "X", "end with code 1 if the perplexity is above this; 0: no bound")
	o.engineFlags.flags(c)
}

// runQuality is ckbench quality.
func (p *program) runQuality(c *cobra.Command, args []string) error {
	o := &p.quality
	threads, err := o.threadList()
	switch {
	case err != nil:
		return err
	case len(args) > 0:
		return cli.Usage("quality: takes no words; name the text with -f")
	case o.file == "" && o.choices == "":
		return cli.Usage("-f/--file: is needed: the text to evaluate; or --choices")
	case len(threads) != 1:
		return cli.Usage("-t/--threads: quality does not depend on it; name one number")
	case o.save == "-":
		return cli.Usage("--save: stdout has the table; name a file")
	case o.maxKLD > 0 && o.base == "":
		return cli.Usage("--max-kld: needs a --base to compare with")
	}
	if err := p.checkChoices(); err != nil {
		return err
	}
	var text string
	var items []quality.Item
	if o.choices != "" {
		items, err = p.readItems()
	} else {
		text, err = p.app.ReadText(o.file)
	}
	if err != nil {
		return err
	}
	m, err := generate.Open(p.app.Common.Model)
	if err != nil {
		return err
	}
	defer m.Close()
	opt := p.engineOptions(&o.engineFlags, m)
	opt.Threads = threads[0]
	e, err := engine.Open(m.Weights, opt)
	if err != nil {
		return err
	}
	defer e.Close()
	for _, s := range e.Warnings {
		p.app.Warn("%s", s)
	}
	if o.choices != "" {
		return p.runChoices(c.Context(), m, e, items)
	}
	return p.runText(c.Context(), m, e, text)
}

// runText is ckbench quality -f.
func (p *program) runText(ctx context.Context, m *generate.Model, e *engine.Engine, text string) error {
	o := &p.quality
	ids, err := m.EncodePrompt(text, generate.Encoding{})
	if err != nil {
		return err
	}
	if s := m.LostText(); s != "" {
		p.app.Warn("%s: %s", o.file, s)
	}
	if len(ids) < o.block {
		return cli.Input("%s: has %d tokens, a block takes %d; give more text or a smaller --ctx-size", o.file, len(ids), o.block)
	}
	bos, ok := m.Tok.BOS()
	blocks := quality.Cut(ids, o.block, o.blocks, bos, ok && m.Tok.AddBOS())
	facts, err := bench.FactsOf(m)
	if err != nil {
		return err
	}
	opt := quality.Options{Head: blocks.Head(facts.Type, facts.Hash, e.Graph.Vocab)}
	base := ""
	if o.base != "" {
		from, err := os.Open(o.base)
		if err != nil {
			return err
		}
		defer from.Close()
		if opt.Base, err = openBase(o.base, from, opt.Head); err != nil {
			return err
		}
		base = opt.Base.Head.Model
	}
	var out *cli.File
	if o.save != "" {
		if out, err = p.app.Create(o.save, o.force); err != nil {
			return err
		}
		defer out.Abort()
		opt.Save = out
	}
	bar := p.app.NewProgress("evaluating", "tokens", int64(len(blocks.IDs)))
	defer bar.Done()
	opt.At = bar.At
	release := e.Hold()
	tally, err := quality.Evaluate(ctx, quality.OfEngine(e), blocks, opt)
	release()
	bar.Done()
	if bad := (*quality.BaseError)(nil); errors.As(err, &bad) {
		return unreadableBase(o.base, bad)
	}
	if err != nil {
		return err
	}
	if out != nil {
		if err := out.Commit(); err != nil {
			return err
		}
	}
	return p.reportQuality(tally.Report(facts.Type, base, blocks))
}

// openBase begins to read a base, which must be of the same text as head.
func openBase(name string, r io.Reader, head quality.BaseHead) (*quality.BaseReader, error) {
	base, err := quality.NewBaseReader(r)
	if err != nil {
		return nil, unreadableBase(name, err)
	}
	if b := base.Head; !b.SameText(head) {
		return nil, cli.Input("%s: was made from another text, with other tokens or in other blocks (%d positions in blocks of %d, vocabulary %d; here %d, %d, %d); "+
			"give the same -f, -c and --blocks, and a model with the same vocabulary", name, b.Positions, b.Block, b.Vocab, head.Positions, head.Block, head.Vocab)
	}
	return base, nil
}

func unreadableBase(name string, err error) error {
	return cli.Input("%s: %w; write it again with --save", name, err)
}

// reportQuality prints the result and checks the bounds.
func (p *program) reportQuality(r quality.Report) error {
	if err := p.printQuality(r); err != nil {
		return err
	}
	switch o := &p.quality; {
	case o.maxPPL > 0 && !(r.Perplexity.Value <= o.maxPPL):
		return cli.Check("perplexity: %.4f is above the bound of %g; choose a finer type", r.Perplexity.Value, o.maxPPL)
	case o.maxKLD > 0 && !(r.KLD.Value <= o.maxKLD):
		return cli.Check("KL divergence: %.5f is above the bound of %g; choose a finer type", r.KLD.Value, o.maxKLD)
	}
	return nil
}

func (p *program) printQuality(r quality.Report) error {
	if p.app.Common.JSON {
		return p.app.PrintJSON(r)
	}
	t := format.Table(r)
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
