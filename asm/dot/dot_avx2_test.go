//go:build !noasm

package dot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"ck/asm/half"
	"ck/internal/isa"
	"ck/internal/testkit"
)

// sets256 are the sets with 256-bit registers that this machine runs.
func sets256(t testing.TB) map[string]*Set {
	sets := map[string]*Set{}
	for tier, s := range map[isa.Tier]*Set{isa.AVX2: &AVX2, isa.AVXVNNI: &AVXVNNI} {
		if isa.Check(tier, isa.Detect()) == nil {
			sets[tier.String()] = s
		}
	}
	if len(sets) == 0 {
		t.Skip("this machine has no AVX2")
	}
	return sets
}

// fma32 is x*y+z rounded once: the product of two float32 is exact in float64, and a sum rounded to odd (its last bit set if
// anything was lost) has bits to spare, so that rounding it again to float32 gives what one rounding would (Boldo and Melquiond,
// Emulation of a FMA and correctly rounded sums, IEEE Trans. Computers 57(4), 2008).
func fma32(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	v := s - p
	lost := (p - (s - v)) + (c - v)
	if b := math.Float64bits(s); lost != 0 && b&1 == 0 {
		if (lost > 0) == (s > 0) {
			b++
		} else {
			b--
		}
		s = math.Float64frombits(b)
	}
	return float32(s)
}

func TestFMA32(t *testing.T) {
	const e = 1.0 / (1 << 12)
	for _, c := range [][4]float32{
		{1 + e, 1 + e, 0, 1 + 2*e},                        // e*e is half a unit: to even
		{1 + e, 1 + e, 1e-30, 1 + 2*e + 2*e*e},            // and a little more
		{1 + e, 1 + e, -1e-30, 1 + 2*e},                   // a little less
		{-1 - e, 1 + e, -1e-30, -(1 + 2*e + 2*e*e)},       // negative
		{1 + e, 1 + e, -(1 + 2*e), e * e},                 // cancellation
		{1e-30, 1e-10, 1, 1}, {3, 5, 7, 22}, {0, 5, 0, 0}, // plain
	} {
		if got := fma32(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("fma32(%g, %g, %g) = %g, want %g", c[0], c[1], c[2], got, c[3])
		}
	}
}

// quantum is the unsigned weight k of row r of an integer layout's group, Code4's signed one, by the words of the package comment.
func quantum(l Layout, values []int8, g []byte, r, k int) int32 {
	b, i := k/32, k%32
	nib := func(at int) int32 { return int32(g[at+i%16/4*64+4*r+i%4]>>(i/16*4)) & 15 }
	fifth := func(at int) int32 { return int32(g[at+4*r+i%4]>>(i/4)&1) << 4 }
	switch l {
	case Q8_0:
		return int32(g[k/4*64+4*r+k%4])
	case Q4_0, Q4_1:
		return nib(256 * b)
	case Q5_0, Q5_1:
		return nib(256*b) + fifth(512+64*b)
	case Q4_K, Q5_K:
		q := int32(g[b/2*512+i/4*64+4*r+i%4]>>(b%2*4)) & 15
		if l == Q5_K {
			q += fifth(2048 + 64*b)
		}
		return q
	case Q2_K:
		return int32(g[k/16*64+4*r+k%4]>>(k%16/4*2)) & 3
	case MXFP4:
		return int32(values[nib(256*b)])
	case Code4, NVFP4:
		return int32(values[g[k/8*64+4*r+k%4]>>(k/4%2*4)&15])
	}
	j, t := k/16, k%16/4
	return int32(g[192*j+t/2*64+4*r+k%4]>>(t%2*4)&15) | int32(g[192*j+128+4*r+k%4]>>(2*t)&3)<<4
}

// tables are values for the indices of Code4: as large as they may be, and as large as is narrow for AVX2's kernels and just not so.
var tables = [][16]int8{codeValues,
	{-32, -25, -19, -14, -10, -7, -4, -2, 0, 1, 3, 6, 11, 17, 23, 31},
	{-32, -25, -19, -14, -10, -7, -4, -2, 0, 1, 3, 6, 11, 17, 23, 32},
	{-33, -25, -19, -14, -10, -7, -4, -2, 0, 1, 3, 6, 11, 17, 23, 31},
}

// offsets of the unsigned weights.
var offsets = [Layouts]int32{Q8_0: 128, Q4_0: 8, Q5_0: 16, Q6_K: 32}

// operands are the memory of one call: every slice ends at an inaccessible page.
type operands struct {
	l              Layout
	rows, m, m0    int // rows m0..m0+rows-1 of m are used
	groups, panels int
	gap            int // bytes between panels
	w, x           []byte
	d, sd          []float32
	b              []int32 // offsets, or P
	values         []int8  // Code4, MXFP4: tables[0], to be overwritten
	y, acc         []float32
	ystride        int // floats
}

// patterns of bytes: random, and what drives integer sums to their ends.
var patterns = []string{"random", "largest", "smallest", "mixed"}

func newOperands(t testing.TB, rng *rand.Rand, l Layout, rows, groups, panels int, pattern string) *operands {
	o := &operands{l: l, rows: rows, m: rows + 2, m0: 1, groups: groups, panels: panels, gap: 64 * rng.IntN(3)}
	size, k := groups*l.GroupBytes(), groups*l.GroupK()
	o.w = testkit.Guarded[byte](t, panels*size+(panels-1)*o.gap)
	fill := func(b []byte, low, high byte) {
		for i := range b {
			switch pattern {
			case "random":
				b[i] = byte(rng.Uint32())
			case "largest":
				b[i] = high
			case "smallest":
				b[i] = low
			default:
				b[i] = []byte{low, high}[rng.IntN(2)]
			}
		}
	}
	fill(o.w, 0, 255)
	half := func() uint16 { return uint16(rng.IntN(2)<<15 | rng.IntN(0x3c00)) } // up to 1, subnormals too
	o.ystride = panels*l.Rows() + 3
	o.y = testkit.Guarded[float32](t, (rows-1)*o.ystride+panels*l.Rows())
	o.acc = testkit.Guarded[float32](t, 512)
	floats := func(n int) []float32 {
		f := testkit.Guarded[float32](t, n)
		for i := range f {
			f[i] = float32(rng.NormFloat64())
		}
		return f
	}
	switch l {
	case F32, F16, BF16:
		for i := 0; i < len(o.w); i += 2 {
			if l == F32 && i%4 == 2 || l == BF16 {
				le.PutUint16(o.w[i:], uint16(math.Float32bits(float32(rng.NormFloat64()))>>16))
			} else if l == F16 {
				le.PutUint16(o.w[i:], half())
			}
		}
		es := 4
		if l == BF16 {
			es = 2
		}
		o.x = testkit.Guarded[byte](t, es*rows*k)
		o.m, o.m0 = rows, 0
		for i := es - 2; i < len(o.x); i += es {
			le.PutUint16(o.x[i:], uint16(math.Float32bits(float32(rng.NormFloat64()))>>16))
			if l != BF16 {
				le.PutUint16(o.x[i-2:], uint16(rng.Uint32()))
			}
		}
		return o
	}
	for p := range panels {
		for g := range groups {
			group := o.w[p*(size+o.gap)+g*l.GroupBytes():][:l.GroupBytes()]
			from := map[Layout]int{Q8_0: 1024, Q4_0: 512, Q4_1: 512, Q5_0: 640, Q5_1: 640, Q4_K: 2304, Q5_K: 2816, Q6_K: 3328, Q2_K: 1280, Code4: 2304, NVFP4: 2304, MXFP4: 512}[l]
			for i := from; i < l.GroupBytes(); i += 2 {
				le.PutUint16(group[i:], half())
			}
			for i := from; i < l.GroupBytes() && (l == Code4 || l == NVFP4); i += 4 {
				le.PutUint32(group[i:], math.Float32bits(float32(rng.NormFloat64())))
			}
		}
	}
	o.x = testkit.Guarded[byte](t, o.m*k)
	fill(o.x, 0x81, 127) // -127
	for i, v := range o.x {
		if v == 0x80 {
			o.x[i] = 127
		}
	}
	blk := 32
	if l >= Q4_K && l != MXFP4 {
		blk = 256
	}
	nb := k / blk
	o.d, o.sd = floats(nb*o.m), floats(nb*o.m)
	sum := func(r, k, n int) (s int32) {
		for _, q := range o.x[r*len(o.x)/o.m+k:][:n] {
			s += int32(int8(q))
		}
		return s
	}
	switch l {
	case Q8_0, Q4_0, Q5_0, MXFP4:
		o.b = testkit.Guarded[int32](t, nb*o.m)
	case Q4_K, Q5_K:
		o.b = testkit.Guarded[int32](t, nb*o.m*4)
	case Q6_K, Q2_K, Code4, NVFP4:
		o.b = testkit.Guarded[int32](t, nb*o.m*16)
	}
	if l == Code4 || l == MXFP4 || l == NVFP4 {
		o.values = testkit.Guarded[int8](t, 16)
		copy(o.values, tables[0][:])
	}
	for r := range o.m {
		for i := range nb {
			switch l {
			case MXFP4:
				o.b[i*o.m+r] = -16 * sum(r, 32*i, 32)
			case Q8_0, Q4_0, Q5_0:
				o.b[i*o.m+r] = -offsets[l] * sum(r, 32*i, 32)
			case Q4_K, Q5_K:
				for j := range 4 {
					o.b[(i*o.m+r)*4+j] = sum(r, 256*i+64*j, 32)&0xffff | sum(r, 256*i+64*j+32, 32)<<16
				}
			case Q6_K, Q2_K, Code4, NVFP4:
				for j := range 16 {
					o.b[(i*16+j)*o.m+r] = -32 * sum(r, 256*i+16*j, 16)
				}
			}
		}
	}
	return o
}

func (o *operands) args() *Args {
	a := &Args{W: unsafe.Pointer(&o.w[0]), WStep: o.groups*o.l.GroupBytes() + o.gap, X: unsafe.Pointer(&o.x[o.m0*len(o.x)/o.m]),
		XStride: len(o.x) / o.m, Mp: 4 * o.m, Y: unsafe.Pointer(&o.y[0]), YStride: 4 * o.ystride, Groups: o.groups, Panels: o.panels,
		Pf: 8192, Acc: unsafe.Pointer(&o.acc[0])}
	if o.d != nil {
		a.D, a.SD = unsafe.Pointer(&o.d[o.m0]), unsafe.Pointer(&o.sd[o.m0])
	}
	if o.b != nil {
		b := o.m0
		if o.l == Q4_K || o.l == Q5_K {
			b *= 4
		}
		a.B = unsafe.Pointer(&o.b[b])
	}
	if o.values != nil {
		a.Values = unsafe.Pointer(&o.values[0])
	}
	return a
}

// chain is output r of panel w for activation row m, started at acc: the order of arithmetic of the package comment, fused.
func (o *operands) chain(w []byte, m, r int, acc float32) float32 {
	l, x := o.l, o.x[m*len(o.x)/o.m:]
	f16 := func(b []byte, at int) float32 { return half.F16ToF32(le.Uint16(b[at:])) }
	isum := func(g []byte, base, k, n int) (s int32) {
		for i := k; i < k+n; i++ {
			s += (quantum(l, o.values, g, r, i) - offsets[l]) * int32(int8(x[base+i]))
		}
		return s
	}
	for g := range o.groups {
		switch w := w[g*l.GroupBytes():]; l {
		case F32:
			acc = fma32(math.Float32frombits(le.Uint32(w[4*r:])), math.Float32frombits(le.Uint32(x[4*g:])), acc)
		case F16:
			acc = fma32(f16(w, 2*r), math.Float32frombits(le.Uint32(x[4*g:])), acc)
		case BF16:
			acc = fma32(half.BF16ToF32(le.Uint16(w[4*r:])), half.BF16ToF32(le.Uint16(x[4*g:])), acc)
			acc = fma32(half.BF16ToF32(le.Uint16(w[4*r+2:])), half.BF16ToF32(le.Uint16(x[4*g+2:])), acc)
		case Q4_K, Q5_K, Q6_K, Q2_K, Code4, NVFP4:
			s := map[Layout]int{Q4_K: 2048, Q5_K: 2560, Q6_K: 3072, Q2_K: 1024, Code4: 2048, NVFP4: 2048}[l]
			dx := o.d[g*o.m+m]
			var sub float32
			var mins int32
			switch l {
			case Q6_K, Code4, NVFP4:
				for j := range 16 {
					sc := float32(int8(w[s+16*j+r]))
					if l == NVFP4 {
						sc = mini(w[s+16*j+r])
					}
					sub = fma32(sc, float32(isum(w, 256*g, 16*j, 16)), sub)
				}
				d := f16(w, s+256+2*r)
				if l != Q6_K {
					d = math.Float32frombits(le.Uint32(w[s+256+4*r:]))
				}
				acc = fma32(sub, d*dx, acc)
				continue
			case Q2_K:
				for j := range 16 {
					b := w[s+16*j+r]
					sub = fma32(float32(b&15), float32(isum(w, 256*g, 16*j, 16)), sub)
					mins += int32(b>>4) * o.b[(g*16+j)*o.m+m]
				}
				acc = fma32(sub, f16(w, s+256+2*r)*dx, acc)
				acc = fma32(float32(mins), float32(f16(w, s+288+2*r)*dx)/32, acc)
				continue
			}
			for j := range 8 {
				sub = fma32(float32(w[s+16*j+r]), float32(isum(w, 256*g, 32*j, 32)), sub)
				mins += int32(w[s+128+32*(j/2)+2*r+j%2]) * int32(int16(o.b[(g*o.m+m)*4+j/2]>>(j%2*16)))
			}
			acc = fma32(sub, f16(w, s+256+2*r)*dx, acc)
			acc = fma32(-float32(mins), f16(w, s+288+2*r)*dx, acc)
		default:
			off := blockOffsets[l]
			for b := range 2 {
				at := (2*g+b)*o.m + m
				d := f16(w, off[0]+32*b+2*r)
				if l == MXFP4 {
					d = half.BF16ToF32(le.Uint16(w[off[0]+32*b+2*r:]))
				}
				acc = fma32(float32(isum(w, 64*g, 32*b, 32)), d*o.d[at], acc)
				if off[1] != 0 {
					acc = fma32(f16(w, off[1]+32*b+2*r), o.sd[at], acc)
				}
			}
		}
	}
	return acc
}

// check runs kernel f with arguments a over panels panels and compares every output's bits with chain's; a may have other weights
// than o (unpacked ones). Floats between the rows of outputs must stay as they are.
func (o *operands) check(t *testing.T, f func(*Args), a *Args, panels int) {
	t.Helper()
	for a.Cont = range 2 {
		start := make([]float32, len(o.y))
		for i := range start {
			start[i] = float32(i%97) - 31
		}
		copy(o.y, start)
		f(a)
		width := panels * o.l.Rows()
		for i, got := range o.y {
			m, n := i/o.ystride, i%o.ystride
			want := start[i]
			if n < width {
				if a.Cont == 0 {
					want = 0
				}
				want = o.chain(o.w[n/o.l.Rows()*a.WStep:], o.m0+m, n%o.l.Rows(), want)
			}
			if math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("row %d, column %d of %d, cont %d: %g (%08x), want %g (%08x)", m, n, width, a.Cont,
					got, math.Float32bits(got), want, math.Float32bits(want))
			}
		}
	}
}

// TestKernels256 compares every kernel with the fused order of arithmetic, bit for bit.
func TestKernels256(t *testing.T) {
	for tier, set := range sets256(t) {
		for l := range Layouts {
			if k := &set.Of[l]; k.Gemv != nil {
				if l == MXFP4 {
					t.Run(tier+"/"+l.String(), func(t *testing.T) { testKernels256(t, l, k, fp4Values[:], 16) })
					continue
				}
				if l == NVFP4 {
					t.Run(tier+"/"+l.String(), func(t *testing.T) { testKernels256(t, l, k, fp4Values[:], 32) })
					t.Run(tier+"/"+l.String()+"/largest values", func(t *testing.T) { testKernels256(t, l, k, tables[1][:], 32) })
					continue
				}
				if l != Code4 {
					t.Run(tier+"/"+l.String(), func(t *testing.T) { testKernels256(t, l, k, nil, 0) })
					continue
				}
				for i := range tables {
					bias := int32(0)
					if set == &AVXVNNI {
						bias = 128
					} else if i == 1 {
						bias = 32
					}
					t.Run(fmt.Sprintf("%s/%v/values %d", tier, l, i), func(t *testing.T) { testKernels256(t, l, k, tables[i][:], bias) })
				}
			}
		}
	}
}

// values and bias are Code4's: its table, and what is added to unpacked weights.
func testKernels256(t *testing.T, l Layout, k *Kernels, values []int8, bias int32) {
	rng := rand.New(rand.NewPCG(uint64(l), 256))
	groups := []int{1, 2, 5}
	if l <= BF16 {
		groups = []int{1, 2, 16, 31, 33, 65, 257} // around the turns of two and three rows
	}
	for _, n := range groups {
		for _, pattern := range patterns {
			if l <= BF16 && pattern != "random" {
				continue
			}
			for rows := 1; rows < max(len(k.Small), len(k.Gemm)); rows++ {
				what := fmt.Sprintf("%d groups, %d rows, %s", n, rows, pattern)
				if rows < len(k.Small) {
					few := k.Gemv
					if rows > 1 {
						few = k.Small[rows]
					}
					panels := 1 + rng.IntN(3)
					o := newOperands(t, rng, l, rows, n, panels, pattern)
					copy(o.values, values)
					if !t.Run("few/"+what, func(t *testing.T) { o.check(t, few, o.args(), panels) }) {
						return
					}
				}
				if rows >= len(k.Gemm) {
					continue
				}
				o := newOperands(t, rng, l, rows, n, 1, pattern)
				copy(o.values, values)
				a := o.args()
				a.Panels = 0 // not theirs to read
				if k.Unpack != nil {
					w := testkit.Guarded[byte](t, n*k.UnpackedBytes)
					k.Unpack(&Args{Src: a.W, Dst: unsafe.Pointer(&w[0]), Groups: n, Pf: 8192, Values: a.Values})
					o.checkUnpacked(t, w, k.UnpackedBytes, bias)
					a.W = unsafe.Pointer(&w[0])
				}
				if !t.Run("gemm/"+what, func(t *testing.T) { o.check(t, k.Gemm[rows], a, 1) }) {
					return
				}
			}
		}
	}
}

// checkUnpacked compares unpacked groups with the packed ones. Unpacked weights of Q2_K have been multiplied by their scales.
func (o *operands) checkUnpacked(t *testing.T, got []byte, size int, bias int32) {
	t.Helper()
	l := o.l
	for g := range len(got) / size {
		u, p := got[g*size:][:size], o.w[g*l.GroupBytes():][:l.GroupBytes()]
		for k := range l.GroupK() {
			for r := range 16 {
				want := quantum(l, o.values, p, r, k) + bias
				if l == Q2_K {
					want *= int32(p[1024+k/16*16+r] & 15)
				}
				if q := int32(u[k/4*64+4*r+k%4]); q != want&255 {
					t.Fatalf("group %d: weight %d of row %d is unpacked as %d, want %d", g, k, r, q, want)
				}
			}
		}
		if n := 16 * l.GroupK(); string(u[n:]) != string(p[len(p)-(size-n):]) {
			t.Fatalf("group %d: its scales differ", g)
		}
	}
}

// Both tiers hold kernels for what they promise.
func TestSets256(t *testing.T) {
	for l := range Layouts {
		for tier, s := range map[string]*Set{"avx2": &AVX2, "avxvnni": &AVXVNNI} {
			k := &s.Of[l]
			if tier == "avxvnni" && l <= BF16 {
				if k.Gemv != nil {
					t.Errorf("%s %v: not avx2's kernels", tier, l)
				}
				continue
			}
			if k.Gemv == nil || len(k.Small) != 4 || len(k.Gemm) < 3 || k.Tile != 1 || (k.Unpack != nil) != (k.UnpackedBytes != 0) {
				t.Errorf("%s %v: %d small, %d gemm kernels, tile %d", tier, l, len(k.Small), len(k.Gemm), k.Tile)
			}
		}
	}
}

// BenchmarkKernels256 measures kernels on one panel in the second-level cache, K = 4096: GOP/s (a multiply-add is two) of all
// numbers of rows, with what gemm kernels read already unpacked.
func BenchmarkKernels256(b *testing.B) {
	for tier, set := range sets256(b) {
		for l := range Layouts {
			k := &set.Of[l]
			if k.Gemv == nil {
				continue
			}
			types := []string{l.String()}
			if l == Code4 && set == &AVX2 {
				types = append(types, "Code4narrow")
			}
			for i, typ := range types {
				benchKernels256(b, "isa="+tier+"/type="+typ, l, k, i)
			}
		}
	}
}

func benchKernels256(b *testing.B, what string, l Layout, k *Kernels, table int) {
	rng := rand.New(rand.NewPCG(1, 2))
	groups := 4096 / l.GroupK()
	for rows := 1; rows < max(len(k.Small), len(k.Gemm)); rows++ {
		o := newOperands(b, rng, l, rows, groups, 1, "random")
		copy(o.values, tables[table][:])
		w := make([]byte, groups*max(k.UnpackedBytes, l.GroupBytes()))
		bench := func(kind string, f func(*Args), a *Args) {
			b.Run(fmt.Sprintf("%s/%s/M=%d", what, kind, rows), func(b *testing.B) {
				b.SetBytes(int64(groups * l.GroupBytes()))
				for b.Loop() {
					f(a)
				}
				b.ReportMetric(2*float64(b.N*rows*l.Rows()*4096)/b.Elapsed().Seconds()/1e9, "GOP/s")
			})
		}
		if rows == 1 {
			bench("gemv", k.Gemv, o.args())
		} else if rows < len(k.Small) {
			bench("small", k.Small[rows], o.args())
		}
		a := o.args()
		if k.Unpack != nil {
			a.Src, a.Dst, a.W = a.W, unsafe.Pointer(&w[0]), unsafe.Pointer(&w[0])
			if k.Unpack(a); rows == 1 {
				bench("unpack", k.Unpack, a)
			}
		}
		if rows < len(k.Gemm) {
			bench("gemm", k.Gemm[rows], a)
		}
	}
}
