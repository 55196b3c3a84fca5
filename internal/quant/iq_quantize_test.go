package quant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ck/internal/testkit"
)

// quantizersIQ are the quantizers of the IQ types. The root mean square of the error of Gaussian elements is at most that part of the
// deviation, without importances and with equal ones.
var quantizersIQ = map[Type]struct {
	quantize        func(dst []byte, src, weights []float32)
	plain, weighted float64 // plain is 0 where importances are needed
}{
	IQ4_NL:  {quantizeIQ4_NL, 0.08, 0.08},
	IQ4_XS:  {quantizeIQ4_XS, 0.08, 0.08},
	IQ3_S:   {quantizeIQ3_S, 0.17, 0.14},
	IQ3_XXS: {quantizeIQ3_XXS, 0.22, 0.19},
	IQ2_S:   {quantizeIQ2_S, 0.28, 0.26},
	IQ2_XS:  {quantizeIQ2_XS, 0, 0.31},
	IQ2_XXS: {quantizeIQ2_XXS, 0, 0.36},
	IQ1_M:   {quantizeIQ1_M, 0.6, 0.47},
	IQ1_S:   {quantizeIQ1_S, 0, 0.5},
}

// typesIQ are these types in a fixed order.
var typesIQ = []Type{IQ4_NL, IQ4_XS, IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS, IQ1_M, IQ1_S}

// quantizeIQ quantizes twice, over different bytes and against guard pages, and wants the same bytes.
func quantizeIQ(t testing.TB, typ Type, src, weights []float32) []byte {
	t.Helper()
	x := testkit.Guarded[float32](t, len(src))
	copy(x, src)
	var w []float32
	if weights != nil {
		w = testkit.Guarded[float32](t, len(src))
		copy(w, weights)
	}
	first, second := testkit.Guarded[byte](t, typ.RowBytes(len(x))), testkit.Guarded[byte](t, typ.RowBytes(len(x)))
	for i := range first {
		first[i], second[i] = 0x5a, 0xa5
	}
	quantizersIQ[typ].quantize(first, x, w)
	quantizersIQ[typ].quantize(second, x, w)
	if !bytes.Equal(first, second) {
		t.Fatalf("%v: quantizing twice gives different bytes", typ)
	}
	return first
}

// TestQuantizeReferenceIQ quantizes the common input, without and with the importance matrix, and wants ggml's bytes.
func TestQuantizeReferenceIQ(t *testing.T) {
	dir, refs := references(t)
	input, imatrix := readF32(t, dir, "input.f32"), readF32(t, dir, "imatrix.f32")
	var each []float32
	for len(each) < len(input) {
		each = append(each, imatrix...)
	}
	compared := 0
	for _, r := range refs {
		q, ok := quantizersIQ[r.ID]
		if !ok {
			continue
		}
		if (q.plain == 0) != (r.Plain.Bytes == "") {
			t.Errorf("%v: the bound without importances is %g, the file %q", r.ID, q.plain, r.Plain.Bytes)
		}
		for file, w := range map[string][]float32{r.Plain.Bytes: nil, r.WithImatrix.Bytes: each} {
			if file == "" {
				continue
			}
			compared++
			want, got := read(t, dir, file), quantizeIQ(t, r.ID, input, w)
			differ := 0
			for i := range want {
				if got[i] != want[i] {
					if differ++; differ == 1 {
						t.Errorf("%s: byte %d (block %d, offset %d) is %#x, want %#x",
							file, i, i/r.BlockBytes, i%r.BlockBytes, got[i], want[i])
					}
				}
			}
			if differ > 1 {
				t.Errorf("%s: %d bytes of %d differ", file, differ, len(want))
			}
		}
	}
	if compared != 15 {
		t.Errorf("%d files compared, want 15: six types without and with importances, three with", compared)
	}
}

// rowsIQ are rows of 256 elements that are hard on searches of scales.
func rowsIQ() map[string][]float32 {
	rng := rand.New(rand.NewPCG(11, 12))
	zero := float32(math.Copysign(0, -1))
	out := map[string][]float32{}
	for name, f := range map[string]func(i int) float32{
		"zero":            func(int) float32 { return 0 },
		"negative zero":   func(int) float32 { return zero },
		"equal":           func(int) float32 { return 0.7 },
		"equal, negative": func(int) float32 { return -3.3 },
		"positive":        func(int) float32 { return rng.Float32() },
		"negative":        func(int) float32 { return -rng.Float32() },
		"ties":            func(i int) float32 { return float32(i*5%33-16) / 2 },
		"two magnitudes":  func(i int) float32 { return float32(i%2*2-1) * 0.3 },
		"one negative":    func(i int) float32 { return 1 - 2*float32(i%8/7) },
		"spike":           func(i int) float32 { return float32(i/255) * 100 },
		"spikes":          func(i int) float32 { return float32(i % 16 / 15 * (i%32/16*-2 + 1) * 100) },
		"all magnitudes":  func(i int) float32 { return float32(math.Ldexp(rng.NormFloat64(), i%140-135)) },
		"subnormal":       func(i int) float32 { return math.Float32frombits(uint32(i)*0x2001 + uint32(i%2)<<31) },
		"large":           func(int) float32 { return float32(rng.NormFloat64() * 300) },
	} {
		x := make([]float32, 256)
		for i := range x {
			x[i] = f(i)
		}
		out[name] = x
	}
	for k := -38; k < 46; k++ {
		x := make([]float32, 256)
		for i := range x {
			x[i] = float32(max(-3.4, min(3.4, rng.NormFloat64())) * math.Pow10(-k))
		}
		out[fmt.Sprintf("1e%d", -k)] = x
	}
	return out
}

// importancesIQ are importances of 256 elements that are hard on searches of scales, nil among them.
func importancesIQ() map[string][]float32 {
	rng := rand.New(rand.NewPCG(13, 14))
	out := map[string][]float32{"none": nil}
	for name, f := range map[string]func(i int) float32{
		"ones":      func(int) float32 { return 1 },
		"zeros":     func(int) float32 { return 0 },
		"few":       func(i int) float32 { return float32(i % 32 / 31) },
		"tiny":      func(int) float32 { return rng.Float32() * 1e-40 },
		"large":     func(int) float32 { return rng.Float32() * 1e15 },
		"scattered": func(int) float32 { return float32(math.Ldexp(rng.Float64(), rng.IntN(60)-30)) },
	} {
		w := make([]float32, 256)
		for i := range w {
			w[i] = f(i)
		}
		out[name] = w
	}
	return out
}

// wantHeld checks what a row decodes to: elements under 2000 remain finite, and a row whose elements are all under 1e-36 becomes zero.
func wantHeld(t *testing.T, typ Type, x []float32, b []byte, name string) {
	t.Helper()
	y := testkit.Guarded[float32](t, len(x))
	Decode(typ, y, b)
	top := largest(x)
	for i, v := range y {
		if v-v != 0 && top < 2000 || v != 0 && top < 1e-36 {
			t.Fatalf("%v, %s: element %d of %g becomes %g", typ, name, i, x[i], v)
		}
	}
}

// TestQuantizeOddIQ wants rows to be held; those of magnitudes that no scale in F16 holds must show it in the scale.
func TestQuantizeOddIQ(t *testing.T) {
	importances := importancesIQ()
	for name, x := range rowsIQ() {
		for importance, w := range importances {
			for typ, q := range quantizersIQ {
				if w == nil && q.plain == 0 {
					continue
				}
				what := name + ", importances " + importance
				b := quantizeIQ(t, typ, x, w)
				wantHeld(t, typ, x, b, what)
				if importance != "none" && importance != "ones" {
					continue
				}
				y := make([]float32, len(x))
				Decode(typ, y, b)
				if largest(x) > 1e10 && squares(y)-squares(y) == 0 && largest(y) < 1e9 {
					t.Errorf("%v, %s: nothing shows that the scale overflows", typ, what)
				}
				if name != "equal" && name != "equal, negative" && name != "two magnitudes" {
					continue
				}
				var sum float64
				for i, v := range y {
					sum += math.Pow(float64(v/x[i]-1), 2) / 256
				}
				if !(sum < 0.35*0.35) {
					t.Errorf("%v, %s: the error is %.2f of the elements", typ, what, math.Sqrt(sum))
				}
			}
		}
	}
}

// TestQuantizeBoundsIQ bounds the error of Gaussian elements.
func TestQuantizeBoundsIQ(t *testing.T) {
	x, ones := make([]float32, 1<<14), make([]float32, 1<<14)
	gaussian(x, rand.New(rand.NewPCG(15, 16)), 0.02)
	for i := range ones {
		ones[i] = 1
	}
	y := make([]float32, len(x))
	for typ, q := range quantizersIQ {
		for _, c := range []struct {
			w     []float32
			bound float64
		}{{nil, q.plain}, {ones, q.weighted}} {
			if c.bound == 0 {
				continue
			}
			Decode(typ, y, quantizeIQ(t, typ, x, c.w))
			var sum float64
			for i, v := range x {
				sum += float64(v-y[i]) * float64(v-y[i])
			}
			if rms := math.Sqrt(sum/float64(len(x))) / 0.02; !(rms <= c.bound && rms > 0.9*c.bound) {
				t.Errorf("%v, importances %v: error %.4f, want %.4f or a tenth less", typ, c.w != nil, rms, c.bound)
			}
		}
	}
}

// TestQuantizePiecesIQ wants the bytes of a row to be those of its blocks.
func TestQuantizePiecesIQ(t *testing.T) {
	x, w := make([]float32, 1024), make([]float32, 1024)
	rng := rand.New(rand.NewPCG(17, 18))
	gaussian(x, rng, 1)
	for i := range w {
		w[i] = rng.Float32()
	}
	for typ, q := range quantizersIQ {
		whole := quantizeIQ(t, typ, x, w)
		var pieces []byte
		for i := 0; i < len(x); i += typ.BlockElems() {
			pieces = append(pieces, quantizeIQ(t, typ, x[i:][:typ.BlockElems()], w[i:][:typ.BlockElems()])...)
		}
		if !bytes.Equal(whole, pieces) {
			t.Errorf("%v: the bytes of the row are not those of its blocks", typ)
		}
		dst := make([]byte, len(whole))
		if n := testing.AllocsPerRun(3, func() { q.quantize(dst, x, w) }); n != 0 {
			t.Errorf("%v: quantizing allocates %g times", typ, n)
		}
	}
}

// TestNeighbours compares lists with the definition: all points at the smallest distances, by distance, then by number.
func TestNeighbours(t *testing.T) {
	for name, c := range map[string]struct {
		g         *lattice
		distances int
	}{
		"IQ1": {latticeIQ1(), 3}, "IQ2_XXS": {latticeIQ2XXS(), 2}, "IQ2_XS": {latticeIQ2XS(), 2}, "IQ2_S": {latticeIQ2S(), 1},
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
			last, steps := int(list[0]), 1
			for _, p := range list[1:] {
				switch a, b := distance(last), distance(int(p)); {
				case a < b:
					steps++
				case a > b || last >= int(p):
					t.Fatalf("%s: point %d comes before %d in the list of code %#x", name, last, p, code)
				}
				last = int(p)
			}
			within := 0
			for p := range len(g.levels) / g.dim {
				if distance(p) <= distance(last) {
					within++
				}
			}
			if within != len(list) || steps != c.distances {
				t.Fatalf("%s: code %#x has %d points of %d, %d distances of %d", name, code, len(list), within, steps, c.distances)
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

// FuzzQuantizeIQ quantizes arbitrary finite floats to every IQ type, without and with importances. Each byte of importances is one, from
// 0 to 2^32; they are repeated as far as needed.
func FuzzQuantizeIQ(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for n, typ := range typesIQ {
		for _, sigma := range []float32{1, 1e-7, 1e-37} {
			x := make([]float32, typ.BlockElems())
			gaussian(x, rand.New(rand.NewPCG(uint64(n), 19)), sigma)
			b := make([]byte, 4*len(x))
			for i, v := range x {
				binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
			}
			f.Add(uint32(n), b, []byte{})
			f.Add(uint32(n), b, []byte{0x80, 0x81, 0x8f, 0x7f, 0x91})
		}
	}
	f.Fuzz(func(t *testing.T, n uint32, b, importances []byte) {
		typ := typesIQ[n%uint32(len(typesIQ))]
		x := make([]float32, typ.BlockElems()*min(max(1, len(b)/4/typ.BlockElems()), 2))
		for i := range min(len(x), len(b)/4) {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])); v-v == 0 {
				x[i] = v
			}
		}
		var w []float32
		if quantizersIQ[typ].plain == 0 && len(importances) == 0 {
			importances = []byte{0x81}
		}
		if len(importances) > 0 {
			w = make([]float32, len(x))
			for i := range w {
				c := importances[i%len(importances)]
				w[i] = float32(math.Ldexp(float64(c&15), int(c>>4)*4-32))
			}
		}
		wantHeld(t, typ, x, quantizeIQ(t, typ, x, w), "fuzzed")
	})
}

func BenchmarkQuantizeIQ(b *testing.B) {
	src, w := make([]float32, 1<<12), make([]float32, 1<<12)
	gaussian(src, rand.New(rand.NewPCG(1, 2)), 1)
	for i := range w {
		w[i] = 1 + float32(i%7)
	}
	for _, typ := range typesIQ {
		q := quantizersIQ[typ]
		b.Run("type="+typ.String(), func(b *testing.B) {
			dst := make([]byte, typ.RowBytes(len(src)))
			b.SetBytes(4 << 12) // of input
			for b.Loop() {
				q.quantize(dst, src, w)
			}
		})
	}
}
