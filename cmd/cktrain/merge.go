package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"ck/internal/adapter"
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

const mergeLong = `Writes a model with an adapter added to its matrices, as ckrun runs it. ADAPTER is a file as llama.cpp has it, or a folder of PEFT. Matrices keep their float types; quantized ones that the adapter changes become --type, which ckquant quantizes again.`

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
	a, err := readAdapter(args[0], m)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return err
		}
		return cli.Input("%w", err)
	}
	f, err := p.app.Create(args[1], p.out.force)
	if err != nil {
		return err
	}
	defer f.Abort()
	typ := map[string]quant.Type{"bf16": quant.BF16, "f16": quant.F16, "f32": quant.F32}[p.out.typ]
	if err := train.Merge(f, m, a, typ); err != nil {
		return err
	}
	p.app.Info("%d matrices have changed", len(a.Targets))
	return f.Commit()
}

// readAdapter reads an adapter: a folder is PEFT's, a file llama.cpp's.
func readAdapter(path string, m *gguf.Model) (*adapter.Adapter, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return adapter.ReadPEFT(path, m, "")
	}
	return adapter.ReadGGUF(path, m)
}
