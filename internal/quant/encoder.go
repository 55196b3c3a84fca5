package quant

import (
	"math"
	"unsafe"

	lanes "ck/asm/quant"
	"ck/internal/isa"
)

// Encoder quantizes to one type, with the vectors that the CPU has. It gives the bytes and errors of Quantize, which
// is its definition. It has room of its own to work in: each goroutine needs an Encoder of its own.
type Encoder struct {
	t     Type
	width lanes.Width
	// encode quantizes a row, or rows with imatrix, which fits; it is the type's row of the table, nil: no lanes.
	encode func(e *Encoder, dst []byte, src, imatrix []float32)
	room   *encoderRoom
}

// encoderWidths is the widths of vectors, best first, and what they need.
var encoderWidths = [...]struct {
	needs isa.Features
	width lanes.Width
}{
	{isa.FeatAVX2 | isa.FeatF16C | isa.FeatAVX512F | isa.FeatAVX512BW | isa.FeatAVX512DQ | isa.FeatAVX512VL,
		lanes.W512},
	{isa.FeatAVX2 | isa.FeatF16C, lanes.W256},
}

// encoders has what quantizes to a type with lanes.
var encoders = [Types]func(e *Encoder, dst []byte, src, imatrix []float32){
	Q2_K: (*Encoder).affineK, Q4_K: (*Encoder).affineK, Q5_K: (*Encoder).affineK,
	Q3_K: (*Encoder).symmetricQ3K, Q6_K: (*Encoder).symmetricQ6K,
	IQ4_XS: (*Encoder).superIQ4, IQ4_NL: (*Encoder).plainIQ4,
	IQ2_XXS: (*Encoder).grid, IQ2_XS: (*Encoder).grid, IQ2_S: (*Encoder).grid,
	IQ3_XXS: (*Encoder).grid, IQ3_S: (*Encoder).grid,
	IQ1_S: (*Encoder).ternary, IQ1_M: (*Encoder).ternary,
	Q4_0: (*Encoder).legacy, Q4_1: (*Encoder).legacy, Q5_0: (*Encoder).legacy, Q5_1: (*Encoder).legacy,
	Q8_0: (*Encoder).legacy, MXFP4: (*Encoder).fp4, NVFP4: (*Encoder).fp4,
	F32: (*Encoder).copyF32, F16: (*Encoder).halves, BF16: (*Encoder).halves,
}

// NewEncoder makes an Encoder to type t that may use features f of the CPU.
func NewEncoder(t Type, f isa.Features) *Encoder {
	if lanes.Built {
		for _, w := range encoderWidths {
			if f.Has(w.needs) {
				return newEncoder(t, w.width)
			}
		}
	}
	return newEncoder(t, lanes.None)
}

func newEncoder(t Type, w lanes.Width) *Encoder {
	e := &Encoder{t: t, width: w}
	if w != lanes.None && int(t) < Types && encoders[t] != nil {
		e.encode, e.room = encoders[t], new(encoderRoom)
	}
	return e
}

// Encode encodes src as blocks at the start of dst; see Quantize. It allocates nothing unless it fails.
func (e *Encoder) Encode(dst []byte, src, imatrix []float32) error {
	if e.encode == nil || !e.takes(dst, src, imatrix) {
		return Quantize(e.t, dst, src, imatrix) // or its error
	}
	r := e.t.row()
	weights := imatrix
	if r.imatrix == noImatrix {
		weights = nil
	}
	e.encode(e, dst, src, weights)
	if r.halves == nil {
		return nil
	}
	for i := range len(src) / r.elems {
		if r.overflows(dst[i*r.bytes:][:r.bytes]) {
			return Quantize(e.t, dst, src, imatrix)
		}
	}
	return nil
}

// takes reports whether Quantize would find no fault with the arguments, before it quantizes.
func (e *Encoder) takes(dst []byte, src, imatrix []float32) bool {
	r := e.t.row()
	if len(src) == 0 || len(src)%r.elems != 0 || len(dst) < len(src)/r.elems*r.bytes {
		return false
	}
	if r.elems == 1 {
		return true // of any value
	}
	if magnitude, _ := e.scan(src); magnitude > math.Float32bits(tooLarge) { // all types with lanes have F16 scales
		return false
	}
	if imatrix == nil || r.imatrix == noImatrix {
		return r.imatrix != needsImatrix
	}
	if n := len(imatrix); n == 0 || n%r.elems != 0 || len(src)%n != 0 {
		return false
	}
	magnitude, bits := e.scan(imatrix)
	return magnitude < 0x7f800000 && bits>>31 == 0
}

// scan gives the bits of the largest magnitude of x, and the bits that are in any element.
func (e *Encoder) scan(x []float32) (magnitude, bits uint32) {
	s := &e.room.scan
	s.Src, s.N = unsafe.Pointer(unsafe.SliceData(x)), len(x)
	s.Run()
	return s.Magnitude, s.Any
}

// encoderRoom is the working memory of an Encoder. A chunk is up to 16 super-blocks of 256 elements, or that many
// elements in smaller blocks; sub-blocks are numbered through all of it.
type encoderRoom struct {
	block lanes.Block
	codes lanes.Codes
	scan  lanes.Scan

	// What searches of sub-blocks found: scale, low, the codes, sum of the weights.
	scales, lows, rs, rLows, sums [256]float32
	variance                      [16]float32 // of super-blocks
	bad                           [16]bool    // super-blocks that the plain code has to do

	padX, padW [512]float32
	stored     [16]float32 // scales and minima for 16 elements each, as they are stored
	storedLow  [16]float32
	y          [16]affineBlock
	grid       gridRoom
	ternary    [2]blockIQ1
}

// chunkElems is the number of elements of a chunk.
const chunkElems = 16 * 256

// chunkFunc quantizes a chunk.
type chunkFunc func(e *Encoder, dst []byte, x, imatrix []float32, column int)

// chunks goes over src, chunk by chunk; column is that of the imatrix, where there is one.
func (e *Encoder) chunks(dst []byte, src, imatrix []float32, do chunkFunc) {
	r := e.t.row()
	for at := 0; at < len(src); at += chunkElems {
		column := 0
		if imatrix != nil {
			column = at % len(imatrix)
		}
		do(e, dst[at/r.elems*r.bytes:], src[at:min(at+chunkElems, len(src))], imatrix, column)
	}
}

// part is n elements of x from at on, in pad if x is too short; it begins again at the end of x, or with zeros.
func part(pad *[512]float32, x []float32, at, n int, again bool) *float32 {
	if at+n <= len(x) {
		return &x[at]
	}
	k := copy(pad[:n], x[at:])
	for again && k < n {
		k += copy(pad[k:n], x)
	}
	clear(pad[k:n])
	return &pad[0]
}

// loadGroup loads 16 sub-blocks of n elements from element at of the chunk; without imatrix there are no weights.
func (e *Encoder) loadGroup(x, imatrix []float32, at, column, n int) {
	m := e.room
	b := &m.block
	b.N = n
	b.Src, b.Dst = unsafe.Pointer(part(&m.padX, x, at, lanes.Lanes*n, false)), unsafe.Pointer(&b.X)
	b.Transpose()
	if imatrix != nil {
		b.Src = unsafe.Pointer(part(&m.padW, imatrix, (column+at)%len(imatrix), lanes.Lanes*n, true))
		b.Dst = unsafe.Pointer(&b.W)
		b.Transpose()
	}
}

// variances sets those of the super-blocks of x: factor times the sum of squares, over 256.
func (e *Encoder) variances(x []float32, factor float32) {
	v := &e.room.variance
	i := 0
	for ; i+4 <= len(x)/256; i += 4 {
		a, b := (*[256]float32)(x[256*i:]), (*[256]float32)(x[256*i+256:])
		c, d := (*[256]float32)(x[256*i+512:]), (*[256]float32)(x[256*i+768:])
		var sa, sb, sc, sd float32
		for j := range a { // four sums side by side, each in its order
			sa += float32(a[j] * a[j])
			sb += float32(b[j] * b[j])
			sc += float32(c[j] * c[j])
			sd += float32(d[j] * d[j])
		}
		v[i], v[i+1], v[i+2], v[i+3] = sa, sb, sc, sd
	}
	for ; i < len(x)/256; i++ {
		v[i] = squares(x[256*i:][:256])
	}
	for j := range v[:len(x)/256] {
		v[j] = float32(factor * v[j] / 256)
	}
}

// weigh makes the weights of a group, whose sub-blocks have n elements, from its importances.
func (e *Encoder) weigh(at, n int) {
	m := e.room
	for l := range m.block.Variance {
		m.block.Variance[l] = m.variance[min(15, (at+l*n)/256)]
	}
	m.block.Run(e.width, lanes.Weigh)
}

// take notes what a search found for the group that starts at element at.
func (e *Encoder) take(at, n int) {
	m := e.room
	first := at / n
	copy(m.scales[first:], m.block.Scale[:])
	copy(m.lows[first:], m.block.Low[:])
	copy(m.rs[first:], m.block.R[:])
	copy(m.rLows[first:], m.block.RLow[:])
	copy(m.sums[first:], m.block.Sum[:])
	for l, bad := range m.block.Bad {
		if bad != 0 {
			m.bad[min(15, (at+l*n)/256)] = true
		}
	}
}

// affineOf is how a type with minima is searched.
func affineOf(t Type) *affineType {
	switch t {
	case Q2_K:
		return &affineQ2K
	case Q4_K:
		return &affineQ4K
	}
	return &affineQ5K
}

// gridSteps sets the steps of a grid, n parts to begin with.
func gridSteps(b *lanes.Block, g *affineGrid, n int32) {
	b.Tries, b.Highest = int(g.last)+1, float32(n)
	for k := range g.last + 1 {
		b.Steps[k] = g.first + float32(g.step*float32(k)) + float32(n)
	}
}

// searchGroup finds scales and minima of a group by the grid.
func (e *Encoder) searchGroup(at, n int, g *affineGrid) {
	b := &e.room.block
	if g.absolute {
		b.Run(e.width, lanes.AffineAbsolute)
	} else {
		b.Run(e.width, lanes.Affine)
	}
	e.take(at, n)
}

func (e *Encoder) affineK(dst []byte, src, imatrix []float32) {
	e.chunks(dst, src, imatrix, (*Encoder).affineChunk)
}

// affineChunk quantizes a chunk of Q2_K, Q4_K or Q5_K.
func (e *Encoder) affineChunk(dst []byte, x, imatrix []float32, column int) {
	m, t, r := e.room, affineOf(e.t), e.t.row()
	b := &m.block
	clear(m.bad[:])
	grid := &t.plain
	if imatrix != nil {
		grid = &gridWeighted
		e.variances(x, t.variance)
	}
	gridSteps(b, grid, t.n)
	b.Average, b.Elements = t.average, float32(t.size)
	for at := 0; at < len(x); at += lanes.Lanes * t.size {
		e.loadGroup(x, imatrix, at, column, t.size)
		if imatrix != nil {
			e.weigh(at, t.size)
		} else {
			b.Run(e.width, lanes.WeighPlain)
		}
		e.searchGroup(at, t.size, grid)
	}
	for i, low := range m.lows {
		m.lows[i] = -low
	}
	e.affineScales(len(x)/256, t, imatrix != nil)
	for i := range len(x) / 256 {
		b, x := dst[i*r.bytes:], (*[256]float32)(x[256*i:])
		if m.bad[i] {
			r.quantize(b, x[:], e.columns(imatrix, column+256*i, 256))
			continue
		}
		e.affineStore(b, x, i, t, imatrix != nil)
	}
}

// columns is n columns of the imatrix.
func (e *Encoder) columns(imatrix []float32, at, n int) []float32 {
	if imatrix == nil {
		return nil
	}
	return imatrix[at%len(imatrix):][:n]
}

// affineScales finds the codes of the scales and minima of n super-blocks.
func (e *Encoder) affineScales(n int, t *affineType, weighted bool) {
	m, subs := e.room, 256/t.size
	if !weighted {
		for i := range n {
			y := &m.y[i]
			y.d = searchLargest(y.sc[:subs], m.scales[i*subs:][:subs], float32(t.levels))
			y.dmin = searchLargest(y.m[:subs], m.lows[i*subs:][:subs], float32(t.levels))
		}
		return
	}
	for i := n * subs; i < 16*subs; i++ {
		m.scales[i], m.lows[i], m.sums[i] = 0, 0, 0
	}
	b := &m.block
	b.N, b.Tries, b.Highest = subs, 0, float32(t.levels)
	for k := int32(-4); k <= 4; k++ {
		if k == 0 {
			continue
		}
		b.Tries++
		b.Steps[b.Tries] = float32(0.1*float32(k)) + float32(t.levels)
	}
	b.Steps[0] = float32(t.levels)
	b.Tries++
	b.Src, b.Dst = unsafe.Pointer(&m.sums), unsafe.Pointer(&b.W)
	b.Transpose()
	for _, mins := range []bool{false, true} {
		from := &m.scales
		if mins {
			from = &m.lows
		}
		b.Src, b.Dst = unsafe.Pointer(from), unsafe.Pointer(&b.X)
		b.Transpose()
		b.Run(e.width, lanes.Positive)
		for i := range n {
			y := &m.y[i]
			m.bad[i] = m.bad[i] || b.Bad[i] != 0
			codes := &y.sc
			if mins {
				codes, y.dmin = &y.m, b.Scale[i]
			} else {
				y.d = b.Scale[i]
			}
			for s := range subs {
				codes[s] = 0
				if b.R[i] != 0 {
					codes[s] = byte(int32(b.Q[s][i]))
				}
			}
		}
	}
}

// affineStore writes super-block i of the chunk.
func (e *Encoder) affineStore(b []byte, x *[256]float32, i int, t *affineType, weighted bool) {
	m := e.room
	y := &m.y[i]
	if t == &affineQ2K {
		storeScalesQ2K((*[84]byte)(b), y)
	} else {
		storeScalesQ4K((*[16]byte)(b), y, !weighted || t == &affineQ5K)
	}
	for k := range m.stored {
		s := 16 * k / t.size
		m.stored[k], m.storedLow[k] = y.d*float32(y.sc[s]), float32(y.dmin*float32(y.m[s]))
		if m.stored[k] == 0 {
			e.searchedCodes(y.codes[16*k:][:16], x[16*k:][:16], i*256/t.size+s, t.n)
		}
	}
	e.storedCodes(&y.codes, x, 0, t.n, 0)
	switch e.t {
	case Q2_K:
		pack2(b[16:80], &y.codes)
	case Q4_K:
		packQ4K((*[128]byte)(b[16:]), &y.codes)
	case Q5_K:
		packQ5K((*[160]byte)(b[16:]), &y.codes)
	}
}

// searchedCodes sets the codes that the search of a sub-block of the chunk ended with.
func (e *Encoder) searchedCodes(codes []byte, x []float32, sub int, n int32) {
	m := e.room
	clear(codes)
	if m.rs[sub] != 0 {
		searchAffineCodes(codes, x, m.rs[sub], m.rLows[sub], n)
	}
}

// storedCodes sets the codes for the stored scales, but where these are 0.
func (e *Encoder) storedCodes(codes *[256]byte, x *[256]float32, minimum, highest, offset int32) {
	m := e.room
	c := &m.codes
	c.Src, c.Dst, c.Blocks = unsafe.Pointer(x), unsafe.Pointer(codes), 16
	c.Scale, c.Low = unsafe.Pointer(&m.stored), unsafe.Pointer(&m.storedLow)
	c.Minimum, c.Highest, c.Offset = minimum, highest, offset
	c.Run(e.width, lanes.Stored)
}
