package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

// Codes that are set are those that are read, the rest of the block stays, and an element is scale*level + offset of
// its code.
func TestLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	if len(levelledTypes) != 12 {
		t.Errorf("%d types", len(levelledTypes))
	}
	for typ := range levelledTypes {
		n, size, levels := typ.BlockElems(), typ.BlockBytes(), typ.Levels()
		x, block := make([]float32, n), make([]byte, size)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		if err := Quantize(typ, block, x, nil); err != nil {
			t.Fatal(err)
		}
		codes := make([]byte, n)
		GetCodes(typ, codes, block)
		again := bytes.Clone(block)
		SetCodes(typ, again, codes)
		if !bytes.Equal(again, block) {
			t.Errorf("%v: codes that were read make another block", typ)
		}
		// All elements with code a, then with b and c: c lies on the line through a and b.
		value := func(code byte) []float32 {
			for i := range codes {
				codes[i] = code
			}
			b := bytes.Clone(block)
			SetCodes(typ, b, codes)
			got := make([]byte, n)
			if GetCodes(typ, got, b); !bytes.Equal(got, codes) {
				t.Fatalf("%v: code %d is read as %v", typ, code, got)
			}
			v := make([]float32, n)
			Decode(typ, v, b)
			return v
		}
		last := len(levels) - 1
		a, b := value(0), value(byte(last))
		for c := range levels {
			v := value(byte(c))
			for i := range v {
				f := float64(levels[c]-levels[0]) / float64(levels[last]-levels[0])
				want := float64(a[i]) + f*(float64(b[i])-float64(a[i]))
				if math.Abs(float64(v[i])-want) > 1e-5 {
					t.Fatalf("%v: code %d of element %d is %g, want %g", typ, c, i, v[i], want)
				}
			}
			if c > 0 && levels[c] <= levels[c-1] {
				t.Errorf("%v: level %d does not ascend", typ, c)
			}
		}
		// A single code alters a single element.
		for range 50 {
			for i := range codes {
				codes[i] = byte(rng.IntN(len(levels)))
			}
			one, two := bytes.Clone(block), bytes.Clone(block)
			SetCodes(typ, one, codes)
			at := rng.IntN(n)
			codes[at] = byte((int(codes[at]) + 1) % len(levels))
			SetCodes(typ, two, codes)
			v, w := make([]float32, n), make([]float32, n)
			Decode(typ, v, one)
			Decode(typ, w, two)
			for i := range v {
				if (v[i] != w[i]) != (i == at) && v[i] != w[i] {
					t.Fatalf("%v: code %d alters element %d", typ, at, i)
				}
			}
		}
	}
}
