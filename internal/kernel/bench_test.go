package kernel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"ck/asm/roof"
	"ck/internal/isa"
	"ck/internal/quant"
)

// threadCPU is the CPU time of the calling thread in seconds: it leaves out the slices in which other programs had the core, not
// what they take of the memory's bandwidth.
func threadCPU() float64 {
	var ts syscall.Timespec
	const clockThreadCPU = 3
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPU, uintptr(unsafe.Pointer(&ts)), 0)
	return float64(ts.Sec) + float64(ts.Nsec)*1e-9
}

// interleaved times f and its roof in turn, so that noise falls on both alike; it returns the medians of their rates per second.
func interleaved(b *testing.B, amount float64, f func(), roofAmount float64, r func()) (rate, roofRate float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var t, tr []float64
	for b.Loop() {
		t0 := threadCPU()
		f()
		t1 := threadCPU()
		r()
		t, tr = append(t, t1-t0), append(tr, threadCPU()-t1)
	}
	slices.Sort(t)
	slices.Sort(tr)
	return amount / t[len(t)/2], roofAmount / tr[len(tr)/2]
}

// streamBytes is a buffer that is read in slices, so that no memory is read twice within many last caches.
const streamBytes, sliceBytes = 512 << 20, 16 << 20

// BenchmarkMatmul measures one thread: a few rows with weights from memory in GB/s beside a read loop, many rows in GOP/s beside
// the peak of the instruction that the tier has for the type. Slices as in the attention output and FFN down, with the residual.
func BenchmarkMatmul(b *testing.B) {
	mem, err := syscall.Mmap(-1, 0, streamBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	defer syscall.Munmap(mem)
	syscall.Madvise(mem, 14) // MADV_HUGEPAGE, if it can be had
	for _, qt := range panelTypes {
		const k = 4096
		rng := rand.New(rand.NewPCG(1, 1))
		filled := false
		for _, tab := range tables(b) {
			f, s := tab.Format(qt, false), NewScratch()
			size := f.PanelBytes(k)
			panels := sliceBytes / size
			n := panels * f.PanelRows
			for _, c := range [][2]int{{1, 1}, {1, 8}, {2, 1}, {4, 1}, {6, 1}, {8, 1}, {12, 1}, {24, 1}, {512, 1}, {512, 8}} {
				m, slices := c[0], c[1]
				b.Run(fmt.Sprintf("type=%v/M=%d/slices=%d/tier=%v", qt, m, slices, tab.Tier), func(b *testing.B) {
					if tab.Tier != isa.Go && plainGo(f) {
						b.Skip("the tier has no kernels of this type")
					}
					if !filled {
						fillPanels(b, mem, f, qt, k, rng)
						filled = true
					}
					x := plainAct(b, f.Act, randomRows(rng, m, k))
					if m == 512 {
						benchPrefill(b, tab.Tier, f, s, mem, x, slices)
						return
					}
					y := make([]float32, m*n)
					at := 0
					next := func() []byte {
						at = (at + sliceBytes) % (streamBytes - sliceBytes)
						return mem[at/size*size:][:panels*size]
					}
					read := readLoop()
					rate, top := interleaved(b, float64(panels*size), func() {
						f.Matmul(s, &Matmul{W: next(), N: n, K: k, Slices: slices, Add: slices > 1, X: x, M1: m, Y: y, YStride: n})
					}, sliceBytes, func() {
						for w := next(); len(w) >= 4096; w = w[min(len(w), 4<<20):] {
							read.Run(w[:min(len(w), 4<<20)])
						}
					})
					b.ReportMetric(rate/1e9, "GB/s")
					b.ReportMetric(top/1e9, "roof-GB/s")
					b.ReportMetric(100*rate/top, "%roof")
				})
			}
		}
	}
}

// readLoop is the last read loop whose instructions this CPU has.
func readLoop() *roof.Read {
	has := isa.Detect().Names()
	best := &roof.Reads[0]
	for i := range roof.Reads {
		if l := &roof.Reads[i]; !slices.ContainsFunc(l.Needs, func(n string) bool { return !slices.Contains(has, n) }) {
			best = l
		}
	}
	return best
}

// fillPanels fills mem with copies of a few panels of random weights.
func fillPanels(b *testing.B, mem []byte, f *Format, qt quant.Type, k int, rng *rand.Rand) {
	w := randomWeights(b, rng, qt, 2*f.PanelRows, k)
	p := w.pack(b, f)
	for at := 0; at < len(mem); at += len(p) {
		copy(mem[at:], p)
	}
}

// peakNames are the instructions of the inner loops, by tier: of integer, float32 and bfloat16 types.
var peakNames = map[isa.Tier][3]string{
	isa.Go:      {"go float32", "go float32", "go float32"},
	isa.AVX2:    {"vpmaddubsw+vpmaddwd+vpaddd ymm", "vfmadd231ps ymm", "vfmadd231ps ymm"},
	isa.AVXVNNI: {"vpdpbusd ymm", "vfmadd231ps ymm", "vfmadd231ps ymm"},
	isa.AVX512:  {"vpmaddubsw+vpmaddwd+vpaddd ymm", "vfmadd231ps zmm", "vfmadd231ps zmm"},
	isa.VNNI:    {"vpdpbusd zmm", "vfmadd231ps zmm", "vdpbf16ps zmm"},
}

func benchPrefill(b *testing.B, tier isa.Tier, f *Format, s *Scratch, mem []byte, x *Act, slices int) {
	kind := 0
	switch f.Act {
	case ActF32:
		kind = 1
	case ActBF16:
		kind = 2
	}
	n := 256
	if plainGo(f) {
		n = 32
	}
	y := make([]float32, x.M*n)
	for i := range roof.Peaks {
		p := &roof.Peaks[i]
		if p.Name != peakNames[tier][kind] {
			continue
		}
		const rounds = 100000
		ops := 2 * float64(x.M) * float64(n) * float64(x.K)
		rate, top := interleaved(b, ops, func() {
			f.Matmul(s, &Matmul{W: mem, N: n, K: x.K, Slices: slices, Add: slices > 1, X: x, M1: x.M, Y: y, YStride: n})
		}, float64(p.Ops)*rounds, func() { p.Run(rounds) })
		b.ReportMetric(rate/1e9, "GOP/s")
		b.ReportMetric(top/1e9, "peak-GOP/s")
		b.ReportMetric(100*rate/top, "%peak")
		return
	}
	b.Fatal("no peak loop")
}
