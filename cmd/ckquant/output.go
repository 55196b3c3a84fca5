package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/cost"
	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/humanize"
	"ck/internal/isa"
	"ck/internal/measure"
	"ck/internal/plaintext"
	"ck/internal/topo"
)

// outputOptions are the flags of commands that write models.
type outputOptions struct {
	force, resume, dryRun bool
	partBytes             int64
	noTokenizer           bool
	compress              bool
}

func (o *outputOptions) flags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Output")
	g.Bool(&o.force, "force", "", "overwrite OUT, and start an unfinished one anew")
	g.Bool(&o.resume, "resume", "", "go on where an earlier run ended; without one, begin")
	g.Bool(&o.dryRun, "dry-run", "", "say what would be written, to the byte; -v names every tensor")
}

func (o *outputOptions) splitFlag(c *cobra.Command) {
	cli.NewGroup(c.Flags(), "Input").Bool(&o.noTokenizer, "no-tokenizer", "",
		"a folder without a tokenizer is no error; ckrun then takes ids alone")
	cli.NewGroup(c.Flags(), "Output").Size(&o.partBytes, "split-max-size", "", 0, "SIZE",
		"write parts of at most SIZE, OUT-00001-of-00002.gguf and so on")
}

func (o *outputOptions) compressFlag(c *cobra.Command) {
	cli.NewGroup(c.Flags(), "Output").Bool(&o.compress, "compress", "",
		"store matrices compressed, without loss; only ck's programs read such files")
}

// words are IN and OUT, and up to more words behind them.
func words(c *cobra.Command, args []string, more string) error {
	want := 2
	if more != "" {
		want++
	}
	if len(args) != want {
		return cli.Usage("%s: takes IN OUT%s; see ckquant %s --help", c.Name(), more, c.Name())
	}
	if args[1] == "-" {
		return cli.Usage("%s: OUT is written in many places at once; name a file", c.Name())
	}
	return nil
}

// modelWord is the model of commands that take one: -m, or their only word.
func (p *program) modelWord(args []string) (path string, ok bool) {
	switch path = p.app.Common.Model; {
	case path == "" && len(args) == 1:
		return args[0], true
	default:
		return path, path != "" && len(args) == 0
	}
}

// open opens IN.
func (p *program) open(path string) (*gguf.Model, error) {
	m, err := convert.Open(path, !p.out.noTokenizer)
	if err != nil {
		return nil, err
	}
	for _, n := range m.Notes {
		p.app.Info("%s", n)
	}
	return m, nil
}

// facts are those of the input.
func facts(m *gguf.Model, more ...convert.Fact) ([]convert.Fact, error) {
	hash, err := measure.ModelHash(m.Files())
	if err != nil {
		return nil, err
	}
	list := []convert.Fact{{Name: "IN", Value: filepath.Base(m.Path)}, {Name: "the content of IN", Value: hash}}
	for _, f := range more {
		if f.Value != "" {
			list = append(list, f)
		}
	}
	return list, nil
}

// write writes the plan, or says what it is.
func (p *program) write(ctx context.Context, plan *convert.Plan) error {
	if p.out.dryRun {
		return p.printPlan(plan, nil)
	}
	workers, err := p.workers()
	if err != nil {
		return err
	}
	features, err := p.features()
	if err != nil {
		return err
	}
	bar := p.app.NewProgress("writing", "MB", sourceBytes(plan)/1e6)
	defer bar.Done()
	res, err := plan.Write(ctx, convert.Options{Workers: workers, Features: features, Resume: p.out.resume,
		Force: p.out.force, Progress: func(now convert.Progress) {
			bar.Reach(float64(now.Done) / 1e6)
			bar.Say(now.Bound())
		}})
	bar.Done()
	if ctx.Err() != nil {
		p.app.Note("what is finished stays in %s.part; --resume goes on with it", plan.Parts[0].Path)
	}
	if err != nil {
		return err
	}
	if res.Resumed > 0 {
		p.app.Info("%d tensors were there from an earlier run", res.Resumed)
	}
	if res.Again > 0 {
		p.app.Warn("%d tensors of an earlier run were not as its journal has them; they were made again", res.Again)
	}
	p.app.Info("reading took %s, computing %s, writing %s of the workers' time",
		humanize.Seconds(res.Reading.Seconds()), humanize.Seconds(res.Computing.Seconds()),
		humanize.Seconds(res.Writing.Seconds()))
	return p.printPlan(plan, res)
}

// workers is how many goroutines work: -t, else what the machine grants.
func (p *program) workers() (int, error) {
	if n := p.app.Common.Threads; n > 0 {
		return n, nil
	}
	m, err := topo.Live()
	if err != nil {
		return 0, err
	}
	cpus, why := m.Workers()
	p.app.Info("%s", why)
	return len(cpus), nil
}

// features are those of the CPU that may be used: all, or those of the tier that --cpu names.
func (p *program) features() (isa.Features, error) {
	f := isa.Detect()
	name := p.app.Common.CPU
	if name == "" {
		return f, nil
	}
	t, err := isa.Parse(name)
	if err == nil {
		err = isa.Check(t, f)
	}
	return t.Use(f), err
}

// engineOptions is what engines are opened with, so many of which are open at once.
func (p *program) engineOptions(engines int) engine.Options {
	c := &p.app.Common
	return engine.Options{Tier: c.CPU, NUMA: c.NUMA, Judge: cost.Judge, Threads: c.Threads, MemLimit: c.MemLimit, Share: engines, Prove: c.Verbose}
}

// sourceBytes is what a plan reads.
func sourceBytes(plan *convert.Plan) (n int64) {
	for _, part := range plan.Parts {
		for _, t := range part.Tensors {
			n += t.From.Bytes()
		}
	}
	return n
}

// typeRow is a row of the result's table.
type typeRow struct {
	Type    string  `json:"type"`
	Tensors int     `json:"tensors"`
	Weights int64   `json:"weights"`
	Bytes   int64   `json:"bytes"`
	Bits    float64 `json:"bits_per_weight"`
}

// tensorRow is a tensor in JSON.
type tensorRow struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	From  string `json:"from"`
	Type  string `json:"type"`
	Bytes int64  `json:"bytes"`
}

// printPlan prints what is written by type: before, as --dry-run asks, or behind.
func (p *program) printPlan(plan *convert.Plan, res *convert.Result) error {
	var rows []typeRow
	all := typeRow{Type: "all"}
	for _, s := range plan.Sums() {
		rows = append(rows, typeRow{s.Type.String(), s.Tensors, s.Weights, s.Bytes,
			float64(8*s.Bytes) / float64(max(1, s.Weights))})
		all.Tensors, all.Weights, all.Bytes = all.Tensors+s.Tensors, all.Weights+s.Weights, all.Bytes+s.Bytes
	}
	all.Bits = float64(8*all.Bytes) / float64(max(1, all.Weights))
	stored, err := storedRows(plan, res)
	if err != nil {
		return err
	}
	c := &p.app.Common
	if c.JSONL {
		return cli.PrintLines(p.app, "ck.quant.type/1", rows)
	}
	type file struct {
		Path  string `json:"path"`
		Bytes int64  `json:"bytes"`
	}
	var files []file
	var tensors []tensorRow
	for _, part := range plan.Parts {
		files = append(files, file{part.Path, part.Header.Size})
		for i, t := range part.Tensors {
			tensors = append(tensors, tensorRow{t.From.Name, t.From.Shape, t.From.Type.String(), t.Type.String(),
				part.Header.Sizes[i]})
		}
	}
	if c.JSON {
		return p.app.PrintJSON(struct {
			Schema   string      `json:"schema"`
			Written  bool        `json:"written"`
			Bytes    int64       `json:"bytes"`
			Bits     float64     `json:"bits_per_weight"`
			Files    []file      `json:"files"`
			Types    []typeRow   `json:"types"`
			Tensors  []tensorRow `json:"tensors"`
			Stored   []storedRow `json:"stored,omitempty"`
			Warnings []string    `json:"warnings"`
		}{"ck.quant.output/1", res != nil, plan.Size(), all.Bits, files, rows, tensors, stored, p.app.Warnings()})
	}
	if p.out.dryRun {
		for _, t := range tensors {
			p.app.Info("%s %v %s → %s: %d bytes", t.Name, t.Shape, t.From, t.Type, t.Bytes)
		}
	}
	if plan.Compress && res == nil {
		p.app.Note("compressed, the file takes at most what is shown")
	}
	t := plaintext.Table{Head: []string{"type", "tensors", "bytes", "bits/weight"}, Right: []bool{false, true, true,
		true}}
	for _, r := range append(rows, all) {
		t.Rows = append(t.Rows, []string{r.Type, fmt.Sprint(r.Tensors), fmt.Sprint(r.Bytes),
			fmt.Sprintf("%.2f", r.Bits)})
	}
	for _, f := range files {
		t.Rows = append(t.Rows, []string{filepath.Base(f.Path), "", fmt.Sprint(f.Bytes), ""})
	}
	if err := t.Write(p.app.Out, c.Plain); err != nil || len(stored) == 0 {
		return cli.OutError(err)
	}
	return p.printStored(stored)
}
