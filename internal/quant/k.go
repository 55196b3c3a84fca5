package quant

import (
	"encoding/binary"
	"math"
)

// The K types: super-blocks of 256 elements with quantized scales (ggml-common.h). Their fields, in order:
//
//	Q2_K: scales[16], scale in the low nibble and minimum in the high one; qs[64]; d, dmin f16    d*sc*q - dmin*m
//	Q3_K: hmask[32]; qs[64]; scales[12], 16 of 6 bits; d f16                                      d*(sc-32)*(q-4)
//	Q4_K: d, dmin f16; scales[12], 8 scales and 8 minima of 6 bits; qs[128]                       d*sc*q - dmin*m
//	Q5_K: d, dmin f16; scales[12]; qh[32]; qs[128]                                                d*sc*q - dmin*m
//	Q6_K: ql[128]; qh[64]; scales[16] int8; d f16                                                 d*sc*(q-32)
//	Q8_K: d f32; qs[256] int8; bsums[16] int16, the sums of 16 qs each (activations only)         d*q
//
// Scales are multiplied in the order d*sc, then by q, each product rounded; that of dmin*m too, and explicitly, since
// compilers may fuse across statements.

func decodeQ2_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		b, y := (*[84]byte)(src), (*[256]float32)(dst)
		scales, qs, d, dmin := b[:16], b[16:80], f16(b[80:]), f16(b[82:])
		// Sub-block s of 16 elements: half s/8 of qs, bits 2*(s%8/2), the first or second 16 bytes.
		for s, sc := range scales {
			dl, ml := d*float32(sc&15), float32(dmin*float32(sc>>4))
			shift := s % 8 / 2 * 2
			out := y[16*s:][:16]
			for j, q := range qs[s/8*32+s%2*16:][:16] {
				out[j] = float32(dl*float32(q>>shift&3)) - ml
			}
		}
		dst, src = dst[256:], src[84:]
	}
}

// scalesQ3K unpacks the 16 scales of a Q3_K block: four low bits of scale s in nibble s/8 of byte s%8, two high bits
// at 2*(s/4) of byte 8+s%4. They are offset by 32.
func scalesQ3K(b *[12]byte) (sc [16]int8) {
	for s := range sc {
		sc[s] = int8(b[s%8]>>(s/8*4)&15|b[8+s%4]>>(s/4*2)&3<<4) - 32
	}
	return sc
}

func decodeQ3_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		b, y := (*[110]byte)(src), (*[256]float32)(dst)
		hmask, qs, scales, d := b[:32], b[32:96], scalesQ3K((*[12]byte)(b[96:])), f16(b[108:])
		for s, sc := range scales {
			dl := d * float32(sc)
			shift, bit := s%8/2*2, s/2 // bit s/2 of hmask is the high bit of these elements
			out, high := y[16*s:][:16], hmask[s%2*16:][:16]
			for j, q := range qs[s/8*32+s%2*16:][:16] {
				out[j] = dl * float32(int(q>>shift&3|high[j]>>bit&1<<2)-4)
			}
		}
		dst, src = dst[256:], src[110:]
	}
}

// scalesQ4K unpacks the 8 scales and 8 minima of a Q4_K or Q5_K block: those of sub-blocks 0..3 are the low six bits
// of bytes 0..3 and 4..7; those of 4..7 have their low nibbles in bytes 8..11 and their high bits on top of bytes
// 0..7.
func scalesQ4K(b *[12]byte) (sc, m [8]byte) {
	for s := range 4 {
		sc[s], m[s] = b[s]&63, b[s+4]&63
		sc[s+4] = b[s+8]&15 | b[s]>>6<<4
		m[s+4] = b[s+8]>>4 | b[s+4]>>6<<4
	}
	return sc, m
}

func decodeQ4_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		b, y := (*[144]byte)(src), (*[256]float32)(dst)
		d, dmin := f16(b[:]), f16(b[2:])
		sc, m := scalesQ4K((*[12]byte)(b[4:]))
		// 32 bytes hold two sub-blocks of 32, low nibbles then high ones.
		for p := range 4 {
			d0, m0 := d*float32(sc[2*p]), float32(dmin*float32(m[2*p]))
			d1, m1 := d*float32(sc[2*p+1]), float32(dmin*float32(m[2*p+1]))
			out := (*[64]float32)(y[64*p:])
			for j, q := range (*[32]byte)(b[16+32*p:]) {
				out[j] = float32(d0*float32(q&15)) - m0
				out[j+32] = float32(d1*float32(q>>4)) - m1
			}
		}
		dst, src = dst[256:], src[144:]
	}
}

func decodeQ5_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		b, y := (*[176]byte)(src), (*[256]float32)(dst)
		d, dmin := f16(b[:]), f16(b[2:])
		sc, m := scalesQ4K((*[12]byte)(b[4:]))
		qh := (*[32]byte)(b[16:])
		// As Q4_K; bit s of qh[j] is bit 4 of element j of sub-block s.
		for p := range 4 {
			d0, m0 := d*float32(sc[2*p]), float32(dmin*float32(m[2*p]))
			d1, m1 := d*float32(sc[2*p+1]), float32(dmin*float32(m[2*p+1]))
			out := (*[64]float32)(y[64*p:])
			for j, q := range (*[32]byte)(b[48+32*p:]) {
				h := qh[j] >> (2 * p)
				out[j] = float32(d0*float32(q&15|h&1<<4)) - m0
				out[j+32] = float32(d1*float32(q>>4|h&2<<3)) - m1
			}
		}
		dst, src = dst[256:], src[176:]
	}
}

func decodeQ6_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		b, y := (*[210]byte)(src), (*[256]float32)(dst)
		d := f16(b[208:])
		// Half p of 128 elements: 64 bytes of ql, 32 of qh, 8 scales. Bits 2*k of qh[j] belong to element 32*k+j.
		for p := range 2 {
			ql, qh := (*[64]byte)(b[64*p:]), (*[32]byte)(b[128+32*p:])
			out := (*[128]float32)(y[128*p:])
			var dl [8]float32
			for s := range dl {
				dl[s] = d * float32(int8(b[192+8*p+s]))
			}
			for j, h := range qh {
				s := j / 16
				out[j] = dl[s] * float32(int(ql[j]&15|h&3<<4)-32)
				out[j+32] = dl[s+2] * float32(int(ql[j+32]&15|h>>2&3<<4)-32)
				out[j+64] = dl[s+4] * float32(int(ql[j]>>4|h>>4&3<<4)-32)
				out[j+96] = dl[s+6] * float32(int(ql[j+32]>>4|h>>6<<4)-32)
			}
		}
		dst, src = dst[256:], src[210:]
	}
}

func decodeQ8_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		b, y := (*[292]byte)(src), (*[256]float32)(dst)
		d := math.Float32frombits(binary.LittleEndian.Uint32(b[:]))
		for j, q := range b[4:260] {
			y[j] = d * float32(int8(q))
		}
		dst, src = dst[256:], src[292:]
	}
}

// In random blocks the scales and minima are uniform; dmin is d times the mean of q, so that the mean of the elements
// is 0.

func scaleQ2_K(b []byte, sigma float32) {
	d := randomScale(b[80:], sigma/13.87)
	putF16(b[82:], 1.5*d)
}

func scaleQ3_K(b []byte, sigma float32) { randomSignedScale(b[108:], sigma/43.34) }

func scaleQ4_K(b []byte, sigma float32) {
	d := randomScale(b, sigma/258.3)
	putF16(b[2:], 7.5*d)
}

func scaleQ5_K(b []byte, sigma float32) {
	d := randomScale(b, sigma/526.9)
	putF16(b[2:], 15.5*d)
}

func scaleQ6_K(b []byte, sigma float32) { randomSignedScale(b[208:], sigma/1366) }

func scaleQ8_K(b []byte, sigma float32) {
	binary.LittleEndian.PutUint32(b, math.Float32bits(sigma/73.90*jitter(b[0])))
	noMin8(b[4:260])
	for g := range 16 {
		sum := 0
		for _, q := range b[4+16*g:][:16] {
			sum += int(int8(q))
		}
		binary.LittleEndian.PutUint16(b[260+2*g:], uint16(sum))
	}
}
