// Package picture draws what programs measure, as SVG or PNG in one house style. It knows shapes and words: callers bring values, and have
// escaped text of others.
package picture

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Format is the form of a picture's file.
type Format string

// The forms that Draw writes.
const (
	SVG Format = "svg" // with its fonts embedded
	PNG Format = "png" // dotsPerInch fine
)

const dotsPerInch = 150

// The colours are Okabe and Ito's (2008), which colour-blind people can tell apart, and greys.
var (
	ink    = color.RGBA{0x22, 0x22, 0x22, 0xff}
	faint  = color.RGBA{0xe6, 0xe6, 0xe6, 0xff}
	pale   = color.RGBA{0xb4, 0xb4, 0xb4, 0xff}
	grey   = color.RGBA{0x88, 0x88, 0x88, 0xff}
	orange = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
)

// sans is the style of all words; size in points.
func sans(size vg.Length) text.Style {
	return text.Style{Color: ink, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}, Handler: plot.DefaultTextHandler}
}

// write makes a white picture of a size, lets paint fill it, and writes it to w.
func write(w io.Writer, format Format, width, height vg.Length, paint func(draw.Canvas)) error {
	var canvas vg.CanvasWriterTo
	switch format {
	case PNG:
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dotsPerInch), vgimg.UseBackgroundColor(color.White))}
	case SVG:
		canvas = vgsvg.NewWith(vgsvg.UseWH(width, height), vgsvg.EmbedFonts(true))
	default:
		return fmt.Errorf("picture: %q is no format; use svg or png", format)
	}
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	paint(c)
	_, err := canvas.WriteTo(w)
	return err
}

// logAxes is a plane with two logarithmic axes on a canvas.
type logAxes struct {
	draw.Canvas
	x0, x1, y0, y1 float64 // values at the edges
}

// at is the place of a point.
func (a *logAxes) at(x, y float64) vg.Point {
	fx := math.Log(x/a.x0) / math.Log(a.x1/a.x0)
	fy := math.Log(y/a.y0) / math.Log(a.y1/a.y0)
	return vg.Point{X: a.Min.X + vg.Length(fx)*(a.Max.X-a.Min.X), Y: a.Min.Y + vg.Length(fy)*(a.Max.Y-a.Min.Y)}
}

// line draws a straight line.
func (a *logAxes) line(s draw.LineStyle, p, q vg.Point) { a.StrokeLine2(s, p.X, p.Y, q.X, q.Y) }

// frame draws both axes, a grid of decades with their numbers, and what the axes are.
func (a *logAxes) frame(xName, yName string) {
	grid := draw.LineStyle{Color: faint, Width: vg.Points(0.6)}
	label := sans(10)
	for e := math.Ceil(math.Log10(a.x0)); math.Pow(10, e) <= a.x1; e++ {
		x := math.Pow(10, e)
		a.line(grid, a.at(x, a.y0), a.at(x, a.y1))
		s := label
		s.XAlign, s.YAlign = draw.XCenter, draw.YTop
		q := a.at(x, a.y0)
		a.FillText(s, vg.Point{X: q.X, Y: q.Y - 5}, plainNumber(x))
	}
	for e := math.Ceil(math.Log10(a.y0)); math.Pow(10, e) <= a.y1; e++ {
		y := math.Pow(10, e)
		a.line(grid, a.at(a.x0, y), a.at(a.x1, y))
		s := label
		s.XAlign, s.YAlign = draw.XRight, draw.YCenter
		q := a.at(a.x0, y)
		a.FillText(s, vg.Point{X: q.X - 5, Y: q.Y}, plainNumber(y))
	}
	edge := draw.LineStyle{Color: grey, Width: vg.Points(0.8)}
	a.line(edge, a.at(a.x0, a.y0), a.at(a.x1, a.y0))
	a.line(edge, a.at(a.x0, a.y0), a.at(a.x0, a.y1))
	s := sans(11)
	s.XAlign = draw.XCenter
	a.FillText(s, vg.Point{X: (a.Min.X + a.Max.X) / 2, Y: a.Min.Y - 0.45*vg.Inch}, xName)
	s.Rotation = math.Pi / 2
	a.FillText(s, vg.Point{X: a.Min.X - 0.5*vg.Inch, Y: (a.Min.Y + a.Max.Y) / 2}, yName)
}

func plainNumber(v float64) string {
	if v >= 1 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%g", v)
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
