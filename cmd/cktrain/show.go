package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"ck/internal/cli"
)

const showLong = `Shows slots as a run gets them: sequences, and their tokens with | between them; lines with + count in the loss, lines with - do not.`

func (p *program) showCommand() {
	c := p.app.NewCommand("show-batch [flags]", "what a model is trained with", showLong, p.runShow)
	p.data.flags(c)
	g := cli.NewGroup(c.Flags(), "Training")
	g.Int(&p.data.seed, "seed", "", 1, 0, 1<<30, "N", "order of the data")
	g.Int(&p.shown, "batch", "", 1, 1, 1<<20, "N", "slots that are shown")
}

func (p *program) runShow(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usage("show-batch: %s: takes no words; data is named with -d", args[0])
	}
	m, g, err := p.model()
	if err != nil {
		return err
	}
	defer m.Close()
	defer g.Close()
	data, err := p.dataset(c.Context(), g)
	if err != nil {
		return err
	}
	for i := range p.shown {
		s := data.Slot(i)
		fmt.Fprintf(p.app.Out, "slot %d\n", i)
		if err := s.Show(p.app.Out, g.Tok, cli.Color(p.app.Out)); err != nil {
			return cli.OutError(err)
		}
	}
	return nil
}
