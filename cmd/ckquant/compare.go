package main

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"ck/internal/bench"
	"ck/internal/cli"
	"ck/internal/distance"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/imatrix"
	"ck/internal/plaintext"
	"ck/internal/quality"
	"ck/internal/quality/format"
)

// compareOptions are the flags of ckquant compare.
type compareOptions struct {
	file          string
	block, blocks int
	maxKLD        float64
	imatrix       string
}

const compareLong = `Says how far B is from A, which is the original: for each tensor the types, the root mean square and the largest of the errors, and the ratio of signal to noise in decibels.

With --imatrix FILE it says for each matrix the error of its outputs too: the mean square over that of A's outputs, for inputs as the file has them, their covariances if they were gathered (ckquant imatrix --covariance).

With -f TEXT both models evaluate the text at once, in blocks of --ctx-size tokens of which the second half counts: perplexities, the KL divergence over the whole vocabulary (mean, median, quantiles), how often the most probable token is the same.

  ckquant compare bf16.gguf q4.gguf -f text.txt --max-kld 0.05`

func (p *program) compareCommand() {
	o := &p.compare
	c := p.app.NewCommand("compare [flags] A B", "how far a model is from the original", compareLong, p.runCompare)
	g := cli.NewGroup(c.Flags(), "Text")
	g.Text(&o.file, "file", "f", "", "FILE", "evaluate this text with both; - is stdin")
	g.Int(&o.block, "ctx-size", "c", 512, 8, maxTokens, "N", "tokens of a block")
	g.Int(&o.blocks, "blocks", "", 0, 1, maxTokens, "N", "evaluate the first N blocks; default: all")
	g.Float(&o.maxKLD, "max-kld", "", 0, 0, math.MaxFloat64, "X",
		"end with code 1 if the mean KL divergence is above this; 0: no bound")
	g = cli.NewGroup(c.Flags(), "Weights")
	g.Text(&o.imatrix, "imatrix", "", "", "FILE", "importance matrix, GGUF or .dat: say the errors of outputs")
}

// maxTokens bounds numbers of tokens.
const maxTokens = 1 << 24

// runCompare is ckquant compare.
func (p *program) runCompare(c *cobra.Command, args []string) error {
	o := &p.compare
	switch {
	case len(args) != 2:
		return cli.Usage("compare: takes A B; see ckquant compare --help")
	case o.maxKLD > 0 && o.file == "":
		return cli.Usage("--max-kld: needs a text to evaluate (-f)")
	}
	weights, err := p.compareWeights(c.Context(), args[0], args[1])
	if err != nil {
		return err
	}
	var report *quality.Report
	if o.file != "" {
		if report, err = p.comparePair(c.Context(), args[0], args[1]); err != nil {
			return err
		}
	}
	if err := p.printCompare(weights, report); err != nil {
		return err
	}
	if report != nil && o.maxKLD > 0 && !(report.KLD.Value <= o.maxKLD) {
		return cli.Check("KL divergence: %.5f is above the bound of %g; choose a finer type", report.KLD.Value,
			o.maxKLD)
	}
	return nil
}

// compareWeights compares the tensors of two files.
func (p *program) compareWeights(ctx context.Context, a, b string) (*distance.Report, error) {
	var models [2]*gguf.Model
	total := int64(0)
	for i, path := range []string{a, b} {
		m, err := p.open(path)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		models[i] = m
	}
	for _, t := range models[0].Tensors {
		total += int64(t.Rows()) * int64(t.Cols())
	}
	workers, err := p.workers()
	if err != nil {
		return nil, err
	}
	bar := p.app.NewProgress("comparing", "M weights", max(1, total/1e6))
	defer bar.Done()
	opt := distance.Options{Workers: workers, At: func(n int64) { bar.Reach(float64(n) / 1e6) }}
	if p.compare.imatrix != "" {
		x, err := imatrix.Open(p.compare.imatrix)
		if err != nil {
			return nil, err
		}
		opt.Inputs = func(tensor string, n int) *distance.Inputs { return inputsOf(x.Find(tensor), n) }
	}
	return distance.Of(ctx, models[0], models[1], opt)
}

// inputsOf is what an importance matrix knows of the inputs of a tensor of n columns; nil: nothing that fits.
func inputsOf(e *imatrix.Entry, n int) *distance.Inputs {
	if e == nil || len(e.Sums) != n {
		return nil
	}
	return &distance.Inputs{Squares: e.Sums, Covariance: e.Covariance}
}

// comparePair evaluates the text with both models.
func (p *program) comparePair(ctx context.Context, a, b string) (*quality.Report, error) {
	o := &p.compare
	text, err := p.app.ReadText(o.file)
	if err != nil {
		return nil, err
	}
	var models [2]*generate.Model
	var engines [2]*engine.Engine
	for i, path := range []string{a, b} {
		if models[i], err = generate.Open(path); err != nil {
			return nil, err
		}
		defer models[i].Close()
		if engines[i], err = engine.Open(models[i].Weights, p.engineOptions(2)); err != nil {
			return nil, err
		}
		defer engines[i].Close()
	}
	if v, w := engines[0].Graph.Vocab, engines[1].Graph.Vocab; v != w {
		return nil, cli.Input("%s: has a vocabulary of %d, %s one of %d; compare files of one model", a, v, b, w)
	}
	blocks, err := p.cut(models[0], text, o.file, o.block, o.blocks)
	if err != nil {
		return nil, err
	}
	var names [2]string
	for i, m := range models {
		facts, err := bench.FactsOf(m)
		if err != nil {
			return nil, err
		}
		names[i] = facts.Type
	}
	bar := p.app.NewProgress("evaluating", "tokens", int64(len(blocks.IDs)))
	defer bar.Done()
	release := engines[0].Hold()
	defer release()
	base, other, err := quality.EvaluatePair(ctx, quality.OfEngine(engines[0]), quality.OfEngine(engines[1]), blocks,
		bar.At)
	if err != nil {
		return nil, err
	}
	report := other.Report(names[1], names[0], blocks)
	alone := base.Perplexity()
	report.BasePPL = &alone
	return &report, nil
}

// cut is a text as blocks of a model's ids.
func (p *program) cut(m *generate.Model, text, name string, block, most int) (quality.Text, error) {
	ids, err := m.EncodePrompt(text, generate.Encoding{})
	if err != nil {
		return quality.Text{}, err
	}
	if s := m.LostText(); s != "" {
		p.app.Warn("%s: %s", name, s)
	}
	if len(ids) < block {
		return quality.Text{}, cli.Input("%s: has %d tokens, a block takes %d; give more text or a smaller "+
			"--ctx-size", name, len(ids), block)
	}
	bos, ok := m.Tok.BOS()
	return quality.Cut(ids, block, most, bos, ok && m.Tok.AddBOS()), nil
}

// tensorDistance is a tensor in JSON.
type tensorDistance struct {
	Name  string   `json:"name"`
	A     string   `json:"a"`
	B     string   `json:"b"`
	Shape []int    `json:"shape"`
	RMSE  float64  `json:"rmse"`
	Max   float64  `json:"max"`
	SNR   *float64 `json:"snr_db"` // null: equal

	Output *float64 `json:"output_error,omitempty"` // relative mean square
}

// printCompare prints both comparisons.
func (p *program) printCompare(w *distance.Report, r *quality.Report) error {
	c := &p.app.Common
	for _, t := range w.Tensors {
		if math.IsNaN(t.RMSE) {
			return cli.Input("tensor %s: has values that are not finite; one of the files is damaged", t.Name)
		}
	}
	var list []tensorDistance
	for _, t := range w.Tensors {
		d := tensorDistance{Name: t.Name, A: t.A.String(), B: t.B.String(), Shape: t.Shape, RMSE: t.RMSE, Max: t.Max}
		if t.Output >= 0 {
			d.Output = &t.Output
		}
		if !math.IsInf(t.SNR, 0) {
			d.SNR = &t.SNR
		}
		list = append(list, d)
	}
	if c.JSONL {
		return cli.PrintLines(p.app, "ck.quant.compare.tensor/1", list)
	}
	if c.JSON {
		return p.app.PrintJSON(struct {
			Schema  string           `json:"schema"`
			Tensors []tensorDistance `json:"tensors"`
			OnlyA   []string         `json:"only_a"`
			OnlyB   []string         `json:"only_b"`
			Text    *quality.Report  `json:"text,omitempty"`
		}{"ck.quant.compare/1", list, append([]string{}, w.OnlyA...), append([]string{}, w.OnlyB...), r})
	}
	t := plaintext.Table{Head: []string{"tensor", "A", "B", "RMSE", "largest", "SNR dB"}, Right: []bool{false, false,
		false, true, true, true}}
	if p.compare.imatrix != "" {
		t.Head, t.Right = append(t.Head, "outputs"), append(t.Right, true)
	}
	for _, d := range list {
		output := ""
		if d.Output != nil {
			output = fmt.Sprintf("%.3g", *d.Output)
		}
		snr := "equal"
		if d.SNR != nil {
			snr = fmt.Sprintf("%.1f", *d.SNR)
		}
		row := []string{d.Name, d.A, d.B, fmt.Sprintf("%.3g", d.RMSE), fmt.Sprintf("%.3g", d.Max), snr, output}
		t.Rows = append(t.Rows, row[:len(t.Head)])
	}
	if err := cli.OutError(t.Write(p.app.Out, c.Plain)); err != nil {
		return err
	}
	for _, only := range []struct {
		in    string
		names []string
	}{{"A", w.OnlyA}, {"B", w.OnlyB}} {
		for _, n := range only.names {
			p.app.Warn("tensor %s is only in %s", n, only.in)
		}
	}
	if r == nil {
		return nil
	}
	if !c.Plain {
		if _, err := fmt.Fprintln(p.app.Text()); err != nil {
			return cli.OutError(err)
		}
	}
	text := format.Table(*r)
	return cli.OutError(text.Write(p.app.Out, c.Plain))
}
