package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"ck/asm/attn"
	"ck/asm/dot"
	"ck/internal/isa"
	"ck/internal/quant"
)

// distances calls f for the kernels of all numbers of rows and returns the prefetch distances that they were told, of streaming kernels how much.
func distances(t *testing.T, tab *Table, qt quant.Type, s *Scratch) map[int]bool {
	f := *tab.Format(qt, false)
	seen := map[int]bool{}
	spy := func(k func(*dot.Args)) func(*dot.Args) {
		if k == nil {
			return nil
		}
		return func(a *dot.Args) { seen[a.Pf] = true; k(a) }
	}
	f.kernels.Unpack = spy(f.kernels.Unpack)
	if f.kernels.Streams {
		spy = func(k func(*dot.Args)) func(*dot.Args) {
			if k == nil {
				return nil
			}
			return func(a *dot.Args) { seen[max(0, int(uintptr(a.End)-uintptr(a.W)))+a.NextLen] = true; k(a) }
		}
	}
	f.kernels.Gemv = spy(f.kernels.Gemv)
	f.kernels.Small = slices.Clone(f.kernels.Small)
	for i, k := range f.kernels.Small {
		f.kernels.Small[i] = spy(k)
	}
	rng := rand.New(rand.NewPCG(1, uint64(qt)))
	const n, k = 3 * 64, 512
	w := randomWeights(t, rng, qt, n, k)
	panels := w.pack(t, &f)
	for _, rows := range []int{1, 3, 40} {
		x := make([][]float32, rows)
		for i := range x {
			x[i] = randRow(rng, k)
		}
		product(t, &f, s, w, panels, plainAct(t, f.Act, x), 1, nil, nil)
	}
	return seen
}

// Without prefetch no matmul kernel is told a distance; as usual all are.
func TestMatmulWithoutPrefetch(t *testing.T) {
	for _, tab := range tables(t) {
		for _, qt := range panelTypes {
			t.Run(fmt.Sprintf("%v/%v", tab.Tier, qt), func(t *testing.T) { // guarded memory is given back behind each
				if seen := distances(t, tab, qt, tab.NewScratch()); len(seen) == 0 || seen[0] {
					t.Errorf("distances %v", seen)
				}
				if seen := distances(t, tab, qt, tab.WithoutPrefetch().NewScratch()); len(seen) != 1 || !seen[0] {
					t.Errorf("without prefetch: distances %v", seen)
				}
			})
		}
	}
}

// Without prefetch attention kernels fetch what they read, and the outputs keep their bits.
func TestAttendWithoutPrefetch(t *testing.T) {
	for _, tier := range vectorTiers() {
		for _, typ := range kvTypes {
			f := kvFormat(t, tier, typ, 64, 64)
			elsewhere := 0
			spy := func(k func(*attn.Args), reads func(*attn.Args) unsafe.Pointer) func(*attn.Args) {
				if k == nil {
					return nil
				}
				return func(a *attn.Args) {
					if a.Pf != reads(a) {
						elsewhere++
					}
					k(a)
				}
			}
			keys, values := func(a *attn.Args) unsafe.Pointer { return a.K }, func(a *attn.Args) unsafe.Pointer { return a.V }
			for _, k := range []**attn.Kernels{&f.direct, &f.f32} {
				c := **k
				for i := range c.Scores {
					c.Scores[i], c.PV[i] = spy(c.Scores[i], keys), spy(c.PV[i], values)
				}
				c.DecodeK, c.DecodeV = spy(c.DecodeK, keys), spy(c.DecodeV, values)
				*k = &c
			}
			for _, rows := range []int{1, 30} {
				c := newCase(t, f, rand.New(rand.NewPCG(3, 4)), 200, rows, 2, false)
				c.causal(200, 0)
				tab := For(tier, isa.Detect())
				for _, without := range []bool{false, true} {
					name := fmt.Sprintf("%v %v, %d rows", tier, typ, rows)
					want := slices.Clone(c.O)
					if elsewhere = 0; without {
						tab = tab.WithoutPrefetch()
					}
					f.Attend(tab.NewAttnScratch(), &c.Attend)
					switch {
					case without && elsewhere != 0:
						t.Errorf("%s: %d kernels fetch something else", name, elsewhere)
					case !without && elsewhere == 0:
						t.Errorf("%s: nothing is fetched ahead", name)
					case without && !slices.Equal(want, c.O):
						t.Errorf("%s: other outputs without prefetch", name)
					}
				}
			}
		}
	}
}
