package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/bench"
	"ck/internal/bench/format"
	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
)

// runOptions are the flags of ckbench run.
type runOptions struct {
	engineFlags
	prompt, gen, depth, rows string
	pg                       []string
	reps                     int
	noWarmup, noRoof         bool
	ablate                   string // list
	format                   string
	steps                    bool
	folded                   string
	force                    bool
}

const runLong = `Measures tests named as llama-bench names them, in tokens per second:

  pp512          a prompt of 512 tokens (-p)
  tg128          128 tokens generated one by one (-n)
  tg128x4        the same for 4 sequences in one walk (--rows)
  pp512+tg128    one after the other (--pg)
  … @ d4096      after 4096 tokens that are not counted (-d)

Before a test the weights are packed, all at once; then it runs until two runs agree to 3 %, for at most the time of one repetition more, and is repeated. The table has the median and an interval that holds the true median with the probability given (order statistics; 94 % for five repetitions), what was read from memory and its share of the read bandwidth, the operations of the matmuls and their share of the arithmetic peak. Both roofs are measured beside every repetition on the same workers; the best sample counts.

A repetition that stands out is named on stderr with what disturbed it: pages read from disk, steal time, other processes.

--ablate says what the engine's ways to be fast are worth, each by leaving it out, in turn with the usual engine: repetition by repetition base, without the first, without the second, …, base, … The table has a row for each: its rate, and its worth, the usual rate over this one (median of the ratios of neighbouring repetitions, with its interval; above 1: it helps). The logits are the same bits.

  prefetch       kernels fetch the line that they read anyway, not one ahead; packing, and the
                 AVX2 and AVX-VNNI kernels for many rows, have fixed distances and keep them
  fuse           each step for itself, with a barrier behind it: residuals are added after the
                 matmul, a row's norm is summed by one worker
  huge           panels, buffers and KV cache in pages of 4 KiB
  pack           no panels: weights are packed into cache-resident scratch at every use
  all            none of them

With --numa MODE, once or more, there is a row for each test and mode, and the JSON says where the memory lay: ckbench run --numa bind=0 --numa tp --numa interleave --numa off -o json is what to run on a machine with several sockets.

For huge there is a second copy of the panels and of the cache. Where the panels do not fit twice, huge is measured by itself after the others, and stderr says so; its worth then has no interval.`

const maxTokens = 1 << 20

func (p *program) runCommand() {
	o := &p.run
	c := p.app.NewCommand("run [flags]", "speed of a model", runLong, p.runRun)
	g := cli.NewGroup(c.Flags(), "Tests")
	g.Text(&o.prompt, "prompt", "p", "512", "LIST", "lengths of prompts; 0: no such test")
	g.Text(&o.gen, "gen", "n", "128", "LIST", "numbers of generated tokens; 0: no such test")
	g.Texts(&o.pg, "pg", "", "P,N", "a prompt and then generated tokens, as one test; may be repeated (also -pg)")
	g.Text(&o.depth, "depth", "d", "0", "LIST", "tokens in the context before a test begins")
	g.Text(&o.rows, "rows", "", "1", "LIST", "sequences that generate in one walk")
	g.Int(&o.reps, "repetitions", "r", 5, 1, 10000, "N", "repetitions of each test")
	g.Bool(&o.noWarmup, "no-warmup", "", "measure the first run, with packing of the weights and page faults")
	g.Bool(&o.noRoof, "no-roof", "", "do not measure the machine's limits")
	g.Text(&o.ablate, "ablate", "", "", "LIST", "measure without these, too, and what each is worth: "+strings.Join(engine.AblationNames, ", "))
	o.engineFlags.flags(c)
	g = cli.NewGroup(c.Flags(), "Output")
	g.Enum(&o.format, "output", "o", "md", "FORMAT", format.Names, "form of the result; gobench is what benchstat reads")
	g.Bool(&o.steps, "steps", "", "a table of the time of each step, too")
	g.Text(&o.folded, "folded", "", "", "FILE", "write the steps' time as folded stacks, for flame graphs; - is stdout, without the table")
	g.Bool(&o.force, "force", "", "overwrite the file of --folded")
}

// chooseFormat is the form of the result where --json or --jsonl asks for one as well.
func (o *runOptions) chooseFormat(a *cli.App) error {
	format := "json"
	switch {
	case !a.Common.JSON:
		return nil
	case a.Common.JSONL:
		format = "jsonl"
	}
	if !a.Given("output") || a.Given(format) && o.format == format {
		o.format = format
	} else if a.Given(format) {
		return cli.Usage("--%s: contradicts -o %s; choose one", format, o.format)
	}
	return nil
}

// modes are the modes of --numa, where it was given.
func (p *program) modes() []string { return p.app.Common.NUMAs }

// runRun is ckbench run.
func (p *program) runRun(c *cobra.Command, args []string) error {
	o := &p.run
	if len(args) > 0 {
		return cli.Usage("run: takes no words, but %q stands there; see ckbench run --help", args[0])
	}
	if err := o.chooseFormat(p.app); err != nil {
		return err
	}
	if o.folded == "-" && (p.app.Given("output") || p.app.Common.JSON || o.steps) {
		return cli.Usage("--folded: - is stdout, and then nothing else goes there; name a file")
	}
	if p.app.Common.Plain && o.format == "md" {
		o.format = format.Plain
	}
	tests, err := o.tests()
	if err != nil {
		return err
	}
	threads, err := o.threadList()
	if err != nil {
		return err
	}
	off, err := o.ablations()
	if err != nil {
		return err
	}
	m, err := generate.Open(p.app.Common.Model)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := fits(tests, m.Context); err != nil {
		return err
	}
	var folded *cli.File
	if o.folded != "" {
		if folded, err = p.app.Create(o.folded, o.force); err != nil {
			return err
		}
		defer folded.Abort()
	}
	to := io.Writer(p.app.Out)
	if o.folded == "-" {
		to = io.Discard
	}
	out := format.NewWriter(to, o.format, len(off) > 0)
	bar := p.app.NewProgress("measuring", "repetitions", int64(max(1, len(p.modes()))*len(threads)*len(tests)*o.reps*(1+len(off))))
	defer bar.Done()
	job := bench.Job{Settings: p.settings(&o.engineFlags, o.reps), Engine: p.engineOptions(&o.engineFlags, m),
		NUMA: p.modes(), Threads: threads, Tests: tests, Without: off, Steps: o.steps}
	job.NoWarmup, job.NoRoof = o.noWarmup, o.noRoof
	if folded != nil {
		job.Folded = folded
	}
	var all []*bench.Result
	err = bench.Run(c.Context(), m, job, p.events(bar), func(r *bench.Result) error {
		all = append(all, r)
		return bar.Aside(func() error {
			p.explain(r)
			return cli.OutError(out.Row(r))
		})
	})
	bar.Done()
	if err != nil {
		return err
	}
	if err := out.End(); err != nil {
		return cli.OutError(err)
	}
	if o.steps && (o.format == "md" || o.format == format.Plain) {
		if err := format.Steps(p.app.Text(), all, p.app.Common.Plain); err != nil {
			return cli.OutError(err)
		}
	}
	if folded != nil {
		return folded.Commit()
	}
	return nil
}
