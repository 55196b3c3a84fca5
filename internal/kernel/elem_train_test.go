package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ck/asm/elem"
	"ck/asm/half"
	"ck/internal/testkit"
)

// A step of AdamW has the bits of float32 arithmetic in the stated order, on all tiers, also where numbers are special; and is within
// rounding of float64.
func TestAdamW(t *testing.T) {
	k := elem.AdamW{Scale: 0.75, Beta1: 0.9, Beta2: 0.95, Rest1: 0.1, Rest2: 0.05, Rate: 1e-2, Root: 1.25, Eps: 1e-6, Keep: 0.99}
	eachTier(t, func(t *testing.T, tab *ElemTable, r *rand.Rand, n int) {
		x, m, v, g := guardedRow(t, r, n), guardedRow(t, r, n), guardedRow(t, r, n), guardedRow(t, r, n)
		for i := range v {
			v[i] *= v[i]
		}
		x0, m0, v0 := slices.Clone(x), slices.Clone(m), slices.Clone(v)
		tab.AdamW(&k, x, m, v, g)
		for i := range x {
			s := float32(g[i] * k.Scale)
			a := float32(m0[i]*k.Beta1) + float32(s*k.Rest1)
			b := float32(v0[i]*k.Beta2) + float32(float32(s*s)*k.Rest2)
			den := float32(float32(math.Sqrt(float64(b)))*k.Root) + k.Eps
			want := float32(x0[i]*k.Keep) - float32(float32(a*k.Rate)/den)
			if m[i] != a || v[i] != b || x[i] != want {
				t.Fatalf("element %d: %g, %g, %g, want %g, %g, %g", i, x[i], m[i], v[i], want, a, b)
			}
			wide := float64(x0[i])*0.99 - 1e-2*float64(a)/(math.Sqrt(float64(b))*1.25+1e-6)
			within(t, "AdamW", i, x[i], wide, 8, 1e-8)
		}
	})
}

func TestPairBF16(t *testing.T) {
	eachTier(t, func(t *testing.T, tab *ElemTable, r *rand.Rand, n int) {
		a, b, dst := guardedRow(t, r, n), guardedRow(t, r, n), testkit.Guarded[uint32](t, n)
		for i := range a {
			if i%5 == 0 {
				a[i] = special[r.IntN(len(special))]
			}
			if i%7 == 0 {
				b[i] = special[r.IntN(len(special))]
			}
		}
		tab.PairBF16(dst, a, b)
		for i, got := range dst {
			if want := uint32(half.F32ToBF16(a[i])) | uint32(half.F32ToBF16(b[i]))<<16; got != want {
				t.Fatalf("element %d: %g, %g: %08x, want %08x", i, a[i], b[i], got, want)
			}
		}
	})
}

// The greatest is found at every place, also of numbers below zero.
func TestMax(t *testing.T) {
	eachTier(t, func(t *testing.T, tab *ElemTable, r *rand.Rand, n int) {
		x := testkit.Guarded[float32](t, n)
		for i := range x {
			x[i] = -2 - r.Float32()
		}
		for i, old := range x {
			if n > 200 && i > 40 && i < n-40 {
				continue
			}
			x[i] = -1
			if got := tab.Max(x); got != -1 {
				t.Fatalf("with -1 at %d of %d Max is %g", i, n, got)
			}
			x[i] = old
		}
	})
}

// Results below 2^-125 are zero, those above are not.
func TestExpTiny(t *testing.T) {
	eachTier(t, func(t *testing.T, tab *ElemTable, r *rand.Rand, n int) {
		a, dst := testkit.Guarded[float32](t, n), testkit.Guarded[float32](t, n)
		for i := range a {
			a[i] = float32(-math.Ln2 * (124.5 + float64(i%2)))
		}
		tab.Exp(dst, a, 0)
		for i, got := range dst {
			if (got == 0) != (i%2 == 1) {
				t.Fatalf("e^%g is %g", a[i], got)
			}
		}
	})
}

func TestExp(t *testing.T) {
	eachTier(t, func(t *testing.T, tab *ElemTable, r *rand.Rand, n int) {
		if n == 0 {
			return
		}
		a, dst := guardedRow(t, r, n), testkit.Guarded[float32](t, n)
		for i := range a {
			a[i] *= float32(math.Exp(4 * r.Float64()))
		}
		top := tab.Max(a)
		if want := slices.Max(a); top != want {
			t.Fatalf("Max is %g, want %g", top, want)
		}
		if n > 3 {
			a[n/2], a[n/3], a[n-1], a[0] = float32(math.Inf(-1)), float32(math.NaN()), top-200, top+0.09
		}
		tab.Exp(dst, a, top)
		for i, got := range dst {
			within(t, "Exp", i, got, math.Exp(float64(a[i]-top)), 2, 0x1p-124)
		}
		sum, squares := 0.0, 0.0
		b := guardedRow(t, r, n)
		var lanes, lanes2 [16]float64
		for i, x := range b {
			lanes[i%16] += float64(x)
			lanes2[i%16] += float64(x) * float64(x)
		}
		for w := 8; w > 0; w /= 2 {
			for i := range w {
				lanes[i] += lanes[i+w]
				lanes2[i] += lanes2[i+w]
			}
		}
		sum, squares = tab.Sum64(b), tab.SumSquares64(b)
		if sum != lanes[0] || squares != lanes2[0] {
			t.Fatalf("sums %g, %g, want %g, %g", sum, squares, lanes[0], lanes2[0])
		}
	})
}
