// Package kernel is one table: operation × weight type × ISA tier → the function that does it, with its plain Go definition.
//
// It knows packages asm/* and quant, and nothing of models, graphs, plans or files. All functions are pure arithmetic over
// memory that the caller owns; none allocates.
package kernel

import (
	"math/bits"
	"unsafe"

	"ck/internal/quant"
)

// ActKind is the form in which a matmul reads its activations.
type ActKind uint8

const (
	ActF32  ActKind = iota // float32 as they are
	ActBF16                // rounded to bfloat16 (nearest even)
	ActQ8                  // int8 with a float32 scale per 32 elements
	ActQ8K                 // int8 with a float32 scale per 256 elements
)

func (k ActKind) String() string { return [...]string{"f32", "bf16", "q8", "q8k"}[k] }

// Kinds of arithmetic: what the operands of a multiplication are.
const (
	Int8 = "int8"
	BF16 = "bf16"
	F32  = "f32"
)

// Arithmetic is the kind of arithmetic that matmuls of such activations do.
func (k ActKind) Arithmetic() string { return [...]string{F32, BF16, Int8, Int8}[k] }

// Sums says which sums of elements an Act holds beside its scales: matmuls whose weights have an offset or a minimum need one of them. What
// nobody reads is not made: writing it took more than half of the time of quantizing.
type Sums uint8

const (
	SumD   Sums = 1 << iota // SD: Q4_1, Q5_1
	Sum8                    // N8: Q4_0
	Sum16                   // N16: Q5_0
	Sum128                  // N128: Q8_0
	Sum32                   // N32: Q6_K, Q2_K, codes
	SumP                    // P: Q4_K, Q5_K

	AllSums = 1<<iota - 1
)

// Act is a batch of M activation rows of K elements in the form of its kind. The arrays are views into memory of the caller
// (ActBytes, MakeAct); per-block arrays are [block][M], so that a micro-kernel of several rows reads neighbours.
//
// Quantization of a block of B elements (32 or 256): amax = max |x|; d = amax/127, q = round-to-nearest-even(x * (127/amax));
// a block with amax < 1e-30 has d = 0 and q = 0. Elements beyond K, up to Kp, are zero.
type Act struct {
	Kind     ActKind
	Sums     Sums
	M, K, Kp int // Kp: K rounded up (ActBF16: to 32, ActQ8: to 64, ActQ8K: to 256; ActF32: K itself)

	F  []float32 // ActF32: the rows, FStride floats apart (a view of the producer's buffer)
	FS int
	H  []uint16 // ActBF16: [M][Kp]
	Q  []int8   // ActQ8, ActQ8K: [M][Kp]

	// Per-block data; nb = Kp/32 or Kp/256 blocks. Sums that are not asked for are nil.
	D    []float32 // scale d: [nb][M]
	SD   []float32 // ActQ8: d * float32(sum of q): [nb][M]
	N8   []int32   // ActQ8: -8 * sum of q: [nb][M] (offset of unsigned 4-bit weights)
	N16  []int32   // ActQ8: -16 * sum (5-bit)
	N128 []int32   // ActQ8: -128 * sum (8-bit)
	N32  []int32   // ActQ8K: -32 * sum of 16 elements: [nb][16][M] (6-bit weights; Q2_K, codes)
	P    []int16   // ActQ8K: sums of 32 elements: [nb][M][8] (mins of Q4_K, Q5_K)
}

// blockElems is the number of elements that share a scale.
func (k ActKind) blockElems() int {
	if k == ActQ8K {
		return 256
	}
	return 32
}

// padded is Kp for K elements.
func (k ActKind) padded(n int) int {
	switch k {
	case ActBF16:
		return (n + 31) &^ 31
	case ActQ8:
		return (n + 63) &^ 63
	case ActQ8K:
		return (n + 255) &^ 255
	}
	return n
}

// ActBytes is the memory that MakeAct needs for m rows of k elements, in bytes (0 for ActF32, which is a view).
func ActBytes(kind ActKind, sums Sums, m, k int) int {
	kp := kind.padded(k)
	nb := kp / kind.blockElems()
	n := align64(m*kp) + align64(4*nb*m)
	switch kind {
	case ActBF16:
		return align64(2 * m * kp)
	case ActQ8:
		return n + bits.OnesCount8(uint8(sums&(SumD|Sum8|Sum16|Sum128)))*align64(4*nb*m)
	case ActQ8K:
		if sums&Sum32 != 0 {
			n += align64(64 * nb * m)
		}
		if sums&SumP != 0 {
			n += align64(16 * nb * m)
		}
		return n
	}
	return 0
}

// ActRows is a good number of rows for MakeAct where m are needed: per-block data of many rows lie an odd number of cache lines
// apart. At 2048 bytes (512 rows) all blocks of a row share two sets of the first-level cache and, in huge pages, 32 of the
// second-level one: a matmul of K = 8192 took 4 and 15 % longer (two runs). It never falls with m.
func ActRows(m int) int {
	if m < 64 {
		return m
	}
	return (m+15)/16*16 | 16
}

// MakeAct lays an Act of m rows of k elements out in mem (64-byte aligned, at least ActBytes long). For ActF32 set F and FS.
func MakeAct(kind ActKind, sums Sums, mem []byte, m, k int) Act {
	a := Act{Kind: kind, Sums: sums, M: m, K: k, Kp: kind.padded(k)}
	nb := a.Kp / kind.blockElems()
	ints := func(sum Sums, n int) (x []int32) {
		if sums&sum != 0 {
			x, mem = cut[int32](mem, n*m)
		}
		return x
	}
	switch kind {
	case ActBF16:
		a.H, _ = cut[uint16](mem, m*a.Kp)
	case ActQ8:
		a.Q, mem = cut[int8](mem, m*a.Kp)
		a.D, mem = cut[float32](mem, nb*m)
		if sums&SumD != 0 {
			a.SD, mem = cut[float32](mem, nb*m)
		}
		a.N8, a.N16, a.N128 = ints(Sum8, nb), ints(Sum16, nb), ints(Sum128, nb)
	case ActQ8K:
		a.Q, mem = cut[int8](mem, m*a.Kp)
		a.D, mem = cut[float32](mem, nb*m)
		a.N32 = ints(Sum32, nb*16)
		if sums&SumP != 0 {
			a.P, _ = cut[int16](mem, nb*m*8)
		}
	}
	return a
}

// CopyRows makes rows [r0, r1) copies of those of an Act of the same kind and K, which has at least a's sums: row r of row from[r]/div.
func (a *Act) CopyRows(r0, r1 int, x *Act, from []int32, div int) {
	for r := r0; r < r1; r++ {
		i := int(from[r]) / div
		if a.Kind == ActBF16 {
			copy(a.H[r*a.Kp:(r+1)*a.Kp], x.H[i*x.Kp:])
		} else {
			copy(a.Q[r*a.Kp:(r+1)*a.Kp], x.Q[i*x.Kp:])
		}
	}
	if a.Kind == ActBF16 {
		return
	}
	nb := a.Kp / a.Kind.blockElems()
	copyColumns(a.D, x.D, nb, 1, a.M, x.M, r0, r1, from, div)
	copyColumns(a.SD, x.SD, nb, 1, a.M, x.M, r0, r1, from, div)
	copyColumns(a.N8, x.N8, nb, 1, a.M, x.M, r0, r1, from, div)
	copyColumns(a.N16, x.N16, nb, 1, a.M, x.M, r0, r1, from, div)
	copyColumns(a.N128, x.N128, nb, 1, a.M, x.M, r0, r1, from, div)
	copyColumns(a.N32, x.N32, 16*nb, 1, a.M, x.M, r0, r1, from, div)
	copyColumns(a.P, x.P, nb, 8, a.M, x.M, r0, r1, from, div)
}

// copyColumns copies columns of arrays [blocks][rows][each]; dst is nil where nobody asks for it.
func copyColumns[T any](dst, src []T, blocks, each, m, n, r0, r1 int, from []int32, div int) {
	if dst == nil {
		return
	}
	for b := range blocks {
		to, of := dst[b*m*each:], src[b*n*each:]
		for r := r0; r < r1; r++ {
			i := int(from[r]) / div * each
			copy(to[r*each:(r+1)*each], of[i:i+each])
		}
	}
}

func align64(n int) int { return (n + 63) &^ 63 }

// cut takes n elements of T from the front of mem and returns the rest, aligned to 64 bytes.
func cut[T any](mem []byte, n int) ([]T, []byte) {
	var e T
	size := n * int(unsafe.Sizeof(e))
	if n == 0 {
		return nil, mem
	}
	_ = mem[size-1]
	rest := mem[min(align64(size), len(mem)):]
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[0])), n), rest
}

// ActFor is the kind of activations that a matmul with weights of type t uses; f32 is --act f32. It depends on the type alone,
// never on the tier: 8 bits for the block types that have integer kernels, BF16 for BF16, float32 for the rest.
func ActFor(t quant.Type, f32 bool) ActKind {
	if f32 {
		return ActF32
	}
	if l, ok := layouts[t]; ok {
		return l.act
	}
	return ActF32
}
