package main

import (
	"fmt"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/plaintext"
)

// storedRow is a part of a type in a compressed file.
type storedRow struct {
	Type   string  `json:"type"`
	Part   string  `json:"part"`
	Before int64   `json:"bytes_before"`
	After  int64   `json:"bytes_after"`
	Ratio  float64 `json:"ratio"`
}

// storedRows is what compressing did to each part, and the sum; nil where nothing was compressed, or not yet.
func storedRows(plan *convert.Plan, res *convert.Result) (rows []storedRow, err error) {
	if !plan.Compress || res == nil {
		return nil, nil
	}
	sums, err := convert.PartSums(plan.Parts[0].Path)
	if err != nil || len(sums) == 0 {
		return nil, err
	}
	all := storedRow{Type: "all"}
	for _, s := range sums {
		ratio := float64(s.After) / float64(max(1, s.Before))
		rows = append(rows, storedRow{s.Type.String(), s.Name, s.Before, s.After, ratio})
		all.Before, all.After = all.Before+s.Before, all.After+s.After
	}
	all.Ratio = float64(all.After) / float64(max(1, all.Before))
	for i := range rows {
		if rows[i].Before == 0 {
			rows[i].Ratio = 0 // an index is nothing before
		}
	}
	return append(rows, all), nil
}

// printStored prints them as a table.
func (p *program) printStored(rows []storedRow) error {
	t := plaintext.Table{Head: []string{"type", "part", "bytes before", "stored", "ratio"},
		Right: []bool{false, false, true, true, true}}
	for _, r := range rows {
		ratio := fmt.Sprintf("%.1f %%", 100*r.Ratio)
		if r.Before == 0 {
			ratio = ""
		}
		t.Rows = append(t.Rows, []string{r.Type, r.Part, fmt.Sprint(r.Before), fmt.Sprint(r.After), ratio})
	}
	if !p.app.Common.Plain {
		if _, err := fmt.Fprintln(p.app.Text()); err != nil {
			return cli.OutError(err)
		}
	}
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
