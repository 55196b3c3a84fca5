package picture

import (
	"fmt"
	"io"
	"strings"

	"ck/internal/humanize"
	"ck/internal/plaintext"
	"ck/internal/topo"
)

// maxDrawn is how many outer boxes are drawn one by one; beyond, alike ones in a row share one.
const maxDrawn = 16

// MachineText draws a machine in characters, at most so many columns wide where words allow it; ascii leaves out what is not ASCII.
func MachineText(w io.Writer, s *topo.Survey, columns int, ascii bool) error {
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
	out := append(plaintext.Wrap(sc.title, columns), plaintext.Wrap(sc.sub, columns)...)
	for _, line := range plaintext.Wrap(strings.Join(sc.common, ", "), columns) {
		if line != "" {
			out = append(out, line)
		}
	}
	out = append(out, flow(boxes, columns)...)
	out = append(out, memoryText(sc.loose, columns)...)
	out = append(out, legend(s, columns)...)
	out = append(out, distanceText(s, columns)...)
	text := string(plaintext.Printable([]byte(strings.Join(out, "\n") + "\n")))
	if ascii {
		text = asciiOf.Replace(text)
	}
	_, err := io.WriteString(w, text)
	return err
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
				switch full := plaintext.Width(line) >= min(32, limit); {
				case full && line != "":
					lines = append(lines, line)
					line = ""
				case k == 0 && line != "" && plaintext.Width(line)+1+len(g.cores) > min(40, limit):
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
		if plaintext.Width(line)+3+plaintext.Width(p) > columns {
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
	w := plaintext.Width(b.title) + 2
	for _, l := range b.lines {
		w = max(w, plaintext.Width(l))
	}
	return w
}

// row is one line of the box: -1 the top, height the bottom.
func (b *textBox) row(y, inner, height int) string {
	switch {
	case y == -1:
		return "┌ " + b.title + " " + strings.Repeat("─", inner-plaintext.Width(b.title)) + "┐"
	case y == height:
		return "└" + strings.Repeat("─", inner+2) + "┘"
	case y < len(b.lines):
		return "│ " + b.lines[y] + strings.Repeat(" ", inner-plaintext.Width(b.lines[y])) + " │"
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
