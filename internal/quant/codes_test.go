package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// rewritten lists the types that have codes and those that are rewritten as Q8_0.
var (
	codedTypes = []Type{Q3_K, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_XS, TQ1_0, TQ2_0}
	toQ8Types  = []Type{IQ4_NL, Q1_0, Q2_0}
)

// rewrite rewrites src and reads it back by the definition of the form.
func rewriteAndDecode(t Type, src []byte) []float32 {
	n := len(src) / t.BlockBytes() * t.BlockElems()
	y := make([]float32, n)
	if CodeValues(t) == nil {
		b := make([]byte, n/32*34)
		ToQ8_0(t, b, src)
		Decode(Q8_0, y, b)
		return y
	}
	b := make([]byte, n/256*CodeBytes)
	Codes(t, b, src)
	for i := range y {
		c, e := b[i/256*CodeBytes:], i%256
		d := math.Float32frombits(binary.LittleEndian.Uint32(c))
		scale := float32(int8(c[4+e/16]))
		index := c[20+e/2] >> (e % 2 * 4) & 15
		y[i] = float32(d*scale) * float32(CodeValues(t)[index])
	}
	return y
}

func compareRewritten(t *testing.T, typ Type, src []byte) {
	t.Helper()
	got := rewriteAndDecode(typ, src)
	want := make([]float32, len(got))
	Decode(typ, want, src)
	for i, w := range want {
		if g := got[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			t.Fatalf("%v: element %d is %g, Decode gives %g", typ, i, g, w)
		}
	}
}

func TestRewrite(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, typ := range append(codedTypes, toQ8Types...) {
		b := make([]byte, typ.RowBytes(256*500))
		RandomBlocks(typ, b, rng, 1)
		compareRewritten(t, typ, b)
		randomBytes(b, rng)
		compareRewritten(t, typ, b)
	}
}

func BenchmarkCodes(b *testing.B) {
	const n = 1 << 14
	for _, typ := range append(codedTypes, toQ8Types...) {
		b.Run("type="+typ.String(), func(b *testing.B) {
			src := make([]byte, typ.RowBytes(n))
			RandomBlocks(typ, src, rand.New(rand.NewPCG(1, 2)), 1)
			dst, call := make([]byte, n/256*CodeBytes), Codes
			if CodeValues(typ) == nil {
				dst, call = make([]byte, n/32*34), ToQ8_0
			}
			for b.Loop() {
				call(typ, dst, src)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/weight")
		})
	}
}
