package quant

import (
	"unsafe"

	lanes "ck/asm/quant"
)

// stepsIQ4 sets the steps of searchIQ4.
func stepsIQ4(b *lanes.Block) {
	b.Steps[0], b.Tries = valuesIQ4[0], 1
	for k := -7; k <= 7; k++ {
		b.Steps[b.Tries] = float32(k) + valuesIQ4[0]
		b.Tries++
	}
	b.Bad = [lanes.Lanes]uint32{}
}

// superIQ4 quantizes to IQ4_XS.
func (e *Encoder) superIQ4(dst []byte, src, imatrix []float32) {
	stepsIQ4(&e.room.block)
	e.chunks(dst, src, imatrix, (*Encoder).chunkIQ4)
}

// chunkIQ4 quantizes a chunk of IQ4_XS.
func (e *Encoder) chunkIQ4(dst []byte, x, imatrix []float32, column int) {
	m := e.room
	if imatrix != nil {
		e.variances(x, 2)
	}
	for at := 0; at < len(x); at += 512 {
		e.loadGroup(x, imatrix, at, column, 32)
		if imatrix != nil {
			e.weigh(at, 32)
		} else {
			m.block.Run(e.width, lanes.WeighSquare)
		}
		m.block.Run(e.width, lanes.IQ4)
		e.take(at, 32)
	}
	for i := range len(x) / 256 {
		scales := (*[8]float32)(m.scales[8*i:])
		var top float32
		for s, d := range scales {
			scales[s] = finiteOrInf(d)
			if abs(scales[s]) > abs(top) {
				top = scales[s]
			}
		}
		b := (*[136]byte)(dst[136*i:])
		for s, r := range storeScalesIQ4XS(b, -top/32, scales) {
			m.stored[2*s], m.stored[2*s+1] = r, r
		}
		e.codesIQ4(x[256*i:][:256])
		for s := range 8 {
			packNibbles32(b[8+16*s:][:16], m.y[0].codes[32*s:][:32])
		}
	}
}

// codesIQ4 sets the first codes to those of x, up to 256 elements, by the reciprocals in stored.
func (e *Encoder) codesIQ4(x []float32) {
	m := e.room
	c := &m.codes
	c.Src, c.Dst, c.Blocks = unsafe.Pointer(unsafe.SliceData(x)), unsafe.Pointer(&m.y[0].codes), len(x)/16
	c.Scale, c.Low = unsafe.Pointer(&m.stored), unsafe.Pointer(&m.storedLow)
	c.Offset = 0
	c.Run(e.width, lanes.CodesIQ4)
}

// plainIQ4 quantizes to IQ4_NL.
func (e *Encoder) plainIQ4(dst []byte, src, imatrix []float32) {
	m := e.room
	b := &m.block
	stepsIQ4(b)
	b.Average = 2. / 32
	for at := 0; at < len(src); at += 512 {
		e.loadGroup(src, imatrix, at, 0, 32)
		if imatrix != nil {
			b.Run(e.width, lanes.MeanSquares)
			b.Run(e.width, lanes.Weigh)
		} else {
			b.Run(e.width, lanes.WeighSquare)
		}
		b.Run(e.width, lanes.IQ4)
		left := min(16, (len(src)-at)/32)
		for l := 0; l < left; l += 8 {
			n := min(8, left-l)
			for s := range n {
				d := finiteOrInf(b.Scale[l+s])
				putF16(dst[at/32*18+18*(l+s):], d)
				r := reciprocal(d)
				m.stored[2*s], m.stored[2*s+1] = r, r
			}
			e.codesIQ4(src[at+32*l:][:32*n])
			for s := range n {
				packNibbles32(dst[at/32*18+18*(l+s)+2:][:16], m.y[0].codes[32*s:][:32])
			}
		}
	}
}
