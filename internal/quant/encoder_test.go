package quant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
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
	if len(imatrix) > 0 {
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
	same(t, what, e, src, imatrix, want, Quantize(e.t, want, src, imatrix))
}

// sameAll is sameAsQuantize for encoders to one type.
func sameAll(t testing.TB, what string, encoders map[string]*Encoder, src, imatrix []float32) {
	t.Helper()
	var want []byte
	var wantErr error
	for name, e := range encoders {
		if want == nil {
			want = make([]byte, e.t.RowBytes(len(src)))
			wantErr = Quantize(e.t, want, src, imatrix)
		}
		same(t, name+", "+what, e, src, imatrix, want, wantErr)
	}
}

// same wants these bytes or this error.
func same(t testing.TB, what string, e *Encoder, src, imatrix []float32, want []byte, wantErr error) {
	t.Helper()
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
			t.Fatalf("%v, %s: byte %d of block %d is %#x, want %#x\n got %x\nwant %x\n x %g",
				e.t, what, i%size, b, got[i], want[i], got[b*size:][:size], want[b*size:][:size],
				src[b*elems:][:elems])
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

// TestEncoderRandom encodes rows of random values and of random lengths, in many of which values are the same or
// zero: 10,000 blocks of each type, a million with CK_TEST_LARGE. The types share the cores.
func TestEncoderRandom(t *testing.T) {
	large := os.Getenv("CK_TEST_LARGE") != ""
	sets := encoderSets()
	for _, typ := range known() {
		if typ.row().quantize == nil || encoders[typ] == nil || len(sets) == 0 {
			continue
		}
		t.Run(typ.String(), func(t *testing.T) {
			t.Parallel()
			elems := 10_000 * max(32, typ.BlockElems())
			switch {
			case large:
				elems *= 100
			case testing.Short():
				elems = 10_000 * 32
			}
			encodeRandom(t, typ, sets, elems)
		})
	}
}

// encodeRandom is TestEncoderRandom for so many elements of a type.
func encodeRandom(t *testing.T, typ Type, sets map[string]lanes.Width, elems int) {
	encoders := map[string]*Encoder{}
	for name, w := range sets {
		encoders[name] = newEncoder(typ, w)
	}
	rng := rand.New(rand.NewPCG(21, uint64(typ)))
	for elems > 0 {
		ok := t.Run("", func(t *testing.T) { // frees its guarded memory
			for i := 0; i < 200 && elems > 0; i++ {
				src, imatrix := randomRows(rng, max(32, typ.BlockElems()))
				elems -= len(src)
				what := fmt.Sprintf("%d elements in rows of %d", len(src), len(imatrix))
				sameAll(t, what, encoders, src, nil)
				sameAll(t, what+", imatrix", encoders, src, imatrix)
			}
		})
		if !ok {
			return
		}
	}
}

// randomRows makes up to three rows of up to 40 blocks of size elements, and importances of a row.
func randomRows(rng *rand.Rand, size int) (src, imatrix []float32) {
	imatrix = make([]float32, (1+rng.IntN(40))*size)
	src = make([]float32, len(imatrix)*(1+rng.IntN(3)))
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
	return src, imatrix
}

// TestEncoderLevelsIQ4 wants the codes of numbers around those where the nearest level changes.
func TestEncoderLevelsIQ4(t *testing.T) {
	var x []float32
	for i := range 15 {
		middle := (valuesIQ4[i] + valuesIQ4[i+1]) / 2
		for _, at := range []float32{middle, valuesIQ4[i]} {
			bits := math.Float32bits(at)
			for k := range uint32(64) {
				x = append(x, math.Float32frombits(bits+k-32))
			}
		}
	}
	for k := -4096; k < 4096; k++ {
		x = append(x, float32(k)/16)
	}
	x = append(x, 0, float32(math.Copysign(0, -1)), 1e30, -1e30, 1e-30, -1e-30, 128, -128, 1e-45)
	x = append(x, 120, 124, -131, -132, -133, 2e9, -2e9)
	for name, w := range encoderSets() {
		e := newEncoder(IQ4_XS, w)
		for i := range e.room.stored {
			e.room.stored[i] = 1
		}
		for x := x; len(x) >= 16; x = x[16:] {
			e.codesIQ4(x[:16])
			for i, v := range x[:16] {
				if got, want := e.room.y[0].codes[i], codeIQ4(v); got != want {
					t.Errorf("%s: the code of %g is %d, want %d", name, v, got, want)
				}
			}
		}
	}
}

// TestEncoderErrors wants the errors of Quantize for arguments that do not fit, and its panics.
func TestEncoderErrors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	eachEncoder(t, func(t *testing.T, e *Encoder) {
		for _, bad := range []float32{nan, inf, -inf, 3e38, -5e9, 1 << 32, -1 << 32, math.Nextafter32(1<<32, inf)} {
			for _, at := range []int{0, 7, 255, 300, 511} {
				src := make([]float32, 512)
				src[at] = bad
				sameAsQuantize(t, fmt.Sprintf("%g at %d", bad, at), e, src, nil)
				imatrix := slices.Repeat([]float32{1}, 512)
				imatrix[at] = bad
				sameAsQuantize(t, fmt.Sprintf("importance %g at %d", bad, at), e, make([]float32, 512), imatrix)
			}
		}
		for _, n := range []int{0, 255, 256, 384, 1024} {
			sameAsQuantize(t, fmt.Sprintf("%d importances", n), e, make([]float32, 512), make([]float32, n))
		}
		sameAsQuantize(t, "nothing", e, nil, nil)
		defer func() {
			if recover() == nil && e.t.BlockElems() > 1 {
				t.Error("no panic of a part of a block")
			}
		}()
		err := e.Encode(make([]byte, 4096), make([]float32, 31), nil)
		if e.t.BlockElems() > 1 {
			t.Error("no panic, but", err)
		}
	})
}

// TestEncoderAllocates wants no allocations.
func TestEncoderAllocates(t *testing.T) {
	src, imatrix := make([]float32, 1024), slices.Repeat([]float32{1}, 1024)
	gaussian(src, rand.New(rand.NewPCG(5, 6)), 1)
	eachEncoder(t, func(t *testing.T, e *Encoder) {
		dst := make([]byte, e.t.RowBytes(len(src)))
		encode := func() {
			if err := e.Encode(dst, src, imatrix); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(2, encode); n != 0 {
			t.Errorf("Encode allocates %g times", n)
		}
	})
}

// FuzzEncoder takes bytes as rows and importances and wants the outcome of Quantize.
func FuzzEncoder(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for name, x := range oddRows() {
		b := []byte{byte(len(name))}
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 1+2048 {
			return
		}
		types := quantizers()
		typ := types[int(b[0])%len(types)]
		x := make([]float32, (len(b)-1)/4/256*256)
		Decode(F32, x, b[1:])
		half := len(x) / 512 * 256
		imatrix := make([]float32, half)
		for i, v := range x[half : 2*half] {
			imatrix[i] = abs(v)
		}
		for name, w := range encoderSets() {
			e := newEncoder(typ, w)
			sameAsQuantize(t, name, e, x, nil)
			sameAsQuantize(t, name+", imatrix", e, x[:half], imatrix)
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
