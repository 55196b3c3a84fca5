package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"ck/internal/quant"
	"golang.org/x/sys/unix"
)

// cpuSeconds is the CPU time of the calling thread, which leaves out time slices that other programs took.
func cpuSeconds() float64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return float64(t.Nano()) / 1e9
}

// onCPU runs f b.N times and reports amount, in units of 1e9, per second of CPU time: in the mean, and in the best of the runs, which
// tells what the code can do on a machine that other programs share.
func onCPU(b *testing.B, amount float64, unit string, f func(i int)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := cpuSeconds()
	at, best := start, math.Inf(1)
	for i := range b.N {
		f(i)
		t := cpuSeconds()
		best, at = min(best, t-at), t
	}
	b.ReportMetric(amount*float64(b.N)/(at-start)/1e9, unit)
	b.ReportMetric(amount/best/1e9, "best-"+unit)
}

// BenchmarkAttend decodes one row at depth 4096, head size 128, from caches of 256 MiB in all that it walks through, so that keys
// and values come from memory; and takes 512 rows after 0 and 3584 others (prefill), where GOP/s count 4*D per visible (row, key) pair.
func BenchmarkAttend(b *testing.B) {
	const d, n = 128, 4096
	r := rand.New(rand.NewPCG(1, 1))
	for _, tier := range vectorTiers()[1:] {
		for _, typ := range []quant.Type{quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0} {
			f := kvFormat(b, tier, typ, d, d)
			one := newCase(b, f, r, 64, 1, 1, false)
			bytes := (f.KBytes() + f.VBytes()) * n / 64
			heads := 256 << 20 / bytes
			var cs []*attnCase
			for range heads {
				c := &attnCase{f: f}
				mem := make([]byte, bytes)
				for o := 0; o < len(mem); o += f.KBytes() + f.VBytes() {
					copy(mem[o:], one.kb[0])
					copy(mem[o+f.KBytes():], one.vb[0])
					c.K = append(c.K, unsafe.Pointer(&mem[o]))
					c.V = append(c.V, unsafe.Pointer(&mem[o+f.KBytes()]))
				}
				cs = append(cs, c)
			}
			for _, g := range []int{1, 2, 3, 4, 8} {
				b.Run(fmt.Sprintf("decode/isa=%v/type=%v/G=%d", tier, typ, g), func(b *testing.B) {
					var sc AttnScratch
					q, o := randRow(r, g*d), make([]float32, g*d)
					onCPU(b, float64(bytes), "GB/s", func(i int) {
						a := cs[i%heads].Attend
						a.Rows, a.G, a.Q, a.O, a.Scale = 1, g, q, o, 0.088
						a.Lo, a.Hi = []int32{0}, []int32{n}
						f.Attend(&sc, &a)
					})
				})
			}
			for _, depth := range []int{0, n - 512} {
				for _, g := range []int{1, 4, 8} {
					b.Run(fmt.Sprintf("prefill/depth=%d/isa=%v/type=%v/G=%d", depth, tier, typ, g), func(b *testing.B) {
						var sc AttnScratch
						a := cs[0].Attend
						a.Rows, a.G, a.QStride, a.OStride, a.Scale = 512, g, g*d, g*d, 0.088
						a.Q, a.O = randRow(r, a.Rows*g*d), make([]float32, a.Rows*g*d)
						a.Lo, a.Hi = make([]int32, a.Rows), make([]int32, a.Rows)
						ops := 0.0
						for i := range a.Hi {
							a.Hi[i] = int32(depth + i + 1)
							ops += float64(4 * d * g * (depth + i + 1))
						}
						onCPU(b, ops, "GOP/s", func(int) { f.Attend(&sc, &a) })
					})
				}
			}
		}
	}
}

// shortOnCPU is onCPU for f of a microsecond: reading the clock costs as much, so a run is 64 calls.
func shortOnCPU(b *testing.B, amount float64, unit string, f func(i int)) {
	onCPU(b, 64*amount, unit, func(int) {
		for i := range 64 {
			f(i)
		}
	})
}

// BenchmarkKVStore counts the bytes of float32 keys and values.
func BenchmarkKVStore(b *testing.B) {
	const d = 128
	r := rand.New(rand.NewPCG(3, 3))
	k, v := randRow(r, d), randRow(r, d)
	for _, tier := range vectorTiers() {
		for _, typ := range kvTypes {
			f := kvFormat(b, tier, typ, d, d)
			kb, vb := make([]byte, f.KBytes()), make([]byte, f.VBytes())
			b.Run(fmt.Sprintf("rows=1/isa=%v/type=%v", tier, typ), func(b *testing.B) {
				shortOnCPU(b, 8*d, "GB/s", func(i int) { f.Store(kb, vb, i%BlockKeys, k, v) })
			})
			b.Run(fmt.Sprintf("rows=64/isa=%v/type=%v", tier, typ), func(b *testing.B) {
				var sc AttnScratch
				k, v := randRow(r, 64*d), randRow(r, 64*d)
				onCPU(b, 64*8*d, "GB/s", func(int) { f.StoreRows(&sc, kb, vb, 0, 64, k, d, v, d) })
			})
		}
	}
}

func BenchmarkElem(b *testing.B) {
	const n = 4096
	r := rand.New(rand.NewPCG(2, 2))
	x, w, dst := randRow(r, n), randRow(r, n), make([]float32, n)
	for _, tier := range vectorTiers() {
		tab := elemOf(tier)
		for _, kind := range []ActKind{ActBF16, ActQ8, ActQ8K} {
			a := MakeAct(kind, AllSums, make([]byte, ActBytes(kind, AllSums, 1, n)), 1, n)
			b.Run(fmt.Sprintf("Quantize/isa=%v/act=%v/K=%d", tier, kind, n), func(b *testing.B) {
				shortOnCPU(b, n, "Gelem/s", func(int) { tab.Quantize(&a, 0, 0, n, x) })
			})
		}
		b.Run(fmt.Sprintf("RMSNorm/isa=%v/K=%d", tier, n), func(b *testing.B) {
			shortOnCPU(b, n, "Gelem/s", func(int) { tab.RMSNorm(dst, x, w, 1e-5) })
		})
		b.Run(fmt.Sprintf("SiLUMul/isa=%v/K=%d", tier, n), func(b *testing.B) {
			shortOnCPU(b, n, "Gelem/s", func(int) { tab.SiLUMul(dst, x, w) })
		})
	}
}
