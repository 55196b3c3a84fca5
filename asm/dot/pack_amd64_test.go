//go:build !noasm

package dot

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"ck/asm/roof"
	"ck/internal/isa"
	"ck/internal/testkit"
)

// packers are those that this machine can run.
func packers() map[string]Packer {
	m := map[string]Packer{}
	for name, p := range map[string]struct {
		with Packer
		tier isa.Tier
	}{"avx2": {PackAVX2, isa.AVX2}, "avx512": {PackAVX512, isa.AVX512}} {
		if isa.Check(p.tier, isa.Detect()) == nil {
			m[name] = p.with
		}
	}
	return m
}

// Assembly packs the same bytes as Go, and touches nothing outside of rows and panel.
func TestPackAssembly(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for name, with := range packers() {
		for l := range Layouts {
			for _, k := range []int{1, 3, 4, 7, 8, 16, 31, 32, 33, 40, 64, 96, 160, 255, 256, 257, 264, 512, 768, 1056} {
				if k%geometries[l].blockK != 0 {
					continue
				}
				for _, rows := range []int{1, l.Rows() - 1, l.Rows()} {
					for _, gap := range []int{0, 6} { // bytes between rows
						t.Run(fmt.Sprintf("%s/%v/k=%d/rows=%d/gap=%d", name, l, k, rows, gap), func(t *testing.T) {
							testPackAssembly(t, rng, with, l, k, rows, gap)
						})
					}
				}
			}
		}
	}
}

func testPackAssembly(t *testing.T, rng *rand.Rand, with Packer, l Layout, k, rows, gap int) {
	size := l.RowBytes(k)
	stride := size + gap
	src := testkit.Guarded[byte](t, rows*stride-gap)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	want := make([]byte, l.PanelBytes(k))
	for _, missing := range []int{-1, rows / 2} {
		for _, upward := range []bool{true, false} { // rows that descend are at equal distances too
			row := func(r int) []byte {
				if r == missing {
					return nil
				}
				if !upward {
					r = rows - 1 - r
				}
				return src[r*stride:]
			}
			got := testkit.Guarded[byte](t, l.PanelBytes(k))
			for i := range got {
				got[i], want[i] = 0xaa, 0x55
			}
			l.Pack(PackGo, want, k, rows, row)
			l.Pack(with, got, k, rows, row)
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("missing row %d, upward %v: byte %d is %#x, want %#x", missing, upward, i, got[i], want[i])
				}
			}
		}
	}
}

// Rows at unequal distances are packed by Go.
func TestPackScattered(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for name, with := range packers() {
		for l := range Layouts {
			const k = 512
			rows := make([][]byte, l.Rows())
			for _, r := range rng.Perm(len(rows)) {
				rows[r] = make([]byte, l.RowBytes(k))
				for i := range rows[r] {
					rows[r][i] = byte(rng.Uint32())
				}
			}
			got, want := make([]byte, l.PanelBytes(k)), make([]byte, l.PanelBytes(k))
			row := func(r int) []byte { return rows[r] }
			l.Pack(PackGo, want, k, len(rows), row)
			if l.Pack(with, got, k, len(rows), row); string(got) != string(want) {
				t.Errorf("%s, %v: panels differ", name, l)
			}
		}
	}
}

// The generator's table of offsets.
func TestPackArgsOffsets(t *testing.T) {
	for i, n := range []string{"Src", "Stride", "Dst", "Groups", "Pf"} {
		if f := reflect.TypeFor[packArgs]().Field(i); f.Name != n || f.Offset != uintptr(8*i) {
			t.Errorf("field %d is %s at %d, the generator has %s at %d", i, f.Name, f.Offset, n, 8*i)
		}
	}
}

func TestPackAllocatesNothing(t *testing.T) {
	for name, with := range packers() {
		src, dst := make([]byte, 64*Q8_0.RowBytes(256)), make([]byte, Q8_0.PanelBytes(256))
		row := func(r int) []byte { return src[r*Q8_0.RowBytes(256):] }
		if n := testing.AllocsPerRun(10, func() { Q8_0.Pack(with, dst, 256, 16, row) }); n > 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
}

// BenchmarkPack reports rates of source bytes, panels of K 2048, one over the other: "cache" packs the same rows again and again,
// "memory" goes through 256 MiB, where "roof" is a read loop through the same memory, in turn. Medians of wall time of 4 MiB each.
func BenchmarkPack(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const k, slice = 2048, 4 << 20
	mem := make([]byte, 256<<20)
	for i := range mem {
		mem[i] = byte(i * 0x9e3779b1 >> 13)
	}
	loop := roof.Reads[1]
	all := packers()
	all["go"] = PackGo
	for l := range Layouts {
		size := l.RowBytes(k)
		src := l.Rows() * size
		dst := make([]byte, l.PanelBytes(k))
		for _, name := range []string{"go", "avx2", "avx512"} {
			with, ok := all[name]
			if !ok {
				continue
			}
			pack := func(from []byte) float64 {
				t, n := time.Now(), 0
				for ; len(from) >= src; from = from[src:] {
					l.Pack(with, dst, k, l.Rows(), func(r int) []byte { return from[r*size:] })
					n += src
				}
				return float64(n) / float64(time.Since(t))
			}
			b.Run(fmt.Sprintf("type=%v/isa=%s", l, name), func(b *testing.B) {
				var cache, memory, roofs []float64
				for b.Loop() {
					for at := 0; at < len(mem); at += 2 * slice {
						memory = append(memory, pack(mem[at:][:slice]))
						t := time.Now()
						n := loop.Run(mem[at+slice:][:slice])
						roofs = append(roofs, float64(n)/float64(time.Since(t)))
						for range 5 {
							cache = append(cache, pack(mem[:src]))
						}
					}
				}
				for _, v := range [][]float64{cache, memory, roofs} {
					slices.Sort(v)
				}
				b.ReportMetric(cache[len(cache)/2], "cache-GB/s")
				b.ReportMetric(memory[len(memory)/2], "memory-GB/s")
				b.ReportMetric(roofs[len(roofs)/2], "roof-GB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
