package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"ck/internal/cli"
	"ck/internal/measure"
)

// formatNames are the words of --output.
var formatNames = []string{"md", "csv", "json", "jsonl", "sql", "gobench"}

// plainFormat is what --plain makes of the table.
const plainFormat = "plain"

// writer prints results as they come.
type writer struct {
	w      io.Writer
	format string
	ablate bool // markdown has the columns of --ablate
	n      int
	all    []*result // of formats that need all of them
}

func newWriter(w io.Writer, format string) *writer {
	return &writer{w: cli.TextWriter(w), format: format}
}

// row prints a result.
func (x *writer) row(r *result) error {
	x.n++
	switch x.format {
	case "md":
		return x.markdown(r)
	case plainFormat:
		return x.plain(r)
	case "csv":
		return x.csv(r)
	case "jsonl":
		return cli.EncodeJSON(x.w, r)
	case "sql":
		return x.sql(r)
	case "gobench":
		return x.gobench(r)
	}
	x.all = append(x.all, r)
	return nil
}

// end prints what comes last.
func (x *writer) end() error {
	if x.format != "json" {
		return nil
	}
	doc := runDoc{Schema: runSchema, Results: x.all}
	for _, r := range x.all {
		doc.Host, r.Host = r.Host, nil // once is enough
	}
	return cli.EncodeJSON(x.w, doc)
}

// runDoc is the document of --output json.
type runDoc struct {
	Schema  string    `json:"schema"`
	Host    any       `json:"host"`
	Results []*result `json:"results"`
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
func markdownWorth(r *result) []string {
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
func (x *writer) cells(r *result) ([]markdownColumn, []string) {
	cells := []string{r.ModelType, fmt.Sprintf("%.2f MiB", float64(r.ModelSize)/(1<<20)), fmt.Sprintf("%.2f M", float64(r.ModelParams)/1e6), r.Backends,
		strconv.Itoa(r.Threads), r.Test, measure.Digits(r.TS.Median), fmt.Sprintf("%s–%s (%.0f%%)", measure.Digits(r.TS.Lo), measure.Digits(r.TS.Hi), 100*r.TS.Level), measure.Digits(r.GBps),
		percent(r.ReadPct), measure.Digits(r.GOPs), percent(r.PeakPct)}
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
func (x *writer) plain(r *result) error {
	columns, cells := x.cells(r)
	cells[5] = r.name()
	order := []int{0, 5, 4, 1, 2, 3}
	for i := len(order); i < len(cells); i++ {
		order = append(order, i)
	}
	t := cli.Table{Rows: [][]string{{}}}
	for _, i := range order {
		t.Head, t.Rows[0] = append(t.Head, columns[i].name), append(t.Rows[0], cells[i])
	}
	return writeTable(&t, x.w, true, 3)
}

// markdown is a row of a table that is aligned as plain text, too.
func (x *writer) markdown(r *result) error {
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
		c = cli.Escape(c)
		pad := strings.Repeat(" ", max(0, columns[i].width-len([]rune(c))))
		if columns[i].right {
			s += " " + pad + c + " |"
		} else {
			s += " " + c + pad + " |"
		}
	}
	return s
}

// percent is a share in percent; 0 is what was not measured.
func percent(v float64) string {
	if v == 0 {
		return "–"
	}
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// columns are the fields of csv and sql: those of llama-bench by their names, then ours.
var columns = []struct {
	name, sqlType string
	value         func(r *result) any
}{
	{"build_commit", "TEXT", func(r *result) any { return r.BuildCommit }},
	{"cpu_info", "TEXT", func(r *result) any { return r.CPUInfo }},
	{"backends", "TEXT", func(r *result) any { return r.Backends }},
	{"model_filename", "TEXT", func(r *result) any { return r.ModelFilename }},
	{"model_type", "TEXT", func(r *result) any { return r.ModelType }},
	{"model_size", "INTEGER", func(r *result) any { return r.ModelSize }},
	{"model_n_params", "INTEGER", func(r *result) any { return r.ModelParams }},
	{"n_ubatch", "INTEGER", func(r *result) any { return r.UBatch }},
	{"n_threads", "INTEGER", func(r *result) any { return r.Threads }},
	{"type_k", "TEXT", func(r *result) any { return r.TypeK }},
	{"type_v", "TEXT", func(r *result) any { return r.TypeV }},
	{"n_prompt", "INTEGER", func(r *result) any { return r.Prompt }},
	{"n_gen", "INTEGER", func(r *result) any { return r.Gen }},
	{"n_depth", "INTEGER", func(r *result) any { return r.Depth }},
	{"test_time", "TEXT", func(r *result) any { return r.TestTime }},
	{"avg_ns", "REAL", func(r *result) any { return r.AvgNs }},
	{"stddev_ns", "REAL", func(r *result) any { return r.StddevNs }},
	{"avg_ts", "REAL", func(r *result) any { return r.AvgTS }},
	{"stddev_ts", "REAL", func(r *result) any { return r.StddevTS }},
	{"test", "TEXT", func(r *result) any { return r.Test }},
	{"rows", "INTEGER", func(r *result) any { return r.Rows }},
	{"tier", "TEXT", func(r *result) any { return r.Tier }},
	{"act", "TEXT", func(r *result) any { return r.Act }},
	{"model_hash", "TEXT", func(r *result) any { return r.ModelHash }},
	{"binary_hash", "TEXT", func(r *result) any { return r.Host.BinaryHash }},
	{"repetitions", "INTEGER", func(r *result) any { return r.TS.N }},
	{"median_ts", "REAL", func(r *result) any { return r.TS.Median }},
	{"lo_ts", "REAL", func(r *result) any { return r.TS.Lo }},
	{"hi_ts", "REAL", func(r *result) any { return r.TS.Hi }},
	{"interval_level", "REAL", func(r *result) any { return r.TS.Level }},
	{"gb_per_s", "REAL", func(r *result) any { return r.GBps }},
	{"read_roof_gbs", "REAL", func(r *result) any { return r.ReadGBps }},
	{"pct_read_roof", "REAL", func(r *result) any { return r.ReadPct }},
	{"gop_per_s", "REAL", func(r *result) any { return r.GOPs }},
	{"peak_gops", "REAL", func(r *result) any { return r.PeakGOPs }},
	{"pct_peak", "REAL", func(r *result) any { return r.PeakPct }},
	{"peak_kind", "TEXT", func(r *result) any { return r.PeakKind }},
	{"ablate", "TEXT", func(r *result) any { return r.Ablate }},
	{"worth", "REAL", worthValue(func(w *ratio) float64 { return w.Median })},
	{"worth_lo", "REAL", worthValue(func(w *ratio) float64 { return w.Lo })},
	{"worth_hi", "REAL", worthValue(func(w *ratio) float64 { return w.Hi })},
}

// worthValue is a figure of the worth, nil as usual.
func worthValue(of func(*ratio) float64) func(*result) any {
	return func(r *result) any {
		if r.Worth == nil {
			return nil
		}
		return of(r.Worth)
	}
}

func (x *writer) csv(r *result) error {
	w := csv.NewWriter(x.w)
	var head, row []string
	for _, c := range columns {
		head, row = append(head, c.name), append(row, plainText(c.value(r)))
	}
	if x.n == 1 {
		if err := w.Write(head); err != nil {
			return err
		}
	}
	if err := w.Write(row); err != nil {
		return err
	}
	w.Flush()
	return w.Error()
}

func plainText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'g', 8, 64)
	}
	return cli.Escape(fmt.Sprint(v))
}

func (x *writer) sql(r *result) error {
	var defs, vals []string
	for _, c := range columns {
		defs = append(defs, "  "+c.name+" "+c.sqlType)
		v := plainText(c.value(r))
		if c.sqlType == "TEXT" {
			v = "'" + strings.ReplaceAll(v, "'", "''") + "'"
		} else if v == "" {
			v = "NULL"
		}
		vals = append(vals, v)
	}
	if x.n == 1 {
		if _, err := fmt.Fprintf(x.w, "CREATE TABLE IF NOT EXISTS test (\n%s\n);\n\n", strings.Join(defs, ",\n")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(x.w, "INSERT INTO test VALUES (%s);\n", strings.Join(vals, ", "))
	return err
}

// gobench prints repetitions as lines of Go's benchmark format (golang.org/design/14313-benchmark-format). Only facts of the machine are
// configuration: what differs between two programs would keep benchstat from comparing them.
func (x *writer) gobench(r *result) error {
	if x.n == 1 {
		if _, err := fmt.Fprintf(x.w, "goos: %s\ngoarch: %s\npkg: ck\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, cli.Escape(r.CPUInfo)); err != nil {
			return err
		}
	}
	name := strings.Map(func(c rune) rune {
		if c <= ' ' || c == '/' || c == '=' {
			return '-'
		}
		return c
	}, cli.Escape(r.ModelType))
	test := strings.ReplaceAll(r.Test, " @ ", "@")
	tokens := r.Prompt + r.Gen*r.Rows
	ablate := ""
	if r.Ablate != "" {
		ablate = "/ablate=" + r.Ablate
	}
	for _, s := range r.Samples {
		line := fmt.Sprintf("BenchmarkRun/model=%s/test=%s/threads=%d%s %d %.6g ns/op %.6g tok/s", name, test, r.Threads, ablate, tokens,
			float64(s.Ns)/float64(tokens), s.TS)
		if s.Share > 0 {
			line += fmt.Sprintf(" %.6g %%roof", 100*s.Share)
		}
		if s.Worth > 0 {
			line += fmt.Sprintf(" %.6g worth", s.Worth)
		}
		if _, err := fmt.Fprintln(x.w, line); err != nil {
			return err
		}
	}
	return nil
}

// printSteps prints the tables of --steps below the results.
func (p *program) printSteps(all []*result) error {
	for _, r := range all {
		phase := ""
		var t *cli.Table
		flush := func() error {
			if t == nil {
				return nil
			}
			return t.Write(p.app.Out, p.app.Common.Plain)
		}
		for _, s := range r.Steps {
			if s.Phase != phase {
				if err := flush(); err != nil {
					return cli.OutError(err)
				}
				phase = s.Phase
				if !p.app.Common.Plain {
					if _, err := fmt.Fprintf(p.app.Text(), "\n%s, %d threads: %s\n", cli.Escape(r.name()), r.Threads, phase); err != nil {
						return cli.OutError(err)
					}
				}
				t = &cli.Table{Head: []string{"step", "items", "us", "% time", "GB/s", "% read", "GOP/s", "% peak", "peak"},
					Right: []bool{false, true, true, true, true, true, true, true, false}}
			}
			cells := s.cells()
			if p.app.Common.Plain {
				cells[0] = fmt.Sprintf("%s (test %s, threads %d, %s)", s.Name, r.name(), r.Threads, phase)
			}
			t.Rows = append(t.Rows, cells)
		}
		if err := flush(); err != nil {
			return cli.OutError(err)
		}
	}
	return nil
}

func (s stepRow) cells() []string {
	c := []string{s.Name, strconv.Itoa(s.Items), fmt.Sprintf("%.1f", s.Us), fmt.Sprintf("%.1f", 100*s.Share), "", "", "", "", ""}
	if s.Bytes > 0 {
		c[4], c[5] = measure.Digits(s.GBps), percent(s.ReadPct)
	}
	if s.Ops > 0 {
		c[6], c[7], c[8] = measure.Digits(s.GOPs), percent(s.PeakPct), s.Kind
	}
	return c
}
