package quant

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// quantizers are the types with blocks that can be quantized to.
func quantizers() (types []Type) {
	for _, typ := range known() {
		if r := typ.row(); r.quantize != nil && r.elems > 1 {
			types = append(types, typ)
		}
	}
	return types
}

// takes reports whether the type can be quantized with this importance matrix or none and does not ignore it.
func takes(typ Type, imatrix []float32) bool {
	return typ.row().imatrix != noImatrix && imatrix != nil || typ.row().imatrix != needsImatrix && imatrix == nil
}

// quantize quantizes twice, over different bytes and against guard pages, and wants the same outcome.
func quantize(t testing.TB, typ Type, src, imatrix []float32) ([]byte, error) {
	t.Helper()
	x := testkit.Guarded[float32](t, len(src))
	copy(x, src)
	first, second := testkit.Guarded[byte](t, typ.RowBytes(len(x))), testkit.Guarded[byte](t, typ.RowBytes(len(x)))
	for i := range first {
		first[i], second[i] = 0x5a, 0xa5
	}
	err, again := Quantize(typ, first, x, imatrix), Quantize(typ, second, x, imatrix)
	if (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
		t.Fatalf("%v: error %v, then %v", typ, err, again)
	}
	if err == nil && !bytes.Equal(first, second) {
		t.Fatalf("%v: quantizing twice gives different bytes", typ)
	}
	return first, err
}

// TestQuantizeReference quantizes the common input, without and with the importance matrix, and wants ggml's bytes;
// where there is no file with the matrix, those without.
func TestQuantizeReference(t *testing.T) {
	dir, refs := references(t)
	input, imatrix := readF32(t, dir, "input.f32"), readF32(t, dir, "imatrix.f32")
	compared := 0
	for _, r := range refs {
		use := mayImatrix
		switch {
		case r.WithImatrix.Bytes == "":
			use, r.WithImatrix = noImatrix, r.Plain
		case r.Plain.Bytes == "":
			use = needsImatrix
		}
		if got := r.ID.row().imatrix; got != use {
			t.Errorf("%v: the table says %d of the imatrix, the files %d", r.ID, got, use)
		}
		for _, c := range []struct {
			how, file string
			imatrix   []float32
		}{{"without imatrix", r.Plain.Bytes, nil}, {"with imatrix", r.WithImatrix.Bytes, imatrix}} {
			if c.file == "" {
				continue
			}
			compared++
			got, err := quantize(t, r.ID, input, c.imatrix)
			if err != nil {
				t.Errorf("%v %s: %v", r.ID, c.how, err)
				continue
			}
			for set, w := range encoderSets() {
				sameAsQuantize(t, set+", "+c.how, newEncoder(r.ID, w), input, c.imatrix)
			}
			want := read(t, dir, c.file)
			if len(got) != len(want) {
				t.Fatalf("%v: %d bytes, want %d", r.ID, len(got), len(want))
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%v %s: byte %d (block %d, offset %d) is %#x, want %#x",
						r.ID, c.how, i, i/r.BlockBytes, i%r.BlockBytes, got[i], want[i])
					break
				}
			}
		}
	}
	if compared != 55 {
		t.Errorf("%d outputs compared, want 55", compared)
	}
}

func TestQuantizeF32(t *testing.T) {
	src := []float32{0, float32(math.Copysign(0, -1)), 1.5, float32(math.Inf(-1)), 1e-45, math.MaxFloat32}
	dst, back := make([]byte, 4*len(src)), make([]float32, len(src))
	if err := Quantize(F32, dst, src, nil); err != nil {
		t.Fatal(err)
	}
	Decode(F32, back, dst)
	for i := range src {
		if math.Float32bits(back[i]) != math.Float32bits(src[i]) {
			t.Errorf("%g became %g", src[i], back[i])
		}
	}
}

// TestQuantizeErrors wants errors that name the element or its block. 4e9 has a scale that overflows F16 in every
// type with one.
func TestQuantizeErrors(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, typ := range quantizers() {
		var imatrix []float32
		if typ.row().imatrix == needsImatrix {
			imatrix = slices.Repeat([]float32{1}, 768)
		}
		bad := []float32{float32(math.NaN()), inf, -inf}
		if typ.row().halves != nil {
			bad = append(bad, 3e38, -3e38, 1e30, 4e9, -4e9)
		}
		dst := make([]byte, typ.RowBytes(768))
		for _, v := range bad {
			src := make([]float32, 768)
			src[300], src[301] = v, v*1e-10 // with the square of the second, if finite, sums are no numbers
			block := "elements " + strconv.Itoa(300/typ.BlockElems()*typ.BlockElems()) + " to "
			err := Quantize(typ, dst, src, imatrix)
			if err == nil || !strings.Contains(err.Error(), "element 300 ") && !strings.HasPrefix(err.Error(),
				block) {
				t.Errorf("%v of %g: error %v does not name element 300", typ, v, err)
			}
		}
	}
	err := Quantize(I8, make([]byte, 1), make([]float32, 1), nil)
	text := err.Error()
	if !strings.Contains(text, "I8") || !strings.Contains(text, "Q6_K, ") || strings.Contains(text, "I16") {
		t.Errorf("error of I8 does not list the types: %v", err)
	}
}

// TestQuantizeImatrixErrors wants errors of importance matrices that do not fit, and of none where one is needed.
func TestQuantizeImatrixErrors(t *testing.T) {
	with := func(i int, v float32) []float32 {
		w := slices.Repeat([]float32{1}, 512)
		w[i] = v
		return w
	}
	for _, c := range []struct {
		imatrix []float32
		err     string
	}{
		{with(5, 0), ""},
		{with(5, 0)[:256], ""},
		{with(5, 0)[:255], "255 values"},
		{with(5, 0)[:384], "384 values"},
		{slices.Repeat([]float32{1}, 1024), "1024 values"},
		{[]float32{}, "0 values"},
		{with(5, -1), "value 5 "},
		{with(511, float32(math.NaN())), "value 511 "},
		{with(0, float32(math.Inf(1))), "value 0 "},
	} {
		for _, typ := range quantizers() {
			err := Quantize(typ, make([]byte, typ.RowBytes(512)), make([]float32, 512), c.imatrix)
			want := c.err
			if typ.row().imatrix == noImatrix {
				want = ""
			}
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%v with %d values: error %v, want one with %q", typ, len(c.imatrix), err, want)
			}
		}
	}
	saved := table[IQ2_XXS].quantize
	t.Cleanup(func() { table[IQ2_XXS].quantize = saved })
	table[IQ2_XXS].quantize = func([]byte, []float32, []float32) {
		t.Error("IQ2_XXS is quantized without " +
			"importances")
	}
	err := Quantize(IQ2_XXS, make([]byte, 66), make([]float32, 256), nil)
	if err == nil || !strings.Contains(err.Error(), "needs an importance matrix") {
		t.Errorf("IQ2_XXS without an importance matrix: error %v", err)
	}
}

// TestQuantizeTiny wants zeros of blocks whose scale has no finite reciprocal.
func TestQuantizeTiny(t *testing.T) {
	for _, typ := range quantizers() {
		n := typ.BlockElems()
		src, back := make([]float32, n), make([]float32, n)
		for i := range src {
			src[i] = float32(i-n/2) * 1e-44
		}
		for _, imatrix := range [][]float32{nil, slices.Repeat([]float32{1}, n)} {
			if !takes(typ, imatrix) {
				continue
			}
			dst, err := quantize(t, typ, src, imatrix)
			if err != nil {
				t.Fatal(err)
			}
			Decode(typ, back, dst)
			for i, v := range back {
				if v != 0 {
					t.Fatalf("%v: element %d of %g becomes %g", typ, i, src[i], v)
				}
			}
		}
	}
}

// oddRows are rows of 512 elements that are hard on searches of scales.
func oddRows() map[string][]float32 {
	var rng *rand.Rand
	zero := float32(math.Copysign(0, -1))
	rows := map[string]func(i int) float32{
		"zero":              func(int) float32 { return 0 },
		"negative zero":     func(int) float32 { return zero },
		"zeros":             func(i int) float32 { return float32(i%3-1) * zero },
		"equal":             func(int) float32 { return 0.7 },
		"equal, negative":   func(int) float32 { return -3.3 },
		"nearly equal":      func(i int) float32 { return math.Float32frombits(0x447a0000 + uint32(i*7%5)) },
		"nearly equal, neg": func(i int) float32 { return -math.Float32frombits(0x447a0000 + uint32(i*7%5)) },
		"positive":          func(int) float32 { return float32(math.Abs(rng.NormFloat64())) },
		"negative":          func(int) float32 { return -float32(math.Abs(rng.NormFloat64())) },
		"ties":              func(i int) float32 { return float32(i*5%33-16) / 2 },
		"two magnitudes":    func(i int) float32 { return float32(i%2*2-1) * 0.3 },
		"spike":             func(i int) float32 { return float32(i%256/255) * 100 },
		"spikes":            func(i int) float32 { return float32(i % 16 / 15 * (i%32/16*-2 + 1) * 100) },
		"around nothing":    func(i int) float32 { return float32(i%31-15) * 1e-16 },
		"subnormal":         func(i int) float32 { return math.Float32frombits(uint32(i)*0x2001 + uint32(i%2)<<31) },
		"all magnitudes":    func(i int) float32 { return float32(math.Ldexp(rng.NormFloat64(), i%140-135)) },
		"large":             func(int) float32 { return float32(rng.NormFloat64() * 300) },
		"too large":         func(int) float32 { return float32(rng.NormFloat64() * 1e8) },
		"huge":              func(int) float32 { return float32(rng.NormFloat64() * 1e37) },
		"largest":           func(i int) float32 { return float32(i%2*2-1) * 3.4e38 },
	}
	for k := 12; k < 46; k += 3 {
		rows["1e-"+strconv.Itoa(k)] = func(int) float32 { return float32(rng.NormFloat64() * math.Pow10(-k)) }
	}
	out := map[string][]float32{}
	for name, f := range rows {
		rng, out[name] = rand.New(rand.NewPCG(9, 10)), make([]float32, 512)
		for i := range out[name] {
			out[name][i] = f(i)
		}
	}
	return out
}

// oddImatrices are importances of 512 columns that are hard on searches of scales.
func oddImatrices() map[string][]float32 {
	var rng *rand.Rand
	out := map[string][]float32{"none": nil}
	for name, f := range map[string]func(i int) float32{
		"ones":      func(int) float32 { return 1 },
		"zeros":     func(int) float32 { return 0 },
		"few":       func(i int) float32 { return float32(i % 32 / 31) },
		"uniform":   func(int) float32 { return rng.Float32() },
		"tiny":      func(int) float32 { return rng.Float32() * 1e-40 },
		"large":     func(int) float32 { return rng.Float32() * 1e15 },
		"huge":      func(int) float32 { return rng.Float32() * 3e38 },
		"scattered": func(int) float32 { return float32(math.Ldexp(rng.Float64(), rng.IntN(60)-30)) },
	} {
		rng, out[name] = rand.New(rand.NewPCG(9, 10)), make([]float32, 512)
		for i := range out[name] {
			out[name][i] = f(i)
		}
	}
	return out
}

// TestQuantizeOdd wants finite elements of odd rows or an error, and no error of magnitudes that every type holds.
func TestQuantizeOdd(t *testing.T) {
	imatrices := oddImatrices()
	for name, x := range oddRows() {
		holds := !slices.ContainsFunc(x, func(v float32) bool { return abs(v) > 2000 })
		for importance, imatrix := range imatrices {
			for _, typ := range quantizers() {
				if !takes(typ, imatrix) {
					continue
				}
				b, err := quantize(t, typ, x, imatrix)
				if err != nil {
					if holds && importance != "huge" {
						t.Errorf("%v of %s, importances %s: %v", typ, name, importance, err)
					}
					continue
				}
				y := make([]float32, len(x))
				Decode(typ, y, b)
				if i := slices.IndexFunc(y, func(v float32) bool { return v-v != 0 }); i >= 0 {
					t.Errorf("%v of %s, importances %s: element %d of %g becomes %g", typ, name, importance, i, x[i],
						y[i])
				}
			}
		}
	}
}

// TestQuantizePieces quantizes block by block, and with an importance matrix row by row, and wants the bytes of all
// at once.
func TestQuantizePieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	x, imatrix := make([]float32, 4096), make([]float32, 1024)
	gaussian(x, rng, 0.05)
	for i := range imatrix {
		imatrix[i] = rng.Float32()
	}
	for _, typ := range quantizers() {
		for _, c := range []struct {
			piece   int
			imatrix []float32
		}{{typ.BlockElems(), nil}, {1024, imatrix}} {
			if !takes(typ, c.imatrix) {
				continue
			}
			whole, err := quantize(t, typ, x, c.imatrix)
			if err != nil {
				t.Fatal(err)
			}
			var pieces []byte
			for i := 0; i < len(x); i += c.piece {
				b, err := quantize(t, typ, x[i:i+c.piece], c.imatrix)
				if err != nil {
					t.Fatal(err)
				}
				pieces = append(pieces, b...)
			}
			if !bytes.Equal(pieces, whole) {
				t.Errorf("%v in pieces of %d elements: other bytes", typ, c.piece)
			}
		}
	}
}

// errorBounds are, of gaussian elements, the root mean square of the error in parts of that of the elements, and the
// largest error in parts of the largest magnitude of the block.
var errorBounds = map[Type]struct{ rms, largest float64 }{
	Q4_0: {0.0861, 0.126}, Q4_1: {0.0781, 0.112}, Q5_0: {0.0427, 0.063}, Q5_1: {0.0377, 0.038},
	Q8_0: {0.0053, 0.004}, Q8_1: {0.0053, 0.004}, Q8_K: {0.0069, 0.004},
	Q2_K: {0.2960, 0.353}, Q3_K: {0.1508, 0.203}, Q4_K: {0.0714, 0.084}, Q5_K: {0.0361, 0.047}, Q6_K: {0.0177, 0.024},
	TQ1_0: {0.8059, 0.500}, TQ2_0: {0.8059, 0.500}, Q1_0: {0.6011, 0.801}, Q2_0: {0.7210, 0.500},
	MXFP4: {0.1162, 0.249}, NVFP4: {0.0950, 0.169},
	IQ4_NL: {0.0759, 0.131}, IQ4_XS: {0.0765, 0.111}, IQ3_XXS: {0.2121, 0.468}, IQ3_S: {0.1657, 0.348},
	IQ2_XXS: {0.3461, 0.532}, IQ2_XS: {0.3020, 0.494}, IQ2_S: {0.2668, 0.457}, IQ1_S: {0.4897, 0.756},
	IQ1_M: {0.5795, 1.076},
}

// TestQuantizeBounds quantizes gaussian rows and wants errors near what they are for the type; an importance matrix
// lowers them a little.
func TestQuantizeBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	x, y, imatrix := make([]float32, 1<<15), make([]float32, 1<<15), make([]float32, 1024)
	gaussian(x, rng, 0.7)
	for i := range imatrix {
		imatrix[i] = 0.5 + rng.Float32()
	}
	for _, typ := range quantizers() {
		bound := errorBounds[typ]
		for _, w := range [][]float32{nil, imatrix} {
			if !takes(typ, w) {
				continue
			}
			b, err := quantize(t, typ, x, w)
			if err != nil {
				t.Fatal(err)
			}
			Decode(typ, y, b)
			var squares, of, largest float64
			n := typ.BlockElems()
			for i := range x {
				diff := float64(y[i]) - float64(x[i])
				squares += diff * diff
				of += float64(x[i]) * float64(x[i])
				largest = max(largest, math.Abs(diff)/float64(abs(extreme(x[i/n*n:][:n]))))
			}
			rms := math.Sqrt(squares / of)
			if rms > bound.rms*1.05 || rms < bound.rms/1.3 || largest > bound.largest*1.1 {
				t.Errorf("%v: error %.4f of the elements, at most %.3f of the largest; want %.4f, %.3f",
					typ, rms, largest, bound.rms, bound.largest)
			}
		}
	}
}

// trialRow makes row r of the input of TestQuantizeSums, and importances. They are made of integers, to be the same
// on every machine: bells, heavy tails, ties, one sign, nearly equal elements, spikes, and magnitudes near where
// searches see nothing; importances of which all, an eighth or one of 32 are not 0.
func trialRow(rng *rand.Rand, r int) (x, imatrix []float32) {
	x, imatrix = make([]float32, 512), make([]float32, 512)
	for i := range x {
		u := rng.Uint64()
		bell := int32(u&0xffff+u>>16&0xffff+u>>32&0xffff+u>>48) - 0x1fffe
		v := float32(bell) / 0x8000
		switch r % 8 {
		case 1:
			v *= float32(v*v) * 8
		case 2:
			v = float32(bell >> 14)
		case 3:
			v = abs(v)
		case 4:
			v = float32(1<<24-(bell&7)) / 0x4000 * float32(1-r/8%2*2)
		case 5:
			v *= float32(int32(1)<<(i/32%16)) / 0x4000
		case 6:
			v *= float32(u>>7%16) / 8 * float32(u>>11%8/7)
		case 7:
			v *= 0x1p-46 / float32(int32(1)<<(i/64))
		}
		x[i] = v
		w := rng.Uint32()
		switch r / 8 % 3 {
		case 1:
			w *= w >> 8 % 8 / 7
		case 2:
			w *= uint32(i % 32 / 31)
		}
		imatrix[i] = float32(w>>16) / 0x1000
	}
	return x, imatrix
}

// quantizeSums are the sums of what ggml writes of the rows of TestQuantizeSums (quantize_* of ggml-quants.c,
// baseline x86-64).
var quantizeSums = map[Type]uint64{
	Q4_0:  0xb63be23e38cf7586,
	Q4_1:  0x21a4589a183572bf,
	Q5_0:  0x1a57bf54573b63cb,
	Q5_1:  0x6afbaf98b75a1fe5,
	Q8_0:  0x0b89c2c027666f68,
	Q8_1:  0x564b19dace0c4626,
	Q2_K:  0x1fbd0da9e50efbcf,
	Q3_K:  0xf74e6ba0792db7a7,
	Q4_K:  0x51199b81fc2aaa5b,
	Q5_K:  0x2dcef84643c303b0,
	Q6_K:  0xf814fb40c667e783,
	Q8_K:  0xcd6e80a0fa88b107,
	TQ1_0: 0x6030093e11b68496,
	TQ2_0: 0x7664d17c4200fba9,
	MXFP4: 0xbf4f08b82a42b6e9,
	NVFP4: 0x29db1fdc61eabcc5,
	Q1_0:  0x55e81565e5b404b1,
	Q2_0:  0xd2b4043461f644bc,
}

// TestQuantizeSums quantizes more rows than the reference data have and compares the FNV-1a sum of the bytes, without
// and with importances, with that of the bytes that ggml writes.
func TestQuantizeSums(t *testing.T) {
	for typ, want := range quantizeSums {
		rng, h := rand.New(rand.NewPCG(17, 18)), fnv.New64a()
		for r := range 384 {
			x, imatrix := trialRow(rng, r)
			for _, w := range [][]float32{nil, imatrix} {
				if !takes(typ, w) {
					continue
				}
				b, err := quantize(t, typ, x, w)
				if err != nil {
					t.Fatalf("%v, row %d: %v", typ, r, err)
				}
				h.Write(b)
			}
		}
		if got := h.Sum64(); got != want {
			t.Errorf("%v: sum is %#016x, want %#016x", typ, got, want)
		}
	}
}

// TestQuantizeMXFP4Scale wants the exponents of largest magnitudes. Just below a power of two the logarithm is that
// power.
func TestQuantizeMXFP4Scale(t *testing.T) {
	for _, c := range []struct {
		top  float32
		want byte
	}{
		{0, 0}, {1e-45, 0}, {0x1.8p-126, 0}, {0x1p-125, 0}, {0x1p-124, 1}, {0x1.fp-1, 124}, {1, 125},
		{0x1.fffffep0, 125}, {0x1.fffffep1, 126},
		{0x1.fffffep2, 128}, {0x1.fffffcp2, 127}, {-0x1.fffffep2, 128}, {0x1.fffffep-3, 123}, {0x1.fffffep-2, 123},
		{math.MaxFloat32, 253},
	} {
		x := make([]float32, 32)
		x[7] = c.top
		if b, err := quantize(t, MXFP4, x, nil); err != nil || b[0] != c.want {
			t.Errorf("exponent of %g is %d, want %d (error %v)", c.top, b[0], c.want, err)
		}
	}
}

// TestRequantize quantizes what quantized blocks decode to, and wants the same bytes. It holds where the extreme
// element has the extreme code, which is so after quantizing: then scale and codes come back exactly.
func TestRequantize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 32*2000)
	for _, sigma := range []float32{1e-4, 0.02, 1, 1000} {
		gaussian(x, rng, sigma)
		for _, typ := range []Type{Q8_0, Q4_0, Q5_0, TQ1_0, TQ2_0, F16, BF16} {
			first, second := make([]byte, typ.RowBytes(len(x))), make([]byte, typ.RowBytes(len(x)))
			y := make([]float32, len(x))
			if err := Quantize(typ, first, x, nil); err != nil {
				t.Fatal(err)
			}
			Decode(typ, y, first)
			if err := Quantize(typ, second, y, nil); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, second) {
				t.Errorf("%v, sigma %g: bytes differ", typ, sigma)
			}
		}
	}
}

// TestNearest compares with the rounding of the standard library, where the sum has room.
func TestNearest(t *testing.T) {
	for i := -1 << 15; i <= 1<<15; i++ {
		for _, div := range []float32{1, 2, 3, 16} {
			x := float32(i) / div
			if got, want := nearest(x), int32(math.RoundToEven(float64(x))); got != want {
				t.Fatalf("nearest to %g is %d, want %d", x, got, want)
			}
			if got, want := nearestAway(x), int32(math.Round(float64(x))); got != want {
				t.Fatalf("nearest to %g, ties away from 0, is %d, want %d", x, got, want)
			}
		}
	}
}

// TestScaleCodesOfFloats wants the nearest UE4M3 code of each number between two codes, and of numbers beside the
// codes, up to where ggml saturates.
func TestScaleCodesOfFloats(t *testing.T) {
	for c := range byte(15 << 3) {
		lo, hi := 2*ue4m3Half(c), 2*ue4m3Half(c+1)
		above, mid := c+1, (lo+hi)/2
		switch c {
		case 7: // the largest subnormal
			above, mid = 7, 1./64
		case 15<<3 - 1:
			above = 0x7e
		}
		if got := toUE4M3(lo); got != c {
			t.Errorf("code of %g is %#x, want %#x", lo, got, c)
		}
		if got := toUE4M3(mid - mid/(1<<20)); got != c {
			t.Errorf("code below %g is %#x, want %#x", mid, got, c)
		}
		if c != 7 {
			if got := toUE4M3(mid); got != above {
				t.Errorf("code of %g is %#x, want %#x", mid, got, above)
			}
		}
	}
	for _, v := range []float32{256, 300, 448, 1e6, math.MaxFloat32} {
		if got := toUE4M3(v); got != 0x7e {
			t.Errorf("code of %g is %#x, want 0x7e", v, got)
		}
	}
}

// FuzzQuantize quantizes arbitrary floats to every type, without and with importances. Each byte of importances is
// one, from 0 to 2^32; they are repeated as far as needed.
func FuzzQuantize(tf *testing.F) {
	f := testkit.Fuzz(tf)
	seed := func(typ Type, sigma float32) {
		x := make([]float32, typ.BlockElems())
		gaussian(x, rand.New(rand.NewPCG(uint64(typ), 1)), sigma)
		b := make([]byte, 4*len(x))
		quantizeF32(b, x, nil)
		f.Add(uint32(slices.Index(quantizers(), typ)), b, []byte{})
		f.Add(uint32(slices.Index(quantizers(), typ)), b, []byte{0x80, 0x81, 0x8f, 0x7f, 0x91})
	}
	for _, typ := range quantizers() {
		seed(typ, 1)
	}
	seed(Q2_K, 1e-15)
	seed(Q3_K, 1e-15)
	seed(Q4_K, 1e-37)
	seed(Q6_K, 1e7)
	seed(Q8_K, 1e38)
	f.Fuzz(func(t *testing.T, n uint32, b, importances []byte) {
		all := quantizers()
		typ := all[n%uint32(len(all))]
		blocks := min(max(1, len(b)/4/typ.BlockElems()), 4)
		x := make([]float32, blocks*typ.BlockElems())
		for i := range min(len(x), len(b)/4) {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		var imatrix []float32
		if typ.row().imatrix == needsImatrix && len(importances) == 0 {
			importances = []byte{0x81}
		}
		if len(importances) > 0 {
			imatrix = make([]float32, len(x))
			for i := range imatrix {
				c := importances[i%len(importances)]
				imatrix[i] = float32(math.Ldexp(float64(c&15), int(c>>4)*4-32))
			}
		}
		finite, holds := true, true
		for _, v := range x {
			finite = finite && v-v == 0
			holds = holds && abs(v) <= 2000
		}
		dst, err := quantize(t, typ, x, imatrix)
		if err != nil {
			if holds && imatrix == nil {
				t.Fatalf("%v: %v", typ, err)
			}
			return
		}
		if !finite {
			t.Fatalf("%v: no error of an element that is not finite", typ)
		}
		y := testkit.Guarded[float32](t, len(x))
		Decode(typ, y, dst)
		for i, v := range y {
			// 127 times the scale of Q8_K may round to more than the largest float32
			if v-v != 0 && abs(x[i]) < 3.4e38 {
				t.Fatalf("%v: element %d of %g becomes %g", typ, i, x[i], v)
			}
		}
	})
}

func BenchmarkQuantize(b *testing.B) {
	src, imatrix := make([]float32, 1<<14), make([]float32, 1<<12)
	rng := rand.New(rand.NewPCG(1, 2))
	gaussian(src, rng, 1)
	for i := range imatrix {
		imatrix[i] = rng.Float32()
	}
	for _, typ := range append([]Type{F32, F16, BF16}, quantizers()...) {
		for _, c := range []struct {
			suffix  string
			imatrix []float32
		}{{"", nil}, {"/imatrix", imatrix}} {
			if !takes(typ, c.imatrix) {
				continue
			}
			b.Run("type="+typ.String()+c.suffix, func(b *testing.B) {
				dst := make([]byte, typ.RowBytes(len(src)))
				b.SetBytes(4 << 14) // of input
				for b.Loop() {
					if err := Quantize(typ, dst, src, c.imatrix); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
