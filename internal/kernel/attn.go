package kernel

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"ck/asm/attn"
	"ck/asm/elem"
	"ck/internal/quant"
)

// Attention over a KV cache in blocks of 64 positions aligned to absolute position.
//
// Softmax is online inside a chunk of ChunkBlocks blocks; the results of chunks (parts) merge in ascending order by one formula,
// whoever computed them. A query's bits depend on its own q, its range [Lo, Hi) and the visible keys and values alone: not on
// the other queries of the call, the tiles that they are taken in, or the content of positions that it does not see.
const (
	BlockKeys   = attn.BlockKeys          // positions of a block
	ChunkBlocks = 8                       // blocks of a chunk
	ChunkKeys   = ChunkBlocks * BlockKeys // positions of a chunk
)

// AttnTable makes the KV formats of a tier.
type AttnTable struct {
	w  attn.Width
	ew elem.Width
}

// KVFormat says how a block of 64 positions of one KV head is stored, and attends over such blocks. It is read-only.
//
// A K block is [D][64] (keys across the lanes), a V block [64][Dv padded to 16]. Q8_0 and Q4_0 pad Dv to 32, Q4_0 also D, and
// have a float16 scale per 32 elements of a key or value before the elements: K [D/32][64], V [64][Dv/32]. Q4_0 packs elements
// 32b+j (low nibble) and 32b+16+j into byte 16b+j of a key or value. Quantized elements mean what ggml's Q8_0 and Q4_0 decode to,
// q*scale rounded to float32; whether kernels decode them while they read or a chunk at a time makes no difference in bits.
type KVFormat struct {
	Type  quant.Type
	D, Dv int

	w      attn.Width
	ew     elem.Width
	direct *attn.Kernels // read blocks as they are, as far as there are such kernels, or decode them
	f32    *attn.Kernels // read blocks decoded to float32
	size   int           // bytes of an element for direct
	dvp    int           // Dv padded to 16
	vw     int           // elements of a stored value
	kn, vn int           // runs of 32 elements of a key and a value
	kb, vb int           // bytes of a block
	ko, vo int           // bytes of its scales
}

// decodeQueries is the number of queries from which on quantized blocks are decoded once instead of by each tile of queries.
const decodeQueries = 16

// KV is the format of keys of d and values of dv elements; typ is F32, F16, BF16, Q8_0 or Q4_0.
func (t *AttnTable) KV(typ quant.Type, d, dv int) (*KVFormat, error) {
	if d < 1 || dv < 1 || d > 4096 || dv > 4096 {
		return nil, fmt.Errorf("KV cache: head sizes %d and %d: 1 to 4096 are possible", d, dv)
	}
	f := &KVFormat{Type: typ, D: d, Dv: dv, w: t.w, ew: t.ew, dvp: (dv + 15) &^ 15, kn: (d + 31) / 32, vn: (dv + 31) / 32}
	f.f32, f.vw = attn.For(t.w, attn.F32), f.dvp
	at := attn.F32
	switch typ {
	case quant.F32:
		f.size = 4
	case quant.F16:
		at, f.size = attn.F16, 2
	case quant.BF16:
		at, f.size = attn.BF16, 2
	case quant.Q8_0:
		at, f.size = attn.Q8, 1
		f.vw = 32 * f.vn
		f.kb, f.vb = BlockKeys*(d+2*f.kn), BlockKeys*34*f.vn
	case quant.Q4_0:
		at = attn.Q4
		f.vw = 32 * f.vn
		f.kb, f.vb = BlockKeys*18*f.kn, BlockKeys*18*f.vn
	default:
		return nil, fmt.Errorf("KV cache of type %v: F32, F16, BF16, Q8_0 and Q4_0 are possible", typ)
	}
	if f.quantized() {
		f.ko, f.vo = 2*BlockKeys*f.kn, 2*BlockKeys*f.vn
	} else {
		f.kb, f.vb = BlockKeys*d*f.size, BlockKeys*f.dvp*f.size
	}
	f.direct = attn.For(t.w, at)
	return f, nil
}

func (f *KVFormat) quantized() bool { return f.Type == quant.Q8_0 || f.Type == quant.Q4_0 }

// KBytes and VBytes are the bytes of one block of 64 keys or values, multiples of 64.
func (f *KVFormat) KBytes() int { return f.kb }
func (f *KVFormat) VBytes() int { return f.vb }

// PartLen is the number of float32 of a partial result of one (row, head): a state of asm/attn.
func (f *KVFormat) PartLen() int { return attn.StateOut + f.dvp }

// Attend are the operands of one KV head: rows of G query heads that share it.
type Attend struct {
	Rows, G int
	Q       []float32 // query of row r, head g: Q[r*QStride+g*D:], rotated, not scaled
	QStride int
	Scale   float32          // scores are Scale * (q . k)
	Lo, Hi  []int32          // [Rows]: row r sees positions Lo[r] <= p < Hi[r]; where there are none its output is zero
	K, V    []unsafe.Pointer // block b holds positions 64b..64b+63; blocks outside every row's range may be nil
	Softcap float32          // not 0: scores become Softcap*tanh(score/Softcap)
	Sinks   []float32        // [G] or nil: a score without a value that takes part in the softmax of head g
	O       []float32        // output of row r, head g: O[r*OStride+g*Dv:]
	OStride int
}

// groupQueries bounds the queries that share a pass over a chunk, and with them the scratch memory.
const groupQueries = 128

// AttnScratch is the memory that one worker needs for Attend and AttendChunk. The zero value is ready; it grows when a larger format
// or more queries (up to a bound) come, and is not allocated again after that.
type AttnScratch struct {
	// Stop, where it is not nil, ends Attend and AttendHeads early once it is true: what they computed so far is worth nothing. They look
	// at it before each chunk of keys.
	Stop *atomic.Bool

	args   attn.Args
	q      []float32 // [queries][D], scaled
	s      []float32 // [MaxTile][64] scores, then weights
	parts  []float32 // [queries] parts of one chunk
	acc    []float32 // [queries] merged parts; the sum is folded and in lane 0
	kd, vd []float32 // a decoded block: [D padded to 32][64] and [64][vw]
	ks, vs []float32 // the scales of a quantized block
	h      []uint16  // keys to be stored
	k      *attn.Kernels
	noPf   bool           // prefetch what is read anyway
	kb, vb unsafe.Pointer // the block that k reads
	stride int            // bytes of a value that k reads
	scaled bool           // vs is decoded
	lo, hi [attn.MaxTile]int
	keep   keeper // of AttendKept
}

// aligned allocates n float32 at a multiple of 64 bytes.
func aligned(n int) []float32 {
	s := make([]float32, n+16)
	skip := int(-uintptr(unsafe.Pointer(&s[0]))&63) / 4
	return s[skip : skip+n : skip+n]
}

// fit makes room for n queries of format f, of which `shared` share a head.
func (s *AttnScratch) fit(f *KVFormat, n, shared int) {
	grow := func(x *[]float32, n int) {
		if len(*x) < n {
			*x = aligned(n)
		}
	}
	grow(&s.q, n*f.D)
	grow(&s.s, attn.MaxTile*BlockKeys)
	grow(&s.parts, n*f.PartLen())
	grow(&s.acc, n*f.PartLen())
	if f.quantized() {
		grow(&s.ks, BlockKeys*f.kn)
		grow(&s.vs, BlockKeys*f.vn)
	}
	if f.decodes(shared) {
		grow(&s.kd, BlockKeys*32*f.kn)
		grow(&s.vd, BlockKeys*f.vw)
	}
}

// decodes reports whether blocks are decoded for n queries.
func (f *KVFormat) decodes(n int) bool {
	return f.direct.Scores[1] == nil || f.Type == quant.Q8_0 && n >= decodeQueries
}

// Attend computes the outputs of all rows of one head.
func (f *KVFormat) Attend(s *AttnScratch, a *Attend) { f.AttendHeads(s, unsafe.Slice(a, 1)) }

// AttendHeads computes the outputs of all rows of several heads, which differ in Q, K, V, Sinks and O alone. A page of the cache holds
// a block of every head, and few queries are bound by reading it: so they go block by block through all heads, and read runs as long as
// the heads of a page. Many queries go head by head. The bits are those of Attend.
func (f *KVFormat) AttendHeads(s *AttnScratch, heads []Attend) {
	if len(heads) == 0 {
		return
	}
	a := &heads[0]
	nq := a.Rows * a.G
	if nq*len(heads) > groupQueries {
		for h := range heads {
			for q0 := 0; q0 < nq; q0 += groupQueries {
				f.attend(s, heads[h:h+1], q0, min(nq-q0, groupQueries))
			}
		}
		return
	}
	f.attend(s, heads, 0, nq)
}

// attend computes queries [q0, q0+n) of each head, groupQueries at most in all.
func (f *KVFormat) attend(s *AttnScratch, heads []Attend, q0, n int) {
	pl := f.PartLen()
	s.fit(f, len(heads)*n, n)
	for h := range heads {
		f.check(&heads[h])
		f.scaleQueries(s.q[h*n*f.D:], &heads[h], q0, n)
	}
	all := len(heads) * n
	acc := s.acc[:all*pl]
	lo, hi := heads[0].visible(q0, n)
	if first := lo / ChunkKeys; lo < hi && hi <= (first+1)*ChunkKeys { // one chunk is its own merge
		f.chunk(s, heads, first, q0, n, acc)
		for i := range all {
			foldState(acc[i*pl:])
		}
	} else {
		for i := range all {
			initState(acc[i*pl:][:pl])
		}
		for c := first; c*ChunkKeys < hi && !(s.Stop != nil && s.Stop.Load()); c++ {
			f.chunk(s, heads, c, q0, n, s.parts)
			for i := range all {
				f.merge(acc[i*pl:][:pl], s.parts[i*pl:][:pl])
			}
		}
	}
	for i := range all {
		f.finish(&heads[i/n], q0+i%n, acc[i*pl:][:pl])
	}
}

// AttendChunk computes the part of every (row, head) over the positions of one chunk, [chunk*ChunkKeys, (chunk+1)*ChunkKeys). part
// holds Rows*G parts of PartLen, row after row.
func (f *KVFormat) AttendChunk(s *AttnScratch, a *Attend, chunk int, part []float32) {
	f.check(a)
	pl, nq := f.PartLen(), a.Rows*a.G
	part = part[:nq*pl]
	for q0 := 0; q0 < nq; q0 += groupQueries {
		n := min(nq-q0, groupQueries)
		s.fit(f, n, n)
		f.scaleQueries(s.q, a, q0, n)
		f.chunk(s, unsafe.Slice(a, 1), chunk, q0, n, part[q0*pl:])
	}
}

// Merge computes the outputs from the parts of ascending chunks; chunks that no row sees may be left out. It has the bits of Attend.
// Of a it reads Rows, G, Sinks and O.
func (f *KVFormat) Merge(a *Attend, parts [][]float32) {
	f.MergeRange(a, parts, 0, a.Rows*a.G)
}

// MergeRange is Merge for queries [q0, q1), query r*G+g being head g of row r.
func (f *KVFormat) MergeRange(a *Attend, parts [][]float32, q0, q1 int) {
	pl := f.PartLen()
	var acc [attn.StateOut + 4096]float32
	for q := q0; q < q1; q++ {
		st := acc[:pl]
		initState(st)
		for _, p := range parts {
			f.merge(st, p[q*pl:][:pl])
		}
		f.finish(a, q, st)
	}
}

func (f *KVFormat) check(a *Attend) {
	if len(a.Lo) < a.Rows || len(a.Hi) < a.Rows || a.G < 1 || a.Sinks != nil && len(a.Sinks) < a.G {
		panic("kernel: Attend: Lo, Hi need an entry per row, Sinks one per head, G is at least 1")
	}
}

// visible is the range of positions that some row of queries [q0, q0+n) sees; lo >= hi if there is none.
func (a *Attend) visible(q0, n int) (lo, hi int) {
	lo, hi = math.MaxInt, 0
	for r := q0 / a.G; r <= (q0+n-1)/a.G; r++ {
		if l, h := max(0, int(a.Lo[r])), int(a.Hi[r]); l < h {
			lo, hi = min(lo, l), max(hi, h)
		}
	}
	return lo, hi
}

// sees reports whether some row of queries [q0, q0+n) sees a position of block b.
func (a *Attend) sees(b, q0, n int) bool {
	for r := q0 / a.G; r <= (q0+n-1)/a.G; r++ {
		if max(int(a.Lo[r]), b*BlockKeys) < min(int(a.Hi[r]), (b+1)*BlockKeys) {
			return true
		}
	}
	return false
}

// common is the range of positions that all rows of queries [q0, q0+n) see.
func (a *Attend) common(q0, n int) (lo, hi int) {
	hi = math.MaxInt
	for r := q0 / a.G; r <= (q0+n-1)/a.G; r++ {
		lo, hi = max(lo, int(a.Lo[r])), min(hi, int(a.Hi[r]))
	}
	return lo, hi
}

// scaleQueries fills dst with queries [q0, q0+n), multiplied so that scores become base-2 logarithms (with a cap: plain scores).
func (f *KVFormat) scaleQueries(dst []float32, a *Attend, q0, n int) {
	scale := a.Scale
	if a.Softcap == 0 {
		scale = float32(float64(scale) * math.Log2E)
	}
	for i := 0; i < n; { // the heads of a row lie side by side
		r, g := (q0+i)/a.G, (q0+i)%a.G
		m := min(a.G-g, n-i)
		elem.Scale(f.ew, dst[i*f.D:][:m*f.D], a.Q[r*a.QStride+g*f.D:][:m*f.D], scale)
		i += m
	}
}

// open prepares block b for n queries: it decodes it, or its scales, where the kernels need that. The keys at next are read after it.
func (f *KVFormat) open(s *AttnScratch, a *Attend, b, n int, next unsafe.Pointer) {
	if a.K[b] == nil || a.V[b] == nil {
		panic(fmt.Sprintf("kernel: Attend: block %d is visible and nil", b))
	}
	s.k, s.stride = f.direct, f.vw*f.size
	s.kb, s.vb = unsafe.Add(a.K[b], f.ko), unsafe.Add(a.V[b], f.vo)
	s.scaled = !f.quantized()
	if !s.scaled {
		kn := BlockKeys * f.kn
		elem.F16ToF32(f.ew, s.ks[:kn], unsafe.Slice((*uint16)(a.K[b]), kn))
	}
	if !f.decodes(n) {
		return
	}
	switch f.Type {
	case quant.F16, quant.BF16:
		widen := elem.F16ToF32
		if f.Type == quant.BF16 {
			widen = elem.BF16ToF32
		}
		kn, vn := BlockKeys*f.D, BlockKeys*f.dvp
		widen(f.ew, s.kd[:kn], unsafe.Slice((*uint16)(s.kb), kn))
		widen(f.ew, s.vd[:vn], unsafe.Slice((*uint16)(s.vb), vn))
	default:
		k := &s.args
		*k = attn.Args{K: s.kb, V: s.vb, O: unsafe.Pointer(&s.kd[0]), D: f.D, NV: BlockKeys * f.vn, Pf: s.fetch(a.V[b], s.kb),
			KS: unsafe.Pointer(&s.ks[0]), VS: unsafe.Pointer(&s.vs[0])}
		f.direct.DecodeK(k)
		f.scaleValues(s, a.V[b])
		k.O, k.Pf = unsafe.Pointer(&s.vd[0]), s.fetch(next, s.vb)
		f.direct.DecodeV(k)
	}
	s.k, s.kb, s.vb, s.stride = f.f32, unsafe.Pointer(&s.kd[0]), unsafe.Pointer(&s.vd[0]), f.vw*4
}

// fetch is what to prefetch while bytes at read are read: those at next, or without prefetch the same.
func (s *AttnScratch) fetch(next, read unsafe.Pointer) unsafe.Pointer {
	if s.noPf {
		return read
	}
	return next
}

// scaleValues decodes the scales of a block of values, unless that was done: after its keys were read and the values prefetched.
func (f *KVFormat) scaleValues(s *AttnScratch, v unsafe.Pointer) {
	if !s.scaled {
		vn := BlockKeys * f.vn
		elem.F16ToF32(f.ew, s.vs[:vn], unsafe.Slice((*uint16)(v), vn))
		s.scaled = true
	}
}

// after is the keys that are read after those of block b of head h: what to prefetch.
func after(heads []Attend, h, b int) unsafe.Pointer {
	k := heads[h].K
	switch {
	case h+1 < len(heads):
		return heads[h+1].K[b]
	case b+1 < len(k) && k[b+1] != nil:
		return heads[0].K[b+1]
	}
	return k[b]
}

// tileSize is the largest tile of at most n queries that has kernels.
func (s *AttnScratch) tileSize(n int) int {
	for m := min(n, attn.MaxTile); m > 1; m-- {
		if s.k.Scores[m] != nil {
			return m
		}
	}
	return 1
}

func initState(st []float32) {
	clear(st)
	st[attn.StateMax] = -math.MaxFloat32 // not -Inf, whose difference with itself is NaN
}

// chunk computes the parts of queries [q0, q0+n) of each head over one chunk.
func (f *KVFormat) chunk(s *AttnScratch, heads []Attend, chunk, q0, n int, parts []float32) {
	pl := f.PartLen()
	parts = parts[:len(heads)*n*pl]
	for i := range len(heads) * n {
		initState(parts[i*pl:][:pl])
	}
	a := &heads[0]
	lo, hi := a.visible(q0, n)
	lo, hi = max(lo, chunk*ChunkKeys), min(hi, (chunk+1)*ChunkKeys)
	from, to := a.common(q0, n)
	for b := lo / BlockKeys; b*BlockKeys < hi; b++ {
		whole := from <= b*BlockKeys && (b+1)*BlockKeys <= to
		if !whole && !a.sees(b, q0, n) {
			continue
		}
		for h := range heads {
			f.block(s, &heads[h], b, q0, n, s.q[h*n*f.D:], parts[h*n*pl:][:n*pl], whole, after(heads, h, b))
		}
	}
	for i := range len(heads) * n { // the last factor depends on how keys were cut; parts do not
		parts[i*pl+attn.StateAlpha] = 0
	}
}

// block adds block b to the parts of queries [q0, q0+n), scaled at q. Tiles of queries follow each other, so that the block is in the
// first-level cache for all but the first of them. The keys at next are read after it.
func (f *KVFormat) block(s *AttnScratch, a *Attend, b, q0, n int, q, parts []float32, whole bool, next unsafe.Pointer) {
	pl := f.PartLen()
	f.open(s, a, b, n, next)
	k := &s.args
	*k = attn.Args{}
	k.K, k.V, k.VStride, k.VSStride, k.D, k.NV = s.kb, s.vb, s.stride, 4*f.vn, f.D, f.dvp/16
	k.QStride, k.S, k.OStride = 4*f.D, unsafe.Pointer(&s.s[0]), 4*pl
	if f.quantized() {
		k.KS, k.VS = unsafe.Pointer(&s.ks[0]), unsafe.Pointer(&s.vs[0])
	}
	if a.Softcap != 0 {
		k.CapIn, k.CapOut = float32(-2*math.Log2E/float64(a.Softcap)), float32(float64(a.Softcap)*math.Log2E)
	}
	// The first tile fetches the values while it reads the keys, the last one the next keys while it reads the values.
	// Fetching further ahead loses: with 2 to 8 KiB of the next keys during Softmax one row fell from 71..88 % of the read roof to
	// 66..77 (2 KiB) and 46..68 (8 KiB), one noisy run each, AVX-512, F16. Why was not looked into.
	fetchV, fetchK := s.fetch(a.V[b], s.kb), s.vb
	for i := 0; i < n; {
		m := s.tileSize(n - i)
		if i+m == n {
			fetchK = s.fetch(next, s.vb)
		}
		k.Q, k.O, k.M = unsafe.Pointer(&q[i*f.D]), unsafe.Pointer(&parts[i*pl]), m
		k.J0, k.J1 = 0, BlockKeys
		if whole {
			f.scores(s, a, b, fetchV, fetchK)
			s.k.Softmax(k)
			s.k.PV[m](k)
		} else {
			f.edge(s, a, b, q0, i, m, parts[i*pl:], fetchV, fetchK)
		}
		fetchV = s.kb
		i += m
	}
}

// scores computes the scores of the tile in s.args for the open block b, capped where that is asked for.
func (f *KVFormat) scores(s *AttnScratch, a *Attend, b int, fetchV, fetchK unsafe.Pointer) {
	k := &s.args
	k.Pf = fetchV
	s.k.Scores[k.M](k)
	if a.Softcap != 0 {
		s.capScores()
	}
	f.scaleValues(s, a.V[b])
	k.Pf = fetchK
}

// minusInf masks scores.
var minusInf = func() (x [BlockKeys]float32) {
	for i := range x {
		x[i] = float32(math.Inf(-1))
	}
	return x
}()

// edge adds the open block b to the states of queries q0+i .. q0+i+m-1, not all of which see all of it. A score that a query does
// not see becomes -Inf, its weight zero: one that sees none keeps its state bit for bit. Values that it does not see are left out.
func (f *KVFormat) edge(s *AttnScratch, a *Attend, b, q0, i, m int, states []float32, fetchV, fetchK unsafe.Pointer) {
	base := b * BlockKeys
	first, last := BlockKeys, 0 // some see keys [first, last)
	lo, hi := 0, BlockKeys      // all see keys [lo, hi)
	r, g := (q0+i)/a.G, (q0+i)%a.G
	for j := range m {
		if j > 0 && g > 0 {
			s.lo[j], s.hi[j] = s.lo[j-1], s.hi[j-1]
		} else {
			l, h := min(max(int(a.Lo[r])-base, 0), BlockKeys), min(max(int(a.Hi[r])-base, 0), BlockKeys)
			if l < h {
				first, last = min(first, l), max(last, h)
			} else {
				l, h = 0, 0
			}
			lo, hi = max(lo, l), min(hi, h)
			s.lo[j], s.hi[j] = l, h
		}
		if g++; g == a.G {
			r, g = r+1, 0
		}
	}
	if last == 0 {
		return
	}
	k := &s.args
	k.J0, k.J1 = first, last
	f.scores(s, a, b, fetchV, fetchK)
	for j := range m {
		sc := s.s[j*BlockKeys:][:BlockKeys]
		copy(sc, minusInf[:s.lo[j]])
		copy(sc[s.hi[j]:], minusInf[:])
	}
	s.k.Softmax(k)
	// Keys ascend for each query: those before the common ones, the common ones, those after them.
	pl := f.PartLen()
	pass := func(j, n, j0, j1 int) {
		if j0 < j1 {
			k.M, k.J0, k.J1 = n, j0, j1
			k.S, k.O = unsafe.Pointer(&s.s[j*BlockKeys]), unsafe.Pointer(&states[j*pl])
			s.k.PV[n](k)
			for ; n > 0; n-- { // the next pass goes on from here
				states[j*pl+attn.StateAlpha] = 1
				j++
			}
		}
	}
	alike := func(j int) int { // queries from j on that see the same keys, in a tile that has kernels
		n := 1
		for j+n < m && s.lo[j+n] == s.lo[j] && s.hi[j+n] == s.hi[j] {
			n++
		}
		return s.tileSize(n)
	}
	if lo >= hi {
		for j := 0; j < m; {
			n := alike(j)
			pass(j, n, s.lo[j], s.hi[j])
			j += n
		}
	} else {
		for j := 0; j < m; {
			n := alike(j)
			pass(j, n, s.lo[j], lo)
			j += n
		}
		pass(0, m, lo, hi)
		for j := 0; j < m; {
			n := alike(j)
			pass(j, n, hi, s.hi[j])
			j += n
		}
	}
	k.S = unsafe.Pointer(&s.s[0])
}

// foldState makes the state of a part one of merged parts: the sum in lane 0.
func foldState(st []float32) {
	st[attn.StateSum] = elem.Fold((*[16]float32)(st[attn.StateSum:]))
}

// merge adds a part to acc, whose sum is already folded. A part that saw nothing changes no bit; the first that saw something is copied.
func (f *KVFormat) merge(acc, part []float32) {
	sum := elem.Fold((*[16]float32)(part[attn.StateSum:]))
	switch {
	case sum == 0:
		return
	case acc[attn.StateSum] == 0:
		copy(acc, part)
		acc[attn.StateSum] = sum
		return
	}
	m := max(acc[attn.StateMax], part[attn.StateMax])
	s, t := attn.Exp2(acc[attn.StateMax]-m), attn.Exp2(part[attn.StateMax]-m)
	acc[attn.StateMax] = m
	acc[attn.StateSum] = float32(acc[attn.StateSum]*s) + float32(sum*t)
	o := acc[attn.StateOut:]
	elem.Blend(f.ew, o, o, part[attn.StateOut:][:len(o)], s, t)
}

// finish divides the merged part of query q by its sum.
func (f *KVFormat) finish(a *Attend, q int, acc []float32) {
	r, g := q/a.G, q%a.G
	dst := a.O[r*a.OStride+g*f.Dv:][:f.Dv]
	sum, o := acc[attn.StateSum], acc[attn.StateOut:][:f.Dv]
	if sum == 0 {
		clear(dst)
		return
	}
	if a.Sinks != nil {
		x := float32(float64(a.Sinks[g]) * math.Log2E)
		m := max(acc[attn.StateMax], x)
		s := attn.Exp2(acc[attn.StateMax] - m)
		sum = float32(sum*s) + attn.Exp2(x-m)
		elem.Scale(f.ew, o, o, s)
	}
	elem.Div(f.ew, dst, o, sum)
}
