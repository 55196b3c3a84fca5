package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/measure"
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

// maxResults bounds what compare reads.
const maxResults = 64 << 20

// readResults reads what run prints as json or jsonl. name is for errors.
func readResults(name string, r io.Reader) ([]*result, error) {
	var out []*result
	rest := &io.LimitedReader{R: r, N: maxResults}
	d := json.NewDecoder(rest)
	for {
		var doc struct {
			result
			Results []result      `json:"results"`
			Host    *measure.Host `json:"host"`
		}
		switch err := d.Decode(&doc); {
		case err != nil && rest.N == 0:
			return nil, cli.Input("%s: has more than %d MiB; compare fewer results", name, maxResults>>20)
		case errors.Is(err, io.EOF) && len(out) > 0:
			return out, nil
		case err != nil:
			return nil, unreadable(name, err)
		case doc.Schema != runSchema:
			return nil, cli.Input("%s: has schema %q, not %s; give a file that ckbench run -o json has written", name, doc.Schema, runSchema)
		case doc.Results == nil && doc.Test == "":
			return nil, cli.Input("%s: has no results; give a file that ckbench run -o json has written", name)
		case doc.Results != nil:
			for i := range doc.Results {
				r := &doc.Results[i]
				r.Host = doc.Host
				out = append(out, r)
			}
		default:
			doc.result.Host = doc.Host
			out = append(out, &doc.result)
		}
	}
}

// unreadable words an error of reading results.
func unreadable(name string, err error) error {
	var path *fs.PathError
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	why := ""
	switch {
	case errors.As(err, &path):
		return err
	case errors.Is(err, io.EOF):
		why = "is empty, or has no results"
	case errors.Is(err, io.ErrUnexpectedEOF):
		why = "ends within a result"
	case errors.As(err, &syntax):
		why = fmt.Sprintf("is not JSON: %v", err)
	case errors.As(err, &typ) && typ.Field == "":
		why = fmt.Sprintf("is a JSON %s, not an object", typ.Value)
	case errors.As(err, &typ):
		why = fmt.Sprintf("%q is a JSON %s", strings.TrimPrefix(typ.Field, "result."), typ.Value)
	default:
		return fmt.Errorf("%s: %w", name, err)
	}
	return cli.Input("%s: %s; give a file that ckbench run -o json has written", name, why)
}

func readResultFile(name string, stdin io.Reader) ([]*result, error) {
	if name == "-" {
		return readResults("stdin", stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readResults(name, f)
}

// comparison is a test on both sides.
type comparison struct {
	Model      string  `json:"model"`
	Test       string  `json:"test"`
	OldThreads int     `json:"old_threads"`
	NewThreads int     `json:"new_threads"`
	OldRuns    int     `json:"old_runs"`
	NewRuns    int     `json:"new_runs"`
	Unit       string  `json:"unit"` // of what is compared: "repetition" or "run"
	OldN       int     `json:"old_repetitions"`
	NewN       int     `json:"new_repetitions"`
	What       string  `json:"what"` // "share of roof" or "tokens/s"
	Old        float64 `json:"old_median"`
	New        float64 `json:"new_median"`
	Change     float64 `json:"change"` // New/Old - 1
	P          float64 `json:"p"`
	Verdict    string  `json:"verdict"` // same, faster, slower, regression, no samples

	least float64 // smallest P that so many could have
}

// differences names what else than the program two results differ in, as far as both tell.
func differences(a, b *result) []string {
	var out []string
	add := func(name, x, y string) {
		if x != y && x != "" && y != "" {
			out = append(out, fmt.Sprintf("%s (%s, %s)", name, x, y))
		}
	}
	if a.Host != nil && b.Host != nil {
		add("the CPU", a.Host.CPU, b.Host.CPU)
		add("huge pages", a.Host.THP, b.Host.THP)
		add("governor", a.Host.Governor, b.Host.Governor)
		add("SMT", a.Host.SMT, b.Host.SMT)
	}
	add("tier", a.Tier, b.Tier)
	add("activations", a.Act, b.Act)
	if a.ModelHash != b.ModelHash && a.ModelHash != "" && b.ModelHash != "" {
		out = append(out, "the model's file")
	}
	return out
}

// compareResults pairs tests of the same model, depth, rows and cache. Threads tell tests apart if a side has several of them. added and
// gone name the tests that only one side has.
func compareResults(before, after []*result, raw bool, alpha, failOn float64) (out []comparison, added, gone []string) {
	several := severalThreads(before) || severalThreads(after)
	key := func(r *result) string {
		k := fmt.Sprintf("%s|%s|%d|%s", r.ModelType, r.name(), r.Rows, r.TypeK)
		if several {
			k += fmt.Sprintf("|%d", r.Threads)
		}
		return k
	}
	text := func(r *result) string { return fmt.Sprintf("%s %s, %d threads", r.ModelType, r.name(), r.Threads) }
	before, old := together(before, key)
	after, now := together(after, key)
	for _, r := range before {
		if now[key(r)] == nil {
			gone = append(gone, text(r))
		}
	}
	for _, r := range after {
		if o := old[key(r)]; o != nil {
			out = append(out, compareOne(o, r, raw, alpha, failOn))
		} else {
			added = append(added, text(r))
		}
	}
	return out, added, gone
}

// together makes one result of all with the same key, with the samples of all of them.
func together(rs []*result, key func(*result) string) (list []*result, byKey map[string]*result) {
	byKey = map[string]*result{}
	for _, r := range rs {
		k := key(r)
		if first := byKey[k]; first != nil {
			first.Samples = append(first.Samples, r.Samples...)
			first.runs = append(first.runs, r.Samples)
			continue
		}
		c := *r
		c.Samples, c.runs = slices.Clone(r.Samples), [][]sample{r.Samples}
		byKey[k], list = &c, append(list, &c)
	}
	return list, byKey
}

func severalThreads(rs []*result) bool {
	for _, r := range rs {
		if r.Threads != rs[0].Threads {
			return true
		}
	}
	return false
}

// enoughRuns is the fewest runs on each side whose medians can differ with a probability below 0.05.
const enoughRuns = 4

func compareOne(o, r *result, raw bool, alpha, failOn float64) comparison {
	c := comparison{Model: r.ModelType, Test: r.name(), OldThreads: o.Threads, NewThreads: r.Threads, OldRuns: len(o.runs), NewRuns: len(r.runs),
		Unit: "repetition", What: "share of roof", Verdict: "same"}
	raw = raw || o.Threads != r.Threads || !haveShares(o) || !haveShares(r)
	if raw {
		c.What = "tokens/s"
	}
	of := func(samples []sample) (v []float64) {
		for _, s := range samples {
			if raw {
				v = append(v, s.TS)
			} else {
				v = append(v, s.Share)
			}
		}
		return v
	}
	values := func(r *result) []float64 { return of(r.Samples) }
	if min(c.OldRuns, c.NewRuns) >= enoughRuns {
		c.Unit = "run"
		values = func(r *result) (v []float64) {
			for _, samples := range r.runs {
				if len(samples) > 0 {
					v = append(v, measure.Median(of(samples)))
				}
			}
			return v
		}
	}
	a, b := values(o), values(r)
	c.OldN, c.NewN, c.least = len(o.Samples), len(r.Samples), leastP(len(a), len(b))
	c.Old, c.New, c.P = measure.Median(a), measure.Median(b), measure.RankTest(a, b)
	if !(c.Old > 0 && c.New > 0) { // none, or not what run writes
		c.Old, c.New, c.P, c.Verdict = 0, 0, 1, "no samples"
		return c
	}
	c.Change = c.New/c.Old - 1
	if c.P < alpha {
		switch {
		case failOn >= 0 && c.Change < -failOn:
			c.Verdict = "regression"
		case c.Change < 0:
			c.Verdict = "slower"
		case c.Change > 0:
			c.Verdict = "faster"
		}
	}
	return c
}

func haveShares(r *result) bool {
	for _, s := range r.Samples {
		if s.Share <= 0 {
			return false
		}
	}
	return true
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
	list, added, gone := compareResults(before, after, o.raw, o.alpha, failOn)
	for _, s := range added {
		p.app.Warn("%s: %s: is not in %s", args[1], s, args[0])
	}
	for _, s := range gone {
		p.app.Warn("%s: %s: is not in %s", args[0], s, args[1])
	}
	if len(list) == 0 {
		return cli.Input("%s: has no test in common with %s; run the same tests", args[1], args[0])
	}
	if d := differences(before[0], after[0]); len(d) > 0 {
		p.app.Warn("%s and %s differ in more than the program: %s", args[0], args[1], strings.Join(d, ", "))
	}
	if err := p.printComparison(list); err != nil {
		return err
	}
	bad, none, blind, single := 0, 0, "", false
	for _, c := range list {
		switch {
		case c.Verdict == "regression":
			bad++
			single = single || c.Unit != "run"
		case c.Verdict == "no samples":
			none++
		case c.least >= o.alpha && c.P >= o.alpha:
			what := fmt.Sprintf("%d and %d repetitions", c.OldN, c.NewN)
			if c.Unit == "run" {
				what = fmt.Sprintf("%d and %d runs", c.OldRuns, c.NewRuns)
			}
			blind = fmt.Sprintf("%s: %s cannot come below p = %.2g, and --alpha is %g; repeat more often (-r)", c.Test, what, c.least, o.alpha)
		}
	}
	if blind != "" {
		p.app.Warn("%s", blind)
	}
	if single {
		p.app.Warn("fewer than %d runs on a side: what the machine did meanwhile counts as well; let old and new take turns and append (-o jsonl)", enoughRuns)
	}
	switch {
	case bad > 0:
		return cli.Check("%s: %d of %d tests slower than %s by more than %s; see the table", args[1], bad, len(list), args[0], o.failOn)
	case none > 0:
		return cli.Input("%s, %s: %d of %d tests have no samples on one side; measure again", args[0], args[1], none, len(list))
	}
	return nil
}

// leastP is the smallest probability that n and m samples can have: that of samples of which all of one side are above all of the other.
func leastP(n, m int) float64 {
	v := make([]float64, n+m)
	for i := range v {
		v[i] = float64(i)
	}
	return measure.RankTest(v[:n], v[n:])
}

func (p *program) printComparison(list []comparison) error {
	if p.app.Common.JSONL {
		return cli.PrintLines(p.app, "ck.bench.compare.test/1", list)
	}
	if p.app.Common.JSON {
		return p.app.PrintJSON(struct {
			Schema string       `json:"schema"`
			Tests  []comparison `json:"tests"`
		}{"ck.bench.compare/1", list})
	}
	t := cli.Table{Head: []string{"model", "test", "threads", "what", "old", "new", "change", "p", "verdict"},
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
	return cli.OutError(writeTable(&t, p.app.Out, p.app.Common.Plain, 3))
}
