package main

import (
	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/findings"
	"ck/internal/page"
	"ck/internal/probe"
)

func (p *program) checkCommand() {
	c := p.app.NewCommand("check [flags]", "say what is wrong with the machine for a model, and the command that mends it",
		`Looks at what slows models down or stops them: each finding has its effect and the command that mends it. Where a program can measure the effect on this machine without being root, it does, in a second or two with all cores busy ("measured here"); other effects follow from this machine's own numbers ("computed"), or are known from elsewhere ("stated"). A saved tree is not measured.

With --model it looks where the pages of that file lie: on which memory nodes, and how fast cores of a near and of a far node read them. It does not read the file from the disk.

serious: costs a model much of its speed, or stops it. minor: costs a little, or only at times. note: good to know. Exits with 1 if anything is serious.`,
		func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usage("check: takes no words; see cktopo check --help")
			}
			return p.check()
		})
	g := cli.NewGroup(c.Flags(), "Measuring")
	g.Bool(&p.noMeasure, "no-measure", "", "look at settings only")
	p.widthFlag(cli.NewGroup(c.Flags(), "Showing"))
}

// check prints the findings; a serious one is exit code 1.
func (p *program) check() error {
	if p.root != "" && p.app.Given("model") {
		return cli.Usage("check: --model looks where a file lies in this machine's memory; leave out --root")
	}
	survey, err := p.survey()
	if err != nil {
		return err
	}
	s := &findings.Subject{Survey: &survey}
	if p.root == "" {
		if s.Model, err = p.modelPages(); err != nil {
			return err
		}
		if !p.noMeasure {
			s.Here = probe.Here(&survey, p.app.Common.Threads, s.Model)
		}
	}
	r := findings.Check(s)
	switch c := &p.app.Common; {
	case c.JSONL:
		err = cli.PrintLines(p.app, "ck.topo.check.finding/1", r.Findings)
	case c.JSON:
		err = p.app.PrintJSON(r)
	default:
		err = cli.OutError(page.WriteReport(p.app.Text(), &r, c.Plain, p.columns(page.Width)))
	}
	if err == nil && r.Matters > 0 {
		err = &cli.Error{Code: cli.ExitCheck}
	}
	return err
}

// modelPages looks at the files of --model; nil if none is named.
func (p *program) modelPages() (*probe.FilePages, error) {
	name := p.app.Common.Model
	if name == "" {
		return nil, nil
	}
	files, err := probe.ModelFiles(name)
	if err != nil {
		return nil, cli.Input("%w", err)
	}
	pages, err := probe.LookAtFiles(files)
	if err != nil {
		return nil, cli.Input("%w", err)
	}
	return pages, nil
}
