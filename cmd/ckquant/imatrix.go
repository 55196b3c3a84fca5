package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/imatrix"
	"ck/internal/measure"
	"ck/internal/plaintext"
)

// imatrixOptions are the flags of ckquant imatrix.
type imatrixOptions struct {
	file, out          string
	block, blocks      int
	skip               int
	covariance, output bool
	show, resume       bool
	force              bool
}

const imatrixLong = `Runs a model over a text, in blocks of --ctx-size tokens, and gathers for each matrix how large its inputs are, column by column: the importances that quantizers weigh errors with. The file is that of llama-imatrix, GGUF, or the older form if OUT ends with .dat; the same bytes whatever the threads. --resume goes on with OUT.part, which is written every 32 blocks.

With FILES in place of a text their matrices are added up. --show prints statistics of each tensor, as llama-imatrix --show-statistics does; --json has the smallest and the largest values too.

--covariance gathers which inputs go together as well, for quantize --method feedback: 8 bytes for each pair of columns, so for small models; quantize gathers it by itself, some layers at a time.

  ckquant imatrix -m model.gguf -f text.txt -o model.imatrix.gguf
  ckquant imatrix a.gguf b.dat -o both.gguf
  ckquant imatrix model.imatrix.gguf --show`

func (p *program) imatrixCommand() {
	o := &p.imatrix
	c := p.app.NewCommand("imatrix [flags] [FILES…]", "gather what matters in a model's inputs", imatrixLong,
		p.runImatrix)
	g := cli.NewGroup(c.Flags(), "Text")
	g.Text(&o.file, "file", "f", "", "FILE", "the text; - is stdin")
	g.Int(&o.block, "ctx-size", "c", imatrix.DefaultBlock, 8, maxTokens, "N", "tokens of a block")
	g.Int(&o.blocks, "blocks", "", 0, 1, maxTokens, "N", "evaluate at most N blocks; default: all")
	g.Int(&o.skip, "skip-blocks", "", 0, 0, maxTokens, "N", "leave out the first N blocks")
	g = cli.NewGroup(c.Flags(), "Result")
	g.Text(&o.out, "output", "o", "", "FILE", "the file to write")
	g.Bool(&o.force, "force", "", "overwrite the file")
	g.Bool(&o.resume, "resume", "", "go on with FILE.part; without one, begin")
	g.Bool(&o.output, "process-output", "", "gather for the output matrix as well")
	g.Bool(&o.covariance, "covariance", "", "gather which inputs go together as well")
	g.Bool(&o.show, "show", "", "print statistics")
}

// partEvery is how many blocks lie between two files of a run that is not over.
const partEvery = 32

// runImatrix is ckquant imatrix.
func (p *program) runImatrix(c *cobra.Command, args []string) error {
	o := &p.imatrix
	switch {
	case o.file == "" && len(args) == 0:
		return cli.Usage("imatrix: takes a text (-f) or FILES to add up; see ckquant imatrix --help")
	case o.file != "" && len(args) > 0:
		return cli.Usage("imatrix: takes a text (-f) or FILES, not both; add the result up in a second call")
	case o.out == "" && !o.show:
		return cli.Usage("-o/--output: is needed: the file to write; or --show")
	case o.out == "-":
		return cli.Usage("-o/--output: name a file")
	}
	if o.out != "" && !o.force {
		if _, err := os.Lstat(o.out); err == nil {
			return cli.Usage("%s: exists; --force overwrites it", o.out)
		}
	}
	var m *imatrix.Matrix
	var err error
	if o.file != "" {
		m, err = p.gather(c.Context())
	} else {
		m, err = addUp(args)
	}
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := p.writeMatrix(m, o.out, o.force, m.Write); err != nil {
			return err
		}
		os.Remove(o.out + ".part")
	}
	if o.show {
		return p.printStatistics(m)
	}
	return nil
}

// addUp reads matrices and adds them.
func addUp(paths []string) (*imatrix.Matrix, error) {
	var sum *imatrix.Matrix
	for _, path := range paths {
		m, err := imatrix.Open(path)
		if err != nil {
			return nil, err
		}
		if sum == nil {
			sum = m
		} else if err := sum.Add(m); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return sum, nil
}

// gather runs the model over the text.
func (p *program) gather(ctx context.Context) (*imatrix.Matrix, error) {
	o := &p.imatrix
	text, err := p.app.ReadText(o.file)
	if err != nil {
		return nil, err
	}
	m, e, err := p.openEngine(p.app.Common.Model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	defer e.Close()
	opt := imatrix.Options{Block: o.block, Skip: o.skip, Most: o.blocks, Dataset: filepath.Base(o.file),
		Output: o.output}
	if o.covariance {
		if err := p.covarianceRoom(m); err != nil {
			return nil, err
		}
		opt.Covariance = func(string) bool { return true }
	}
	if o.out != "" {
		if opt, err = p.keepParts(m, e, opt); err != nil {
			return nil, err
		}
	}
	ids, err := m.EncodePrompt(text, generate.Encoding{})
	if err != nil {
		return nil, err
	}
	total := len(ids)
	if o.blocks > 0 {
		total = min(total, o.blocks*o.block)
	}
	bar := p.app.NewProgress("gathering", "tokens", int64(max(1, total)))
	defer bar.Done()
	opt.At = bar.At
	return imatrix.Collect(ctx, e, m.Tok, text, opt)
}

// keepParts makes a run write what it has so far, and go on with what an earlier one has written.
func (p *program) keepParts(m *generate.Model, e *engine.Engine, opt imatrix.Options) (imatrix.Options, error) {
	o := &p.imatrix
	hash, err := measure.ModelHash(m.Weights.Files())
	if err != nil {
		return opt, err
	}
	part := o.out + ".part"
	opt.Model, opt.Every = hash+" "+e.Tier.String(), partEvery
	opt.Save = func(x *imatrix.Matrix) error {
		return p.writeMatrix(x, part, true, func(w io.Writer, _ string) error { return x.WritePart(w) })
	}
	if !o.resume {
		return opt, nil
	}
	opt.From, err = imatrix.Open(part)
	if errors.Is(err, fs.ErrNotExist) {
		opt.From, err = nil, nil
	}
	return opt, err
}

// covarianceRoom says how large the covariances are, and refuses what memory does not hold.
func (p *program) covarianceRoom(m *generate.Model) error {
	need := int64(0)
	for _, t := range m.Weights.Tensors {
		if quantizable(t) && t.Name != "token_embd.weight" {
			need += covarianceBytes(t.Cols())
		}
	}
	p.app.Note("the covariances take %d MB, in memory and in the file", need/1e6)
	if left := p.memoryLeft(); need > left {
		return cli.Resource("--covariance: the covariances take %d MB, and %d MB are left; quantize --method "+
			"feedback -f gathers them some layers at a time", need/1e6, left/1e6)
	}
	return nil
}

// writeMatrix writes a file, whole or not at all.
func (p *program) writeMatrix(m *imatrix.Matrix, path string, force bool,
	write func(w io.Writer, path string) error) error {
	f, err := p.app.Create(path, force)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := write(f, path); err != nil {
		return err
	}
	return f.Commit()
}

// printStatistics prints the figures of all tensors.
func (p *program) printStatistics(m *imatrix.Matrix) error {
	list := m.Statistics()
	if p.app.Common.JSONL {
		return cli.PrintLines(p.app, "ck.quant.imatrix.tensor/1", list)
	}
	if p.app.Common.JSON {
		return p.app.PrintJSON(struct {
			Schema   string                    `json:"schema"`
			Datasets []string                  `json:"datasets"`
			Blocks   int                       `json:"blocks"`
			Block    int                       `json:"block_tokens"`
			Tensors  []imatrix.Statistics      `json:"tensors"`
			Layers   []imatrix.LayerStatistics `json:"layers"`
		}{"ck.quant.imatrix/1", m.Datasets, m.Chunks, m.ChunkSize, list, imatrix.ByLayer(list)})
	}
	t := plaintext.Table{Head: []string{"tensor", "sum", "mean", "active", "entropy", "share", "ZD", "cosine"},
		Right: []bool{false, true, true, true, true, true, true, true}}
	for _, s := range list {
		t.Rows = append(t.Rows, []string{s.Tensor, fmt.Sprintf("%.4g", s.Sum), fmt.Sprintf("%.3g", s.Mean),
			fmt.Sprintf("%.0f %%", 100*s.Active), fmt.Sprintf("%.2f", s.Entropy),
			fmt.Sprintf("%.1f %%", 100*s.Evenness), fmt.Sprintf("%.1f %%", 100*s.ZD),
			fmt.Sprintf("%.4f", s.Similarity)})
	}
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
