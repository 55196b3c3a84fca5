package kernel

import "ck/asm/dot"

// near and far are prefetch distances in bytes. A K-quant group is a long stretch of arithmetic, more than the core's reorder
// window holds, so hardware prefetch alone reaches half of the bandwidth. With two threads on one memory (Zen 5, roof 42 to 45 GB/s)
// 16 KiB instead of 8 read BF16 with 41.9 instead of 37.8 GB/s, Q5_K with 38.2 instead of 33.7, the others 0 to 4 % faster or slower;
// with one thread (roof 38) BF16 was 3 % faster, Q4_K and Q6_K 3 % slower. Two streams from far places, which one thread read 1 to 4 %
// faster (Q8_0 6 % slower), lost 4 to 10 % with two threads, and start cold at every call.
const near, far = 8192, 16384

// prefetching is the distances of some layouts in bytes; the others have the usual ones. Kernels that stream (dot.Kernels) need none.
type prefetching map[dot.Layout]int

var usual = prefetching{dot.F32: far, dot.F16: far, dot.BF16: far, dot.Q5_0: far, dot.Q5_1: far, dot.Q5_K: far}

// nearest is for CPUs that have no more than AVX2, whose kernels stream but for BF16: 1280 bytes ahead (the kernel doubles the distance) one core of a Zen 3
// read 75 % of its read loop's rate, with streams 72; both cores 83 and 84.
var nearest = prefetching{dot.BF16: 640}

func (p prefetching) of(l dot.Layout) int {
	for _, p := range []prefetching{p, usual} {
		if d, ok := p[l]; ok {
			return d
		}
	}
	return near
}
