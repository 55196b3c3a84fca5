package format

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ck/internal/bench"
	"ck/internal/compare"
	"ck/internal/measure"
	"ck/internal/plaintext"
	"ck/internal/probe"
)

func sampleResult(ts ...float64) *bench.Result {
	r := &bench.Result{Schema: bench.Schema, CPUInfo: "Some CPU's 9000", Backends: "CPU", ModelFilename: "a,b.gguf", ModelType: "llama 1.2B Q4_K_M", ModelSize: 800e6,
		ModelParams: 1.24e9, Threads: 2, Gen: 4, Rows: 2, Depth: 7, Test: "tg4x2 @ d7", GBps: 70, ReadPct: 85, PeakKind: measure.Int8,
		TS: measure.Summarize(ts), Host: &measure.Host{CPU: "Some CPU's 9000", BinaryHash: "abc"}}
	for _, x := range ts {
		r.Samples = append(r.Samples, bench.Sample{Ns: int64(8e9 / x), TS: x, Share: 0.8})
	}
	return r
}

func printed(t *testing.T, format string, results ...*bench.Result) string {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, format, false)
	for _, r := range results {
		if err := w.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Lines of gobench are what Go's benchmark format defines: a name without blanks, a count, pairs of value and unit.
func TestGobench(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(printed(t, "gobench", sampleResult(10, 11), sampleResult(12))), "\n")
	line := regexp.MustCompile(`^Benchmark[A-Z]\S* [1-9][0-9]*( [0-9.e+-]+ [^\s0-9]\S*)+$`)
	config := regexp.MustCompile(`^[a-z][^\sA-Z]*: .+$`)
	for i, l := range lines {
		if want := config; i >= 4 {
			if want = line; !want.MatchString(l) {
				t.Errorf("no benchmark line: %q", l)
			}
		} else if !want.MatchString(l) {
			t.Errorf("no configuration line: %q", l)
		}
	}
	if len(lines) != 7 || lines[4] != "BenchmarkRun/model=llama-1.2B-Q4_K_M/test=tg4x2@d7/threads=2 8 1e+08 ns/op 10 tok/s 80 %roof" {
		t.Errorf("%d lines, %q", len(lines), lines[4])
	}
}

func TestCSV(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(printed(t, "csv", sampleResult(10), sampleResult(12)))).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	at := slices.Index(rows[0], "model_filename")
	if rows[1][at] != "a,b.gguf" || rows[2][slices.Index(rows[0], "median_ts")] != "12" {
		t.Errorf("%v", rows)
	}
	for _, name := range []string{"build_commit", "cpu_info", "backends", "model_type", "model_size", "model_n_params", "n_threads", "n_prompt", "n_gen", "n_depth",
		"avg_ns", "stddev_ns", "avg_ts", "stddev_ts"} { // readers of llama-bench look for these
		if !slices.Contains(rows[0], name) {
			t.Errorf("no column %s", name)
		}
	}
}

func TestSQL(t *testing.T) {
	s := printed(t, "sql", sampleResult(10), sampleResult(12))
	if strings.Count(s, "CREATE TABLE IF NOT EXISTS test") != 1 || strings.Count(s, "INSERT INTO test VALUES (") != 2 || !strings.Contains(s, "'Some CPU''s 9000'") {
		t.Error(s)
	}
}

func TestMarkdown(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(printed(t, "md", sampleResult(10, 11, 12, 13, 14), sampleResult(12))), "\n")
	if len(lines) != 4 {
		t.Fatal(lines)
	}
	for _, l := range lines {
		if len([]rune(l)) != len([]rune(lines[0])) || strings.Count(l, "|") != strings.Count(lines[0], "|") {
			t.Errorf("not aligned: %s", l)
		}
	}
	if !strings.Contains(lines[2], "12.00 |   10.00–14.00 (94%) |") {
		t.Error(lines[2])
	}
}

// What --output json and jsonl print is what compare reads.
func TestJSONRoundTrip(t *testing.T) {
	for _, format := range []string{"json", "jsonl"} {
		s := printed(t, format, sampleResult(10, 11), sampleResult(12))
		got, err := compare.Read("x", strings.NewReader(s))
		if err != nil || len(got) != 2 || got[0].TS.Median != 10.5 || len(got[0].Samples) != 2 || got[1].Test != "tg4x2 @ d7" {
			t.Errorf("%s: %v, %v", format, got, err)
		}
		if !strings.Contains(s, `"binary_sha256":"abc"`) {
			t.Errorf("%s lacks the host", format)
		}
	}
	for _, bad := range []string{"", "{}", "[1]", `{"schema":"ck.bench.run/99","results":[]}`, `{"schema":"ck.complete/1"}`, "text"} {
		if got, err := compare.Read("x", strings.NewReader(bad)); err == nil {
			t.Errorf("%q: %d results", bad, len(got))
		}
	}
	var any map[string]any
	if err := json.Unmarshal([]byte(printed(t, "json", sampleResult(1))), &any); err != nil || any["schema"] != bench.Schema {
		t.Errorf("%v, %v", any["schema"], err)
	}
}

// A test without something is told from the usual one in every form, with what that is worth.
func TestAblateFormats(t *testing.T) {
	usual, without := sampleResult(10, 12, 14), sampleResult(5, 4, 10)
	without.Ablate = "fuse"
	bench.Compare(usual, usual)
	bench.Compare(without, usual)
	if w := without.Worth; usual.Worth != nil || w.Median != 2 || w.Lo != 1.4 || w.Hi != 3 || !w.Alternated || without.Name() != "tg4x2 @ d7 without fuse" {
		t.Fatalf("%+v, %+v", usual.Worth, w)
	}
	if s := printed(t, "gobench", usual, without); !strings.Contains(s, "/threads=2 8 ") || strings.Count(s, "/threads=2/ablate=fuse 8 ") != 3 ||
		!strings.Contains(s, " 3 worth\n") || strings.Count(s, "worth") != 3 {
		t.Error(s)
	}
	rows, err := csv.NewReader(strings.NewReader(printed(t, "csv", usual, without))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(rows[0], "ablate")
	if !slices.Equal(rows[0][at:at+4], []string{"ablate", "worth", "worth_lo", "worth_hi"}) || !slices.Equal(rows[1][at:at+4], []string{"", "", "", ""}) ||
		!slices.Equal(rows[2][at:at+4], []string{"fuse", "2", "1.4", "3"}) {
		t.Error(rows)
	}
	if s := printed(t, "sql", usual, without); !strings.Contains(s, ", '', NULL, NULL, NULL);\n") || !strings.Contains(s, ", 'fuse', 2, 1.4, 3);\n") {
		t.Error(s)
	}
	for _, format := range []string{"json", "jsonl"} {
		s := printed(t, format, usual, without)
		if !strings.Contains(s, `"ablate":"",`) || !strings.Contains(s, `"worth":null`) || !strings.Contains(s, `"worth":{"n":3,"median":2,`) {
			t.Errorf("%s: %s", format, s)
		}
		rs, err := compare.Read("x", strings.NewReader(s))
		if err != nil || len(rs) != 2 {
			t.Fatal(err)
		}
		// compare pairs what is left out with the same.
		if r := compare.Results(rs, rs, compare.Options{Raw: true, Alpha: 0.05, FailOn: 0.05}); len(r.Tests) != 2 || len(r.Added)+len(r.Gone) != 0 || r.Tests[0].Change != 0 || r.Tests[1].Change != 0 ||
			r.Tests[1].Test != without.Name() {
			t.Errorf("%s: %+v", format, r)
		}
		usual.Host, without.Host = &measure.Host{CPU: "Some CPU's 9000"}, &measure.Host{CPU: "Some CPU's 9000"} // json took it
	}
	var b bytes.Buffer
	w := NewWriter(&b, "md", true)
	alone := sampleResult(4)
	alone.Ablate = "huge"
	bench.CompareAlone(alone, usual)
	for _, r := range []*bench.Result{usual, without, alone} {
		if err := w.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, end := range []string{"| without  |               worth |", "", "|          |                   – |", "| fuse     | 2.000 (1.400–3.000) |", "| huge     |               3.000 |"} {
		if !strings.HasSuffix(lines[i], end) || len([]rune(lines[i])) != len([]rune(lines[0])) {
			t.Errorf("%s", lines[i])
		}
	}
	if alone.Worth.Alternated || len(alone.Warnings) != 1 {
		t.Errorf("%+v", alone)
	}
}

// Each line of the plain form names its fact: no two are alike up to the tab.
func TestPlainNames(t *testing.T) {
	a, b, c := sampleResult(50, 51), sampleResult(50, 51), sampleResult(50, 51)
	b.Threads, c.Test = a.Threads+1, "tg9"
	d := sampleResult(25)
	d.Ablate = "fuse"
	text := printed(t, Plain, a, b, c, d)
	table := plaintext.Table{Head: []string{"level", "threads", "GB/s"}, Rows: [][]string{{"L1", "1", "90"}, {"L1", "2", "180"}, {"L2", "1", "60"}}}
	var out bytes.Buffer
	if err := Table(&table, &out, true, 2); err != nil {
		t.Fatal(err)
	}
	if want := "L1 (threads 2) GB/s\t180\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, out.String())
	}
	if want := fmt.Sprintf("(test tg9, threads %d) t/s\t50.50\n", c.Threads); !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text + out.String()) {
		name, _, ok := strings.Cut(line, "\t")
		if !ok || seen[name] {
			t.Errorf("%q", line)
		}
		seen[name] = true
	}
}

// The tables of a roofline name every step by its phase in the plain form.
func TestRoofline(t *testing.T) {
	d := &bench.Roofline{Steps: []bench.PlacedStep{{StepRow: bench.StepRow{Phase: "p", Name: "high"}, Bound: measure.Int8}}, OtherTime: []bench.OtherTime{{Phase: "p", Barrier: 0.1, Other: 0.2}}}
	d.Peaks = []probe.PeakRate{{Instruction: "fma", Kind: measure.F32, Threads: 1, GOPs: 100}}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := Roofline(&b, d, true); err != nil || !strings.Contains(b.String(), "high (p) bound\tint8\n") || !strings.Contains(b.String(), "barriers (p) % time\t10.0\n") ||
		!strings.Contains(b.String(), "fma (kind f32, threads 1) GOP/s\t100.0\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// The steps of a result are a table for each phase.
func TestSteps(t *testing.T) {
	r := &bench.Result{Test: "pp8", Threads: 2, Steps: []bench.StepRow{{Phase: "prefill of 8 rows", Name: "ffn_gate", Items: 5, Us: 12.34, Share: 0.5, Bytes: 1, GBps: 10, ReadPct: 50},
		{Phase: "decode of 1 row", Name: "rope", Items: 5, Us: 1, Share: 0.25}}}
	var b bytes.Buffer
	if err := Steps(&b, []*bench.Result{r}, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\npp8, 2 threads: prefill of 8 rows\n", "\npp8, 2 threads: decode of 1 row\n", "ffn_gate      5  12.3    50.0  10.00"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := Steps(&b, []*bench.Result{r}, true); err != nil || !strings.Contains(b.String(), "rope (test pp8, threads 2, decode of 1 row) us\t1.0\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
