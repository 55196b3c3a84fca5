package kernel

import "ck/asm/elem"

// quantTile is how many rows are quantized side by side: the per-block data of an Act lies [block][row], and a tile fills whole cache
// lines of it. One row at a time took 3 to 5 times as long for prompts.
const quantTile = 16

// Quantize fills elements [k0, k1) of row m of a from x, the whole row of a.K elements; see QuantizeRows.
func (t *ElemTable) Quantize(a *Act, m, k0, k1 int, x []float32) {
	t.QuantizeRows(a, m, m+1, k0, k1, x, 0)
}

// QuantizeRows fills elements [k0, k1) of rows [m0, m1) of a; row m is x[(m-m0)*stride:] with a.K elements. k0 is a multiple of 256;
// k1 is a multiple of 256 or a.K, and then the elements up to a.Kp become zeros. Different ranges may be filled by different workers
// at once; all tiers give the same bits. An infinity or NaN in x makes the scale of its block not finite, so that results show it.
// ActF32 is a view: there is nothing to fill.
func (t *ElemTable) QuantizeRows(a *Act, m0, m1, k0, k1 int, x []float32, stride int) {
	end := k1
	if k1 == a.K {
		end = a.Kp
	}
	if k0%256 != 0 || k1 < k0 || k1 > a.K || k1%256 != 0 && k1 != a.K {
		panic("kernel: Quantize: k0 must be a multiple of 256, k1 one too or the length of the row")
	}
	for m := m0; m < m1; m += quantTile {
		rows := min(quantTile, m1-m)
		xt := x[(m-m0)*stride:]
		switch a.Kind {
		case ActBF16:
			for r := range rows {
				h, src := a.H[(m+r)*a.Kp:][k0:end], xt[r*stride:][k0:k1]
				elem.F32ToBF16(t.w, h[:len(src)], src)
				clear(h[len(src):])
			}
		case ActQ8, ActQ8K:
			for k := k0; k < end; k += 256 {
				t.quantize256(a, m, rows, k, min(k+256, end), xt, stride)
			}
		}
	}
}

// quantize256 fills 256 elements (fewer at the end of a padded row: whole blocks) from k on, of a tile of rows.
func (t *ElemTable) quantize256(a *Act, m, rows, k, end int, x []float32, stride int) {
	var pad [256]float32
	var d [quantTile][8]float32
	var sum [quantTile][16]int32
	n := end - k
	for r := range rows {
		src := x[r*stride:][min(k, a.K):min(end, a.K)]
		if len(src) < n { // the end of the row: zeros up to whole blocks
			clear(pad[copy(pad[:], src):])
			src = pad[:n]
		}
		q := a.Q[(m+r)*a.Kp:][k:end]
		if a.Kind == ActQ8 {
			elem.Q8(t.w, q, d[r][:n/32], sum[r][:n/32], src)
		} else {
			elem.Q8K(t.w, q, d[r][:1], sum[r][:], src)
		}
	}
	if a.Kind == ActQ8K {
		a.spreadQ8K(m, rows, k/256, &d, &sum)
		return
	}
	for b := range n / 32 {
		i := (k/32+b)*a.M + m
		ds := a.D[i:][:rows]
		for r := range ds {
			ds[r] = d[r][b]
		}
		if a.SD != nil {
			sd := a.SD[i:][:rows]
			for r := range sd {
				sd[r] = d[r][b] * float32(sum[r][b])
			}
		}
		spread(a.N8, i, rows, b, -8, &sum)
		spread(a.N16, i, rows, b, -16, &sum)
		spread(a.N128, i, rows, b, -128, &sum)
	}
}

// spread stores factor times the sums with number j of a tile of rows at dst[i:], unless dst is nil.
func spread(dst []int32, i, rows, j int, factor int32, sum *[quantTile][16]int32) {
	if dst == nil {
		return
	}
	dst = dst[i:][:rows]
	for r := range dst {
		dst[r] = factor * sum[r][j]
	}
}

// spreadQ8K stores scales and sums of block b of a tile of rows.
func (a *Act) spreadQ8K(m, rows, b int, d *[quantTile][8]float32, sum *[quantTile][16]int32) {
	for j := range 16 {
		spread(a.N32, (16*b+j)*a.M+m, rows, j, -32, sum)
	}
	ds := a.D[b*a.M+m:][:rows]
	for r := range ds {
		ds[r] = d[r][0]
	}
	if a.P == nil {
		return
	}
	for r := range rows {
		s, p := &sum[r], a.P[8*(b*a.M+m+r):][:8]
		for j := range p {
			p[j] = int16(s[2*j] + s[2*j+1])
		}
	}
}
