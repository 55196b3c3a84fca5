package quant

import (
	"encoding/binary"

	lanes "ck/asm/quant"
)

// fp4 quantizes to MXFP4 and NVFP4, 16 scales at a time.
func (e *Encoder) fp4(dst []byte, src, _ []float32) {
	m := e.room
	size, elems := e.t.BlockBytes(), e.t.BlockElems()
	n := 32 // elements with a scale
	if e.t == NVFP4 {
		n = 16
	}
	for at := 0; at < len(src); at += lanes.Lanes * n {
		e.loadGroup(src, nil, at, 0, n)
		m.block.Run(e.width, lanes.Extremes)
		for l := 0; l < lanes.Lanes && at+n*l < len(src); l += 256 / n {
			x := src[at+n*l : min(len(src), at+n*l+256)]
			out := dst[(at+n*l)/elems*size:]
			for s := range len(x) / n {
				e.scaleFP4(out[s*n/elems*size:], l+s, s)
			}
			e.legacyCodes(x, lanes.CodesFP4, 0, 0, 0, 0)
			packFP4(out, m.y[0].codes[:len(x)], e.t)
		}
	}
}

// scaleFP4 writes the scale of lane l, which is number s of those at hand; b begins with its block.
func (e *Encoder) scaleFP4(b []byte, l, s int) {
	m := e.room
	top := abs(m.block.Scale[l])
	if e.t == NVFP4 {
		b[s%4] = toUE4M3(top / 6)
		m.stored[s] = ue4m3Half(b[s%4])
		return
	}
	b[0] = codeE8M0(top)
	m.stored[2*s] = e8m0Half(b[0])
	m.stored[2*s+1] = m.stored[2*s]
}

// packFP4 writes the codes of blocks, two to a byte.
func packFP4(b, codes []byte, t Type) {
	pair := func(b, low, high []byte) {
		v := binary.LittleEndian.Uint64(low) | binary.LittleEndian.Uint64(high)<<4
		binary.LittleEndian.PutUint64(b, v)
	}
	if t == NVFP4 {
		for ; len(codes) >= 64; b, codes = b[36:], codes[64:] {
			for s := range 4 {
				pair(b[4+8*s:], codes[16*s:], codes[16*s+8:])
			}
		}
		return
	}
	for ; len(codes) >= 32; b, codes = b[17:], codes[32:] {
		pair(b[1:], codes, codes[16:])
		pair(b[9:], codes[8:], codes[24:])
	}
}
