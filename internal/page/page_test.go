package page

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"ck/internal/findings"
	"ck/internal/plaintext"
	"ck/internal/probe"
	"ck/internal/testkit"
	"ck/internal/topo"
)

// treeNames are the saved trees of the reference data.
func treeNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testkit.Data(t, "topology/trees"), "*.tar.gz"))
	if err != nil || len(files) < testkit.Least(t, 49, 10) {
		t.Fatalf("%d trees, %v", len(files), err)
	}
	return files
}

func inspect(t *testing.T, file string) topo.Survey {
	t.Helper()
	fsys, err := topo.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := fsys.(io.Closer); ok {
		defer c.Close()
	}
	s, err := topo.Inspect(fsys, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pageOf(t *testing.T, s *topo.Survey, plain bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s, plain, Width); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every way to tell of every tree works and stays within limits.
func TestTrees(t *testing.T) {
	for _, file := range treeNames(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			s := inspect(t, file)
			page, plain := pageOf(t, &s, false), pageOf(t, &s, true)
			if n := strings.Count(page, "\n"); n < 15 || n > 400 {
				t.Errorf("a page of %d lines", n)
			}
			for line := range strings.Lines(plain) {
				if strings.Count(line, "\t") != 1 {
					t.Fatalf("%q is not a name, a tab and a value", line)
				}
			}
			for _, text := range []string{page, plain} {
				if !utf8.ValidString(text) {
					t.Error("a page that is not UTF-8")
				}
			}
			if strings.Contains(page, " are  ") {
				t.Error("a kind of memory without a name")
			}
			var narrow bytes.Buffer
			if err := Write(&narrow, &s, false, 80); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(narrow.String()) {
				if plaintext.Width(line) > 81 {
					t.Errorf("%d columns of 80: %q", plaintext.Width(line)-1, line)
				}
			}
			checkJSON(t, &s)
			checkReport(t, &s, page)
		})
	}
}

func checkJSON(t *testing.T, s *topo.Survey) {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, s, "x"); err != nil {
		t.Fatal(err)
	}
	var d struct {
		Schema  string `json:"schema"`
		Root    string `json:"root"`
		Cores   int    `json:"cores"`
		Workers struct {
			CPUs []int `json:"cpus"`
		} `json:"workers"`
		Nodes []struct {
			MemTotal int64 `json:"mem_total"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal(b.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	workers, _ := s.Workers()
	if d.Schema != "ck.topo/1" || d.Root != "x" || d.Cores != s.Cores || len(d.Nodes) != len(s.Nodes) || len(d.Workers.CPUs) != len(workers) {
		t.Errorf("%+v", d)
	}
	for i, n := range d.Nodes {
		if n.MemTotal != s.Nodes[i].MemTotal {
			t.Errorf("node %d has %d bytes in JSON, not %d", i, n.MemTotal, s.Nodes[i].MemTotal)
		}
	}
}

// checkReport: the page and the report for people count what the plain report lists.
func checkReport(t *testing.T, s *topo.Survey, page string) {
	t.Helper()
	r := findings.Check(&findings.Subject{Survey: s})
	var people, plain bytes.Buffer
	if err := WriteReport(&people, &r, false, 80); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(&plain, &r, true, 80); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(people.String(), r.Summary()+"\n") || !strings.Contains(strings.Join(strings.Fields(page), " "), r.Summary()) {
		t.Errorf("no %q", r.Summary())
	}
	for _, f := range r.Findings {
		if !strings.Contains(plain.String(), f.ID+" severity\t"+f.Severity+"\n") || !strings.Contains(people.String(), f.Severity) {
			t.Errorf("%s is not in the reports", f.ID)
		}
	}
	if n := strings.Count(plain.String(), " severity\t"); n != len(r.Findings) {
		t.Errorf("%d of %d findings", n, len(r.Findings))
	}
}

// What was measured has its section, for people and as facts; what was not is left out.
func TestMeasuredSections(t *testing.T) {
	h := &probe.Figures{Threads: 2, Clock: 3e9, ReadOne: 20e9, HugeShare: 0.5, Got: 1.25, Pause: 0.05, Seconds: 1.5, Why: []string{"pages: too little memory is free"}}
	r := findings.Report{Measured: h, Model: &probe.FilePages{Files: []string{"a"}, Bytes: 1 << 30, Pages: 10, Cached: 4, Nodes: map[int]int{1: 3, 0: 1}}}
	var b bytes.Buffer
	if err := WriteReport(&b, &r, true, 80); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"measured here clock one busy core\t3.00 GHz\n", "measured here memory one core reads\t20.0 GB/s\n", "measured here huge pages given\t50 %\n",
		"measured here quota time got\t1.25 CPUs\n", "measured here not measured 1\tpages: too little memory is free\n", "model in memory\t40 %, by a sample of 10 pages\n", "model on\tnode 0 25 %, node 1 75 %\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "kernel") || strings.Contains(b.String(), "0 ns") {
		t.Errorf("a figure that was not measured in\n%s", b.String())
	}
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{"MemTotal": "mem_total", "SMTControl": "smt_control", "CPUs": "cpus", "THPDefrag": "thp_defrag",
		"L1d": "l1d", "NUMABalancing": "numa_balancing", "OpCap": "op_cap", "ATSDisable": "ats_disable", "SubNUMA": "sub_numa", "port_rcv_data": "port_rcv_data",
		"GIDTypes": "gid_types", "LocalCPUs": "local_cpus", "PageCacheByNode": "page_cache_by_node"} {
		if got := snake(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	b, err := snakeKeys([]byte(`{"A":{"BcD":[1,null,{"EF":"Gh"}],"I":{}},"JkL":-1.5e3}`))
	if want := `{"a":{"bc_d":[1,null,{"ef":"Gh"}],"i":{}},"jk_l":-1.5e3}`; err != nil || string(b) != want {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
}

// What files say stays text, whatever it is.
func TestHostileNames(t *testing.T) {
	s := topo.Survey{Machine: topo.Machine{CPUs: []topo.CPU{{}}, Affinity: []int{0}, Nodes: []topo.Node{{CPUs: []int{0}}}},
		Model: "a<b>&\"\x1b[31m\x00\xff]]>"}
	for _, plain := range []bool{false, true} {
		if text := pageOf(t, &s, plain); strings.ContainsAny(text, "\x1b\x00") || strings.Contains(text, "\xff") || !strings.Contains(text, "a<b>&") {
			t.Errorf("%q", text)
		}
	}
}
