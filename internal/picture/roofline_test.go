package picture

import (
	"bytes"
	"image/png"
	"io"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// crowded is a roofline on which many steps have about one place, as a model's have.
func crowded() *Roofline {
	d := &Roofline{Title: "model under the roofs of this machine", Subtitle: "a CPU, 2 threads; pp512+tg32", Threads: 2,
		Levels: []Level{{"L1", 760}, {"L2", 304}, {"L3", 171}}, Memory: Level{"DRAM", 76}, One: Level{"DRAM", 40}, OneTop: 1000,
		Ceilings: []Ceiling{{"INT8", 1900}, {"BF16", 494}, {"F32", 475}}, Phases: []Phase{{Name: "prefill"}, {Name: "decode"}}}
	for i, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "output", "attend", "embed", "rope"} {
		near := 1 + 0.02*float64(i%4)
		share := []float64{0.1, 0.02, 0.02, 0.1, 0.22, 0.22, 0.2, 0.1, 0.01, 0.005, 0.005}[i]
		prefill, decode := &d.Phases[0], &d.Phases[1]
		prefill.Steps = append(prefill.Steps, Step{Name: name, Share: share, GOPs: 500 * near, Intensity: 900 * near})
		decode.Steps = append(decode.Steps, Step{Name: name, Share: share, GOPs: 60 * near, Intensity: 3.5 * near})
	}
	return d
}

// painted is a roofline on a coarse canvas.
func painted(d *Roofline) *rooflinePainter {
	return d.paint(draw.New(vgimg.NewWith(vgimg.UseWH(rooflineWidth, rooflineHeight), vgimg.UseDPI(24))))
}

// In the picture of a model no number meets another one, a disc or the words at the roofs.
func TestRooflineLabels(t *testing.T) {
	p := painted(crowded())
	if len(p.discs) != 22 || len(p.labels) != 22 {
		t.Fatalf("%d discs, %d labels", len(p.discs), len(p.labels))
	}
	if n := checkLabels(t, "picture", p.circles(), p.labels, p.taken); n > 0 {
		t.Errorf("%d lines go through labels", n)
	}
	for i, a := range p.texts {
		for j, b := range p.texts[:i] {
			for _, x := range a {
				for _, y := range b {
					if x.meets(y) {
						t.Errorf("texts %d and %d at the roofs meet", i, j)
					}
				}
			}
		}
	}
	if len(p.texts) < 7 {
		t.Errorf("%d texts at the roofs", len(p.texts))
	}
}

// svg is a picture's text.
func svg(t *testing.T, d *Roofline) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.Draw(&b, SVG); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What a roofline has is in its picture by name and number, and what was not measured is not.
func TestRooflineWords(t *testing.T) {
	d := crowded()
	text := svg(t, d)
	for _, want := range []string{"model under the roofs of this machine", "a CPU, 2 threads; pp512+tg32", "L2 304 GB/s", "DRAM 76.0 GB/s", "INT8 1900 GOP/s",
		"dashed: one thread", "prefill", "decode", "ffn_gate", "22.0 %", "barriers"} {
		if !strings.Contains(text, ">"+want+"<") {
			t.Errorf("the picture lacks %q", want)
		}
	}
	d.Levels[1].GBps, d.Ceilings[1].GOPs, d.Threads, d.Phases, d.Remarks = 0, 475, 1, nil, []string{"L2 is not drawn"}
	text = svg(t, d)
	for _, not := range []string{"L2 304", "L2 0", "dashed", "prefill", "barriers", "BF16 4"} {
		if strings.Contains(text, ">"+not) {
			t.Errorf("the picture has %q", not)
		}
	}
	for _, want := range []string{"L2 is not drawn", "BF16, F32 475 GOP/s"} { // equal rates share a line
		if !strings.Contains(text, ">"+want+"<") {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

// Lines end where they meet: the slope of memory at the best ceiling, a ceiling at the slope. One thread has a dashed pair of its own.
func TestRooflineLines(t *testing.T) {
	p := painted(crowded())
	end := func(x, y float64) point { q := p.at(x, y); return point{float64(q.X), float64(q.Y)} }
	for i, want := range map[int]point{0: end(1900.0/760, 1900), 3: end(1000.0/40, 1000), 5: end(1900.0/76, 1900)} {
		if got := p.lines[i][1]; got != want {
			t.Errorf("line %d ends at %v, want %v", i, got, want)
		}
	}
	for i, want := range map[int]point{4: end(1000.0/40, 1000), 6: end(1900.0/76, 1900), 8: end(475.0/76, 475)} {
		if got := p.lines[i][0]; got != want {
			t.Errorf("line %d begins at %v, want %v", i, got, want)
		}
	}
	if len(p.lines) != 9 {
		t.Errorf("%d lines", len(p.lines))
	}
}

// A PNG has the picture's size; other formats are refused.
func TestFormats(t *testing.T) {
	var b bytes.Buffer
	if err := crowded().Draw(&b, PNG); err != nil {
		t.Fatal(err)
	}
	if c, err := png.DecodeConfig(&b); err != nil || c.Width != 13*dotsPerInch || c.Height != 7.3*dotsPerInch {
		t.Errorf("%d x %d, %v", c.Width, c.Height, err)
	}
	if err := crowded().Draw(io.Discard, "gif"); err == nil || !strings.Contains(err.Error(), `"gif" is no format`) {
		t.Errorf("gif: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0.456: "0.46", 9.99: "9.99", 23.44: "23.4", 1234: "1230", 98765: "98800"} {
		if got := threeDigits(v); got != want {
			t.Errorf("%g: %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0.1: "0.1", 1000: "1000", 1e6: "1000000"} {
		if got := plainNumber(v); got != want {
			t.Errorf("%g: %s, want %s", v, got, want)
		}
	}
}
