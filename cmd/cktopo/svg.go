package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ck/internal/cli"
	"ck/internal/humanize"
	"ck/internal/topo"
)

// Sizes in pixels, and colours (Okabe and Ito's, which colour-blind people can tell apart, and light versions of them).
const (
	margin   = 24.0
	pad0     = 10.0 // between a frame and what is in it
	gapPlain = 12.0
	gapLink  = 64.0 // between boxes that a labelled line joins
	lineH    = 16.0
	fontName = "DejaVu Sans, Liberation Sans, Arial, sans-serif"
	ink      = "#222222"
	faint    = "#666666"
)

var (
	coreFill   = []string{"#0072b2", "#56b4e9", "#009e73", "#cc79a7"}
	memoryFill = map[topo.MemoryKind]string{topo.DRAM: "#cfe3f3", topo.HBM: "#f9d9bd", topo.PMEM: "#e6d7f2", topo.CXLm: "#cdebd9",
		topo.GPU: "#f5d0da", topo.None: "#e9e9e9"}
)

// writeSVG writes the picture to the file of --svg.
func (p *program) writeSVG(s *topo.Survey) error {
	f, err := p.app.Create(p.svg, p.force)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(drawSVG(s)); err != nil {
		return cli.OutError(err)
	}
	return f.Commit()
}

// An svg collects the elements of a picture.
type svg struct{ bytes.Buffer }

func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

func (g *svg) rect(x, y, w, h, radius float64, fill, stroke string) {
	fmt.Fprintf(g, `<rect x="%s" y="%s" width="%s" height="%s" rx="%s" fill="%s" stroke="%s"/>`+"\n",
		num(x), num(y), num(w), num(h), num(radius), fill, stroke)
}

// text writes s with its baseline at y; anchor is start, middle or end.
func (g *svg) text(x, y, size float64, anchor, fill, s string) {
	fmt.Fprintf(g, `<text x="%s" y="%s" font-size="%s" text-anchor="%s" fill="%s">`, num(x), num(y), num(size), anchor, fill)
	xml.EscapeText(g, []byte(cli.Escape(s))) // a Buffer takes everything
	g.WriteString("</text>\n")
}

func (g *svg) line(x1, y1, x2, y2 float64) {
	fmt.Fprintf(g, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s" stroke-width="2"/>`+"\n", num(x1), num(y1), num(x2), num(y2), "#888888")
}

// textWidth is about how wide a text is: letters have the widths of DejaVu Sans, which is wider than other fonts, rounded up by kind.
func textWidth(s string, size float64) float64 {
	w := 0.0
	for _, r := range s {
		switch {
		case strings.ContainsRune(" .,:;'|iIjl", r):
			w += 0.34
		case strings.ContainsRune("frt-()[]/", r):
			w += 0.42
		case strings.ContainsRune("mwMW@%×+–…#&=<>", r):
			w += 1
		case r >= 'A' && r <= 'Z':
			w += 0.79
		default:
			w += 0.64
		}
	}
	return w * size
}

// A block is a part of the picture whose size is known before it is drawn. w may be raised: what is in it stretches.
type block struct {
	w, h  float64
	nodes []int // for the links between blocks
	draw  func(g *svg, x, y, w, h float64)
}

// painter draws one survey.
type painter struct {
	s      *topo.Survey
	cell   float64 // width and height of a core
	labels int     // CPU numbers in a core: 0, 1, or 2 for all
}

func drawSVG(s *topo.Survey) []byte {
	sc := makeScene(s)
	outers := alikeSVG(&sc)
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
	w, h := 0.0, margin
	for _, b := range parts {
		w, h = max(w, b.w), h+b.h+margin
	}
	g := &svg{}
	fmt.Fprintf(g, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" font-family="%s">`+"\n",
		num(w+2*margin), num(h), num(w+2*margin), num(h), fontName)
	g.rect(0, 0, w+2*margin, h, 0, "#ffffff", "none")
	y := margin
	for _, b := range parts {
		b.draw(g, margin, y, b.w, b.h)
		y += b.h + margin
	}
	g.WriteString("</svg>\n")
	return g.Bytes()
}

// maxOuterSVG is how many outer boxes are drawn one by one.
const maxOuterSVG = 32

func alikeSVG(sc *scene) []outer {
	if len(sc.outer) <= maxOuterSVG {
		return sc.outer
	}
	return alike(sc.outer)
}

// heading is the machine's name and what it has.
func (p *painter) heading(sc *scene) block {
	lines := append([]string{sc.sub}, cli.Wrap(strings.Join(sc.common, ", "), 120)...)
	b := block{w: textWidth(sc.title, 20), h: 26 + lineH*float64(len(lines))}
	for _, l := range lines {
		b.w = max(b.w, textWidth(l, 12))
	}
	b.draw = func(g *svg, x, y, _, _ float64) {
		g.text(x, y+20, 20, "start", ink, sc.title)
		for i, l := range lines {
			g.text(x, y+24+lineH*float64(i+1), 12, "start", faint, l)
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
	b.draw = func(g *svg, x, y, w, h float64) {
		g.rect(x, y, w, h, 8, "#fafafa", "#555555")
		g.text(x+pad0, y+18, 14, "start", ink, o.title)
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
	return block{w: textWidth(text, 11) + 12, h: 20, draw: func(g *svg, x, y, w, h float64) {
		g.rect(x, y, w, h, 3, fill, "#999999")
		g.text(x+w/2, y+14, 11, "middle", ink, text)
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
	b.draw = func(g *svg, x, y, w, h float64) {
		g.rect(x, y, w, h, 6, "#ffffff", "#888888")
		g.text(x+pad0, y+17, 12, "start", ink, head)
		g.text(x+pad0, y+33, 10, "start", faint, numbers)
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
	b.draw = func(g *svg, x, y, w, h float64) {
		for i, c := range cg.cores {
			p.core(g, c, x+step*float64(i%cols), y+step*float64(i/cols))
		}
		if cg.label != "" {
			g.rect(x, y+h-20, w-2, 16, 2, "#f2efe4", "#999999")
			g.text(x+w/2, y+h-8, 10, "middle", ink, cg.label)
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

func (p *painter) core(g *svg, c drawnCore, x, y float64) {
	fill, color := coreFill[min(c.kind, len(coreFill)-1)], "#ffffff"
	if !c.allowed {
		fill, color = "#ffffff", faint
	}
	g.rect(x, y, p.cell, p.cell, 3, fill, "#555555")
	size := p.cell * 0.3
	switch {
	case p.labels == 0:
	case p.labels == 1 || len(c.cpus) == 1:
		g.text(x+p.cell/2, y+p.cell/2+size*0.4, size*1.15, "middle", color, strconv.Itoa(c.cpus[0]))
	case len(c.cpus) == 2:
		for i, id := range c.cpus {
			g.text(x+p.cell/2, y+p.cell*(0.38+0.4*float64(i)), size, "middle", color, strconv.Itoa(id))
		}
	default:
		g.text(x+p.cell/2, y+p.cell*0.38, size, "middle", color, strconv.Itoa(c.cpus[0]))
		g.text(x+p.cell/2, y+p.cell*0.78, size*0.8, "middle", color, fmt.Sprintf("+%d", len(c.cpus)-1))
	}
}

// memory is a node without CPUs.
func (p *painter) memory(m memoryBox, o *outer) block {
	title, text := fmt.Sprintf("node %d", m.node), m.text()
	if d := p.distanceTo(m.node, o); d != "" {
		title += ", " + d
	}
	return block{w: max(textWidth(title, 11), textWidth(text, 11)) + 16, h: 40, draw: func(g *svg, x, y, w, h float64) {
		g.rect(x, y, w, h, 4, memoryFill[m.kind], "#888888")
		g.text(x+8, y+16, 11, "start", ink, title)
		g.text(x+8, y+32, 11, "start", ink, text)
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

// maxLinked is how many boxes get lines between neighbours.
const maxLinked = 8

// grid sets blocks of one size into rows. Neighbours are joined by a line with their distance, if they are few and it is told.
func (p *painter) grid(blocks []block, aspect float64) block {
	gap := gapPlain
	if n := len(blocks); n > 1 && n <= maxLinked && p.between(blocks[0].nodes, blocks[1].nodes) != "" {
		gap = gapLink
	}
	return p.layOut(blocks, aspect, gap, true)
}

// plainGrid is a grid without lines, as wide as it may be.
func (p *painter) plainGrid(blocks []block, limit float64) block {
	w, _ := largest(blocks)
	cols := max(1, min(len(blocks), int((limit+gapPlain)/(w+gapPlain))))
	rows := (len(blocks) + cols - 1) / max(1, cols)
	cols = (len(blocks) + rows - 1) / max(1, rows) // rows of one length, if that takes no more of them
	return p.inColumns(blocks, cols, gapPlain, true)
}

func largest(blocks []block) (w, h float64) {
	for _, b := range blocks {
		w, h = max(w, b.w), max(h, b.h)
	}
	return w, h
}

// layOut makes rows, which fill the width that they are given if stretch is set. It chooses the number of columns that comes nearest to
// the aspect ratio; a last row with gaps counts against it.
func (p *painter) layOut(blocks []block, aspect, gap float64, stretch bool) block {
	w, h := largest(blocks)
	cols, best := 1, math.Inf(1)
	for c := 1; c <= len(blocks); c++ {
		rows := (len(blocks) + c - 1) / c
		ratio := (float64(c)*(w+gap) - gap) / (float64(rows)*(h+gap) - gap)
		score := math.Abs(math.Log(ratio/aspect)) + 2*float64(c*rows-len(blocks))/float64(c*rows)
		if score < best-1e-9 {
			cols, best = c, score
		}
	}
	return p.inColumns(blocks, cols, gap, stretch)
}

func (p *painter) inColumns(blocks []block, cols int, gap float64, stretch bool) block {
	w, h := largest(blocks)
	rows := (len(blocks) + cols - 1) / cols
	if len(blocks) == 0 {
		return block{draw: func(*svg, float64, float64, float64, float64) {}}
	}
	whole := block{w: float64(cols)*(w+gap) - gap, h: float64(rows)*(h+gap) - gap}
	whole.draw = func(g *svg, x, y, all, _ float64) {
		w := w
		if stretch && all > whole.w {
			w += (all - whole.w) / float64(cols)
		}
		for i, b := range blocks {
			bx, by := x+float64(i%cols)*(w+gap), y+float64(i/cols)*(h+gap)
			if gap == gapLink {
				if i%cols+1 < cols && i+1 < len(blocks) {
					p.link(g, bx+w, by+h/2, bx+w+gap, by+h/2, b, blocks[i+1])
				}
				if i+cols < len(blocks) {
					p.link(g, bx+w/2, by+h, bx+w/2, by+h+gap, b, blocks[i+cols])
				}
			}
			b.draw(g, bx, by, w, h)
		}
	}
	return whole
}

// link is a line between two blocks with the distance between their nodes.
func (p *painter) link(g *svg, x1, y1, x2, y2 float64, a, b block) {
	d := p.between(a.nodes, b.nodes)
	if d == "" {
		return
	}
	g.line(x1, y1, x2, y2)
	w := textWidth(d, 12) + 8
	g.rect((x1+x2)/2-w/2, (y1+y2)/2-9, w, 18, 9, "#ffffff", "#888888")
	g.text((x1+x2)/2, (y1+y2)/2+4, 12, "middle", ink, d)
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
	b.draw = func(g *svg, x, y, _, _ float64) {
		for _, e := range entries {
			g.rect(x, y, 14, 14, 2, e.fill, "#888888")
			g.text(x+20, y+11, 11, "start", ink, e.text)
			x += 20 + textWidth(e.text, 11) + 18
		}
		if tail != "" {
			g.text(x, y+11, 11, "start", faint, tail)
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
	b.draw = func(g *svg, x, y, _, _ float64) {
		g.text(x, y+12, 12, "start", ink, title)
		every := 1
		if n > 24 {
			every = 8
		}
		for i, node := range p.s.Nodes {
			if i%every == 0 {
				g.text(x+head+cw*(float64(i)+0.5), y+38, 11, "middle", faint, strconv.Itoa(node.ID))
				g.text(x+head-8, y+44+ch*(float64(i)+0.5)+4, 11, "end", faint, "node "+strconv.Itoa(node.ID))
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
					g.text(cx+cw/2, cy+15, 11, "middle", ink, strconv.Itoa(d))
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
