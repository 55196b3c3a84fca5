package entropycode

import (
	"encoding/binary"
	"math/bits"

	"ck/internal/quant"
)

// split cuts blocks into planes, which lie in dst one after another.
func split(t quant.Type, dst, src []byte) {
	le := binary.LittleEndian
	switch t {
	case quant.BF16, quant.F16:
		n := len(src) / 2
		low, high := dst[:n], dst[n:2*n]
		for i := range n {
			v := bits.RotateLeft16(le.Uint16(src[2*i:]), 1)
			low[i], high[i] = byte(v), byte(v>>8)
		}
		return
	case quant.F32:
		n := len(src) / 4
		for i := range n {
			v := bits.RotateLeft32(le.Uint32(src[4*i:]), 1)
			dst[i], dst[n+i], dst[2*n+i], dst[3*n+i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		}
		return
	}
	size := t.BlockBytes()
	for _, p := range planes[t] {
		for b := p.at; b < len(src); b += size {
			if p.step == 1 {
				dst = dst[copy(dst, src[b:b+p.n]):]
				continue
			}
			for i := range p.n {
				dst[i] = src[b+i*p.step]
			}
			dst = dst[p.n:]
		}
	}
}

// merge makes blocks of planes.
func merge(t quant.Type, dst []byte, from [][]byte) {
	le := binary.LittleEndian
	switch t {
	case quant.BF16, quant.F16:
		merge16(dst, from[0], from[1])
		return
	case quant.F32:
		n := len(dst) / 4
		a, b, c, d := from[0][:n], from[1][:n], from[2][:n], from[3][:n]
		for i := range n {
			v := uint32(a[i]) | uint32(b[i])<<8 | uint32(c[i])<<16 | uint32(d[i])<<24
			le.PutUint32(dst[4*i:], bits.RotateLeft32(v, -1))
		}
		return
	}
	size := t.BlockBytes()
	for j, p := range planes[t] {
		src := from[j]
		for b := p.at; b < len(dst); b += size {
			if p.step == 1 {
				src = src[copy(dst[b:b+p.n], src):]
				continue
			}
			for i := range p.n {
				dst[b+i*p.step] = src[i]
			}
			src = src[p.n:]
		}
	}
}

// merge16 makes words of their low and high bytes, rotated: four at a time in a register.
func merge16(dst, low, high []byte) {
	le := binary.LittleEndian
	n := len(dst) / 2
	i := 0
	for ; i+4 <= n; i += 4 {
		v := spread(le.Uint32(low[i:])) | spread(le.Uint32(high[i:]))<<8
		le.PutUint64(dst[2*i:], v>>1&0x7fff7fff7fff7fff|v&0x0001000100010001<<15)
	}
	for ; i < n; i++ {
		le.PutUint16(dst[2*i:], bits.RotateLeft16(uint16(low[i])|uint16(high[i])<<8, -1))
	}
}

// spread puts the bytes of v into the low bytes of four words.
func spread(v uint32) uint64 {
	x := uint64(v)
	x = (x | x<<16) & 0x0000ffff0000ffff
	return (x | x<<8) & 0x00ff00ff00ff00ff
}
