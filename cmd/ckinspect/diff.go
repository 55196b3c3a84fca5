package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/difference"
	"ck/internal/difference/view"
	"ck/internal/linalg"
	"ck/internal/plaintext"
)

// diffOptions are the flags of "diff".
type diffOptions struct {
	tensorOptions
	noRank   bool
	all      bool
	exitCode bool
}

const diffLong = `Says how B differs from A: tensors, metadata, vocabulary, chat template.

Of each matrix that changed it takes the singular values of B-A. rank 99%: directions that hold 99 % of the change's energy. rank: directions that noise does not explain, and how much they hold. "rank R" says that beside these there is no more than rounding to the type leaves: what a low-rank adapter does that was merged. Rounding of quantized types is not known: there it says "low rank and noise".

  ckinspect diff base.gguf tuned.gguf
  ckinspect diff a.gguf b.gguf --tensors attn_q --exit-code`

func (p *program) diffCommand() {
	o := &p.diff
	c := p.app.NewCommand("diff [flags] A B", "how two models differ", diffLong, p.runDiff)
	g := cli.NewGroup(c.Flags(), "Tensors")
	p.tensorFlags(g, &o.tensorOptions)
	g.Bool(&o.noRank, "no-rank", "", "no singular values: faster")
	g = cli.NewGroup(c.Flags(), "Result")
	g.Bool(&o.all, "all", "", "list every changed token")
	g.Bool(&o.exitCode, "exit-code", "", "end with code 1 if they differ")
}

// runDiff is ckinspect diff.
func (p *program) runDiff(c *cobra.Command, args []string) error {
	o := &p.diff
	if len(args) != 2 {
		return cli.Usage("diff: takes A B; see ckinspect diff --help")
	}
	match, err := o.match()
	if err != nil {
		return err
	}
	a, err := p.openPath(args[0])
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := p.openPath(args[1])
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := a.Chosen(match); err != nil {
		if _, err := b.Chosen(match); err != nil {
			return err
		}
	}
	opt := difference.Options{Match: match, Rank: !o.noRank, Memory: p.memoryLeft()}
	if opt.Workers, err = p.workers(); err != nil {
		return err
	}
	tier, err := p.tier()
	if err != nil {
		return err
	}
	opt.Width = linalg.WidthOf(tier)
	bar := p.app.NewProgress("comparing", "%", 100)
	defer bar.Done()
	opt.At = func(done float64) { bar.Reach(100 * done) }
	r, err := difference.Of(c.Context(), a, b, opt)
	bar.Done()
	if err != nil {
		return err
	}
	return p.printDiff(args, r)
}

func (p *program) printDiff(args []string, r *difference.Report) error {
	c := &p.app.Common
	switch {
	case c.JSONL:
		if err := cli.PrintLines(p.app, "ck.inspect.diff.tensor/1", r.Changed); err != nil {
			return err
		}
	case c.JSON:
		if err := p.app.PrintJSON(struct {
			Schema string `json:"schema"`
			A      string `json:"a"`
			B      string `json:"b"`
			*difference.Report
		}{"ck.inspect.diff/1", args[0], args[1], r}); err != nil {
			return err
		}
	default:
		if err := p.printDiffTables(r); err != nil {
			return err
		}
	}
	bad := 0
	for i := range r.Changed {
		if r.Changed[i].Failed != "" {
			bad++
			p.app.Warn("tensor %s: %s", plaintext.Escape(r.Changed[i].Name), plaintext.Escape(r.Changed[i].Failed))
		}
	}
	p.app.Note("%s", view.Summary(r))
	switch {
	case bad > 0:
		return cli.Check("%d tensors have values that are not finite; they are not compared", bad)
	case p.diff.exitCode && !r.Same():
		return cli.Check("the models differ")
	}
	return nil
}

func (p *program) printDiffTables(r *difference.Report) error {
	for i, s := range view.Sections(r, p.diff.all) {
		if i > 0 && !p.app.Common.Plain {
			fmt.Fprintln(p.app.Text())
		}
		if s.Text != "" {
			if _, err := fmt.Fprint(p.app.Text(), s.Text); err != nil {
				return cli.OutError(err)
			}
			continue
		}
		if err := s.Table.Write(p.app.Out, p.app.Common.Plain); err != nil {
			return cli.OutError(err)
		}
	}
	return nil
}
