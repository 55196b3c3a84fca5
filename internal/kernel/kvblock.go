package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"

	"ck/asm/attn"
	"ck/asm/elem"
	"ck/asm/half"
	"ck/internal/quant"
)

// Store writes key k [D] and value v [Dv] to position i (0..63) of a block.
func (f *KVFormat) Store(kb, vb []byte, i int, k, v []float32) {
	kb, vb, k, v = kb[:f.kb], vb[:f.vb], k[:f.D], v[:f.Dv]
	kq, vq := kb[f.ko:], vb[f.vo:]
	switch f.Type {
	case quant.F32:
		for d, x := range k {
			binary.LittleEndian.PutUint32(kb[4*(BlockKeys*d+i):], math.Float32bits(x))
		}
		row := vb[4*f.dvp*i:][:4*f.dvp]
		clear(row[4*f.Dv:])
		for d, x := range v {
			binary.LittleEndian.PutUint32(row[4*d:], math.Float32bits(x))
		}
	case quant.F16, quant.BF16:
		var h [64]uint16
		for d0 := 0; d0 < f.D; d0 += len(h) {
			n := min(f.D-d0, len(h))
			f.round(h[:n], k[d0:][:n])
			for d, x := range h[:n] {
				binary.LittleEndian.PutUint16(kb[2*(BlockKeys*(d0+d)+i):], x)
			}
		}
		row := vb[2*f.dvp*i:][:2*f.dvp]
		clear(row[2*f.Dv:])
		for d0 := 0; d0 < f.Dv; d0 += len(h) {
			n := min(f.Dv-d0, len(h))
			f.round(h[:n], v[d0:][:n])
			for d, x := range h[:n] {
				binary.LittleEndian.PutUint16(row[2*(d0+d):], x)
			}
		}
	case quant.Q8_0:
		var q [32]int8
		for b := range f.kn {
			n := min(f.D-32*b, 32)
			h := quantQ8(&q, k[32*b:][:n])
			for j, x := range q[:n] {
				kq[BlockKeys*(32*b+j)+i] = byte(x)
			}
			binary.LittleEndian.PutUint16(kb[2*(BlockKeys*b+i):], h)
		}
		row := vq[f.vw*i:][:f.vw]
		clear(row[f.Dv:])
		for b := range f.vn {
			n := min(f.Dv-32*b, 32)
			h := quantQ8(&q, v[32*b:][:n])
			for j, x := range q[:n] {
				row[32*b+j] = byte(x)
			}
			binary.LittleEndian.PutUint16(vb[2*(f.vn*i+b):], h)
		}
	case quant.Q4_0:
		var q [16]byte
		for b := range f.kn {
			h := quantQ4(&q, k[32*b:min(f.D, 32*b+32)])
			for j, x := range q {
				kq[BlockKeys*(16*b+j)+i] = x
			}
			binary.LittleEndian.PutUint16(kb[2*(BlockKeys*b+i):], h)
		}
		for b := range f.vn {
			h := quantQ4(&q, v[32*b:min(f.Dv, 32*b+32)])
			copy(vq[16*(f.vn*i+b):], q[:])
			binary.LittleEndian.PutUint16(vb[2*(f.vn*i+b):], h)
		}
	}
}

// StoreRows writes n keys and values to positions i..i+n-1 of a block; that of position i+r begin at k[r*ks] and v[r*vs]. It has
// the bits of Store.
func (f *KVFormat) StoreRows(s *AttnScratch, kb, vb []byte, i, n int, k []float32, ks int, v []float32, vs int) {
	const tile = 8
	for n > 0 {
		if f.size != 2 || n < tile {
			f.Store(kb, vb, i, k[:f.D], v[:f.Dv])
			i, n = i+1, n-1
			if n > 0 {
				k, v = k[ks:], v[vs:]
			}
			continue
		}
		if len(s.h) < tile*f.D {
			s.h = make([]uint16, tile*f.D)
		}
		keys := unsafe.Slice((*uint16)(unsafe.Pointer(&kb[:f.kb][0])), f.kb/2)
		values := unsafe.Slice((*uint16)(unsafe.Pointer(&vb[:f.vb][0])), f.vb/2)
		for r := range tile {
			f.round(s.h[r*f.D:][:f.D], k[r*ks:][:f.D])
			row := values[(i+r)*f.dvp:][:f.dvp]
			f.round(row[:f.Dv], v[r*vs:][:f.Dv])
			clear(row[f.Dv:])
		}
		attn.StoreKeys(f.w, keys[i:], s.h, f.D, f.D)
		i, n = i+tile, n-tile
		if n > 0 {
			k, v = k[tile*ks:], v[tile*vs:]
		}
	}
}

// round converts src to the format's 16-bit floats. (Not a function variable: h would move to the heap.)
func (f *KVFormat) round(h []uint16, src []float32) {
	if f.Type == quant.BF16 {
		elem.F32ToBF16(f.ew, h, src)
	} else {
		elem.F32ToF16(f.ew, h, src)
	}
}

// quantQ8 quantizes up to 32 elements as ggml's Q8_0 does (scale amax/127, half away from zero) and returns the scale. Elements
// that are not finite give a scale that is not.
func quantQ8(q *[32]int8, x []float32) uint16 {
	var bits uint32 // |x| compared as bits: NaN is largest
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&0x7fffffff)
	}
	d := math.Float32frombits(bits) / 127
	*q = [32]int8{}
	if bits >= 0x7f800000 || d == 0 {
		return half.F32ToF16(d)
	}
	id := 1 / d
	for j, v := range x {
		q[j] = int8(max(-127, min(127, math.Round(float64(v*id))))) // 1/d may overflow where d is subnormal
	}
	return half.F32ToF16(d)
}

// quantQ4 quantizes up to 32 elements as ggml's Q4_0 does: the scale maps the element of largest size to -8.
func quantQ4(q *[16]byte, x []float32) uint16 {
	var bits uint32
	var top float32
	for _, v := range x {
		if b := math.Float32bits(v) & 0x7fffffff; b > bits {
			bits, top = b, v
		}
	}
	for j := range q {
		q[j] = 0x88
	}
	d := top / -8
	if bits >= 0x7f800000 || d == 0 {
		return half.F32ToF16(d)
	}
	id := 1 / d
	for j, v := range x {
		n := byte(max(0, min(15, math.Floor(float64(float32(v*id)+8.5)))))
		if j < 16 {
			q[j] = q[j]&0xf0 | n
		} else {
			q[j-16] = q[j-16]&0x0f | n<<4
		}
	}
	return half.F32ToF16(d)
}

// Load decodes position i of a block to k [D] and v [Dv].
func (f *KVFormat) Load(kb, vb []byte, i int, k, v []float32) {
	for d := range k[:f.D] {
		k[d] = f.keyAt(kb, d, i)
	}
	for d := range v[:f.Dv] {
		v[d] = f.valueAt(vb, d, i)
	}
}

func le16(b []byte, i int) uint16 { return binary.LittleEndian.Uint16(b[2*i:]) }

// keyAt is element d of key i of a block.
func (f *KVFormat) keyAt(kb []byte, d, i int) float32 {
	j, kq := BlockKeys*d+i, kb[f.ko:]
	switch f.Type {
	case quant.F16:
		return half.F16ToF32(le16(kb, j))
	case quant.BF16:
		return half.BF16ToF32(le16(kb, j))
	case quant.Q8_0:
		return float32(int8(kq[j])) * half.F16ToF32(le16(kb, BlockKeys*(d/32)+i))
	case quant.Q4_0:
		b := kq[BlockKeys*(d/32*16+d%16)+i] >> (d % 32 / 16 * 4) & 15
		return float32(int(b)-8) * half.F16ToF32(le16(kb, BlockKeys*(d/32)+i))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(kb[4*j:]))
}

// valueAt is element d of value i of a block, d below vw.
func (f *KVFormat) valueAt(vb []byte, d, i int) float32 {
	j, vq := f.vw*i+d, vb[f.vo:]
	switch f.Type {
	case quant.F16:
		return half.F16ToF32(le16(vb, j))
	case quant.BF16:
		return half.BF16ToF32(le16(vb, j))
	case quant.Q8_0:
		return float32(int8(vq[j])) * half.F16ToF32(le16(vb, f.vn*i+d/32))
	case quant.Q4_0:
		b := vq[16*(f.vn*i+d/32)+d%16] >> (d % 32 / 16 * 4) & 15
		return float32(int(b)-8) * half.F16ToF32(le16(vb, f.vn*i+d/32))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(vb[4*j:]))
}
