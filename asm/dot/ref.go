package dot

import (
	"math"
	"unsafe"

	"ck/asm/half"
)

// The plain Go kernels: what a layout and its order of arithmetic mean. Each computes one activation row; products are rounded
// before they are added, which also keeps compilers that know a fused multiply-add from using it.

// Go is the portable set.
var Go = Set{Of: [Layouts]Kernels{
	F32:  goKernels(F32, goFloat),
	F16:  goKernels(F16, goFloat),
	BF16: goKernels(BF16, goBF16),
	Q8_0: goKernels(Q8_0, goBlocks),
	Q4_0: goKernels(Q4_0, goBlocks),
	Q4_1: goKernels(Q4_1, goBlocks),
	Q5_0: goKernels(Q5_0, goBlocks),
	Q5_1: goKernels(Q5_1, goBlocks),
	Q4_K: goKernels(Q4_K, goK45),
	Q5_K: goKernels(Q5_K, goK45),
	Q6_K: goKernels(Q6_K, goK6),
	Q2_K: goKernels(Q2_K, goK2),

	Code4: goKernels(Code4, goCode4),
	MXFP4: goKernels(MXFP4, goBlocks),
	NVFP4: goKernels(NVFP4, goCode4),
}}

// panelFunc computes the outputs y (the panel's rows) of one panel at w and one activation row.
type panelFunc func(l Layout, a *Args, w unsafe.Pointer, y []float32)

func goKernels(l Layout, f panelFunc) Kernels {
	one := func(a *Args) {
		for p := range a.Panels {
			goPanel(l, f, a, unsafe.Add(a.W, p*a.WStep), unsafe.Add(a.Y, 4*p*l.Rows()))
		}
	}
	return Kernels{
		Gemv: one,
		Gemm: []func(*Args){nil, func(a *Args) { goPanel(l, f, a, a.W, a.Y) }},
		Tile: 1,
	}
}

func goPanel(l Layout, f panelFunc, a *Args, w, y unsafe.Pointer) {
	acc := unsafe.Slice((*float32)(y), l.Rows())
	if a.Cont == 0 {
		clear(acc)
	}
	f(l, a, w, acc)
}

// at is the i-th T from p on.
func at[T any](p unsafe.Pointer, i int) T {
	var e T
	return *(*T)(unsafe.Add(p, i*int(unsafe.Sizeof(e))))
}

// goFloat: acc += w*x for each K; F32 and F16.
func goFloat(l Layout, a *Args, w unsafe.Pointer, y []float32) {
	for k := range a.Groups {
		x := at[float32](a.X, k)
		if l == F32 {
			for r, v := range unsafe.Slice((*float32)(unsafe.Add(w, 256*k)), 64) {
				y[r] += float32(v * x)
			}
			continue
		}
		for r, v := range unsafe.Slice((*uint16)(unsafe.Add(w, 128*k)), 64) {
			y[r] += float32(half.F16ToF32(v) * x)
		}
	}
}

// goBF16: acc += w0*x0, then acc += w1*x1, for each pair.
func goBF16(l Layout, a *Args, w unsafe.Pointer, y []float32) {
	for g := range a.Groups {
		x0, x1 := half.BF16ToF32(at[uint16](a.X, 2*g)), half.BF16ToF32(at[uint16](a.X, 2*g+1))
		v := unsafe.Slice((*uint16)(unsafe.Add(w, 256*g)), 128)
		for r := range y {
			y[r] += float32(half.BF16ToF32(v[2*r]) * x0)
			y[r] += float32(half.BF16ToF32(v[2*r+1]) * x1)
		}
	}
}

// sum adds to s[r] the products of n vectors of unsigned weights (v[64i+4r+k], i < n) with the activations x[4i+k].
func sum(s *[16]int32, v []byte, x unsafe.Pointer, n int) {
	for i := range n {
		x0, x1 := int32(at[int8](x, 4*i)), int32(at[int8](x, 4*i+1))
		x2, x3 := int32(at[int8](x, 4*i+2)), int32(at[int8](x, 4*i+3))
		w := (*[64]byte)(v[64*i:])
		for r := range s {
			s[r] += int32(w[4*r])*x0 + int32(w[4*r+1])*x1 + int32(w[4*r+2])*x2 + int32(w[4*r+3])*x3
		}
	}
}

// nibbles splits n vectors: low nibbles to lo, high ones to hi.
func nibbles(lo, hi, src []byte, n int) {
	for i, b := range src[:64*n] {
		lo[i], hi[i] = b&15, b>>4
	}
}

// addFifth adds the fifth bits of 8 vectors of a block of 32 K, bit i of byte t for byte t of vector i.
func addFifth(v *[512]byte, high []byte) {
	for i := range 8 {
		for t, h := range high[:64] {
			v[64*i+t] |= h >> i & 1 << 4
		}
	}
}

// blockOffsets are the places of d and m in a group; 0: no m.
var blockOffsets = [Layouts][2]int{Q8_0: {1024, 0}, Q4_0: {512, 0}, Q4_1: {512, 576}, Q5_0: {640, 0}, Q5_1: {640, 704}, MXFP4: {512, 0}}

// goBlocks: the types with blocks of 32.
func goBlocks(l Layout, a *Args, w unsafe.Pointer, y []float32) {
	off := blockOffsets[l]
	dOff, mOff := off[0], off[1]
	for g := range a.Groups {
		group := unsafe.Slice((*byte)(unsafe.Add(w, g*l.GroupBytes())), l.GroupBytes())
		for b := range 2 {
			var v [512]byte
			if l == Q8_0 {
				copy(v[:], group[512*b:])
			} else {
				nibbles(v[:256], v[256:], group[256*b:], 4)
			}
			if l == MXFP4 {
				for i, code := range v {
					v[i] = byte((*[16]int8)(a.Values)[code] + 16)
				}
			}
			if l == Q5_0 || l == Q5_1 {
				addFifth(&v, group[512+64*b:])
			}
			blk := 2*g + b
			var s [16]int32
			if mOff == 0 {
				n := at[int32](unsafe.Add(a.B, blk*a.Mp), 0)
				for r := range s {
					s[r] = n
				}
			}
			sum(&s, v[:], unsafe.Add(a.X, 32*blk), 8)
			dx := at[float32](unsafe.Add(a.D, blk*a.Mp), 0)
			for r := range y {
				d := le.Uint16(group[dOff+32*b+2*r:])
				scale := half.F16ToF32(d)
				if l == MXFP4 {
					scale = half.BF16ToF32(d)
				}
				scale *= dx
				y[r] += float32(float32(s[r]) * scale)
				if mOff != 0 {
					sx := at[float32](unsafe.Add(a.SD, blk*a.Mp), 0)
					y[r] += float32(half.F16ToF32(le.Uint16(group[mOff+32*b+2*r:])) * sx)
				}
			}
		}
	}
}

// goK45: Q4_K and Q5_K.
func goK45(l Layout, a *Args, w unsafe.Pointer, y []float32) {
	scales := 2048
	if l == Q5_K {
		scales = 2560
	}
	for g := range a.Groups {
		group := unsafe.Slice((*byte)(unsafe.Add(w, g*l.GroupBytes())), l.GroupBytes())
		var sub [16]float32
		var mins [16]int32
		for p := range 4 {
			var v [2][512]byte
			nibbles(v[0][:], v[1][:], group[512*p:], 8)
			for h := range 2 {
				j := 2*p + h
				if l == Q5_K {
					addFifth(&v[h], group[2048+64*j:])
				}
				var s [16]int32
				sum(&s, v[h][:], unsafe.Add(a.X, 256*g+32*j), 8)
				// The sums of 32 activations are [block][M][8] int16: 16 bytes per row, Mp/4 rows per block.
				sx := int32(at[int16](unsafe.Add(a.B, 4*g*a.Mp), j))
				for r := range sub {
					sub[r] += float32(float32(group[scales+16*j+r]) * float32(s[r]))
					mins[r] += int32(group[scales+128+32*p+2*r+h]) * sx
				}
			}
		}
		dx := at[float32](unsafe.Add(a.D, g*a.Mp), 0)
		for r := range y {
			d := half.F16ToF32(le.Uint16(group[scales+256+2*r:])) * dx
			dmin := half.F16ToF32(le.Uint16(group[scales+288+2*r:])) * dx
			y[r] += float32(sub[r] * d)
			y[r] -= float32(float32(mins[r]) * dmin)
		}
	}
}

// goK6: Q6_K.
func goK6(l Layout, a *Args, w unsafe.Pointer, y []float32) {
	for g := range a.Groups {
		group := unsafe.Slice((*byte)(unsafe.Add(w, g*l.GroupBytes())), l.GroupBytes())
		var sub [16]float32
		for j := range 16 {
			var v [256]byte
			for i := range v {
				q, h := group[192*j+i/128*64+i%64], group[192*j+128+i%64]
				v[i] = q>>(i/64%2*4)&15 | h>>(i/64*2)&3<<4
			}
			var s [16]int32
			n := at[int32](unsafe.Add(a.B, (16*g+j)*a.Mp), 0)
			for r := range s {
				s[r] = n
			}
			sum(&s, v[:], unsafe.Add(a.X, 256*g+16*j), 4)
			for r := range sub {
				sub[r] += float32(float32(int8(group[3072+16*j+r])) * float32(s[r]))
			}
		}
		dx := at[float32](unsafe.Add(a.D, g*a.Mp), 0)
		for r := range y {
			d := half.F16ToF32(le.Uint16(group[3328+2*r:])) * dx
			y[r] += float32(sub[r] * d)
		}
	}
}

// goK2: Q2_K.
func goK2(l Layout, a *Args, w unsafe.Pointer, y []float32) {
	for g := range a.Groups {
		group := unsafe.Slice((*byte)(unsafe.Add(w, g*l.GroupBytes())), l.GroupBytes())
		var sub [16]float32
		var mins [16]int32
		for j := range 16 {
			var v [256]byte
			for i := range v {
				v[i] = group[64*j+i%64] >> (i / 64 * 2) & 3
			}
			var s [16]int32
			sum(&s, v[:], unsafe.Add(a.X, 256*g+16*j), 4)
			n := at[int32](unsafe.Add(a.B, (16*g+j)*a.Mp), 0)
			for r := range sub {
				b := group[1024+16*j+r]
				sub[r] += float32(float32(b&15) * float32(s[r]))
				mins[r] += int32(b>>4) * n
			}
		}
		dx := at[float32](unsafe.Add(a.D, g*a.Mp), 0)
		for r := range y {
			d := half.F16ToF32(le.Uint16(group[1280+2*r:])) * dx
			dmin := float32(half.F16ToF32(le.Uint16(group[1312+2*r:]))*dx) * (1.0 / 32)
			y[r] += float32(sub[r] * d)
			y[r] += float32(float32(mins[r]) * dmin)
		}
	}
}

// miniScale is scale s of NVFP4.
func miniScale(s byte) float32 { return math.Float32frombits(uint32(s)<<20 | 0x30000000) }

// goCode4: Code4, NVFP4.
func goCode4(l Layout, a *Args, w unsafe.Pointer, y []float32) {
	values := (*[16]int8)(a.Values)
	for g := range a.Groups {
		group := unsafe.Slice((*byte)(unsafe.Add(w, g*l.GroupBytes())), l.GroupBytes())
		var sub [16]float32
		for j := range 16 {
			var s [16]int32
			for r := range s {
				for e := range 16 {
					code := group[128*j+e/8*64+4*r+e%4] >> (e / 4 % 2 * 4) & 15
					s[r] += int32(values[code]) * int32(at[int8](a.X, 256*g+16*j+e))
				}
			}
			for r := range sub {
				sc := float32(int8(group[2048+16*j+r]))
				if l == NVFP4 {
					sc = miniScale(group[2048+16*j+r])
				}
				sub[r] += float32(sc * float32(s[r]))
			}
		}
		dx := at[float32](unsafe.Add(a.D, g*a.Mp), 0)
		for r := range y {
			d := at[float32](unsafe.Pointer(&group[2304]), r) * dx
			y[r] += float32(sub[r] * d)
		}
	}
}

// GoFold adds slices and stores outputs: for each of Panels panels, W holds Groups slices (1, 2, 4 or 8) of WStep/4 float32, one
// after the other. Y[i] = the sum over the slices as the tree ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)), plus B[i] if B is not nil; and
// if Cont is not 0 the old Y[i] plus that.
func GoFold(a *Args) {
	width := a.WStep / 4
	for i := range a.Panels * width {
		w := unsafe.Add(a.W, i/width*a.Groups*a.WStep)
		var v [8]float32
		for s := range a.Groups {
			v[s] = at[float32](unsafe.Add(w, s*a.WStep), i%width)
		}
		for n := a.Groups; n > 1; n /= 2 {
			for s := range n / 2 {
				v[s] = v[2*s] + v[2*s+1]
			}
		}
		if a.B != nil {
			v[0] += at[float32](a.B, i)
		}
		y := (*float32)(unsafe.Add(a.Y, 4*i))
		if a.Cont != 0 {
			v[0] += *y
		}
		*y = v[0]
	}
}
