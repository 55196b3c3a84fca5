package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/correlate"
	"ck/internal/correlate/view"
	"ck/internal/inspect"
	"ck/internal/linalg"
	"ck/internal/plaintext"
)

// correlateOptions are the flags of "correlate".
type correlateOptions struct {
	tensorOptions
	subspace int
	codes    bool
	resume   string
	pictureOptions
}

const correlateLong = `Says how alike the layers of a model are, class by class: Pearson's correlation of the elements of layers that follow each other (mean |r|) and of any two (largest |r|), the energy of a layer that is left behind the best multiple of the one before it, and the bits a weight that coding it from there would save, were both Gaussian: -1/2 log2(1-r²).

--codes measures those bits too, on codes of about five bits. --subspace K compares the K leading input directions of neighbours, found by a randomized range finder: overlap is the mean squared cosine of their angles, beside that of random directions. -v has a row for each pair, with what is left behind the best mix of both neighbours; --json all pairs of layers.

  ckinspect correlate model.gguf --png layers.png
  ckinspect correlate model.gguf --tensors ffn_up --codes --subspace 16 -v`

func (p *program) correlateCommand() {
	o := &p.correlate
	c := p.app.NewCommand("correlate [flags] MODEL", "how alike the layers are", correlateLong, p.runCorrelate)
	g := cli.NewGroup(c.Flags(), "Matrices")
	p.tensorFlags(g, &o.tensorOptions)
	g = cli.NewGroup(c.Flags(), "Result")
	g.Bool(&o.codes, "codes", "", "measure the bits that codes of the difference save")
	g.Int(&o.subspace, "subspace", "", 0, 0, 4096, "K", "compare K leading input directions; 0: none")
	g.Text(&o.resume, "resume", "", "", "FILE", "keep results in FILE, and do not compute those again that it has")
	p.pictureFlags(g, &o.pictureOptions)
}

// runCorrelate is ckinspect correlate.
func (p *program) runCorrelate(c *cobra.Command, args []string) error {
	o := &p.correlate
	pictures, err := p.openPictures(&o.pictureOptions)
	if err != nil {
		return err
	}
	defer pictures.abort()
	m, err := p.openModel("correlate", args)
	if err != nil {
		return err
	}
	defer m.Close()
	list, left, err := p.matrices(m, &o.tensorOptions)
	if err != nil {
		return err
	}
	groups, alone := correlate.Groups(list)
	left = append(left, alone...)
	for _, l := range alone {
		p.app.Info("left out: %s %s", plaintext.Escape(l.Name), l.Why)
	}
	opt := correlate.Options{Subspace: o.subspace, Codes: o.codes}
	if opt.Workers, err = p.workers(); err != nil {
		return err
	}
	tier, err := p.tier()
	if err != nil {
		return err
	}
	opt.Width = linalg.WidthOf(tier)
	if o.resume != "" {
		if opt.Journal, err = inspect.OpenJournal(o.resume, m.Key("correlate", o.expr, opt.Subspace, opt.Codes)); err != nil {
			return err
		}
		defer opt.Journal.Close()
	}
	bar := p.app.NewProgress("comparing", "%", 100)
	defer bar.Done()
	opt.At = func(done float64) { bar.Reach(100 * done) }
	classes, err := correlate.Of(c.Context(), m, groups, opt)
	bar.Done()
	if err != nil {
		return err
	}
	if len(pictures) > 0 {
		if len(classes) == 0 {
			return cli.Input("%s: %s; there is nothing to draw", m.Path, view.Summary(classes))
		}
		if err := pictures.draw(view.Map(plaintext.Escape(filepath.Base(m.Path)), classes).Draw); err != nil {
			return err
		}
	}
	return p.printCorrelate(m, classes, left)
}

func (p *program) printCorrelate(m *inspect.Model, classes []correlate.Class, left []inspect.Left) error {
	c := &p.app.Common
	switch {
	case c.JSONL:
		if err := cli.PrintLines(p.app, "ck.inspect.correlate.class/1", classes); err != nil {
			return err
		}
	case c.JSON:
		if err := p.app.PrintJSON(struct {
			Schema  string            `json:"schema"`
			Model   string            `json:"model"`
			Classes []correlate.Class `json:"classes"`
			Left    []inspect.Left    `json:"left_out"`
		}{"ck.inspect.correlate/1", m.Path, append([]correlate.Class{}, classes...), append([]inspect.Left{}, left...)}); err != nil {
			return err
		}
	case len(classes) > 0:
		t := view.Table(classes, c.Verbose)
		if err := t.Write(p.app.Out, c.Plain); err != nil {
			return cli.OutError(err)
		}
	}
	failed := 0
	for _, c := range classes {
		failed += len(c.Failed)
		for _, why := range c.Failed {
			p.app.Warn("tensor %s", plaintext.Escape(why))
		}
	}
	p.app.Note("%s", view.Summary(classes))
	if failed > 0 {
		return cli.Check("%d matrices have values that are not finite; they are left out", failed)
	}
	return nil
}
