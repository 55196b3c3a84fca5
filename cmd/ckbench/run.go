package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/quant"
)

// engineFlags are the flags of commands that open an engine.
type engineFlags struct {
	threads string // list
	ubatch  int
	kv, act string
	noPack  bool
}

func (o *engineFlags) flags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Engine")
	g.Text(&o.threads, "threads", "t", "", "LIST", "numbers of workers: 2 or 1,2,4 or 1-8; default: what the machine and its limits grant")
	g.Int(&o.ubatch, "ubatch", "", engine.UBatchDefault, 1, 1<<16, "N", "rows of the prompt that are evaluated together (also -ub)")
	g.Enum(&o.kv, "kv", "", "f16", "TYPE", []string{"f16", "bf16", "f32", "q8_0", "q4_0"}, "type of the KV cache")
	g.Enum(&o.act, "act", "", "auto", "TYPE", []string{"auto", "f32"}, "activations of matmuls: float32, or what suits the weights' type")
	g.Bool(&o.noPack, "no-pack", "", "leave weights in the file's form: slower, less memory")
}

// threadList is the list of -t; one zero means the engine's choice.
func (o *engineFlags) threadList() ([]int, error) {
	if o.threads == "" {
		return []int{0}, nil
	}
	return parseList("-t/--threads", o.threads, 1, 4096)
}

func (p *program) engineOptions(o *engineFlags, threads int) engine.Options {
	c := &p.app.Common
	kv, _ := quant.Parse(o.kv) // one of the flag's words
	return engine.Options{Tier: c.CPU, Threads: threads, UBatch: o.ubatch, F32Act: o.act == "f32", KV: kv, KVSet: true, NoPack: o.noPack,
		MemLimit: c.MemLimit}
}

// runOptions are the flags of ckbench run.
type runOptions struct {
	engineFlags
	prompt, gen, depth, rows string
	pg                       []string
	reps                     int
	most                     int // repetitions, where their interval is wide; below reps: exactly reps
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
	g.Enum(&o.format, "output", "o", "md", "FORMAT", formatNames, "form of the result; gobench is what benchstat reads")
	g.Bool(&o.steps, "steps", "", "a table of the time of each step, too")
	g.Text(&o.folded, "folded", "", "", "FILE", "write the steps' time as folded stacks, for flame graphs; - is stdout, without the table")
	g.Bool(&o.force, "force", "", "overwrite the file of --folded")
}

// test is one test of a model.
type test struct {
	prompt, gen, depth int
	rows               int // sequences; 1 for prompts
}

func (t test) String() string {
	s := ""
	if t.prompt > 0 {
		s = fmt.Sprintf("pp%d", t.prompt)
	}
	if t.gen > 0 {
		if s != "" {
			s += "+"
		}
		s += fmt.Sprintf("tg%d", t.gen)
		if t.rows > 1 {
			s += fmt.Sprintf("x%d", t.rows)
		}
	}
	if t.depth > 0 {
		s += fmt.Sprintf(" @ d%d", t.depth)
	}
	return s
}

// tokens is how many tokens count.
func (t test) tokens() int { return t.prompt + t.gen*t.rows }

// tests lists what the flags ask for.
func (o *runOptions) tests() ([]test, error) {
	lists := [4][]int{}
	for i, e := range []struct {
		flag, text string
		lo, hi     int
	}{{"-p/--prompt", o.prompt, 0, maxTokens}, {"-n/--gen", o.gen, 0, maxTokens}, {"-d/--depth", o.depth, 0, maxTokens}, {"--rows", o.rows, 1, o.ubatch}} {
		var err error
		if lists[i], err = parseList(e.flag, e.text, e.lo, e.hi); err != nil {
			return nil, err
		}
	}
	pairs, err := parsePairs("--pg", o.pg, maxTokens)
	if err != nil {
		return nil, err
	}
	var out []test
	for _, d := range lists[2] {
		for _, n := range lists[0] {
			out = append(out, test{prompt: n, depth: d, rows: 1})
		}
		for _, n := range lists[1] {
			for _, r := range lists[3] {
				out = append(out, test{gen: n, depth: d, rows: r})
			}
		}
		for _, e := range pairs {
			out = append(out, test{prompt: e[0], gen: e[1], depth: d, rows: 1})
		}
	}
	out = slices.DeleteFunc(out, func(t test) bool { return t.tokens() == 0 })
	if len(out) == 0 {
		return nil, cli.Usage("-p 0 -n 0: nothing to measure; ask for at least one test")
	}
	return out, nil
}

// fits refuses tests that take more positions than the model's context has. A context of 0 is not known.
func fits(tests []test, context int) error {
	for _, t := range tests {
		n := t.depth + t.prompt + t.gen
		if context == 0 || n <= context {
			continue
		}
		flag := "-p/--prompt"
		switch {
		case t.depth >= max(t.prompt, t.gen):
			flag = "-d/--depth"
		case t.gen > t.prompt:
			flag = "-n/--gen"
		}
		return cli.Usage("%s: %s takes %d positions, the model's context has %d; name fewer", flag, t, n, context)
	}
	return nil
}

// ablations lists what --ablate leaves out, one after the other.
func (o *runOptions) ablations() ([]engine.Ablation, error) {
	if o.ablate == "" {
		return nil, nil
	}
	var out []engine.Ablation
	for word := range strings.SplitSeq(o.ablate, ",") {
		a, ok := engine.ParseAblation(strings.TrimSpace(word))
		switch {
		case !ok:
			return nil, cli.Usage("--ablate: %q is not one of %s", word, strings.Join(engine.AblationNames, ", "))
		case a == engine.Pack && o.noPack:
			return nil, cli.Usage("--ablate pack: --no-pack leaves it out already; drop one of them")
		case !slices.Contains(out, a):
			out = append(out, a)
		}
	}
	if o.noWarmup {
		return nil, cli.Usage("--ablate: compares what is warm; drop --no-warmup")
	}
	return out, nil
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
		o.format = plainFormat
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
	out := newWriter(p.app.Out, o.format)
	if o.folded == "-" {
		out.w = io.Discard
	}
	out.ablate = len(off) > 0
	bar := p.app.NewProgress("measuring", "repetitions", int64(len(threads)*len(tests)*o.reps*(1+len(off))))
	defer bar.Done()
	done := int64(0)
	var all []*result
	at := func() { done++; bar.At(done) }
	finish := func(b *bench, t test, r *result) error {
		if o.steps || folded != nil {
			if err := b.profile(t, r, folded); err != nil {
				return err
			}
		}
		bar.Done()
		p.explain(r)
		all = append(all, r)
		return cli.OutError(out.row(r))
	}
	for _, n := range threads {
		var left []engine.Ablation
		var usual []*result
		opt := p.engineOptions(&o.engineFlags, n)
		err := p.openBench(c.Context(), m, &o.engineFlags, opt, func(b *bench) (err error) {
			bar.Done()
			if left, err = b.vary(off); err != nil {
				return err
			}
			for _, t := range tests {
				rs, err := b.measureAll(t, at)
				if err != nil {
					return err
				}
				usual = append(usual, rs[0])
				for i, x := range append([]*bench{b}, b.variants...) {
					if err := finish(x, t, rs[i]); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, a := range left {
			opt.Without = a
			err := p.openBench(c.Context(), m, &o.engineFlags, opt, func(b *bench) error {
				b.without = a
				for i, t := range tests {
					r, err := b.measure(t, at)
					if err != nil {
						return err
					}
					r.worthAlone(usual[i])
					if err := finish(b, t, r); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	if err := out.end(); err != nil {
		return cli.OutError(err)
	}
	if o.steps && (o.format == "md" || o.format == plainFormat) {
		if err := p.printSteps(all); err != nil {
			return err
		}
	}
	if folded != nil {
		return folded.Commit()
	}
	return nil
}

// explain says on stderr what disturbed a test.
func (p *program) explain(r *result) {
	for _, s := range r.Warnings {
		p.app.Warn("%s, %d threads: %s", r.name(), r.Threads, s)
	}
	for _, s := range r.Notes[r.said:] {
		p.app.Info("%s, %d threads: %s", r.name(), r.Threads, s)
	}
	if n := r.Counts; n != nil {
		p.app.Info("%s, %d threads: a token takes %.4g instructions, %.4g cycles, %.4g cache misses", r.name(), r.Threads, n.Instructions, n.Cycles,
			n.CacheMisses)
	}
}

// withBench opens an engine with n workers for f.
func (p *program) withBench(ctx context.Context, m *generate.Model, o *engineFlags, n int, f func(*bench) error) error {
	return p.openBench(ctx, m, o, p.engineOptions(o, n), f)
}

func (p *program) openBench(ctx context.Context, m *generate.Model, o *engineFlags, opt engine.Options, f func(*bench) error) error {
	e, err := engine.Open(m.Weights, opt)
	if err != nil {
		return err
	}
	defer e.Close()
	for _, s := range e.Notes {
		p.app.Info("%s", s)
	}
	b, err := p.newBench(ctx, m, e, o)
	if err != nil {
		return err
	}
	defer b.close()
	for _, s := range append(b.host.Lines(), b.notes...) {
		p.app.Info("%s", s)
	}
	return f(b)
}
