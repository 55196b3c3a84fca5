package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"ck/internal/isa"
)

// Rows quantized side by side have the bytes that they have one by one, whatever the cut of K and rows.
func TestQuantizeRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, tier := range isa.Available(isa.Detect()) {
		tab := For(tier, isa.Detect())
		for _, kind := range []ActKind{ActBF16, ActQ8, ActQ8K} {
			for _, k := range []int{1, 31, 32, 95, 256, 300, 512, 800} {
				for _, rows := range []int{1, 2, 15, 16, 17, 50} {
					stride := k + rng.IntN(5)
					x := make([]float32, rows*stride)
					for i := range x {
						x[i] = float32(rng.NormFloat64() * 3)
					}
					one, many := make([]byte, ActBytes(kind, AllSums, rows, k)), make([]byte, ActBytes(kind, AllSums, rows, k))
					a, b := MakeAct(kind, AllSums, one, rows, k), MakeAct(kind, AllSums, many, rows, k)
					for m := range rows {
						tab.Quantize(&a, m, 0, k, x[m*stride:][:k])
					}
					m0 := rng.IntN(rows + 1)
					for _, r := range [][2]int{{0, m0}, {m0, rows}} {
						for k0 := 0; k0 < k; k0 += 256 {
							tab.QuantizeRows(&b, r[0], r[1], k0, min(k0+256, k), x[r[0]*stride:], stride)
						}
					}
					if !bytes.Equal(one, many) {
						t.Fatalf("tier %s, %s, %d rows of %d: other bytes side by side", tier, kind, rows, k)
					}
				}
			}
		}
	}
}

func TestActRows(t *testing.T) {
	last := 0
	for m := range 3000 {
		n := ActRows(m)
		if n < m || n > m+31 || n < last || m >= 64 && n/16%2 == 0 {
			t.Fatalf("ActRows(%d) = %d", m, n)
		}
		last = n
	}
}

// Copied rows have the bytes of rows that are quantized where they are copied to.
func TestCopyRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	tab := For(isa.Best(isa.Detect()), isa.Detect())
	const rows, used = 9, 3
	for _, kind := range []ActKind{ActBF16, ActQ8, ActQ8K} {
		for _, k := range []int{32, 95, 256, 800} {
			x := make([]float32, rows*k)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			src, got, want := make([]byte, ActBytes(kind, AllSums, rows, k)), make([]byte, ActBytes(kind, AllSums, rows*used, k)), make([]byte, ActBytes(kind, AllSums, rows*used, k))
			s, g, w := MakeAct(kind, AllSums, src, rows, k), MakeAct(kind, AllSums, got, rows*used, k), MakeAct(kind, AllSums, want, rows*used, k)
			tab.QuantizeRows(&s, 0, rows, 0, k, x, k)
			from := make([]int32, rows*used)
			for i, p := range rng.Perm(rows * used) {
				from[i] = int32(p)
				tab.Quantize(&w, i, 0, k, x[p/used*k:][:k])
			}
			cut := rng.IntN(rows * used)
			g.CopyRows(0, cut, &s, from, used)
			g.CopyRows(cut, rows*used, &s, from, used)
			if !bytes.Equal(got, want) {
				t.Fatalf("%s of %d: other bytes", kind, k)
			}
		}
	}
}
