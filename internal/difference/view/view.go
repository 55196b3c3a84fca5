// Package view writes how two models differ as tables.
package view

import (
	"fmt"

	"ck/internal/difference"
	"ck/internal/facts"
	"ck/internal/humanize"
	"ck/internal/plaintext"
)

// Section is a table with its heading, or a text.
type Section struct {
	Title string
	Table plaintext.Table
	Text  string
}

// mostTokens is how many changed tokens are listed unless all are asked for.
const mostTokens = 20

// Sections are the differences as tables: those that there are.
func Sections(r *difference.Report, all bool) []Section {
	var list []Section
	add := func(title string, t plaintext.Table) {
		if len(t.Rows) > 0 {
			list = append(list, Section{Title: title, Table: t})
		}
	}
	add("tensors", tensors(r))
	add("unpaired", unpaired(r))
	add("metadata", metadata(r))
	if r.Tokens != nil {
		add("tokens", tokens(r.Tokens, all))
	}
	if r.Template != "" {
		list = append(list, Section{Title: "chat template", Text: r.Template})
	}
	return list
}

func tensors(r *difference.Report) plaintext.Table {
	t := plaintext.Table{Head: []string{"tensor", "A", "B", "change %", "largest", "rank 99%", "rank", "holds %", "looks like"},
		Right: []bool{false, false, false, true, true, true, true, true, false}}
	for i := range r.Changed {
		c := &r.Changed[i]
		row := []string{c.Name, c.A, c.B}
		if c.Failed != "" {
			t.Rows = append(t.Rows, append(row, "", "", "", "", "", c.Failed))
			continue
		}
		share := ""
		if c.Share != nil {
			share = fmt.Sprintf("%.3g", 100**c.Share)
		}
		row = append(row, share, fmt.Sprintf("%.3g", c.Max))
		if len(c.Ranks) == 0 {
			t.Rows = append(t.Rows, append(row, "", "", "", c.Left))
			continue
		}
		for k, x := range c.Ranks {
			line := append([]string{}, row...)
			if len(c.Ranks) > 1 {
				line[0] = fmt.Sprintf("%s[%d]", c.Name, x.Slice)
				if k > 0 {
					line[3], line[4] = "", ""
				}
			}
			t.Rows = append(t.Rows, append(line, fmt.Sprintf("%d of %d", x.Rank99, x.Short), fmt.Sprint(x.Spikes), fmt.Sprintf("%.1f", 100*x.Energy), looks(x)))
		}
	}
	return t
}

func looks(x difference.Rank) string {
	if x.Kind == difference.LowRank {
		return fmt.Sprintf("rank %d", x.Spikes)
	}
	return string(x.Kind)
}

func unpaired(r *difference.Report) plaintext.Table {
	t := plaintext.Table{Head: []string{"tensor", "difference"}, Right: []bool{false, false}}
	for _, n := range r.OnlyA {
		t.Rows = append(t.Rows, []string{n, "only in A"})
	}
	for _, n := range r.OnlyB {
		t.Rows = append(t.Rows, []string{n, "only in B"})
	}
	for _, s := range r.Shapes {
		t.Rows = append(t.Rows, []string{s.Name, fmt.Sprintf("%v in A, %v in B", s.A, s.B)})
	}
	return t
}

func metadata(r *difference.Report) plaintext.Table {
	t := plaintext.Table{Head: []string{"key", "difference", "A", "B"}, Right: []bool{false, false, false, false}}
	for _, k := range r.Metadata {
		t.Rows = append(t.Rows, []string{k.Name, k.What, k.A, k.B})
	}
	return t
}

func tokens(d *difference.Tokens, all bool) plaintext.Table {
	t := plaintext.Table{Head: []string{"token", "A", "B"}, Right: []bool{true, false, false}}
	for i, x := range d.Changed {
		if i == mostTokens && !all {
			t.Rows = append(t.Rows, []string{"…", fmt.Sprintf("%d more; --all lists them", len(d.Changed)-i), ""})
			break
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(x.ID), token(x.A), token(x.B)})
	}
	return t
}

func token(x *facts.Token) string {
	switch {
	case x == nil:
		return ""
	case x.Score != nil:
		return fmt.Sprintf("%q %s %g", x.Piece, x.Type, *x.Score)
	}
	return fmt.Sprintf("%q %s", x.Piece, x.Type)
}

// Summary is the difference in a line.
func Summary(r *difference.Report) string {
	if r.Same() {
		return fmt.Sprintf("equal: %s, metadata, vocabulary, template", humanize.Plural(r.Equal, "tensor"))
	}
	s := fmt.Sprintf("%s changed, %d equal", humanize.Plural(len(r.Changed), "tensor"), r.Equal)
	kinds, most := map[difference.Kind]int{}, 0
	for i := range r.Changed {
		for _, x := range r.Changed[i].Ranks {
			if kinds[x.Kind]++; x.Kind == difference.LowRank {
				most = max(most, x.Spikes)
			}
		}
	}
	for _, k := range []difference.Kind{difference.LowRank, difference.LowNoise, difference.FullRank, difference.NoiseOnly} {
		if n := kinds[k]; n > 0 {
			s += fmt.Sprintf(", %d by %s", n, k)
			if k == difference.LowRank {
				s += fmt.Sprintf(" (at most %d)", most)
			}
		}
	}
	if n := len(r.OnlyA) + len(r.OnlyB) + len(r.Shapes); n > 0 {
		s += fmt.Sprintf(", %d unpaired", n)
	}
	if n := len(r.Metadata); n > 0 {
		s += fmt.Sprintf("; %s of metadata", humanize.Plural(n, "key"))
	}
	if r.Tokens != nil {
		s += fmt.Sprintf("; %s", humanize.Plural(len(r.Tokens.Changed), "token"))
	}
	if r.Template != "" {
		s += "; the chat template"
	}
	return s
}
