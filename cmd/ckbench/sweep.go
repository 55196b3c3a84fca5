package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"ck/internal/bench"
	"ck/internal/bench/format"
	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/plaintext"
	"ck/internal/topo"
)

// sweepOptions are the flags of ckbench sweep.
type sweepOptions struct {
	engineFlags
	prompt, gen, depth int
	reps               int
}

const sweepLong = `Measures a prompt and generation with growing numbers of threads and says of each phase where the knee is: the smallest number of threads within 5 % of the best rate. S is the serial share, fitted to time = t1 * (S + (1-S)/threads) (Amdahl 1967); 1/S is the speed-up that no number of threads exceeds. The interval behind S is that of the rates' intervals; where it is wider than 0.25, or a rate's wider than half of it, there is neither S nor knee. Rates whose interval is wider than 10 % are repeated up to four times as often as asked for. A phase that is bound by memory looks serial once the memory is saturated: compare its GB/s with ckbench bandwidth.`

func (p *program) sweepCommand() {
	o := &p.sweep
	c := p.app.NewCommand("sweep [flags]", "speed by number of threads", sweepLong, p.runSweep)
	g := cli.NewGroup(c.Flags(), "Tests")
	g.Int(&o.prompt, "prompt", "p", 512, 0, maxTokens, "N", "rows of the prompt; 0: none")
	g.Int(&o.gen, "gen", "n", 32, 0, maxTokens, "N", "generated tokens; 0: none")
	g.Int(&o.depth, "depth", "d", 0, 0, maxTokens, "N", "tokens in the context before")
	g.Int(&o.reps, "repetitions", "r", 3, 1, 10000, "N", "repetitions of each test")
	o.engineFlags.flags(c)
}

// runSweep is ckbench sweep.
func (p *program) runSweep(c *cobra.Command, args []string) error {
	o := &p.sweep
	if len(args) > 0 {
		return cli.Usage("sweep: takes no words; see ckbench sweep --help")
	}
	threads, err := o.threadList()
	if err != nil {
		return err
	}
	if o.threads == "" {
		m, err := topo.Live()
		if err != nil {
			return err
		}
		threads = bench.SweepThreads(m)
	}
	var tests []bench.Test
	if o.prompt > 0 {
		tests = append(tests, bench.Test{Prompt: o.prompt, Depth: o.depth, Rows: 1})
	}
	if o.gen > 0 {
		tests = append(tests, bench.Test{Gen: o.gen, Depth: o.depth, Rows: 1})
	}
	if len(tests) == 0 {
		return cli.Usage("-p 0 -n 0: nothing to measure; ask for at least one test")
	}
	m, err := generate.Open(p.app.Common.Model)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := fits(tests, m.Context); err != nil {
		return err
	}
	bar := p.app.NewProgress("measuring", "repetitions", int64(len(threads)*len(tests)*o.reps))
	defer bar.Done()
	job := bench.Job{Settings: p.settings(&o.engineFlags, o.reps), Engine: p.engineOptions(&o.engineFlags, m),
		Threads: threads, Tests: tests}
	phases, err := bench.Sweep(c.Context(), m, job, p.events(bar), func(r *bench.Result) {
		bar.Aside(func() error { p.explain(r); return nil })
	})
	if err != nil {
		return err
	}
	bar.Done()
	return p.printSweep(phases)
}

func (p *program) printSweep(phases []bench.SweepPhase) error {
	switch c := &p.app.Common; {
	case c.JSONL:
		return cli.PrintLines(p.app, "ck.bench.sweep.phase/1", phases)
	case c.JSON:
		return p.app.PrintJSON(struct {
			Schema   string             `json:"schema"`
			Phases   []bench.SweepPhase `json:"phases"`
			Warnings []string           `json:"warnings"`
		}{"ck.bench.sweep/1", phases, p.app.Warnings()})
	}
	t := plaintext.Table{Head: []string{"test", "threads", "t/s", "interval", "speed-up", "GB/s", "GOP/s"}, Right: []bool{false, true, true, true, true, true, true}}
	for _, s := range phases {
		for _, x := range s.Points {
			t.Rows = append(t.Rows, []string{s.Test, strconv.Itoa(x.Threads), measure.Digits(x.TS), measure.Digits(x.Lo) + "–" + measure.Digits(x.Hi), fmt.Sprintf("%.2f", x.SpeedUp), measure.Digits(x.GBps),
				measure.Digits(x.GOPs)})
		}
	}
	if err := format.Table(&t, p.app.Out, p.app.Common.Plain, 2); err != nil {
		return cli.OutError(err)
	}
	if p.app.Common.Plain {
		fits := plaintext.Table{Head: []string{"test", "knee", "serial share"}}
		for _, s := range phases {
			serial := "–"
			if s.Serial != nil {
				serial = fmt.Sprintf("%.3f", *s.Serial)
			}
			knee := "–"
			if s.Why == "" {
				knee = strconv.Itoa(s.Knee)
			}
			fits.Rows = append(fits.Rows, []string{s.Test, knee, serial})
		}
		return cli.OutError(fits.Write(p.app.Out, true))
	}
	for _, s := range phases {
		if _, err := fmt.Fprintln(p.app.Text(), s.Summary()); err != nil {
			return cli.OutError(err)
		}
	}
	return nil
}
