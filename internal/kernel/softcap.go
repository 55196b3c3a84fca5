package kernel

import (
	"math"
	"unsafe"

	"ck/asm/attn"
)

// capTile is the number of elements that a call of the kernel takes.
const capTile = attn.MaxTile * BlockKeys

// Softcap is x[i] = c * tanh(x[i]/c), with an absolute error below c*2^-21. What is not finite becomes NaN: tanh would hide it.
func (t *AttnTable) Softcap(s *AttnScratch, x []float32, c float32) {
	if len(s.s) < capTile {
		s.s = aligned(capTile)
	}
	k := &s.args
	*k = attn.Args{}
	k.S, k.CapIn, k.CapOut = unsafe.Pointer(&s.s[0]), float32(-2*math.Log2E/float64(c)), c
	run := attn.For(t.w, attn.F32).Cap
	for len(x) > 0 {
		n := min(len(x), capTile)
		copy(s.s, x[:n])
		k.M = (n + BlockKeys - 1) / BlockKeys
		clear(s.s[n : k.M*BlockKeys])
		run(k)
		for i, v := range s.s[:n] {
			if x[i]-x[i] == 0 {
				x[i] = v
			} else {
				x[i] = float32(math.NaN())
			}
		}
		x = x[n:]
	}
}

// capScores bounds the plain scores of the tile in s.args, keeping those that are not finite visible as NaN.
func (s *AttnScratch) capScores() {
	k := &s.args
	scores := s.s[:k.M*BlockKeys]
	var bad [attn.MaxTile]uint64 // bit j of entry m: score j of query m is not finite
	any := uint64(0)
	for i, x := range scores {
		if x-x != 0 {
			bad[i/BlockKeys] |= 1 << (i % BlockKeys)
			any = 1
		}
	}
	s.k.Cap(k)
	if any == 0 {
		return
	}
	for i := range scores {
		if bad[i/BlockKeys]>>(i%BlockKeys)&1 != 0 {
			scores[i] = float32(math.NaN())
		}
	}
}
