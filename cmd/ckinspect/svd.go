package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/inspect"
	"ck/internal/isa"
	"ck/internal/linalg"
	"ck/internal/plaintext"
	"ck/internal/spectra"
	"ck/internal/spectra/view"
	"ck/internal/topo"
)

// svdOptions are the flags of "svd".
type svdOptions struct {
	tensorOptions
	exact, gram bool
	rank        int
	bootstrap   int
	residual    string
	plain       string
	resume      string
	pictureOptions
}

const svdLong = `Computes all singular values of each matrix, and says what they mean: how many hold 90 and 99 % of the energy, stable rank and entropy rank, whether the squared values end in a power law (alpha; "fits" only where it is likelier than an exponential and a lognormal tail), how many values noise does not explain (spikes, past the Marchenko–Pastur edge).

Matrices with both sides up to 1,024 are decomposed directly. Of others the eigenvalues of the Gram matrix of the shorter side are taken, with sums in float64: -v says how far the smallest value may be off. --exact takes the direct way everywhere, --gram never.

MODEL is a GGUF or safetensors file, a model folder, or a matrix of numpy (.npy).

  ckinspect svd model.gguf --tensors 'blk\.0\.ffn_(up|down)' --png spectra.png
  ckinspect svd model.gguf --resume spectra.journal --json > spectra.json`

func (p *program) svdCommand() {
	o := &p.svd
	c := p.app.NewCommand("svd [flags] MODEL", "singular values, and what they mean", svdLong, p.runSVD)
	g := cli.NewGroup(c.Flags(), "Matrices")
	p.tensorFlags(g, &o.tensorOptions)
	g = cli.NewGroup(c.Flags(), "Method")
	g.Bool(&o.exact, "exact", "", "decompose large matrices directly: small values exact, minutes instead of seconds")
	g.Bool(&o.gram, "gram", "", "take the Gram matrix for small ones too")
	g.Text(&o.resume, "resume", "", "", "FILE", "keep results in FILE, and do not compute those again that it has")
	g = cli.NewGroup(c.Flags(), "Result")
	g.Int(&o.rank, "rank", "", 0, 1, 1<<30, "R", "say what the best matrix of this rank keeps of the energy")
	g.Int(&o.bootstrap, "bootstrap", "", 0, 1, 1<<20, "N", "goodness of the power law from N synthetic sets; 2500 give two digits")
	g.Text(&o.residual, "residual", "", "", "TYPE", "errors of leading vectors in F16 and the rest in TYPE, against --plain-type at equal bits")
	g.Text(&o.plain, "plain-type", "", "q4_k", "TYPE", "the type alone that --residual is held against")
	p.pictureFlags(g, &o.pictureOptions)
}

// runSVD is ckinspect svd.
func (p *program) runSVD(c *cobra.Command, args []string) error {
	o := &p.svd
	opt, err := p.spectraOptions()
	if err != nil {
		return err
	}
	pictures, err := p.openPictures(&o.pictureOptions)
	if err != nil {
		return err
	}
	defer pictures.abort()
	m, err := p.openModel("svd", args)
	if err != nil {
		return err
	}
	defer m.Close()
	list, left, err := p.matrices(m, &o.tensorOptions)
	if err != nil {
		return err
	}
	if err := o.checkRank(list); err != nil {
		return err
	}
	if o.resume != "" {
		if opt.Journal, err = inspect.OpenJournal(o.resume, m.Key("svd", opt.Method, opt.Rank, opt.Bootstrap, opt.Residual)); err != nil {
			return err
		}
		defer opt.Journal.Close()
	}
	results, err := p.measureSpectra(c.Context(), m, list, opt)
	if err != nil {
		return err
	}
	if err := p.drawSpectra(m, results, pictures); err != nil {
		return err
	}
	if err := p.printSpectra(m, results, left); err != nil {
		return err
	}
	return failedSpectra(results)
}

// spectraOptions are those of the flags and of the machine.
func (p *program) spectraOptions() (spectra.Options, error) {
	o := &p.svd
	opt := spectra.Options{Rank: o.rank, Bootstrap: o.bootstrap}
	switch {
	case o.exact && o.gram:
		return opt, cli.Usage("--exact, --gram: take one of them")
	case o.exact:
		opt.Method = linalg.Direct
	case o.gram:
		opt.Method = linalg.ByGram
	}
	if o.residual != "" {
		opt.Residual = &spectra.Residue{}
		for _, t := range []struct {
			flag, name string
		}{{"residual", o.residual}, {"plain-type", o.plain}} {
			typ, near := convert.FindType(t.name)
			if near != nil {
				return opt, cli.Usage("--%s: %q is no type of weights; near are %s", t.flag, t.name, strings.Join(near, ", "))
			}
			if t.flag == "residual" {
				opt.Residual.Rest = typ
			} else {
				opt.Residual.Plain = typ
			}
		}
	}
	var err error
	if opt.Workers, err = p.workers(); err != nil {
		return opt, err
	}
	tier, err := p.tier()
	opt.Width, opt.Memory = linalg.WidthOf(tier), p.memoryLeft()
	return opt, err
}

// checkRank refuses a rank that a matrix cannot have.
func (o *svdOptions) checkRank(list []inspect.Matrix) error {
	for i := range list {
		if short := min(list[i].Rows, list[i].Cols); o.rank > short {
			return cli.Usage("--rank %d: tensor %s has a rank of %d at most", o.rank, plaintext.Escape(list[i].Name), short)
		}
	}
	return nil
}

func (p *program) measureSpectra(ctx context.Context, m *inspect.Model, list []inspect.Matrix, opt spectra.Options) ([]spectra.Result, error) {
	bar := p.app.NewProgress("decomposing", "%", 100)
	defer bar.Done()
	opt.At = func(done float64) { bar.Reach(100 * done) }
	return spectra.Of(ctx, m, list, opt)
}

// drawSpectra draws the values of the first matrices.
func (p *program) drawSpectra(m *inspect.Model, results []spectra.Result, files pictures) error {
	if len(files) == 0 {
		return nil
	}
	for i := range results {
		if results[i].Figures != nil && results[i].Largest > 0 {
			return files.draw(view.Chart(plaintext.Escape(filepath.Base(m.Path)), results).Draw)
		}
	}
	return cli.Input("%s: no spectrum to draw", m.Path)
}

func (p *program) printSpectra(m *inspect.Model, results []spectra.Result, left []inspect.Left) error {
	c := &p.app.Common
	switch {
	case c.JSONL:
		return cli.PrintLines(p.app, "ck.inspect.svd.tensor/1", results)
	case c.JSON:
		return p.app.PrintJSON(struct {
			Schema  string           `json:"schema"`
			Model   string           `json:"model"`
			Tensors []spectra.Result `json:"tensors"`
			Left    []inspect.Left   `json:"left_out"`
		}{"ck.inspect.svd/1", m.Path, results, append([]inspect.Left{}, left...)})
	}
	t := view.Table(results, c.Verbose)
	if err := t.Write(p.app.Out, c.Plain); err != nil {
		return cli.OutError(err)
	}
	for i := range results {
		if r := &results[i]; r.Failed != "" {
			p.app.Warn("tensor %s: %s", plaintext.Escape(r.Name), r.Failed)
		}
	}
	if p.svd.residual != "" {
		p.app.Note("leading vectors are those of a randomized range finder; errors are squared, for the energy of the matrix")
	}
	p.app.Note("%s", view.Summary(results))
	return nil
}

// failedSpectra is the end of a run of which some matrices could not be measured.
func failedSpectra(results []spectra.Result) error {
	failed := 0
	for i := range results {
		if results[i].Failed != "" {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return cli.Check("%d of %d matrices could not be measured; their rows say why", failed, len(results))
}

// tier is that of --cpu, or the best one here.
func (p *program) tier() (isa.Tier, error) {
	f, name := isa.Detect(), p.app.Common.CPU
	if name == "" {
		return isa.Best(f), nil
	}
	t, err := isa.Parse(name)
	if err != nil {
		return t, cli.Usage("--cpu: %v", err)
	}
	return t, isa.Check(t, f)
}

// memoryLeft is the bytes that may be taken: --mem-limit, else what the machine has left; 0: unknown.
func (p *program) memoryLeft() int64 {
	if n := p.app.Common.MemLimit; n > 0 {
		return n
	}
	m, err := topo.Live()
	if err != nil {
		return 0
	}
	left, _, _ := m.Budget()
	return left
}

// classifySpectra gives the exit codes of errors of spectra.
func classifySpectra(err error) int {
	var (
		memory  *spectra.MemoryError
		journal *inspect.JournalError
	)
	switch {
	case errors.As(err, &memory):
		return cli.ExitResource
	case errors.As(err, &journal):
		return cli.ExitUsage
	}
	return 0
}
