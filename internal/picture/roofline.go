package picture

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Roofline is a machine's roofs, and steps under them (Williams, Waterman and Patterson 2009). Rates are those of all threads.
type Roofline struct {
	Title, Subtitle string
	Threads         int
	Levels          []Level   // caches, the nearest first
	Memory          Level     // behind them
	One             Level     // memory for one thread, drawn where there are several
	OneTop          float64   // GOP/s, the best peak of one thread
	Ceilings        []Ceiling // the best first; those of one rate share a line
	Remarks         []string  // for the corner
	Phases          []Phase   // none: roofs alone
}

// Level is a level of the memory hierarchy. A rate of 0 is not drawn.
type Level struct {
	Name string
	GBps float64
}

// Ceiling is what a kind of arithmetic reaches. A rate of 0 is not drawn.
type Ceiling struct {
	Name string
	GOPs float64
}

// Phase is a part of the work with its steps; shares are of its time.
type Phase struct {
	Name           string
	Steps          []Step
	Barrier, Other float64 // shares of what has no place under roofs
}

// Step is a point under the roofs.
type Step struct {
	Name      string
	Intensity float64 // operations per byte
	GOPs      float64
	Share     float64 // of the phase's time: the area of the disc
	RoofShare float64 // of what the roofs allow at this intensity
}

const (
	rooflineWidth  = 13 * vg.Inch
	rooflineHeight = 7.3 * vg.Inch
	legendWidth    = 4.1 * vg.Inch
)

// Draw writes the chart.
func (d *Roofline) Draw(w io.Writer, format Format) error {
	return write(w, format, rooflineWidth, rooflineHeight, func(c draw.Canvas) { d.paint(c) })
}

// rooflinePainter is a roofline on its way to a canvas: x is operations per byte, y GOP/s.
type rooflinePainter struct {
	logAxes
	d   *Roofline
	top float64 // the best ceiling

	discs  []stepDisc
	labels []label // of the discs
	texts  [][]box // at the roofs and in the corner
	taken  []box   // by them
	lines  [][2]point
	within box      // where words may stand
	corner vg.Point // where the next remark stands
}

// stepDisc is a step in the picture.
type stepDisc struct {
	circle
	number int
	tint   color.Color
}

// paint draws all of it on a white canvas.
func (d *Roofline) paint(c draw.Canvas) *rooflinePainter {
	p := &rooflinePainter{d: d}
	for _, k := range d.Ceilings {
		p.top = max(p.top, k.GOPs)
	}
	p.x0, p.x1, p.y0, p.y1 = 0.25, 4096, p.top/2000, p.top*2.2
	for _, ph := range d.Phases {
		for _, s := range ph.Steps {
			p.x0, p.x1 = min(p.x0, s.Intensity/2), max(p.x1, s.Intensity*4)
			p.y0 = min(p.y0, s.GOPs/2)
		}
	}
	c.FillText(sans(16), vg.Point{X: c.Min.X + 0.65*vg.Inch, Y: c.Max.Y - 0.45*vg.Inch}, d.Title)
	sub := sans(10)
	sub.Color = grey
	c.FillText(sub, vg.Point{X: c.Min.X + 0.65*vg.Inch, Y: c.Max.Y - 0.66*vg.Inch}, d.Subtitle)
	right := vg.Length(legendWidth)
	if len(d.Phases) == 0 { // no legend of steps
		right = 0.3 * vg.Inch
	}
	p.Canvas = draw.Crop(c, 0.8*vg.Inch, -right, 0.7*vg.Inch, -0.85*vg.Inch)
	const rim = 3
	p.within = box{float64(p.Min.X) + rim, float64(p.Min.Y) + rim, float64(p.Max.X) - rim, float64(p.Max.Y) + 12}
	p.corner = p.at(p.x1, p.y0)
	p.frame("operations per byte of weights and KV cache", "GOP/s")
	p.findDiscs()
	p.roofs()
	p.ceilings()
	p.drawDiscs()
	p.legend(draw.Crop(c, rooflineWidth-legendWidth+0.25*vg.Inch, -0.2*vg.Inch, 0.5*vg.Inch, -0.85*vg.Inch))
	return p
}

// roof draws a line that words avoid.
func (p *rooflinePainter) roof(s draw.LineStyle, a, b vg.Point) {
	p.lines = append(p.lines, [2]point{{float64(a.X), float64(a.Y)}, {float64(b.X), float64(b.Y)}})
	p.line(s, a, b)
}

// slope draws what a bandwidth allows, up to the rate top, and returns its ends. ok is false where there is no bandwidth.
func (p *rooflinePainter) slope(gbps, top float64, style draw.LineStyle) (a, b vg.Point, ok bool) {
	if gbps == 0 {
		return a, b, false
	}
	x := p.x0
	if gbps*x < p.y0 {
		x = p.y0 / gbps
	}
	a, b = p.at(x, gbps*x), p.at(top/gbps, top)
	p.roof(style, a, b)
	return a, b, true
}

// remark writes a text in the corner, above what stands there.
func (p *rooflinePainter) remark(text string) {
	s := sans(9)
	s.Color, s.XAlign, s.YAlign = grey, draw.XRight, draw.YBottom
	p.corner.Y += 4
	p.FillText(s, vg.Point{X: p.corner.X - 4, Y: p.corner.Y}, text)
	x, y, h := float64(p.corner.X)-4, float64(p.corner.Y), float64(s.Height(text))
	p.take([]box{{x - float64(s.Width(text)), y, x, y + h}})
	p.corner.Y += vg.Length(h)
}

// heavy is the style of what bounds most: memory and the ceilings.
var heavy = draw.LineStyle{Color: ink, Width: vg.Points(2.2)}

// staggered is where along their slopes the names of the levels stand: levels can be almost equally fast.
var staggered = []float64{0.75, 0.3, 0.5}

// roofs draws the slopes of the memory levels.
func (p *rooflinePainter) roofs() {
	d := p.d
	named := func(l Level, style draw.LineStyle, share float64) {
		if a, b, ok := p.slope(l.GBps, p.top, style); ok {
			p.along(a, b, fmt.Sprintf("%s %s GB/s", l.Name, threeDigits(l.GBps)), style.Color, share, 1)
		}
	}
	for i, l := range d.Levels {
		named(l, draw.LineStyle{Color: pale, Width: vg.Points(1)}, staggered[i%len(staggered)])
	}
	for _, s := range d.Remarks {
		p.remark(s)
	}
	if d.Threads > 1 {
		dashed := draw.LineStyle{Color: pale, Width: vg.Points(1), Dashes: []vg.Length{4, 3}}
		if _, b, ok := p.slope(d.One.GBps, d.OneTop, dashed); ok { // with its ceiling
			p.roof(dashed, b, p.at(p.x1, d.OneTop))
		}
		p.remark("dashed: one thread")
	}
	named(d.Memory, heavy, 0.3)
}

// ceilings draws the peaks of the arithmetic, from where memory lets them be reached.
func (p *rooflinePainter) ceilings() {
	names := map[float64]string{} // of peaks: kinds that one instruction serves share a line
	var peaks []float64
	for _, k := range p.d.Ceilings {
		switch {
		case k.GOPs == 0:
		case names[k.GOPs] != "":
			names[k.GOPs] += ", " + k.Name
		default:
			names[k.GOPs] = k.Name
			peaks = append(peaks, k.GOPs)
		}
	}
	for i, peak := range peaks {
		a, b := p.at(peak/p.d.Memory.GBps, peak), p.at(p.x1, peak)
		p.roof(heavy, a, b)
		side := 1.0
		if i > 0 && p.at(p.x1, peaks[i-1]).Y-b.Y < 16 { // there is no room between two lines
			side = -1
		}
		p.along(a, b, fmt.Sprintf("%s %s GOP/s", names[peak], threeDigits(peak)), ink, 0.3, side)
	}
}

// along writes text above a line (side 1) or below it (-1), where nothing else stands, as near to a share of its length as that goes.
func (p *rooflinePainter) along(a, b vg.Point, text string, tint color.Color, share, side float64) {
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
	p.FillText(s, vg.Point{X: vg.Length(at.x), Y: vg.Length(at.y)}, text)
}

// take notes where a text stands.
func (p *rooflinePainter) take(boxes []box) {
	p.texts, p.taken = append(p.texts, boxes), append(p.taken, boxes...)
}

func (p *rooflinePainter) circles() []circle {
	var out []circle
	for _, d := range p.discs {
		out = append(out, d.circle)
	}
	return out
}

var phaseColors = []color.Color{orange, blue}

// byTime are the steps of a phase, the longest first: step k has the number k+1.
func (ph *Phase) byTime() []Step {
	list := slices.Clone(ph.Steps)
	slices.SortStableFunc(list, func(a, b Step) int { return cmp.Compare(b.Share, a.Share) })
	return list
}

// findDiscs makes a numbered disc for each step, its area the share of the phase's time.
func (p *rooflinePainter) findDiscs() {
	for i := range p.d.Phases {
		for k, s := range p.d.Phases[i].byTime() {
			at := p.at(s.Intensity, s.GOPs)
			p.discs = append(p.discs, stepDisc{circle{point{float64(at.X), float64(at.Y)}, 3.2 + 13*math.Sqrt(s.Share)}, k + 1, phaseColors[i%len(phaseColors)]})
		}
	}
}

// drawDiscs draws the steps and their numbers beside them.
func (p *rooflinePainter) drawDiscs() {
	s := sans(9)
	s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	var sizes []point
	for _, d := range p.discs {
		at, r := vg.Point{X: vg.Length(d.x), Y: vg.Length(d.y)}, vg.Length(d.r)
		r0, g0, b0, _ := d.tint.RGBA()
		p.SetColor(color.NRGBA{uint8(r0 >> 8), uint8(g0 >> 8), uint8(b0 >> 8), 0x60})
		var disc vg.Path
		disc.Move(vg.Point{X: at.X + r, Y: at.Y})
		disc.Arc(at, r, 0, 2*math.Pi)
		disc.Close()
		p.Fill(disc)
		p.SetColor(d.tint)
		p.SetLineWidth(vg.Points(1))
		p.Stroke(disc)
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
		p.FillText(s, vg.Point{X: vg.Length(at.x), Y: vg.Length(at.y)}, fmt.Sprint(p.discs[i].number))
	}
}

// legend writes the numbers' meaning beside the picture.
func (p *rooflinePainter) legend(side draw.Canvas) {
	y := side.Max.Y
	for i := range p.d.Phases {
		ph, tint := &p.d.Phases[i], phaseColors[i%len(phaseColors)]
		head := sans(12)
		head.Color = tint
		head.YAlign = draw.YTop
		side.FillText(head, vg.Point{X: side.Min.X, Y: y}, ph.Name)
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
		for k, s := range ph.byTime() {
			line(fmt.Sprint(k+1), s.Name, fmt.Sprintf("%.1f %%", 100*s.Share), fmt.Sprintf("%.0f %%", 100*s.RoofShare))
		}
		line("", "barriers", fmt.Sprintf("%.1f %%", 100*ph.Barrier), "")
		line("", "other steps", fmt.Sprintf("%.1f %%", 100*ph.Other), "")
		y -= 18
	}
}
