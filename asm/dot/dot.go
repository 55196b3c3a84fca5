// Package dot multiplies panels of weights with rows of activations: the inner loops of every matmul.
//
// A panel is 16 rows of a weight matrix (64 for F32, F16, BF16) interleaved so that one vector load feeds 16 outputs. It is a
// sequence of groups along K; the layouts below name the bytes of one group. Rows that do not exist and K beyond the matrix are
// zeros. "Vector v" is 64 bytes; in integer layouts its byte 4r+k belongs to row r of the panel, and its four k are neighbours
// along K.
//
//	F32   64 rows, group of 1 K,   256 bytes: float32 of row r at 4r
//	F16   64 rows, group of 1 K,   128 bytes: float16 of row r at 2r
//	BF16  64 rows, group of 2 K,   256 bytes: bfloat16 pair of row r at 4r. K is padded to a multiple of 32
//	Q8_0  16 rows, group of 64 K, 1088 bytes: vectors 0..15 (vector v: K 4v..4v+3) of int8+128; then d of K block 0, 1: 2 x 16 float16
//	Q4_0  16 rows, group of 64 K,  576 bytes: per block of 32 K (b = 0, 1) four vectors at 256b+64i: low nibble K 32b+4i.., high
//	      nibble K 32b+16+4i..; then d: 2 x 16 float16 at 512
//	Q4_1  16 rows, group of 64 K,  640 bytes: as Q4_0, then m: 2 x 16 float16 at 576
//	Q5_0  16 rows, group of 64 K,  704 bytes: nibbles as Q4_0 (512 bytes); high bits: per block a vector at 512+64b whose byte 4r+k
//	      has in bit i the fifth bit of nibble vector i (0..3: low nibbles of vector i, 4..7: high nibbles of vector i-4); d at 640
//	Q5_1  16 rows, group of 64 K,  768 bytes: as Q5_0, then m: 2 x 16 float16 at 704
//	Q4_K  16 rows, group of 256 K, 2368 bytes: vector 8p+i at 64(8p+i), low nibble sub-block 2p, high 2p+1, elements 4i..4i+3;
//	      2048 scales 8 x 16 bytes (scale of sub-block j of row r at 16j+r); 2176 mins 4 x 16 x 2 bytes (mins of sub-blocks 2t, 2t+1
//	      of row r at 32t+2r); 2304 d 16 float16; 2336 dmin 16 float16
//	Q5_K  16 rows, group of 256 K, 2880 bytes: nibbles as Q4_K (2048 bytes); 2048 high bits: vector j (sub-block j) whose byte 4r+k
//	      has in bit i the fifth bit of elements 4i+k; 2560 scales, 2688 mins, 2816 d, 2848 dmin as in Q4_K
//	Q6_K  16 rows, group of 256 K, 3392 bytes: for each j of 16 sub-blocks of 16 K at 192j: two vectors of low nibbles (groups of four
//	      K 4j | 4j+1<<4, then 4j+2 | 4j+3<<4), one of high bits (group 4j+g in bits 2g, 2g+1); 3072 int8 scale j of row r at 16j+r;
//	      3328 d 16 float16; padding
//	Q2_K  16 rows, group of 256 K, 1344 bytes: for each j of 16 sub-blocks of 16 K a vector at 64j: elements 16j+4i.. in bits 2i,
//	      2i+1 (i = 0..3); 1024 bytes of scale (low nibble) and minimum (high) j of row r at 1024+16j+r; 1280 d 16 float16; 1312 dmin
//	      16 float16
//	Code4 16 rows, group of 256 K, 2368 bytes, for types whose weights are one of 16 int8 values (Args.Values) times a scale: for each j
//	      of 16 sub-blocks of 16 K two vectors of indices at 128j+64i (i = 0, 1): low nibble elements 16j+8i.., high nibble 16j+8i+4..;
//	      2048 int8 scale j of row r at 2048+16j+r; 2304 d 16 float32
//	MXFP4 16 rows, group of 64 K,  576 bytes: as Q4_0, with indices of values (Args.Values, within -16..15) for nibbles, and bfloat16 d
//	NVFP4 16 rows, group of 256 K, 2368 bytes: as Code4, with values within -32..31, and scales of 5 bits of exponent and 3 of mantissa:
//	      byte s is (1 + (s mod 8)/8) * 2^(floor(s/8)-31)
//
// One order of arithmetic. For each output element there is one float32 accumulator chain over K, the same instructions in the
// same order in every kernel of the type, whatever the number of rows, panels or the tier; fma is the fused multiply-add:
//
//	F32, F16    acc = fma(w, x, acc) for each K (F16 widened exactly)
//	BF16        VDPBF16PS over pairs; without it acc = fma(w0, x0, acc), acc = fma(w1, x1, acc)
//	Q8_0 Q4_0 Q5_0 MXFP4   per 32 K: acc = fma(float(isum), d*dx, acc), isum = exact sum of (w - offset)*q, d*dx rounded once
//	Q4_1 Q5_1   per 32 K: acc = fma(float(isum), d*dx, acc); acc = fma(m, sx, acc), sx = dx*float(sum of q) as the Act holds it
//	Q4_K Q5_K   per 256 K: sub = 0; for sub-blocks j = 0..7: sub = fma(float(sc_j), float(isum_j), sub); acc = fma(sub, d*dx, acc);
//	            acc = fnma(float(sum over j of m_j*s_j), dmin*dx, acc)
//	Q6_K Code4 NVFP4  per 256 K: sub = 0; for j = 0..15: sub = fma(float(sc_j), float(isum_j), sub); acc = fma(sub, d*dx, acc)
//	Q2_K        as Q6_K, without an offset; then acc = fma(float(sum over j of m_j*n_j), dmin*dx/32, acc), n_j = Act.N32, -32 times the
//	            sum of q: exact, for these sums of multiples of 32 fit float32 in any order
//
// The kernels of tier "go" follow the same order without fusing, so they agree within rounding, not in bits.
package dot

import "unsafe"

// Args are the operands of one kernel call. Pointers and strides in bytes; all fields are eight bytes wide.
//
// A kernel computes, for activation rows 0..Rows-1 (a compile-time constant of the kernel) and panels 0..Panels-1,
// Y[row][panel] = chain over Groups groups of K. It starts at zero, or where Cont is not 0 at the values found in Y.
type Args struct {
	W       unsafe.Pointer // first group of the first panel
	WStep   int            // bytes from a panel to the next one of the same stream
	WFar    int            // Gemm: bytes from the first panel to the second
	X       unsafe.Pointer // activations: float32, bfloat16 or int8 of row 0, at the first K
	XStride int            // bytes from row to row
	D       unsafe.Pointer // Act.D at the first block, row 0; float32 scales
	SD      unsafe.Pointer // Act.SD (Q4_1, Q5_1)
	B       unsafe.Pointer // offsets: Act.N8, N16, N128 (per 32), Act.N32 (Q6_K, Q2_K, Code4, NVFP4: [16][M] per block), Act.P (Q4_K, Q5_K, [M][8]int16 per block)
	Mp      int            // bytes from block to block in D, SD and per-32 offsets: 4*Act.M
	Y       unsafe.Pointer // outputs: float32, row 0, panel 0
	YStride int            // bytes from row to row
	YFar    int            // Gemm: bytes from the first panel's outputs to the second's
	Groups  int            // groups of K
	Panels  int            // panels per stream
	Cont    int            // 0: start at zero; 1: continue the chains of Y
	Pf      int            // prefetch distance in bytes, of kernels that do not stream
	Acc     unsafe.Pointer // scratch of at least 3 KiB, 64-byte aligned
	Src     unsafe.Pointer // unpacking kernels: source group; Gemm with Folds: activations to prefetch, those of the next tile
	Dst     unsafe.Pointer // unpacking kernels: destination

	// Kernels with Sliced: this many consecutive "panels" are the slices along K of one panel. X, D, SD and B go on from
	// one to the next and return to their start after the last. 0 means 1.
	Slices int

	// Gemm with Folds, after the tree over its slices.
	Bias unsafe.Pointer // nil, or the float32 to add to the first panel's outputs; the second panel's lie YFar behind
	Add  int            // not 0: then Y = Y + result

	// Streaming kernels (Kernels.Streams): memory up to End will be read next, in the order of addresses, then NextLen bytes at Next.
	// While one block of 64 or 128 KiB is read they fetch what comes behind it.
	End, Next unsafe.Pointer
	NextLen   int

	Values unsafe.Pointer // Code4, MXFP4, NVFP4: what the indices stand for, 16 int8; kernels of unpacked panels and Unpack read it too
}
