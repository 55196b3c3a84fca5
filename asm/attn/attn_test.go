package attn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// widths are those of this machine, Go first.
func widths() []Width {
	w := []Width{Go}
	if x := cpu.X86; Built && x.HasAVX2 && x.HasFMA {
		w = append(w, W256)
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
			w = append(w, W512)
		}
	}
	return w
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

// fma32 rounds x*y+z once, but for results within 2^-29 of a tie.
func fma32(x, y, z float32) float32 { return float32(float64(x)*float64(y) + float64(z)) }

func ulps(got float32, want float64) float64 {
	if float64(got) == want {
		return 0
	}
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e, -125)-24)
}

func TestSoftmax(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	edge := []float32{0, -1e-8, -0.5, -1, -1.5, -124.4, -124.5, -124.99, -125, -125.01, -126, -150, -1000, -math.MaxFloat32, -inf}
	var first []uint32
	for _, w := range widths() {
		r := rand.New(rand.NewPCG(1, 2))
		k := For(w, F32)
		const m, stride = 3, StateOut + 16
		var all []uint32
		for round := range 20 {
			s, st := make([]float32, m*BlockKeys), make([]float32, m*stride)
			for i := range s {
				s[i] = float32(r.NormFloat64() * 20)
				if round%2 == 1 {
					s[i] = edge[r.IntN(len(edge))] // below a maximum of 0, so that differences are exact
				}
			}
			for q := range m {
				s[q*BlockKeys+r.IntN(BlockKeys)] = 0
				st[q*stride+StateMax] = []float32{-math.MaxFloat32, -3, 0}[q]
				for l := range 16 {
					st[q*stride+StateSum+l] = float32(q) * r.Float32()
				}
			}
			in, old := slices.Clone(s), slices.Clone(st)
			k.Softmax(&Args{S: unsafe.Pointer(&s[0]), O: unsafe.Pointer(&st[0]), OStride: 4 * stride, M: m})
			for q := range m {
				p, x, st, old := s[q*BlockKeys:][:BlockKeys], in[q*BlockKeys:][:BlockKeys], st[q*stride:], old[q*stride:]
				top := max(slices.Max(x), old[StateMax])
				if st[StateMax] != top {
					t.Fatalf("%v: maximum %g, want %g", w, st[StateMax], top)
				}
				exp2 := func(got, x float32) {
					t.Helper()
					if x < -125 && got != 0 || x >= -125 && ulps(got, math.Exp2(float64(x))) > 1.5 {
						t.Fatalf("%v: exp2(%g) = %g: %g ulp", w, x, got, ulps(got, math.Exp2(float64(x))))
					}
				}
				exp2(st[StateAlpha], old[StateMax]-top)
				for j := range p {
					exp2(p[j], x[j]-top)
				}
				for l := range 16 {
					sum := (p[l] + p[l+16]) + (p[l+32] + p[l+48])
					want := fma32(old[StateSum+l], st[StateAlpha], sum)
					if w == Go {
						want = float32(old[StateSum+l]*st[StateAlpha]) + sum
					}
					if st[StateSum+l] != want {
						t.Fatalf("%v: sum of lane %d: %g, want %g", w, l, st[StateSum+l], want)
					}
				}
			}
			all = append(append(all, bits(s)...), bits(st)...)
		}
		if w == W256 {
			first = all
		} else if w == W512 && !slices.Equal(first, all) {
			t.Error("bits of 512-bit code differ from those of 256-bit code")
		}
	}
	for _, w := range widths() { // NaN and +Inf make all weights NaN
		for _, bad := range []float32{nan, inf} {
			s, st := make([]float32, BlockKeys), make([]float32, StateOut)
			s[r.IntN(BlockKeys)] = bad
			For(w, F32).Softmax(&Args{S: unsafe.Pointer(&s[0]), O: unsafe.Pointer(&st[0]), M: 1})
			sum := float32(0)
			for _, l := range st[StateSum:] {
				sum += l
			}
			if sum == sum {
				t.Errorf("%v: a score of %g gives the sum %g", w, bad, sum)
			}
		}
	}
}

// TestChains shows that Scores and PV are chains of fused multiply-adds in the stated order.
func TestChains(t *testing.T) {
	const d, nv, m, stride = 37, 3, 2, StateOut + 48
	r := rand.New(rand.NewPCG(3, 4))
	row := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	k, v, q, st := row(d*BlockKeys), row(BlockKeys*16*nv), row(m*d), row(m*stride)
	for _, w := range widths() {
		mulAdd := fma32
		if w == Go {
			mulAdd = func(x, y, z float32) float32 { return float32(x*y) + z }
		}
		s, o := make([]float32, m*BlockKeys), slices.Clone(st)
		a := &Args{K: unsafe.Pointer(&k[0]), V: unsafe.Pointer(&v[0]), Q: unsafe.Pointer(&q[0]), QStride: 4 * d, S: unsafe.Pointer(&s[0]),
			O: unsafe.Pointer(&o[0]), OStride: 4 * stride, D: d, NV: nv, VStride: 64 * nv, J0: 5, J1: 61, M: m, Pf: unsafe.Pointer(&v[0])}
		For(w, F32).Scores[m](a)
		for i := range m {
			for j := range BlockKeys {
				want := float32(0)
				for x := range d {
					want = mulAdd(k[x*BlockKeys+j], q[i*d+x], want)
				}
				if s[i*BlockKeys+j] != want {
					t.Fatalf("%v: score %d of query %d: %g, want %g", w, j, i, s[i*BlockKeys+j], want)
				}
			}
		}
		For(w, F32).PV[m](a)
		for i := range m {
			for x := range 16 * nv {
				want := st[i*stride+StateOut+x] * st[i*stride+StateAlpha]
				for j := 5; j < 61; j++ {
					want = mulAdd(v[j*16*nv+x], s[i*BlockKeys+j], want)
				}
				if got := o[i*stride+StateOut+x]; got != want {
					t.Fatalf("%v: output %d of query %d: %g, want %g", w, x, i, got, want)
				}
			}
		}
	}
}

func TestCap(t *testing.T) {
	const c = 30.0
	for _, w := range widths() {
		x := make([]float32, 2*BlockKeys)
		for i := range x {
			x[i] = float32(math.Sinh(float64(i-BlockKeys) / 10))
		}
		x[0], x[1], x[2] = float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())
		y := slices.Clone(x)
		For(w, F32).Cap(&Args{S: unsafe.Pointer(&y[0]), M: 2, CapIn: -2 * math.Log2E / c, CapOut: c * math.Log2E})
		for i, v := range x {
			want := c * math.Tanh(float64(v)/c) * math.Log2E
			if e := math.Abs(float64(y[i]) - want); !(e <= c*0x1p-22) && !(v != v && y[i] != y[i]) {
				t.Errorf("%v: cap of %g: %g, want %g", w, v, y[i], want)
			}
		}
	}
}
