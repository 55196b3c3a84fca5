package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/team"
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

const rooflineLong = `Measures the limits of the machine on one core and on all: operations per second of each instruction that kernels use, for float32, bfloat16 and 8-bit integers, and the read bandwidth of each level of the memory hierarchy.

With -m every step of the model's plans is placed under these roofs, for a prompt and for generated tokens: its operations per byte (weights and cache; activations stay in caches), what it reaches and its share of what the roofs allow at that intensity (memory bandwidth times intensity, or the peak of its arithmetic). --svg and --png draw it.

  ckbench roofline -m model.gguf --svg roofline.svg`

func (p *program) rooflineCommand() {
	o := &p.roofline
	c := p.app.NewCommand("roofline [flags]", "limits of the machine, and a model under them", rooflineLong, p.runRoofline)
	g := cli.NewGroup(c.Flags(), "Measurement")
	g.Int(&o.samples, "samples", "", 5, 1, 1000, "N", "samples of each loop")
	g.Int(&o.prompt, "prompt", "p", 512, 0, maxTokens, "N", "rows of the prompt; 0: none")
	g.Int(&o.gen, "gen", "n", 32, 0, maxTokens, "N", "generated tokens; 0: none")
	g.Int(&o.depth, "depth", "d", 0, 0, maxTokens, "N", "tokens in the context before")
	o.engineFlags.flags(c)
	g = cli.NewGroup(c.Flags(), "Output")
	g.Text(&o.svg, "svg", "", "", "FILE", "draw the picture as SVG")
	g.Text(&o.png, "png", "", "", "FILE", "draw the picture as PNG")
	g.Bool(&o.force, "force", "", "overwrite the pictures")
}

// peakRow is a line of the peaks' table.
type peakRow struct {
	Kind        string  `json:"kind"`
	Instruction string  `json:"instruction"`
	Threads     int     `json:"threads"`
	GOPs        float64 `json:"gop_per_s"`
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
	Schema    string         `json:"schema"`
	Host      measure.Host   `json:"host"`
	Peaks     []peakRow      `json:"peaks"`
	Bandwidth []bandwidthRow `json:"bandwidth"`
	Model     string         `json:"model,omitempty"`
	Tests     []string       `json:"tests,omitempty"`
	Steps     []placed       `json:"steps,omitempty"`
	OtherTime []otherTime    `json:"other_time,omitempty"`
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
		if err := doc.machine(c.Context(), m, n, o.samples); err != nil {
			return err
		}
	}
	if model != nil {
		if err := p.placeModel(c.Context(), doc, model, t, all); err != nil {
			return err
		}
	}
	if p.app.Common.JSON {
		err = p.app.PrintJSON(doc)
	} else {
		err = cli.OutError(doc.print(p.app.Text(), p.app.Common.Plain))
	}
	if err != nil {
		return err
	}
	for ext, f := range pictures {
		if err := doc.draw(f, ext); err != nil {
			return err
		}
		if err := f.Commit(); err != nil {
			return err
		}
	}
	return nil
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

// machine adds the roofs of n threads.
func (d *rooflineDoc) machine(ctx context.Context, m topo.Machine, n, samples int) error {
	bw, err := bandwidths(ctx, m, n, samples)
	if err != nil {
		return err
	}
	d.Bandwidth = append(d.Bandwidth, bw...)
	return withTeam(m, n, func(t *team.Team) error {
		rates, err := measure.PeakRates(ctx, t, samples)
		for _, r := range rates {
			d.Peaks = append(d.Peaks, peakRow{r.Kind, r.Instruction, n, r.Rate / 1e9})
		}
		return err
	})
}

// peak is the best rate of a kind with n threads, in GOP/s. bfloat16 may use the instructions of float32, and so does what has none of
// its own: the portable loops know no other.
func (d *rooflineDoc) peak(kind string, n int) float64 {
	best, f32 := 0.0, 0.0
	for _, p := range d.Peaks {
		if p.Threads == n && p.Kind == kind {
			best = max(best, p.GOPs)
		}
		if p.Threads == n && p.Kind == measure.F32 {
			f32 = max(f32, p.GOPs)
		}
	}
	if best == 0 || kind == measure.BF16 {
		return max(best, f32)
	}
	return best
}

// read is the bandwidth of a level with n threads, in GB/s.
func (d *rooflineDoc) read(level string, n int) float64 {
	for _, b := range d.Bandwidth {
		if b.Level == level && b.Threads == n {
			return b.GBps
		}
	}
	return 0
}

// placeModel measures the steps of a model and places them under the roofs of n threads.
func (p *program) placeModel(ctx context.Context, d *rooflineDoc, m *generate.Model, t test, n int) error {
	return p.withBench(ctx, m, &p.roofline.engineFlags, n, func(b *bench) error {
		d.Model, d.Tests = b.facts.typ, []string{t.String()}
		s, err := b.start(t)
		if err != nil {
			return err
		}
		err = b.warm(t, s)
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
			d.raise(measure.DRAM, n, b.roofs.BestRead()/1e9)
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

// raise lifts a measured bandwidth to a better sample.
func (d *rooflineDoc) raise(level string, n int, gbps float64) {
	for i := range d.Bandwidth {
		if b := &d.Bandwidth[i]; b.Level == level && b.Threads == n {
			b.GBps = max(b.GBps, gbps)
		}
	}
}

// place computes a step's share of what the roofs of n threads allow.
func (d *rooflineDoc) place(s stepRow, n int) placed {
	x := placed{stepRow: s, Intensity: s.Ops / s.Bytes, Bound: "memory"}
	read, peak := d.read(measure.DRAM, n), d.peak(s.Kind, n)
	x.ReadPct, x.PeakPct = 100*s.GBps/read, 100*s.GOPs/peak
	if x.Roof = x.Intensity * read; x.Roof > peak {
		x.Roof, x.Bound = peak, s.Kind
	}
	x.RoofShare = s.GOPs / x.Roof
	return x
}

// print writes the tables.
func (d *rooflineDoc) print(w io.Writer, plain bool) error {
	peaks := cli.Table{Head: []string{"arithmetic", "kind", "threads", "GOP/s"}, Right: []bool{false, false, true, true}}
	for _, r := range d.Peaks {
		peaks.Rows = append(peaks.Rows, []string{r.Instruction, r.Kind, strconv.Itoa(r.Threads), fixed(r.GOPs)})
	}
	if err := writeTable(&peaks, w, plain, 3); err != nil {
		return err
	}
	bw := cli.Table{Head: []string{"read", "threads", "set of each", "best loop", "GB/s"}, Right: []bool{false, true, true, true, true}, Rows: bandwidthCells(d.Bandwidth)}
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
				t.Rows = append(t.Rows, []string{s.Name, fmt.Sprintf("%.1f", 100*s.Share), fixed(s.Intensity), fixed(s.GBps), fixed(s.GOPs), fixed(s.Roof),
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
