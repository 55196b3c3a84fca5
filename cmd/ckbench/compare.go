package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

With --fail-on, a test whose median fell by more than that, with a probability below --alpha, ends the program with code 1.

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
	d := json.NewDecoder(io.LimitReader(r, maxResults))
	for {
		var doc struct {
			result
			Results []result      `json:"results"`
			Host    *measure.Host `json:"host"`
		}
		switch err := d.Decode(&doc); {
		case errors.Is(err, io.EOF) && len(out) > 0:
			return out, nil
		case err != nil:
			if errors.Is(err, io.EOF) {
				err = errors.New("is empty")
			}
			return nil, cli.Input("%s: %w; give a file that ckbench run -o json has written", name, err)
		case doc.Schema != runSchema:
			return nil, cli.Input("%s: has schema %q, not %s; give a file that ckbench run -o json has written", name, doc.Schema, runSchema)
		case doc.Results != nil:
			for i := range doc.Results {
				out = append(out, &doc.Results[i])
			}
		default:
			out = append(out, &doc.result)
		}
	}
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
	What       string  `json:"what"` // "share of roof" or "tokens/s"
	Old        float64 `json:"old_median"`
	New        float64 `json:"new_median"`
	Change     float64 `json:"change"` // New/Old - 1
	P          float64 `json:"p"`
	Verdict    string  `json:"verdict"` // same, faster, slower, regression
}

// compareResults pairs tests of the same model, depth, rows and cache. Threads tell tests apart if a side has several of them.
func compareResults(before, after []*result, raw bool, alpha, failOn float64) (out []comparison, unpaired []string) {
	several := severalThreads(before) || severalThreads(after)
	key := func(r *result) string {
		k := fmt.Sprintf("%s|%s|%d|%s", r.ModelType, r.name(), r.Rows, r.TypeK)
		if several {
			k += fmt.Sprintf("|%d", r.Threads)
		}
		return k
	}
	find := map[string]*result{}
	for _, r := range before {
		find[key(r)] = r
	}
	for _, r := range after {
		o := find[key(r)]
		if o == nil {
			unpaired = append(unpaired, fmt.Sprintf("%s %s, %d threads", r.ModelType, r.name(), r.Threads))
			continue
		}
		out = append(out, compareOne(o, r, raw, alpha, failOn))
	}
	return out, unpaired
}

func severalThreads(rs []*result) bool {
	for _, r := range rs {
		if r.Threads != rs[0].Threads {
			return true
		}
	}
	return false
}

func compareOne(o, r *result, raw bool, alpha, failOn float64) comparison {
	c := comparison{Model: r.ModelType, Test: r.name(), OldThreads: o.Threads, NewThreads: r.Threads, What: "share of roof", Verdict: "same"}
	raw = raw || o.Threads != r.Threads || !haveShares(o) || !haveShares(r)
	values := func(r *result) (v []float64) {
		for _, s := range r.Samples {
			if raw {
				v = append(v, s.TS)
			} else {
				v = append(v, s.Share)
			}
		}
		return v
	}
	if raw {
		c.What = "tokens/s"
	}
	a, b := values(o), values(r)
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
	list, unpaired := compareResults(before, after, o.raw, o.alpha, failOn)
	for _, s := range unpaired {
		p.app.Warn("%s: %s: is not in %s", args[1], s, args[0])
	}
	if len(list) == 0 {
		return cli.Input("%s: has no test in common with %s; run the same tests", args[1], args[0])
	}
	if err := p.printComparison(list); err != nil {
		return err
	}
	bad := 0
	for _, c := range list {
		if c.Verdict == "regression" {
			bad++
		}
	}
	if bad > 0 {
		return cli.Check("%s: %d of %d tests slower than %s by more than %s; see the table", args[1], bad, len(list), args[0], o.failOn)
	}
	return nil
}

func (p *program) printComparison(list []comparison) error {
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
				return fixed(v)
			}
			return fmt.Sprintf("%.1f %%", 100*v)
		}
		t.Rows = append(t.Rows, []string{c.Model, c.Test, threads, c.What, show(c.Old), show(c.New), fmt.Sprintf("%+.1f %%", 100*c.Change),
			fmt.Sprintf("%.3g", c.P), c.Verdict})
	}
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
