// Package format writes results of measurements: markdown, plain lines, CSV, JSON, SQL, Go's benchmark format, and tables for people.
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
)

// Names are the formats that people name.
var Names = []string{"md", "csv", "json", "jsonl", "sql", "gobench"}

// Plain is the format of one fact a line.
const Plain = "plain"

// Writer prints results as they come.
type Writer struct {
	w      io.Writer
	format string
	ablate bool // markdown has the columns of --ablate
	n      int
	all    []*bench.Result // of formats that need all of them
}

// NewWriter prints to w in one of Names, or Plain; ablate is whether results without something come, too.
func NewWriter(w io.Writer, format string, ablate bool) *Writer {
	return &Writer{w: plaintext.TextWriter(w), format: format, ablate: ablate}
}

// Row prints a result.
func (x *Writer) Row(r *bench.Result) error {
	x.n++
	switch x.format {
	case "md":
		return x.markdown(r)
	case Plain:
		return x.plain(r)
	case "csv":
		return x.csv(r)
	case "jsonl":
		return plaintext.EncodeJSON(x.w, r)
	case "sql":
		return x.sql(r)
	case "gobench":
		return x.gobench(r)
	}
	x.all = append(x.all, r)
	return nil
}

// End prints what comes last.
func (x *Writer) End() error {
	if x.format != "json" {
		return nil
	}
	doc := runDoc{Schema: bench.Schema, Results: x.all}
	for _, r := range x.all {
		doc.Host, r.Host = r.Host, nil // once is enough
	}
	return plaintext.EncodeJSON(x.w, doc)
}

// runDoc is the document of --output json.
type runDoc struct {
	Schema  string          `json:"schema"`
	Host    any             `json:"host"`
	Results []*bench.Result `json:"results"`
}

type markdownColumn struct {
	name  string
	width int
	right bool
}

var markdownHead = []markdownColumn{{"model", 24, false}, {"size", 10, true}, {"params", 10, true}, {"backend", 7, false}, {"threads", 7, true}, {"test", 16, true}, {"t/s", 8, true},
	{"interval", 19, true}, {"GB/s", 6, true}, {"% read", 6, true}, {"GOP/s", 6, true}, {"% peak", 6, true}}

// ablateHead follows with --ablate.
var ablateHead = []markdownColumn{{"without", 8, false}, {"worth", 19, true}}

// markdownWorth is the cells below ablateHead.
func markdownWorth(r *bench.Result) []string {
	switch w := r.Worth; {
	case w == nil:
		return []string{"", "–"}
	case w.N < 2:
		return []string{r.Ablate, fmt.Sprintf("%.3f", w.Median)}
	default:
		return []string{r.Ablate, fmt.Sprintf("%.3f (%.3f–%.3f)", w.Median, w.Lo, w.Hi)}
	}
}

// cells are the columns of the table and those of a result.
func (x *Writer) cells(r *bench.Result) ([]markdownColumn, []string) {
	cells := []string{r.ModelType, fmt.Sprintf("%.2f MiB", float64(r.ModelSize)/(1<<20)), fmt.Sprintf("%.2f M", float64(r.ModelParams)/1e6), r.Backends,
		strconv.Itoa(r.Threads), r.Placed(), measure.Digits(r.TS.Median), fmt.Sprintf("%s–%s (%.0f%%)", measure.Digits(r.TS.Lo), measure.Digits(r.TS.Hi), 100*r.TS.Level), measure.Digits(r.GBps),
		Percent(r.ReadPct), measure.Digits(r.GOPs), Percent(r.PeakPct)}
	if r.ModelSize >= 1<<30 {
		cells[1] = fmt.Sprintf("%.2f GiB", float64(r.ModelSize)/(1<<30))
	}
	if r.ModelParams >= 1e9 {
		cells[2] = fmt.Sprintf("%.2f B", float64(r.ModelParams)/1e9)
	}
	if r.TS.N < 2 {
		cells[7] = "–"
	}
	if x.ablate {
		return slices.Concat(markdownHead, ablateHead), append(cells, markdownWorth(r)...)
	}
	return markdownHead, cells
}

// plain is a result as one fact a line, with model, test and threads in front.
func (x *Writer) plain(r *bench.Result) error {
	columns, cells := x.cells(r)
	cells[5] = r.Name()
	order := []int{0, 5, 4, 1, 2, 3}
	for i := len(order); i < len(cells); i++ {
		order = append(order, i)
	}
	t := plaintext.Table{Rows: [][]string{{}}}
	for _, i := range order {
		t.Head, t.Rows[0] = append(t.Head, columns[i].name), append(t.Rows[0], cells[i])
	}
	return Table(&t, x.w, true, 3)
}

// markdown is a row of a table that is aligned as plain text, too.
func (x *Writer) markdown(r *bench.Result) error {
	columns, cells := x.cells(r)
	if x.n == 1 {
		head, rule := make([]string, len(cells)), "|"
		for i, h := range columns {
			head[i] = h.name
			if h.right {
				rule += " " + strings.Repeat("-", h.width-1) + ": |"
			} else {
				rule += " " + strings.Repeat("-", h.width) + " |"
			}
		}
		if _, err := fmt.Fprintf(x.w, "%s\n%s\n", markdownLine(columns, head), rule); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(x.w, markdownLine(columns, cells))
	return err
}

func markdownLine(columns []markdownColumn, cells []string) string {
	s := "|"
	for i, c := range cells {
		c = plaintext.Escape(c)
		pad := strings.Repeat(" ", max(0, columns[i].width-len([]rune(c))))
		if columns[i].right {
			s += " " + pad + c + " |"
		} else {
			s += " " + c + pad + " |"
		}
	}
	return s
}
