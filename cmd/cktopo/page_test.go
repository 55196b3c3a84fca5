package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"ck/internal/cli"
	"ck/internal/testkit"
	"ck/internal/topo"
)

var update = flag.Bool("update", false, "write the golden pages anew")

// treeNames are the saved trees of the reference data.
func treeNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testkit.Data(t, "topology/trees"), "*.tar.gz"))
	if err != nil || len(files) < 49 {
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
	defer closeFiles(fsys)
	s, err := topo.Inspect(fsys, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pageOf(t *testing.T, s *topo.Survey, plain bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := writePage(&b, s, plain, pageWidth); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every way to show every tree works and stays within limits, and gathering a tree gives one with the same page.
func TestTrees(t *testing.T) {
	for _, file := range treeNames(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			fsys, err := topo.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer closeFiles(fsys)
			r := newRecorder(fsys)
			s, err := topo.Inspect(r, false)
			if err != nil {
				t.Fatal(err)
			}
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
			if err := writePage(&narrow, &s, false, 80); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(narrow.String()) {
				if cli.Width(line) > 81 {
					t.Errorf("%d columns of 80: %q", cli.Width(line)-1, line)
				}
			}
			checkJSON(t, &s)
			checkDrawings(t, &s)
			checkGather(t, r, page, plain)
		})
	}
}

func checkJSON(t *testing.T, s *topo.Survey) {
	t.Helper()
	var b bytes.Buffer
	if err := writeJSON(&b, s, "x"); err != nil {
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

func checkDrawings(t *testing.T, s *topo.Survey) {
	t.Helper()
	for _, columns := range []int{40, 80, 132} {
		var b bytes.Buffer
		if err := drawText(&b, s, columns, columns == 80); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if n := strings.Count(text, "\n"); n < 5 || n > 700 {
			t.Errorf("a drawing of %d lines at %d columns", n, columns)
		}
		for line := range strings.Lines(text) {
			if w := cli.Width(strings.TrimSuffix(line, "\n")); columns >= 80 && w > columns {
				t.Errorf("%d columns instead of %d: %s", w, columns, line)
				break
			}
			if columns == 80 && strings.IndexFunc(line, func(r rune) bool { return r >= 0x80 }) >= 0 {
				t.Errorf("not ASCII: %s", line)
				break
			}
		}
	}
	picture := drawSVG(s)
	if len(picture) > 2<<20 {
		t.Errorf("a picture of %d bytes", len(picture))
	}
	squares := 0
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "rect" {
			squares++
		}
	}
	if sc := makeScene(s); len(sc.outer) <= maxOuterSVG && squares < s.Cores {
		t.Errorf("%d squares for %d cores", squares, s.Cores)
	}
}

func checkGather(t *testing.T, r *recorder, page, plain string) {
	t.Helper()
	s := inspect(t, writeArchive(t, r, ""))
	if got := pageOf(t, &s, false); got != page {
		t.Errorf("the gathered tree has another page: %s", firstDifference(page, got))
	}
	if got := pageOf(t, &s, true); got != plain {
		t.Errorf("the gathered tree has another plain page: %s", firstDifference(plain, got))
	}
}

func writeArchive(t *testing.T, r *recorder, host string) string {
	t.Helper()
	a, err := r.archive(host)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "tree.tgz")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := a.write(f); err != nil {
		t.Fatal(err)
	}
	return name
}

// firstDifference shows the first line in which two texts differ.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			return "\nwant " + w[i] + "\ngot  " + strings.Join(g[min(i, len(g)):min(i+1, len(g))], "")
		}
	}
	return "more lines: " + strings.Join(g[len(w):min(len(w)+1, len(g))], "")
}

// TestGolden holds pages and drawings of some trees against what a person has looked at. -update writes them anew.
func TestGolden(t *testing.T) {
	dir := testkit.Data(t, "topology/trees")
	for _, name := range []string{"hm-spr-2s-snc4", "vm-2s-memless-cgroup2", "vm-2s-cxl-hmat"} {
		s := inspect(t, filepath.Join(dir, name+".tar.gz"))
		var b bytes.Buffer
		b.WriteString(pageOf(t, &s, false) + "\n")
		if err := drawText(&b, &s, 100, false); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
		r := check(&subject{Survey: &s})
		if err := r.write(&b, false, pageWidth); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(golden, b.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != string(want) {
			t.Errorf("%s differs from %s: %s", name, golden, firstDifference(string(want), got))
		}
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

// What files say goes into the picture as text, whatever it is.
func TestHostileNames(t *testing.T) {
	s := topo.Survey{Machine: topo.Machine{CPUs: []topo.CPU{{}}, Affinity: []int{0}, Nodes: []topo.Node{{CPUs: []int{0}}}},
		Model: "a<b>&\"\x1b[31m\x00\xff]]>"}
	d := xml.NewDecoder(bytes.NewReader(drawSVG(&s)))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, plain := range []bool{false, true} {
		if text := pageOf(t, &s, plain); strings.ContainsAny(text, "\x1b\x00") || strings.Contains(text, "\xff") || !strings.Contains(text, "a<b>&") {
			t.Errorf("%q", text)
		}
	}
}
