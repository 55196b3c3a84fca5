package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/picture"
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

// placed is a step under the roof.
type placed struct {
	stepRow
	Intensity float64 `json:"op_per_byte"`
	Roof      float64 `json:"roof_gops"`
	RoofShare float64 `json:"share_of_roof"`
	Bound     string  `json:"bound"` // "memory" or the kind of arithmetic
}

// rooflineDoc is what roofline --json prints and the picture shows.
type rooflineDoc struct {
	Schema string       `json:"schema"`
	Host   measure.Host `json:"host"`
	probe.Roofs
	Model     string      `json:"model,omitempty"`
	Tests     []string    `json:"tests,omitempty"`
	Steps     []placed    `json:"steps,omitempty"`
	OtherTime []otherTime `json:"other_time,omitempty"`
	Warnings  []string    `json:"warnings"`
}

// otherTime is the share of a phase's time outside of the steps that have work.
type otherTime struct {
	Phase   string  `json:"phase"`
	Barrier float64 `json:"barrier_share"`
	Other   float64 `json:"other_share"`
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
	t := test{prompt: o.prompt, gen: o.gen, depth: o.depth, rows: 1}
	var model *generate.Model // opened before the machine is measured, which takes seconds
	if p.app.Common.Model != "" {
		if t.tokens() == 0 {
			return cli.Usage("-p 0 -n 0: no steps to measure; ask for one")
		}
		if model, err = generate.Open(p.app.Common.Model); err != nil {
			return err
		}
		defer model.Close()
		if err := fits([]test{{prompt: o.prompt, depth: o.depth, rows: 1}, {gen: o.gen, depth: o.depth, rows: 1}}, model.Context); err != nil {
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
	doc := &rooflineDoc{Schema: "ck.bench.roofline/1", Host: measure.NewHost(s)}
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
		if err := p.placeModel(c.Context(), doc, model, t, all); err != nil {
			return err
		}
	}
	probe.Contradict(doc.Bandwidth)
	p.warn(doc.Doubts())
	if err := p.printRoofline(doc); err != nil {
		return err
	}
	for ext, f := range pictures {
		if err := doc.chart().Draw(f, picture.Format(ext)); err != nil {
			return err
		}
		if err := f.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// printRoofline prints the tables, or the document, or its rows.
func (p *program) printRoofline(d *rooflineDoc) error {
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
	return cli.OutError(d.print(p.app.Text(), p.app.Common.Plain))
}

// chart is the document as a picture.
func (d *rooflineDoc) chart() *picture.Roofline {
	c := &picture.Roofline{Title: "Roofline"}
	for _, b := range d.Bandwidth {
		c.Threads = max(c.Threads, b.Threads)
	}
	if d.Model != "" {
		c.Title = cli.Escape(d.Model) + " under the roofs of this machine"
	}
	c.Subtitle = strings.TrimSuffix(fmt.Sprintf("%s, %d threads; %s", cli.Escape(d.Host.CPU), c.Threads, strings.Join(d.Tests, ", ")), "; ")
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

// placeModel measures the steps of a model and places them under the roofs of n threads.
func (p *program) placeModel(ctx context.Context, d *rooflineDoc, m *generate.Model, t test, n int) error {
	return p.withBench(ctx, m, &p.roofline.engineFlags, n, func(b *bench) error {
		d.Model, d.Tests = b.facts.typ, []string{t.String()}
		s, err := b.start(t)
		if err != nil {
			return err
		}
		for _, phase := range []test{{prompt: t.prompt, depth: t.depth, rows: 1}, {gen: t.gen, depth: t.depth, rows: 1}} {
			if err == nil && phase.tokens() > 0 {
				err = b.warm(phase, s)
			}
		}
		b.end(s)
		if err != nil {
			return err
		}
		phases, err := b.profilePhases(t)
		if err != nil {
			return err
		}
		if b.roofs != nil { // the roof of this moment may be above that of the beginning
			for range 3 {
				if _, err := b.roofs.ReadNow(); err != nil {
					return err
				}
			}
			d.Raise(measure.DRAM, n, b.roofs.BestRead()/1e9)
		}
		for _, x := range phases {
			other := otherTime{Phase: x.phase}
			for _, row := range b.stepRows(x) {
				switch {
				case row.Ops > 0 && row.Bytes > 0:
					d.Steps = append(d.Steps, d.place(row, n))
				case row.Name == "barrier":
					other.Barrier += row.Share
				default:
					other.Other += row.Share
				}
			}
			d.OtherTime = append(d.OtherTime, other)
		}
		return nil
	})
}

// place computes a step's share of what the roofs of n threads allow.
func (d *rooflineDoc) place(s stepRow, n int) placed {
	x := placed{stepRow: s, Intensity: s.Ops / s.Bytes, Bound: "memory"}
	read, peak := d.Read(measure.DRAM, n), d.Peak(s.Kind, n)
	x.ReadPct, x.PeakPct = 100*s.GBps/read, 100*s.GOPs/peak
	if x.Roof = x.Intensity * read; x.Roof > peak {
		x.Roof, x.Bound = peak, s.Kind
	}
	x.RoofShare = s.GOPs / x.Roof
	return x
}

// print writes the tables.
func (d *rooflineDoc) print(w io.Writer, plain bool) error {
	peaks := cli.Table{Head: []string{"arithmetic", "kind", "threads", "GOP/s", "median in"}, Right: []bool{false, false, true, true, true}}
	for _, r := range d.Peaks {
		peaks.Rows = append(peaks.Rows, []string{r.Instruction, r.Kind, strconv.Itoa(r.Threads), measure.Digits(r.GOPs), interval(r.Samples)})
	}
	if err := writeTable(&peaks, w, plain, 3); err != nil {
		return err
	}
	bw := cli.Table{Head: slices.Clone(bandwidthHead), Right: []bool{false, true, true, true, true, true, false}, Rows: bandwidthCells(d.Bandwidth)}
	bw.Head[0] = "read"
	if !plain {
		fmt.Fprintln(w)
	}
	if err := writeTable(&bw, w, plain, 2); err != nil {
		return err
	}
	for _, o := range d.OtherTime {
		if !plain {
			fmt.Fprintf(w, "\n%s, %s\n", cli.Escape(d.Model), o.Phase)
		}
		t := cli.Table{Head: []string{"step", "% time", "op/byte", "GB/s", "GOP/s", "roof", "% of roof", "bound"},
			Right: []bool{false, true, true, true, true, true, true, false}}
		for _, s := range d.Steps {
			if s.Phase == o.Phase {
				t.Rows = append(t.Rows, []string{s.Name, fmt.Sprintf("%.1f", 100*s.Share), measure.Digits(s.Intensity), measure.Digits(s.GBps), measure.Digits(s.GOPs), measure.Digits(s.Roof),
					percent(100 * s.RoofShare), s.Bound})
			}
		}
		t.Rows = append(t.Rows, []string{"barriers", fmt.Sprintf("%.1f", 100*o.Barrier)}, []string{"other steps", fmt.Sprintf("%.1f", 100*o.Other)})
		for i := range t.Rows {
			for len(t.Rows[i]) < len(t.Head) {
				t.Rows[i] = append(t.Rows[i], "")
			}
		}
		if plain {
			for i := range t.Rows {
				t.Rows[i][0] += " (" + o.Phase + ")"
			}
		}
		if err := t.Write(w, plain); err != nil {
			return err
		}
	}
	return nil
}
