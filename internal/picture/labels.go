package picture

import (
	"math"
	"slices"
)

// point is a place in a picture, in points; y grows upwards.
type point struct{ x, y float64 }

// box is an upright rectangle.
type box struct{ x0, y0, x1, y1 float64 }

func (b box) meets(o box) bool { return b.x0 < o.x1 && o.x0 < b.x1 && b.y0 < o.y1 && o.y0 < b.y1 }

func (b box) inside(o box) bool { return b.x0 >= o.x0 && b.x1 <= o.x1 && b.y0 >= o.y0 && b.y1 <= o.y1 }

func (b box) centre() point { return point{(b.x0 + b.x1) / 2, (b.y0 + b.y1) / 2} }

// grown is the box with a margin.
func (b box) grown(m float64) box { return box{b.x0 - m, b.y0 - m, b.x1 + m, b.y1 + m} }

// crossed reports whether the line from p to q has a point in the box (Liang and Barsky 1984).
func (b box) crossed(p, q point) bool {
	lo, hi := 0.0, 1.0
	for _, e := range [4][2]float64{{p.x - q.x, p.x - b.x0}, {q.x - p.x, b.x1 - p.x}, {p.y - q.y, p.y - b.y0}, {q.y - p.y, b.y1 - p.y}} {
		switch {
		case e[0] == 0:
			if e[1] < 0 {
				return false
			}
		case e[0] < 0:
			lo = max(lo, e[1]/e[0])
		default:
			hi = min(hi, e[1]/e[0])
		}
	}
	return lo < hi
}

// circle is a disc that labels belong to.
type circle struct {
	point
	r float64
}

// meets reports whether the disc and the box have a point in common.
func (c circle) meets(b box) bool {
	dx, dy := c.x-min(max(c.x, b.x0), b.x1), c.y-min(max(c.y, b.y0), b.y1)
	return dx*dx+dy*dy < c.r*c.r
}

// edge is the point of the disc that is nearest to p.
func (c circle) edge(p point) point {
	dx, dy := p.x-c.x, p.y-c.y
	d := math.Hypot(dx, dy)
	if d <= c.r {
		return c.point
	}
	return point{c.x + dx*c.r/d, c.y + dy*c.r/d}
}

// label is the place of a disc's label; from and to are the ends of the line to it, equal where it needs none.
type label struct {
	box
	from, to point
	ok       bool // there was a place
}

const (
	labelGap   = 2.0  // between a disc and its label, and between labels
	labelRing  = 3.0  // from one distance that is tried to the next
	labelRings = 150  // that are tried
	labelBeams = 48   // directions
	labelNear  = 5.0  // of a disc: no line is needed
	discCost   = 40.0 // distance that is as bad as a line through another disc
	lineCost   = 25   // or as a label on a line of the picture
	textCost   = 200  // or a line through text
)

// placeLabels finds a place within the picture for the label of each disc, as near to it as there is one: no label meets another one, any
// disc or what is taken already. Lines to labels go through other labels only where there is no other way. Earlier discs choose first.
//
// lines are of the picture: a label stands on one where there is no place beside it.
func placeLabels(discs []circle, sizes []point, taken []box, lines [][2]point, within box) []label {
	out := make([]label, len(discs))
	for i, d := range discs {
		best := math.Inf(1)
		for ring := range labelRings {
			away := labelGap + labelRing*float64(ring)
			if away >= best {
				break
			}
			for beam := range labelBeams {
				angle := 2 * math.Pi * float64(beam) / labelBeams
				l := d.labelAt(sizes[i], angle, away)
				cost := away + 0.05*float64(beam)
				if cost >= best || !l.box.inside(within) || !l.free(discs, out[:i], taken) {
					continue
				}
				for _, e := range lines {
					if l.grown(1).crossed(e[0], e[1]) {
						cost += lineCost
					}
				}
				if cost += l.crossings(discs, i, out[:i], taken); cost < best {
					best, out[i] = cost, l
				}
			}
		}
	}
	return out
}

// labelAt is a label in a direction from a disc, so far from it.
func (c circle) labelAt(size point, angle, away float64) label {
	x, y := c.x+math.Cos(angle)*(c.r+away+size.x/2), c.y+math.Sin(angle)*(c.r+away+size.y/2)
	l := label{box: box{x - size.x/2, y - size.y/2, x + size.x/2, y + size.y/2}, ok: true}
	nearest := point{min(max(c.x, l.x0), l.x1), min(max(c.y, l.y0), l.y1)}
	l.from, l.to = c.edge(nearest), nearest
	if math.Hypot(l.from.x-l.to.x, l.from.y-l.to.y) < labelNear {
		l.to = l.from
	}
	return l
}

// free reports whether a label meets nothing.
func (l *label) free(discs []circle, placed []label, taken []box) bool {
	for _, d := range discs {
		if d.meets(l.box) {
			return false
		}
	}
	for _, b := range taken {
		if b.meets(l.box) {
			return false
		}
	}
	for _, o := range placed {
		if o.ok && o.grown(labelGap).meets(l.box) {
			return false
		}
	}
	return true
}

// crossings is the cost of what the line to a label goes through, and of the lines to others that go through it.
func (l *label) crossings(discs []circle, own int, placed []label, taken []box) (cost float64) {
	for _, o := range placed {
		if o.ok && (o.crossed(l.from, l.to) || l.crossed(o.from, o.to)) {
			cost += textCost
		}
	}
	if l.from == l.to {
		return cost
	}
	for _, b := range taken {
		if b.crossed(l.from, l.to) {
			cost += textCost
		}
	}
	for i, d := range discs {
		if i != own && d.meetsLine(l.from, l.to) {
			cost += discCost
		}
	}
	return cost
}

// meetsLine reports whether the line from p to q goes through the disc.
func (c circle) meetsLine(p, q point) bool {
	dx, dy := q.x-p.x, q.y-p.y
	t := ((c.x-p.x)*dx + (c.y-p.y)*dy) / (dx*dx + dy*dy)
	t = min(max(t, 0), 1)
	return math.Hypot(p.x+t*dx-c.x, p.y+t*dy-c.y) < c.r
}

// alongBoxes are upright boxes that together cover text of a size on a line through its middle, turned by angle.
func alongBoxes(middle point, size point, angle float64) []box {
	n := max(1, int(math.Ceil(size.x/size.y)))
	if angle == 0 {
		n = 1
	}
	step := size.x / float64(n)
	// Each piece is step wide and size.y high, turned.
	w := (step*math.Abs(math.Cos(angle)) + size.y*math.Abs(math.Sin(angle))) / 2
	h := (step*math.Abs(math.Sin(angle)) + size.y*math.Abs(math.Cos(angle))) / 2
	var out []box
	for i := range n {
		at := (float64(i)+0.5)*step - size.x/2
		x, y := middle.x+at*math.Cos(angle), middle.y+at*math.Sin(angle)
		out = append(out, box{x - w, y - h, x + w, y + h})
	}
	return out
}

// placeAlong finds a place for the middle of text above (side 1) or below (side -1) the line from a to b, as near to a share of the line as there is one that meets
// nothing taken and no disc. ok is false without one.
func placeAlong(a, b, size point, share, side float64, discs []circle, taken []box, within box) (middle point, boxes []box, ok bool) {
	length, angle := math.Hypot(b.x-a.x, b.y-a.y), math.Atan2(b.y-a.y, b.x-a.x)
	const tries = 60
	for i := range tries {
		s := share + float64(i/2+i%2)/tries*math.Pow(-1, float64(i))*2
		if s*length < size.x/2 || (1-s)*length < size.x/2 {
			continue
		}
		up := side * (size.y/2 + labelGap)
		middle = point{a.x + s*(b.x-a.x) - up*math.Sin(angle), a.y + s*(b.y-a.y) + up*math.Cos(angle)}
		boxes = alongBoxes(middle, size, angle)
		meets := func(x box) bool {
			return !x.inside(within) || slices.ContainsFunc(taken, x.meets) || slices.ContainsFunc(discs, func(d circle) bool { return d.meets(x) })
		}
		if !slices.ContainsFunc(boxes, meets) {
			return middle, boxes, true
		}
	}
	return middle, nil, false
}
