package picture

import (
	"bytes"
	"image/color"
	"image/png"
	"math"
	"testing"
)

// A cell has the colour of its value, the first row is on top, and what has no value is pale.
func TestHeatMap(t *testing.T) {
	d := &HeatMap{Title: "title", XName: "head", YName: "layer", Columns: []string{"0", "1"}, Rows: []string{"0", "1"},
		Values: [][]float64{{1, 0}, {math.NaN(), -1}}, Lo: -1, Hi: 1, Scale: "r"}
	var b bytes.Buffer
	if err := d.Draw(&b, PNG); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	w, h := float64(img.Bounds().Dx()), float64(img.Bounds().Dy())
	left, right := heatLeft/heatWidth, 1-heatRight/heatWidth
	all := float64(h) / dotsPerInch
	top, bottom := float64(heatTop/72)/all, 1-float64(heatBottom/72)/all
	at := func(x, y float64) color.RGBA {
		px := int(w * (float64(left) + x*float64(right-left)))
		py := int(h * (top + y*(bottom-top)))
		r, g, b, _ := img.At(px, py).RGBA()
		return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 0xff}
	}
	for _, c := range []struct {
		x, y float64
		want color.RGBA
	}{{0.25, 0.25, blue}, {0.75, 0.25, color.RGBA{0xff, 0xff, 0xff, 0xff}}, {0.25, 0.75, pale}, {0.75, 0.75, orange}} {
		if got := at(c.x, c.y); got != c.want {
			t.Errorf("at %v, %v: %v, want %v", c.x, c.y, got, c.want)
		}
	}
	b.Reset()
	if err := d.Draw(&b, SVG); err != nil || !bytes.Contains(b.Bytes(), []byte("title")) {
		t.Errorf("SVG: %v", err)
	}
}

// What cannot be drawn is an error.
func TestHeatMapErrors(t *testing.T) {
	good := HeatMap{Columns: []string{"a"}, Rows: []string{"b"}, Values: [][]float64{{1}}, Lo: 0, Hi: 1}
	for name, change := range map[string]func(*HeatMap){
		"no rows":       func(d *HeatMap) { d.Rows, d.Values = nil, nil },
		"a ragged row":  func(d *HeatMap) { d.Values = [][]float64{{1, 2}} },
		"rows unnamed":  func(d *HeatMap) { d.Rows = nil },
		"an empty span": func(d *HeatMap) { d.Hi = 0 },
	} {
		d := good
		change(&d)
		if err := d.Draw(&bytes.Buffer{}, SVG); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := good.Draw(&bytes.Buffer{}, SVG); err != nil {
		t.Error(err)
	}
}
