package topo

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// mutations are the trees that FuzzMutatedTree changes: small ones, which together have everything that is read.
var mutations = []string{"dev-dsa", "dev-cxl", "dev-power", "alderlake-hybrid", "arm-gb10", "hmat-gi", "vm-2s-memless-cgroup2", "opteron-8n-cpuset1", "s390-books",
	"clx-2s-pmem-memorymode", "power9-gpu-nodes", "xeon-2s-dax-ib"}

// fewSteps lets surveys take no more steps than twice what the largest of these machines needs: one with links that make it endless takes
// milliseconds then, not a second. TestHostileTrees has the limit that users meet.
func fewSteps(f testing.TB) {
	old := maxSteps
	maxSteps = 1 << 14
	f.Cleanup(func() { maxSteps = old })
}

// FuzzMutatedTree changes saved machines in some places: a file's content is cut, overwritten, exchanged for another file's or for a word
// that the kernel uses, becomes a link, a folder, or vanishes.
func FuzzMutatedTree(tf *testing.F) {
	f := testkit.Fuzz(tf)
	fewSteps(f)
	var trees [][]item
	for _, name := range mutations {
		if tree, ok := testkit.Lookup(f, "topology/trees/"+name+".tar.gz"); ok {
			trees = append(trees, files(f, tree))
		}
	}
	if most := testkit.Least(f, len(mutations), 5); len(trees) < most {
		f.Fatalf("%d machines, expected %d", len(trees), most)
	}
	for i := range trees {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte("\x00\x10\x03\x05\x01\x20\x02\x09\x02\x30\x01\x07\x03\x40\x00\x05"))
	}
	f.Fuzz(func(t *testing.T, which uint8, script []byte) {
		m := newMemStore()
		for _, i := range mutate(trees[int(which)%len(trees)], script) {
			e := entry{data: string(i.data)}
			if i.link != "" {
				e = entry{fs.ModeSymlink, i.link}
			}
			m.add(i.name, e) // what has no place is left out
		}
		m.finish()
		s, err := Inspect(linked{m}, false)
		if err == nil {
			sound(t, &s)
		}
	})
}

// mutationWords are what stands in files for which it is not meant.
var mutationWords = []string{"", "0", "1", "-1", "4294967296", "9223372036854775807", "0x7fffffffffffffff", "0-16383", "0,2,4,16383", "ffffffff,ffffffff", "\xff\xfe", "max",
	"Unavailable", "enabled", "user", "dedicated", "none", "10 21", "0::/a", "Data", "Unified", "32K", "hypervisor", "node1", "model name: x\nflags: amx_tile", strings.Repeat("7", 300)}

// mutate changes a tree as the script says, four bytes for each change. Half of the changes are to files that do not belong to one CPU.
func mutate(tree []item, script []byte) []item {
	items := slices.Clone(tree)
	var few []int
	for i, x := range items {
		if !strings.HasPrefix(x.name, cpuDir+"/cpu") {
			few = append(few, i)
		}
	}
	for script = script[:min(len(script), 400)]; len(script) >= 4; script = script[4:] {
		at, op, arg := int(script[0])<<8|int(script[1]), script[2], int(script[3])
		if op < 128 && len(few) > 0 {
			at = few[at%len(few)]
		}
		at %= len(items)
		i, other := &items[at], items[(at+arg)%len(items)]
		switch op % 7 {
		case 0:
			i.data = i.data[:min(len(i.data), arg)]
		case 1:
			i.data, i.link = []byte(mutationWords[arg%len(mutationWords)]), ""
		case 2:
			i.data, i.link = other.data, ""
		case 3:
			i.data = slices.Clone(i.data)
			for k := range i.data {
				if k%7 == arg%7 {
					i.data[k] ^= byte(arg)
				}
			}
		case 4:
			i.link = []string{"/", ".", "..", "/" + other.name, "/" + path.Dir(other.name)}[arg%5]
		case 5:
			i.name = path.Join(path.Dir(other.name), path.Base(i.name))
		case 6:
			i.name = "gone"
		}
	}
	return items
}

// sound holds a Survey of whatever tree against what all who use one rely on.
func sound(t *testing.T, s *Survey) {
	t.Helper()
	var online []int
	for _, c := range s.CPUs {
		online = append(online, c.ID)
		if i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.ID == c.Node }); i < 0 {
			t.Errorf("CPU %d is in node %d, which is not there", c.ID, c.Node)
		}
		if c.Lead > c.ID {
			t.Errorf("CPU %d has a core that begins at %d", c.ID, c.Lead)
		}
	}
	sets := map[string][]int{"online": online, "affinity": s.Affinity, "possible": s.Possible, "present": s.Present, "offline": s.Offline, "disallowed": s.Disallowed}
	part := func(name string, ids []int) {
		sets[name] = ids
		if len(intersect(ids, online)) != len(ids) {
			t.Errorf("%s has CPUs %v, which are not all online", name, ids)
		}
	}
	part("affinity", s.Affinity)
	part("disallowed", s.Disallowed)
	for _, p := range s.Packages {
		part(fmt.Sprintf("package %d", p.ID), p.CPUs)
		if len(p.CPUs) == 0 || p.Cores > len(p.CPUs) {
			t.Errorf("package %d: %d CPUs, %d cores", p.ID, len(p.CPUs), p.Cores)
		}
	}
	for i, k := range s.Kinds {
		part(fmt.Sprintf("kind %d %s", i, k.Name), k.CPUs)
	}
	ids := []int{}
	for _, n := range s.Nodes {
		ids = append(ids, n.ID)
		part(fmt.Sprintf("node %d", n.ID), n.CPUs)
	}
	sets["nodes"] = ids
	caches := 0
	for i, c := range s.CacheSets {
		part(fmt.Sprintf("cache %d", i), c.CPUs)
		if c.Bytes < 0 || len(c.CPUs) == 0 {
			t.Errorf("%+v", c)
		}
	}
	for _, c := range s.Caches {
		caches += c.Count
	}
	for name, ids := range sets {
		if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Errorf("%s is not in order, or has one twice: %v", name, ids)
		}
	}
	if len(s.Affinity) == 0 || len(s.Nodes) == 0 || len(s.Memory) != len(s.Nodes) || caches != len(s.CacheSets) || s.Distance != nil && len(s.Distance) != len(s.Nodes) ||
		s.Settings.PageCacheByNode != nil && len(s.Settings.PageCacheByNode) != len(s.Nodes) || s.Cores > len(s.CPUs) || s.SMT > len(s.CPUs) || s.MemTotal < 0 || s.MemFree < 0 {
		t.Errorf("%d allowed CPUs, %d nodes, %d memories, %d rows of distances, %d of %d caches, %d cores, SMT %d, memory %d of %d", len(s.Affinity), len(s.Nodes), len(s.Memory),
			len(s.Distance), caches, len(s.CacheSets), s.Cores, s.SMT, s.MemFree, s.MemTotal)
	}
	if cpus, why := s.Workers(); len(cpus) == 0 || why == "" {
		t.Errorf("no workers: %s", why)
	}
	for _, m := range s.Missing {
		if len(m) > 1000 || strings.ContainsAny(m, "\x00\n") {
			t.Errorf("a sentence of %d bytes: %.100q", len(m), m)
		}
	}
}
