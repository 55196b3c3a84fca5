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
func (d *rooflineDoc) paint(c draw.Canvas) {
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
	p.axes()
	p.roofs()
	p.steps(draw.Crop(c, pictureWidth-legendWidth+0.25*vg.Inch, -0.2*vg.Inch, 0.5*vg.Inch, -0.85*vg.Inch))
}

// at is the place of a point.
func (p *roofPicture) at(x, y float64) vg.Point {
	fx := math.Log(x/p.x0) / math.Log(p.x1/p.x0)
	fy := math.Log(y/p.y0) / math.Log(p.y1/p.y0)
	return vg.Point{X: p.c.Min.X + vg.Length(fx)*(p.c.Max.X-p.c.Min.X), Y: p.c.Min.Y + vg.Length(fy)*(p.c.Max.Y-p.c.Min.Y)}
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
		p.line(style, a, b)
		if n != p.threads { // its ceiling, faint
			p.line(style, b, p.at(p.x1, top))
		}
		s := sans(9.5)
		s.Color, s.YAlign = style.Color, draw.YBottom
		s.Rotation = math.Atan2(float64(b.Y-a.Y), float64(b.X-a.X))
		s.XAlign = draw.XCenter
		at := vg.Point{X: a.X + vg.Length(place)*(b.X-a.X), Y: a.Y + vg.Length(place)*(b.Y-a.Y)}
		p.c.FillText(s, vg.Point{X: at.X - 3, Y: at.Y + 3}, text)
	}
	thin := draw.LineStyle{Color: color.RGBA{0xb4, 0xb4, 0xb4, 0xff}, Width: vg.Points(1)}
	for i, l := range []string{"L1", "L2", "L3"} { // their labels are staggered, since levels can be almost equally fast
		slope(l, p.threads, thin, fmt.Sprintf("%s %s GB/s", l, threeDigits(d.read(l, p.threads))), []float64{0.75, 0.3, 0.5}[i])
	}
	if p.threads > 1 {
		dashed := draw.LineStyle{Color: thin.Color, Width: vg.Points(1), Dashes: []vg.Length{4, 3}}
		slope(measure.DRAM, 1, dashed, "", 0.5)
		s := sans(9)
		s.Color, s.XAlign, s.YAlign = grey, draw.XRight, draw.YBottom
		q := p.at(p.x1, p.y0)
		p.c.FillText(s, vg.Point{X: q.X - 4, Y: q.Y + 4}, "dashed: one thread")
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
	for _, peak := range peaks {
		p.line(draw.LineStyle{Color: ink, Width: vg.Points(2.2)}, p.at(peak/dram, peak), p.at(p.x1, peak))
		s := sans(9.5)
		s.YAlign = draw.YBottom
		q := p.at(peak/dram, peak)
		p.c.FillText(s, vg.Point{X: q.X + 14, Y: q.Y + 3}, fmt.Sprintf("%s %s GOP/s", names[peak], threeDigits(peak)))
	}
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

// steps draws a numbered disc for each step, its area the share of the phase's time, and the list of numbers beside the picture.
func (p *roofPicture) steps(side draw.Canvas) {
	colors := []color.Color{orange, blue}
	y := side.Max.Y
	for ph, other := range p.d.OtherTime {
		var list []placed
		for _, s := range p.d.Steps {
			if s.Phase == other.Phase {
				list = append(list, s)
			}
		}
		slices.SortStableFunc(list, func(a, b placed) int { return compareFloats(b.Share, a.Share) })
		tint := colors[ph%len(colors)]
		p.discs(list, tint)
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

// discs draws the steps of a phase, largest first, and their numbers beside them, pushed apart where they would overlap.
func (p *roofPicture) discs(list []placed, tint color.Color) {
	type mark struct {
		n      int
		at     vg.Point
		radius vg.Length
		y      vg.Length // of the number
	}
	var marks []mark
	for i, s := range list {
		r := vg.Length(3.2 + 13*math.Sqrt(s.Share))
		at := p.at(s.Intensity, s.GOPs)
		marks = append(marks, mark{i + 1, at, r, at.Y})
		r0, g0, b0, _ := tint.RGBA()
		fill := color.NRGBA{uint8(r0 >> 8), uint8(g0 >> 8), uint8(b0 >> 8), 0x60}
		p.c.SetColor(fill)
		var disc vg.Path
		disc.Move(vg.Point{X: at.X + r, Y: at.Y})
		disc.Arc(at, r, 0, 2*math.Pi)
		disc.Close()
		p.c.Fill(disc)
		p.c.SetColor(tint)
		p.c.SetLineWidth(vg.Points(1))
		p.c.Stroke(disc)
	}
	slices.SortFunc(marks, func(a, b mark) int { return compareFloats(float64(b.at.Y), float64(a.at.Y)) })
	const apart = 12
	for i := range marks { // numbers of discs in one column go down until they are apart
		for j := range i {
			if near := marks[i].at.X - marks[j].at.X; near > -24 && near < 24 && marks[j].y-marks[i].y < apart {
				marks[i].y = marks[j].y - apart
			}
		}
	}
	s := sans(9)
	s.Color, s.YAlign = tint, draw.YCenter
	for _, m := range marks {
		x := m.at.X + 24
		p.line(draw.LineStyle{Color: tint, Width: vg.Points(0.5)}, vg.Point{X: m.at.X + m.radius, Y: m.at.Y}, vg.Point{X: x - 2, Y: m.y})
		p.c.FillText(s, vg.Point{X: x, Y: m.y}, fmt.Sprint(m.n))
	}
}
