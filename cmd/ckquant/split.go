package main

import (
	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/gguf"
)

// splitOptions are the flags of ckquant split.
type splitOptions struct {
	maxSize    int64
	maxTensors int
	alone      bool
}

func (p *program) splitCommands() {
	o := &p.split
	c := p.app.NewCommand("split [flags] IN OUT-PREFIX", "cut a model file into parts",
		"Writes OUT-PREFIX-00001-of-00003.gguf and so on. Tensors stay whole: one that is larger than --max-size "+
			"has a part of its own. ckrun and llama.cpp open the first part.", p.runSplit)
	g := cli.NewGroup(c.Flags(), "Parts")
	g.Size(&o.maxSize, "max-size", "", 0, "SIZE", "parts of at most SIZE")
	g.Int(&o.maxTensors, "max-tensors", "", 0, 1, 1<<30, "N",
		"parts of at most N tensors; default 128, unless --max-size")
	g.Bool(&o.alone, "no-tensor-first", "", "the first part has the keys and no tensors")
	p.out.flags(c)
	c = p.app.NewCommand("merge [flags] FIRST-PART OUT", "make one file of a split model",
		"FIRST-PART names the others. The tensors keep their bytes.", p.runMerge)
	p.out.flags(c)
}

// runSplit is ckquant split.
func (p *program) runSplit(c *cobra.Command, args []string) error {
	o := &p.split
	if o.maxSize > 0 && o.maxTensors > 0 {
		return cli.Usage("--max-size and --max-tensors: only one of them")
	}
	out := convert.Output{PartBytes: o.maxSize, PartTensors: o.maxTensors, Alone: o.alone}
	if o.maxSize == 0 && o.maxTensors == 0 {
		out.PartTensors = 128
	}
	return p.repack(c, args, out)
}

// runMerge is ckquant merge.
func (p *program) runMerge(c *cobra.Command, args []string) error {
	return p.repack(c, args, convert.Output{})
}

// repack writes IN in other parts.
func (p *program) repack(c *cobra.Command, args []string, out convert.Output) error {
	if err := words(c, args, ""); err != nil {
		return err
	}
	m, err := gguf.Open(args[0])
	if err != nil {
		return &convert.InputError{Err: err}
	}
	defer m.Close()
	tensors := make([]convert.Tensor, len(m.Tensors))
	for i, t := range m.Tensors {
		tensors[i] = convert.Tensor{From: t, Type: t.Type}
	}
	out.Path = args[1]
	return p.plan(c, m, m.KV, tensors, out)
}
