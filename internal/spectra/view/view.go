// Package view writes spectra as a table and as a chart.
package view

import (
	"fmt"
	"math"

	"ck/internal/picture"
	"ck/internal/plaintext"
	"ck/internal/spectra"
)

// Table has a row for each matrix. all adds what few people need.
func Table(list []spectra.Result, all bool) plaintext.Table {
	t := plaintext.Table{Head: []string{"tensor", "rows", "columns", "rank 90%", "99%", "stable", "entropy", "alpha", "law", "spikes"}}
	if all {
		t.Head = append(t.Head, "95%", "particip.", "xmin", "KS", "noise", "edge", "outliers %", "method", "error", "s")
	}
	bootstrap := any(list, func(r *spectra.Result) bool { return r.PowerLaw != nil && r.PowerLaw.P != nil })
	if bootstrap {
		t.Head = append(t.Head, "p")
	}
	if any(list, func(r *spectra.Result) bool { return r.Kept != nil }) {
		t.Head = append(t.Head, "kept %")
	}
	residual := any(list, func(r *spectra.Result) bool { return r.Residual != nil })
	if residual {
		t.Head = append(t.Head, "rank", "SVD+rest", "plain")
	}
	t.Right = make([]bool, len(t.Head))
	for i := range t.Right {
		t.Right[i] = i > 0
	}
	for i := range list {
		row := cells(&list[i], all)
		if bootstrap && len(row) > 3 {
			row = append(row, goodness(list[i].PowerLaw))
		}
		if k := list[i].Kept; k != nil {
			row = append(row, fmt.Sprintf("%.2f", 100*k.Energy))
		}
		if x := list[i].Residual; x != nil {
			row = append(row, fmt.Sprint(x.Rank), fmt.Sprintf("%.3g", x.SplitError), fmt.Sprintf("%.3g", x.PlainError))
		}
		for len(row) < len(t.Head) {
			row = append(row, "")
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func any(list []spectra.Result, f func(r *spectra.Result) bool) bool {
	for i := range list {
		if f(&list[i]) {
			return true
		}
	}
	return false
}

// cells are those of one matrix; one that could not be measured has none behind its shape.
func cells(r *spectra.Result, all bool) []string {
	row := []string{r.Name, fmt.Sprint(r.Shape[0]), fmt.Sprint(r.Shape[1])}
	if r.Figures == nil {
		return row
	}
	alpha, law, spikes := "", "", ""
	if p := r.PowerLaw; p != nil {
		alpha, law = fmt.Sprintf("%.2f", p.Alpha), "no"
		if p.Fits {
			law = "fits"
		}
	}
	if r.Noise != nil {
		spikes = fmt.Sprint(r.Noise.Spikes)
	}
	row = append(row, fmt.Sprint(r.Rank90), fmt.Sprint(r.Rank99), fmt.Sprintf("%.1f", r.Stable), fmt.Sprintf("%.1f", r.EntropyRank), alpha, law, spikes)
	if !all {
		return row
	}
	xmin, ks, noise, edge := "", "", "", ""
	if l := r.PowerLaw; l != nil {
		xmin, ks = fmt.Sprintf("%.3g", l.Xmin), fmt.Sprintf("%.3f", l.KS)
	}
	if n := r.Noise; n != nil {
		noise, edge = fmt.Sprintf("%.3g", n.Deviation), fmt.Sprintf("%.4g", n.High)
	}
	return append(row, fmt.Sprint(r.Rank95), fmt.Sprintf("%.1f", r.Participation), xmin, ks, noise, edge, fmt.Sprintf("%.1f", 100*r.Outliers.Energy),
		r.Method, fmt.Sprintf("%.0e", r.Bound), fmt.Sprintf("%.2f", r.Seconds))
}

// goodness is the share of synthetic sets that are farther from a power law.
func goodness(l *spectra.PowerLaw) string {
	if l == nil || l.P == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", *l.P)
}

// Summary is what all matrices have in common, in a line.
func Summary(list []spectra.Result) string {
	n, failed, fits, spikes, seconds := 0, 0, 0, 0, 0.0
	low, high, sum := math.Inf(1), 0.0, 0.0
	for i := range list {
		r := &list[i]
		seconds += r.Seconds
		if r.Figures == nil {
			failed++
			continue
		}
		n++
		share := float64(r.Rank99) / float64(min(r.Shape[0], r.Shape[1]))
		low, high, sum = min(low, share), max(high, share), sum+share
		if r.PowerLaw != nil && r.PowerLaw.Fits {
			fits++
		}
		if r.Noise != nil && r.Noise.Spikes > 0 {
			spikes++
		}
	}
	if n == 0 {
		return fmt.Sprintf("%d matrices, none could be measured", failed)
	}
	s := fmt.Sprintf("%d matrices: 99 %% of the energy takes %.0f %% of the rank (%.0f to %.0f), a power law fits %d, %d have values that noise does not explain; %.1f s",
		n, 100*sum/float64(n), 100*low, 100*high, fits, spikes, seconds)
	if failed > 0 {
		s += fmt.Sprintf("; %d could not be measured", failed)
	}
	return s
}

// MostLines is the matrices that a chart has.
const MostLines = 8

// Chart draws the singular values over their rank, each from 1 on, beside the noise's edge and the fitted tail.
func Chart(title string, list []spectra.Result) *picture.Lines {
	d := &picture.Lines{Title: "Singular values of " + title, XName: "rank", YName: "singular value", LogX: true, LogY: true,
		Subtitle: "dashed: the fitted power law, where its tail begins; dotted: the edge of the noise (Marchenko–Pastur)"}
	shown := 0
	for i := range list {
		r := &list[i]
		if r.Figures == nil || r.Largest == 0 {
			continue
		}
		if shown++; shown > MostLines {
			continue
		}
		line := picture.Line{Name: short(r.Name)}
		for k, v := range r.Values {
			if v > r.Bound {
				line.X, line.Y = append(line.X, float64(k+1)), append(line.Y, v)
			}
		}
		if r.Noise != nil {
			d.Levels = append(d.Levels, picture.YLevel{Y: r.Noise.High, Line: len(d.Lines)})
		}
		d.Lines = append(d.Lines, line)
		if p := r.PowerLaw; p != nil {
			d.Lines = append(d.Lines, tail(r, p))
		}
	}
	if shown > MostLines {
		d.Subtitle += fmt.Sprintf("; the first %d of %d matrices", MostLines, shown)
	}
	return d
}

// tail is the values that the power law gives the ranks of its tail: the share of squares above x is (x/xmin)^(1-alpha).
func tail(r *spectra.Result, p *spectra.PowerLaw) picture.Line {
	l := picture.Line{Dashed: true}
	for k := 0; k < p.Tail; k += max(1, p.Tail/100) {
		share := (float64(k) + 0.5) / float64(p.Tail)
		l.X = append(l.X, float64(k+1))
		l.Y = append(l.Y, math.Sqrt(p.Xmin*math.Pow(share, 1/(1-p.Alpha))))
	}
	return l
}

// short is a name with room in a legend.
func short(name string) string {
	name = plaintext.Escape(name)
	if n := len(name); n > 30 {
		return "…" + name[n-29:]
	}
	return name
}
