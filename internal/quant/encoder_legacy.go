package quant

import (
	"unsafe"

	"ck/asm/elem"
	lanes "ck/asm/quant"
)

// legacyForm is the form of a type with blocks of 32 elements.
type legacyForm struct {
	bits    int
	minimum bool
}

// legacyForms are the forms, by type.
var legacyForms = [...]legacyForm{
	Q4_0: {4, false}, Q4_1: {4, true}, Q5_0: {5, false}, Q5_1: {5, true}, Q8_0: {8, false},
}

// legacy quantizes to Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0, 512 elements at a time.
func (e *Encoder) legacy(dst []byte, src, imatrix []float32) {
	form, size := legacyForms[e.t], e.t.BlockBytes()
	var row []float32
	var variance float32
	for at := 0; at < len(src); at += 512 {
		e.loadGroup(src, imatrix, at, 0, 32)
		if imatrix == nil {
			e.room.block.Run(e.width, lanes.Extremes)
		} else {
			row, variance = e.rowVariances(src, at, len(imatrix), row, variance)
			e.legacySearch(form)
		}
		for l := 0; l < 16 && at+32*l < len(src); l += 8 {
			x := src[at+32*l : min(len(src), at+32*l+256)]
			out := dst[(at/32+l)*size:]
			if imatrix == nil {
				e.legacyStore(out, x, l, form)
			} else {
				e.legacyStoreSearched(out, x, l, form)
			}
		}
		if imatrix != nil {
			e.legacyAgain(dst, src, imatrix, at, form)
		}
	}
}

// rowVariances sets the variances of the 16 blocks from element at on: the mean square of the row of n elements that
// a block is in. row and variance are the last row and its mean square.
func (e *Encoder) rowVariances(src []float32, at, n int, row []float32, variance float32) ([]float32, float32) {
	for l := range e.room.block.Variance {
		first := min(at+32*l, len(src)-1) / n * n
		if x := src[first:][:n]; len(row) == 0 || &x[0] != &row[0] {
			row, variance = x, squares(x)/float32(n)
		}
		e.room.block.Variance[l] = variance
	}
	return row, variance
}

// legacySearch searches a group with importances.
func (e *Encoder) legacySearch(form legacyForm) {
	b := &e.room.block
	b.Run(e.width, lanes.Weigh)
	if form.minimum {
		gridSteps(b, &gridWeighted, 1<<form.bits-1)
		b.Run(e.width, lanes.Affine)
		return
	}
	symmetricSteps(b, 1<<(form.bits-1))
	b.Bad = [lanes.Lanes]uint32{}
	b.Run(e.width, lanes.Symmetric)
}

// legacyAgain does the blocks of a group again that are bad.
func (e *Encoder) legacyAgain(dst []byte, src, imatrix []float32, at int, form legacyForm) {
	b := &e.room.block
	for l, bad := range b.Bad {
		if i := at + 32*l; bad != 0 && i < len(src) {
			out, w := dst[i/32*e.t.BlockBytes():], e.columns(imatrix, i, 32)
			quantizeWeightedBlocks(out, src[i:][:32], w, b.Variance[l], form.bits, form.minimum)
		}
	}
}

// legacyCodes sets the codes of x, up to 256 elements, by scales and lows for 16 each.
func (e *Encoder) legacyCodes(x []float32, o lanes.Coder, minimum, highest, offset int32, bias float32) {
	m := e.room
	c := &m.codes
	c.Src, c.Dst, c.Blocks = unsafe.Pointer(unsafe.SliceData(x)), unsafe.Pointer(&m.y[0].codes), len(x)/16
	c.Scale, c.Low = unsafe.Pointer(&m.stored), unsafe.Pointer(&m.storedLow)
	c.Minimum, c.Highest, c.Offset, c.Bias = minimum, highest, offset, bias
	c.Run(e.width, o)
}

// legacyStore writes the blocks of x, up to eight, which begin at lane l; no importances.
func (e *Encoder) legacyStore(dst []byte, x []float32, l int, form legacyForm) {
	m := e.room
	b, size := &m.block, e.t.BlockBytes()
	levels := int32(1)<<form.bits - 1
	for s := range len(x) / 32 {
		out := dst[s*size:]
		var d, low float32
		switch top := b.Scale[l+s]; {
		case form.minimum:
			low = b.Low[l+s]
			d = (b.High[l+s] - low) / float32(levels)
			putF16(out[2:], low)
		case form.bits == 8:
			d = abs(top) / 127
		default:
			d = top / -float32(levels/2+1)
		}
		putF16(out, d)
		r := reciprocal(d)
		m.stored[2*s], m.stored[2*s+1] = r, r
		m.storedLow[2*s], m.storedLow[2*s+1] = low, low
	}
	switch {
	case form.bits == 8:
		e.legacyCodes(x, lanes.Away, 0, 0, 0, 0)
		for s := range len(x) / 32 {
			copy(dst[s*size+2:], m.y[0].codes[32*s:][:32])
		}
		return
	case form.minimum:
		e.legacyCodes(x, lanes.Truncated, 0, levels, 0, 0.5)
	default:
		e.legacyCodes(x, lanes.Truncated, 0, levels, 0, float32(levels/2+1)+0.5)
	}
	e.legacyPack(dst, len(x)/32, form)
}

// legacyPack writes the codes of n blocks.
func (e *Encoder) legacyPack(dst []byte, n int, form legacyForm) {
	size, head := e.t.BlockBytes(), 2+2*b2i(form.minimum)
	for s := range n {
		packLegacy(dst[s*size+head:], (*[32]byte)(e.room.y[0].codes[32*s:]), form.bits)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// legacyStoreSearched writes the blocks of x, up to eight, which begin at lane l, after a search.
func (e *Encoder) legacyStoreSearched(dst []byte, x []float32, l int, form legacyForm) {
	m := e.room
	b, size := &m.block, e.t.BlockBytes()
	codes := &m.y[0].codes
	for s := range len(x) / 32 {
		out, r, low := dst[s*size:], b.R[l+s], float32(0)
		putF16(out, b.Scale[l+s])
		if form.minimum {
			low = b.RLow[l+s]
			putF16(out[2:], b.Low[l+s])
		}
		m.stored[2*s], m.stored[2*s+1] = r, r
		m.storedLow[2*s], m.storedLow[2*s+1] = low, low
	}
	clear(codes[:])
	if form.minimum {
		e.legacyCodes(x, lanes.Searched, 0, 1<<form.bits-1, 0, 0)
	} else {
		n := int32(1) << (form.bits - 1)
		e.legacyCodes(x, lanes.Searched, -n, n-1, n, 0)
	}
	e.legacyPack(dst, len(x)/32, form)
}

// copyF32 quantizes to F32: this machine's order of bytes is that of files.
func (e *Encoder) copyF32(dst []byte, src, _ []float32) {
	copy(dst, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(src))), 4*len(src)))
}

// halves quantizes to F16 and BF16.
func (e *Encoder) halves(dst []byte, src, _ []float32) {
	out := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(dst))), len(src))
	w := elem.W256
	if e.width == lanes.W512 {
		w = elem.W512
	}
	if e.t == F16 {
		elem.F32ToF16(w, out, src)
	} else {
		elem.F32ToBF16(w, out, src)
	}
}
