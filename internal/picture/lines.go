package picture

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Lines is a chart of lines over one pair of axes, with a legend on its right side.
type Lines struct {
	Title, Subtitle string
	XName, YName    string
	LogX, LogY      bool // axis is logarithmic: what is not positive is left out
	FromZero        bool // the y axis begins at 0, if it is not logarithmic
	Lines           []Line
	Levels          []YLevel
}

// Line is points joined in their order. A point with a NaN interrupts it.
type Line struct {
	Name   string
	X, Y   []float64
	Dashed bool // in the colour of the line before
	Dots   bool // points are marked
	Faint  bool // thin and pale; the line behind it has its colour
}

// YLevel is a horizontal line with its name at its right end, in the colour of a line.
type YLevel struct {
	Name string
	Y    float64
	Line int // whose colour it has; -1: grey
}

// hues are the colours of lines, in turn: Okabe and Ito's.
var hues = []color.RGBA{blue, orange, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, ink}

const (
	linesWidth  = 10 * vg.Inch
	linesHeight = 6 * vg.Inch
	linesLegend = 2.4 * vg.Inch
)

// Draw writes the chart.
func (d *Lines) Draw(w io.Writer, format Format) error {
	p := &linesPainter{d: d, x: axis{log: d.LogX, name: d.XName}, y: axis{log: d.LogY, name: d.YName}}
	for _, l := range d.Lines {
		if len(l.X) != len(l.Y) {
			return fmt.Errorf("picture: line %q has %d and %d coordinates", l.Name, len(l.X), len(l.Y))
		}
		for i := range l.X {
			if p.x.has(l.X[i]) && p.y.has(l.Y[i]) {
				p.x.widen(l.X[i])
				p.y.widen(l.Y[i])
			}
		}
	}
	for _, l := range d.Levels {
		if p.y.has(l.Y) {
			p.y.widen(l.Y)
		}
	}
	if !p.x.any || !p.y.any {
		return errors.New("picture: no point of any line can be drawn")
	}
	if d.FromZero && !d.LogY {
		p.y.widen(0)
	}
	p.x.room()
	p.y.room()
	if d.FromZero && !d.LogY && p.y.lo < 0 {
		p.y.lo = 0
	}
	return write(w, format, linesWidth, linesHeight, p.paint)
}

// axis is one axis: its ends and where a value lies between them.
type axis struct {
	name   string
	log    bool
	any    bool
	lo, hi float64
}

func (a *axis) has(v float64) bool { return v-v == 0 && (!a.log || v > 0) }

func (a *axis) widen(v float64) {
	if !a.any {
		a.lo, a.hi, a.any = v, v, true
	}
	a.lo, a.hi = min(a.lo, v), max(a.hi, v)
}

// room leaves some behind the outermost values.
func (a *axis) room() {
	if a.log {
		a.lo, a.hi = a.lo/1.15, a.hi*1.15
		return
	}
	span := a.hi - a.lo
	if span == 0 {
		span = max(math.Abs(a.hi), 1)
	}
	a.lo, a.hi = a.lo-0.04*span, a.hi+0.04*span
}

// at is the place of a value, 0 to 1.
func (a *axis) at(v float64) float64 {
	if a.log {
		return math.Log(v/a.lo) / math.Log(a.hi/a.lo)
	}
	return (v - a.lo) / (a.hi - a.lo)
}

// ticks are the values that have a number, with it.
func (a *axis) ticks() (values []float64, names []string) {
	var all []plot.Tick
	switch {
	case a.log && a.hi/a.lo >= 100:
		for e := math.Ceil(math.Log10(a.lo)); math.Pow(10, e) <= a.hi; e++ {
			values, names = append(values, math.Pow(10, e)), append(names, fmt.Sprintf("%g", math.Pow(10, e)))
		}
		return values, names
	case a.log:
		for e := math.Floor(math.Log10(a.lo)); math.Pow(10, e) <= a.hi; e++ {
			for _, m := range []float64{1, 2, 5} {
				if v := m * math.Pow(10, e); v >= a.lo && v <= a.hi {
					values, names = append(values, v), append(names, fmt.Sprintf("%.3g", v))
				}
			}
		}
		return values, names
	default:
		all = plot.DefaultTicks{}.Ticks(a.lo, a.hi)
	}
	for _, t := range all {
		if t.Label != "" && t.Value >= a.lo && t.Value <= a.hi {
			values, names = append(values, t.Value), append(names, t.Label)
		}
	}
	return values, names
}

type linesPainter struct {
	draw.Canvas
	d    *Lines
	x, y axis
}

func (p *linesPainter) point(x, y float64) vg.Point {
	return vg.Point{X: p.Min.X + vg.Length(p.x.at(x))*(p.Max.X-p.Min.X), Y: p.Min.Y + vg.Length(p.y.at(y))*(p.Max.Y-p.Min.Y)}
}

// paint draws all of it on a white canvas.
func (p *linesPainter) paint(c draw.Canvas) {
	d := p.d
	c.FillText(sans(16), vg.Point{X: c.Min.X + 0.3*vg.Inch, Y: c.Max.Y - 0.4*vg.Inch}, d.Title)
	sub := sans(10)
	sub.Color = grey
	c.FillText(sub, vg.Point{X: c.Min.X + 0.3*vg.Inch, Y: c.Max.Y - 0.62*vg.Inch}, d.Subtitle)
	p.Canvas = draw.Crop(c, 0.95*vg.Inch, -linesLegend, 0.75*vg.Inch, -0.85*vg.Inch)
	p.frame()
	hue, faintBefore := -1, false
	var tints []color.RGBA
	legend := vg.Point{X: p.Max.X + 0.2*vg.Inch, Y: p.Max.Y - 6}
	for _, l := range d.Lines {
		if !l.Dashed && !faintBefore || hue < 0 {
			hue++
		}
		faintBefore = l.Faint
		style := draw.LineStyle{Color: hues[hue%len(hues)], Width: vg.Points(1.4)}
		if l.Dashed {
			style.Dashes, style.Width = []vg.Length{4, 3}, vg.Points(1)
		}
		if l.Faint {
			style.Color, style.Width = paler(hues[hue%len(hues)]), vg.Points(0.7)
		}
		tints = append(tints, hues[hue%len(hues)])
		p.curve(l, style)
		if l.Name != "" {
			p.StrokeLine2(style, legend.X, legend.Y+3, legend.X+18, legend.Y+3)
			p.FillText(sans(9), vg.Point{X: legend.X + 23, Y: legend.Y}, l.Name)
			legend.Y -= 14
		}
	}
	for _, l := range d.Levels {
		if !p.y.has(l.Y) {
			continue
		}
		tint := grey
		if l.Line >= 0 && l.Line < len(tints) {
			tint = tints[l.Line]
		}
		a, b := p.point(p.x.lo, l.Y), p.point(p.x.hi, l.Y)
		p.StrokeLine2(draw.LineStyle{Color: tint, Width: vg.Points(0.8), Dashes: []vg.Length{1.5, 2.5}}, a.X, a.Y, b.X, b.Y)
		s := sans(9)
		s.Color, s.XAlign = tint, draw.XRight
		p.FillText(s, vg.Point{X: b.X - 4, Y: b.Y + 3}, l.Name)
	}
}

// paler is a colour halfway to white.
func paler(c color.RGBA) color.RGBA {
	return color.RGBA{c.R/2 + 0x80, c.G/2 + 0x80, c.B/2 + 0x80, 0xff}
}

// curve draws a line, in pieces where a point has no place.
func (p *linesPainter) curve(l Line, style draw.LineStyle) {
	var piece []vg.Point
	end := func() {
		if len(piece) > 1 {
			p.StrokeLines(style, piece)
		}
		piece = nil
	}
	for i := range l.X {
		if !p.x.has(l.X[i]) || !p.y.has(l.Y[i]) {
			end()
			continue
		}
		at := p.point(l.X[i], l.Y[i])
		piece = append(piece, at)
		if l.Dots {
			p.DrawGlyph(draw.GlyphStyle{Color: style.Color, Radius: 2, Shape: draw.CircleGlyph{}}, at)
		}
	}
	end()
}

// frame draws both axes, a grid at their numbers, and what the axes are.
func (p *linesPainter) frame() {
	grid, label := draw.LineStyle{Color: faint, Width: vg.Points(0.6)}, sans(10)
	values, names := p.x.ticks()
	for i, v := range values {
		q, top := p.point(v, p.y.lo), p.point(v, p.y.hi)
		p.StrokeLine2(grid, q.X, q.Y, top.X, top.Y)
		s := label
		s.XAlign, s.YAlign = draw.XCenter, draw.YTop
		p.FillText(s, vg.Point{X: q.X, Y: q.Y - 5}, names[i])
	}
	values, names = p.y.ticks()
	for i, v := range values {
		q, end := p.point(p.x.lo, v), p.point(p.x.hi, v)
		p.StrokeLine2(grid, q.X, q.Y, end.X, end.Y)
		s := label
		s.XAlign, s.YAlign = draw.XRight, draw.YCenter
		p.FillText(s, vg.Point{X: q.X - 5, Y: q.Y}, names[i])
	}
	edge := draw.LineStyle{Color: grey, Width: vg.Points(0.8)}
	p.StrokeLine2(edge, p.Min.X, p.Min.Y, p.Max.X, p.Min.Y)
	p.StrokeLine2(edge, p.Min.X, p.Min.Y, p.Min.X, p.Max.Y)
	s := sans(11)
	s.XAlign = draw.XCenter
	p.FillText(s, vg.Point{X: (p.Min.X + p.Max.X) / 2, Y: p.Min.Y - 0.45*vg.Inch}, p.x.name)
	s.Rotation = math.Pi / 2
	p.FillText(s, vg.Point{X: p.Min.X - 0.65*vg.Inch, Y: (p.Min.Y + p.Max.Y) / 2}, p.y.name)
}
