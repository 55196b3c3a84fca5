package quant

import (
	"bytes"
	"testing"
)

// TestNeighbours compares lists with the definition: all points at the smallest distances, by distance, then by
// number.
func TestNeighbours(t *testing.T) {
	for name, c := range map[string]struct {
		g         *lattice
		distances int
	}{
		"IQ1": {latticeIQ1(), 3}, "IQ2_XXS": {latticeIQ2XXS(), 2}, "IQ2_XS": {latticeIQ2XS(), 2},
		"IQ2_S":   {latticeIQ2S(), 1},
		"IQ3_XXS": {latticeIQ3XXS(), 2}, "IQ3_S": {latticeIQ3S(), 3},
	} {
		g, lists := c.g, 0
		for code, at := range g.index {
			levels := make([]int8, g.dim)
			if g.unpack(levels, code) > int8(g.top) {
				continue
			}
			if at >= 0 {
				if !bytes.Equal(int8s(g.levels[int(at)*g.dim:][:g.dim]), int8s(levels)) {
					t.Fatalf("%s: point %d is not that of code %#x", name, at, code)
				}
				continue
			}
			if lists++; lists%37 != 0 {
				continue
			}
			list := g.near[^at+1:][:g.near[^at]]
			distance := func(p int) (sum int) {
				for j, l := range levels {
					d := int(l) - int(g.levels[p*g.dim+j])
					sum += d * d
				}
				return sum
			}
			last, steps := int(g.index[list[0]]), 1
			for _, near := range list[1:] {
				p := int(g.index[near])
				switch a, b := distance(last), distance(p); {
				case a < b:
					steps++
				case a > b || last >= p:
					t.Fatalf("%s: point %d comes before %d in the list of code %#x", name, last, p, code)
				}
				last = p
			}
			within := 0
			for p := range len(g.levels) / g.dim {
				if distance(p) <= distance(last) {
					within++
				}
			}
			if within != len(list) || steps != c.distances {
				t.Fatalf("%s: code %#x has %d points of %d, %d distances of %d", name, code, len(list), within, steps,
					c.distances)
			}
		}
		if lists == 0 {
			t.Errorf("%s: no lists", name)
		}
	}
}

func int8s(x []int8) []byte {
	b := make([]byte, len(x))
	for i, v := range x {
		b[i] = byte(v)
	}
	return b
}

// TestCodeIQ4 compares the code with the nearest of all levels.
func TestCodeIQ4(t *testing.T) {
	for i := -3000; i <= 3000; i++ {
		x := float32(i) / 20
		got := codeIQ4(x)
		for c, v := range valuesIQ4 {
			if own, other := abs(x-valuesIQ4[got]), abs(x-v); other < own || other == own && byte(c) > got {
				t.Fatalf("the code of %g is %d, that of %g, but %g is nearer or above", x, got, valuesIQ4[got], v)
			}
		}
	}
}
