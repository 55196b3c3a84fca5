package hf

import (
	"ck/asm/half"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// A recipe makes a tensor of a folder what GGUF has. Of a matrix, t, it sets how rows are found while they are packed, so that none is copied;
// the elements of a vector are there already, and it changes them where they are.
type recipe func(c *config, t *gguf.Tensor, vector []float32) error

// permute puts the rows of so many heads, or a vector's elements, in GGUF's order for the rotation: llama.cpp's "norm" rope turns neighbours,
// transformers elements that lie half a head apart.
func permute(heads func(*config) int) recipe {
	return func(c *config, t *gguf.Tensor, vector []float32) error {
		h := heads(c)
		if rows := t.Shape[len(t.Shape)-1]; rows != h*c.headDim {
			shape := slices.Clone(t.Shape)
			slices.Reverse(shape) // as the file says it
			return fmt.Errorf("shape %v, expected %d heads of %d rows", shape, h, c.headDim)
		}
		if vector != nil {
			copy(vector, interleave(vector, h))
		} else {
			t.Interleave = h
		}
		return nil
	}
}

// onePlus adds one to the elements of a norm, in float32 as transformers does where it multiplies by it.
func onePlus(_ *config, t *gguf.Tensor, vector []float32) error {
	if vector == nil {
		return fmt.Errorf("%d dimensions, expected the vector of a norm", len(t.Shape))
	}
	for i := range vector {
		vector[i]++
	}
	return nil
}

// widen makes a matrix one of F32, whose rows are decoded when they are read.
func widen(t *gguf.Tensor) error {
	typ, from, cols := t.Type, t.Data, t.Shape[0]
	if typ == quant.F32 {
		return nil
	}
	if t.Make != nil || typ != quant.F16 && typ != quant.BF16 {
		return fmt.Errorf("a router of %v is not supported; expected F32, F16 or BF16", typ)
	}
	t.Type, t.Data = quant.F32, nil
	t.Make = func(dst []byte, r int) {
		x, err := toFloats(typ, from[r*cols*2:(r+1)*cols*2])
		if err != nil {
			panic(err) // the type was checked
		}
		copy(dst, floatBytes(x))
	}
	return nil
}

// interleave puts the halves of each head's elements in GGUF's order (see gguf.Tensor.Row).
func interleave(x []float32, heads int) []float32 {
	out := make([]float32, len(x))
	d := len(x) / heads
	for h := range heads {
		for i := range d / 2 {
			out[h*d+2*i] = x[h*d+i]
			out[h*d+2*i+1] = x[h*d+d/2+i]
		}
	}
	return out
}

// toFloats decodes a vector's elements, exactly for all types but F64.
func toFloats(typ quant.Type, b []byte) ([]float32, error) {
	le := binary.LittleEndian
	size := typ.BlockBytes()
	out := make([]float32, len(b)/size)
	for i := range out {
		e := b[i*size:]
		switch typ {
		case quant.F32:
			out[i] = math.Float32frombits(le.Uint32(e))
		case quant.F16:
			out[i] = half.F16ToF32(le.Uint16(e))
		case quant.BF16:
			out[i] = math.Float32frombits(uint32(le.Uint16(e)) << 16)
		case quant.F64:
			out[i] = float32(math.Float64frombits(le.Uint64(e)))
		default:
			return nil, fmt.Errorf("a vector of %v is not supported; expected F32, F16 or BF16", typ)
		}
	}
	return out, nil
}

func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// vector is a tensor of float32 that was computed.
func vector(name string, x []float32) *gguf.Tensor {
	return &gguf.Tensor{Name: name, Type: quant.F32, Shape: []int{len(x)}, Data: floatBytes(x), File: -1}
}
