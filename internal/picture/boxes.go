package picture

import (
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"ck/internal/plaintext"
)

// A sheet is a canvas for boxes. Places and sizes are in points, from the upper left corner.
type sheet struct {
	draw.Canvas
	height float64
}

func (g *sheet) at(x, y float64) vg.Point {
	return vg.Point{X: vg.Length(x), Y: vg.Length(g.height - y)}
}

// tint is the colour #rrggbb.
func tint(hex string) color.RGBA {
	v, err := strconv.ParseUint(hex[1:], 16, 24)
	if err != nil {
		panic(err) // colours are constants
	}
	return color.RGBA{byte(v >> 16), byte(v >> 8), byte(v), 0xff}
}

// rect draws a rectangle with rounded corners.
func (g *sheet) rect(x, y, w, h, radius float64, fill, stroke string) {
	var path vg.Path
	if radius == 0 {
		path = vg.Rectangle{Min: g.at(x, y+h), Max: g.at(x+w, y)}.Path()
	} else {
		path.Move(g.at(x+radius, y))
		for i, corner := range [4][2]float64{{x + w - radius, y + radius}, {x + w - radius, y + h - radius}, {x + radius, y + h - radius}, {x + radius, y + radius}} {
			path.Arc(g.at(corner[0], corner[1]), vg.Length(radius), math.Pi/2*float64(1-i), -math.Pi/2)
		}
		path.Close()
	}
	g.SetColor(tint(fill))
	g.Fill(path)
	g.SetColor(tint(stroke))
	g.SetLineWidth(1)
	g.Stroke(path)
}

// text writes s with its baseline at y; x is its left end, its middle or its right end as align is 0, 0.5 or 1.
func (g *sheet) text(x, y, size, align float64, fill, s string) {
	s = plaintext.Escape(s)
	g.SetColor(tint(fill))
	g.FillString(face(size), g.at(x-align*textWidth(s, size), y), s)
}

func (g *sheet) line(x1, y1, x2, y2 float64) {
	g.StrokeLine2(draw.LineStyle{Color: grey, Width: 2}, g.at(x1, y1).X, g.at(x1, y1).Y, g.at(x2, y2).X, g.at(x2, y2).Y)
}

// textWidth is how wide a text is.
func textWidth(s string, size float64) float64 {
	f := face(size)
	return float64(f.Width(s))
}

// face is the house's font in a size.
func face(size float64) font.Face {
	f := sans(vg.Length(size)).Font
	return plot.DefaultTextHandler.Cache().Lookup(f, f.Size)
}

// A block is a part of the picture whose size is known before it is drawn. w may be raised: what is in it stretches.
type block struct {
	w, h  float64
	nodes []int // for the links between blocks
	draw  func(g *sheet, x, y, w, h float64)
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
		return block{draw: func(*sheet, float64, float64, float64, float64) {}}
	}
	whole := block{w: float64(cols)*(w+gap) - gap, h: float64(rows)*(h+gap) - gap}
	whole.draw = func(g *sheet, x, y, all, _ float64) {
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
func (p *painter) link(g *sheet, x1, y1, x2, y2 float64, a, b block) {
	d := p.between(a.nodes, b.nodes)
	if d == "" {
		return
	}
	g.line(x1, y1, x2, y2)
	w := textWidth(d, 12) + 8
	g.rect((x1+x2)/2-w/2, (y1+y2)/2-9, w, 18, 9, "#ffffff", "#888888")
	g.text((x1+x2)/2, (y1+y2)/2+4, 12, middle, inkHex, d)
}
