package quant

// Types of one or two bits an element, all with one scale d f16 (ggml-common.h). Their fields, in order:
//
//	TQ1_0: qs[48], 5 ternary digits a byte; qh[4], 4 a byte; d        d*(digit-1)
//	TQ2_0: qs[64]; d                                                 d*(q-1)
//	Q1_0:  d; qs[16], element j is bit j%8 of byte j/8               d or -d
//	Q2_0:  d; qs[16], element j is at bits j%4*2 of byte j/4         d*(q-1)
//
// A byte of TQ1_0 is a fraction b/256 whose ternary digits are the elements, the first at 1/3: multiplying by 3^n
// drops n of them, multiplying by 3 once more brings the next above the point.

var pow3 = [5]byte{1, 3, 9, 27, 81}

// ternary decodes digit n of each byte of qs for n in 0..digits-1: y[n*len(qs)+j] = d*(digit n of qs[j] - 1).
func ternary(y []float32, qs []byte, digits int, d float32) {
	for n, p := range pow3[:digits] {
		out := y[n*len(qs):][:len(qs)]
		for j, b := range qs {
			out[j] = float32(int(b*p)*3>>8-1) * d
		}
	}
}

func decodeTQ1_0(dst []float32, src []byte) {
	for len(dst) >= 256 {
		b, y := (*[54]byte)(src), (*[256]float32)(dst)
		d := f16(b[52:])
		ternary(y[:160], b[:32], 5, d)
		ternary(y[160:240], b[32:48], 5, d)
		ternary(y[240:], b[48:52], 4, d)
		dst, src = dst[256:], src[54:]
	}
}

func decodeTQ2_0(dst []float32, src []byte) {
	for len(dst) >= 256 {
		b, y := (*[66]byte)(src), (*[256]float32)(dst)
		d := f16(b[64:])
		for s := range 8 { // 32 elements: half s/4 of qs, bits 2*(s%4)
			out := (*[32]float32)(y[32*s:])
			for j, q := range (*[32]byte)(b[s/4*32:]) {
				out[j] = float32(int(q>>(s%4*2)&3)-1) * d
			}
		}
		dst, src = dst[256:], src[66:]
	}
}

func decodeQ1_0(dst []float32, src []byte) {
	for len(dst) >= 128 {
		b, y := (*[18]byte)(src), (*[128]float32)(dst)
		d := f16(b[:])
		levels := [2]float32{-d, d}
		for i, q := range b[2:] {
			out := (*[8]float32)(y[8*i:])
			for j := range out {
				out[j] = levels[q>>j&1]
			}
		}
		dst, src = dst[128:], src[18:]
	}
}

func decodeQ2_0(dst []float32, src []byte) {
	for len(dst) >= 64 {
		b, y := (*[18]byte)(src), (*[64]float32)(dst)
		d := f16(b[:])
		for i, q := range b[2:] {
			out := (*[4]float32)(y[4*i:])
			for j := range out {
				out[j] = float32(int(q>>(2*j)&3)-1) * d
			}
		}
		dst, src = dst[64:], src[18:]
	}
}

// The quantizers of TQ1_0, TQ2_0 and Q2_0 take the largest magnitude as d: elements become -d, 0 or d, the nearest,
// ties away from 0. So no element of Q2_0 becomes its fourth level, 2*d.

// packTernary writes digits to qs, as ternary reads them. Bytes of fewer than five digits have 0 for the last.
func packTernary(qs []byte, x []float32, digits int, r float32) {
	for j := range qs {
		n := int32(0)
		for k := range digits {
			n = 3*n + nearestAway(x[k*len(qs)+j]*r) + 1
		}
		for range 5 - digits {
			n *= 3
		}
		qs[j] = byte((n*256 + 242) / 243)
	}
}

func quantizeTQ1_0(dst []byte, src, _ []float32) {
	for len(src) >= 256 {
		b, x := (*[54]byte)(dst), (*[256]float32)(src)
		d := abs(extreme(x[:]))
		r := reciprocal(d)
		packTernary(b[:32], x[:160], 5, r)
		packTernary(b[32:48], x[160:240], 5, r)
		packTernary(b[48:52], x[240:], 4, r)
		putF16(b[52:], d)
		dst, src = dst[54:], src[256:]
	}
}

func quantizeTQ2_0(dst []byte, src, _ []float32) {
	for len(src) >= 256 {
		b, x := (*[66]byte)(dst), (*[256]float32)(src)
		d := abs(extreme(x[:]))
		r := reciprocal(d)
		clear(b[:])
		for i, v := range x { // 128 elements: half of qs
			b[i/128*32+i%32] |= byte(nearestAway(v*r)+1) << (i % 128 / 32 * 2)
		}
		putF16(b[64:], d)
		dst, src = dst[66:], src[256:]
	}
}

// quantizeQ1_0 takes the mean of the magnitudes as d.
func quantizeQ1_0(dst []byte, src, _ []float32) {
	for len(src) >= 128 {
		b, x := (*[18]byte)(dst), (*[128]float32)(src)
		clear(b[:])
		var sum float32
		for i, v := range x {
			sum += abs(v)
			if v >= 0 {
				b[2+i/8] |= 1 << (i % 8)
			}
		}
		putF16(b[:], sum/128)
		dst, src = dst[18:], src[128:]
	}
}

func quantizeQ2_0(dst []byte, src, _ []float32) {
	for len(src) >= 64 {
		b, x := (*[18]byte)(dst), (*[64]float32)(src)
		d := abs(extreme(x[:]))
		r := reciprocal(d)
		clear(b[:])
		for i, v := range x {
			b[2+i/4] |= byte(nearestAway(v*r)+1) << (i % 4 * 2)
		}
		putF16(b[:], d)
		dst, src = dst[18:], src[64:]
	}
}

// scaleTQ1_0 keeps to the 243 (81) bytes that stand for digits: those of n are the ceiling of 256*n/243.
func scaleTQ1_0(b []byte, sigma float32) {
	randomScale(b[52:], sigma/0.8165)
	for j, r := range b[:48] {
		b[j] = byte((int(r)*243>>8*256 + 242) / 243)
	}
	for j, r := range b[48:52] {
		b[48+j] = byte((int(r)*81>>8*3*256 + 242) / 243)
	}
}

// scaleTQ2_0 makes the fourth code, which no quantizer writes, a 0.
func scaleTQ2_0(b []byte, sigma float32) {
	randomScale(b[64:], sigma/0.7071)
	for j, q := range b[:64] {
		b[j] = q &^ (q << 1 & q & 0xaa)
	}
}

func scaleQ1_0(b []byte, sigma float32) { randomScale(b, sigma) }

// The signs of the scales bring the mean of the elements, 1/2 within a block, to 0.
func scaleQ2_0(b []byte, sigma float32) { randomSignedScale(b, sigma/1.225) }
