package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"ck/asm/dot"
	"ck/asm/half"
	"ck/internal/isa"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// tables are the tables of every tier that this machine runs.
func tables(t testing.TB) []*Table {
	f := isa.Detect()
	var ts []*Table
	for _, tier := range isa.Available(f) {
		ts = append(ts, For(tier, f))
	}
	return ts
}

// plainGo reports whether f uses the kernels in Go, which agree with the others only within rounding.
func plainGo(f *Format) bool {
	return reflect.ValueOf(f.kernels.Gemv).Pointer() == reflect.ValueOf(dot.Go.Of[f.layout].Gemv).Pointer()
}

// formats are the formats of type qt whose kernels differ: tiers share kernels.
func formats(t testing.TB, qt quant.Type, f32 bool) []*Format {
	seen := map[uintptr]bool{}
	var fs []*Format
	for _, tab := range tables(t) {
		f := tab.Format(qt, f32)
		if p := reflect.ValueOf(f.kernels.Gemv).Pointer(); !seen[p] {
			seen[p] = true
			fs = append(fs, f)
		}
	}
	return fs
}

// panelTypes are types of all layouts: those with panels of their own, and one that is rewritten as codes.
var panelTypes = []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q5_1,
	quant.Q4_K, quant.Q5_K, quant.Q6_K, quant.Q2_K, quant.IQ4_XS, quant.MXFP4, quant.NVFP4}

// rewritten are the other types whose blocks are rewritten.
var rewritten = []quant.Type{quant.IQ4_NL, quant.Q1_0, quant.Q2_0, quant.Q3_K, quant.IQ1_S, quant.IQ1_M, quant.IQ2_XXS, quant.IQ2_XS,
	quant.IQ2_S, quant.IQ3_XXS, quant.IQ3_S, quant.TQ1_0, quant.TQ2_0}

// plainAct fills an Act by the words of its doc comment.
func plainAct(t testing.TB, kind ActKind, x [][]float32) *Act {
	m, k := len(x), len(x[0])
	a := MakeAct(kind, AllSums, testkit.Guarded[byte](t, align64(ActBytes(kind, AllSums, m, k))), m, k)
	if kind == ActF32 {
		a.FS = k + 3
		a.F = testkit.Guarded[float32](t, (m-1)*a.FS+k)
	}
	for i, row := range x {
		switch kind {
		case ActF32:
			copy(a.F[i*a.FS:], row)
			continue
		case ActBF16:
			for j, v := range row {
				a.H[i*a.Kp+j] = half.F32ToBF16(v)
			}
			continue
		}
		be := kind.blockElems()
		pad := make([]float32, a.Kp)
		copy(pad, row)
		for b := range a.Kp / be {
			var amax float32
			for _, v := range pad[b*be:][:be] {
				amax = max(amax, float32(math.Abs(float64(v))))
			}
			d, inv := amax/127, 127/amax
			if amax < 1e-30 {
				d, inv = 0, 0
			}
			a.D[b*m+i] = d
			var s16 [16]int32
			for j := range be {
				q := int8(math.RoundToEven(float64(pad[b*be+j] * inv)))
				a.Q[i*a.Kp+b*be+j] = q
				s16[j/16] += int32(q)
			}
			if kind == ActQ8 {
				s := s16[0] + s16[1]
				a.SD[b*m+i] = d * float32(s)
				a.N8[b*m+i], a.N16[b*m+i], a.N128[b*m+i] = -8*s, -16*s, -128*s
				continue
			}
			for j, s := range s16 {
				a.N32[(b*16+j)*m+i] = -32 * s
			}
			for j := range 8 {
				a.P[(b*m+i)*8+j] = int16(s16[2*j] + s16[2*j+1])
			}
		}
	}
	return &a
}

// value is element k of row m as kernels see it.
func (a *Act) value(m, k int) float64 {
	switch a.Kind {
	case ActF32:
		return float64(a.F[m*a.FS+k])
	case ActBF16:
		return float64(half.BF16ToF32(a.H[m*a.Kp+k]))
	}
	return float64(a.D[k/a.Kind.blockElems()*a.M+m]) * float64(a.Q[m*a.Kp+k])
}

// weights are n random rows of type t; values are the exact ones.
type weights struct {
	t      quant.Type
	n, k   int
	rows   [][]byte
	values [][]float64
}

func randomWeights(t testing.TB, rng *rand.Rand, qt quant.Type, n, k int) *weights {
	w := &weights{t: qt, n: n, k: k}
	for range n {
		row := testkit.Guarded[byte](t, qt.RowBytes(k))
		quant.RandomBlocks(qt, row, rng, 0.05)
		v := make([]float64, k)
		quant.Exact(qt, v, row)
		w.rows, w.values = append(w.rows, row), append(w.values, v)
	}
	return w
}

// pack makes the panels of f.
func (w *weights) pack(t testing.TB, f *Format) []byte {
	size := f.PanelBytes(w.k)
	np := (w.n + f.PanelRows - 1) / f.PanelRows
	b := testkit.Guarded[byte](t, np*size)
	if f.Direct {
		return nil
	}
	for p := range np {
		f.Pack(b[p*size:][:size], w.k, min(f.PanelRows, w.n-p*f.PanelRows), func(r int) []byte { return w.rows[p*f.PanelRows+r] })
	}
	return b
}

func (w *weights) row(r int) []byte { return w.rows[r] }

func randomRows(rng *rand.Rand, m, k int) [][]float32 {
	x := make([][]float32, m)
	for i := range x {
		x[i] = make([]float32, k)
		for j := range x[i] {
			x[i][j] = float32(rng.NormFloat64())
		}
	}
	return x
}

// product runs a matmul with a guarded output whose unused columns must stay as they are.
func product(t testing.TB, f *Format, s *Scratch, w *weights, panels []byte, x *Act, slices int, bias, start []float32) []float32 {
	t.Helper()
	stride := w.n + 5
	y := testkit.Guarded[float32](t, (x.M-1)*stride+w.n)
	const mark = 12345
	for i := range y {
		y[i] = mark
	}
	mm := Matmul{W: panels, N: w.n, K: w.k, Slices: slices, Row: w.row, X: x, M1: x.M, Y: y, YStride: stride, Bias: bias}
	if start != nil {
		mm.Add = true
		for m := range x.M {
			copy(y[m*stride:][:w.n], start)
		}
	}
	f.Matmul(s, &mm)
	out := make([]float32, x.M*w.n)
	for m := range x.M {
		copy(out[m*w.n:], y[m*stride:][:w.n])
		for i := m*stride + w.n; i < min((m+1)*stride, len(y)); i++ {
			if y[i] != mark {
				t.Fatalf("row %d: column %d beyond the %d outputs was written", m, i-m*stride, w.n)
			}
		}
	}
	return out
}

// exact is the product in float64 and the sums of magnitudes |w x|, [M][N].
type exact struct{ want, mag []float64 }

func exactly(w *weights, x *Act) *exact {
	e := &exact{make([]float64, x.M*w.n), make([]float64, x.M*w.n)}
	row := make([]float64, w.k)
	for m := range x.M {
		for k := range row {
			row[k] = x.value(m, k)
		}
		for n := range w.n {
			var want, mag float64
			for k, v := range w.values[n] {
				want += v * row[k]
				mag += math.Abs(v * row[k])
			}
			e.want[m*w.n+n], e.mag[m*w.n+n] = want, mag
		}
	}
	return e
}

// check compares y with the exact product, plus bias and start if not nil. The bound counts the roundings of a chain over K: per
// block of 32 (or per element) a product and an addition, each within eps = 2^-24 of at most the sum of magnitudes so far; their
// errors add up like the square root of their number, four deviations of it are allowed; slices, bias and residual add a few.
func (e *exact) check(t *testing.T, w *weights, x *Act, y, bias, start []float32) {
	t.Helper()
	const eps = 1.0 / (1 << 24)
	steps := float64(w.k)
	if x.Kind == ActQ8 || x.Kind == ActQ8K {
		steps = float64(w.k)/32*2 + 8
	}
	bound := eps * (4*math.Sqrt(steps) + 16)
	for i, want := range e.want {
		mag := e.mag[i]
		for _, extra := range [][]float32{bias, start} {
			if extra != nil {
				want += float64(extra[i%w.n])
				mag += math.Abs(float64(extra[i%w.n]))
			}
		}
		if d := math.Abs(float64(y[i]) - want); !(d <= bound*mag) {
			t.Fatalf("Y[%d][%d] = %g, want %g: error %.3g of sum|w x|, bound %.3g", i/w.n, i%w.n, y[i], want, d/mag, bound)
		}
	}
}

func equalBits(t *testing.T, what string, a, b []float32) {
	t.Helper()
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			t.Fatalf("%s: element %d is %g (%08x), want %g (%08x)", what, i, a[i], math.Float32bits(a[i]), b[i], math.Float32bits(b[i]))
		}
	}
}

// sizes are the shapes N x K, those with K that the type has.
var sizes = [][2]int{{1, 256}, {16, 32}, {17, 64}, {64, 96}, {33, 256}, {70, 768}, {130, 288}, {5, 4096}, {100, 512}}

func TestMatmul(t *testing.T) {
	for _, qt := range panelTypes {
		t.Run(qt.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(qt)))
			for _, nk := range sizes {
				if nk[1]%qt.BlockElems() == 0 {
					w := randomWeights(t, rng, qt, nk[0], nk[1])
					for _, m := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13} {
						if m > 4 && w.n*w.k > 20000 && m != 7 && m != 13 {
							continue
						}
						testMatmul(t, rng, w, m)
					}
				}
			}
			testMatmul(t, rng, randomWeights(t, rng, qt, 48, 256), 133)
			testMatmul(t, rng, randomWeights(t, rng, qt, 20, 256), 29)
		})
	}
}

// Blocks that are rewritten have the weights of the file: rows of ragged panels, K of odd numbers of blocks.
func TestMatmulRewritten(t *testing.T) {
	for _, qt := range rewritten {
		rng := rand.New(rand.NewPCG(13, uint64(qt)))
		for _, nk := range [][2]int{{37, 3 * qt.BlockElems()}, {16, 1280}, {17, 2048 + 3*qt.BlockElems()}} {
			w := randomWeights(t, rng, qt, nk[0], nk[1])
			if tables(t)[0].Format(qt, false).Direct {
				t.Fatalf("%v has no panels", qt)
			}
			for _, m := range []int{1, 3, 14} {
				testMatmul(t, rng, w, m)
			}
		}
	}
}

// testMatmul checks all tiers: against float64, against one row at a time, against each other.
func testMatmul(t *testing.T, rng *rand.Rand, w *weights, m int) {
	x := plainAct(t, ActFor(w.t, false), randomRows(rng, m, w.k))
	bias, start := randomRows(rng, 1, w.n)[0], randomRows(rng, 1, w.n)[0]
	s, e := NewScratch(), exactly(w, x)
	var first []float32
	for i, f := range formats(t, w.t, false) {
		what := fmt.Sprintf("%v N=%d K=%d M=%d kernels %d", w.t, w.n, w.k, m, i)
		panels := w.pack(t, f)
		y := product(t, f, s, w, panels, x, 1, nil, nil)
		if t.Failed() {
			t.Fatal(what)
		}
		e.check(t, w, x, y, nil, nil)
		for _, slices := range []int{1, 2, 8} {
			if w.k%(slices*f.GroupK) == 0 && (slices > 1 || m < 8) {
				e.check(t, w, x, product(t, f, s, w, panels, x, slices, bias, start), bias, start)
			}
		}
		both := product(t, f, s, w, panels, x, 1, bias, start)
		for i := range both {
			if want := start[i%w.n] + (y[i] + bias[i%w.n]); both[i] != want {
				t.Fatalf("%s: with bias and residual Y[%d] is %g, want %g", what, i, both[i], want)
			}
		}
		if m > 1 {
			stride := w.n + 1
			one := testkit.Guarded[float32](t, m*stride)
			for i := range m {
				f.Matmul(s, &Matmul{W: panels, N: w.n, K: w.k, Slices: 1, X: x, M0: i, M1: i + 1, Y: one, YStride: stride})
				equalBits(t, what+": a row alone", y[i*w.n:][:w.n], one[i*stride:][:w.n])
			}
		}
		if plainGo(f) || w.t == quant.BF16 {
			continue
		}
		if first == nil {
			first = y
		}
		equalBits(t, what+": tiers", y, first)
	}
}

// Every micro-kernel of every set, also those that the driver takes for odd remainders only, has the bits of the one-row kernel.
func TestMatmulEveryKernel(t *testing.T) {
	for _, qt := range panelTypes {
		rng := rand.New(rand.NewPCG(11, uint64(qt)))
		for _, k := range []int{256, 768, 2048} {
			w := randomWeights(t, rng, qt, 64+64+17, k)
			for i, f := range formats(t, qt, false) {
				panels, s := w.pack(t, f), NewScratch()
				for rows := 1; rows < max(len(f.kernels.Gemm), len(f.kernels.Small)); rows++ {
					x := plainAct(t, f.Act, randomRows(rng, max(rows, 2), k))
					gemm, small := *f, *f
					gemm.kernels.Small, gemm.kernels.Few = nil, 0
					gemm.kernels.Gemm = f.kernels.Gemm[:min(rows+1, len(f.kernels.Gemm))]
					small.kernels.Few = 0
					for _, slices := range []int{1, 2} {
						if k%(slices*f.GroupK) != 0 {
							continue
						}
						want := make([]float32, x.M*w.n)
						for m := range x.M {
							f.Matmul(s, &Matmul{W: panels, N: w.n, K: k, Slices: slices, X: x, M0: m, M1: m + 1, Y: want, YStride: w.n})
						}
						what := fmt.Sprintf("%v K=%d kernels %d, %d rows, %d slices", qt, k, i, rows, slices)
						equalBits(t, what+", Gemm", product(t, &gemm, s, w, panels, x, slices, nil, nil), want)
						equalBits(t, what+", Small", product(t, &small, s, w, panels, x, slices, nil, nil), want)
					}
				}
			}
		}
	}
}

// A kernel that continues the chains of its outputs (Args.Cont) ends with the bits of one that goes through K at once.
func TestKernelsContinue(t *testing.T) {
	const k = 1024
	for _, qt := range panelTypes {
		rng := rand.New(rand.NewPCG(12, uint64(qt)))
		for i, f := range formats(t, qt, false) {
			w := randomWeights(t, rng, qt, 2*f.PanelRows, k)
			x := plainAct(t, f.Act, randomRows(rng, 6, k))
			packed, size, group := w.pack(t, f), f.PanelBytes(k), f.layout.GroupBytes()
			acc := testkit.Guarded[byte](t, accBytes)
			// compute runs one kernel over two panels at w, from K k0 to k1.
			compute := func(kernel func(*dot.Args), w []byte, size, group, k0, k1, panels int, y []float32) {
				a := &dot.Args{WStep: size, WFar: size, YFar: 4 * f.PanelRows, YStride: 8 * f.PanelRows, Panels: panels, Mp: 4 * x.M,
					Groups: f.layout.Groups(k1 - k0), Cont: k0, Acc: unsafe.Pointer(&acc[0]), Y: unsafe.Pointer(&y[0]), Values: unsafe.Pointer(f.values)}
				f.bind(a, &Matmul{X: x}, 0, k0)
				a.W = unsafe.Pointer(&w[f.layout.Groups(k0)*group])
				kernel(a)
			}
			test := func(what string, kernel func(*dot.Args), w []byte, size, group, rows, panels int) {
				whole, parts := testkit.Guarded[float32](t, 2*f.PanelRows*rows), testkit.Guarded[float32](t, 2*f.PanelRows*rows)
				compute(kernel, w, size, group, 0, k, panels, whole)
				compute(kernel, w, size, group, 0, k/4, panels, parts)
				compute(kernel, w, size, group, k/4, k, panels, parts)
				equalBits(t, fmt.Sprintf("%v kernels %d %s, %d rows", qt, i, what, rows), parts, whole)
				if !slices.ContainsFunc(whole, func(v float32) bool { return v != 0 }) {
					t.Fatalf("%v: %s computes nothing", qt, what)
				}
			}
			test("Gemv", f.kernels.Gemv, packed, size, group, 1, 2)
			for r := 2; r < min(7, len(f.kernels.Small)); r++ {
				test("Small", f.kernels.Small[r], packed, size, group, r, 2)
			}
			if f.kernels.Unpack != nil {
				group = f.kernels.UnpackedBytes
				wide := testkit.Guarded[byte](t, 2*f.layout.Groups(k)*group)
				for p := range 2 {
					f.kernels.Unpack(&dot.Args{Src: unsafe.Pointer(&packed[p*size]), Dst: unsafe.Pointer(&wide[p*len(wide)/2]), Groups: f.layout.Groups(k),
						Values: unsafe.Pointer(f.values)})
				}
				packed, size = wide, len(wide)/2
			}
			for r := 1; r < len(f.kernels.Gemm); r++ {
				test("Gemm", f.kernels.Gemm[r], packed, size, group, r, 1)
			}
		}
	}
}

// Bits do not depend on how N is cut, nor on the rows beside.
func TestMatmulCuts(t *testing.T) {
	for _, qt := range panelTypes {
		rng := rand.New(rand.NewPCG(2, uint64(qt)))
		w := randomWeights(t, rng, qt, 200, 2048)
		x := plainAct(t, ActFor(qt, false), randomRows(rng, 9, w.k))
		for i, f := range formats(t, qt, false) {
			if plainGo(f) {
				continue
			}
			s := NewScratch()
			panels, size := w.pack(t, f), f.PanelBytes(w.k)
			for _, slices := range []int{1, 4} {
				want := make([]float32, x.M*w.n)
				f.Matmul(s, &Matmul{W: panels, N: w.n, K: w.k, Slices: slices, X: x, M1: x.M, Y: want, YStride: w.n})
				for range 4 {
					got := make([]float32, x.M*w.n)
					for p := 0; p*f.PanelRows < w.n; {
						np := 1 + rng.IntN(5)
						n := p * f.PanelRows
						cut := min(np*f.PanelRows, w.n-n)
						for m := 0; m < x.M; {
							rows := min(1+rng.IntN(8), x.M-m)
							f.Matmul(s, &Matmul{W: panels[p*size:], N: cut, K: w.k, Slices: slices, X: x, M0: m, M1: m + rows, Y: got[n:], YStride: w.n})
							m += rows
						}
						p += np
					}
					equalBits(t, fmt.Sprintf("%v kernels %d slices %d", qt, i, slices), got, want)
				}
			}
		}
	}
}

// Slices are whole chains summed as a tree: the sum of separate matmuls.
func TestMatmulSlicesAreATree(t *testing.T) {
	for _, qt := range panelTypes {
		rng := rand.New(rand.NewPCG(3, uint64(qt)))
		const slices, n, m = 4, 20, 3
		k := slices * 512
		w := randomWeights(t, rng, qt, n, k)
		rows := randomRows(rng, m, k)
		for _, f := range formats(t, qt, false) {
			s := NewScratch()
			got := product(t, f, s, w, w.pack(t, f), plainAct(t, f.Act, rows), slices, nil, nil)
			var part [slices][]float32
			for i := range part {
				cut := &weights{t: qt, n: n, k: k / slices}
				for _, r := range w.rows {
					cut.rows = append(cut.rows, r[qt.RowBytes(i*k/slices):qt.RowBytes((i+1)*k/slices)])
				}
				xs := make([][]float32, m)
				for j := range xs {
					xs[j] = rows[j][i*k/slices : (i+1)*k/slices]
				}
				part[i] = product(t, f, s, cut, cut.pack(t, f), plainAct(t, f.Act, xs), 1, nil, nil)
			}
			for i := range got {
				if want := (part[0][i] + part[1][i]) + (part[2][i] + part[3][i]); got[i] != want {
					t.Fatalf("%v: element %d is %g, want %g", qt, i, got[i], want)
				}
			}
		}
	}
}

// Types without integer kernels, and all under --act f32, are decoded.
func TestMatmulDirect(t *testing.T) {
	for n := range quant.Types {
		qt := quant.Type(n)
		if !qt.Known() {
			continue
		}
		rng := rand.New(rand.NewPCG(4, uint64(qt)))
		k := 1280
		w := randomWeights(t, rng, qt, 70, k)
		for _, m := range []int{1, 3, 14} {
			rows := randomRows(rng, m, k)
			x := plainAct(t, ActF32, rows)
			e := exactly(w, x)
			var first []float32
			for i, f := range formats(t, qt, true) {
				if native := qt == quant.F32 || qt == quant.F16; f.Act != ActF32 || f.Direct == native {
					t.Fatalf("%v with f32 activations: act %v, direct %v", qt, f.Act, f.Direct)
				}
				s := NewScratch()
				y := product(t, f, s, w, w.pack(t, f), x, 1, nil, nil)
				e.check(t, w, x, y, nil, nil)
				if plainGo(f) {
					continue
				}
				if k%(2*f.GroupK) == 0 {
					e.check(t, w, x, product(t, f, s, w, w.pack(t, f), x, 2, nil, nil), nil, nil)
				}
				if first == nil {
					first = y
				}
				equalBits(t, fmt.Sprintf("%v kernels %d", qt, i), y, first)
			}
		}
	}
}

func TestMatmulRandomShapes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		qt := panelTypes[rng.IntN(len(panelTypes))]
		k := (1 + rng.IntN(max(1, 1500/qt.BlockElems()))) * qt.BlockElems()
		testMatmul(t, rng, randomWeights(t, rng, qt, 1+rng.IntN(90), k), 1+rng.IntN(15))
	}
}

func TestMatmulDoesNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, qt := range []quant.Type{quant.F32, quant.Q4_K, quant.IQ4_NL, quant.IQ4_XS, quant.MXFP4, quant.NVFP4} {
		w := randomWeights(t, rng, qt, 80, 512)
		for _, f := range formats(t, qt, false) {
			s := NewScratch()
			s.Grow(f.Need(w.k))
			panels := w.pack(t, f)
			for _, m := range []int{1, 3, 13} {
				x := plainAct(t, f.Act, randomRows(rng, m, w.k))
				mm := &Matmul{W: panels, N: w.n, K: w.k, Slices: 2, Row: w.row, X: x, M1: m, Y: make([]float32, m*w.n), YStride: w.n}
				if n := testing.AllocsPerRun(3, func() { f.Matmul(s, mm) }); n != 0 {
					t.Errorf("%v M=%d: %g allocations", qt, m, n)
				}
			}
		}
	}
}

// An infinity in an activation must show, not vanish.
func TestMatmulKeepsInfinity(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, qt := range panelTypes {
		w := randomWeights(t, rng, qt, 16, 512)
		rows := randomRows(rng, 7, 512)
		x := plainAct(t, ActFor(qt, false), rows)
		switch x.Kind {
		case ActF32:
			x.F[2*x.FS+300] = float32(math.Inf(1))
		case ActBF16:
			x.H[2*x.Kp+300] = 0x7f80
		default:
			x.D[300/x.Kind.blockElems()*x.M+2] = float32(math.Inf(1))
		}
		for i, f := range formats(t, qt, false) {
			y := product(t, f, NewScratch(), w, w.pack(t, f), x, 1, nil, nil)
			for m := range x.M {
				for n := range w.n {
					v := float64(y[m*w.n+n])
					if bad := math.IsInf(v, 0) || math.IsNaN(v); bad != (m == 2) {
						t.Fatalf("%v kernels %d: Y[%d][%d] = %g", qt, i, m, n, v)
					}
				}
			}
		}
	}
}
