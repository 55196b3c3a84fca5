package quant

import (
	"bytes"
	"testing"

	"ck/internal/testkit"
)

// quantizersIQ are the quantizers of the IQ types.
var quantizersIQ = map[Type]struct {
	quantize func(dst []byte, src, weights []float32)
	needs    bool // needs weights
}{
	IQ4_NL:  {quantizeIQ4_NL, false},
	IQ4_XS:  {quantizeIQ4_XS, false},
	IQ3_XXS: {quantizeIQ3_XXS, false},
	IQ3_S:   {quantizeIQ3_S, false},
	IQ2_XXS: {quantizeIQ2_XXS, true},
	IQ2_XS:  {quantizeIQ2_XS, true},
	IQ2_S:   {quantizeIQ2_S, false},
}

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
		if q.needs != (r.Plain.Bytes == "") {
			t.Errorf("%v: needs weights: %v, but the file without is %q", r.ID, q.needs, r.Plain.Bytes)
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
	if compared != filesIQ {
		t.Errorf("%d files compared, want %d", compared, filesIQ)
	}
}

// filesIQ is the number of files that are compared.
const filesIQ = 12
