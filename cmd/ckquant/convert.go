package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/gguf"
	"ck/internal/quant"
)

// convertOptions are the flags of ckquant convert.
type convertOptions struct{ typ string }

const convertLong = `Makes a GGUF file of IN, a Hugging Face folder or a GGUF file: the same keys, names, rows and types that llama.cpp's converter writes, with tokenizer and chat template.

--type auto keeps each tensor in its type (F64 becomes F32, FP8 with scales BF16); f32, f16, bf16 and q8_0 change the matrices. Nothing is read twice, and a few rows are in memory at a time.`

func (p *program) convertCommand() {
	c := p.app.NewCommand("convert [flags] IN OUT", "make a GGUF file of a model folder", convertLong, p.runConvert)
	cli.NewGroup(c.Flags(), "Conversion").Enum(&p.convert.typ, "type", "", "auto", "TYPE",
		[]string{"auto", "f32", "f16", "bf16", "q8_0"}, "type of the matrices")
	p.out.flags(c)
	p.out.splitFlag(c)
	p.out.compressFlag(c)
}

// runConvert is ckquant convert.
func (p *program) runConvert(c *cobra.Command, args []string) error {
	if err := words(c, args, ""); err != nil {
		return err
	}
	m, err := p.open(args[0])
	if err != nil {
		return err
	}
	defer m.Close()
	types, kv, err := p.convertTypes(m)
	if err != nil {
		return err
	}
	tensors := make([]convert.Tensor, len(types))
	for i, t := range m.Tensors {
		tensors[i] = convert.Tensor{From: t, Type: types[i]}
	}
	out := convert.Output{Path: args[1], PartBytes: p.out.partBytes, Compress: p.out.compress}
	return p.plan(c, m, kv, tensors, out, convert.Fact{Name: "--type", Value: p.convert.typ})
}

// convertTypes are the types and the metadata of the output.
func (p *program) convertTypes(m *gguf.Model) ([]quant.Type, *gguf.Metadata, error) {
	if p.convert.typ == "auto" {
		return convert.OwnTypes(m), m.KV, nil
	}
	r, pure, err := convert.FindRecipe(p.convert.typ)
	if err != nil {
		return nil, nil, err
	}
	choice := convert.Choice{Recipe: r, Pure: pure || r.Base == quant.Q8_0}
	types, notes, err := choice.Types(m)
	for _, n := range notes {
		p.app.Info("%s", n)
	}
	return types, choice.Metadata(m.KV), err
}

// plan lays out and writes.
func (p *program) plan(c *cobra.Command, m *gguf.Model, kv *gguf.Metadata, tensors []convert.Tensor,
	out convert.Output, more ...convert.Fact) error {
	if out.Compress {
		if out.PartBytes > 0 || out.As {
			return cli.Usage("--compress: writes one file; leave out --split-max-size and --keep-split")
		}
		more = append(more, convert.Fact{Name: "--compress", Value: "yes"})
	}
	plan, err := convert.NewPlan(m, kv, tensors, out)
	if err != nil {
		return err
	}
	parts := ""
	if len(plan.Parts) > 1 {
		parts = fmt.Sprintf("%d", len(plan.Parts))
	}
	if plan.Facts, err = facts(m, append(more, convert.Fact{Name: "the parts of the output",
		Value: parts})...); err != nil {
		return err
	}
	return p.write(c.Context(), plan)
}

// list is the values of a flag that may be repeated, as a fact.
func list(values []string) string { return strings.Join(values, " ") }
