package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/bench"
	"ck/internal/bench/format"
	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/picture"
	"ck/internal/plaintext"
	"ck/internal/probe"
	"ck/internal/topo"
)

// rooflineOptions are the flags of ckbench roofline.
type rooflineOptions struct {
	engineFlags
	samples            int
	prompt, gen, depth int
	svg, png           string
	force              bool
}

const rooflineLong = `Measures the limits of the machine on one core and on all: operations per second of each instruction that kernels use, for float32, bfloat16 and 8-bit integers, and the read bandwidth of each level of the memory hierarchy.` + settleLong + ` A level that is slower than one further from the core is measured again, and if it stays so it is marked and not drawn.

With -m every step of the model's plans is placed under these roofs, for a prompt and for generated tokens: its operations per byte (weights and cache; activations stay in caches), what it reaches and its share of what the roofs allow at that intensity (memory bandwidth times intensity, or the peak of its arithmetic). --svg and --png draw it.

  ckbench roofline -m model.gguf --svg roofline.svg`

func (p *program) rooflineCommand() {
	o := &p.roofline
	c := p.app.NewCommand("roofline [flags]", "limits of the machine, and a model under them", rooflineLong, p.runRoofline)
	g := cli.NewGroup(c.Flags(), "Measurement")
	g.Int(&o.samples, "samples", "", 5, 1, 1000, "N", "samples of each loop and level at least")
	g.Int(&o.prompt, "prompt", "p", 512, 0, maxTokens, "N", "rows of the prompt; 0: none")
	g.Int(&o.gen, "gen", "n", 32, 0, maxTokens, "N", "generated tokens; 0: none")
	g.Int(&o.depth, "depth", "d", 0, 0, maxTokens, "N", "tokens in the context before")
	o.engineFlags.flags(c)
	g = cli.NewGroup(c.Flags(), "Output")
	g.Text(&o.svg, "svg", "", "", "FILE", "draw the picture as SVG")
	g.Text(&o.png, "png", "", "", "FILE", "draw the picture as PNG")
	g.Bool(&o.force, "force", "", "overwrite the pictures")
}

// runRoofline is ckbench roofline.
func (p *program) runRoofline(c *cobra.Command, args []string) error {
	o := &p.roofline
	if len(args) > 0 {
		return cli.Usage("roofline: takes no words; see ckbench roofline --help")
	}
	threads, err := o.threadList()
	if err != nil {
		return err
	}
	if len(threads) != 1 {
		return cli.Usage("-t/--threads: a picture shows one number of threads; name one")
	}
	t := bench.Test{Prompt: o.prompt, Gen: o.gen, Depth: o.depth, Rows: 1}
	var model *generate.Model // opened before the machine is measured, which takes seconds
	if p.app.Common.Model != "" {
		if t.Tokens() == 0 {
			return cli.Usage("-p 0 -n 0: no steps to measure; ask for one")
		}
		if model, err = generate.Open(p.app.Common.Model); err != nil {
			return err
		}
		defer model.Close()
		if err := fits([]bench.Test{{Prompt: o.prompt, Depth: o.depth, Rows: 1}, {Gen: o.gen, Depth: o.depth, Rows: 1}}, model.Context); err != nil {
			return err
		}
	}
	pictures, err := p.openPictures()
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range pictures {
			f.Abort()
		}
	}()
	s, err := topo.Inspect(os.DirFS("/"), true)
	if err != nil {
		return err
	}
	m := s.Machine
	doc := &bench.Roofline{Schema: "ck.bench.roofline/1", Host: measure.NewHost(s)}
	all := threads[0]
	if all == 0 {
		cpus, _ := m.Workers()
		all = len(cpus)
	}
	for _, n := range slices.Compact([]int{1, all}) {
		if err := doc.Add(c.Context(), m, n, o.samples); err != nil {
			return err
		}
	}
	if model != nil {
		job := bench.Job{Settings: p.settings(&o.engineFlags, 0), Engine: p.engineOptions(&o.engineFlags, model),
			Threads: []int{all}, Tests: []bench.Test{t}}
		if err := doc.Place(c.Context(), model, job, p.events(nil)); err != nil {
			return err
		}
	}
	probe.Contradict(doc.Bandwidth)
	p.warn(doc.Doubts())
	if err := p.printRoofline(doc); err != nil {
		return err
	}
	for ext, f := range pictures {
		if err := chart(doc).Draw(f, picture.Format(ext)); err != nil {
			return err
		}
		if err := f.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// printRoofline prints the tables, or the document, or its rows.
func (p *program) printRoofline(d *bench.Roofline) error {
	d.Warnings = p.app.Warnings()
	switch c := &p.app.Common; {
	case c.JSONL:
		if err := cli.PrintLines(p.app, "ck.bench.roofline.host/1", []measure.Host{d.Host}); err != nil {
			return err
		}
		if err := cli.PrintLines(p.app, "ck.bench.roofline.peak/1", d.Peaks); err != nil {
			return err
		}
		if err := cli.PrintLines(p.app, "ck.bench.roofline.level/1", d.Bandwidth); err != nil {
			return err
		}
		if err := cli.PrintLines(p.app, "ck.bench.roofline.step/1", d.Steps); err != nil {
			return err
		}
		return cli.PrintLines(p.app, "ck.bench.roofline.other/1", d.OtherTime)
	case c.JSON:
		return p.app.PrintJSON(d)
	}
	return cli.OutError(format.Roofline(p.app.Text(), d, p.app.Common.Plain))
}

// chart is the document as a picture.
func chart(d *bench.Roofline) *picture.Roofline {
	c := &picture.Roofline{Title: "Roofline"}
	for _, b := range d.Bandwidth {
		c.Threads = max(c.Threads, b.Threads)
	}
	if d.Model != "" {
		c.Title = plaintext.Escape(d.Model) + " under the roofs of this machine"
	}
	c.Subtitle = strings.TrimSuffix(fmt.Sprintf("%s, %d threads; %s", plaintext.Escape(d.Host.CPU), c.Threads, strings.Join(d.Tests, ", ")), "; ")
	for _, l := range []string{"L1", "L2", "L3"} {
		c.Levels = append(c.Levels, picture.Level{Name: l, GBps: d.Read(l, c.Threads)})
	}
	c.Memory, c.One = picture.Level{Name: measure.DRAM, GBps: d.Read(measure.DRAM, c.Threads)}, picture.Level{Name: measure.DRAM, GBps: d.Read(measure.DRAM, 1)}
	for _, k := range []struct{ kind, name string }{{measure.Int8, "INT8"}, {measure.BF16, "BF16"}, {measure.F32, "F32"}} {
		c.Ceilings = append(c.Ceilings, picture.Ceiling{Name: k.name, GOPs: d.Peak(k.kind, c.Threads)})
		c.OneTop = max(c.OneTop, d.Peak(k.kind, 1))
	}
	for _, b := range d.Bandwidth {
		if b.Threads == c.Threads && b.SlowerThan != "" && d.Read(b.Level, b.Threads) == 0 {
			c.Remarks = append(c.Remarks, fmt.Sprintf("%s is not drawn: it was slower than %s", b.Level, b.SlowerThan))
		}
	}
	for _, o := range d.OtherTime {
		ph := picture.Phase{Name: o.Phase, Barrier: o.Barrier, Other: o.Other}
		for _, s := range d.Steps {
			if s.Phase == o.Phase {
				ph.Steps = append(ph.Steps, picture.Step{Name: s.Name, Intensity: s.Intensity, GOPs: s.GOPs, Share: s.Share, RoofShare: s.RoofShare})
			}
		}
		c.Phases = append(c.Phases, ph)
	}
	return c
}

// openPictures starts the files of --svg and --png.
func (p *program) openPictures() (map[string]*cli.File, error) {
	files := map[string]*cli.File{}
	for ext, name := range map[string]string{"svg": p.roofline.svg, "png": p.roofline.png} {
		if name == "" {
			continue
		}
		if name == "-" {
			return files, cli.Usage("--%s: stdout has the table; name a file", ext)
		}
		f, err := p.app.Create(name, p.roofline.force)
		if err != nil {
			return files, err
		}
		files[ext] = f
	}
	return files, nil
}
