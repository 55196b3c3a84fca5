package picture

import (
	"fmt"
	"slices"
	"strings"

	"ck/internal/humanize"
	"ck/internal/plaintext"
	"ck/internal/topo"
)

// A scene is what both drawings show: outer boxes (packages; or nodes, where a node holds several packages) with the boxes in them.
type scene struct {
	title, sub string
	outer      []outer
	loose      []memoryBox // memory nodes that belong to none of them
	common     []string    // caches that are the same everywhere, in words
}

// outer is a package, or a node with several packages in it.
type outer struct {
	title  string
	notes  []string // caches that all of its leaves share
	leaves []leaf
	memory []memoryBox
	node   int // the node that it is; -1: it is a package
}

// leaf is the CPUs of one package on one node.
type leaf struct {
	title  string
	node   int // -1: nothing told
	memory *memoryBox
	groups []coreGroup
	cpus   []int
	cores  int
}

// coreGroup is cores that share a cache which others of the leaf do not share.
type coreGroup struct {
	label string // of the cache; "": none
	cores []drawnCore
}

// drawnCore is a physical core.
type drawnCore struct {
	cpus    []int // online
	allowed bool  // this process may run there
	kind    int   // index in Survey.Kinds; 0 if all are alike
}

// memoryBox is the memory of a node.
type memoryBox struct {
	node    int
	bytes   int64
	kind    topo.MemoryKind
	cache   int64 // bytes of the memory-side cache before it
	allowed bool
}

func (m memoryBox) text() string {
	if m.bytes == 0 {
		return "no memory"
	}
	text := humanize.IBytes(m.bytes)
	if m.kind != topo.None {
		text += " " + string(m.kind)
	}
	if m.cache > 0 {
		text += " cached by " + humanize.IBytes(m.cache)
	}
	if !m.allowed {
		text += ", not allowed"
	}
	return text
}

// makeScene lays a survey out in boxes.
func makeScene(s *topo.Survey) scene {
	sc := scene{title: orUnknown(s.Model), sub: summary(s)}
	type pair struct{ pkg, node int }
	inPair := map[pair][]int{}
	var pairs []pair
	nodesOf, pkgsOf := map[int]map[int]bool{}, map[int]map[int]bool{}
	for _, c := range s.CPUs {
		p := pair{c.Package, c.Node}
		if inPair[p] == nil {
			pairs = append(pairs, p)
		}
		inPair[p] = append(inPair[p], c.ID)
		put(nodesOf, c.Package, c.Node)
		put(pkgsOf, c.Node, c.Package)
	}
	byNode := len(pkgsOf) < len(nodesOf) && len(pairs) == len(nodesOf) // nodes hold whole packages
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if byNode && a.node != b.node || a.pkg == b.pkg {
			return a.node - b.node
		}
		return a.pkg - b.pkg
	})
	index := map[int]int{}
	for _, p := range pairs {
		key := p.pkg
		if byNode {
			key = p.node
		}
		if _, ok := index[key]; !ok {
			index[key] = len(sc.outer)
			o := outer{title: packageTitle(p.pkg), node: -1}
			if byNode {
				o.title, o.node = fmt.Sprintf("node %d", p.node), p.node
				if m := boxOf(s, p.node); m != nil {
					o.memory = append(o.memory, *m)
				}
			}
			sc.outer = append(sc.outer, o)
		}
		o := &sc.outer[index[key]]
		l := leaf{cpus: inPair[p], node: p.node}
		if byNode {
			l.title = packageTitle(p.pkg)
		} else {
			l.title, l.memory = fmt.Sprintf("node %d", p.node), boxOf(s, p.node)
		}
		o.leaves = append(o.leaves, l)
	}
	for i := range sc.outer {
		fillOuter(s, &sc.outer[i])
	}
	for i, n := range s.Nodes {
		if len(n.CPUs) > 0 || n.MemTotal == 0 && (i >= len(s.Memory) || s.Memory[i].Kind == topo.None) {
			continue
		}
		m := boxOf(s, n.ID)
		if o := ownerOf(s, &sc, i); o != nil {
			o.memory = append(o.memory, *m)
		} else {
			sc.loose = append(sc.loose, *m)
		}
	}
	sc.common = commonCaches(s)
	return sc
}

func orUnknown(model string) string {
	if model == "" {
		return "CPU not told"
	}
	return plaintext.Escape(model)
}

func packageTitle(id int) string {
	if id < 0 {
		return "package not told"
	}
	return fmt.Sprintf("package %d", id)
}

func put(m map[int]map[int]bool, k, v int) {
	if m[k] == nil {
		m[k] = map[int]bool{}
	}
	m[k][v] = true
}

// summary is the machine in one line.
func summary(s *topo.Survey) string {
	parts := []string{humanize.Plural(len(s.CPUs), "CPU")}
	if s.Cores > 0 {
		parts = append([]string{humanize.Plural(s.Cores, "core")}, parts...)
	}
	if len(s.Packages) > 0 {
		parts = append([]string{humanize.Plural(len(s.Packages), "package")}, parts...)
	}
	parts = append(parts, humanize.Plural(len(s.Nodes), "node"))
	if s.SubNUMA != "" {
		parts = append(parts, s.SubNUMA)
	}
	if s.MemTotal > 0 {
		parts = append(parts, humanize.IBytes(s.MemTotal))
	}
	return strings.Join(parts, ", ")
}

// boxOf is the memory of a node; nil if there is no such node.
func boxOf(s *topo.Survey, id int) *memoryBox {
	for i, n := range s.Nodes {
		if n.ID == id {
			m := &memoryBox{node: id, bytes: n.MemTotal, allowed: n.Allowed}
			if i < len(s.Memory) {
				m.kind = s.Memory[i].Kind
				for _, c := range s.Memory[i].Caches {
					m.cache += c.Bytes
				}
			}
			return m
		}
	}
	return nil
}

// ownerOf is the package to which the memory node at index i belongs, nil if that is unclear.
func ownerOf(s *topo.Survey, sc *scene, i int) *outer {
	if i >= len(s.Memory) || s.Memory[i].Package < 0 {
		return nil
	}
	for j := range sc.outer {
		if sc.outer[j].node < 0 && sc.outer[j].title == packageTitle(s.Memory[i].Package) {
			return &sc.outer[j]
		}
	}
	return nil
}

// fillOuter puts the cores into the leaves, grouped by the last cache where that is smaller than a leaf; a cache that spans leaves is a
// note of the outer box.
func fillOuter(s *topo.Survey, o *outer) {
	for i := range o.leaves {
		l := &o.leaves[i]
		cores := coresIn(s, l.cpus)
		l.cores = len(cores)
		l.groups = []coreGroup{{cores: cores}}
		level, sets := groupingCaches(s, l.cpus)
		if sets == nil {
			continue
		}
		l.groups = nil
		for _, set := range sets {
			g := coreGroup{label: fmt.Sprintf("L%d %s", level, humanize.IBytesTold(set.Bytes))}
			for _, c := range cores {
				if slices.Contains(set.CPUs, c.cpus[0]) {
					g.cores = append(g.cores, c)
				}
			}
			if len(g.cores) > 0 {
				l.groups = append(l.groups, g)
			}
		}
	}
	var all []int
	for _, l := range o.leaves {
		all = append(all, l.cpus...)
	}
	if len(o.leaves) < 2 {
		return
	}
	slices.Sort(all)
	for _, set := range s.CacheSets {
		if n := len(common(set.CPUs, all)); n > 0 && n == len(all) && set.Type != "instruction" {
			o.notes = append(o.notes, fmt.Sprintf("L%d %s", set.Level, humanize.IBytesTold(set.Bytes)))
		}
	}
}

// coresIn are the physical cores of ascending CPUs, by their first CPU.
func coresIn(s *topo.Survey, cpus []int) []drawnCore {
	var cores []drawnCore
	index := map[int]int{}
	for _, c := range s.CPUs {
		if _, ok := slices.BinarySearch(cpus, c.ID); !ok {
			continue
		}
		i, ok := index[c.Lead]
		if !ok {
			i = len(cores)
			index[c.Lead] = i
			d := drawnCore{}
			for k, kind := range s.Kinds {
				if slices.Contains(kind.CPUs, c.ID) {
					d.kind = k
				}
			}
			cores = append(cores, d)
		}
		cores[i].cpus = append(cores[i].cpus, c.ID)
		if _, ok := slices.BinarySearch(s.Affinity, c.ID); ok {
			cores[i].allowed = true
		}
	}
	return cores
}

// groupingCaches are the caches of the highest level that a leaf holds whole, if together they hold all its CPUs: what its cores are
// grouped by. Private caches of cores group nothing.
func groupingCaches(s *topo.Survey, cpus []int) (level int, sets []topo.CacheSet) {
	for level = 4; level >= 2; level-- {
		sets, covered, largest := []topo.CacheSet(nil), 0, 0
		for _, set := range s.CacheSets {
			if set.Level != level || set.Type == "instruction" {
				continue
			}
			n := len(common(set.CPUs, cpus))
			switch {
			case n == 0:
				continue
			case n < len(set.CPUs):
				covered = -1 << 30 // it reaches into another leaf
			}
			sets = append(sets, set)
			covered += n
			largest = max(largest, n)
		}
		if covered == len(cpus) && largest > max(1, s.SMT) {
			return level, sets
		}
	}
	return 0, nil
}

// common is what is in both ascending lists.
func common(a, b []int) []int {
	var out []int
	for _, id := range a {
		if _, ok := slices.BinarySearch(b, id); ok {
			out = append(out, id)
		}
	}
	return out
}

// commonCaches says what caches there are, where all of a level are alike.
func commonCaches(s *topo.Survey) []string {
	var out []string
	for _, c := range s.Caches {
		text := fmt.Sprintf("%s %s", c.Name(), humanize.IBytesTold(c.Bytes))
		if c.CPUs > 1 {
			text += fmt.Sprintf(" for %d CPUs", c.CPUs)
		}
		out = append(out, fmt.Sprintf("%d × %s", c.Count, text))
	}
	return out
}
