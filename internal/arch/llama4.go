package arch

import (
	"fmt"

	"ck/internal/step"
)

// What the files of Llama 4 do not say: positions of a stretch of attention, and of a step of the temperature, whose factor is.
const (
	llama4Chunk = 8192
	llama4Beta  = 0.1
)

// llama4 is Llama 4 (Meta 2025): of four layers three rotate, normalise heads without a weight, and see their own stretch of positions alone; the
// fourth rotates nothing, sees all, and has queries that grow with the position. The weights of experts multiply what goes into them.
func llama4(b *builder) {
	w, given := b.given("attention.sliding_window")
	everywhere := given && w == 0 // smaller relatives: no stretches, and all layers rotate
	far := func(layer int) bool { return !everywhere && layer%4 == 3 }
	windows := make([]int, b.layers)
	for l := range windows {
		if !everywhere && !far(l) {
			windows[l] = llama4Chunk
		}
	}
	rotate, all := b.rotate(neighbours), b.size("expert_count")
	a := b.attention(windows, func(l *layer, of string, x value) value {
		switch {
		case far(l.n) && of == "q":
			return l.step(step.Temper{Beta: llama4Beta, Length: llama4Chunk, Offset: 1}, l.prefix+"attn_temper", l.g.Width(x), []value{x})
		case far(l.n):
			return x
		}
		x = rotate(l, of, x)
		if all == 128 { // Maverick has no norms; no key says so (llama.cpp, llama4)
			return x
		}
		return l.step(step.Norm{Eps: l.eps, Group: l.headK}, l.prefix+"attn_"+of+"_norm", l.g.Width(x), []value{x})
	})
	a.chunked = true
	if every, ok := b.given("interleave_moe_layer_step"); ok {
		for l := range b.layers {
			if has := b.has(fmt.Sprintf("blk.%d.ffn_gate_inp.weight", l)); has != (every > 0 && (l+1)%int(every) == 0) {
				b.fail(b.bad("interleave_moe_layer_step", "is %.0f, but the tensors of layer %d say otherwise", every, l))
			}
		}
	}
	m := b.mixture(step.Sigmoid, false)
	m.first = true
	b.sparse(a, m)
}
