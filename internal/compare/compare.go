// Package compare tells whether a program became faster or slower, from two results of the same tests. It prints nothing.
package compare

import (
	"fmt"
	"slices"

	"ck/internal/bench"
	"ck/internal/measure"
)

// Test is a test on both sides.
type Test struct {
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
func differences(a, b *bench.Result) []string {
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

// Options are how results are compared.
type Options struct {
	Raw    bool    // rates, not shares of roofs
	Alpha  float64 // probability below which a difference counts
	FailOn float64 // share that a rate may fall by before it is a regression; below 0: none is
}

// Report is what a comparison found.
type Report struct {
	Tests       []Test
	Added, Gone []string // tests that only the new side has, or the old
	Differences []string // in what else than the program the sides differ
	Alpha       float64
}

// Results pairs tests of the same model, depth, rows and cache. Threads tell tests apart if a side has several of them. Both sides have at
// least one result.
func Results(before, after []*bench.Result, opt Options) *Report {
	several := severalThreads(before) || severalThreads(after)
	key := func(r *bench.Result) string {
		k := fmt.Sprintf("%s|%s|%d|%s", r.ModelType, r.Name(), r.Rows, r.TypeK)
		if several {
			k += fmt.Sprintf("|%d", r.Threads)
		}
		return k
	}
	text := func(r *bench.Result) string {
		return fmt.Sprintf("%s %s, %d threads", r.ModelType, r.Name(), r.Threads)
	}
	out := &Report{Differences: differences(before[0], after[0]), Alpha: opt.Alpha}
	olds, old := together(before, key)
	news, now := together(after, key)
	for _, r := range olds {
		if now[key(&r.Result)] == nil {
			out.Gone = append(out.Gone, text(&r.Result))
		}
	}
	for _, r := range news {
		if o := old[key(&r.Result)]; o != nil {
			out.Tests = append(out.Tests, compareOne(o, r, opt))
		} else {
			out.Added = append(out.Added, text(&r.Result))
		}
	}
	return out
}

// merged is all results of one test on one side.
type merged struct {
	bench.Result
	runs [][]bench.Sample // that Samples come from
}

// together makes one of all results with the same key, with the samples of all of them.
func together(rs []*bench.Result, key func(*bench.Result) string) (list []*merged, byKey map[string]*merged) {
	byKey = map[string]*merged{}
	for _, r := range rs {
		k := key(r)
		if first := byKey[k]; first != nil {
			first.Samples = append(first.Samples, r.Samples...)
			first.runs = append(first.runs, r.Samples)
			continue
		}
		c := &merged{*r, [][]bench.Sample{r.Samples}}
		c.Samples = slices.Clone(r.Samples)
		byKey[k], list = c, append(list, c)
	}
	return list, byKey
}

func severalThreads(rs []*bench.Result) bool {
	for _, r := range rs {
		if r.Threads != rs[0].Threads {
			return true
		}
	}
	return false
}

// enoughRuns is the fewest runs on each side whose medians can differ with a probability below 0.05.
const enoughRuns = 4

func compareOne(o, r *merged, opt Options) Test {
	c := Test{Model: r.ModelType, Test: r.Name(), OldThreads: o.Threads, NewThreads: r.Threads, OldRuns: len(o.runs), NewRuns: len(r.runs),
		Unit: "repetition", What: "share of roof", Verdict: "same"}
	raw := opt.Raw || o.Threads != r.Threads || !haveShares(o) || !haveShares(r)
	if raw {
		c.What = "tokens/s"
	}
	of := func(samples []bench.Sample) (v []float64) {
		for _, s := range samples {
			if raw {
				v = append(v, s.TS)
			} else {
				v = append(v, s.Share)
			}
		}
		return v
	}
	values := func(r *merged) []float64 { return of(r.Samples) }
	if min(c.OldRuns, c.NewRuns) >= enoughRuns {
		c.Unit = "run"
		values = func(r *merged) (v []float64) {
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
	if c.P < opt.Alpha {
		switch {
		case opt.FailOn >= 0 && c.Change < -opt.FailOn:
			c.Verdict = "regression"
		case c.Change < 0:
			c.Verdict = "slower"
		case c.Change > 0:
			c.Verdict = "faster"
		}
	}
	return c
}

func haveShares(r *merged) bool {
	for _, s := range r.Samples {
		if s.Share <= 0 {
			return false
		}
	}
	return true
}

// leastP is the smallest probability that n and m samples can have: that of samples of which all of one side are above all of the other.
func leastP(n, m int) float64 {
	v := make([]float64, n+m)
	for i := range v {
		v[i] = float64(i)
	}
	return measure.RankTest(v[:n], v[n:])
}

// Count is how many tests have a verdict.
func (r *Report) Count(verdict string) (n int) {
	for _, c := range r.Tests {
		if c.Verdict == verdict {
			n++
		}
	}
	return n
}

// Doubts say what the verdicts cannot rest on: too few repetitions to tell any difference, or too few runs for a regression.
func (r *Report) Doubts() []string {
	var out []string
	blind, single := "", false
	for _, c := range r.Tests {
		switch {
		case c.Verdict == "regression":
			single = single || c.Unit != "run"
		case c.Verdict == "no samples":
		case c.least >= r.Alpha && c.P >= r.Alpha:
			what := fmt.Sprintf("%d and %d repetitions", c.OldN, c.NewN)
			if c.Unit == "run" {
				what = fmt.Sprintf("%d and %d runs", c.OldRuns, c.NewRuns)
			}
			blind = fmt.Sprintf("%s: %s cannot come below p = %.2g, and --alpha is %g; repeat more often (-r)", c.Test, what, c.least, r.Alpha)
		}
	}
	if blind != "" {
		out = append(out, blind)
	}
	if single {
		out = append(out, fmt.Sprintf("fewer than %d runs on a side: what the machine did meanwhile counts as well; let old and new take turns and append (-o jsonl)", enoughRuns))
	}
	return out
}
