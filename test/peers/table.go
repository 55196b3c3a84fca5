package main

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
)

// median is the middle of v, 0 if it is empty.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	sort.Float64s(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// part is the repetitions of a row in one state of the memory, of every engine. The state may change between engines, so repetitions that
// began and ended in the same state are compared, whenever they were.
type part struct {
	row
	runs map[string][]sample
}

// parts divides a row by the states of the memory, the fastest first. States that an engine met once alone, or never, are left out, unless it
// was measured once in all.
func parts(r row, borders []float64) []part {
	var out []part
	least := min(2, len(r.Runs[ckName]))
	for state := len(borders); state >= 0; state-- {
		p := part{r, map[string][]sample{}}
		whole := true
		for name, runs := range r.Runs {
			p.runs[name] = inState(runs, state, borders)
			whole = whole && len(p.runs[name]) >= least
		}
		if whole {
			out = append(out, p)
		}
	}
	return out
}

// rates are an engine's tokens per second.
func (p part) rates(name string) []float64 {
	return p.values(name, func(s sample) float64 { return s.TS })
}

func (p part) values(name string, f func(sample) float64) []float64 {
	var out []float64
	for _, s := range p.runs[name] {
		out = append(out, f(s))
	}
	return out
}

// ratio is ck's median rate over a peer's; 0 without one.
func (p part) ratio(peer string) float64 {
	if m := median(p.rates(peer)); m > 0 {
		return median(p.rates(ckName)) / m
	}
	return 0
}

// better is the peer with the higher median.
func (p part) better() string {
	name := ""
	for _, peer := range []string{llamaName, ikName} {
		if median(p.rates(peer)) > median(p.rates(name)) {
			name = peer
		}
	}
	return name
}

// roof is the read roof of an engine's repetitions in GB/s.
func (p part) roof(name string) float64 {
	return median(p.values(name, func(s sample) float64 { return s.RoofGBps }))
}

// fileShare is the share of the read roof that an engine reaches with the bytes of the file, in percent: what is comparable between engines
// that read other forms of the same weights. Of tests after a depth the cache is not counted.
func (p part) fileShare(name string) float64 {
	return median(p.values(name, func(s sample) float64 { return s.TS * float64(p.Bytes) / (s.RoofGBps * 1e9) * 100 }))
}

// spread is a median with its range.
func spread(v []float64, format string) string {
	if len(v) == 0 {
		return "–"
	}
	if len(v) == 1 {
		return fmt.Sprintf(format, v[0])
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", median(v), slices.Min(v), slices.Max(v))
}

const head = `| model | test | threads | roof, GB/s | n | ck, tokens/s | llama.cpp | ik_llama.cpp | ck / better peer | ck's share | in the file's bytes | better peer's |
|---|---|---|---|---|---|---|---|---|---|---|---|`

// lines is a row as lines of the Markdown table, one for each state of the memory.
func lines(r row, borders []float64) []string {
	var out []string
	for _, p := range parts(r, statesOf(r.job, borders)) {
		peer := p.better()
		test := r.Test
		if r.CPU != "" {
			test += " " + r.CPU
		}
		share, file, others, ratio := fmt.Sprintf("%.0f %% of the peak", r.Peak), "", "", "–"
		if peer != "" {
			ratio = fmt.Sprintf("%.2f", p.ratio(peer))
		}
		if !r.prompt() {
			file = fmt.Sprintf("%.0f %%", p.fileShare(ckName))
			share = fmt.Sprintf("%.0f %%", p.fileShare(ckName)*r.Panels)
			if peer != "" {
				others = fmt.Sprintf("%.0f %%", p.fileShare(peer))
			}
		}
		out = append(out, fmt.Sprintf("| %s | %s | %d | %.0f | %d | %s | %s | %s | %s | %s | %s | %s |", r.Model, test, r.Threads, p.roof(ckName),
			len(p.runs[ckName]), spread(p.rates(ckName), "%.1f"), spread(p.rates(llamaName), "%.1f"), spread(p.rates(ikName), "%.1f"),
			ratio, share, file, others))
	}
	return out
}

// printTables prints the rows, then how the peers were run.
func printTables(w io.Writer, j *journal, engines []engine, borders []float64) {
	for _, e := range engines {
		for _, b := range e.builds {
			fmt.Fprintln(w, strings.TrimSpace(e.name+" "+b.name)+": "+b.id)
		}
	}
	fmt.Fprintf(w, "\n%s\n", head)
	for _, k := range j.keys() {
		for _, l := range lines(j.rows[k], borders) {
			fmt.Fprintln(w, l)
		}
	}
	fmt.Fprintf(w, "\n| peer | weights | test | fastest | the others, tokens/s of it |\n|---|---|---|---|---|\n")
	for _, s := range j.searches {
		var others []string
		for _, t := range s.Tried[1:] {
			others = append(others, fmt.Sprintf("%s %.2f", t.Setup, t.rate()/s.Tried[0].rate()))
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", s.Engine, s.Type, strings.TrimSpace(s.Test+" "+s.CPU), s.Tried[0].Setup, strings.Join(others, "; "))
	}
}
