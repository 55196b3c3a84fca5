package topo

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// homesText is nodes:cores+siblings of each home.
func homesText(homes []Home) string {
	var list []string
	for _, h := range homes {
		list = append(list, strings.ReplaceAll(fmt.Sprintf("%v:%d+%d", h.Nodes, len(h.Cores), len(h.Siblings)), " ", ","))
	}
	return strings.Join(list, " ")
}

// Homes of all trees: every core that may be used is in one home, nothing is placed where it must not be.
func TestHomes(t *testing.T) {
	wants := map[string]string{
		"tigerlake-1s":               "[0]:4+4",
		"hm-epyc9375f-2s-nps1-nosmt": "[0]:32+0 [1]:32+0",
		"hm-gnr-2s-snc3":             "[0]:40+40 [1]:40+40 [2]:40+40 [3]:40+40 [4]:40+40 [5]:40+40",
		"clx-2s-snc2-2pmem":          "[0]:14+14 [1]:14+14 [2]:14+14 [3]:14+14",                              // beside memory that nobody told the kind of
		"vm-2s-cxl-hmat":             "[0]:2+0 [1]:2+0",                                                      // CXL is nobody's
		"hm-xeonmax-2s-quad-flat":    "[2,0]:52+52 [3,1]:52+52",                                              // HBM comes first
		"knl-snc4-hybrid":            "[7,0]:4+12 [4,1]:4+12 [5,2]:4+12 [6,3]:4+12",                          // MCDRAM, by distance
		"hm-tr3960x-nps4-memless":    "[1]:12+12 [2]:12+12",                                                  // two nodes without memory
		"disallowed-4n":              "[0]:2+0",                                                              // memory of node 1 is forbidden
		"opteron-8n-sparse":          "[0]:6+0 [1]:6+0 [2]:6+0 [33]:6+0 [34]:6+0 [45]:6+0 [72]:6+0 [73]:6+0", // holes in the numbers
		"hm-gh200-9nodes":            "[0]:72+0",                                                             // memory of the GPU is not ours
		"hmat-gi":                    "[5,6,7,8,9,10]:8+0",                                                   // no node has both
	}
	files, err := filepath.Glob(filepath.Join(testkit.Data(t, "topology"), "trees", "*.tar.gz"))
	if err != nil || len(files) < 8 {
		t.Fatalf("%d trees, %v", len(files), err)
	}
	all := len(files) >= 40 // a clone has some of them
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".tar.gz")
		fsys, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Inspect(fsys, false)
		if err != nil {
			t.Fatal(err)
		}
		homes, notes := s.Homes()
		if want, ok := wants[name]; ok && homesText(homes) != want {
			t.Errorf("%s: %s, want %s", name, homesText(homes), want)
		}
		delete(wants, name)
		var cpus, nodes []int
		for _, h := range homes {
			cpus = append(append(cpus, h.Cores...), h.Siblings...)
			nodes = append(nodes, h.Nodes...)
			if len(h.Cores) == 0 || len(h.Nodes) == 0 {
				t.Errorf("%s: a home with nodes %v, cores %v", name, h.Nodes, h.Cores)
			}
			if !slices.IsSorted(h.Cores) || !slices.IsSorted(h.Siblings) {
				t.Errorf("%s: %v, %v", name, h.Cores, h.Siblings)
			}
		}
		slices.Sort(cpus)
		if !slices.Equal(cpus, s.Affinity) {
			t.Errorf("%s: homes have CPUs %v, this process %v", name, cpus, s.Affinity)
		}
		slices.Sort(nodes)
		if len(slices.Compact(slices.Clone(nodes))) != len(nodes) {
			t.Errorf("%s: nodes %v", name, nodes)
		}
		for i, n := range s.Nodes {
			used := slices.Contains(nodes, n.ID)
			switch kind := s.Memory[i].Kind; {
			case used && !n.Allowed, used && len(homes) > 1 && len(n.CPUs) == 0 && kind != HBM:
				t.Errorf("%s: node %d, %v without CPUs, is a home's", name, n.ID, kind)
			case !used && n.MemTotal > 0 && n.Allowed && len(n.CPUs) == 0 && kind != GPU && !slices.ContainsFunc(notes, func(x string) bool {
				return strings.HasPrefix(x, fmt.Sprintf("node %d ", n.ID))
			}):
				t.Errorf("%s: node %d is left out in silence", name, n.ID)
			}
		}
	}
	if all && len(wants) > 0 {
		t.Errorf("trees that are not there: %v", wants)
	}
}

// A process that is bound to nodes has the cores of their homes and no other memory.
func TestBound(t *testing.T) {
	fsys, err := Open(filepath.Join(testkit.Data(t, "topology"), "trees", "vm-2s-cxl-hmat.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Inspect(fsys, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		nodes, cores []int
		err          string
	}{
		{[]int{1}, []int{2, 3}, ""}, {[]int{1, 0}, []int{0, 1, 2, 3}, ""}, {[]int{0, 2}, []int{0, 1}, ""},
		{[]int{2}, nil, "no core works at node 2; name a node with cores as well"}, {[]int{0, 3}, nil, "there is no memory node 3 here; there are 0, 1, 2"},
	} {
		m, err := s.Bound(c.nodes)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%v: %v, want %s", c.nodes, err, c.err)
			}
			continue
		}
		if err != nil || !slices.Equal(m.Affinity, c.cores) {
			t.Errorf("%v: cores %v, %v", c.nodes, m.Affinity, err)
		}
		for _, n := range m.Nodes {
			if n.Allowed != slices.Contains(c.nodes, n.ID) {
				t.Errorf("%v: node %d may be used: %v", c.nodes, n.ID, n.Allowed)
			}
		}
	}
	if !s.Nodes[0].Allowed || !s.Nodes[1].Allowed {
		t.Error("the survey itself has changed")
	}
	s.Nodes[1].Allowed = false
	if _, err := s.Bound([]int{1}); err == nil || !strings.Contains(err.Error(), "may not take memory of node 1") {
		t.Error(err)
	}
}

// Nodes finds what Inspect does, of what homes are made of.
func TestNodes(t *testing.T) {
	n, err := Nodes()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Inspect(os.DirFS("/"), true)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := n.Homes()
	b, _ := s.Homes()
	if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(n.Memory, s.Memory) || !reflect.DeepEqual(n.Distance, s.Distance) || n.Model != s.Model {
		t.Errorf("%+v, Inspect finds %+v", n, s)
	}
}
