package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/attention"
	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/linalg"
	"ck/internal/plaintext"
	"ck/internal/quality"
	"ck/internal/verdict"
	"ck/internal/verdict/measure"
	"ck/internal/verdict/view"
)

// verdictOptions are the flags of "verdict".
type verdictOptions struct {
	tensorOptions
	textOptions
	from []string
	all  bool
}

const verdictLong = `Settles what is claimed about weights and attention on models of yours: a table of claims with what was measured and whether it holds. Answers are yes, no, can't tell (the model is too small for the claim) and open (something was not measured; -v has the command that closes it).

Of models with more than 32 Mi weights in layers it decomposes the first, the middle and the last layer of each class; --all takes every matrix. Pairs of layers are compared all. Claims about attention need a text (-f); those about speed and types of weights are judged by results of ckbench run, ckquant plan and cktopo plan (--from).

Several models get a column each. -v adds to each claim its source, the command that reproduces it and what it means for the engine.

  ckinspect verdict model.gguf -f text.txt -v
  ckinspect verdict small.gguf large.gguf -f text.txt --from bench.json --from plan.json`

func (p *program) verdictCommand() {
	o := &p.verdict
	c := p.app.NewCommand("verdict [flags] MODEL…", "settle what is claimed about weights", verdictLong, p.runVerdict)
	g := cli.NewGroup(c.Flags(), "Matrices")
	p.tensorFlags(g, &o.tensorOptions)
	g.Bool(&o.all, "all", "", "decompose every matrix of large models too")
	g = cli.NewGroup(c.Flags(), "Text")
	p.textFlags(g, &o.textOptions)
	g = cli.NewGroup(c.Flags(), "Other programs")
	g.Texts(&o.from, "from", "", "FILE", "a result of ckbench run, ckquant plan or cktopo plan (--json)")
}

// The width of what is printed, as far as words allow: with one model, and more with each further one.
const (
	verdictColumns = 80
	modelColumns   = 20
)

// judgedModel is the verdicts on a model.
type judgedModel struct {
	view.Model
	Path string         `json:"path"`
	Left []measure.Left `json:"left_out"`
}

// runVerdict is ckinspect verdict.
func (p *program) runVerdict(c *cobra.Command, args []string) error {
	o := &p.verdict
	if m := p.app.Common.Model; m != "" {
		args = append([]string{m}, args...)
	}
	if len(args) == 0 {
		return cli.Usage("verdict: takes MODEL; see ckinspect verdict --help")
	}
	others, err := readOthers(o.from)
	if err != nil {
		return err
	}
	words := ""
	if o.name != "" {
		if words, err = p.app.ReadText(o.name); err != nil {
			return err
		}
	}
	var models []judgedModel
	for _, path := range args {
		m, err := p.judge(c.Context(), path, words, others)
		if err != nil {
			return err
		}
		models = append(models, m)
	}
	return p.printVerdict(models)
}

// readOthers reads the results of other programs.
func readOthers(names []string) (verdict.Others, error) {
	var o verdict.Others
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return o, err
		}
		err = o.Read(name, f)
		f.Close()
		if err != nil {
			return o, cli.Input("--from: %v", err)
		}
	}
	return o, nil
}

// judge measures a model and judges the claims on it.
func (p *program) judge(ctx context.Context, path, words string, others verdict.Others) (judgedModel, error) {
	j := judgedModel{Path: path, Model: view.Model{Name: strings.TrimSuffix(filepath.Base(filepath.Clean(path)), ".gguf")}}
	if j.Name == "model" || j.Name == "hf" { // one of many: its folder has the name
		j.Name = filepath.Base(filepath.Dir(path))
	}
	f := &verdict.Figures{Others: others}
	var err error
	if j.Left, err = p.weigh(ctx, path, f); err != nil {
		return j, err
	}
	if words != "" {
		if err := p.attend(ctx, path, words, f); err != nil {
			return j, err
		}
	}
	j.Rows = verdict.Judge(f)
	return j, nil
}

// weigh takes the figures of the weights.
func (p *program) weigh(ctx context.Context, path string, f *verdict.Figures) ([]measure.Left, error) {
	o := &p.verdict
	m, err := p.openPath(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	list, _, err := p.matrices(m, &o.tensorOptions)
	if err != nil {
		return nil, err
	}
	opt := measure.Options{All: o.all, Memory: p.memoryLeft()}
	if opt.Workers, err = p.workers(); err != nil {
		return nil, err
	}
	tier, err := p.tier()
	if err != nil {
		return nil, err
	}
	opt.Width = linalg.WidthOf(tier)
	bar := p.app.NewProgress("weighing", "%", 100)
	defer bar.Done()
	opt.At = func(done float64) { bar.Reach(100 * done) }
	return measure.Weights(ctx, m, list, f, opt)
}

// attend takes the figures of attention, and of pruned weights. A model that cannot be run says why, and stays open.
func (p *program) attend(ctx context.Context, path, words string, f *verdict.Figures) error {
	m, text, err := modelAndText(path, words, &p.verdict.textOptions)
	if err == nil {
		defer m.Close()
		f.Attention, f.Dropped, err = p.lookAt(ctx, m, text, attention.Options{}, []float64{0.8, 0.9, 0.95})
	}
	if err == nil {
		err = p.prune(ctx, m, text, f)
	}
	var opened *generate.InputError
	var model *engine.ModelError
	if errors.As(err, &opened) || errors.As(err, &model) {
		f.Unseen = "the model cannot be run here: " + cli.Line(err)
		return nil
	}
	return err
}

// prune takes the figures of a model without half of its weights.
func (p *program) prune(ctx context.Context, m *generate.Model, text quality.Text, f *verdict.Figures) (err error) {
	o := measure.Prune{Engine: p.engineOptions(), Memory: p.memoryLeft()}
	o.Engine.MemLimit /= 2 // two models run side by side
	if o.Workers, err = p.workers(); err != nil {
		return err
	}
	bar := p.app.NewProgress("pruning", "tokens", o.Tokens(text))
	defer bar.Done()
	o.At = bar.At
	f.Pruned, f.Unpruned, err = o.Of(ctx, m.Weights, text)
	return err
}

func (p *program) printVerdict(models []judgedModel) error {
	c := &p.app.Common
	var list []view.Model
	for i := range models {
		list = append(list, models[i].Model)
		models[i].Left = append([]measure.Left{}, models[i].Left...)
	}
	var err error
	switch {
	case c.JSONL:
		err = cli.PrintLines(p.app, "ck.inspect.verdict.claim/1", verdictLines(models))
	case c.JSON:
		err = p.app.PrintJSON(struct {
			Schema string        `json:"schema"`
			Text   string        `json:"text,omitempty"`
			Models []judgedModel `json:"models"`
		}{"ck.inspect.verdict/1", p.verdict.name, models})
	case c.Plain:
		t := view.Facts(list)
		err = cli.OutError(t.Write(p.app.Out, true))
	default:
		t := view.Table(list, verdictColumns+modelColumns*(len(list)-1))
		err = cli.OutError(t.Write(p.app.Out, false))
		if err == nil && c.Verbose {
			_, err = fmt.Fprint(p.app.Text(), view.Paragraphs(list, verdictColumns))
			err = cli.OutError(err)
		}
	}
	if err != nil {
		return err
	}
	failed := 0
	for i := range models {
		for _, l := range models[i].Left {
			failed++
			p.app.Warn("%s: tensor %s: %s", models[i].Name, plaintext.Escape(l.Name), l.Why)
		}
		name := ""
		if len(models) > 1 {
			name = plaintext.Escape(models[i].Name) + ": "
		}
		p.app.Note("%s%s", name, view.Summary(&list[i]))
	}
	if failed > 0 {
		return cli.Check("%d matrices could not be measured; they are left out", failed)
	}
	return nil
}

// verdictLine is a claim on a model.
type verdictLine struct {
	Model string `json:"model"`
	verdict.Row
}

func verdictLines(models []judgedModel) (lines []verdictLine) {
	for i := range models {
		for _, r := range models[i].Rows {
			lines = append(lines, verdictLine{models[i].Name, r})
		}
	}
	return lines
}
