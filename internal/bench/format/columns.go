package format

import (
	"encoding/csv"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"ck/internal/bench"
	"ck/internal/plaintext"
)

// columns are the fields of csv and sql: those of llama-bench by their names, then ours.
var columns = []struct {
	name, sqlType string
	value         func(r *bench.Result) any
}{
	{"build_commit", "TEXT", func(r *bench.Result) any { return r.BuildCommit }},
	{"cpu_info", "TEXT", func(r *bench.Result) any { return r.CPUInfo }},
	{"backends", "TEXT", func(r *bench.Result) any { return r.Backends }},
	{"model_filename", "TEXT", func(r *bench.Result) any { return r.ModelFilename }},
	{"model_type", "TEXT", func(r *bench.Result) any { return r.ModelType }},
	{"model_size", "INTEGER", func(r *bench.Result) any { return r.ModelSize }},
	{"model_n_params", "INTEGER", func(r *bench.Result) any { return r.ModelParams }},
	{"n_ubatch", "INTEGER", func(r *bench.Result) any { return r.UBatch }},
	{"n_threads", "INTEGER", func(r *bench.Result) any { return r.Threads }},
	{"type_k", "TEXT", func(r *bench.Result) any { return r.TypeK }},
	{"type_v", "TEXT", func(r *bench.Result) any { return r.TypeV }},
	{"n_prompt", "INTEGER", func(r *bench.Result) any { return r.Prompt }},
	{"n_gen", "INTEGER", func(r *bench.Result) any { return r.Gen }},
	{"n_depth", "INTEGER", func(r *bench.Result) any { return r.Depth }},
	{"test_time", "TEXT", func(r *bench.Result) any { return r.TestTime }},
	{"avg_ns", "REAL", func(r *bench.Result) any { return r.AvgNs }},
	{"stddev_ns", "REAL", func(r *bench.Result) any { return r.StddevNs }},
	{"avg_ts", "REAL", func(r *bench.Result) any { return r.AvgTS }},
	{"stddev_ts", "REAL", func(r *bench.Result) any { return r.StddevTS }},
	{"test", "TEXT", func(r *bench.Result) any { return r.Test }},
	{"rows", "INTEGER", func(r *bench.Result) any { return r.Rows }},
	{"tier", "TEXT", func(r *bench.Result) any { return r.Tier }},
	{"act", "TEXT", func(r *bench.Result) any { return r.Act }},
	{"model_hash", "TEXT", func(r *bench.Result) any { return r.ModelHash }},
	{"binary_hash", "TEXT", func(r *bench.Result) any { return r.Host.BinaryHash }},
	{"repetitions", "INTEGER", func(r *bench.Result) any { return r.TS.N }},
	{"median_ts", "REAL", func(r *bench.Result) any { return r.TS.Median }},
	{"lo_ts", "REAL", func(r *bench.Result) any { return r.TS.Lo }},
	{"hi_ts", "REAL", func(r *bench.Result) any { return r.TS.Hi }},
	{"interval_level", "REAL", func(r *bench.Result) any { return r.TS.Level }},
	{"gb_per_s", "REAL", func(r *bench.Result) any { return r.GBps }},
	{"read_roof_gbs", "REAL", func(r *bench.Result) any { return r.ReadGBps }},
	{"pct_read_roof", "REAL", func(r *bench.Result) any { return r.ReadPct }},
	{"gop_per_s", "REAL", func(r *bench.Result) any { return r.GOPs }},
	{"peak_gops", "REAL", func(r *bench.Result) any { return r.PeakGOPs }},
	{"pct_peak", "REAL", func(r *bench.Result) any { return r.PeakPct }},
	{"peak_kind", "TEXT", func(r *bench.Result) any { return r.PeakKind }},
	{"numa", "TEXT", func(r *bench.Result) any { return r.NUMA }},
	{"ablate", "TEXT", func(r *bench.Result) any { return r.Ablate }},
	{"worth", "REAL", worthValue(func(w *bench.Ratio) float64 { return w.Median })},
	{"worth_lo", "REAL", worthValue(func(w *bench.Ratio) float64 { return w.Lo })},
	{"worth_hi", "REAL", worthValue(func(w *bench.Ratio) float64 { return w.Hi })},
}

// worthValue is a figure of the worth, nil as usual.
func worthValue(of func(*bench.Ratio) float64) func(*bench.Result) any {
	return func(r *bench.Result) any {
		if r.Worth == nil {
			return nil
		}
		return of(r.Worth)
	}
}

func (x *Writer) csv(r *bench.Result) error {
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
	return plaintext.Escape(fmt.Sprint(v))
}

func (x *Writer) sql(r *bench.Result) error {
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
func (x *Writer) gobench(r *bench.Result) error {
	if x.n == 1 {
		if _, err := fmt.Fprintf(x.w, "goos: %s\ngoarch: %s\npkg: ck\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, plaintext.Escape(r.CPUInfo)); err != nil {
			return err
		}
	}
	name := strings.Map(func(c rune) rune {
		if c <= ' ' || c == '/' || c == '=' {
			return '-'
		}
		return c
	}, plaintext.Escape(r.ModelType))
	test := strings.ReplaceAll(r.Test, " @ ", "@")
	tokens := r.Prompt + r.Gen*r.Rows
	ablate := ""
	if r.NUMA != "" {
		ablate = "/numa=" + strings.ReplaceAll(r.NUMA, "=", "-")
	}
	if r.Ablate != "" {
		ablate += "/ablate=" + r.Ablate
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
