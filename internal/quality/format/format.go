// Package format writes what quality found as the table that all programs print.
package format

import (
	"fmt"

	"ck/internal/plaintext"
	"ck/internal/quality"
)

// Table is a report as a table.
func Table(r quality.Report) plaintext.Table {
	t := plaintext.Table{Head: []string{"quantity", "value", "95 % from", "to"}, Right: []bool{false, true, true, true}}
	mean := func(name string, m *quality.Mean, scale float64, digits int) {
		if m == nil {
			return
		}
		row := []string{name, fmt.Sprintf("%.*f", digits, scale*m.Value), "–", "–"}
		if r.Blocks > 1 {
			row[2], row[3] = fmt.Sprintf("%.*f", digits, scale*m.Lo), fmt.Sprintf("%.*f", digits, scale*m.Hi)
		}
		t.Rows = append(t.Rows, row)
	}
	mean("perplexity of the base", r.BasePPL, 1, 4)
	mean("perplexity", &r.Perplexity, 1, 4)
	name := "KL divergence (nats)"
	if r.LowerBound {
		name = "KL divergence (nats), at least"
	}
	mean(name, r.KLD, 1, 6)
	if s := r.KLDSpread; s != nil {
		for _, q := range []struct {
			name  string
			value float64
		}{{"  median", s.Median}, {"  99 % below", s.P99}, {"  99.9 % below", s.P999}, {"  largest", s.Max}} {
			t.Rows = append(t.Rows, []string{q.name, fmt.Sprintf("%.6f", q.value), "", ""})
		}
	}
	mean("same top token (%)", r.Agreement, 100, 2)
	mean("RMS of probability difference (%)", r.RMSProb, 100, 3)
	t.Rows = append(t.Rows, []string{"tokens counted", fmt.Sprint(r.Tokens), "", ""})
	return t
}
