package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ck/internal/cli"
	"ck/internal/gguf"
	"ck/internal/plaintext"
	"ck/internal/quant"
	"ck/internal/synth"
)

// synthOptions are the flags of ckbench synth.
type synthOptions struct {
	out                 string
	force, pure, dryRun bool
	seed                int
	sizes               synth.Sizes
}

const synthLong = `Writes a GGUF file with random weights in the shape of a real model, or in that of a llama of the given sizes. Its vocabulary has the true size and merges English text to about four characters a token, as real ones do; it has the family's control tokens and a chat template. It is as fast as the real model, and what it says means nothing; llama.cpp loads it as well.

TYPE is the name of a recipe (Q4_K_M, Q5_K_S, IQ4_XS, …: what llama-quantize makes of the model) or of a block type (Q4_K, MXFP4, …) for all matrices. Names that are both, such as Q6_K, are recipes unless --pure.

  ckbench synth qwen3-0.6b Q8_0 -o q.gguf
  ckbench synth llama-3.1-8b Q4_K_M --layers 4 -o part.gguf
  ckbench synth Q4_0 --layers 12 --hidden 768 --ffn 2048 --heads 12 --vocab 32000 -o own.gguf`

func (p *program) synthCommand() {
	o := &p.synth
	c := p.app.NewCommand("synth [flags] [SHAPE] TYPE", "write a model with random weights",
		synthLong+"\n\nShapes: "+strings.Join(synth.Names(), ", ")+".\nRecipes: "+strings.Join(quant.RecipeNames(), ", ")+".", p.runSynth)
	cli.CompleteWords(c, false, slices.Concat(synth.Names(), quant.RecipeNames()), quant.RecipeNames())
	g := cli.NewGroup(c.Flags(), "Output")
	g.Text(&o.out, "output", "o", "", "FILE", "the file to write; - is stdout")
	g.Bool(&o.force, "force", "", "overwrite the file")
	g.Bool(&o.dryRun, "dry-run", "", "say what would be written: tensors and bytes by type")
	g = cli.NewGroup(c.Flags(), "Shape")
	for _, e := range o.sizes.List() {
		g.Int(e.Value, e.Name, "", 0, 1, 1<<24, "N", e.Usage)
	}
	g.Bool(&o.pure, "pure", "", "TYPE is a block type for all matrices, also where a recipe has its name")
	g.Int(&o.seed, "seed", "s", 1, 0, 1<<31-1, "N", "seed of the weights")
}

// runSynth is ckbench synth.
func (p *program) runSynth(c *cobra.Command, args []string) error {
	o := &p.synth
	name, s, typ, err := o.shape(args)
	if err != nil {
		return err
	}
	tensors, fileType, err := o.tensors(s, typ)
	if err != nil {
		return err
	}
	size := synth.Bytes(tensors)
	switch {
	case o.dryRun:
		return p.printTensors(tensors)
	case o.out == "":
		return cli.Usage("-o/--output: needs a file name for %d MB; see ckbench synth --help", size/1e6)
	case o.out == "-" && cli.IsTerminal(p.app.Out):
		return cli.Usage("-o/--output: a model cannot be shown on a terminal; name a file")
	}
	if err := roomFor(o.out, size); err != nil {
		return err
	}
	f, err := p.app.Create(o.out, o.force)
	if err != nil {
		return err
	}
	defer f.Abort()
	bar := p.app.NewProgress("writing "+o.out, "MB", size/1e6)
	defer bar.Done()
	ctx := c.Context()
	err = synth.WriteTensors(f, name, s, tensors, fileType, uint64(o.seed), func(done int64) error {
		bar.At(done / 1e6)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	})
	if err != nil {
		return cli.OutError(err)
	}
	return f.Commit()
}

// roomFor refuses a file that the disk has no room for, before hours of writing.
func roomFor(path string, size int64) error {
	var st unix.Statfs_t
	dir := filepath.Dir(path)
	if path == "-" || unix.Statfs(dir, &st) != nil {
		return nil // what is wrong with the folder is said when the file is made
	}
	if left := int64(st.Bavail) * st.Bsize; left < size {
		return cli.Resource("%s: the model takes %d MB, the disk has %d MB left; make room or write elsewhere", path, size/1e6, left/1e6)
	}
	return nil
}

// shape reads the words and the flags of the shape.
func (o *synthOptions) shape(args []string) (name string, s synth.Shape, typ string, err error) {
	switch len(args) {
	case 1:
		name, typ = "custom", args[0]
		if missing := o.sizes.Missing(); missing != "" {
			return "", s, "", cli.Usage("--%s: is needed for a shape of your own; or name one of %s", missing, strings.Join(synth.Names(), ", "))
		}
		s = o.sizes.Own(synth.Shape{Arch: "llama", Context: 32768, RopeBase: 1e4})
	case 2:
		name, typ = args[0], args[1]
		if s, err = synth.Find(name); err != nil {
			return "", s, "", cli.Usage("synth: %v", err)
		}
	default:
		return "", s, "", cli.Usage("synth: takes SHAPE and TYPE; see ckbench synth --help")
	}
	s = o.sizes.In(s)
	if err := s.Check(); err != nil {
		return "", s, "", cli.Usage("synth: %v", err)
	}
	return name, s, typ, nil
}

// tensors gives the shape's tensors their types.
func (o *synthOptions) tensors(s synth.Shape, typ string) ([]gguf.TensorInfo, int, error) {
	if r, ok := quant.FindRecipe(typ); ok && !o.pure {
		return s.Mixed(r), r.FileType, nil
	}
	t, ok := quant.Parse(typ)
	switch {
	case !ok:
		return nil, 0, cli.Usage("synth: %q is neither a recipe (%s) nor a block type", typ, strings.Join(quant.RecipeNames(), ", "))
	case !weightType(t):
		return nil, 0, cli.Usage("synth: %s is no type of weights; choose another one", t)
	}
	return s.Pure(t), 0, nil
}

// weightType reports whether matrices of models may have the type.
func weightType(t quant.Type) bool {
	switch t {
	case quant.I8, quant.I16, quant.I32, quant.I64, quant.F64, quant.Q8_1, quant.Q8_K:
		return false
	}
	return true
}

// printTensors says how many tensors and bytes there are of each type.
func (p *program) printTensors(tensors []gguf.TensorInfo) error {
	type row struct {
		Type    string `json:"type"`
		Tensors int    `json:"tensors"`
		Bytes   int64  `json:"bytes"`
	}
	var rows []row
	at := map[quant.Type]int{}
	for i, t := range tensors {
		j, ok := at[t.Type]
		if !ok {
			j = len(rows)
			at[t.Type], rows = j, append(rows, row{Type: t.Type.String()})
		}
		rows[j].Tensors++
		rows[j].Bytes += synth.Bytes(tensors[i : i+1])
	}
	if p.app.Common.JSONL {
		return cli.PrintLines(p.app, "ck.bench.synth.type/1", rows)
	}
	if p.app.Common.JSON {
		return p.app.PrintJSON(struct {
			Schema string `json:"schema"`
			Bytes  int64  `json:"bytes"`
			Types  []row  `json:"types"`
		}{"ck.bench.synth/1", synth.Bytes(tensors), rows})
	}
	t := plaintext.Table{Head: []string{"type", "tensors", "bytes"}, Right: []bool{false, true, true}}
	for _, r := range rows {
		t.Rows = append(t.Rows, []string{r.Type, fmt.Sprint(r.Tensors), fmt.Sprint(r.Bytes)})
	}
	t.Rows = append(t.Rows, []string{"all", fmt.Sprint(len(tensors)), fmt.Sprint(synth.Bytes(tensors))})
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
