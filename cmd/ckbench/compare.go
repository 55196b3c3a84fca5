package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/bench"
	"ck/internal/bench/format"
	"ck/internal/cli"
	"ck/internal/compare"
	"ck/internal/measure"
	"ck/internal/plaintext"
)

// compareOptions are the flags of ckbench compare.
type compareOptions struct {
	raw    bool
	failOn string
	alpha  float64
}

const compareLong = `Compares two results of "ckbench run -o json" or "-o jsonl", test by test: medians, their difference, and the probability that chance alone would tell the samples apart so clearly (exact rank-sum test of Mann and Whitney; five repetitions on each side can reach 0.008).

What is compared is the share of the roofs that was measured beside each repetition, so that a slower memory clock or a busy neighbour does not look like a slower program. Rates are compared as they are with --raw, where a side has no roofs, and where the numbers of threads differ, since roofs of different threads are not the same.

Results of the same test in one file, as from several runs whose lines were appended, are taken together. Repetitions of one run share its place in memory and its minute of the machine, so where both sides have four runs or more it is the runs' medians that are compared; a regression that rests on fewer is warned of. Runs of old and new should take turns.

With --fail-on, a test whose median fell by more than that, with a probability below --alpha, ends the program with code 1. Three repetitions on each side cannot reach 0.05; stderr says so. Tests that only one side has are named there, and what else than the program differs: CPU, huge pages, governor, SMT, tier, activations, the model's file.

  ckbench run -m model.gguf -o json > new.json
  ckbench compare old.json new.json --fail-on 5%`

func (p *program) compareCommand() {
	o := &p.compare
	c := p.app.NewCommand("compare [flags] OLD NEW", "compare two results of run", compareLong, p.runCompare)
	g := cli.NewGroup(c.Flags(), "Comparison")
	g.Bool(&o.raw, "raw", "", "compare tokens per second, not shares of roofs")
	g.Text(&o.failOn, "fail-on", "", "", "SHARE", "end with code 1 if a test became slower by more than this, such as 5%")
	g.Float(&o.alpha, "alpha", "", 0.05, 0, 1, "P", "probability below which a difference counts")
}

func readResultFile(name string, stdin io.Reader) ([]*bench.Result, error) {
	if name == "-" {
		return compare.Read("stdin", stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return compare.Read(name, f)
}

// parseShare reads "5%" or "0.05".
func parseShare(flag, s string) (float64, error) {
	text, isPercent := strings.CutSuffix(strings.TrimSpace(s), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if isPercent {
		x /= 100
	}
	if err != nil || !(x >= 0 && x < 1) {
		return 0, cli.Usage("%s: %q is no share such as 5%% or 0.05", flag, s)
	}
	return x, nil
}

// runCompare is ckbench compare.
func (p *program) runCompare(_ *cobra.Command, args []string) error {
	o := &p.compare
	if len(args) != 2 {
		return cli.Usage("compare: takes OLD and NEW; see ckbench compare --help")
	}
	if args[0] == "-" && args[1] == "-" {
		return cli.Usage("compare: only one side can be stdin; name a file")
	}
	failOn := -1.0
	if o.failOn != "" {
		var err error
		if failOn, err = parseShare("--fail-on", o.failOn); err != nil {
			return err
		}
	}
	before, err := readResultFile(args[0], p.app.In)
	if err != nil {
		return err
	}
	after, err := readResultFile(args[1], p.app.In)
	if err != nil {
		return err
	}
	r := compare.Results(before, after, compare.Options{Raw: o.raw, Alpha: o.alpha, FailOn: failOn})
	for _, s := range r.Added {
		p.app.Warn("%s: %s: is not in %s", args[1], s, args[0])
	}
	for _, s := range r.Gone {
		p.app.Warn("%s: %s: is not in %s", args[0], s, args[1])
	}
	if len(r.Tests) == 0 {
		return cli.Input("%s: has no test in common with %s; run the same tests", args[1], args[0])
	}
	if d := r.Differences; len(d) > 0 {
		p.app.Warn("%s and %s differ in more than the program: %s", args[0], args[1], strings.Join(d, ", "))
	}
	if err := p.printComparison(r.Tests); err != nil {
		return err
	}
	p.warn(r.Doubts())
	bad, none := r.Count("regression"), r.Count("no samples")
	switch {
	case bad > 0:
		return cli.Check("%s: %d of %d tests slower than %s by more than %s; see the table", args[1], bad, len(r.Tests), args[0], o.failOn)
	case none > 0:
		return cli.Input("%s, %s: %d of %d tests have no samples on one side; measure again", args[0], args[1], none, len(r.Tests))
	}
	return nil
}

func (p *program) printComparison(list []compare.Test) error {
	if p.app.Common.JSONL {
		return cli.PrintLines(p.app, "ck.bench.compare.test/1", list)
	}
	if p.app.Common.JSON {
		return p.app.PrintJSON(struct {
			Schema string         `json:"schema"`
			Tests  []compare.Test `json:"tests"`
		}{"ck.bench.compare/1", list})
	}
	t := plaintext.Table{Head: []string{"model", "test", "threads", "what", "old", "new", "change", "p", "verdict"},
		Right: []bool{false, false, true, false, true, true, true, true, false}}
	for _, c := range list {
		threads := strconv.Itoa(c.NewThreads)
		if c.OldThreads != c.NewThreads {
			threads = fmt.Sprintf("%d → %d", c.OldThreads, c.NewThreads)
		}
		show := func(v float64) string {
			if c.What == "tokens/s" {
				return measure.Digits(v)
			}
			return fmt.Sprintf("%.1f %%", 100*v)
		}
		t.Rows = append(t.Rows, []string{c.Model, c.Test, threads, c.What, show(c.Old), show(c.New), fmt.Sprintf("%+.1f %%", 100*c.Change),
			fmt.Sprintf("%.3g", c.P), c.Verdict})
	}
	return cli.OutError(format.Table(&t, p.app.Out, p.app.Common.Plain, 3))
}
