package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// The types that have codes and those that are rewritten as Q8_0.
var (
	codedTypes     = []Type{Q3_K, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_XS, TQ1_0, TQ2_0}
	toQ8Types      = []Type{IQ4_NL, Q1_0, Q2_0}
	rewrittenTypes = append(codedTypes[:len(codedTypes):len(codedTypes)], toQ8Types...)
)

// rewrite rewrites src; both sides lie against guard pages.
func rewrite(t testing.TB, typ Type, src []byte) []byte {
	n := len(src) / typ.BlockBytes() * typ.BlockElems()
	guarded := testkit.Guarded[byte](t, len(src))
	copy(guarded, src)
	if CodeValues(typ) == nil {
		dst := testkit.Guarded[byte](t, n/32*34)
		ToQ8_0(typ, dst, guarded)
		return dst
	}
	dst := testkit.Guarded[byte](t, n/256*CodeBytes)
	Codes(typ, dst, guarded)
	return dst
}

func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// compareRewritten rewrites src and reads the result back by the definition of its form, multiplied in both orders;
// it wants the floats of Decode, bit for bit.
func compareRewritten(t *testing.T, typ Type, src []byte) {
	t.Helper()
	want := make([]float32, len(src)/typ.BlockBytes()*typ.BlockElems())
	Decode(typ, want, src)
	b, values := rewrite(t, typ, src), CodeValues(typ)
	if values == nil {
		got := make([]float32, len(want))
		Decode(Q8_0, got, b)
		for i, w := range want {
			if !sameFloat(got[i], w) {
				t.Fatalf("%v: element %d is %g, want %g", typ, i, got[i], w)
			}
			if b[i/32*34+2+i%32] == 0x80 {
				t.Fatalf("%v: element %d is -128", typ, i)
			}
		}
		return
	}
	for i, w := range want {
		c, e := b[i/256*CodeBytes:][:CodeBytes], i%256
		d, scale := math.Float32frombits(binary.LittleEndian.Uint32(c)), int8(c[4+e/16])
		value := values[c[20+e/2]>>(e%2*4)&15]
		if got := float32(d*float32(scale)) * float32(value); !sameFloat(got, w) {
			t.Fatalf("%v: element %d is (%g*%d)*%d = %g, want %g", typ, i, d, scale, value, got, w)
		}
		// Sums of scale*value*activation are multiplied by D; the sign of a zero may differ there, as scale*value has
		// none.
		if got := d * float32(int(scale)*int(value)); got != w && !sameFloat(got, w) {
			t.Fatalf("%v: element %d is %g*(%d*%d) = %g, want %g", typ, i, d, scale, value, got, w)
		}
	}
}

// TestRewrite wants the floats of Decode, of blocks as quantizers write them and of arbitrary bytes, among them
// scales that are not finite.
func TestRewrite(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, typ := range rewrittenTypes {
		b := make([]byte, typ.RowBytes(1<<18))
		RandomBlocks(typ, b, rng, 0.02)
		compareRewritten(t, typ, b)
		randomBytes(b, rng)
		compareRewritten(t, typ, b)
	}
}

// TestRewriteScales sets the F16 scales of random blocks to all that have one bit set or one missing, in either byte,
// and to the extremes of zero, subnormal, normal, infinite and NaN.
func TestRewriteScales(t *testing.T) {
	halves := []uint16{0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01,
		0x7e00, 0xffff}
	for i := range 16 {
		halves = append(halves, 1<<i, ^uint16(1<<i))
	}
	rng := rand.New(rand.NewPCG(13, 14))
	for _, typ := range rewrittenTypes {
		b := make([]byte, len(halves)*typ.RowBytes(256))
		randomBytes(b, rng)
		for i, h := range halves {
			row := b[i*typ.RowBytes(256):][:typ.RowBytes(256)]
			for len(row) > 0 {
				switch typ {
				case IQ1_M:
					for n := range 4 {
						row[49+2*n] = row[49+2*n]&15 | byte(h>>(4*n))<<4
					}
				case Q3_K, TQ1_0, TQ2_0:
					binary.LittleEndian.PutUint16(row[typ.BlockBytes()-2:], h)
				default:
					binary.LittleEndian.PutUint16(row, h)
				}
				row = row[typ.BlockBytes():]
			}
			y := make([]float32, 256)
			Decode(typ, y, b[i*typ.RowBytes(256):])
			if v := y[0]; (v-v == 0) != (h&0x7c00 != 0x7c00) {
				t.Errorf("%v: element 0 is %g with scale %#x", typ, v, h)
			}
		}
		compareRewritten(t, typ, b)
	}
}

// TestRewriteReference rewrites ggml's bytes and wants ggml's floats.
func TestRewriteReference(t *testing.T) {
	dir, refs := references(t)
	seen := map[Type]bool{}
	for _, r := range refs {
		if r.ID.row().rewrite == nil {
			continue
		}
		for _, f := range []files{r.Plain, r.WithImatrix} {
			if f.Dequantized == "" {
				continue
			}
			seen[r.ID] = true
			src, want := read(t, dir, f.Bytes), readF32(t, dir, f.Dequantized)
			got := make([]float32, len(want))
			Decode(r.ID, got, src)
			for i, w := range want {
				if !sameFloat(got[i], w) {
					t.Fatalf("%s: Decode: element %d is %g, want %g", f.Bytes, i, got[i], w)
				}
			}
			compareRewritten(t, r.ID, src)
		}
	}
	for _, typ := range rewrittenTypes {
		if !seen[typ] {
			t.Errorf("%v: no reference data", typ)
		}
	}
}

// TestCodesReach counts what is compared: bytes that reach all grid points and all patterns of signs, or where types
// have neither all indices at every element, and all scales.
func TestCodesReach(t *testing.T) {
	for _, c := range []struct {
		typ           Type
		elems         int // elements of a grid point; 0: no grid
		points, signs int // grid points; patterns of bit 3 of 8 indices
		values        int // indices of an element, types without a grid
		scales        int
	}{
		{Q3_K, 0, 0, 0, 8, 64},
		{IQ1_S, 8, 2048, 2, 0, 8},
		{IQ1_M, 8, 2048, 2, 0, 8},
		{IQ2_XXS, 8, 256, 128, 0, 16},
		{IQ2_XS, 8, 512, 128, 0, 16},
		{IQ2_S, 8, 1024, 256, 0, 16},
		{IQ3_XXS, 4, 256, 128, 0, 16},
		{IQ3_S, 4, 512, 256, 0, 16},
		{IQ4_XS, 0, 0, 0, 16, 64},
		{TQ1_0, 0, 0, 0, 3, 1},
		{TQ2_0, 0, 0, 0, 4, 1},
	} {
		src := make([]byte, 1<<10*c.typ.BlockBytes())
		randomBytes(src, rand.New(rand.NewPCG(15, 16)))
		compareRewritten(t, c.typ, src)
		b, used := rewrite(t, c.typ, src), map[byte]bool{}
		points, signs := map[uint32]bool{}, map[uint32]bool{}
		var indices [256]uint16 // a bit for each index of an element
		var scales [16]map[byte]bool
		for i := range scales {
			scales[i] = map[byte]bool{}
		}
		for ; len(b) > 0; b = b[CodeBytes:] {
			for i := range scales {
				scales[i][b[4+i]] = true
			}
			for i := range 32 {
				w := binary.LittleEndian.Uint32(b[20+4*i:])
				signs[w&0x8888_8888] = true
				w7 := w & 0x7777_7777
				if c.elems == 4 {
					points[w7>>16] = true
					w7 &= 0xffff
				}
				points[w7] = true
				for j := range 8 {
					index := byte(w >> (4 * j) & 15)
					indices[8*i+j] |= 1 << index
					used[index] = true
				}
			}
		}
		if c.elems > 0 && (len(points) != c.points || len(signs) != c.signs) {
			t.Errorf("%v: %d points and %d patterns of signs, want %d and %d", c.typ, len(points), len(signs),
				c.points, c.signs)
		}
		for i, seen := range indices {
			if n := bits.OnesCount16(seen); c.elems == 0 && n != c.values {
				t.Errorf("%v: element %d has %d indices, want %d", c.typ, i, n, c.values)
			}
		}
		for i, seen := range scales {
			if len(seen) != c.scales {
				t.Errorf("%v: scale %d has %d values, want %d", c.typ, i, len(seen), c.scales)
			}
		}
		for index, v := range CodeValues(c.typ) {
			if v == -128 {
				t.Errorf("%v: value %d is -128", c.typ, index)
			}
			if v != 0 && !used[byte(index)] && c.typ != TQ1_0 {
				t.Errorf("%v: value %d (%d) is never used", c.typ, index, v)
			}
		}
	}
}

// TestRewriteSizes wants that blocks do not depend on their neighbours, that extra bytes are ignored, and nothing of
// no blocks.
func TestRewriteSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	for _, typ := range rewrittenTypes {
		call, size := Codes, typ.BlockElems()/256*CodeBytes
		if CodeValues(typ) == nil {
			call, size = ToQ8_0, typ.BlockElems()/32*34
		}
		const blocks = 7
		src := make([]byte, blocks*typ.BlockBytes()+1)
		randomBytes(src, rng)
		all, one := make([]byte, blocks*size), make([]byte, size)
		call(typ, all, src)
		for i := range blocks {
			call(typ, one, src[i*typ.BlockBytes():][:typ.BlockBytes()])
			if !bytes.Equal(one, all[i*size:][:size]) {
				t.Errorf("%v: block %d is another when it is alone", typ, i)
			}
		}
		call(typ, nil, nil)
	}
}

// TestRewriteTypes wants codes of the types that have them and of no other, and panics of wrong types and sizes.
func TestRewriteTypes(t *testing.T) {
	wantPanic := func(name string, call func()) {
		t.Helper()
		defer func() {
			t.Helper()
			if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "quant: ") {
				t.Errorf("%s: no panic of this package", name)
			}
		}()
		call()
	}
	coded, toQ8 := map[Type]bool{}, map[Type]bool{}
	for _, typ := range codedTypes {
		coded[typ] = true
	}
	for _, typ := range toQ8Types {
		toQ8[typ] = true
	}
	src := make([]byte, 1024)
	for typ := range Type(len(table) + 1) {
		if (CodeValues(typ) != nil) != coded[typ] {
			t.Errorf("CodeValues(%v) is %v", typ, CodeValues(typ))
		}
		if !coded[typ] {
			wantPanic("Codes of "+typ.String(), func() { Codes(typ, make([]byte, CodeBytes), src) })
		}
		if !toQ8[typ] {
			wantPanic("ToQ8_0 of "+typ.String(), func() { ToQ8_0(typ, make([]byte, 4*34), src) })
		}
	}
	for name, call := range map[string]func(){
		"Codes, part of a block":      func() { Codes(Q3_K, make([]byte, CodeBytes-1), src) },
		"Codes, source too short":     func() { Codes(Q3_K, make([]byte, 2*CodeBytes), src[:219]) },
		"ToQ8_0, part of a block":     func() { ToQ8_0(IQ4_NL, make([]byte, 35), src) },
		"ToQ8_0, part of the other's": func() { ToQ8_0(Q1_0, make([]byte, 3*34), src) },
		"ToQ8_0, source too short":    func() { ToQ8_0(Q2_0, make([]byte, 2*34), src[:17]) },
	} {
		wantPanic(name, call)
	}
}

// TestRewriteAllocs wants no allocation, once the grids are unpacked.
func TestRewriteAllocs(t *testing.T) {
	src, dst := make([]byte, 4096), make([]byte, 4*CodeBytes)
	for _, typ := range codedTypes {
		if n := testing.AllocsPerRun(10, func() { Codes(typ, dst, src) }); n != 0 {
			t.Errorf("%v: Codes allocates %g times", typ, n)
		}
	}
	for _, typ := range toQ8Types {
		if n := testing.AllocsPerRun(10, func() { ToQ8_0(typ, dst[:4*34], src) }); n != 0 {
			t.Errorf("%v: ToQ8_0 allocates %g times", typ, n)
		}
	}
}

// FuzzRewrite wants the floats of Decode of arbitrary bytes.
func FuzzRewrite(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for i, typ := range rewrittenTypes {
		f.Add(uint32(i), bytes.Repeat([]byte{0xff}, typ.BlockBytes()))
		f.Add(uint32(i), bytes.Repeat([]byte{0x00, 0x3c}, typ.BlockBytes()))
	}
	f.Fuzz(func(t *testing.T, n uint32, b []byte) {
		typ := rewrittenTypes[n%uint32(len(rewrittenTypes))]
		blocks := min(len(b)/typ.BlockBytes(), 8)
		compareRewritten(t, typ, b[:blocks*typ.BlockBytes()])
	})
}

// BenchmarkCodes rewrites as much at a time as the kernels do, 256 elements of a row.
func BenchmarkCodes(b *testing.B) {
	const n = 1 << 14
	for _, typ := range rewrittenTypes {
		b.Run("type="+typ.String(), func(b *testing.B) {
			src := make([]byte, typ.RowBytes(n))
			RandomBlocks(typ, src, rand.New(rand.NewPCG(1, 2)), 1)
			dst, call := make([]byte, CodeBytes), Codes
			if CodeValues(typ) == nil {
				dst, call = make([]byte, 256/32*34), ToQ8_0
			}
			b.SetBytes(int64(len(src) + n/256*len(dst)))
			for b.Loop() {
				for s := src; len(s) > 0; s = s[typ.RowBytes(256):] {
					call(typ, dst, s)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/weight")
		})
	}
}
