package kernel

import "ck/asm/elem"

// Quantize fills elements [k0, k1) of row m of a from x, the whole row of a.K elements. k0 is a multiple of 256; k1 is a multiple
// of 256 or a.K, and then the elements up to a.Kp become zeros. Different ranges may be filled by different workers at once; all
// tiers give the same bits. An infinity or NaN in x makes the scale of its block not finite, so that results show it. ActF32 is a
// view: there is nothing to fill.
func (t *ElemTable) Quantize(a *Act, m, k0, k1 int, x []float32) {
	end := k1
	if k1 == a.K {
		end = a.Kp
	}
	if k0%256 != 0 || k1 < k0 || k1 > a.K || k1%256 != 0 && k1 != a.K {
		panic("kernel: Quantize: k0 must be a multiple of 256, k1 one too or the length of the row")
	}
	x = x[k0:k1]
	switch a.Kind {
	case ActBF16:
		h := a.H[m*a.Kp:][k0:end]
		elem.F32ToBF16(t.w, h[:len(x)], x)
		clear(h[len(x):])
	case ActQ8:
		t.quantize32(a, m, k0, end, x)
	case ActQ8K:
		t.quantize256(a, m, k0, end, x)
	}
}

// quantize32 writes blocks of 32 elements: k0..end of the padded row, of which x are given.
func (t *ElemTable) quantize32(a *Act, m, k0, end int, x []float32) {
	const step = 32 // blocks per call
	var d [step]float32
	var sum [step]int32
	var pad [64]float32
	q := a.Q[m*a.Kp:][k0:end]
	i := k0/32*a.M + m // index into the per-block arrays
	for len(q) > 0 {
		n := min(len(x)/32, step)
		src := x
		if n == 0 { // the tail: at most 32 elements, at most two blocks
			clear(pad[copy(pad[:], x):])
			src, n = pad[:], len(q)/32
			x = x[len(x):]
		} else {
			x = x[32*n:]
		}
		elem.Q8(t.w, q[:32*n], d[:n], sum[:n], src[:32*n])
		for b := range n {
			s := sum[b]
			a.D[i] = d[b]
			a.SD[i] = d[b] * float32(s)
			a.N8[i], a.N16[i], a.N128[i] = -8*s, -16*s, -128*s
			i += a.M
		}
		q = q[32*n:]
	}
}

// quantize256 writes blocks of 256 elements.
func (t *ElemTable) quantize256(a *Act, m, k0, end int, x []float32) {
	const step = 4
	var d [step]float32
	var sum [16 * step]int32
	var pad [256]float32
	q := a.Q[m*a.Kp:][k0:end]
	b := k0 / 256
	for len(q) > 0 {
		n := min(len(x)/256, step)
		src := x
		if n == 0 {
			copy(pad[:], x)
			src, n = pad[:], 1
			x = x[len(x):]
		} else {
			x = x[256*n:]
		}
		elem.Q8K(t.w, q[:256*n], d[:n], sum[:16*n], src[:256*n])
		for i := range n {
			s := sum[16*i:][:16]
			a.D[b*a.M+m] = d[i]
			n32 := a.N32[16*b*a.M+m:]
			p := a.P[8*(b*a.M+m):][:8]
			for j, v := range s {
				n32[j*a.M] = -32 * v
			}
			for j := range p {
				p[j] = int16(s[2*j] + s[2*j+1])
			}
			b++
		}
		q = q[256*n:]
	}
}
