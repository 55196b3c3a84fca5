package quant

import lanes "ck/asm/quant"

// ternary quantizes to IQ1_S and IQ1_M, 16 sub-blocks at a time: two super-blocks or one.
func (e *Encoder) ternary(dst []byte, src, imatrix []float32) {
	m, g := e.room, latticeIQ1()
	size, least, op := 32, float32(leastIQ1S), lanes.Ternary32
	if e.t == IQ1_M {
		size, least, op = 16, leastIQ1M, lanes.Ternary16
	}
	subs, n := 256/size, e.t.BlockBytes()
	for at := 0; at < len(src); at += lanes.Lanes * size {
		supers := min(lanes.Lanes/subs, (len(src)-at)/256)
		for k := range supers {
			x := (*[256]float32)(src[at+256*k:])
			searchOpenIQ1(&m.ternary[k], x, e.columns(imatrix, at+256*k, 256), size, least)
			e.ternarySums(&m.ternary[k], x, size, subs*k)
		}
		m.block.Run(e.width, op)
		for k := range supers {
			y, x, out := &m.ternary[k], (*[256]float32)(src[at+256*k:]), dst[(at/256+k)*n:]
			for i := range subs {
				l := subs*k + i
				c := m.block.Code[0][l] // all bits: the shift is negative
				y.splits[i] = ternarySplit{int(c & 255), int(c >> 8 & 255), int(int32(c) >> 16), m.block.Scale[l], 0}
			}
			if e.t == IQ1_M {
				storeIQ1M((*[56]byte)(out), y, g, x)
			} else {
				storeIQ1S((*[50]byte)(out), y, g, x)
			}
		}
	}
}

// ternarySums sets the sums of the sub-blocks of a super-block, from lane l on.
func (e *Encoder) ternarySums(y *blockIQ1, x *[256]float32, size, l int) {
	sums := &e.room.block.Sums
	for i := range 256 / size {
		s, sub, w := &y.subs[i], x[size*i:][:size], y.w[size*i:][:size]
		if size == 32 {
			sumX, sumW := searchOrderSums(s, sub, w)
			for j := range sumX {
				sums[j][l+i], sums[34+j][l+i] = sumX[j], sumW[j]
			}
			continue
		}
		for h, half := range searchHalfSums(s, sub, w) {
			for j := range half.x {
				sums[34*h+j][l+i], sums[34*h+17+j][l+i] = half.x[j], half.w[j]
			}
		}
	}
}
