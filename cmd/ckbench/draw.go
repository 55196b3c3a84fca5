package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"ck/internal/cli"
	"ck/internal/measure"
)

// The picture's size and colours (Okabe and Ito's, which colour-blind people can tell apart).
const (
	pictureWidth  = 13 * vg.Inch
	pictureHeight = 7.3 * vg.Inch
	legendWidth   = 4.1 * vg.Inch
	picturePPI    = 150
)

var (
	ink    = color.RGBA{0x22, 0x22, 0x22, 0xff}
	faint  = color.RGBA{0xe6, 0xe6, 0xe6, 0xff}
	grey   = color.RGBA{0x88, 0x88, 0x88, 0xff}
	orange = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
)

func sans(size vg.Length) text.Style {
	return text.Style{Color: ink, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}, Handler: plot.DefaultTextHandler}
}

// roofPicture is a roofline on a canvas: x is operations per byte, y GOP/s, both logarithmic.
type roofPicture struct {
	d              *rooflineDoc
	c              draw.Canvas // of the axes
	x0, x1, y0, y1 float64
	threads        int
	top            float64 // the best peak

	discs  []stepDisc
	labels []label // of the discs
	texts  [][]box // at the roofs and in the corner
	taken  []box   // by them
	lines  [][2]point
	within box // where words may stand
}

// stepDisc is a step in the picture.
type stepDisc struct {
	circle
	number int
	tint   color.Color
}

// draw writes the picture as svg or png.
func (d *rooflineDoc) draw(w io.Writer, format string) error {
	var canvas vg.CanvasWriterTo
	if format == "png" {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(pictureWidth, pictureHeight), vgimg.UseDPI(picturePPI), vgimg.UseBackgroundColor(color.White))}
	} else {
		canvas = vgsvg.NewWith(vgsvg.UseWH(pictureWidth, pictureHeight), vgsvg.EmbedFonts(true))
	}
	d.paint(draw.New(canvas))
	_, err := canvas.WriteTo(w)
	return err
}

// paint draws all of it.
func (d *rooflineDoc) paint(c draw.Canvas) *roofPicture {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	p := &roofPicture{d: d}
	for _, b := range d.Bandwidth {
		p.threads = max(p.threads, b.Threads)
	}
	for _, k := range []string{measure.Int8, measure.BF16, measure.F32} {
		p.top = max(p.top, d.peak(k, p.threads))
	}
	p.x0, p.x1, p.y1 = 0.25, 4096, p.top*2.2
	p.y0 = p.top / 2000
	for _, s := range d.Steps {
		p.x0, p.x1 = min(p.x0, s.Intensity/2), max(p.x1, s.Intensity*4)
		p.y0 = min(p.y0, s.GOPs/2)
	}
	title := "Roofline"
	if d.Model != "" {
		title = cli.Escape(d.Model) + " under the roofs of this machine"
	}
	head := sans(16)
	c.FillText(head, vg.Point{X: c.Min.X + 0.65*vg.Inch, Y: c.Max.Y - 0.45*vg.Inch}, title)
	sub := sans(10)
	sub.Color = grey
	c.FillText(sub, vg.Point{X: c.Min.X + 0.65*vg.Inch, Y: c.Max.Y - 0.66*vg.Inch},
		strings.TrimSuffix(fmt.Sprintf("%s, %d threads; %s", cli.Escape(d.Host.CPU), p.threads, strings.Join(d.Tests, ", ")), "; "))
	right := vg.Length(legendWidth)
	if len(d.Tests) == 0 { // no model: no legend of steps
		right = 0.3 * vg.Inch
	}
	p.c = draw.Crop(c, 0.8*vg.Inch, -right, 0.7*vg.Inch, -0.85*vg.Inch)
	const rim = 3
	p.within = box{float64(p.c.Min.X) + rim, float64(p.c.Min.Y) + rim, float64(p.c.Max.X) - rim, float64(p.c.Max.Y) + 12}
	p.axes()
	p.findDiscs()
	p.roofs()
	p.drawDiscs()
	p.list(draw.Crop(c, pictureWidth-legendWidth+0.25*vg.Inch, -0.2*vg.Inch, 0.5*vg.Inch, -0.85*vg.Inch))
	return p
}

// at is the place of a point.
func (p *roofPicture) at(x, y float64) vg.Point {
	fx := math.Log(x/p.x0) / math.Log(p.x1/p.x0)
	fy := math.Log(y/p.y0) / math.Log(p.y1/p.y0)
	return vg.Point{X: p.c.Min.X + vg.Length(fx)*(p.c.Max.X-p.c.Min.X), Y: p.c.Min.Y + vg.Length(fy)*(p.c.Max.Y-p.c.Min.Y)}
}

// roof draws a line that words avoid.
func (p *roofPicture) roof(s draw.LineStyle, a, b vg.Point) {
	p.lines = append(p.lines, [2]point{{float64(a.X), float64(a.Y)}, {float64(b.X), float64(b.Y)}})
	p.line(s, a, b)
}

func (p *roofPicture) line(s draw.LineStyle, a, b vg.Point) { p.c.StrokeLine2(s, a.X, a.Y, b.X, b.Y) }

// axes draws decades with their numbers.
func (p *roofPicture) axes() {
	grid := draw.LineStyle{Color: faint, Width: vg.Points(0.6)}
	label := sans(10)
	for e := math.Ceil(math.Log10(p.x0)); math.Pow(10, e) <= p.x1; e++ {
		x := math.Pow(10, e)
		p.line(grid, p.at(x, p.y0), p.at(x, p.y1))
		s := label
		s.XAlign, s.YAlign = draw.XCenter, draw.YTop
		q := p.at(x, p.y0)
		p.c.FillText(s, vg.Point{X: q.X, Y: q.Y - 5}, plainNumber(x))
	}
	for e := math.Ceil(math.Log10(p.y0)); math.Pow(10, e) <= p.y1; e++ {
		y := math.Pow(10, e)
		p.line(grid, p.at(p.x0, y), p.at(p.x1, y))
		s := label
		s.XAlign, s.YAlign = draw.XRight, draw.YCenter
		q := p.at(p.x0, y)
		p.c.FillText(s, vg.Point{X: q.X - 5, Y: q.Y}, plainNumber(y))
	}
	frame := draw.LineStyle{Color: grey, Width: vg.Points(0.8)}
	p.line(frame, p.at(p.x0, p.y0), p.at(p.x1, p.y0))
	p.line(frame, p.at(p.x0, p.y0), p.at(p.x0, p.y1))
	s := sans(11)
	s.XAlign = draw.XCenter
	p.c.FillText(s, vg.Point{X: (p.c.Min.X + p.c.Max.X) / 2, Y: p.c.Min.Y - 0.45*vg.Inch}, "operations per byte of weights and KV cache")
	s.Rotation = math.Pi / 2
	p.c.FillText(s, vg.Point{X: p.c.Min.X - 0.5*vg.Inch, Y: (p.c.Min.Y + p.c.Max.Y) / 2}, "GOP/s")
}

func plainNumber(v float64) string {
	if v >= 1 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%g", v)
}

// roofs draws the slopes of the memory levels and the ceilings of the arithmetic.
func (p *roofPicture) roofs() {
	d := p.d
	slope := func(level string, n int, style draw.LineStyle, text string, place float64) {
		bw := d.read(level, n)
		if bw == 0 {
			return
		}
		x, top := p.x0, p.top
		if n != p.threads {
			top = 0
			for _, k := range []string{measure.Int8, measure.BF16, measure.F32} {
				top = max(top, d.peak(k, n))
			}
		}
		if bw*x < p.y0 {
			x = p.y0 / bw
		}
		a, b := p.at(x, bw*x), p.at(top/bw, top)
		p.roof(style, a, b)
		if n != p.threads { // its ceiling, faint
			p.roof(style, b, p.at(p.x1, top))
		}
		if text != "" {
			p.along(a, b, text, style.Color, place, 1)
		}
	}
	thin := draw.LineStyle{Color: color.RGBA{0xb4, 0xb4, 0xb4, 0xff}, Width: vg.Points(1)}
	corner := p.at(p.x1, p.y0)
	say := func(text string) { // in the corner, above what stands there
		s := sans(9)
		s.Color, s.XAlign, s.YAlign = grey, draw.XRight, draw.YBottom
		corner.Y += 4
		p.c.FillText(s, vg.Point{X: corner.X - 4, Y: corner.Y}, text)
		x, y, h := float64(corner.X)-4, float64(corner.Y), float64(s.Height(text))
		p.take([]box{{x - float64(s.Width(text)), y, x, y + h}})
		corner.Y += vg.Length(h)
	}
	for i, l := range []string{"L1", "L2", "L3"} { // their labels are staggered, since levels can be almost equally fast
		slope(l, p.threads, thin, fmt.Sprintf("%s %s GB/s", l, threeDigits(d.read(l, p.threads))), []float64{0.75, 0.3, 0.5}[i])
	}
	for _, b := range d.Bandwidth {
		if b.Threads == p.threads && b.SlowerThan != "" && d.read(b.Level, b.Threads) == 0 {
			say(fmt.Sprintf("%s is not drawn: it was slower than %s", b.Level, b.SlowerThan))
		}
	}
	if p.threads > 1 {
		dashed := draw.LineStyle{Color: thin.Color, Width: vg.Points(1), Dashes: []vg.Length{4, 3}}
		slope(measure.DRAM, 1, dashed, "", 0.5)
		say("dashed: one thread")
	}
	slope(measure.DRAM, p.threads, draw.LineStyle{Color: ink, Width: vg.Points(2.2)}, fmt.Sprintf("DRAM %s GB/s", threeDigits(d.read(measure.DRAM, p.threads))), 0.3)
	dram := d.read(measure.DRAM, p.threads)
	names := map[float64]string{} // kinds that one instruction serves share a line
	var peaks []float64
	for _, k := range []struct{ kind, name string }{{measure.Int8, "INT8"}, {measure.BF16, "BF16"}, {measure.F32, "F32"}} {
		peak := d.peak(k.kind, p.threads)
		switch {
		case peak == 0:
		case names[peak] != "":
			names[peak] += ", " + k.name
		default:
			names[peak] = k.name
			peaks = append(peaks, peak)
		}
	}
	for i, peak := range peaks {
		p.roof(draw.LineStyle{Color: ink, Width: vg.Points(2.2)}, p.at(peak/dram, peak), p.at(p.x1, peak))
		side := 1.0
		if i > 0 && p.at(p.x1, peaks[i-1]).Y-p.at(p.x1, peak).Y < 16 { // there is no room between two lines
			side = -1
		}
		p.along(p.at(peak/dram, peak), p.at(p.x1, peak), fmt.Sprintf("%s %s GOP/s", names[peak], threeDigits(peak)), ink, 0.3, side)
	}
}

// along writes text above a line (side 1) or below it (-1), where nothing else stands, as near to a share of its length as that goes.
func (p *roofPicture) along(a, b vg.Point, text string, tint color.Color, share, side float64) {
	s := sans(9.5)
	s.Color, s.XAlign, s.YAlign = tint, draw.XCenter, draw.YCenter
	s.Rotation = math.Atan2(float64(b.Y-a.Y), float64(b.X-a.X))
	size := point{float64(s.Width(text)) + 4, float64(s.Height(text))}
	if l := math.Hypot(float64(b.X-a.X), float64(b.Y-a.Y)); l > 0 {
		share = min(max(share, (size.x/2+1)/l), 1-(size.x/2+1)/l)
	}
	at, boxes, ok := placeAlong(point{float64(a.X), float64(a.Y)}, point{float64(b.X), float64(b.Y)}, size, share, side, p.circles(), p.taken, p.within)
	if !ok {
		return // the table has the number
	}
	p.take(boxes)
	p.c.FillText(s, vg.Point{X: vg.Length(at.x), Y: vg.Length(at.y)}, text)
}

// take notes where a text stands.
func (p *roofPicture) take(boxes []box) {
	p.texts, p.taken = append(p.texts, boxes), append(p.taken, boxes...)
}

func (p *roofPicture) circles() []circle {
	var out []circle
	for _, d := range p.discs {
		out = append(out, d.circle)
	}
	return out
}

// threeDigits is a number with three significant digits, never with an exponent.
func threeDigits(v float64) string {
	switch {
	case v >= 100:
		scale := math.Pow(10, math.Floor(math.Log10(v))-2)
		return fmt.Sprintf("%.0f", math.Round(v/scale)*scale)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

var phaseColors = []color.Color{orange, blue}

// phaseSteps are the steps of a phase, the longest first: step k has the number k+1.
func (d *rooflineDoc) phaseSteps(phase string) []placed {
	var list []placed
	for _, s := range d.Steps {
		if s.Phase == phase {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b placed) int { return compareFloats(b.Share, a.Share) })
	return list
}

// findDiscs makes a numbered disc for each step, its area the share of the phase's time.
func (p *roofPicture) findDiscs() {
	for ph, other := range p.d.OtherTime {
		for i, s := range p.d.phaseSteps(other.Phase) {
			at := p.at(s.Intensity, s.GOPs)
			p.discs = append(p.discs, stepDisc{circle{point{float64(at.X), float64(at.Y)}, 3.2 + 13*math.Sqrt(s.Share)}, i + 1, phaseColors[ph%len(phaseColors)]})
		}
	}
}

// drawDiscs draws the steps and their numbers beside them.
func (p *roofPicture) drawDiscs() {
	s := sans(9)
	s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	var sizes []point
	for _, d := range p.discs {
		at, r := vg.Point{X: vg.Length(d.x), Y: vg.Length(d.y)}, vg.Length(d.r)
		r0, g0, b0, _ := d.tint.RGBA()
		p.c.SetColor(color.NRGBA{uint8(r0 >> 8), uint8(g0 >> 8), uint8(b0 >> 8), 0x60})
		var disc vg.Path
		disc.Move(vg.Point{X: at.X + r, Y: at.Y})
		disc.Arc(at, r, 0, 2*math.Pi)
		disc.Close()
		p.c.Fill(disc)
		p.c.SetColor(d.tint)
		p.c.SetLineWidth(vg.Points(1))
		p.c.Stroke(disc)
		text := fmt.Sprint(d.number)
		sizes = append(sizes, point{float64(s.Width(text)) + 1, float64(s.Height(text))})
	}
	p.labels = placeLabels(p.circles(), sizes, p.taken, p.lines, p.within)
	for i, l := range p.labels {
		if !l.ok {
			continue // the list beside the picture has the step
		}
		if l.from != l.to {
			p.line(draw.LineStyle{Color: p.discs[i].tint, Width: vg.Points(0.5)}, vg.Point{X: vg.Length(l.from.x), Y: vg.Length(l.from.y)},
				vg.Point{X: vg.Length(l.to.x), Y: vg.Length(l.to.y)})
		}
		s.Color = p.discs[i].tint
		at := l.centre()
		p.c.FillText(s, vg.Point{X: vg.Length(at.x), Y: vg.Length(at.y)}, fmt.Sprint(p.discs[i].number))
	}
}

// list writes the numbers' meaning beside the picture.
func (p *roofPicture) list(side draw.Canvas) {
	y := side.Max.Y
	for ph, other := range p.d.OtherTime {
		list, tint := p.d.phaseSteps(other.Phase), phaseColors[ph%len(phaseColors)]
		head := sans(12)
		head.Color = tint
		head.YAlign = draw.YTop
		side.FillText(head, vg.Point{X: side.Min.X, Y: y}, other.Phase)
		small := sans(9)
		small.Color, small.YAlign, small.XAlign = grey, draw.YTop, draw.XRight
		right := [2]vg.Length{side.Min.X + 2.6*vg.Inch, side.Min.X + 3.5*vg.Inch}
		y -= 20
		side.FillText(small, vg.Point{X: right[0], Y: y}, "of the time")
		side.FillText(small, vg.Point{X: right[1], Y: y}, "of the roof")
		y -= 14
		line := func(number, name, share, roof string) {
			s := sans(10)
			s.YAlign = draw.YTop
			side.FillText(s, vg.Point{X: side.Min.X + 22, Y: y}, name)
			s.XAlign = draw.XRight
			side.FillText(s, vg.Point{X: right[0], Y: y}, share)
			side.FillText(s, vg.Point{X: right[1], Y: y}, roof)
			s.Color = tint
			side.FillText(s, vg.Point{X: side.Min.X + 14, Y: y}, number)
			y -= 14
		}
		for i, s := range list {
			line(fmt.Sprint(i+1), s.Name, fmt.Sprintf("%.1f %%", 100*s.Share), fmt.Sprintf("%.0f %%", 100*s.RoofShare))
		}
		line("", "barriers", fmt.Sprintf("%.1f %%", 100*other.Barrier), "")
		line("", "other steps", fmt.Sprintf("%.1f %%", 100*other.Other), "")
		y -= 18
	}
}
