package picture

import (
	"bytes"
	"image/png"
	"math"
	"strings"
	"testing"
)

// A line passes where its points lie, on linear and on logarithmic axes; what has no place interrupts it.
func TestLines(t *testing.T) {
	for _, log := range []bool{false, true} {
		nan := math.NaN()
		d := &Lines{Title: "title", XName: "x", YName: "y", LogX: log, LogY: log, Lines: []Line{
			{Name: "up", X: []float64{1, 10, 100, 200, 1000}, Y: []float64{1, 10, 100, nan, 1000}},
			{Name: "flat", X: []float64{1, 1000}, Y: []float64{500, 500}, Dots: true},
		}, Levels: []YLevel{{"level", 250, 1}}}
		var b bytes.Buffer
		if err := d.Draw(&b, PNG); err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(&b)
		if err != nil {
			t.Fatal(err)
		}
		p := &linesPainter{d: d, x: axis{log: log, lo: 1, hi: 1000}, y: axis{log: log, lo: 1, hi: 1000}}
		p.x.room()
		p.y.room()
		const inch = dotsPerInch
		left, right, bottom, top := 0.95*inch, (10-2.4)*inch, (6-0.75)*inch, 0.85*inch
		near := func(x, y float64) (found bool) { // something blue or orange within two dots
			px, py := int(left+p.x.at(x)*(right-left)), int(bottom+p.y.at(y)*(top-bottom))
			for i := -2; i <= 2; i++ {
				for j := -2; j <= 2; j++ {
					r, g, b, _ := img.At(px+i, py+j).RGBA()
					found = found || max(r, g, b)-min(r, g, b) > 0x3000
				}
			}
			return found
		}
		for _, c := range []struct {
			x, y float64
			want bool
		}{{10, 10, true}, {31.6, 31.6, true}, {400, 400, false}, {700, 700, false}, {50, 500, true}, {3, 600, false}} {
			if !log && (c.x < 30 || c.y > 550) {
				continue // too near to others
			}
			if got := near(c.x, c.y); got != c.want {
				t.Errorf("log %v, at %v, %v: %v, want %v", log, c.x, c.y, got, c.want)
			}
		}
	}
	var b bytes.Buffer
	x := []float64{1, 2}
	if err := (&Lines{Lines: []Line{{X: x, Y: x, Faint: true}, {X: x, Y: x}, {X: x, Y: x}}}).Draw(&b, SVG); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		color string
		there bool
	}{{"#80B9D9", true}, {"#0072B2", true}, {"#D55E00", true}, {"#009E73", false}} { // a faint line, the next one in its colour, another
		if strings.Contains(strings.ToUpper(b.String()), c.color) != c.there {
			t.Errorf("%s: there is %v", c.color, !c.there)
		}
	}
	if err := (&Lines{Lines: []Line{{X: []float64{1}, Y: []float64{-1}}}, LogY: true}).Draw(&bytes.Buffer{}, SVG); err == nil {
		t.Error("nothing to draw is no error")
	}
	if err := (&Lines{Lines: []Line{{X: []float64{1}, Y: nil}}}).Draw(&bytes.Buffer{}, SVG); err == nil {
		t.Error("a ragged line is no error")
	}
}
