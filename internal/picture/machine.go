package picture

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"ck/internal/humanize"
	"ck/internal/plaintext"
	"ck/internal/topo"
)

// Sizes in points, and colours (Okabe and Ito's, which colour-blind people can tell apart, and light versions of them).
const (
	margin   = 24.0
	pad0     = 10.0 // between a frame and what is in it
	gapPlain = 12.0
	gapLink  = 64.0 // between boxes that a labelled line joins
	lineH    = 16.0
	inkHex   = "#222222"
	faintHex = "#666666"

	start, middle, end = 0, 0.5, 1 // of a text
)

var (
	coreFill   = []string{"#0072b2", "#56b4e9", "#009e73", "#cc79a7"}
	memoryFill = map[topo.MemoryKind]string{topo.DRAM: "#cfe3f3", topo.HBM: "#f9d9bd", topo.PMEM: "#e6d7f2", topo.CXLm: "#cdebd9",
		topo.GPU: "#f5d0da", topo.None: "#e9e9e9"}
)

// painter draws one survey.
type painter struct {
	s      *topo.Survey
	cell   float64 // width and height of a core
	labels int     // CPU numbers in a core: 0, 1, or 2 for all
}

// Machine draws a machine: packages, nodes, cores, caches, memory, the distances between nodes.
func Machine(w io.Writer, format Format, s *topo.Survey) error {
	sc := makeScene(s)
	outers := fewOuters(&sc)
	cores := 0
	for _, o := range outers {
		for _, l := range o.leaves {
			cores += l.cores
		}
	}
	p := &painter{s: s, cell: 34, labels: 2}
	switch {
	case cores > 512:
		p.cell, p.labels = 10, 0
	case cores > 160:
		p.cell, p.labels = 20, 1
	}
	var blocks []block
	for i := range outers {
		blocks = append(blocks, p.outer(&outers[i]))
	}
	body := p.grid(blocks, 1.5)
	parts := []block{p.heading(&sc), body}
	if len(sc.loose) > 0 {
		var loose []block
		for _, m := range sc.loose {
			loose = append(loose, p.memory(m, nil))
		}
		parts = append(parts, p.plainGrid(loose, body.w))
	}
	parts = append(parts, p.legend(&sc))
	if m := p.matrix(); m.w > 0 {
		parts = append(parts, m)
	}
	wide, high := 0.0, margin
	for _, b := range parts {
		wide, high = max(wide, b.w), high+b.h+margin
	}
	return write(w, format, vg.Length(wide+2*margin), vg.Length(high), func(c draw.Canvas) {
		g := &sheet{c, high}
		y := margin
		for _, b := range parts {
			b.draw(g, margin, y, b.w, b.h)
			y += b.h + margin
		}
	})
}

// maxOuter is how many outer boxes are drawn one by one.
const maxOuter = 32

func fewOuters(sc *scene) []outer {
	if len(sc.outer) <= maxOuter {
		return sc.outer
	}
	return alike(sc.outer)
}

// heading is the machine's name and what it has.
func (p *painter) heading(sc *scene) block {
	lines := append([]string{sc.sub}, plaintext.Wrap(strings.Join(sc.common, ", "), 120)...)
	b := block{w: textWidth(sc.title, 20), h: 26 + lineH*float64(len(lines))}
	for _, l := range lines {
		b.w = max(b.w, textWidth(l, 12))
	}
	b.draw = func(g *sheet, x, y, _, _ float64) {
		g.text(x, y+20, 20, start, inkHex, sc.title)
		for i, l := range lines {
			g.text(x, y+24+lineH*float64(i+1), 12, start, faintHex, l)
		}
	}
	return b
}

// outer is a package with its nodes, or a node with its packages.
func (p *painter) outer(o *outer) block {
	var leaves []block
	for i := range o.leaves {
		leaves = append(leaves, p.leaf(&o.leaves[i]))
	}
	in := p.grid(leaves, 1.6)
	parts := []block{in}
	for _, n := range o.notes {
		parts = append(parts, strip(n, "#f2efe4"))
	}
	if o.node >= 0 {
		for _, m := range o.memory {
			parts = append(parts, strip(m.text(), memoryFill[m.kind]))
		}
	} else if len(o.memory) > 0 {
		var boxes []block
		for _, m := range o.memory {
			boxes = append(boxes, p.memory(m, o))
		}
		parts = append(parts, p.plainGrid(boxes, max(in.w, boxes[0].w)))
	}
	b := block{w: textWidth(o.title, 14), h: 26}
	for _, l := range o.leaves {
		b.nodes = append(b.nodes, l.node)
	}
	for _, part := range parts {
		b.w, b.h = max(b.w, part.w), b.h+part.h+pad0
	}
	b.w += 2 * pad0
	b.draw = func(g *sheet, x, y, w, h float64) {
		g.rect(x, y, w, h, 8, "#fafafa", "#555555")
		g.text(x+pad0, y+18, 14, start, inkHex, o.title)
		at := y + 26
		for _, part := range parts {
			part.draw(g, x+pad0, at, w-2*pad0, part.h)
			at += part.h + pad0
		}
	}
	return b
}

// strip is a bar with a text: a cache or the memory of all that stands above.
func strip(text, fill string) block {
	return block{w: textWidth(text, 11) + 12, h: 20, draw: func(g *sheet, x, y, w, h float64) {
		g.rect(x, y, w, h, 3, fill, "#999999")
		g.text(x+w/2, y+14, 11, middle, inkHex, text)
	}}
}

// leaf is a node: memory, then groups of cores.
func (p *painter) leaf(l *leaf) block {
	var groups []block
	for _, g := range l.groups {
		groups = append(groups, p.group(g))
	}
	in := p.layOut(groups, 1.8, gapPlain, false)
	head := l.title + ": " + humanize.Plural(l.cores, "core")
	if len(l.cpus) > l.cores {
		head += fmt.Sprintf(", %d CPUs", len(l.cpus))
	}
	numbers := humanize.ShortList(l.cpus, 34)
	b := block{w: max(in.w, textWidth(head, 12), textWidth(numbers, 10)) + 2*pad0, h: 44 + in.h + pad0, nodes: []int{l.node}}
	memory := ""
	if l.memory != nil {
		memory = l.memory.text()
		b.w = max(b.w, textWidth(memory, 11)+2*pad0+12)
		b.h += 28
	}
	b.draw = func(g *sheet, x, y, w, h float64) {
		g.rect(x, y, w, h, 6, "#ffffff", "#888888")
		g.text(x+pad0, y+17, 12, start, inkHex, head)
		g.text(x+pad0, y+33, 10, start, faintHex, numbers)
		at := y + 42
		in.draw(g, x+pad0, at, w-2*pad0, in.h)
		if memory != "" {
			strip(memory, memoryFill[l.memory.kind]).draw(g, x+pad0, y+h-28, w-2*pad0, 20)
		}
	}
	return b
}

// group is cores in a grid, above the cache that they share.
func (p *painter) group(cg coreGroup) block {
	n := len(cg.cores)
	cols := columnsFor(n)
	rows := (n + cols - 1) / cols
	step := p.cell + max(2, p.cell/10)
	b := block{w: step * float64(cols), h: step * float64(rows)}
	if cg.label != "" {
		b.h += 22
		b.w = max(b.w, textWidth(cg.label, 10)+8)
	}
	b.draw = func(g *sheet, x, y, w, h float64) {
		for i, c := range cg.cores {
			p.core(g, c, x+step*float64(i%cols), y+step*float64(i/cols))
		}
		if cg.label != "" {
			g.rect(x, y+h-20, w-2, 16, 2, "#f2efe4", "#999999")
			g.text(x+w/2, y+h-8, 10, middle, inkHex, cg.label)
		}
	}
	return b
}

// columnsFor finds a number of columns that leaves no gap in the last row, about twice the rows.
func columnsFor(n int) int {
	best := int(math.Ceil(math.Sqrt(2 * float64(n))))
	for c := best; c <= n && c <= best+4; c++ {
		if n%c == 0 {
			return c
		}
	}
	return max(1, best)
}

func (p *painter) core(g *sheet, c drawnCore, x, y float64) {
	fill, color := coreFill[min(c.kind, len(coreFill)-1)], "#ffffff"
	if !c.allowed {
		fill, color = "#ffffff", faintHex
	}
	g.rect(x, y, p.cell, p.cell, 3, fill, "#555555")
	size := p.cell * 0.3
	switch {
	case p.labels == 0:
	case p.labels == 1 || len(c.cpus) == 1:
		g.text(x+p.cell/2, y+p.cell/2+size*0.4, size*1.15, middle, color, strconv.Itoa(c.cpus[0]))
	case len(c.cpus) == 2:
		for i, id := range c.cpus {
			g.text(x+p.cell/2, y+p.cell*(0.38+0.4*float64(i)), size, middle, color, strconv.Itoa(id))
		}
	default:
		g.text(x+p.cell/2, y+p.cell*0.38, size, middle, color, strconv.Itoa(c.cpus[0]))
		g.text(x+p.cell/2, y+p.cell*0.78, size*0.8, middle, color, fmt.Sprintf("+%d", len(c.cpus)-1))
	}
}

// memory is a node without CPUs.
func (p *painter) memory(m memoryBox, o *outer) block {
	title, text := fmt.Sprintf("node %d", m.node), m.text()
	if d := p.distanceTo(m.node, o); d != "" {
		title += ", " + d
	}
	return block{w: max(textWidth(title, 11), textWidth(text, 11)) + 16, h: 40, draw: func(g *sheet, x, y, w, h float64) {
		g.rect(x, y, w, h, 4, memoryFill[m.kind], "#888888")
		g.text(x+8, y+16, 11, start, inkHex, title)
		g.text(x+8, y+32, 11, start, inkHex, text)
	}}
}

// distance is that between two nodes by number; 0 if it is not told.
func (p *painter) distance(from, to int) int {
	i := slices.IndexFunc(p.s.Nodes, func(n topo.Node) bool { return n.ID == from })
	j := slices.IndexFunc(p.s.Nodes, func(n topo.Node) bool { return n.ID == to })
	if i < 0 || j < 0 || i >= len(p.s.Distance) || j >= len(p.s.Distance[i]) {
		return 0
	}
	return p.s.Distance[i][j]
}

// distanceTo says from which node with CPUs, of the package or of all, a node is nearest: "21 from node 3".
func (p *painter) distanceTo(node int, o *outer) string {
	var from []int
	if o != nil {
		for _, l := range o.leaves {
			from = append(from, l.node)
		}
	} else {
		for _, n := range p.s.Nodes {
			if len(n.CPUs) > 0 {
				from = append(from, n.ID)
			}
		}
	}
	near, best := 0, 0
	for _, n := range from {
		if d := p.distance(n, node); d > 0 && (best == 0 || d < best) {
			near, best = n, d
		}
	}
	if best == 0 {
		return ""
	}
	return fmt.Sprintf("%d from node %d", best, near)
}

// between is the range of distances between two sets of nodes; "" if none is told.
func (p *painter) between(a, b []int) string {
	lo, hi := 0, 0
	for _, i := range a {
		for _, j := range b {
			if d := p.distance(i, j); d > 0 && i != j {
				if lo == 0 || d < lo {
					lo = d
				}
				hi = max(hi, d)
			}
		}
	}
	switch {
	case lo == 0:
		return ""
	case lo == hi:
		return strconv.Itoa(lo)
	}
	return fmt.Sprintf("%d–%d", lo, hi)
}

// legend says what colours mean.
func (p *painter) legend(sc *scene) block {
	type entry struct{ fill, text string }
	entries := []entry{{coreFill[0], p.coreText()}}
	if len(p.s.Kinds) > 1 {
		entries = nil
		for i, k := range p.s.Kinds {
			entries = append(entries, entry{coreFill[min(i, len(coreFill)-1)], k.Name})
		}
	}
	if len(p.s.Affinity) < len(p.s.CPUs) {
		entries = append(entries, entry{"#ffffff", "not allowed to this process"})
	}
	seen := map[topo.MemoryKind]bool{}
	for i, n := range p.s.Nodes {
		if n.MemTotal > 0 && i < len(p.s.Memory) {
			seen[p.s.Memory[i].Kind] = true
		}
	}
	for _, k := range []topo.MemoryKind{topo.DRAM, topo.HBM, topo.PMEM, topo.CXLm, topo.GPU} {
		if seen[k] {
			entries = append(entries, entry{memoryFill[k], string(k)})
		}
	}
	if seen[topo.None] {
		entries = append(entries, entry{memoryFill[topo.None], "memory of a kind that is not told"})
	}
	if sc.sharesCaches() {
		entries = append(entries, entry{"#f2efe4", "shared cache"})
	}
	tail := ""
	if len(p.s.Offline) > 0 {
		tail = humanize.Plural(len(p.s.Offline), "CPU") + " offline, not drawn"
	}
	b := block{h: 16, w: textWidth(tail, 11)}
	for _, e := range entries {
		b.w += 14 + 6 + textWidth(e.text, 11) + 18
	}
	b.draw = func(g *sheet, x, y, _, _ float64) {
		for _, e := range entries {
			g.rect(x, y, 14, 14, 2, e.fill, "#888888")
			g.text(x+20, y+11, 11, start, inkHex, e.text)
			x += 20 + textWidth(e.text, 11) + 18
		}
		if tail != "" {
			g.text(x, y+11, 11, start, faintHex, tail)
		}
	}
	return b
}

// coreText says what the numbers in a core are.
func (p *painter) coreText() string {
	switch {
	case p.labels == 0:
		return "core"
	case p.s.SMT < 2:
		return "core, with the number of its CPU"
	case p.labels == 1:
		return "core, with the number of its first CPU"
	case p.s.SMT == 2:
		return "core, with the numbers of its CPUs"
	}
	return "core, with the number of its first CPU and of how many more"
}

// sharesCaches reports whether a cache is drawn.
func (sc *scene) sharesCaches() bool {
	for _, o := range sc.outer {
		if len(o.notes) > 0 || slices.ContainsFunc(o.leaves, func(l leaf) bool {
			return slices.ContainsFunc(l.groups, func(g coreGroup) bool { return g.label != "" })
		}) {
			return true
		}
	}
	return false
}

// matrix is the table of distances, darker where it is farther. Up to 24 nodes have numbers.
func (p *painter) matrix() block {
	n := len(p.s.Nodes)
	if n < 2 || len(p.s.Distance) != n || n > 128 {
		return block{}
	}
	cw, ch := 34.0, 22.0
	if n > 24 {
		cw, ch = 10, 10
	}
	lo, hi := math.MaxInt, 0
	for _, row := range p.s.Distance {
		for _, d := range row {
			lo, hi = min(lo, d), max(hi, d)
		}
	}
	const head = 64
	title := "distances from (row) to (column) node"
	if n > 24 {
		title += fmt.Sprintf(", %d to %d", lo, hi)
	}
	b := block{w: max(head+cw*float64(n), textWidth(title, 12)), h: 48 + ch*float64(n)}
	b.draw = func(g *sheet, x, y, _, _ float64) {
		g.text(x, y+12, 12, start, inkHex, title)
		every := 1
		if n > 24 {
			every = 8
		}
		for i, node := range p.s.Nodes {
			if i%every == 0 {
				g.text(x+head+cw*(float64(i)+0.5), y+38, 11, middle, faintHex, strconv.Itoa(node.ID))
				g.text(x+head-8, y+44+ch*(float64(i)+0.5)+4, 11, end, faintHex, "node "+strconv.Itoa(node.ID))
			}
			for j := 0; j < n && j < len(p.s.Distance[i]); j++ {
				d := p.s.Distance[i][j]
				share := 0.0
				if hi > lo {
					share = math.Sqrt(float64(d-lo) / float64(hi-lo))
				}
				cx, cy := x+head+cw*float64(j), y+44+ch*float64(i)
				g.rect(cx, cy, cw, ch, 0, shade(share), "#dddddd")
				if n <= 24 {
					g.text(cx+cw/2, cy+15, 11, middle, inkHex, strconv.Itoa(d))
				}
			}
		}
	}
	return b
}

// shade runs from white to orange.
func shade(share float64) string {
	mix := func(to int) int { return 255 + int(share*float64(to-255)) }
	return fmt.Sprintf("#%02x%02x%02x", mix(0xe6), mix(0x9f), mix(0x40))
}
