package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"ck/internal/cli"
	"ck/internal/humanize"
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
	return cli.Escape(model)
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
		text := fmt.Sprintf("%s %s", cacheName(c), humanize.IBytesTold(c.Bytes))
		if c.CPUs > 1 {
			text += fmt.Sprintf(" for %d CPUs", c.CPUs)
		}
		out = append(out, fmt.Sprintf("%d × %s", c.Count, text))
	}
	return out
}

// utf8Locale reports whether the terminal's character set is UTF-8, as the environment says it.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// maxDrawn is how many outer boxes are drawn one by one; beyond, alike ones in a row share one.
const maxDrawn = 16

func drawText(w io.Writer, s *topo.Survey, columns int, ascii bool) error {
	sc := makeScene(s)
	inner := columns - 4
	var boxes []textBox
	for _, o := range alike(sc.outer) {
		var leaves []textBox
		for i := range o.leaves {
			leaves = append(leaves, leafText(s, &o.leaves[i], min(inner-4, 64)))
		}
		b := textBox{title: o.title}
		for _, m := range o.memory {
			if o.node >= 0 {
				b.lines = append(b.lines, m.text())
			}
		}
		b.lines = append(b.lines, o.notes...)
		b.lines = append(b.lines, flow(leaves, inner)...)
		if o.node < 0 {
			b.lines = append(b.lines, memoryText(o.memory, inner)...)
		}
		boxes = append(boxes, b)
	}
	out := append(cli.Wrap(sc.title, columns), cli.Wrap(sc.sub, columns)...)
	for _, line := range cli.Wrap(strings.Join(sc.common, ", "), columns) {
		if line != "" {
			out = append(out, line)
		}
	}
	out = append(out, flow(boxes, columns)...)
	out = append(out, memoryText(sc.loose, columns)...)
	out = append(out, legend(s, columns)...)
	out = append(out, distanceText(s, columns)...)
	text := string(cli.Printable([]byte(strings.Join(out, "\n") + "\n")))
	if ascii {
		text = asciiOf.Replace(text)
	}
	_, err := io.WriteString(w, text)
	return cli.OutError(err)
}

// alike joins outer boxes in a row that differ in their numbers only, if there are too many of them.
func alike(all []outer) []outer {
	if len(all) <= maxDrawn {
		return all
	}
	shape := func(o *outer) string {
		var b strings.Builder
		fmt.Fprint(&b, len(o.leaves), o.notes, len(o.memory))
		for _, l := range o.leaves {
			fmt.Fprint(&b, " ", l.cores, len(l.cpus), len(l.groups))
			if l.memory != nil {
				fmt.Fprint(&b, l.memory.bytes>>30, l.memory.kind)
			}
		}
		for _, m := range o.memory {
			fmt.Fprint(&b, " ", m.bytes>>30, m.kind)
		}
		return b.String()
	}
	var out []outer
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && shape(&all[j]) == shape(&all[i]) {
			j++
		}
		o := all[i]
		if j-i > 1 {
			o.title += fmt.Sprintf(" and %d more like it", j-i-1)
		}
		out = append(out, o)
		i = j
	}
	return out
}

// A textBox is lines with a frame and a title.
type textBox struct {
	title string
	lines []string
}

// leafText is a node, at most limit columns inside.
func leafText(s *topo.Survey, l *leaf, limit int) textBox {
	b := textBox{title: l.title}
	if l.memory != nil {
		b.lines = append(b.lines, l.memory.text())
	}
	text := humanize.Plural(l.cores, "core")
	if len(l.cpus) > l.cores {
		text += fmt.Sprintf(", %d CPUs", len(l.cpus))
	}
	b.lines = append(b.lines, text, "CPUs "+humanize.ShortList(l.cpus, min(limit, humanize.ListColumns)-5))
	b.lines = append(b.lines, groupLines(s, l.groups, limit)...)
	return b
}

// groupLines draws the cores: groups with one kind of cache between blanks, below what the cache is.
func groupLines(s *topo.Survey, groups []coreGroup, limit int) []string {
	var lines []string
	for i := 0; i < len(groups); {
		j := i + 1
		for j < len(groups) && groups[j].label == groups[i].label {
			j++
		}
		if groups[i].label != "" {
			label := groups[i].label
			if j-i > 1 {
				label = fmt.Sprintf("%d × %s", j-i, label)
			}
			lines = append(lines, label)
		}
		line := ""
		for _, g := range groups[i:j] {
			for k, c := range g.cores {
				switch full := cli.Width(line) >= min(32, limit); {
				case full && line != "":
					lines = append(lines, line)
					line = ""
				case k == 0 && line != "" && cli.Width(line)+1+len(g.cores) > min(40, limit):
					lines = append(lines, line)
					line = ""
				case k == 0 && line != "":
					line += " "
				}
				line += glyph(s, c)
			}
		}
		lines = append(lines, line)
		i = j
	}
	return lines
}

// glyph is one core: capital letters and small ones tell kinds apart, a hollow square is a core that this process may not use.
func glyph(s *topo.Survey, c drawnCore) string {
	switch {
	case !c.allowed:
		return "□"
	case len(s.Kinds) > 1:
		return string(kindGlyphs[min(c.kind, len(kindGlyphs)-1)])
	}
	return "■"
}

var kindGlyphs = []rune("■▣▤▥▦▧")

// legend says what the squares mean.
func legend(s *topo.Survey, columns int) []string {
	parts := []string{}
	if len(s.Kinds) > 1 {
		for i, k := range s.Kinds {
			parts = append(parts, fmt.Sprintf("%c %s", kindGlyphs[min(i, len(kindGlyphs)-1)], k.Name))
		}
	} else {
		parts = append(parts, "■ core")
	}
	if len(s.Affinity) < len(s.CPUs) {
		parts = append(parts, "□ not allowed to this process")
	}
	if len(s.Offline) > 0 {
		parts = append(parts, humanize.Plural(len(s.Offline), "CPU")+" offline, not drawn")
	}
	var lines []string
	line := parts[0]
	for _, p := range parts[1:] {
		if cli.Width(line)+3+cli.Width(p) > columns {
			lines = append(lines, line)
			line = p
			continue
		}
		line += "   " + p
	}
	return append(lines, line)
}

// memoryText is a line of boxes for nodes without CPUs.
func memoryText(memory []memoryBox, columns int) []string {
	var boxes []textBox
	for _, m := range memory {
		boxes = append(boxes, textBox{title: fmt.Sprintf("node %d", m.node), lines: []string{m.text()}})
	}
	return flow(boxes, columns)
}

// flow sets boxes side by side in rows of at most columns; boxes of a row have one height, all boxes one width where that saves no row.
func flow(boxes []textBox, columns int) []string {
	if len(boxes) == 0 {
		return nil
	}
	widest := 0
	for _, b := range boxes {
		widest = max(widest, b.width())
	}
	perRow := max(1, (columns+1)/(widest+5))
	perRow = min(perRow, len(boxes))
	rows := (len(boxes) + perRow - 1) / perRow
	perRow = (len(boxes) + rows - 1) / rows
	var out []string
	for i := 0; i < len(boxes); i += perRow {
		row := boxes[i:min(i+perRow, len(boxes))]
		height := 0
		for _, b := range row {
			height = max(height, len(b.lines))
		}
		for y := -1; y <= height; y++ {
			var line strings.Builder
			for k, b := range row {
				if k > 0 {
					line.WriteString(" ")
				}
				line.WriteString(b.row(y, widest, height))
			}
			out = append(out, line.String())
		}
	}
	return out
}

// width is that of the box's content.
func (b *textBox) width() int {
	w := cli.Width(b.title) + 2
	for _, l := range b.lines {
		w = max(w, cli.Width(l))
	}
	return w
}

// row is one line of the box: -1 the top, height the bottom.
func (b *textBox) row(y, inner, height int) string {
	switch {
	case y == -1:
		return "┌ " + b.title + " " + strings.Repeat("─", inner-cli.Width(b.title)) + "┐"
	case y == height:
		return "└" + strings.Repeat("─", inner+2) + "┘"
	case y < len(b.lines):
		return "│ " + b.lines[y] + strings.Repeat(" ", inner-cli.Width(b.lines[y])) + " │"
	}
	return "│" + strings.Repeat(" ", inner+2) + "│"
}

// distanceText is the matrix of distances, if it fits.
func distanceText(s *topo.Survey, columns int) []string {
	n := len(s.Nodes)
	if n < 2 || len(s.Distance) != n || 11+5*n > columns {
		return nil
	}
	out := []string{"distances"}
	head := "  from \\ to"
	for _, x := range s.Nodes {
		head += fmt.Sprintf("%4d ", x.ID)
	}
	out = append(out, strings.TrimRight(head, " "))
	for i, row := range s.Distance {
		line := fmt.Sprintf("  node %-4d", s.Nodes[i].ID)
		for j := 0; j < n && j < len(row); j++ {
			line += fmt.Sprintf("%4d ", row[j])
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return out
}

// asciiOf turns the drawing into plain ASCII, a character for a character.
var asciiOf = strings.NewReplacer("┌", "+", "┐", "+", "└", "+", "┘", "+", "─", "-", "│", "|", "■", "#", "□", ".", "▣", "e", "▤", "l", "▥", "o", "▦", "n", "▧", "m",
	"×", "x", "…", "~", "°", " ")
