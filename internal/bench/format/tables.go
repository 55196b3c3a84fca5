package format

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"ck/internal/bench"
	"ck/internal/measure"
	"ck/internal/plaintext"
	"ck/internal/probe"
)

// Percent is a share in percent; 0 is what was not measured.
func Percent(v float64) string {
	if v == 0 {
		return "–"
	}
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Interval is the cell of a series: the interval of its median.
func Interval(s measure.Series) string {
	if s.N < 2 {
		return "–"
	}
	return fmt.Sprintf("%s–%s (%.0f%%)", measure.Digits(s.Lo), measure.Digits(s.Hi), 100*s.Level)
}

// Table writes a table whose rows the first columns together name, names of them. The plain form names each row by all of them:
// "L1 (threads 2) GB/s<TAB>100".
func Table(t *plaintext.Table, w io.Writer, plain bool, names int) error {
	if !plain || names == 1 {
		return t.Write(w, plain)
	}
	named := plaintext.Table{Head: t.Head}
	for _, r := range t.Rows {
		var more []string
		for i := 1; i < names; i++ {
			more = append(more, t.Head[i]+" "+r[i])
		}
		row := slices.Clone(r)
		row[0] += " (" + strings.Join(more, ", ") + ")"
		named.Rows = append(named.Rows, row)
	}
	return named.Write(w, true)
}

// BandwidthHead is the head of a table of BandwidthCells.
var BandwidthHead = []string{"level", "threads", "set of each", "best loop", "GB/s", "median in", "note"}

// BandwidthCells are the rows of a table of bandwidths.
func BandwidthCells(rows []probe.Bandwidth) [][]string {
	var cells [][]string
	for _, r := range rows {
		note := ""
		if r.SlowerThan != "" {
			note = "no roof: slower than " + r.SlowerThan
		}
		cells = append(cells, []string{r.Level, strconv.Itoa(r.Threads), measure.SizeText(r.Bytes), r.Loop, measure.Digits(r.GBps), Interval(r.Samples), note})
	}
	return cells
}

// Steps writes the time of each step of results, a table for each phase.
func Steps(w io.Writer, all []*bench.Result, plain bool) error {
	for _, r := range all {
		phase := ""
		var t *plaintext.Table
		flush := func() error {
			if t == nil {
				return nil
			}
			return t.Write(w, plain)
		}
		for _, s := range r.Steps {
			if s.Phase != phase {
				if err := flush(); err != nil {
					return err
				}
				phase = s.Phase
				if !plain {
					if _, err := fmt.Fprintf(w, "\n%s, %d threads: %s\n", plaintext.Escape(r.Name()), r.Threads, phase); err != nil {
						return err
					}
				}
				t = &plaintext.Table{Head: []string{"step", "items", "us", "% time", "GB/s", "% read", "GOP/s", "% peak", "peak"},
					Right: []bool{false, true, true, true, true, true, true, true, false}}
			}
			cells := stepCells(s)
			if plain {
				cells[0] = fmt.Sprintf("%s (test %s, threads %d, %s)", s.Name, r.Name(), r.Threads, phase)
			}
			t.Rows = append(t.Rows, cells)
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

func stepCells(s bench.StepRow) []string {
	c := []string{s.Name, strconv.Itoa(s.Items), fmt.Sprintf("%.1f", s.Us), fmt.Sprintf("%.1f", 100*s.Share), "", "", "", "", ""}
	if s.Bytes > 0 {
		c[4], c[5] = measure.Digits(s.GBps), Percent(s.ReadPct)
	}
	if s.Ops > 0 {
		c[6], c[7], c[8] = measure.Digits(s.GOPs), Percent(s.PeakPct), s.Kind
	}
	return c
}

// Roofline writes the roofs, and the steps of a model under them.
func Roofline(w io.Writer, d *bench.Roofline, plain bool) error {
	peaks := plaintext.Table{Head: []string{"arithmetic", "kind", "threads", "GOP/s", "median in"}, Right: []bool{false, false, true, true, true}}
	for _, r := range d.Peaks {
		peaks.Rows = append(peaks.Rows, []string{r.Instruction, r.Kind, strconv.Itoa(r.Threads), measure.Digits(r.GOPs), Interval(r.Samples)})
	}
	if err := Table(&peaks, w, plain, 3); err != nil {
		return err
	}
	bw := plaintext.Table{Head: slices.Clone(BandwidthHead), Right: []bool{false, true, true, true, true, true, false}, Rows: BandwidthCells(d.Bandwidth)}
	bw.Head[0] = "read"
	if !plain {
		fmt.Fprintln(w)
	}
	if err := Table(&bw, w, plain, 2); err != nil {
		return err
	}
	for _, o := range d.OtherTime {
		if !plain {
			fmt.Fprintf(w, "\n%s, %s\n", plaintext.Escape(d.Model), o.Phase)
		}
		t := plaintext.Table{Head: []string{"step", "% time", "op/byte", "GB/s", "GOP/s", "roof", "% of roof", "bound"},
			Right: []bool{false, true, true, true, true, true, true, false}}
		for _, s := range d.Steps {
			if s.Phase == o.Phase {
				t.Rows = append(t.Rows, []string{s.Name, fmt.Sprintf("%.1f", 100*s.Share), measure.Digits(s.Intensity), measure.Digits(s.GBps), measure.Digits(s.GOPs), measure.Digits(s.Roof),
					Percent(100 * s.RoofShare), s.Bound})
			}
		}
		t.Rows = append(t.Rows, []string{"barriers", fmt.Sprintf("%.1f", 100*o.Barrier)}, []string{"other steps", fmt.Sprintf("%.1f", 100*o.Other)})
		for i := range t.Rows {
			for len(t.Rows[i]) < len(t.Head) {
				t.Rows[i] = append(t.Rows[i], "")
			}
		}
		if plain {
			for i := range t.Rows {
				t.Rows[i][0] += " (" + o.Phase + ")"
			}
		}
		if err := t.Write(w, plain); err != nil {
			return err
		}
	}
	return nil
}
