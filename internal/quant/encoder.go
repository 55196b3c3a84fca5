package quant

import "ck/internal/isa"

// Encoder quantizes to one type, with the vectors that the CPU has. It gives the bytes and errors of Quantize, which is
// its definition. It has room of its own to work in: each goroutine needs an Encoder of its own.
type Encoder struct {
	t Type
}

// NewEncoder makes an Encoder to type t that may use features f of the CPU.
func NewEncoder(t Type, f isa.Features) *Encoder {
	return &Encoder{t: t}
}

// Encode encodes src as blocks at the start of dst; see Quantize. It allocates nothing unless it fails.
func (e *Encoder) Encode(dst []byte, src, imatrix []float32) error {
	return Quantize(e.t, dst, src, imatrix)
}
