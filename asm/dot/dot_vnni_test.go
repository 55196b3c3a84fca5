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

// layouts16 are the layouts with sub-blocks of 16 K that only this file tests: places of scales and d in a group.
var layouts16 = map[Layout]struct{ scales, d int }{Code4: {2048, 2304}, NVFP4: {2048, 2304}, Q2_K: {1024, 1280}}

// weight16 is the integer weight k of row r of a group, by the words of the package comment.
func weight16(l Layout, g []byte, values *[16]int8, r, k int) int32 {
	j, e := k/16, k%16
	if l == Q2_K {
		return int32(g[64*j+4*r+e%4]>>(2*(e/4))) & 3
	}
	return int32(values[g[128*j+64*(e/8)+4*r+e%4]>>(4*(e/4%2))&15])
}

// call16 is the memory of one call; every slice of it ends at an inaccessible page.
type call16 struct {
	l               Layout
	rows, panels    int
	slices, groups  int // groups of a slice
	far             int // bytes from panel to panel
	m, m0           int // rows m0..m0+rows-1 of m are used
	values          []int8
	w               []byte
	x               []int8
	d, bias, y, acc []float32
	n32             []int32
	ystride         int       // floats
	sub, mins       []float32 // what sums finds
}

func newCall16(t testing.TB, rng *rand.Rand, l Layout, rows, panels, slices, groups int, pattern string) *call16 {
	c := &call16{l: l, rows: rows, panels: panels, slices: slices, groups: groups, m: rows + 2, m0: 1}
	byteOf := func() byte {
		switch pattern {
		case "largest":
			return 255
		case "smallest":
			return 0
		case "mixed":
			return byte(rng.IntN(2) * 255)
		}
		return byte(rng.Uint32())
	}
	all := slices * groups
	size := all * l.GroupBytes()
	c.far = size
	if slices == 1 { // slices follow each other
		c.far += 64 * rng.IntN(3)
	}
	c.w = testkit.Guarded[byte](t, (panels-1)*c.far+size)
	for i := range c.w {
		c.w[i] = byteOf()
	}
	for p := range panels {
		for g := range all {
			d := c.w[p*c.far+g*l.GroupBytes()+layouts16[l].d:][:64]
			for i := 0; i < 64; i += 4 {
				if l != Q2_K {
					le.PutUint32(d[i:], math.Float32bits(float32(rng.NormFloat64())))
					continue
				}
				for h := 0; h < 4; h += 2 { // halves up to 1, subnormals too
					le.PutUint16(d[i+h:], uint16(rng.IntN(2)<<15|rng.IntN(0x3c00)))
				}
			}
		}
	}
	c.values = testkit.Guarded[int8](t, 16)
	for i := range c.values {
		if c.values[i] = int8(rng.IntN(255) - 127); pattern != "random" {
			c.values[i] = int8(254*(i/8) - 127)
		}
		if l == NVFP4 { // -32..31
			c.values[i] >>= 2
		}
	}
	k := 256 * all
	c.x = testkit.Guarded[int8](t, c.m*k)
	for i := range c.x {
		switch c.x[i] = int8(byteOf()); {
		case pattern == "largest", pattern == "mixed" && c.x[i] != 0:
			c.x[i] = 127
		case pattern != "random", c.x[i] == -128:
			c.x[i] = -127
		}
	}
	c.d = testkit.Guarded[float32](t, all*c.m)
	for i := range c.d {
		if c.d[i] = float32(rng.NormFloat64()); pattern == "tiny" { // products that are no longer normal
			c.d[i] *= 0x1p-120
		}
	}
	c.n32 = testkit.Guarded[int32](t, all*16*c.m)
	for i := range c.n32 {
		for _, q := range c.x[i%c.m*k+i/c.m*16:][:16] {
			c.n32[i] -= 32 * int32(q)
		}
	}
	c.ystride = panels*slices*16 + 3
	c.y = testkit.Guarded[float32](t, (rows-1)*c.ystride+panels*slices*16)
	c.acc = testkit.Guarded[float32](t, 768)
	c.bias = testkit.Guarded[float32](t, 16*panels)
	for i := range c.bias {
		c.bias[i] = float32(rng.NormFloat64())
	}
	c.sums()
	return c
}

// args are the arguments of Gemv and Small kernels; those of Gemm differ in Panels, Bias and Add.
func (c *call16) args() *Args {
	return &Args{W: unsafe.Pointer(&c.w[0]), WStep: c.far / c.slices, WFar: c.far, X: unsafe.Pointer(&c.x[c.m0*len(c.x)/c.m]), XStride: len(c.x) / c.m,
		D: unsafe.Pointer(&c.d[c.m0]), B: unsafe.Pointer(&c.n32[c.m0]), Mp: 4 * c.m, Y: unsafe.Pointer(&c.y[0]), YStride: 4 * c.ystride, YFar: 64,
		Groups: c.groups, Panels: c.panels * c.slices, Slices: c.slices, Pf: 8192, Acc: unsafe.Pointer(&c.acc[0]),
		Src: unsafe.Pointer(&c.x[0]), Values: unsafe.Pointer(&c.values[0])}
}

// sums are, for all panels, groups, activation rows and weight rows, in this order, the sum over the sub-blocks in the fused order of the
// package comment, and Q2_K's of the minima.
func (c *call16) sums() {
	at, k := layouts16[c.l], len(c.x)/c.m
	for p := range c.panels {
		for g := range c.slices * c.groups {
			w := c.w[p*c.far+g*c.l.GroupBytes():][:c.l.GroupBytes()]
			var q [16][256]int32
			for r := range q {
				for k := range q[r] {
					q[r][k] = weight16(c.l, w, (*[16]int8)(c.values), r, k)
				}
			}
			for m := c.m0; m < c.m0+c.rows; m++ {
				x := c.x[m*k+256*g:][:256]
				for r := range q {
					var sub float32
					var mins int64
					for j := range 16 {
						var isum int32
						for i, q := range q[r][16*j:][:16] {
							isum += q * int32(x[16*j+i])
						}
						sc := w[at.scales+16*j+r]
						switch c.l {
						case Code4:
							sub = fma32(float32(int8(sc)), float32(isum), sub)
							continue
						case NVFP4:
							sub = fma32(mini(sc), float32(isum), sub)
							continue
						}
						sub = fma32(float32(sc&15), float32(isum), sub)
						mins += int64(sc>>4) * int64(c.n32[(16*g+j)*c.m+m])
					}
					c.sub, c.mins = append(c.sub, sub), append(c.mins, float32(mins))
				}
			}
		}
	}
}

// chain is slice s of output r of panel p for activation row m, started at acc.
func (c *call16) chain(p, s, m, r int, acc float32) float32 {
	d := layouts16[c.l].d
	for g := s * c.groups; g < (s+1)*c.groups; g++ {
		w := c.w[p*c.far+g*c.l.GroupBytes():]
		i := ((p*c.slices*c.groups+g)*c.rows+m)*16 + r
		dx := c.d[g*c.m+c.m0+m]
		if c.l != Q2_K {
			acc = fma32(c.sub[i], math.Float32frombits(le.Uint32(w[d+4*r:]))*dx, acc)
			continue
		}
		acc = fma32(c.sub[i], half.F16ToF32(le.Uint16(w[d+2*r:]))*dx, acc)
		acc = fma32(c.mins[i], float32(half.F16ToF32(le.Uint16(w[d+32+2*r:]))*dx)/32, acc)
	}
	return acc
}

// check runs f and compares every float of Y with what want makes of the float before, by row and column of `width` columns.
func (c *call16) check(t *testing.T, f func(*Args), a *Args, width int, want func(m, n int, before float32) float32) {
	t.Helper()
	before := make([]float32, len(c.y))
	for i := range before {
		before[i] = float32(i%97) - 31
	}
	copy(c.y, before)
	f(a)
	for i, got := range c.y {
		v := before[i]
		m, n := i/c.ystride, i%c.ystride
		if n < width {
			v = want(m, n, v)
		}
		if math.Float32bits(got) != math.Float32bits(v) {
			t.Fatalf("row %d, column %d of %d, cont %d: %g (%08x), want %g (%08x)", m, n, width, a.Cont,
				got, math.Float32bits(got), v, math.Float32bits(v))
		}
	}
}

// TestKernels16 compares the VNNI kernels of Code4, NVFP4 and Q2_K with the fused order of arithmetic, bit for bit.
func TestKernels16(t *testing.T) {
	if err := isa.Check(isa.VNNI, isa.Detect()); err != nil {
		t.Skip(err)
	}
	for l := range layouts16 {
		k := &VNNI.Of[l]
		if k.Gemv == nil || len(k.Small) != 7 || len(k.Gemm) != 7 || k.Tile != 2 || k.Unpack == nil || !k.Sliced || !k.Folds {
			t.Errorf("%v: %d small, %d gemm kernels", l, len(k.Small), len(k.Gemm))
			continue
		}
		for _, pattern := range []string{"random", "largest", "smallest", "mixed", "tiny"} {
			t.Run(fmt.Sprintf("%v/%s", l, pattern), func(t *testing.T) { testKernels16(t, l, k, pattern) })
		}
	}
}

func testKernels16(t *testing.T, l Layout, k *Kernels, pattern string) {
	rng := rand.New(rand.NewPCG(uint64(l), 16))
	for groups := 1; groups <= 5; groups++ {
		for rows := 1; rows <= 6; rows++ {
			few := k.Gemv
			if rows > 1 {
				few = k.Small[rows]
			}
			for _, slices := range []int{1, 2, 4} {
				if groups*slices > 8 {
					continue
				}
				c := newCall16(t, rng, l, rows, 1+rng.IntN(3), slices, groups, pattern)
				a := c.args()
				for a.Cont = range 2 {
					c.check(t, few, a, 16*c.panels*slices, func(m, n int, v float32) float32 {
						return c.chain(n/16/slices, n/16%slices, m, n%16, float32(a.Cont)*v+0)
					})
				}
			}
			for slices := 1; slices*groups <= 8; slices *= 2 {
				c := newCall16(t, rng, l, rows, 2, slices, groups, pattern)
				a := c.args()
				far := slices * groups * k.UnpackedBytes
				w := testkit.Guarded[byte](t, 2*far)
				for p := range 2 {
					u := Args{Src: unsafe.Add(a.W, p*c.far), Dst: unsafe.Pointer(&w[p*far]), Groups: slices * groups, Pf: 8192, Values: a.Values}
					k.Unpack(&u)
				}
				a.W, a.WFar, a.Panels = unsafe.Pointer(&w[0]), far, 0
				for mode := range 5 { // plain, continued, with bias, added, both
					a.Cont, a.Bias, a.Add = 0, nil, 0
					switch mode {
					case 1:
						if slices > 1 {
							continue
						}
						a.Cont = 1
					case 2, 4:
						a.Bias = unsafe.Pointer(&c.bias[0])
					}
					if mode >= 3 {
						a.Add = 1
					}
					c.check(t, k.Gemm[rows], a, 32, func(m, n int, before float32) float32 {
						var s [8]float32
						for i := range slices {
							s[i] = c.chain(n/16, i, m, n%16, float32(a.Cont)*before+0)
						}
						for i := slices; i > 1; i /= 2 {
							for j := range i / 2 {
								s[j] = s[2*j] + s[2*j+1]
							}
						}
						if a.Bias != nil {
							s[0] += c.bias[n]
						}
						if a.Add != 0 {
							s[0] = before + s[0]
						}
						return s[0]
					})
				}
			}
		}
	}
}

// BenchmarkKernels512 measures VNNI kernels on panels in the second-level cache, K = 4096: GB/s of packed weights and GOP/s (a multiply-add is
// two).
func BenchmarkKernels512(b *testing.B) {
	if err := isa.Check(isa.VNNI, isa.Detect()); err != nil {
		b.Skip(err)
	}
	for l := Q8_0; l < Layouts; l++ {
		k := &VNNI.Of[l]
		groups := 4096 / l.GroupK()
		for rows := 1; rows <= 6; rows++ {
			o := newOperands(b, rand.New(rand.NewPCG(1, 2)), l, rows, groups, 2, "random")
			if o.b != nil { // away from the inaccessible page, for masked loads over its edge are slow
				o.b = append(o.b, make([]int32, 16)...)
			}
			bench := func(kind string, f func(*Args), a *Args) {
				b.Run(fmt.Sprintf("type=%v/%s/M=%d", l, kind, rows), func(b *testing.B) {
					b.SetBytes(int64(2 * groups * l.GroupBytes()))
					for b.Loop() {
						f(a)
					}
					b.ReportMetric(2*float64(b.N*rows*32*4096)/b.Elapsed().Seconds()/1e9, "GOP/s")
				})
			}
			a := o.args()
			if rows == 1 {
				bench("gemv", k.Gemv, a)
			} else {
				bench("small", k.Small[rows], a)
			}
			a.WFar, a.YFar, a.Src = a.WStep, 64, a.X
			if k.Unpack != nil {
				far := groups * k.UnpackedBytes
				w := make([]byte, 2*far)
				u := Args{Dst: unsafe.Pointer(&w[0]), Groups: groups, Pf: 8192, Values: a.Values}
				unpack := func(*Args) {
					for p := range 2 {
						u.Src, u.Dst = unsafe.Add(unsafe.Pointer(&o.w[0]), p*a.WStep), unsafe.Pointer(&w[p*far])
						k.Unpack(&u)
					}
				}
				if unpack(nil); rows == 1 {
					bench("unpack", unpack, nil)
				}
				a.W, a.WFar = unsafe.Pointer(&w[0]), far
			}
			bench("gemm", k.Gemm[rows], a)
		}
	}
}
