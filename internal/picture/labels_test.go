package picture

import (
	"math"
	"math/rand/v2"
	"testing"
)

// checkLabels finds labels that meet each other, a disc or what was taken, and returns how many lines go through other labels.
func checkLabels(t *testing.T, name string, discs []circle, labels []label, taken []box) (crossed int) {
	t.Helper()
	for i, l := range labels {
		if !l.ok {
			t.Errorf("%s: label %d has no place", name, i)
			continue
		}
		for j, d := range discs {
			if d.meets(l.box) {
				t.Errorf("%s: label %d stands in disc %d", name, i, j)
			}
		}
		for j, o := range labels[:i] {
			if o.meets(l.box) {
				t.Errorf("%s: labels %d and %d meet", name, j, i)
			}
			if o.crossed(l.from, l.to) || l.crossed(o.from, o.to) {
				crossed++
			}
		}
		for j, b := range taken {
			if b.meets(l.box) {
				t.Errorf("%s: label %d stands on text %d", name, i, j)
			}
		}
	}
	return crossed
}

// However close discs are, also where all have one place, no two labels meet.
func TestLabelsApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	within := box{0, 0, 600, 400}
	for round := range 30 {
		var discs []circle
		var sizes []point
		spread := []float64{0, 1, 10, 60}[round%4]
		for range 26 {
			discs = append(discs, circle{point{300 + spread*rng.NormFloat64(), 200 + spread*rng.NormFloat64()}, 3 + 10*rng.Float64()})
			sizes = append(sizes, point{5 + 6*rng.Float64(), 9})
		}
		taken := []box{{320, 150, 400, 165}, {100, 210, 220, 222}}
		checkLabels(t, "random", discs, placeLabels(discs, sizes, taken, nil, within), taken)
	}
	// Alone, a label stands beside its disc and needs no line.
	l := placeLabels([]circle{{point{300, 200}, 5}}, []point{{6, 9}}, nil, nil, within)[0]
	if !l.ok || l.from != l.to || l.x0 < 305 || l.x0 > 310 || math.Abs(l.centre().y-200) > 1e-9 {
		t.Errorf("alone: %+v", l)
	}
}

// Text along lines that lie close together does not meet.
func TestAlongApart(t *testing.T) {
	within := box{0, 0, 600, 400}
	var taken []box
	for i := range 6 {
		a, b := point{50, 50 + 6*float64(i)}, point{450, 350 + 6*float64(i)}
		at, boxes, ok := placeAlong(a, b, point{70, 10}, 0.5, 1, []circle{{point{240, 200}, 12}}, taken, within)
		if !ok {
			t.Fatalf("line %d: no place", i)
		}
		for _, x := range boxes {
			for _, o := range taken {
				if x.meets(o) {
					t.Errorf("line %d: text meets another one", i)
				}
			}
			if (circle{point{240, 200}, 12}).meets(x) {
				t.Errorf("line %d: text stands in the disc", i)
			}
		}
		if i == 0 && math.Abs(at.x-250) > 60 {
			t.Errorf("the first text is at %+v, wanted near the middle", at)
		}
		taken = append(taken, boxes...)
	}
}

func TestCrossed(t *testing.T) {
	b := box{10, 10, 20, 20}
	for _, c := range []struct {
		p, q point
		want bool
	}{{point{0, 15}, point{30, 15}, true}, {point{0, 0}, point{30, 30}, true}, {point{0, 5}, point{30, 5}, false}, {point{0, 15}, point{5, 15}, false},
		{point{12, 12}, point{13, 13}, true}, {point{0, 25}, point{9, 9}, false}, {point{15, 0}, point{15, 30}, true}} {
		if got := b.crossed(c.p, c.q); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
