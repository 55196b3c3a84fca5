package quant

import "fmt"

// row says all that the package knows of one type.
type row struct {
	name  string
	elems int // elements of a block
	bytes int // bytes of a block

	decode   func(dst []float32, src []byte) // decodes len(dst)/elems blocks
	scale    func(b []byte, sigma float32)   // makes a valid block of random bytes whose elements have this deviation; may be nil
	quantize func(dst []byte, src []float32) // encodes len(src)/elems blocks; nil where it is not supported
	halves   int                             // F16 fields at the start of a block that must be finite after quantize

	rewrite func(dst, src []byte) // rewrites blocks for kernels, see Codes and ToQ8_0; nil: kernels read them as they are
	values  *[16]int8             // rewritten as codes of these; nil with rewrite: as Q8_0
}

// table has one row per type, at the type's number; adding a type is adding a row and the functions that it names.
var table = [...]row{
	F32:  {"F32", 1, 4, decodeF32, nil, quantizeF32, 0, nil, nil},
	F16:  {"F16", 1, 2, decodeF16, nil, quantizeF16, 0, nil, nil},
	BF16: {"BF16", 1, 2, decodeBF16, nil, quantizeBF16, 0, nil, nil},
	F64:  {"F64", 1, 8, decodeF64, scaleF64, nil, 0, nil, nil},
	I8:   {"I8", 1, 1, decodeI8, nil, nil, 0, nil, nil},
	I16:  {"I16", 1, 2, decodeI16, nil, nil, 0, nil, nil},
	I32:  {"I32", 1, 4, decodeI32, nil, nil, 0, nil, nil},
	I64:  {"I64", 1, 8, decodeI64, nil, nil, 0, nil, nil},

	Q4_0: {"Q4_0", 32, 18, decodeQ4_0, scaleQ4_0, quantizeQ4_0, 1, nil, nil},
	Q4_1: {"Q4_1", 32, 20, decodeQ4_1, scaleQ4_1, quantizeQ4_1, 2, nil, nil},
	Q5_0: {"Q5_0", 32, 22, decodeQ5_0, scaleQ5_0, quantizeQ5_0, 1, nil, nil},
	Q5_1: {"Q5_1", 32, 24, decodeQ5_1, scaleQ5_1, quantizeQ5_1, 2, nil, nil},
	Q8_0: {"Q8_0", 32, 34, decodeQ8_0, scaleQ8_0, quantizeQ8_0, 1, nil, nil},
	Q8_1: {"Q8_1", 32, 36, decodeQ8_1, scaleQ8_1, nil, 0, nil, nil},

	Q2_K: {"Q2_K", 256, 84, decodeQ2_K, scaleQ2_K, nil, 0, nil, nil},
	Q3_K: {"Q3_K", 256, 110, decodeQ3_K, scaleQ3_K, nil, 0, codesQ3_K, &codeValuesQ3K},
	Q4_K: {"Q4_K", 256, 144, decodeQ4_K, scaleQ4_K, nil, 0, nil, nil},
	Q5_K: {"Q5_K", 256, 176, decodeQ5_K, scaleQ5_K, nil, 0, nil, nil},
	Q6_K: {"Q6_K", 256, 210, decodeQ6_K, scaleQ6_K, nil, 0, nil, nil},
	Q8_K: {"Q8_K", 256, 292, decodeQ8_K, scaleQ8_K, nil, 0, nil, nil},

	IQ1_S:   {"IQ1_S", 256, 50, decodeIQ1_S, scaleIQ1_S, nil, 0, codesIQ1_S, &codeValuesIQ1},
	IQ1_M:   {"IQ1_M", 256, 56, decodeIQ1_M, scaleIQ1_M, nil, 0, codesIQ1_M, &codeValuesIQ1},
	IQ2_XXS: {"IQ2_XXS", 256, 66, decodeIQ2_XXS, scaleIQ2_XXS, nil, 0, codesIQ2_XXS, &codeValuesIQ2},
	IQ2_XS:  {"IQ2_XS", 256, 74, decodeIQ2_XS, scaleIQ2_XS, nil, 0, codesIQ2_XS, &codeValuesIQ2},
	IQ2_S:   {"IQ2_S", 256, 82, decodeIQ2_S, scaleIQ2_S, nil, 0, codesIQ2_S, &codeValuesIQ2},
	IQ3_XXS: {"IQ3_XXS", 256, 98, decodeIQ3_XXS, scaleIQ3_XXS, nil, 0, codesIQ3_XXS, &codeValuesIQ3XXS},
	IQ3_S:   {"IQ3_S", 256, 110, decodeIQ3_S, scaleIQ3_S, nil, 0, codesIQ3_S, &codeValuesIQ3S},
	IQ4_NL:  {"IQ4_NL", 32, 18, decodeIQ4_NL, scaleIQ4_NL, nil, 0, q8FromIQ4_NL, nil},
	IQ4_XS:  {"IQ4_XS", 256, 136, decodeIQ4_XS, scaleIQ4_XS, nil, 0, codesIQ4_XS, &codeValuesIQ4},

	TQ1_0: {"TQ1_0", 256, 54, decodeTQ1_0, scaleTQ1_0, nil, 0, codesTQ1_0, &codeValuesTQ},
	TQ2_0: {"TQ2_0", 256, 66, decodeTQ2_0, scaleTQ2_0, nil, 0, codesTQ2_0, &codeValuesTQ},
	Q1_0:  {"Q1_0", 128, 18, decodeQ1_0, scaleQ1_0, nil, 0, q8FromQ1_0, nil},
	Q2_0:  {"Q2_0", 64, 18, decodeQ2_0, scaleQ2_0, nil, 0, q8FromQ2_0, nil},

	MXFP4: {"MXFP4", 32, 17, decodeMXFP4, scaleMXFP4, nil, 0, nil, nil},
	NVFP4: {"NVFP4", 64, 36, decodeNVFP4, scaleNVFP4, nil, 0, nil, nil},
}

// Types is one more than the largest number of a type: what has a place for each type is that long.
const Types = len(table)

// Decode decodes the first len(dst) elements of src, blocks of type t, to float32, bit for bit as ggml does.
//
// Any bytes are a valid block: a scale that is not finite gives elements that are not. Integer types and F64 are rounded to
// nearest; Q8_1, which ggml never decodes, gives d*q. Decode panics when len(dst) is not a multiple of the block, when src is
// too short for it, or when the type is unknown; extra bytes in src are ignored. It allocates nothing.
func Decode(t Type, dst []float32, src []byte) {
	r := t.row()
	checkSizes(t, len(dst), len(src))
	r.decode(dst, src)
}

// Exact is Decode widened to float64, for references: it has no rounding of its own.
func Exact(t Type, dst []float64, src []byte) {
	checkSizes(t, len(dst), len(src))
	r := t.row()
	var buf [1024]float32 // a multiple of every block
	for len(dst) > 0 {
		n := min(len(dst), len(buf))
		r.decode(buf[:n], src)
		for i, v := range buf[:n] {
			dst[i] = float64(v)
		}
		dst, src = dst[n:], src[n/r.elems*r.bytes:]
	}
}

// checkSizes panics unless n elements of type t are whole blocks that fit in size bytes.
func checkSizes(t Type, n, size int) {
	r := t.row()
	if r.elems == 0 {
		panic(fmt.Sprintf("quant: %v is unknown", t))
	}
	if n%r.elems != 0 || size < n/r.elems*r.bytes {
		panic(fmt.Sprintf("quant: %v: %d elements in %d bytes, blocks have %d elements in %d bytes", t, n, size, r.elems, r.bytes))
	}
}

// UnsupportedError is returned by Quantize for what the package cannot quantize.
type UnsupportedError struct {
	Type    Type
	Imatrix bool // the type is supported, but not with an importance matrix
}

func (e *UnsupportedError) Error() string {
	if e.Imatrix {
		return fmt.Sprintf("quantizing to %v with an importance matrix is not supported yet; leave the matrix out", e.Type)
	}
	return fmt.Sprintf("quantizing to %v is not supported yet; choose F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1", e.Type)
}

// Quantize encodes src as blocks of type t at the start of dst, byte for byte as ggml_quantize_chunk of ggml does, built without
// fused multiply-add. imatrix, if not nil, is the importance of each column; types that have no use for it ignore it.
//
// It returns an UnsupportedError, or an error that names the element when a block type gets a value that is not finite or so
// large that a scale overflows F16; dst is then undefined. F16 and BF16 take every value, as plain conversions. A block of
// values too small for the reciprocal of its scale (below about 1e-36), for which ggml's code is undefined, becomes zero.
// Quantize panics when len(src) is not a multiple of the block or dst is too short. It allocates nothing unless it fails.
func Quantize(t Type, dst []byte, src, imatrix []float32) error {
	checkSizes(t, len(src), len(dst))
	r := t.row()
	if r.quantize == nil {
		return &UnsupportedError{Type: t}
	}
	switch t {
	case Q4_0, Q4_1, Q5_0, Q5_1: // ggml has another algorithm for these with an imatrix
		if imatrix != nil {
			return &UnsupportedError{Type: t, Imatrix: true}
		}
	}
	if r.elems > 1 {
		for i, v := range src {
			if v-v != 0 {
				return fmt.Errorf("element %d is %g, and %v holds finite values only", i, v, t)
			}
		}
	}
	r.quantize(dst, src)
	if r.halves == 0 {
		return nil
	}
	for i := range len(src) / r.elems {
		b := dst[i*r.bytes:]
		for h := range r.halves {
			if b[2*h+1]&0x7c == 0x7c {
				return fmt.Errorf("elements %d to %d are too large for the F16 scale of %v", i*r.elems, (i+1)*r.elems-1, t)
			}
		}
	}
	return nil
}
