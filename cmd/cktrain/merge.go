package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/train"
)

// mergeOptions are the flags of cktrain merge.
type mergeOptions struct {
	force bool
	typ   string
}

const mergeLong = `Writes a model with an adapter added to its matrices, as ckrun runs it. Matrices keep their float types; quantized ones that the adapter changes become --type, which ckquant quantizes again.`

func (p *program) mergeCommand() {
	c := p.app.NewCommand("merge [flags] ADAPTER OUT", "add an adapter to its model", mergeLong, p.runMerge)
	g := cli.NewGroup(c.Flags(), "Output")
	g.Bool(&p.out.force, "force", "", "overwrite OUT")
	g.Enum(&p.out.typ, "type", "", "bf16", "TYPE", []string{"bf16", "f16", "f32"}, "type of quantized matrices that change")
}

func (p *program) runMerge(_ *cobra.Command, args []string) error {
	if len(args) != 2 {
		return cli.Usage("merge: takes ADAPTER OUT; see cktrain merge --help")
	}
	if p.app.Common.Model == "" {
		return cli.Usage("no model: name the one that the adapter was trained beside with -m")
	}
	m, err := convert.Open(p.app.Common.Model, true)
	if err != nil {
		return err
	}
	defer m.Close()
	a, err := gguf.Open(args[0])
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return err
		}
		return cli.Input("%w", err)
	}
	defer a.Close()
	products, err := train.ReadAdapter(a, m)
	if err != nil {
		return cli.Input("%s: %w", args[0], err)
	}
	f, err := p.app.Create(args[1], p.out.force)
	if err != nil {
		return err
	}
	defer f.Abort()
	typ := map[string]quant.Type{"bf16": quant.BF16, "f16": quant.F16, "f32": quant.F32}[p.out.typ]
	if err := train.Merge(f, m, products, typ); err != nil {
		return err
	}
	p.app.Info("%d matrices have changed", len(products))
	return f.Commit()
}
