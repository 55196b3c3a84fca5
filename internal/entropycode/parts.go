package entropycode

import "ck/internal/quant"

// plane is bytes of a block that are coded together: n of them, from at on, step apart.
type plane struct {
	part        string
	at, n, step int
}

// field is a part of a block as it lies there: words of so many bytes. Each byte of a word is a plane of its own.
type field struct {
	part  string
	bytes int
	word  int
}

// Names of parts.
const (
	exponent = "exponent"
	mantissa = "mantissa"
	codes    = "codes"
	scales   = "scales"
	superD   = "d"
	other    = "bytes"
)

// fields has the fields of each block type from its first byte on. Types that are not there are one word of their
// size.
var fields = map[quant.Type][]field{
	quant.Q4_0:    {{scales, 2, 2}, {codes, 16, 1}},
	quant.Q4_1:    {{scales, 4, 2}, {codes, 16, 1}},
	quant.Q5_0:    {{scales, 2, 2}, {codes, 4, 1}, {codes, 16, 1}},
	quant.Q5_1:    {{scales, 4, 2}, {codes, 4, 1}, {codes, 16, 1}},
	quant.Q8_0:    {{scales, 2, 2}, {codes, 32, 1}},
	quant.Q8_1:    {{scales, 4, 2}, {codes, 32, 1}},
	quant.Q2_K:    {{scales, 16, 1}, {codes, 64, 1}, {superD, 4, 2}},
	quant.Q3_K:    {{codes, 32, 1}, {codes, 64, 1}, {scales, 12, 1}, {superD, 2, 2}},
	quant.Q4_K:    {{superD, 4, 2}, {scales, 12, 1}, {codes, 128, 1}},
	quant.Q5_K:    {{superD, 4, 2}, {scales, 12, 1}, {codes, 32, 1}, {codes, 128, 1}},
	quant.Q6_K:    {{codes, 128, 1}, {codes, 64, 1}, {scales, 16, 1}, {superD, 2, 2}},
	quant.Q8_K:    {{superD, 4, 4}, {codes, 256, 1}, {scales, 32, 2}},
	quant.IQ1_S:   {{superD, 2, 2}, {codes, 32, 1}, {scales, 16, 2}},
	quant.IQ1_M:   {{codes, 32, 1}, {codes, 16, 1}, {scales, 8, 2}},
	quant.IQ2_XXS: {{superD, 2, 2}, {codes, 64, 8}},
	quant.IQ2_XS:  {{superD, 2, 2}, {codes, 64, 2}, {scales, 8, 1}},
	quant.IQ2_S:   {{superD, 2, 2}, {codes, 32, 1}, {codes, 40, 1}, {scales, 8, 1}},
	quant.IQ3_XXS: {{superD, 2, 2}, {codes, 64, 1}, {scales, 32, 4}},
	quant.IQ3_S:   {{superD, 2, 2}, {codes, 64, 1}, {codes, 40, 1}, {scales, 4, 1}},
	quant.IQ4_NL:  {{scales, 2, 2}, {codes, 16, 1}},
	quant.IQ4_XS:  {{superD, 2, 2}, {scales, 6, 1}, {codes, 128, 1}},
	quant.TQ1_0:   {{codes, 52, 1}, {scales, 2, 2}},
	quant.TQ2_0:   {{codes, 64, 1}, {scales, 2, 2}},
	quant.Q1_0:    {{scales, 2, 2}, {codes, 16, 1}},
	quant.Q2_0:    {{scales, 2, 2}, {codes, 16, 1}},
	quant.MXFP4:   {{scales, 1, 1}, {codes, 16, 1}},
	quant.NVFP4:   {{scales, 4, 1}, {codes, 32, 1}},
}

// planes has the planes of each type.
var planes = func() (list [quant.Types][]plane) {
	for i := range list {
		if t := quant.Type(i); t.Known() {
			list[i] = planesOf(t)
		}
	}
	return list
}()

// planesOf lists a type's planes. Words of F32, F16 and BF16 are rotated left by one bit before they are cut. The
// sign, which has no order, then lies with the mantissa, and the last byte holds the exponent (of F16 with three bits
// of the mantissa).
func planesOf(t quant.Type) (list []plane) {
	size := t.BlockBytes()
	of := fields[t]
	switch t {
	case quant.F32, quant.F16, quant.BF16, quant.F64:
		for i := range size - 1 {
			list = append(list, plane{mantissa, i, 1, 1})
		}
		return append(list, plane{exponent, size - 1, 1, 1})
	}
	if of == nil {
		of = []field{{other, size, size}}
	}
	at := 0
	for _, f := range of {
		for i := range f.word {
			list = append(list, plane{f.part, at + i, f.bytes / f.word, f.word})
		}
		at += f.bytes
	}
	return list
}

// Parts lists the names of a type's parts in the order of their planes.
func Parts(t quant.Type) (names []string) {
	for _, p := range planes[t] {
		names = append(names, p.part)
	}
	return names
}
