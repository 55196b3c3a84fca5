package quant

import "fmt"

// row says all that the package knows of one type.
type row struct {
	name   string
	elems  int                             // elements of a block
	bytes  int                             // bytes of a block
	decode func(dst []float32, src []byte) // decodes len(dst)/elems blocks
}

// table has one row per type, at the type's number; adding a type is adding a row and the functions that it names.
var table = [...]row{
	F32:  {"F32", 1, 4, decodeF32},
	F16:  {"F16", 1, 2, decodeF16},
	BF16: {"BF16", 1, 2, decodeBF16},
	F64:  {"F64", 1, 8, decodeF64},
	I8:   {"I8", 1, 1, decodeI8},
	I16:  {"I16", 1, 2, decodeI16},
	I32:  {"I32", 1, 4, decodeI32},
	I64:  {"I64", 1, 8, decodeI64},

	Q4_0: {"Q4_0", 32, 18, decodeQ4_0},
	Q4_1: {"Q4_1", 32, 20, decodeQ4_1},
	Q5_0: {"Q5_0", 32, 22, decodeQ5_0},
	Q5_1: {"Q5_1", 32, 24, decodeQ5_1},
	Q8_0: {"Q8_0", 32, 34, decodeQ8_0},
	Q8_1: {"Q8_1", 32, 36, decodeQ8_1},

	Q2_K: {"Q2_K", 256, 84, decodeQ2_K},
	Q3_K: {"Q3_K", 256, 110, decodeQ3_K},
	Q4_K: {"Q4_K", 256, 144, decodeQ4_K},
	Q5_K: {"Q5_K", 256, 176, decodeQ5_K},
	Q6_K: {"Q6_K", 256, 210, decodeQ6_K},
	Q8_K: {"Q8_K", 256, 292, decodeQ8_K},

	IQ1_S:   {"IQ1_S", 256, 50, decodeIQ1_S},
	IQ1_M:   {"IQ1_M", 256, 56, decodeIQ1_M},
	IQ2_XXS: {"IQ2_XXS", 256, 66, decodeIQ2_XXS},
	IQ2_XS:  {"IQ2_XS", 256, 74, decodeIQ2_XS},
	IQ2_S:   {"IQ2_S", 256, 82, decodeIQ2_S},
	IQ3_XXS: {"IQ3_XXS", 256, 98, decodeIQ3_XXS},
	IQ3_S:   {"IQ3_S", 256, 110, decodeIQ3_S},
	IQ4_NL:  {"IQ4_NL", 32, 18, decodeIQ4_NL},
	IQ4_XS:  {"IQ4_XS", 256, 136, decodeIQ4_XS},

	TQ1_0: {"TQ1_0", 256, 54, decodeTQ1_0},
	TQ2_0: {"TQ2_0", 256, 66, decodeTQ2_0},
	Q1_0:  {"Q1_0", 128, 18, decodeQ1_0},
	Q2_0:  {"Q2_0", 64, 18, decodeQ2_0},

	MXFP4: {"MXFP4", 32, 17, decodeMXFP4},
	NVFP4: {"NVFP4", 64, 36, decodeNVFP4},
}

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
