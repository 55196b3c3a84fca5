package quant

import (
	"encoding/binary"
	"math"

	"ck/asm/half"
)

// f16 reads a little-endian half.
func f16(b []byte) float32 { return half.F16ToF32(binary.LittleEndian.Uint16(b)) }

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half.F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeBF16(dst []float32, src []byte) {
	for ; len(dst) >= 4; dst, src = dst[4:], src[8:] { // four in one word
		u, d := binary.LittleEndian.Uint64(src), (*[4]float32)(dst)
		lo, hi := uint32(u), uint32(u>>32)
		d[0], d[1] = math.Float32frombits(lo<<16), math.Float32frombits(lo&0xffff0000)
		d[2], d[3] = math.Float32frombits(hi<<16), math.Float32frombits(hi&0xffff0000)
	}
	for i := range dst {
		dst[i] = half.BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeF64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

func decodeI8(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int8(src[i]))
	}
}

func decodeI16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int16(binary.LittleEndian.Uint16(src[2*i:])))
	}
}

func decodeI32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int32(binary.LittleEndian.Uint32(src[4*i:])))
	}
}

func decodeI64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int64(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

// putF16 writes a little-endian half.
func putF16(b []byte, f float32) { binary.LittleEndian.PutUint16(b, half.F32ToF16(f)) }

func quantizeF32(dst []byte, src, _ []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

func quantizeF16(dst []byte, src, _ []float32) {
	for i, v := range src {
		putF16(dst[2*i:], v)
	}
}

func quantizeBF16(dst []byte, src, _ []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], half.F32ToBF16(v))
	}
}

// scaleF64 takes the random bytes as a uniform number in [-1, 1), whose deviation is 1/sqrt(3).
func scaleF64(b []byte, sigma float32) {
	u := float64(int64(binary.LittleEndian.Uint64(b))) / (1 << 63)
	binary.LittleEndian.PutUint64(b, math.Float64bits(u*float64(sigma)*math.Sqrt(3)))
}
