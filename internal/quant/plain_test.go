package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"ck/asm/half"
)

// smallFloat describes a 16-bit float and its conversions.
type smallFloat struct {
	name     string
	mant     int // bits of the mantissa
	bias     int
	to       func(float32) uint16
	from     func(uint16) float32
	infinity uint16
}

var smallFloats = []smallFloat{
	{"F16", 10, 15, half.F32ToF16, half.F16ToF32, 0x7c00},
	{"BF16", 7, 127, half.F32ToBF16, half.BF16ToF32, 0x7f80},
}

// value is the number that the finite code h stands for, from the definition of the format.
func (f smallFloat) value(h uint16) float64 {
	exp, man := int(h&0x7fff>>f.mant), float64(h&(1<<f.mant-1))
	v := math.Ldexp(man, 1-f.bias-f.mant)
	if exp > 0 {
		v = math.Ldexp(man+math.Ldexp(1, f.mant), exp-f.bias-f.mant)
	}
	if h&0x8000 != 0 {
		v = math.Copysign(v, -1)
	}
	return v
}

// TestSmallFloatsToF32 converts all 65536 codes there and back.
func TestSmallFloatsToF32(t *testing.T) {
	for _, f := range smallFloats {
		for c := range 1 << 16 {
			h := uint16(c)
			got := f.from(h)
			switch mag := h & 0x7fff; {
			case mag > f.infinity:
				if got == got {
					t.Fatalf("%s %#04x is %g, want NaN", f.name, h, got)
				}
				if back, want := f.to(got), h|1<<(f.mant-1); back != want {
					t.Fatalf("%s NaN %#04x comes back as %#04x, want %#04x", f.name, h, back, want)
				}
				continue
			case mag == f.infinity:
				if !math.IsInf(float64(got), 1-int(h>>15)*2) {
					t.Fatalf("%s %#04x is %g, want an infinity", f.name, h, got)
				}
			default:
				if want := f.value(h); math.Float64bits(float64(got)) != math.Float64bits(want) {
					t.Fatalf("%s %#04x is %g, want %g", f.name, h, got, want)
				}
			}
			if back := f.to(got); back != h {
				t.Fatalf("%s %#04x comes back as %#04x", f.name, h, back)
			}
		}
	}
}

// TestSmallFloatsRounding tries, between each two neighbouring codes, the middle, which goes to the even one, the
// float32 numbers beside it, and those beside the codes.
func TestSmallFloatsRounding(t *testing.T) {
	for _, f := range smallFloats {
		for c := range f.infinity {
			// The upper neighbour of the largest code is what its successor would be, were it not infinity.
			lo, hi := float32(f.value(c)), float32(f.value(c+1))
			mid := float32((f.value(c) + f.value(c+1)) / 2)
			even := c + c&1
			inf := float32(math.Inf(1))
			for _, x := range []struct {
				v    float32
				want uint16
			}{
				{mid, even},
				{math.Nextafter32(mid, 0), c},
				{math.Nextafter32(mid, inf), c + 1},
				{math.Nextafter32(lo, inf), c},
				{math.Nextafter32(hi, 0), c + 1},
			} {
				if got := f.to(x.v); got != x.want {
					t.Fatalf("%s of %g is %#04x, want %#04x", f.name, x.v, got, x.want)
				}
				if got := f.to(-x.v); got != x.want|0x8000 {
					t.Fatalf("%s of %g is %#04x, want %#04x", f.name, -x.v, got, x.want|0x8000)
				}
			}
		}
	}
}

// TestSmallFloatsNearest takes random float32 numbers and wants a code as near as its neighbours, the even one of
// two.
func TestSmallFloatsNearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range smallFloats {
		for n := range 1 << 19 {
			bits := rng.Uint32() &^ (1 << 31)
			if n%2 == 0 { // among the halves, 2^-26 to 2^16
				bits = (101+rng.Uint32N(43))<<23 | bits&(1<<23-1)
			}
			v := float64(math.Float32frombits(bits))
			got := f.to(float32(v))
			if math.IsInf(v, 1) || v != v {
				if math.IsInf(v, 1) != (got == f.infinity) || v != v && got&0x7fff <= f.infinity {
					t.Fatalf("%s of %g is %#04x", f.name, v, got)
				}
				continue
			}
			if got > f.infinity {
				t.Fatalf("%s of %g is %#04x", f.name, v, got)
			}
			dist := math.Abs(f.value(got) - v)
			for _, other := range []uint16{got - 1, got + 1} {
				if other > f.infinity {
					continue
				}
				if d := math.Abs(f.value(other) - v); d < dist && got != f.infinity || d == dist && got&1 == 1 {
					t.Fatalf("%s of %g is %#04x, %#04x is nearer or even", f.name, v, got, other)
				}
			}
			if got == f.infinity && v < (f.value(got-1)+f.value(got))/2 {
				t.Fatalf("%s of %g is infinite", f.name, v)
			}
		}
	}
}
