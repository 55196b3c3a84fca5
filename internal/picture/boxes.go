package picture

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"

	"ck/internal/cli"
)

// An svgDoc collects the elements of a picture.
type svgDoc struct{ bytes.Buffer }

func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

func (g *svgDoc) rect(x, y, w, h, radius float64, fill, stroke string) {
	fmt.Fprintf(g, `<rect x="%s" y="%s" width="%s" height="%s" rx="%s" fill="%s" stroke="%s"/>`+"\n",
		num(x), num(y), num(w), num(h), num(radius), fill, stroke)
}

// text writes s with its baseline at y; anchor is start, middle or end.
func (g *svgDoc) text(x, y, size float64, anchor, fill, s string) {
	fmt.Fprintf(g, `<text x="%s" y="%s" font-size="%s" text-anchor="%s" fill="%s">`, num(x), num(y), num(size), anchor, fill)
	xml.EscapeText(g, []byte(cli.Escape(s))) // a Buffer takes everything
	g.WriteString("</text>\n")
}

func (g *svgDoc) line(x1, y1, x2, y2 float64) {
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
	draw  func(g *svgDoc, x, y, w, h float64)
}

// maxLinked is how many boxes get lines between neighbours.
const maxLinked = 8

func largest(blocks []block) (w, h float64) {
	for _, b := range blocks {
		w, h = max(w, b.w), max(h, b.h)
	}
	return w, h
}

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
		return block{draw: func(*svgDoc, float64, float64, float64, float64) {}}
	}
	whole := block{w: float64(cols)*(w+gap) - gap, h: float64(rows)*(h+gap) - gap}
	whole.draw = func(g *svgDoc, x, y, all, _ float64) {
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
func (p *painter) link(g *svgDoc, x1, y1, x2, y2 float64, a, b block) {
	d := p.between(a.nodes, b.nodes)
	if d == "" {
		return
	}
	g.line(x1, y1, x2, y2)
	w := textWidth(d, 12) + 8
	g.rect((x1+x2)/2-w/2, (y1+y2)/2-9, w, 18, 9, "#ffffff", "#888888")
	g.text((x1+x2)/2, (y1+y2)/2+4, 12, "middle", inkHex, d)
}
