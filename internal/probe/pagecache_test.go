package probe

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/topo"
)

// The pages of a file that was just written are in memory, on nodes that add up; nothing is told of a file that is not there.
func TestLookAtFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.safetensors"), filepath.Join(dir, "b.safetensors")
	for _, x := range []struct {
		name string
		n    int
	}{{a, 3 << 20}, {b, 5000}, {filepath.Join(dir, "empty.safetensors"), 0}} {
		if err := os.WriteFile(x.name, bytes.Repeat([]byte{7}, x.n), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	files, err := ModelFiles(dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	p, err := LookAtFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	if p.Bytes != 3<<20+5000 || p.Pages < 700 || p.Cached != p.Pages {
		t.Errorf("%+v", p)
	}
	if p.Unknown == "" {
		on, bytes := 0, int64(0)
		for node, n := range p.Nodes {
			on += n
			bytes += p.OnNode(node)
		}
		if on != p.Cached || bytes < p.Bytes*99/100 || bytes > p.Bytes+1 {
			t.Errorf("%d pages, %d bytes on nodes of %+v", on, bytes, p)
		}
	}
	if one, err := ModelFiles(b); err != nil || len(one) != 1 {
		t.Errorf("%v, %v", one, err)
	}
	for _, name := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "none.gguf")} {
		if _, err := ModelFiles(name); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := ModelFiles(t.TempDir()); err == nil || !strings.Contains(err.Error(), "safetensors") {
		t.Errorf("an empty folder: %v", err)
	}
}

// A core is near if it is on the node of the pages, far if it is on the node that is farthest from it.
func TestFarPair(t *testing.T) {
	s := &topo.Survey{Machine: topo.Machine{Affinity: []int{1, 2, 3, 4, 5}, Nodes: []topo.Node{{ID: 0, CPUs: []int{0, 1}}, {ID: 1, CPUs: []int{2, 3}}, {ID: 2, CPUs: []int{4, 5}}, {ID: 4}}},
		Distance: [][]int{{10, 20, 30, 40}, {20, 10, 12, 40}, {30, 12, 10, 40}, {40, 40, 40, 10}}}
	for _, c := range []struct{ home, near, far int }{{0, 1, 4}, {1, 2, 1}, {2, 4, 1}, {4, -1, 1}, {9, -1, -1}} {
		if near, far := farPair(s, c.home); near != c.near || far != c.far {
			t.Errorf("node %d: CPUs %d and %d, want %d and %d", c.home, near, far, c.near, c.far)
		}
	}
}
