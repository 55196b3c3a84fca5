package kernel

import "ck/asm/dot"

// near and far are prefetch distances in bytes. A K-quant group is a long stretch of arithmetic, more than the core's reorder
// window holds, so hardware prefetch alone reaches half of the bandwidth. With two threads on one memory (Zen 5, roof 42 to 45 GB/s)
// 16 KiB instead of 8 read BF16 with 41.9 instead of 37.8 GB/s, Q5_K with 38.2 instead of 33.7, the others 0 to 4 % faster or slower;
// with one thread (roof 38) BF16 was 3 % faster, Q4_K and Q6_K 3 % slower. Two streams from far places, which one thread read 1 to 4 %
// faster (Q8_0 6 % slower), lost 4 to 10 % with two threads, and start cold at every call.
const near, far = 8192, 16384

// ahead is the prefetch distance of a layout in bytes, for kernels that do not stream (dot.Kernels).
func ahead(l dot.Layout) int {
	switch l {
	case dot.F32, dot.F16, dot.BF16, dot.Q5_0, dot.Q5_1, dot.Q5_K:
		return far
	}
	return near
}
