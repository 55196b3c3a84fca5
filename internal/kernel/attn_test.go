package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"ck/internal/isa"
	"ck/internal/quant"
	"ck/internal/testkit"
)

var kvTypes = []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0}

// vectorTiers are the tiers of this machine whose elementwise and attention kernels differ: go, avx2, avx512.
func vectorTiers() []isa.Tier {
	var ts []isa.Tier
	for _, t := range []isa.Tier{isa.Go, isa.AVX2, isa.AVX512} {
		if isa.Check(t, isa.Detect()) == nil {
			ts = append(ts, t)
		}
	}
	return ts
}

func kvFormat(t testing.TB, tier isa.Tier, typ quant.Type, d, dv int) *KVFormat {
	t.Helper()
	tab := attnOf(tier)
	f, err := tab.KV(typ, d, dv)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// attnCase is one attention problem: a filled cache and its operands.
type attnCase struct {
	Attend
	k, v [][]float32 // decoded keys and values by position
	kb   [][]byte
	vb   [][]byte
	f    *KVFormat
}

// newCase makes a cache of n positions in format f. Unused slots hold NaN bytes.
func newCase(t testing.TB, f *KVFormat, r *rand.Rand, n, rows, g int, guarded bool) *attnCase {
	c := &attnCase{f: f}
	c.Rows, c.G = rows, g
	c.Scale = float32(1 / math.Sqrt(float64(f.D)))
	blocks := (n + BlockKeys - 1) / BlockKeys
	for range blocks {
		var kb, vb []byte
		if guarded {
			kb, vb = testkit.Guarded[byte](t, f.KBytes()), testkit.Guarded[byte](t, f.VBytes())
		} else {
			kb, vb = make([]byte, f.KBytes()), make([]byte, f.VBytes())
		}
		for i := range kb {
			kb[i] = 0xff
		}
		for i := range vb {
			vb[i] = 0xff
		}
		c.kb, c.vb = append(c.kb, kb), append(c.vb, vb)
		c.K = append(c.K, unsafe.Pointer(&kb[0]))
		c.V = append(c.V, unsafe.Pointer(&vb[0]))
	}
	for p := range n {
		k, v := randRow(r, f.D), randRow(r, f.Dv)
		kb, vb := c.kb[p/BlockKeys], c.vb[p/BlockKeys]
		f.Store(kb, vb, p%BlockKeys, k, v)
		f.Load(kb, vb, p%BlockKeys, k, v)
		c.k, c.v = append(c.k, k), append(c.v, v)
	}
	c.QStride, c.OStride = g*f.D+3, g*f.Dv+5
	c.Q = make([]float32, rows*c.QStride)
	for i := range c.Q {
		c.Q[i] = float32(r.NormFloat64())
	}
	c.O = make([]float32, rows*c.OStride)
	for i := range c.O {
		c.O[i] = -77
	}
	return c
}

func randRow(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// causal gives the last rows of n positions causal ranges with a window (0: none).
func (c *attnCase) causal(n, window int) {
	c.Lo, c.Hi = make([]int32, c.Rows), make([]int32, c.Rows)
	for r := range c.Rows {
		p := n - c.Rows + r
		c.Hi[r] = int32(p + 1)
		if window > 0 {
			c.Lo[r] = int32(p + 1 - window) // may be negative
		}
	}
}

// want is attention in float64 for row r, head g.
func (c *attnCase) want(r, g int) []float64 {
	f := c.f
	q := c.Q[r*c.QStride+g*f.D:][:f.D]
	var s []float64
	top := math.Inf(-1)
	lo, hi := max(0, int(c.Lo[r])), int(c.Hi[r])
	for p := lo; p < hi; p++ {
		x := 0.0
		for d := range q {
			x += float64(q[d]) * float64(c.k[p][d])
		}
		x *= float64(c.Scale)
		if c.Softcap != 0 {
			x = float64(c.Softcap) * math.Tanh(x/float64(c.Softcap))
		}
		s = append(s, x)
		top = max(top, x)
	}
	o := make([]float64, f.Dv)
	if len(s) == 0 {
		return o
	}
	sum := 0.0
	if c.Sinks != nil {
		top = max(top, float64(c.Sinks[g]))
		sum = math.Exp(float64(c.Sinks[g]) - top)
	}
	for i := range s {
		s[i] = math.Exp(s[i] - top)
		sum += s[i]
	}
	for i, p := range s {
		for d := range o {
			o[d] += p / sum * float64(c.v[lo+i][d])
		}
	}
	return o
}

// attnTolerance bounds the absolute error of an output, values being standard normal: scores of size below 8 carry a relative error
// of (D+2)/2 * 2^-24 at random signs, well below 2^-19 in the exponent, and sums of weights less.
const attnTolerance = 1e-5

func (c *attnCase) checkWant(t *testing.T) {
	t.Helper()
	for r := range c.Rows {
		for g := range c.G {
			got := c.O[r*c.OStride+g*c.f.Dv:][:c.f.Dv]
			for d, w := range c.want(r, g) {
				if e := math.Abs(float64(got[d]) - w); !(e <= attnTolerance) {
					t.Fatalf("row %d head %d element %d: %g, want %g (error %g)", r, g, d, got[d], w, e)
				}
			}
		}
		if tail := c.O[r*c.OStride+c.G*c.f.Dv:][:5]; slices.ContainsFunc(tail, func(x float32) bool { return x != -77 }) {
			t.Fatalf("row %d: wrote beyond the heads: %v", r, tail)
		}
	}
}

func bitsOf(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

type attnShape struct{ d, dv, n, rows, g, window int }

var attnShapes = []attnShape{
	{128, 128, 1, 1, 1, 0}, {128, 128, 64, 1, 4, 0}, {128, 128, 65, 3, 4, 0}, {64, 64, 600, 9, 2, 0},
	{128, 128, 1100, 1, 8, 0}, {80, 80, 300, 5, 3, 0}, {96, 96, 130, 20, 1, 17}, {192, 128, 200, 4, 5, 0},
	{8, 16, 520, 7, 7, 100}, {24, 8, 77, 2, 6, 1}, {32, 40, 129, 129, 1, 64}, {256, 256, 70, 2, 2, 0}, {16, 24, 1500, 3, 13, 700},
}

func TestAttendAgainstFloat64(t *testing.T) {
	for _, tier := range vectorTiers() {
		for _, typ := range kvTypes {
			for i, s := range attnShapes {
				f := kvFormat(t, tier, typ, s.d, s.dv)
				c := newCase(t, f, rand.New(rand.NewPCG(1, uint64(i))), s.n, s.rows, s.g, i < 4)
				c.causal(s.n, s.window)
				switch i % 4 {
				case 1:
					c.Softcap = 2
				case 2:
					c.Sinks = randRow(rand.New(rand.NewPCG(5, 5)), s.g)
				}
				t.Run(fmt.Sprint(tier, "/", typ, "/", s), func(t *testing.T) {
					sc := new(AttnScratch)
					if i%3 == 1 {
						sc = guardedScratch(t, f, s.rows*s.g)
					}
					f.Attend(sc, &c.Attend)
					c.checkWant(t)
				})
			}
		}
	}
}

// guardedScratch is a scratch for n queries whose arrays are as long as they must be and end at inaccessible pages.
func guardedScratch(t *testing.T, f *KVFormat, n int) *AttnScratch {
	n = min(n, groupQueries)
	return guardedScratchOf(t, f, n, n)
}

// guardedScratchOf is one for n queries, of which `shared` share a head.
func guardedScratchOf(t *testing.T, f *KVFormat, n, shared int) *AttnScratch {
	var want, s AttnScratch
	want.fit(f, n, shared)
	for _, p := range [][2]*[]float32{{&s.q, &want.q}, {&s.s, &want.s}, {&s.parts, &want.parts}, {&s.acc, &want.acc}, {&s.kd, &want.kd},
		{&s.vd, &want.vd}, {&s.ks, &want.ks}, {&s.vs, &want.vs}} {
		*p[0] = testkit.Guarded[float32](t, len(*p[1]))
	}
	return &s
}

// TestAttendBits shows that a query's bits do not depend on the rows beside it, on the heads of the call, on who computes the chunks,
// on what unseen positions hold, or on the vectors' width.
func TestAttendBits(t *testing.T) {
	first := map[string][]uint32{} // by case: the bits of the first tier with assembly
	for _, tier := range vectorTiers() {
		for _, typ := range kvTypes {
			for i, s := range attnShapes {
				if i%3 == 0 && typ != quant.F16 {
					continue
				}
				f := kvFormat(t, tier, typ, s.d, s.dv)
				r := rand.New(rand.NewPCG(2, uint64(i)))
				c := newCase(t, f, r, s.n, s.rows, s.g, false)
				c.causal(s.n, s.window)
				if i%4 == 3 {
					c.Sinks = randRow(r, s.g)
				}
				name := fmt.Sprint(typ, "/", s)
				var sc AttnScratch
				f.Attend(&sc, &c.Attend)
				all := bitsOf(c.O)

				// Chunk by chunk, merged afterwards.
				var parts [][]float32
				for ch := 0; ch*ChunkKeys < s.n; ch++ {
					if i%2 == 0 && (ch+1)*ChunkKeys <= int(slices.Min(c.Lo)) {
						continue // no row sees it: its part may be left out
					}
					p := make([]float32, s.rows*s.g*f.PartLen())
					for i := range p {
						p[i] = float32(math.NaN())
					}
					f.AttendChunk(&sc, &c.Attend, ch, p)
					parts = append(parts, p)
				}
				clear(c.O)
				f.Merge(&c.Attend, parts)
				one := func(what string, got []float32, r, g int) {
					t.Helper()
					if !slices.Equal(bitsOf(got), all[r*c.OStride+g*s.dv:][:s.dv]) {
						t.Fatalf("%v %s: row %d head %d: other bits %s", tier, name, r, g, what)
					}
				}
				for r := range s.rows {
					for g := range s.g {
						one("from chunks", c.O[r*c.OStride+g*s.dv:][:s.dv], r, g)
					}
				}

				// One row and one head at a time, with the cache behind the row's position poisoned.
				for _, r := range []int{0, s.rows / 2, s.rows - 1} {
					c := *c
					lo, hi := int(max(0, c.Lo[r])), int(c.Hi[r])
					kv := make([][]byte, 2*len(c.kb))
					c.K, c.V = slices.Clone(c.K), slices.Clone(c.V)
					for b := range c.kb {
						if (b+1)*BlockKeys <= lo || b*BlockKeys >= hi {
							c.K[b], c.V[b] = nil, nil
							continue
						}
						kb, vb := slices.Clone(c.kb[b]), slices.Clone(c.vb[b])
						for p := range BlockKeys {
							if pos := b*BlockKeys + p; pos < lo || pos >= hi {
								k, v := make([]float32, s.d), make([]float32, s.dv)
								for i := range k {
									k[i] = float32(math.Inf(1))
								}
								for i := range v {
									v[i] = float32(math.NaN())
								}
								f.Store(kb, vb, p, k, v)
							}
						}
						kv[2*b], kv[2*b+1] = kb, vb
						c.K[b], c.V[b] = unsafe.Pointer(&kb[0]), unsafe.Pointer(&vb[0])
					}
					for g := range s.g {
						a := c.Attend
						a.Rows, a.G = 1, 1
						a.Q, a.O = c.Q[r*c.QStride+g*s.d:], make([]float32, s.dv)
						a.Lo, a.Hi = c.Lo[r:r+1], c.Hi[r:r+1]
						if c.Sinks != nil {
							a.Sinks = c.Sinks[g : g+1]
						}
						f.Attend(&sc, &a)
						one("alone", a.O, r, g)
					}
				}

				if tier == isa.Go {
					continue
				}
				if want, ok := first[name]; !ok {
					first[name] = all
				} else if !slices.Equal(want, all) {
					t.Fatalf("%s: %v differs from %v", name, tier, isa.AVX2)
				}
			}
		}
	}
}

// TestAttendHoles has rows with ranges apart from each other; blocks that no row sees are nil, and some queries see nothing.
func TestAttendHoles(t *testing.T) {
	for _, tier := range vectorTiers() {
		for _, typ := range kvTypes {
			f := kvFormat(t, tier, typ, 48, 48)
			c := newCase(t, f, rand.New(rand.NewPCG(6, 6)), 1200, 4, 3, false)
			c.Lo, c.Hi = []int32{-5, 300, 0, 1100}, []int32{64, 310, 0, 1200}
			for b := range c.K {
				if b != 0 && b != 4 && b < 1100/64 {
					c.K[b], c.V[b] = nil, nil
				}
			}
			var sc AttnScratch
			f.Attend(&sc, &c.Attend)
			c.checkWant(t)
		}
	}
}

func TestAttendNothingVisible(t *testing.T) {
	for _, tier := range vectorTiers() {
		f := kvFormat(t, tier, quant.F16, 16, 24)
		c := newCase(t, f, rand.New(rand.NewPCG(3, 3)), 64, 3, 2, false)
		c.Lo, c.Hi = []int32{5, 0, 64}, []int32{5, 64, 3}
		var sc AttnScratch
		f.Attend(&sc, &c.Attend)
		c.checkWant(t)
	}
}

func TestKVStoreLoad(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, typ := range kvTypes {
		for _, s := range [][2]int{{128, 128}, {80, 40}, {8, 24}, {1, 3}} {
			f := kvFormat(t, isa.Go, typ, s[0], s[1])
			if f.KBytes()%64 != 0 || f.VBytes()%64 != 0 {
				t.Errorf("%v %v: blocks of %d and %d bytes", typ, s, f.KBytes(), f.VBytes())
			}
			kb, vb := testkit.Guarded[byte](t, f.KBytes()), testkit.Guarded[byte](t, f.VBytes())
			var ks, vs [64][]float32
			for i := range ks {
				ks[i], vs[i] = randRow(r, s[0]), randRow(r, s[1])
				f.Store(kb, vb, i, ks[i], vs[i])
			}
			bits := map[quant.Type]float64{quant.F32: 0, quant.F16: 1.0 / 2048, quant.BF16: 1.0 / 256}
			for i := range ks {
				k, v := make([]float32, s[0]), make([]float32, s[1])
				f.Load(kb, vb, i, k, v)
				near := func(got, want []float32) {
					amax := 0.0
					for b, w := range want {
						if b%32 == 0 {
							amax = 0
							for _, x := range want[b:min(b+32, len(want))] {
								amax = max(amax, math.Abs(float64(x)))
							}
						}
						tol := bits[typ] * math.Abs(float64(w))
						switch typ {
						case quant.F16: // subnormal halves
							tol += 1.0 / (1 << 25)
						case quant.Q8_0: // half a step, and the scale's rounding
							tol = amax/127*0.501 + amax/2048
						case quant.Q4_0: // a whole step at the end opposite to the largest element
							tol = amax/8*1.001 + amax/1024
						}
						if e := math.Abs(float64(got[b] - w)); !(e <= tol) {
							t.Fatalf("%v %v: position %d element %d: %g, stored %g", typ, s, i, b, got[b], w)
						}
					}
				}
				near(k, ks[i])
				near(v, vs[i])
			}
		}
	}
}

// TestKVStoreNotFinite shows that infinities and NaN survive storing as something not finite and do not crash.
// StoreRows writes what Store does, and nothing else.
func TestKVStoreRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	var sc AttnScratch
	for _, tier := range vectorTiers() {
		for _, typ := range kvTypes {
			for _, s := range [][2]int{{128, 128}, {80, 40}, {12, 20}, {8, 24}, {1, 3}} {
				f := kvFormat(t, tier, typ, s[0], s[1])
				for _, n := range [][2]int{{0, 64}, {3, 21}, {56, 8}, {63, 1}} {
					ks, vs := s[0]+5, s[1]+3
					k, v := testkit.Guarded[float32](t, 63*ks+s[0]), testkit.Guarded[float32](t, 63*vs+s[1])
					k, v = k[(64-n[1])*ks:], v[(64-n[1])*vs:]
					copy(k, randRow(r, len(k)))
					copy(v, randRow(r, len(v)))
					kb, vb := testkit.Guarded[byte](t, f.KBytes()), testkit.Guarded[byte](t, f.VBytes())
					for i := range kb {
						kb[i] = byte(i)
					}
					for i := range vb {
						vb[i] = byte(i)
					}
					kw, vw := slices.Clone(kb), slices.Clone(vb)
					for i := range n[1] {
						f.Store(kw, vw, n[0]+i, k[i*ks:][:f.D], v[i*vs:][:f.Dv])
					}
					f.StoreRows(&sc, kb, vb, n[0], n[1], k, ks, v, vs)
					if !bytes.Equal(kb, kw) || !bytes.Equal(vb, vw) {
						t.Errorf("%v %v, head sizes %v, positions %v: other bytes than Store", tier, typ, s, n)
					}
				}
			}
		}
	}
}

func TestKVStoreNotFinite(t *testing.T) {
	for _, typ := range kvTypes {
		f := kvFormat(t, isa.Go, typ, 32, 32)
		kb, vb := make([]byte, f.KBytes()), make([]byte, f.VBytes())
		x := make([]float32, 32)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			x[7] = bad
			f.Store(kb, vb, 3, x, x)
			k, v := make([]float32, 32), make([]float32, 32)
			f.Load(kb, vb, 3, k, v)
			if y := float64(k[7]); !math.IsNaN(y) && !math.IsInf(y, 0) {
				t.Errorf("%v: %g became %g", typ, bad, y)
			}
		}
	}
}

func TestKVRefusesTypes(t *testing.T) {
	tab := attnOf(isa.Go)
	for _, typ := range []quant.Type{quant.Q4_K, quant.I8, 999} {
		if _, err := tab.KV(typ, 64, 64); err == nil {
			t.Errorf("%v: no error", typ)
		}
	}
	if _, err := tab.KV(quant.F16, 0, 64); err == nil {
		t.Error("head size 0: no error")
	}
}

func TestAttendAllocatesNothing(t *testing.T) {
	for _, tier := range vectorTiers() {
		f := kvFormat(t, tier, quant.F16, 64, 64)
		c := newCase(t, f, rand.New(rand.NewPCG(9, 9)), 100, 2, 4, false)
		c.causal(100, 0)
		var sc AttnScratch
		if n := testing.AllocsPerRun(2, func() { f.Attend(&sc, &c.Attend) }); n != 0 {
			t.Errorf("%v: %v allocations", tier, n)
		}
	}
}

// TestAttendHeads: heads that are done together have the bits of each alone, and read nothing else.
func TestAttendHeads(t *testing.T) {
	for _, tier := range vectorTiers() {
		for _, typ := range kvTypes {
			for i, s := range attnShapes {
				f := kvFormat(t, tier, typ, s.d, s.dv)
				r := rand.New(rand.NewPCG(8, uint64(i)))
				var heads []Attend
				var want [][]uint32
				for range 3 {
					c := newCase(t, f, r, s.n, s.rows, s.g, false)
					c.causal(s.n, s.window)
					if i%4 == 2 {
						c.Sinks = randRow(r, s.g)
					}
					before := slices.Clone(c.O)
					f.Attend(new(AttnScratch), &c.Attend)
					want = append(want, bitsOf(c.O))
					copy(c.O, before)
					heads = append(heads, c.Attend)
				}
				sc := new(AttnScratch)
				if n := s.rows * s.g; 3*n <= groupQueries {
					sc = guardedScratchOf(t, f, 3*n, n)
				}
				f.AttendHeads(sc, heads)
				for h := range heads {
					if !slices.Equal(bitsOf(heads[h].O), want[h]) {
						t.Errorf("%v/%v/%v: head %d of 3 has other bits than alone", tier, typ, s, h)
					}
				}
			}
		}
	}
}
