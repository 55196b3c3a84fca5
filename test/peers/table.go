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

// part is the repetitions of a row in one state of the memory.
type part struct {
	row
	reps []int
}

// parts divides a row by the states of the memory, the fastest first.
func parts(r row, borders []float64) []part {
	by := make([][]int, len(borders)+1)
	for i, s := range r.Runs[ckName] {
		n := stateOf(s.RoofGBps, borders)
		by[n] = append(by[n], i)
	}
	var out []part
	for _, reps := range slices.Backward(by) {
		if len(reps) > 0 {
			out = append(out, part{r, reps})
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
	if len(p.Runs[name]) == 0 {
		return nil
	}
	for _, i := range p.reps {
		out = append(out, f(p.Runs[name][i]))
	}
	return out
}

// ratios are ck's rates over a peer's of the same repetition.
func (p part) ratios(peer string) []float64 {
	own, other := p.rates(ckName), p.rates(peer)
	var out []float64
	for i := range other {
		out = append(out, own[i]/other[i])
	}
	return out
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
	for _, p := range parts(r, borders) {
		peer := p.better()
		test := r.Test
		if r.CPU != "" {
			test += " " + r.CPU
		}
		share, file, others := fmt.Sprintf("%.0f %% of the peak", r.Peak), "", ""
		if !r.prompt() {
			file = fmt.Sprintf("%.0f %%", p.fileShare(ckName))
			share = fmt.Sprintf("%.0f %%", p.fileShare(ckName)*r.Panels)
			if peer != "" {
				others = fmt.Sprintf("%.0f %%", p.fileShare(peer))
			}
		}
		out = append(out, fmt.Sprintf("| %s | %s | %d | %.0f | %d | %s | %s | %s | %s | %s | %s | %s |", r.Model, test, r.Threads, p.roof(ckName),
			len(p.reps), spread(p.rates(ckName), "%.1f"), spread(p.rates(llamaName), "%.1f"), spread(p.rates(ikName), "%.1f"),
			spread(p.ratios(peer), "%.2f"), share, file, others))
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
