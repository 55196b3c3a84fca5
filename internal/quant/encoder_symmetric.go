package quant

import (
	"slices"
	"unsafe"

	lanes "ck/asm/quant"
)

// symmetricSteps sets the steps of searchSymmetric.
func symmetricSteps(b *lanes.Block, n int32) {
	b.Minimum, b.Highest = float32(-n), float32(n-1)
	b.Steps[0], b.Tries = float32(-n), 1
	for k := int32(-9); k <= 9; k++ {
		if k != 0 {
			b.Steps[b.Tries] = -(float32(n) + float32(0.1*float32(k)))
			b.Tries++
		}
	}
}

// symmetricCodes sets the codes of the 16 sub-blocks of a super-block; the first has number sub in the chunk.
func (e *Encoder) symmetricCodes(codes *[256]byte, x *[256]float32, d float32, sc *[16]int8, sub int, n int32) {
	m := e.room
	for s := range sc {
		m.stored[s], m.storedLow[s] = d*float32(sc[s]), 0
		if m.stored[s] == 0 {
			clear(codes[16*s:][:16])
			if r := m.rs[sub+s]; r != 0 {
				searchSymmetricCodes(codes[16*s:][:16], x[16*s:][:16], r, n)
			}
		}
	}
	e.storedCodes(codes, x, -n, n-1, n)
}

func (e *Encoder) symmetricQ6K(dst []byte, src, imatrix []float32) {
	m := e.room
	b := &m.block
	symmetricSteps(b, 32)
	b.Bad = [lanes.Lanes]uint32{}
	codes := &m.y[0].codes
	column := 0
	for len(src) > 0 {
		x, out := (*[256]float32)(src), (*[210]byte)(dst)
		e.loadGroup(x[:], imatrix, 0, column, 16)
		if imatrix == nil {
			b.Run(e.width, lanes.WeighSquare)
		} else {
			column = (column + 256) % len(imatrix)
		}
		b.Run(e.width, lanes.Symmetric)
		e.take(0, 16)
		if sc, ok := storeScalesQ6K(out, (*[16]float32)(&b.Scale)); ok {
			e.symmetricCodes(codes, x, f16(out[208:]), &sc, 0, 32)
			packQ6K((*[192]byte)(out[:]), codes)
		}
		dst, src = dst[210:], src[256:]
	}
}

func (e *Encoder) symmetricQ3K(dst []byte, src, imatrix []float32) {
	if imatrix != nil {
		e.chunks(dst, src, imatrix, (*Encoder).weightedQ3K)
		return
	}
	b := &e.room.block
	b.Minimum, b.Highest, b.Steps[0] = -4, 3, -4
	for len(src) > 0 {
		x := (*[256]float32)(src)
		e.loadGroup(x[:], nil, 0, 0, 16)
		b.Run(e.width, lanes.WeighSquare)
		b.Run(e.width, lanes.Descent)
		if slices.Max(b.Bad[:]) != 0 {
			quantizeQ3_K(dst, src[:256], nil)
		} else {
			e.descentQ3K((*[110]byte)(dst), x)
		}
		dst, src = dst[110:], src[256:]
	}
}

// descentQ3K writes a block after Descent.
func (e *Encoder) descentQ3K(out *[110]byte, x *[256]float32) {
	m := e.room
	b, y := &m.block, &m.y[0]
	d := scaleCodesQ3K(&y.sc, (*[16]float32)(&b.Scale))
	sc := storeScalesQ3K(out, d, &y.sc)
	d = f16(out[108:])
	for s := range sc {
		m.stored[s], m.storedLow[s] = d*float32(sc[s]), 0
		if m.stored[s] != 0 {
			continue
		}
		for i := range 16 {
			y.codes[16*s+i] = 0
			if b.R[s] != 0 {
				y.codes[16*s+i] = byte(int32(b.Q[i][s]) + 4)
			}
		}
	}
	e.storedCodes(&y.codes, x, -4, 3, 4)
	packQ3K((*[96]byte)(out[:]), &y.codes)
}

// weightedQ3K quantizes a chunk of Q3_K with importances.
func (e *Encoder) weightedQ3K(dst []byte, x, imatrix []float32, column int) {
	m := e.room
	b := &m.block
	clear(m.bad[:])
	b.Bad = [lanes.Lanes]uint32{}
	e.variances(x, 2)
	symmetricSteps(b, 4)
	for at := 0; at < len(x); at += 256 {
		e.loadGroup(x, imatrix, at, column, 16)
		e.weigh(at, 16)
		b.Run(e.width, lanes.Symmetric)
		e.take(at, 16)
	}
	n := len(x) / 256
	for i, v := range m.scales[:16*n] {
		if v-v != 0 {
			m.bad[i/16] = true
		}
	}
	clear(m.scales[16*n:])
	symmetricSteps(b, 32)
	b.N = 16
	b.Src, b.Dst = unsafe.Pointer(&m.scales), unsafe.Pointer(&b.X)
	b.Transpose()
	b.Src, b.Dst = unsafe.Pointer(&m.sums), unsafe.Pointer(&b.W)
	b.Transpose()
	b.Run(e.width, lanes.Symmetric)
	for i := range n {
		out, x := dst[110*i:], (*[256]float32)(x[256*i:])
		if m.bad[i] {
			quantizeQ3_K(out, x[:], e.columns(imatrix, column+256*i, 256))
			continue
		}
		y := &m.y[0]
		clear(y.sc[:])
		if b.R[i] != 0 {
			searchSymmetricCodes(y.sc[:], m.scales[16*i:][:16], b.R[i], 32)
		}
		sc := storeScalesQ3K((*[110]byte)(out), b.Scale[i], &y.sc)
		e.symmetricCodes(&y.codes, x, f16(out[108:]), &sc, 16*i, 4)
		packQ3K((*[96]byte)(out), &y.codes)
	}
}
