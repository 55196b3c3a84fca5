package picture

import (
	"bytes"
	"encoding/xml"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/plaintext"
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

// Every tree has drawings within limits.
func TestTrees(t *testing.T) {
	for _, file := range treeNames(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			s := inspect(t, file)
			checkDrawings(t, &s)
		})
	}
}

func checkDrawings(t *testing.T, s *topo.Survey) {
	t.Helper()
	for _, columns := range []int{40, 80, 132} {
		var b bytes.Buffer
		if err := MachineText(&b, s, columns, columns == 80); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if n := strings.Count(text, "\n"); n < 5 || n > 700 {
			t.Errorf("a drawing of %d lines at %d columns", n, columns)
		}
		for line := range strings.Lines(text) {
			if w := plaintext.Width(strings.TrimSuffix(line, "\n")); columns >= 80 && w > columns {
				t.Errorf("%d columns instead of %d: %s", w, columns, line)
				break
			}
			if columns == 80 && strings.IndexFunc(line, func(r rune) bool { return r >= 0x80 }) >= 0 {
				t.Errorf("not ASCII: %s", line)
				break
			}
		}
	}
	var doc bytes.Buffer
	if err := Machine(&doc, SVG, s); err != nil {
		t.Fatal(err)
	}
	picture := doc.Bytes()
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
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "path" {
			squares++
		}
	}
	if sc := makeScene(s); len(sc.outer) <= maxOuter && squares < 2*s.Cores {
		t.Errorf("%d squares for %d cores", squares, s.Cores)
	}
}

// What files say goes into the picture as text, whatever it is.
func TestHostileNames(t *testing.T) {
	s := topo.Survey{Machine: topo.Machine{CPUs: []topo.CPU{{}}, Affinity: []int{0}, Nodes: []topo.Node{{CPUs: []int{0}}}},
		Model: "a<b>&\"\x1b[31m\x00\xff]]>"}
	var doc bytes.Buffer
	if err := Machine(&doc, SVG, &s); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(&doc)
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
