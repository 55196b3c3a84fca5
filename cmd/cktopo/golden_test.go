package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/findings"
	"ck/internal/page"
	"ck/internal/picture"
	"ck/internal/testkit"
	"ck/internal/topo"
)

var update = flag.Bool("update", false, "write the golden pages anew")

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

func pageOf(t *testing.T, s *topo.Survey) string {
	t.Helper()
	var b bytes.Buffer
	if err := page.Write(&b, s, false, page.Width); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestGolden holds pages and drawings of some trees against what a person has looked at. -update writes them anew.
func TestGolden(t *testing.T) {
	dir := testkit.Data(t, "topology/trees")
	for _, name := range []string{"hm-spr-2s-snc4", "vm-2s-memless-cgroup2", "vm-2s-cxl-hmat"} {
		s := inspect(t, filepath.Join(dir, name+".tar.gz"))
		var b bytes.Buffer
		b.WriteString(pageOf(t, &s) + "\n")
		if err := picture.MachineText(&b, &s, 100, false); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
		r := findings.Check(&findings.Subject{Survey: &s})
		if err := page.WriteReport(&b, &r, false, page.Width); err != nil {
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
