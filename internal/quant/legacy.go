package quant

import "encoding/binary"

// The types with blocks of 32 elements and one scale (ggml-common.h). Their fields, in order:
//
//	Q4_0: d f16; qs[16], element j in the low nibble of qs[j], j+16 in the high one          d*(q-8)
//	Q4_1: d, m f16; qs[16]                                                                  d*q + m
//	Q5_0: d f16; qh u32, bit j is bit 4 of element j; qs[16]                                d*(q-16)
//	Q5_1: d, m f16; qh u32; qs[16]                                                          d*q + m
//	Q8_0: d f16; qs[32] int8                                                                d*q
//	Q8_1: d, s f16; qs[32] int8; s is d times the sum of qs                                 d*q
//
// A product that is added to is converted explicitly, float32(a*b)+c, which keeps compilers for machines with fused
// multiply-add from fusing: ggml's values are those of two roundings.

func decodeQ4_0(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[18]byte)(src), (*[32]float32)(dst)
		d := f16(b[:])
		for j, q := range b[2:] {
			y[j] = float32(int(q&15)-8) * d
			y[j+16] = float32(int(q>>4)-8) * d
		}
		dst, src = dst[32:], src[18:]
	}
}

func decodeQ4_1(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[20]byte)(src), (*[32]float32)(dst)
		d, m := f16(b[:]), f16(b[2:])
		for j, q := range b[4:] {
			y[j] = float32(float32(q&15)*d) + m
			y[j+16] = float32(float32(q>>4)*d) + m
		}
		dst, src = dst[32:], src[20:]
	}
}

func decodeQ5_0(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[22]byte)(src), (*[32]float32)(dst)
		d, h := f16(b[:]), binary.LittleEndian.Uint32(b[2:])
		for j, q := range b[6:] {
			y[j] = float32(int(q&15|byte(h>>j<<4&16))-16) * d
			y[j+16] = float32(int(q>>4|byte(h>>(j+12)&16))-16) * d
		}
		dst, src = dst[32:], src[22:]
	}
}

func decodeQ5_1(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[24]byte)(src), (*[32]float32)(dst)
		d, m, h := f16(b[:]), f16(b[2:]), binary.LittleEndian.Uint32(b[4:])
		for j, q := range b[8:] {
			y[j] = float32(float32(q&15|byte(h>>j<<4&16))*d) + m
			y[j+16] = float32(float32(q>>4|byte(h>>(j+12)&16))*d) + m
		}
		dst, src = dst[32:], src[24:]
	}
}

func decodeQ8_0(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[34]byte)(src), (*[32]float32)(dst)
		d := f16(b[:])
		for j, q := range b[2:] {
			y[j] = float32(int8(q)) * d
		}
		dst, src = dst[32:], src[34:]
	}
}

func decodeQ8_1(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b, y := (*[36]byte)(src), (*[32]float32)(dst)
		d := f16(b[:])
		for j, q := range b[4:] {
			y[j] = float32(int8(q)) * d
		}
		dst, src = dst[32:], src[36:]
	}
}
