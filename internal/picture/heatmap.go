package picture

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// HeatMap is a table of values as coloured cells, first row on top. Values are finite, or NaN where there is none.
type HeatMap struct {
	Title, Subtitle string
	XName, YName    string // what columns and rows are
	Columns, Rows   []string
	Values          [][]float64 // [row][column]
	Lo, Hi          float64     // values of the ends of the scale; a negative Lo makes it white at 0
	Scale           string      // what the values are
}

const (
	heatWidth   = 10 * vg.Inch
	heatBar     = 0.25 * vg.Inch // the scale
	heatLabels  = 0.16 * vg.Inch // at least between two labels
	heatLeft    = 1.1 * vg.Inch
	heatRight   = 1.2 * vg.Inch
	heatTop     = 0.95 * vg.Inch
	heatBottom  = 0.75 * vg.Inch
	heatTallest = 9 * vg.Inch
)

// Draw writes the picture. Its height follows the rows.
func (d *HeatMap) Draw(w io.Writer, format Format) error {
	for i, row := range d.Values {
		if len(row) != len(d.Columns) {
			return fmt.Errorf("picture: row %d of a heat map has %d values for %d columns", i, len(row), len(d.Columns))
		}
	}
	if len(d.Values) == 0 || len(d.Values) != len(d.Rows) || len(d.Columns) == 0 || !(d.Lo < d.Hi) {
		return fmt.Errorf("picture: a heat map of %d rows, %d names, %d columns, from %g to %g", len(d.Values), len(d.Rows),
			len(d.Columns), d.Lo, d.Hi)
	}
	side := min((heatWidth-heatLeft-heatRight)/vg.Length(len(d.Columns)), 0.4*vg.Inch)
	height := min(max(side*vg.Length(len(d.Rows)), 1.6*vg.Inch), heatTallest)
	return write(w, format, heatWidth, height+heatTop+heatBottom, d.paint)
}

// paint draws all of it on a white canvas.
func (d *HeatMap) paint(c draw.Canvas) {
	c.FillText(sans(16), vg.Point{X: c.Min.X + 0.3*vg.Inch, Y: c.Max.Y - 0.4*vg.Inch}, d.Title)
	sub := sans(10)
	sub.Color = grey
	c.FillText(sub, vg.Point{X: c.Min.X + 0.3*vg.Inch, Y: c.Max.Y - 0.62*vg.Inch}, d.Subtitle)
	cells := draw.Crop(c, heatLeft, -heatRight, heatBottom, -heatTop)
	d.cells(cells)
	d.names(cells)
	d.scale(draw.Crop(c, heatWidth-heatRight+0.25*vg.Inch, 0, heatBottom, -heatTop))
}

// cells fills the area with the values' colours.
func (d *HeatMap) cells(c draw.Canvas) {
	w, h := (c.Max.X-c.Min.X)/vg.Length(len(d.Columns)), (c.Max.Y-c.Min.Y)/vg.Length(len(d.Rows))
	for i, row := range d.Values {
		for j, v := range row {
			fillRect(c, vg.Point{X: c.Min.X + w*vg.Length(j), Y: c.Max.Y - h*vg.Length(i+1)}, w, h, d.colour(v))
		}
	}
	edge := draw.LineStyle{Color: pale, Width: vg.Points(0.6)}
	c.StrokeLines(edge, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}, c.Min})
}

// fillRect fills a rectangle, a hair larger so that no seam shows between neighbours.
func fillRect(c draw.Canvas, at vg.Point, w, h vg.Length, fill color.Color) {
	const hair = 0.15
	c.FillPolygon(fill, []vg.Point{{X: at.X, Y: at.Y - hair}, {X: at.X + w + hair, Y: at.Y - hair}, {X: at.X + w + hair, Y: at.Y + h},
		{X: at.X, Y: at.Y + h}})
}

// colour is that of a value: from white to blue; with a negative end from orange over white to blue; pale where there is none.
func (d *HeatMap) colour(v float64) color.Color {
	if math.IsNaN(v) {
		return pale
	}
	zero := max(d.Lo, min(0, d.Hi))
	if d.Lo > 0 {
		zero = d.Lo
	}
	if v < zero {
		return mix(orange, (zero-v)/max(zero-d.Lo, 1e-300))
	}
	return mix(blue, (v-zero)/max(d.Hi-zero, 1e-300))
}

// mix is white with a share of c.
func mix(c color.RGBA, share float64) color.Color {
	share = max(0, min(1, share))
	part := func(x uint8) uint8 { return uint8(math.Round(255 - share*float64(255-x))) }
	return color.RGBA{part(c.R), part(c.G), part(c.B), 0xff}
}

// names writes the names of rows and columns, as many as there is room for.
func (d *HeatMap) names(c draw.Canvas) {
	w, h := (c.Max.X-c.Min.X)/vg.Length(len(d.Columns)), (c.Max.Y-c.Min.Y)/vg.Length(len(d.Rows))
	s := sans(9)
	s.XAlign, s.YAlign = draw.XRight, draw.YCenter
	for i := 0; i < len(d.Rows); i += stride(h, heatLabels) {
		c.FillText(s, vg.Point{X: c.Min.X - 5, Y: c.Max.Y - h*(vg.Length(i)+0.5)}, d.Rows[i])
	}
	widest := vg.Length(0)
	for _, n := range d.Columns {
		widest = max(widest, s.Width(n))
	}
	s.XAlign, s.YAlign = draw.XCenter, draw.YTop
	for j := 0; j < len(d.Columns); j += stride(w, widest+4) {
		c.FillText(s, vg.Point{X: c.Min.X + w*(vg.Length(j)+0.5), Y: c.Min.Y - 5}, d.Columns[j])
	}
	s = sans(11)
	s.XAlign = draw.XCenter
	c.FillText(s, vg.Point{X: (c.Min.X + c.Max.X) / 2, Y: c.Min.Y - 0.45*vg.Inch}, d.XName)
	s.Rotation = math.Pi / 2
	c.FillText(s, vg.Point{X: c.Min.X - 0.75*vg.Inch, Y: (c.Min.Y + c.Max.Y) / 2}, d.YName)
}

// stride is how many cells of a size stand between labels that need room.
func stride(cell, room vg.Length) int { return max(1, int(math.Ceil(float64(room/cell)))) }

// scale draws what the colours mean.
func (d *HeatMap) scale(c draw.Canvas) {
	const steps = 64
	h := (c.Max.Y - c.Min.Y) / steps
	for i := range steps {
		v := d.Lo + (d.Hi-d.Lo)*(float64(i)+0.5)/steps
		fillRect(c, vg.Point{X: c.Min.X, Y: c.Min.Y + h*vg.Length(i)}, heatBar, h, d.colour(v))
	}
	s := sans(9)
	s.YAlign = draw.YCenter
	for _, share := range []float64{0, 0.5, 1} {
		v := d.Lo + (d.Hi-d.Lo)*share
		c.FillText(s, vg.Point{X: c.Min.X + heatBar + 5, Y: c.Min.Y + (c.Max.Y-c.Min.Y)*vg.Length(share)}, fmt.Sprintf("%.3g", v))
	}
	s = sans(10)
	s.XAlign = draw.XCenter
	c.FillText(s, vg.Point{X: c.Min.X + heatBar, Y: c.Max.Y + 8}, d.Scale)
}
