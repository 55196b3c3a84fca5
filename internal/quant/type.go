// Package quant knows the block types of GGUF tensors: their sizes, what their bytes mean and how to make them.
//
// Every type decodes to float32 bit for bit as ggml does (llama.cpp, ggml-quants.c); the packages above read weights
// through Decode unless they have a kernel for the type. A type is one row of the table in table.go and its functions
// in the files of its family: plain.go, legacy.go, k.go and k_quantize.go, iq.go, tq.go, fp4.go; the scales of blocks
// are searched in search.go. Encoder (encoder.go and the files behind it by name) quantizes with vectors, to the same
// bytes as Quantize. Types that no kernel reads as they are can be rewritten, exactly, for kernels of another form:
// codes.go.
package quant

import (
	"fmt"
	"strings"
)

// Type is a ggml tensor type; the numbers are those of GGUF files.
type Type uint32

// Types of GGUF tensors (ggml.h, enum ggml_type). Numbers that are missing were removed from ggml.
const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q8_1    Type = 9
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	Q8_K    Type = 15
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I16     Type = 25
	I32     Type = 26
	I64     Type = 27
	F64     Type = 28
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
	Q1_0    Type = 41
	Q2_0    Type = 42
)

// row is the type's row of the table; unknown types get a zero row.
func (t Type) row() *row {
	if int(t) < len(table) {
		return &table[t]
	}
	return &noRow
}

var noRow row

// Known reports whether ck knows the type; every known type decodes.
func (t Type) Known() bool { return t.row().elems != 0 }

// String is ggml's name of the type, "Q4_K".
func (t Type) String() string {
	if t.Known() {
		return t.row().name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// BlockElems is the number of elements of one block (1 for plain types, 0 for unknown ones).
func (t Type) BlockElems() int { return t.row().elems }

// BlockBytes is the size of one block in bytes.
func (t Type) BlockBytes() int { return t.row().bytes }

// NeedsImatrix reports whether Quantize needs an importance matrix for the type.
func (t Type) NeedsImatrix() bool { return t.row().imatrix == needsImatrix }

// Quantizable reports whether Quantize knows the type.
func (t Type) Quantizable() bool { return t.row().quantize != nil }

// RowBytes is the size in bytes of a row of n elements, n a multiple of BlockElems.
func (t Type) RowBytes(n int) int {
	r := t.row()
	return n / r.elems * r.bytes
}

// Parse finds a type by its ggml name, in either case.
func Parse(name string) (Type, bool) {
	for t, r := range table {
		if r.elems != 0 && strings.EqualFold(r.name, name) {
			return Type(t), true
		}
	}
	return 0, false
}
