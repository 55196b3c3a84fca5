package quant

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	lanes "ck/asm/quant"
	"ck/internal/isa"
	"ck/internal/testkit"
)

// encoderSets are the widths that this program and CPU have, by name.
func encoderSets() map[string]lanes.Width {
	sets := map[string]lanes.Width{}
	for _, w := range encoderWidths {
		if lanes.Built && isa.Detect().Has(w.needs) {
			sets[map[lanes.Width]string{lanes.W256: "avx2", lanes.W512: "avx512"}[w.width]] = w.width
		}
	}
	return sets
}

// encode encodes against guard pages.
func encode(t testing.TB, e *Encoder, src, imatrix []float32) ([]byte, error) {
	t.Helper()
	x, dst := testkit.Guarded[float32](t, len(src)), testkit.Guarded[byte](t, e.t.RowBytes(len(src)))
	copy(x, src)
	if imatrix != nil {
		w := testkit.Guarded[float32](t, len(imatrix))
		copy(w, imatrix)
		imatrix = w
	}
	for i := range dst {
		dst[i] = 0xa5
	}
	err := e.Encode(dst, x, imatrix)
	return dst, err
}

// sameAsQuantize wants the bytes, or the error, of Quantize.
func sameAsQuantize(t testing.TB, what string, e *Encoder, src, imatrix []float32) {
	t.Helper()
	want := make([]byte, e.t.RowBytes(len(src)))
	wantErr := Quantize(e.t, want, src, imatrix)
	got, err := encode(t, e, src, imatrix)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%v, %s: error %v, want %v", e.t, what, err, wantErr)
	}
	if wantErr != nil || bytes.Equal(got, want) {
		return
	}
	size, elems := e.t.BlockBytes(), e.t.BlockElems()
	for i := range got {
		if got[i] != want[i] {
			b := i / size
			t.Fatalf("%v, %s: byte %d of block %d is %#x, want %#x\n got %x\nwant %x\n x %g", e.t, what, i%size, b, got[i], want[i],
				got[b*size:][:size], want[b*size:][:size], src[b*elems:][:elems])
		}
	}
}

// eachEncoder runs f for every type and set.
func eachEncoder(t *testing.T, f func(t *testing.T, e *Encoder)) {
	for name, w := range encoderSets() {
		for _, typ := range known() {
			if typ.row().quantize != nil {
				t.Run(name+"/"+typ.String(), func(t *testing.T) { f(t, newEncoder(typ, w)) })
			}
		}
	}
}

// TestEncoderOdd encodes odd rows, alone and together.
func TestEncoderOdd(t *testing.T) {
	rows, imatrices := oddRows(), oddImatrices()
	var all []float32
	for name, x := range rows {
		if !slices.Contains([]string{"too large", "huge", "largest"}, name) {
			all = append(all, x...)
		}
	}
	eachEncoder(t, func(t *testing.T, e *Encoder) {
		for importance, imatrix := range imatrices {
			for name, x := range rows {
				sameAsQuantize(t, name+", importances "+importance, e, x, imatrix)
			}
			sameAsQuantize(t, "all, importances "+importance, e, all, imatrix)
		}
	})
}

// TestEncoderRandom encodes rows of random values and of random lengths, of many of which values are the same or zero.
func TestEncoderRandom(t *testing.T) {
	blocks := 10_000
	if os.Getenv("CK_TEST_LARGE") != "" {
		blocks = 1_000_000
	}
	eachEncoder(t, func(t *testing.T, e *Encoder) {
		if e.encode == nil {
			t.Skip("the plain code")
		}
		rng := rand.New(rand.NewPCG(21, uint64(e.t)))
		elems := max(32, e.t.BlockElems())
		for left := blocks; left > 0; {
			n := (1 + rng.IntN(40)) * elems
			rows := 1 + rng.IntN(3)
			left -= n * rows / elems
			src, imatrix := make([]float32, n*rows), make([]float32, n)
			gaussian(src, rng, 0.05)
			switch rng.IntN(4) {
			case 0: // ties
				for i := range src {
					src[i] = float32(rng.IntN(65)-32) / 16
				}
			case 1: // blocks of zeros, of one sign
				for i := range src {
					if k := i / 16 % 5; k == 0 {
						src[i] = 0
					} else if k == 1 {
						src[i] = abs(src[i])
					}
				}
			}
			for i := range imatrix {
				imatrix[i] = rng.Float32() * rng.Float32()
			}
			sameAsQuantize(t, fmt.Sprintf("%d rows of %d", rows, n), e, src, nil)
			sameAsQuantize(t, fmt.Sprintf("%d rows of %d, imatrix", rows, n), e, src, imatrix)
		}
	})
}

// BenchmarkEncode measures a row of 4096 elements, in ns per weight.
func BenchmarkEncode(b *testing.B) {
	sets := encoderSets()
	sets["go"] = lanes.None
	rng := rand.New(rand.NewPCG(3, 4))
	src, imatrix := make([]float32, 4096), make([]float32, 4096)
	gaussian(src, rng, 0.05)
	for i := range imatrix {
		imatrix[i] = rng.Float32()
	}
	for _, typ := range known() {
		if typ.row().quantize == nil {
			continue
		}
		for _, how := range []string{"plain", "imatrix"} {
			weights := imatrix
			if how == "plain" {
				weights = nil
			}
			if !takes(typ, weights) {
				continue
			}
			for _, set := range []string{"go", "avx2", "avx512"} {
				w, ok := sets[set]
				if !ok {
					continue
				}
				b.Run(typ.String()+"/"+how+"/"+set, func(b *testing.B) {
					e, dst := newEncoder(typ, w), make([]byte, typ.RowBytes(len(src)))
					for b.Loop() {
						if err := e.Encode(dst, src, weights); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(src)), "ns/weight")
				})
			}
		}
	}
}
