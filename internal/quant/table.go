package quant

import (
	"fmt"
	"strings"
)

// imatrixUse says what a type does with an importance matrix.
type imatrixUse uint8

const (
	noImatrix    imatrixUse = iota // has no use for one
	mayImatrix                     // quantizes with and without one, differently
	needsImatrix                   // cannot be quantized without one
)

// row says all that the package knows of one type.
type row struct {
	name  string
	elems int // elements of a block
	bytes int // bytes of a block

	decode func(dst []float32, src []byte) // decodes len(dst)/elems blocks
	// makes a valid block of random bytes whose elements have this deviation; may be nil
	scale func(b []byte, sigma float32)
	// quantize encodes len(src)/elems blocks; weights, if not nil, are the importances of the elements, and src is a
	// whole row. It is nil where quantizing is not supported.
	quantize func(dst []byte, src, weights []float32)
	imatrix  imatrixUse
	halves   []int // where the F16 fields of a block are, which must be finite after quantize

	// rewrites blocks for kernels, see Codes and ToQ8_0; nil: kernels read them as they are
	rewrite func(dst, src []byte)
	values  *[16]int8 // rewritten as codes of these; nil with rewrite: as Q8_0
}

// inNibbles stands for the F16 field of IQ1_M, which is in the high nibbles of its last four words.
const inNibbles = -1

// overflows reports whether an F16 field of a block is infinite or NaN.
func (r *row) overflows(b []byte) bool {
	for _, at := range r.halves {
		if at == inNibbles {
			if d := scaleIQ1M((*[8]byte)(b[48:])); d-d != 0 {
				return true
			}
		} else if b[at+1]&0x7c == 0x7c {
			return true
		}
	}
	return false
}

// table has one row per type, at the type's number; adding a type is adding a row and the functions that it names.
var table = [...]row{
	F32:  {"F32", 1, 4, decodeF32, nil, quantizeF32, noImatrix, nil, nil, nil},
	F16:  {"F16", 1, 2, decodeF16, nil, quantizeF16, noImatrix, nil, nil, nil},
	BF16: {"BF16", 1, 2, decodeBF16, nil, quantizeBF16, noImatrix, nil, nil, nil},
	F64:  {"F64", 1, 8, decodeF64, scaleF64, nil, noImatrix, nil, nil, nil},
	I8:   {"I8", 1, 1, decodeI8, nil, nil, noImatrix, nil, nil, nil},
	I16:  {"I16", 1, 2, decodeI16, nil, nil, noImatrix, nil, nil, nil},
	I32:  {"I32", 1, 4, decodeI32, nil, nil, noImatrix, nil, nil, nil},
	I64:  {"I64", 1, 8, decodeI64, nil, nil, noImatrix, nil, nil, nil},

	Q4_0: {"Q4_0", 32, 18, decodeQ4_0, scaleQ4_0, quantizeQ4_0, mayImatrix, []int{0}, nil, nil},
	Q4_1: {"Q4_1", 32, 20, decodeQ4_1, scaleQ4_1, quantizeQ4_1, mayImatrix, []int{0, 2}, nil, nil},
	Q5_0: {"Q5_0", 32, 22, decodeQ5_0, scaleQ5_0, quantizeQ5_0, mayImatrix, []int{0}, nil, nil},
	Q5_1: {"Q5_1", 32, 24, decodeQ5_1, scaleQ5_1, quantizeQ5_1, mayImatrix, []int{0, 2}, nil, nil},
	Q8_0: {"Q8_0", 32, 34, decodeQ8_0, scaleQ8_0, quantizeQ8_0, noImatrix, []int{0}, nil, nil},
	Q8_1: {"Q8_1", 32, 36, decodeQ8_1, scaleQ8_1, quantizeQ8_1, noImatrix, []int{0, 2}, nil, nil},

	Q2_K: {"Q2_K", 256, 84, decodeQ2_K, scaleQ2_K, quantizeQ2_K, mayImatrix, []int{80, 82}, nil, nil},
	Q3_K: {"Q3_K", 256, 110, decodeQ3_K, scaleQ3_K, quantizeQ3_K, mayImatrix, []int{108}, codesQ3_K, &codeValuesQ3K},
	Q4_K: {"Q4_K", 256, 144, decodeQ4_K, scaleQ4_K, quantizeQ4_K, mayImatrix, []int{0, 2}, nil, nil},
	Q5_K: {"Q5_K", 256, 176, decodeQ5_K, scaleQ5_K, quantizeQ5_K, mayImatrix, []int{0, 2}, nil, nil},
	Q6_K: {"Q6_K", 256, 210, decodeQ6_K, scaleQ6_K, quantizeQ6_K, mayImatrix, []int{208}, nil, nil},
	Q8_K: {"Q8_K", 256, 292, decodeQ8_K, scaleQ8_K, quantizeQ8_K, noImatrix, nil, nil, nil},

	IQ1_S: {"IQ1_S", 256, 50, decodeIQ1_S, scaleIQ1_S, quantizeIQ1_S, needsImatrix, []int{0}, codesIQ1_S,
		&codeValuesIQ1},
	IQ1_M: {"IQ1_M", 256, 56, decodeIQ1_M, scaleIQ1_M, quantizeIQ1_M, mayImatrix, []int{inNibbles}, codesIQ1_M,
		&codeValuesIQ1},
	IQ2_XXS: {"IQ2_XXS", 256, 66, decodeIQ2_XXS, scaleIQ2_XXS, quantizeIQ2_XXS, needsImatrix, []int{0}, codesIQ2_XXS,
		&codeValuesIQ2},
	IQ2_XS: {"IQ2_XS", 256, 74, decodeIQ2_XS, scaleIQ2_XS, quantizeIQ2_XS, needsImatrix, []int{0}, codesIQ2_XS,
		&codeValuesIQ2},
	IQ2_S: {"IQ2_S", 256, 82, decodeIQ2_S, scaleIQ2_S, quantizeIQ2_S, mayImatrix, []int{0}, codesIQ2_S,
		&codeValuesIQ2},
	IQ3_XXS: {"IQ3_XXS", 256, 98, decodeIQ3_XXS, scaleIQ3_XXS, quantizeIQ3_XXS, mayImatrix, []int{0}, codesIQ3_XXS,
		&codeValuesIQ3XXS},
	IQ3_S: {"IQ3_S", 256, 110, decodeIQ3_S, scaleIQ3_S, quantizeIQ3_S, mayImatrix, []int{0}, codesIQ3_S,
		&codeValuesIQ3S},
	IQ4_NL: {"IQ4_NL", 32, 18, decodeIQ4_NL, scaleIQ4_NL, quantizeIQ4_NL, mayImatrix, []int{0}, q8FromIQ4_NL, nil},
	IQ4_XS: {"IQ4_XS", 256, 136, decodeIQ4_XS, scaleIQ4_XS, quantizeIQ4_XS, mayImatrix, []int{0}, codesIQ4_XS,
		&codeValuesIQ4},

	TQ1_0: {"TQ1_0", 256, 54, decodeTQ1_0, scaleTQ1_0, quantizeTQ1_0, noImatrix, []int{52}, codesTQ1_0,
		&codeValuesTQ},
	TQ2_0: {"TQ2_0", 256, 66, decodeTQ2_0, scaleTQ2_0, quantizeTQ2_0, noImatrix, []int{64}, codesTQ2_0,
		&codeValuesTQ},
	Q1_0: {"Q1_0", 128, 18, decodeQ1_0, scaleQ1_0, quantizeQ1_0, noImatrix, []int{0}, q8FromQ1_0, nil},
	Q2_0: {"Q2_0", 64, 18, decodeQ2_0, scaleQ2_0, quantizeQ2_0, noImatrix, []int{0}, q8FromQ2_0, nil},

	MXFP4: {"MXFP4", 32, 17, decodeMXFP4, scaleMXFP4, quantizeMXFP4, noImatrix, nil, nil, nil},
	NVFP4: {"NVFP4", 64, 36, decodeNVFP4, scaleNVFP4, quantizeNVFP4, noImatrix, nil, nil, nil},
}

// Types is one more than the largest number of a type: what has a place for each type is that long.
const Types = len(table)

// Decode decodes the first len(dst) elements of src, blocks of type t, to float32, bit for bit as ggml does.
//
// Any bytes are a valid block: a scale that is not finite gives elements that are not. Integer types and F64 are
// rounded to nearest; Q8_1, which ggml never decodes, gives d*q. Decode panics when len(dst) is not a multiple of the
// block, when src is too short for it, or when the type is unknown; extra bytes in src are ignored. It allocates
// nothing.
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
		panic(fmt.Sprintf("quant: %v: %d elements in %d bytes, blocks have %d elements in %d bytes", t, n, size,
			r.elems, r.bytes))
	}
}

// UnsupportedError is returned by Quantize for types that the package cannot quantize to.
type UnsupportedError struct{ Type Type }

func (e *UnsupportedError) Error() string {
	var names []string
	for _, r := range table {
		if r.quantize != nil {
			names = append(names, r.name)
		}
	}
	last := len(names) - 1
	return fmt.Sprintf("quantizing to %v is not supported; choose %s or %s",
		e.Type, strings.Join(names[:last], ", "), names[last])
}

// tooLarge is beyond what an F16 scale of any type allows, 2^28; to here the searches of scales stay in the range of
// float32.
const tooLarge = 1 << 32

// Quantize encodes src as blocks of type t at the start of dst, byte for byte as ggml_quantize_chunk of ggml does,
// built without fused multiply-add; Q8_1 and Q8_K as quantize_row_q8_1_ref and quantize_row_q8_K_ref do. imatrix, if
// not nil, is the importance of each column, and src is whole rows of len(imatrix) elements. Types that have no use
// for it ignore it.
//
// It returns an UnsupportedError for types without a quantizer, and errors that say so when the type needs an imatrix
// and gets none, or the imatrix does not fit src or is not finite and positive or zero. A block type has an error
// that names the element where a value is not finite, or so large that an F16 scale overflows; dst is then undefined.
// F16 and BF16 take every value, as plain conversions; NVFP4 clips magnitudes above 2688.
//
// A block of values too small for the reciprocal of its scale (below about 1e-36) becomes zero; in some types ggml's
// code is undefined there. Quantize panics when len(src) is not a multiple of the block or dst is too short. It
// allocates nothing unless it fails.
func Quantize(t Type, dst []byte, src, imatrix []float32) error {
	checkSizes(t, len(src), len(dst))
	r := t.row()
	if r.quantize == nil {
		return &UnsupportedError{Type: t}
	}
	if r.elems > 1 {
		for i, v := range src {
			if v-v != 0 {
				return fmt.Errorf("element %d is %g, and %v holds finite values only", i, v, t)
			}
			if r.halves != nil && abs(v) > tooLarge {
				return fmt.Errorf("element %d is %g, too large for the F16 scale of %v", i, v, t)
			}
		}
	}
	if err := quantizeRows(t, dst, src, imatrix); err != nil {
		return err
	}
	of := ""
	if imatrix != nil {
		of = ", or their importances,"
	}
	for i := range len(src) / r.elems {
		if r.overflows(dst[i*r.bytes:][:r.bytes]) {
			return fmt.Errorf("elements %d to %d%s are too large for an F16 scale of %v", i*r.elems, (i+1)*r.elems-1,
				of, t)
		}
	}
	return nil
}

// quantizeRows quantizes rows of len(imatrix) elements, with an imatrix that the type has a use for, or src at once.
func quantizeRows(t Type, dst []byte, src, imatrix []float32) error {
	r := t.row()
	if r.imatrix == noImatrix || imatrix == nil {
		if r.imatrix == needsImatrix {
			return fmt.Errorf("quantizing to %v needs an importance matrix; give one or choose another type", t)
		}
		r.quantize(dst, src, nil)
		return nil
	}
	n := len(imatrix)
	if n == 0 || n%r.elems != 0 || len(src)%n != 0 {
		return fmt.Errorf("the importance matrix has %d values for rows of %d elements of %v in all; it must have "+
			"one per column",
			n, len(src), t)
	}
	for i, w := range imatrix {
		if w-w != 0 || w < 0 {
			return fmt.Errorf("value %d of the importance matrix is %g; values must be finite and not negative", i, w)
		}
	}
	for ; len(src) > 0; src = src[n:] {
		r.quantize(dst, src[:n], imatrix)
		dst = dst[n/r.elems*r.bytes:]
	}
	return nil
}
