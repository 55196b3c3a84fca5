package kernel

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"ck/asm/dot"
	"ck/internal/quant"
)

// Matmul is one product Y[m][n] = sum over k of W[n][k] * X[m][k], or the part of one that is one worker's: N weight rows, the
// activation rows [M0, M1).
//
// Each output's bits depend on its weight row, its activation row and Slices alone (dot's order of arithmetic): not on N, M0, M1 or
// anything else that is computed with it.
type Matmul struct {
	W      []byte             // ceil(N/PanelRows) consecutive panels of K elements; not read by Direct formats. What lies behind them, up to its capacity, is
	Next   []byte             // fetched ahead, then the beginning of Next, for the caller multiplies these then
	N, K   int                // weight rows; elements along K, a multiple of the type's block
	Slices int                // 1, 2, 4 or 8: K is cut in that many equal slices, whole groups, each one chain, summed as a tree
	Row    func(r int) []byte // Direct formats: the file's bytes of weight row r, 0 <= r < N
	X      *Act               // of the format's kind
	K0     int                // the first of its elements that is multiplied; X.K >= K0 + K
	M0, M1 int

	Y       []float32 // Y[m*YStride+n], m counted from row 0 of X; nothing beyond column N is stored
	YStride int
	Bias    []float32 // nil, or N values that are added after the tree
	Add     bool      // Y = Y + result, the residual; else Y = result
}

const (
	// mBlock is how many activation rows one pass over unpacked weights serves: their int8 data stays in the second-level cache
	// beside two panels. With 60 rows the unpacking costs 5 to 10 %, with 120 hardly anything.
	mBlock = 120

	// foldRows is mBlock for kernels with Folds, which prefetch the activations of the next tile: these need not stay in the second-level
	// cache. So panels are read from memory and unpacked once for a prompt: with Q8_0 in memory, 128, 256 and 512 rows reached 64, 67
	// and 68 % of the peak (best of three), with panels in the cache all ran alike.
	foldRows = 512

	// batchBytes is the size of a batch of panels that is read in several turns.
	batchBytes = 256 << 10

	// callBytes bounds the weights that one call of assembly reads, for the garbage collector cannot stop it: 100 us at 40 GB/s.
	callBytes = 4 << 20

	// chunkBytes is the part of a float panel (along K) that serves all rows of a block before the next part: it stays in the
	// second-level cache.
	chunkBytes = 256 << 10

	// decodeK is how many elements along K of 64 rows a Direct format decodes at a time; whole blocks of every type.
	decodeK = 256

	accBytes  = 4096     // dot.Args.Acc
	outFloats = 32 << 10 // outputs that await folding
	rowsBytes = 4 * decodeK * 64
)

// Scratch is one worker's memory for Matmul. Matmul grows it when it is too small; a caller that must not allocate in its hot
// path calls Grow with the largest Need first.
type Scratch struct {
	// Stop, where it is not nil, ends Matmul early once it is true: what it computed so far is worth nothing. Matmul looks at it between
	// calls of assembly, about every millisecond.
	Stop *atomic.Bool

	args dot.Args
	fold dot.Args
	mem  []byte // aligned to 64 bytes: acc, outputs, then unpacked panels, or a decoded chunk and its rows
	noPf int    // -1 for a table without prefetch, whose distances are 0: the line that is read anyway
}

// NewScratch is an empty scratch.
func NewScratch() *Scratch { return &Scratch{} }

// Need is the size in bytes of the scratch for matmuls with k elements along K.
func (f *Format) Need(k int) int {
	n := accBytes + 4*outFloats
	if f.Direct {
		return n + chunkBytes + rowsBytes
	}
	return n + align64(f.kernels.Tile*f.layout.Groups(k)*f.kernels.UnpackedBytes)
}

// Grow makes the scratch at least n bytes large.
func (s *Scratch) Grow(n int) {
	if len(s.mem) < n {
		b := make([]byte, n+63)
		s.mem = b[-uintptr(unsafe.Pointer(&b[0]))&63:][:n]
	}
}

// stopped reports whether work is to end early.
func (s *Scratch) stopped() bool { return s.Stop != nil && s.Stop.Load() }

// out is the part of the scratch for outputs.
func (s *Scratch) out() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&s.mem[accBytes])), outFloats)
}

// work is the rest of the scratch.
func (s *Scratch) work() []byte { return s.mem[accBytes+4*outFloats:] }

// call runs a kernel. Assembly has no safe points and a loop over it no stack check; this function's own prologue is where the
// garbage collector and cancellation get their turn, so it must not be inlined.
//
//go:noinline
func call(kernel func(*dot.Args), a *dot.Args) { kernel(a) }

// Matmul computes m. It panics if sizes do not fit; it allocates only to grow the scratch.
func (f *Format) Matmul(s *Scratch, m *Matmul) {
	f.check(m)
	if m.N == 0 || m.M0 == m.M1 {
		return
	}
	s.Grow(f.Need(m.K))
	a := &s.args
	*a = dot.Args{Acc: unsafe.Pointer(&s.mem[0]), Mp: 4 * m.X.M, Values: unsafe.Pointer(f.values)}
	f.lookAhead(s, m)
	switch rows := m.M1 - m.M0; {
	case f.tiled(rows):
		f.tiles(s, m)
	case f.Direct || f.float() && rows > 1 && rows >= len(f.kernels.Small):
		f.blocks(s, m)
	default:
		f.few(s, m)
	}
}

func (f *Format) float() bool { return f.Act == ActF32 || f.Act == ActBF16 }

// tiled reports whether a matmul of that many rows goes tile by tile.
func (f *Format) tiled(rows int) bool {
	return !f.Direct && !f.float() && rows > 1 && rows >= len(f.kernels.Small) && rows > f.kernels.Few
}

// Tile is the number of neighbouring panels that a matmul of that many rows computes together. Fewer cost as much: who deals panels out
// does it in multiples of Tile.
func (f *Format) Tile(rows int) int {
	if f.tiled(rows) {
		return f.kernels.Tile
	}
	return 1
}

func (f *Format) check(m *Matmul) {
	panels := (m.N + f.PanelRows - 1) / f.PanelRows
	switch {
	case m.X.Kind != f.Act || m.K0 < 0 || m.X.K < m.K0+m.K || m.K0 > 0 && m.K0%f.GroupK != 0 || m.X.Sums&f.Sums != f.Sums:
		panic(fmt.Sprintf("kernel: matmul of %v: activations are %v with K %d and sums %b, want %v with %d from %d on and %b", f.Type, m.X.Kind, m.X.K, m.X.Sums,
			f.Act, m.K, m.K0, f.Sums))
	case m.K <= 0, m.K%f.Type.BlockElems() != 0, m.Slices != 1 && m.Slices != 2 && m.Slices != 4 && m.Slices != 8,
		m.Slices > 1 && m.K%(m.Slices*f.GroupK) != 0:
		panic(fmt.Sprintf("kernel: matmul of %v: K %d in %d slices", f.Type, m.K, m.Slices))
	case len(m.W) < panels*f.PanelBytes(m.K):
		panic(fmt.Sprintf("kernel: matmul of %v: %d bytes of panels for %d x %d", f.Type, len(m.W), m.N, m.K))
	case m.M0 < 0 || m.M1 > m.X.M || m.M0 > m.M1 || m.M1 > m.M0 && len(m.Y) < (m.M1-1)*m.YStride+m.N || m.Bias != nil && len(m.Bias) < m.N:
		panic(fmt.Sprintf("kernel: matmul of %v: rows %d to %d of %d, %d outputs of %d columns", f.Type, m.M0, m.M1, m.X.M, len(m.Y), m.N))
	}
}

// bind points the arguments at activation row `row` from element k of the product on.
func (f *Format) bind(a *dot.Args, m *Matmul, row, k int) {
	x := m.X
	k += m.K0
	switch x.Kind {
	case ActF32:
		a.X, a.XStride = unsafe.Pointer(&x.F[row*x.FS+k]), 4*x.FS
	case ActBF16:
		a.X, a.XStride = unsafe.Pointer(&x.H[row*x.Kp+k]), 2*x.Kp
	case ActQ8:
		i := k/32*x.M + row
		a.X, a.XStride = unsafe.Pointer(&x.Q[row*x.Kp+k]), x.Kp
		a.D = unsafe.Pointer(&x.D[i])
		switch f.Sums {
		case Sum128:
			a.B = unsafe.Pointer(&x.N128[i])
		case Sum8:
			a.B = unsafe.Pointer(&x.N8[i])
		case Sum16:
			a.B = unsafe.Pointer(&x.N16[i])
		default:
			a.SD = unsafe.Pointer(&x.SD[i])
		}
	case ActQ8K:
		i := k / 256 * x.M
		a.X, a.XStride = unsafe.Pointer(&x.Q[row*x.Kp+k]), x.Kp
		a.D = unsafe.Pointer(&x.D[i+row])
		if f.Sums == Sum32 {
			a.B = unsafe.Pointer(&x.N32[16*i+row])
		} else {
			a.B = unsafe.Pointer(&x.P[8*(i+row)])
		}
	}
}

// straight reports whether kernels may store panels' outputs up to column n to Y without a detour.
func (m *Matmul) straight(n int) bool {
	return m.Slices == 1 && m.Bias == nil && !m.Add && n <= m.N
}

// y is the address of output row r, column n.
func (m *Matmul) y(r, n int) unsafe.Pointer { return unsafe.Pointer(&m.Y[r*m.YStride+n]) }

// finish stores the outputs of `rows` rows from r on, `panels` panels from column n on. At out they lie as [row][panel][slice]
// [PanelRows], width floats per row.
func (f *Format) finish(s *Scratch, m *Matmul, out []float32, r, n, rows, panels, width, slices int) {
	full, pr := min(panels, (m.N-n)/f.PanelRows), f.PanelRows
	a := &s.fold
	for i := range rows {
		row, dst := out[i*width:], (r+i)*m.YStride+n
		*a = dot.Args{}
		a.WStep, a.Groups = 4*pr, slices
		if full > 0 {
			a.W, a.Y, a.Panels = unsafe.Pointer(&row[0]), unsafe.Pointer(&m.Y[dst]), full
			if m.Bias != nil {
				a.B = unsafe.Pointer(&m.Bias[n])
			}
			if m.Add {
				a.Cont = 1
			}
			call(f.fold, a)
		}
		if full == panels {
			continue
		}
		// The last panel has fewer rows: sum it in place.
		src := row[full*slices*pr:][:pr]
		a.W, a.Y, a.Panels, a.B, a.Cont = unsafe.Pointer(&src[0]), unsafe.Pointer(&src[0]), 1, nil, 0
		call(f.fold, a)
		for j := full * pr; j < m.N-n; j++ {
			v := src[j-full*pr]
			if m.Bias != nil {
				v += m.Bias[n+j]
			}
			if m.Add {
				v += m.Y[dst+j]
			}
			m.Y[dst+j] = v
		}
	}
}

// few computes a few rows from packed panels, which Gemv and Small kernels take apart in registers. With more rows than the
// largest kernel has, a batch of panels is read again from the cache.
func (f *Format) few(s *Scratch, m *Matmul) {
	a, most, bytes := &s.args, max(1, len(f.kernels.Small)-1), callBytes
	if m.M1-m.M0 > most {
		bytes = batchBytes
	}
	size, panels := f.PanelBytes(m.K), (m.N+f.PanelRows-1)/f.PanelRows
	a.Groups, a.WStep, a.Slices = f.layout.Groups(m.K)/m.Slices, size/m.Slices, m.Slices
	for p := 0; p < panels && !s.stopped(); {
		n, np := p*f.PanelRows, min(panels-p, max(1, bytes/size))
		straight := m.straight(n + f.PanelRows)
		if straight {
			np = min(np, m.N/f.PanelRows-p)
		} else {
			np = min(np, outFloats/(m.Slices*most*f.PanelRows))
		}
		for r := m.M0; r < m.M1; {
			rows := evenly(m.M1-r, most)
			f.bind(a, m, r, 0)
			a.W, a.Y, a.YStride = unsafe.Pointer(&m.W[p*size]), unsafe.Pointer(&s.out()[0]), 4*np*m.Slices*f.PanelRows
			switch {
			case straight:
				a.Y, a.YStride = m.y(r, n), 4*m.YStride
				f.run(s, rows, np, 1)
			case m.Slices == 1 || f.kernels.Sliced:
				f.run(s, rows, np, m.Slices)
			default: // a call for each slice, still in the order of the memory
				for i := range np * m.Slices {
					f.bind(a, m, r, i%m.Slices*m.K/m.Slices)
					a.W, a.Y = unsafe.Pointer(&m.W[p*size+i*a.WStep]), unsafe.Pointer(&s.out()[i*f.PanelRows])
					f.run(s, rows, 1, 1)
				}
			}
			if !straight {
				f.finish(s, m, s.out(), r, n, rows, np, np*m.Slices*f.PanelRows, m.Slices)
			}
			r += rows
		}
		p += np
	}
}

// evenly is how many of the remaining rows the next kernel takes: as even a split as one with at most `most` rows allows.
func evenly(rows, most int) int {
	n := (rows + most - 1) / most
	return (rows + n - 1) / n
}

// lookAhead tells kernels what to fetch ahead.
func (f *Format) lookAhead(s *Scratch, m *Matmul) {
	a := &s.args
	first := unsafe.Pointer(unsafe.SliceData(m.W))
	switch {
	case !f.kernels.Streams:
		a.Pf = f.ahead &^ s.noPf
	case s.noPf != 0: // one line
		a.End, a.Next = first, first
	default:
		a.End, a.Next = unsafe.Add(first, cap(m.W)-1), first
		if len(m.Next) > 0 {
			a.Next, a.NextLen = unsafe.Pointer(unsafe.SliceData(m.Next)), min(len(m.Next), streamBlock)
		}
	}
}

// streamBlock is what streaming kernels fetch ahead at most (asm/_gen/dot256_stream.go).
const streamBlock = 128 << 10

// run computes rows x np panels, each of them several slices, from s.args.W to s.args.Y.
func (f *Format) run(s *Scratch, rows, np, slices int) {
	a := &s.args
	a.Panels = np * slices
	kernel := f.kernels.Gemv
	if rows > 1 {
		kernel = f.kernels.Small[rows]
	}
	call(kernel, a)
}

// tiles computes many rows for integer layouts: blocks of rows, pairs of panels (unpacked once per block), micro-kernels over the
// whole of K.
func (f *Format) tiles(s *Scratch, m *Matmul) {
	a, tile := &s.args, f.kernels.Tile
	size, groups := f.PanelBytes(m.K), f.layout.Groups(m.K)
	panels := (m.N + f.PanelRows - 1) / f.PanelRows
	wide := tile * f.PanelRows * m.Slices // floats of a row in the scratch
	block := mBlock
	if f.kernels.Folds {
		block = foldRows
	}
	for m0, m1 := m.M0, 0; m0 < m.M1; m0 = m1 {
		m1 = m0 + evenly(m.M1-m0, block)
		for p := 0; p < panels && !s.stopped(); p += tile {
			np := min(tile, panels-p)
			base, groupBytes, far := unsafe.Pointer(&m.W[p*size]), f.layout.GroupBytes(), size
			if f.kernels.Unpack != nil {
				groupBytes = f.kernels.UnpackedBytes
				far = groups * groupBytes
				for i := range np {
					a.Src, a.Dst, a.Groups, a.Pf = unsafe.Add(base, i*size), unsafe.Pointer(&s.work()[i*far]), groups, near&^s.noPf
					call(f.kernels.Unpack, a)
				}
				base = unsafe.Pointer(&s.work()[0])
			}
			if np < tile {
				far = 0 // the last panel stands for its missing neighbour too
			}
			a.WFar, a.Groups = far, groups/m.Slices
			for r := m0; r < m1; {
				rows, n := evenly(m1-r, len(f.kernels.Gemm)-1), p*f.PanelRows
				switch {
				case f.kernels.Folds:
					f.folding(s, m, base, r, m0, m1, n, rows, np)
				case m.straight(n + tile*f.PanelRows):
					f.bind(a, m, r, 0)
					a.W, a.Y, a.YStride, a.YFar = base, m.y(r, n), 4*m.YStride, 4*f.PanelRows
					call(f.kernels.Gemm[rows], a)
				default:
					out := s.out()[:rows*wide]
					a.YStride, a.YFar = 4*wide, 4*f.PanelRows*m.Slices
					for i := range m.Slices {
						f.bind(a, m, r, i*m.K/m.Slices)
						a.W, a.Y = unsafe.Add(base, i*a.Groups*groupBytes), unsafe.Pointer(&out[i*f.PanelRows])
						call(f.kernels.Gemm[rows], a)
					}
					f.finish(s, m, out, r, n, rows, np, wide, m.Slices)
				}
				r += rows
			}
		}
	}
}

// folding computes a tile of rows from r on with a kernel that makes the tree, the bias and the residual itself; the tile is one
// of the rows [m0, m1), np of its panels exist.
func (f *Format) folding(s *Scratch, m *Matmul, w unsafe.Pointer, r, m0, m1, n, rows, np int) {
	a, wide := &s.args, f.kernels.Tile*f.PanelRows
	f.bind(a, m, r, 0)
	a.W, a.Slices, a.YFar, a.Src = w, m.Slices, 4*f.PanelRows, unsafe.Add(a.X, rows*a.XStride)
	if r+rows == m1 { // the next panels begin with the first rows again
		a.Src = unsafe.Pointer(&m.X.Q[m0*m.X.Kp+m.K0])
	}
	if n+wide > m.N {
		a.Y, a.YStride, a.Bias, a.Add = unsafe.Pointer(&s.out()[0]), 4*wide, nil, 0
		call(f.kernels.Gemm[rows], a)
		f.finish(s, m, s.out()[:rows*wide], r, n, rows, np, wide, 1)
		return
	}
	a.Y, a.YStride = m.y(r, n), 4*m.YStride
	if m.Bias != nil {
		a.Bias = unsafe.Pointer(&m.Bias[n])
	}
	if a.Add = 0; m.Add {
		a.Add = 1
	}
	call(f.kernels.Gemm[rows], a)
}

// blocks computes float layouts and Direct formats: panel by panel, parts of K that stay in the cache, all rows of a block for
// each part. The chains go on from part to part in Y or in the scratch.
func (f *Format) blocks(s *Scratch, m *Matmul) {
	size, rowsMax := f.layout.PanelBytes(m.K), min(512, outFloats/(m.Slices*f.PanelRows))
	part := chunkBytes / f.layout.GroupBytes() * f.layout.GroupK() // elements along K
	a, wide := &s.args, f.PanelRows
	for n := 0; n < m.N; n += wide {
		for m0 := m.M0; m0 < m.M1; m0 += rowsMax {
			m1 := min(m0+rowsMax, m.M1)
			rows := m1 - m0
			straight := m.straight(n + wide)
			out := s.out()[:m.Slices*rows*wide] // [rows][Slices][PanelRows]
			for i := range m.Slices {
				first, end := i*m.K/m.Slices, (i+1)*m.K/m.Slices
				a.Y, a.YStride = unsafe.Pointer(&out[i*wide]), 4*wide*m.Slices
				if straight {
					a.Y, a.YStride = m.y(m0, n), 4*m.YStride
				}
				y0 := a.Y
				for k := first; k < end && !s.stopped(); k += part {
					kn := min(part, end-k)
					a.Groups, a.Cont = f.layout.Groups(kn), 0
					if k > first {
						a.Cont = 1
					}
					if f.Direct {
						f.decode(s, m, n, k, kn)
						a.W = unsafe.Pointer(&s.work()[0])
					} else {
						a.W = unsafe.Pointer(&m.W[n/wide*size+k/f.layout.GroupK()*f.layout.GroupBytes()])
					}
					for r := m0; r < m1; {
						rows := evenly(m1-r, len(f.kernels.Gemm)-1)
						f.bind(a, m, r, k)
						a.Y = unsafe.Add(y0, (r-m0)*a.YStride)
						if r == m0 && !f.Direct && rows > 1 && rows < len(f.kernels.Small) {
							f.run(s, rows, 1, 1) // weights come from memory: the kernel with prefetch
						} else {
							call(f.kernels.Gemm[rows], a)
						}
						r += rows
					}
				}
			}
			a.Cont = 0
			if !straight {
				f.finish(s, m, out, m0, n, rows, 1, wide*m.Slices, m.Slices)
			}
		}
	}
}

// decode makes a float32 panel of weight rows n.. from elements k..k+kn of the file's rows, at the start of the work scratch.
func (f *Format) decode(s *Scratch, m *Matmul, n, k, kn int) {
	work, rows := s.work(), min(64, m.N-n)
	buf := work[chunkBytes:][:rowsBytes]
	for e := 0; e < kn; e += decodeK {
		c := min(decodeK, kn-e)
		at := f.Type.RowBytes(k + e)
		for r := range rows {
			dst := unsafe.Slice((*float32)(unsafe.Pointer(&buf[4*decodeK*r])), c)
			quant.Decode(f.Type, dst, m.Row(n + r)[at:])
		}
		dot.F32.Pack(f.packer, work[256*e:256*(e+c)], c, rows, func(r int) []byte { return buf[4*decodeK*r:] })
	}
}
