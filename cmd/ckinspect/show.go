package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/facts"
	"ck/internal/facts/view"
	"ck/internal/inspect"
)

// showOptions are the flags of "show".
type showOptions struct {
	tensorOptions
	context  int
	hash     bool
	all      bool
	diffable bool
	template bool
}

const showLong = `Shows what a model file says and what follows from it: architecture, parameters, bits by class of tensors, memory, bytes that a generated token reads, tokenizer, chat template, metadata.

MODEL is a GGUF file, the first part of a split one, a safetensors file, or a model folder; models that ckrun cannot run are shown too. A file that is damaged ends with code 1 and what is wrong where.

  ckinspect show model.gguf
  ckinspect show model.gguf --tensors attn_q --hash
  diff <(ckinspect show --diffable a.gguf) <(ckinspect show --diffable b.gguf)`

func (p *program) showCommand() {
	o := &p.show
	c := p.app.NewCommand("show [flags] MODEL", "what a model file says, and what follows from it", showLong, p.runShow)
	g := cli.NewGroup(c.Flags(), "Result")
	g.Text(&o.expr, "tensors", "", "", "REGEX", "list the tensors whose names match; . lists all")
	g.Bool(&o.hash, "hash", "", "list tensors with the SHA-256 of their bytes")
	g.Int(&o.context, "context", "c", 0, 1, 1<<30, "N", "positions that memory is told for; default: the model's")
	g.Bool(&o.all, "all", "", "metadata whole: long texts and arrays")
	g.Bool(&o.template, "template", "", "print the chat template, and nothing else")
	g.Bool(&o.diffable, "diffable", "", "one fact a line, without paths and offsets")
}

// runShow is ckinspect show.
func (p *program) runShow(c *cobra.Command, args []string) error {
	o := &p.show
	match, err := o.match()
	if err != nil {
		return err
	}
	m, err := p.openModel("show", args)
	if e := (*inspect.InputError)(nil); errors.As(err, &e) && e.Damaged {
		return cli.Check("%w", err)
	}
	if err != nil {
		return err
	}
	defer m.Close()
	opt := facts.Options{Context: o.context, Hash: o.hash}
	if opt.Chosen, err = m.Chosen(match); err != nil {
		return err
	}
	if opt.Workers, err = p.workers(); err != nil {
		return err
	}
	total := int64(0)
	for _, t := range opt.Chosen {
		total += t.Bytes()
	}
	if o.hash {
		bar := p.app.NewProgress("hashing", "MB", max(1, total/1e6))
		defer bar.Done()
		opt.At = func(n int64) { bar.Reach(float64(n) / 1e6) }
	}
	var f *facts.Facts
	if err := m.Guard(func() (err error) {
		f, err = facts.Of(c.Context(), m, opt)
		return err
	}); err != nil {
		return err
	}
	return p.printFacts(f)
}

func (p *program) printFacts(f *facts.Facts) error {
	o, c := &p.show, &p.app.Common
	for _, w := range f.Wrong {
		p.app.Warn("%s", w)
	}
	switch {
	case o.template && f.Template == "":
		return cli.Input("the model has no chat template")
	case o.template:
		_, err := fmt.Fprintln(p.app.Text(), f.Template)
		return cli.OutError(err)
	case c.JSONL:
		return cli.PrintLines(p.app, "ck.inspect.show.tensor/1", f.Tensors)
	case c.JSON:
		return p.app.PrintJSON(struct {
			Schema string `json:"schema"`
			*facts.Facts
		}{"ck.inspect.show/1", f})
	case o.diffable:
		return cli.OutError(view.Diffable(p.app.Out, f))
	}
	for i, s := range view.Sections(f, view.Options{All: o.all, Tensors: o.hash || o.expr != ""}) {
		if i > 0 && !c.Plain {
			if _, err := fmt.Fprintln(p.app.Text()); err != nil {
				return cli.OutError(err)
			}
		}
		if err := s.Table.Write(p.app.Out, c.Plain); err != nil {
			return cli.OutError(err)
		}
	}
	p.app.Note("%s", view.Summary(f))
	return nil
}
