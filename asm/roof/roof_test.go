package roof

import (
	"os"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// runnable reports whether /proc/cpuinfo has all of the features.
func runnable(t testing.TB, needs Needs) bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return len(needs) == 0
	}
	for _, n := range needs {
		if !strings.Contains(string(b), " "+n+" ") {
			return false
		}
	}
	return true
}

// Every loop ends, and reads stay inside their memory.
func TestLoops(t *testing.T) {
	for _, r := range Reads {
		if !runnable(t, r.Needs) {
			continue
		}
		for _, n := range []int{0, 255, 256, 1024, 5000, 4096 * 16} {
			b := testkit.Guarded[byte](t, n)
			if got := r.Run(b); got > n || got < n-256*r.Streams {
				t.Errorf("%s read %d of %d bytes", r.Name, got, n)
			}
		}
	}
	for _, p := range Peaks {
		if runnable(t, p.Needs) {
			p.Run(1)
			p.Run(1000)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	mem := testkit.Guarded[byte](b, 1<<28) // many times the last cache
	for i := range mem {
		mem[i] = byte(i >> 12)
	}
	at := 0
	for _, r := range Reads {
		b.Run(r.Name, func(b *testing.B) {
			if !runnable(b, r.Needs) {
				b.Skip("the CPU lacks ", r.Needs)
			}
			const n = 4 << 20
			b.SetBytes(n)
			for b.Loop() {
				r.Run(mem[at:][:n])
				at = (at + n) % len(mem)
			}
		})
	}
}

func BenchmarkPeak(b *testing.B) {
	for _, p := range Peaks {
		b.Run(strings.ReplaceAll(p.Name, " ", "_"), func(b *testing.B) {
			if !runnable(b, p.Needs) {
				b.Skip("the CPU lacks ", p.Needs)
			}
			for b.Loop() {
				p.Run(1000)
			}
			b.ReportMetric(float64(p.Ops)*1000*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GOP/s")
		})
	}
}
