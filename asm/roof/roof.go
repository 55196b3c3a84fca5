// Package roof measures nothing; it runs what a measurement needs: loops that read memory as fast as a core can, and loops of
// independent arithmetic instructions. Kernels are judged by their share of these, taken in the same run.
package roof

import "unsafe"

// Needs names the instructions that a loop uses, as the CPU features of /proc/cpuinfo.
type Needs []string

// Read is a loop that reads memory.
type Read struct {
	Name    string // "512x2": 512-bit loads, two streams
	Streams int
	Needs   Needs
	run     func(*args)
}

// args are the operands of the assembly: eight bytes each.
type args struct {
	P      unsafe.Pointer
	Stride int
	N      int
}

// Run reads b, its streams side by side, and returns the bytes that it read: all but a rest shorter than 256 bytes per stream.
// One call over 4 MiB lasts about 100 us, during which the goroutine cannot be stopped.
func (r *Read) Run(b []byte) int {
	n := len(b) / r.Streams &^ 255
	if n == 0 {
		return 0
	}
	r.run(&args{P: unsafe.Pointer(&b[0]), Stride: n, N: n})
	return n * r.Streams
}

// Peak is a loop of arithmetic.
type Peak struct {
	Name  string // of the instruction, "vpdpbusd zmm"
	Ops   int    // operations per round; a multiplication and an addition are two
	Needs Needs
	run   func(*args)
}

// Run runs n rounds, n > 0; one takes 6 to 12 cycles.
func (p *Peak) Run(n int) { p.run(&args{N: n}) }

// readGo and peakGo are the loops of machines without assembly.
var (
	readGo = Read{Name: "go", Streams: 1, run: func(a *args) {
		var s uint64
		for _, v := range unsafe.Slice((*[8]uint64)(a.P), a.N/64) {
			s |= v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7]
		}
		Sink = float64(s)
	}}
	peakGo = Peak{Name: "go float32", Ops: 16, run: func(a *args) {
		var s [8]float32
		x := float32(a.N)
		for range a.N {
			s[0], s[1], s[2], s[3] = s[0]*x+x, s[1]*x+x, s[2]*x+x, s[3]*x+x
			s[4], s[5], s[6], s[7] = s[4]*x+x, s[5]*x+x, s[6]*x+x, s[7]*x+x
		}
		Sink = float64(s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7])
	}}
)

// Sink keeps results alive.
var Sink float64
