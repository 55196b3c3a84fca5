package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ck/asm/half"
	"ck/internal/isa"
	"ck/internal/testkit"
)

// elemLens are lengths around the vectors' sizes and of real layers.
var elemLens = []int{0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 100, 255, 256, 257, 1009, 4096}

// special are values that go into every kind of input.
var special = []float32{0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1e-39, -1e-39, 65504, 65519.99, 65520, 5.9604645e-08, 2.9802322e-08}

func guardedRow(t testing.TB, r *rand.Rand, n int) []float32 {
	x := testkit.Guarded[float32](t, n)
	copy(x, randRow(r, n))
	return x
}

// ulp is the distance of neighbouring float32 at x.
func ulp(x float64) float64 {
	x = math.Abs(x)
	if x < 0x1p-126 {
		return 0x1p-149
	}
	_, e := math.Frexp(x)
	return math.Ldexp(1, e-24)
}

func within(t *testing.T, what string, i int, got float32, want, ulps, abs float64) {
	t.Helper()
	g := float64(got)
	if math.IsNaN(want) && math.IsNaN(g) || g == want {
		return
	}
	if e := math.Abs(g - want); !(e <= ulps*ulp(want)+abs) {
		t.Fatalf("%s: element %d: %g, want %g: %.2f ulp", what, i, got, want, e/ulp(want))
	}
}

// eachTier runs f with guarded inputs for every tier and length.
func eachTier(t *testing.T, f func(t *testing.T, tab *ElemTable, r *rand.Rand, n int)) {
	for _, tier := range vectorTiers() {
		for _, n := range elemLens {
			t.Run(fmt.Sprint(tier, "/n=", n), func(t *testing.T) {
				tab := elemOf(tier)
				f(t, &tab, rand.New(rand.NewPCG(7, uint64(n))), n)
			})
		}
	}
}

func TestElemAgainstFloat64(t *testing.T) {
	eachTier(t, func(t *testing.T, tab *ElemTable, r *rand.Rand, n int) {
		a, b, dst := guardedRow(t, r, n), guardedRow(t, r, n), testkit.Guarded[float32](t, n)
		const s = float32(0.7)
		check := func(what string, ulps float64, run func(), want func(x, y float64) float64) {
			t.Helper()
			run()
			for i, v := range dst {
				within(t, what, i, v, want(float64(a[i]), float64(b[i])), ulps, 0)
			}
		}
		check("Add", 0.5, func() { tab.Add(dst, a, b) }, func(x, y float64) float64 { return x + y })
		check("Mul", 0.5, func() { tab.Mul(dst, a, b) }, func(x, y float64) float64 { return x * y })
		check("Scale", 0.5, func() { tab.Scale(dst, a, s) }, func(x, y float64) float64 { return x * float64(s) })
		check("MulScale", 1.5, func() { tab.MulScale(dst, a, b, s) }, func(x, y float64) float64 { return x * float64(s) * y })
		check("MulScale without weights", 0.5, func() { tab.MulScale(dst, a, nil, s) }, func(x, y float64) float64 { return x * float64(s) })
		check("AddBias", 0.5, func() { copy(dst, a); tab.AddBias(dst, b) }, func(x, y float64) float64 { return x + y })

		// A sum of two roundings may cancel: the bound is relative to its terms.
		copy(dst, a)
		tab.AddScaled(dst, b, s)
		for i, v := range dst {
			x, y := float64(a[i]), float64(b[i])*float64(s)
			within(t, "AddScaled", i, v, x+y, 0.5, ulp(y))
		}

		sum := 0.0
		for _, x := range a {
			sum += float64(x) * float64(x)
		}
		if got := float64(tab.SumSquares(a)); math.Abs(got-sum) > sum*(float64(n)/16+5)*0x1p-24 {
			t.Fatalf("SumSquares: %g, want %g", got, sum)
		}
		if n == 0 {
			return
		}
		const eps = 1e-5
		norm := 1 / math.Sqrt(sum/float64(n)+float64(float32(eps)))
		tol := (float64(n)/32 + 5) * 1.0 // half of the sum's relative error, and the roundings
		check("RMSNorm", tol, func() { tab.RMSNorm(dst, a, b, eps) }, func(x, y float64) float64 { return x * norm * y })
		copy(dst, a)
		check("RMSNorm in place", tol, func() { tab.RMSNorm(dst, dst, nil, eps) }, func(x, y float64) float64 { return x * norm })
	})
}

func silu64(x float64) float64 {
	switch {
	case math.IsInf(x, -1): // times zero: what overflowed must show
		return math.NaN()
	case x > 0:
		return x / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return x * e / (1 + e)
}

func gelu64(x float64) float64 {
	if math.IsInf(x, -1) {
		return math.NaN()
	}
	return x * silu64(2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)) / (2 * math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x))
}

// gateInputs are all magnitudes that matter, both signs, and special values.
func gateInputs() []float32 {
	var x []float32
	for v := float32(1e-8); v < 400; v *= 1.0007 {
		x = append(x, v, -v)
	}
	return append(x, special...)
}

func TestGates(t *testing.T) {
	x := gateInputs()
	one := make([]float32, len(x))
	for i := range one {
		one[i] = 1
	}
	dst := make([]float32, len(x))
	for _, tier := range vectorTiers() {
		tab := elemOf(tier)
		tab.SiLUMul(dst, x, one)
		for i, v := range dst {
			within(t, fmt.Sprint(tier, ": silu of ", x[i]), i, v, silu64(float64(x[i])), 4, 0x1p-110)
		}
		tab.GELUMul(dst, x, one)
		for i, v := range dst {
			want := gelu64(float64(x[i]))
			if x[i] == 0 || x[i] == 1e-39 || x[i] == -1e-39 || x[i] == math.SmallestNonzeroFloat32 {
				want = float64(x[i]) / 2
			} else if x[i] > 1e10 {
				want = float64(x[i])
			} else if x[i] < -1e10 && !math.IsInf(float64(x[i]), -1) {
				want = 0
			}
			within(t, fmt.Sprint(tier, ": gelu of ", x[i]), i, v, want, 8, 0x1p-21*(1e-3))
		}
		tab.GELUErfMul(dst, x, nil)
		for i, v := range dst {
			want := float64(x[i]) * 0.5 * (1 + math.Erf(float64(x[i])/math.Sqrt2)) // cancels below -1
			if math.IsInf(float64(x[i]), -1) {
				want = math.NaN()
			}
			abs := 0.0
			if x[i] < -1 {
				abs = 1e-14
			}
			within(t, fmt.Sprint(tier, ": exact gelu of ", x[i]), i, v, want, 1, abs)
		}
		// Without a second factor it is one.
		for _, f := range []func(dst, g, u []float32){tab.SiLUMul, tab.GELUMul, tab.GELUErfMul} {
			again := make([]float32, len(x)-1)
			f(again, x[1:], nil)
			f(dst[1:], x[1:], one[1:])
			for i, v := range again {
				if v != dst[1+i] && v == v {
					t.Fatalf("%v: element %d of %g: %g without a factor, %g with 1", tier, i, x[1+i], v, dst[1+i])
				}
			}
		}
		// The second factor counts.
		two := []float32{3, 2, -1}
		tab.SiLUMul(dst[:3], two, []float32{0.5, -2, 4})
		for i, u := range []float64{0.5, -2, 4} {
			within(t, "silu times u", i, dst[i], silu64(float64(two[i]))*u, 5, 0)
		}
	}
}

func TestRope(t *testing.T) {
	for _, tier := range vectorTiers() {
		tab := elemOf(tier)
		for _, h := range []int{0, 1, 4, 15, 16, 17, 20, 32, 40, 48, 64, 128} {
			for _, neox := range []bool{false, true} {
				r := rand.New(rand.NewPCG(8, uint64(h)))
				x := guardedRow(t, r, 2*h+3)
				cos, sin := testkit.Guarded[float32](t, h), testkit.Guarded[float32](t, h)
				inv := make([]float64, h)
				for i := range inv {
					inv[i] = math.Pow(10000, -float64(i)/float64(h))
				}
				RopeAngles(cos, sin, 1234, inv, 1)
				in := slices.Clone(x)
				tab.Rope(x, cos, sin, neox)
				for i := range h {
					j, k := 2*i, 2*i+1
					if neox {
						j, k = i, i+h
					}
					sn, c := math.Sincos(1234 * inv[i])
					a, b := float64(in[j]), float64(in[k])
					what := fmt.Sprint(tier, " h=", h, " neox=", neox)
					abs := 2 * 0x1p-24 * (math.Abs(a) + math.Abs(b))
					within(t, what, j, x[j], a*c-b*sn, 0.5, abs)
					within(t, what, k, x[k], a*sn+b*c, 0.5, abs)
				}
				if !slices.Equal(x[2*h:], in[2*h:]) {
					t.Fatalf("%v: h=%d: elements beyond the rotated ones changed", tier, h)
				}
			}
		}
	}
}

// TestElemBits compares the bits of tiers: all tiers where no multiply-add is involved, avx2 and avx512 elsewhere.
func TestElemBits(t *testing.T) {
	tiers := vectorTiers()
	for _, n := range append([]int{2048}, elemLens...) {
		r := rand.New(rand.NewPCG(11, uint64(n)))
		a, b := randRow(r, n), randRow(r, n)
		for i := range a {
			if n > 1000 && i%3 == 0 {
				a[i] = special[r.IntN(len(special))]
			}
		}
		ops := []struct {
			name  string
			goToo bool
			run   func(tab *ElemTable, dst []float32)
		}{
			{"Add", true, func(t *ElemTable, d []float32) { t.Add(d, a, b) }},
			{"Mul", true, func(t *ElemTable, d []float32) { t.Mul(d, a, b) }},
			{"MulScale", true, func(t *ElemTable, d []float32) { t.MulScale(d, a, b, 0.3) }},
			{"AddScaled", false, func(t *ElemTable, d []float32) { copy(d, a); t.AddScaled(d, b, 0.3) }},
			{"RMSNorm", false, func(t *ElemTable, d []float32) { t.RMSNorm(d, b, a, 1e-6) }},
			{"SiLUMul", false, func(t *ElemTable, d []float32) { t.SiLUMul(d, a, b) }},
			{"GELUMul", false, func(t *ElemTable, d []float32) { t.GELUMul(d, a, b) }},
			{"Rope", false, func(t *ElemTable, d []float32) { copy(d, a); t.Rope(d, b[:n/2], a[:n/2], false) }},
			{"Rope neox", false, func(t *ElemTable, d []float32) { copy(d, a); t.Rope(d, b[:n/2], a[:n/2], true) }},
		}
		for _, op := range ops {
			var want []float32
			for _, tier := range tiers {
				if tier == isa.Go && !op.goToo {
					continue
				}
				tab := elemOf(tier)
				got := make([]float32, n)
				op.run(&tab, got)
				for i, v := range got {
					if v != v { // any NaN is a NaN
						got[i] = float32(math.NaN())
					}
				}
				if want == nil {
					want = got
				} else if !slices.Equal(bitsOf(want), bitsOf(got)) {
					t.Errorf("%s n=%d: %v has other bits", op.name, n, tier)
				}
			}
		}
	}
}

// TestElemOrder compares bits with the stated order of arithmetic: fma32 rounds once, but for results within 2^-29 of a tie.
func TestElemOrder(t *testing.T) {
	fma32 := func(x, y, z float32) float32 { return float32(float64(x)*float64(y) + float64(z)) }
	r := rand.New(rand.NewPCG(14, 14))
	for _, tier := range vectorTiers()[1:] {
		tab := elemOf(tier)
		for _, n := range []int{6, 16, 80, 1000} {
			x, c, s := randRow(r, n), randRow(r, n/2), randRow(r, n/2)
			var lanes [16]float32
			for i, v := range x {
				lanes[i%16] = fma32(v, v, lanes[i%16])
			}
			for w := 8; w > 0; w /= 2 {
				for i := range w {
					lanes[i] += lanes[i+w]
				}
			}
			if got := tab.SumSquares(x); got != lanes[0] {
				t.Errorf("%v n=%d: SumSquares: %g, want %g", tier, n, got, lanes[0])
			}
			for _, neox := range []bool{false, true} {
				got, want := slices.Clone(x), slices.Clone(x)
				tab.Rope(got, c, s, neox)
				for i := range c {
					j, k := 2*i, 2*i+1
					if neox {
						j, k = i, i+n/2
					}
					a, b := x[j], x[k]
					want[j], want[k] = fma32(a, c[i], -(b*s[i])), fma32(b, c[i], a*s[i])
				}
				if !slices.Equal(got, want) {
					t.Errorf("%v n=%d neox=%v: Rope has another order", tier, n, neox)
				}
			}
			y := randRow(r, n)
			got, want := slices.Clone(x), slices.Clone(x)
			tab.AddScaled(got, y, 0.3)
			for i := range want {
				want[i] = fma32(y[i], 0.3, want[i])
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v n=%d: AddScaled has another order", tier, n)
			}
		}
	}
}

func TestConversions(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	for _, tier := range vectorTiers() {
		tab := elemOf(tier)
		// Every 16-bit pattern widens as package quant says.
		h := make([]uint16, 1<<16)
		for i := range h {
			h[i] = uint16(i)
		}
		f := make([]float32, len(h))
		tab.F16ToF32(f, h)
		for i, v := range f {
			quiet := uint32(0)
			if v != v {
				quiet = 0x400000 // the rest of a NaN's payload is kept
			}
			if math.Float32bits(v) != math.Float32bits(half.F16ToF32(h[i]))|quiet {
				t.Fatalf("%v: half %#x became %g", tier, i, v)
			}
		}
		tab.BF16ToF32(f, h)
		for i, v := range f {
			if math.Float32bits(v) != math.Float32bits(half.BF16ToF32(h[i])) {
				t.Fatalf("%v: bfloat16 %#x became %g", tier, i, v)
			}
		}
		// Random patterns, ties and special values round as package quant says.
		for _, n := range append([]int{100000}, elemLens...) {
			x := testkit.Guarded[float32](t, n)
			for i := range x {
				switch i % 4 {
				case 0:
					x[i] = math.Float32frombits(r.Uint32())
				case 1:
					x[i] = math.Float32frombits(r.Uint32()&^0x1fff | 0x1000) // half way between halves, or bfloat16
				case 2:
					x[i] = float32(math.Ldexp(float64(r.Uint32()>>8), -24-int(r.Uint32()%36)))
				default:
					x[i] = special[r.IntN(len(special))]
				}
			}
			out := testkit.Guarded[uint16](t, n)
			tab.F32ToF16(out, x)
			for i, v := range out {
				if want := half.F32ToF16(x[i]); v != want {
					t.Fatalf("%v: %g (%#x) rounds to half %#x, want %#x", tier, x[i], math.Float32bits(x[i]), v, want)
				}
			}
			tab.F32ToBF16(out, x)
			for i, v := range out {
				if want := half.F32ToBF16(x[i]); v != want {
					t.Fatalf("%v: %g rounds to bfloat16 %#x, want %#x", tier, x[i], v, want)
				}
			}
		}
	}
}

// actBytes quantizes m rows of k elements in pieces and returns all memory of the Act.
func actBytes(t *testing.T, tier isa.Tier, kind ActKind, x [][]float32, pieces int) ([]byte, *Act) {
	m, k := len(x), len(x[0])
	mem := make([]byte, ActBytes(kind, AllSums, m, k)+64)
	for i := range mem {
		mem[i] = 0xee
	}
	a := MakeAct(kind, AllSums, mem[:ActBytes(kind, AllSums, m, k)], m, k)
	tab := elemOf(tier)
	for r, row := range x {
		for k0 := 0; k0 < k; {
			k1 := k
			if pieces > 1 {
				k1 = min(k, k0+256)
			}
			tab.Quantize(&a, r, k0, k1, row)
			k0 = k1
		}
	}
	for _, b := range mem[ActBytes(kind, AllSums, m, k):] {
		if b != 0xee {
			t.Fatalf("%v %v: wrote beyond its memory", tier, kind)
		}
	}
	return mem, &a
}

func TestQuantize(t *testing.T) {
	for _, kind := range []ActKind{ActBF16, ActQ8, ActQ8K} {
		for _, k := range []int{1, 31, 32, 33, 64, 96, 255, 256, 257, 700, 1088, 4096} {
			for _, hard := range []bool{false, true} {
				const m = 3
				r := rand.New(rand.NewPCG(13, uint64(k)))
				x := make([][]float32, m)
				for i := range x {
					x[i] = testkit.Guarded[float32](t, k)
					for j := range x[i] {
						x[i][j] = float32(r.NormFloat64() * math.Exp(4*r.NormFloat64()))
					}
				}
				if hard { // blocks that are tiny, zero, infinite, NaN
					for j := range x[1] {
						x[1][j] *= 1e-32
						x[2][j] *= 1e36
					}
					x[0][k/2] = special[k%len(special)]
					x[2][k-1] = float32(math.NaN())
				}
				want, a := actBytes(t, isa.Go, kind, x, 1)
				for _, tier := range vectorTiers() {
					for pieces := 1; pieces <= 2; pieces++ {
						got, _ := actBytes(t, tier, kind, x, pieces)
						if !slices.Equal(got, want) {
							t.Fatalf("%v %v k=%d hard=%v pieces=%d: other bytes than go", tier, kind, k, hard, pieces)
						}
					}
				}
				checkAct(t, a, x)
			}
		}
	}
}

// checkAct compares an Act with the definition in act.go.
func checkAct(t *testing.T, a *Act, x [][]float32) {
	t.Helper()
	at := func(r, j int) float32 {
		if j < a.K {
			return x[r][j]
		}
		return 0
	}
	if a.Kind == ActBF16 {
		for r := range a.M {
			for j := range a.Kp {
				if h := a.H[r*a.Kp+j]; h != half.F32ToBF16(at(r, j)) {
					t.Fatalf("bf16: row %d element %d of %d: %#x", r, j, a.K, h)
				}
			}
		}
		return
	}
	be := a.Kind.blockElems()
	for r := range a.M {
		for b := range a.Kp / be {
			amax, finite := 0.0, true
			for j := range be {
				v := math.Abs(float64(at(r, b*be+j)))
				amax = max(amax, v)
				finite = finite && v <= math.MaxFloat32
			}
			d := a.D[b*a.M+r]
			id := 127 / float32(amax)
			wantD := float32(amax) / 127
			if amax < 1e-30 {
				wantD = 0
			}
			if finite && d != wantD || !finite && d-d == 0 {
				t.Fatalf("%v: row %d block %d: d = %g, amax = %g", a.Kind, r, b, d, amax)
			}
			total, sums := int32(0), [16]int32{}
			for j := range be {
				want := int8(0)
				if finite && wantD != 0 {
					want = int8(math.RoundToEven(float64(at(r, b*be+j) * id)))
				}
				q := a.Q[r*a.Kp+b*be+j]
				if q != want {
					t.Fatalf("%v: row %d element %d: %d, want %d", a.Kind, r, b*be+j, q, want)
				}
				total += int32(q)
				sums[j/16] += int32(q)
			}
			i := b*a.M + r
			if a.Kind == ActQ8 {
				if a.N8[i] != -8*total || a.N16[i] != -16*total || a.N128[i] != -128*total || finite && a.SD[i] != d*float32(total) {
					t.Fatalf("q8: row %d block %d: sums are wrong", r, b)
				}
				continue
			}
			for j, s := range sums {
				if a.N32[(16*b+j)*a.M+r] != -32*s {
					t.Fatalf("q8k: row %d block %d: N32[%d] is wrong", r, b, j)
				}
			}
			for j := range 8 {
				if int32(a.P[8*i+j]) != sums[2*j]+sums[2*j+1] {
					t.Fatalf("q8k: row %d block %d: P[%d] is wrong", r, b, j)
				}
			}
		}
	}
}

func TestElemAllocatesNothing(t *testing.T) {
	for _, tier := range vectorTiers() {
		tab := elemOf(tier)
		x, w := make([]float32, 100), make([]float32, 100)
		mem := make([]byte, ActBytes(ActQ8, AllSums, 1, 100))
		a := MakeAct(ActQ8, AllSums, mem, 1, 100)
		if n := testing.AllocsPerRun(10, func() {
			tab.RMSNorm(x, x, w, 1e-5)
			tab.SiLUMul(x, x, w)
			tab.Rope(x, w[:20], w[20:40], true)
			tab.Quantize(&a, 0, 0, 100, x)
		}); n != 0 {
			t.Errorf("%v: %v allocations", tier, n)
		}
	}
}
