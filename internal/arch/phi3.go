package arch

import "ck/internal/step"

// phi3 is Phi 3 and 4 (Microsoft 2024, arXiv:2404.14219): llama with queries, keys and values in one matrix, gate and up in another.
func phi3(b *builder) {
	windows := make([]int, b.layers)
	if w, ok := b.given("attention.sliding_window"); ok {
		for l := range windows {
			windows[l] = int(w)
		}
	}
	a := b.attention(windows, b.rotate(halves))
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(a, l.norm("attn_norm", x)))
		x = l.add("ffn_residual", x, l.fusedGate(step.SiLU, l.norm("ffn_norm", x)))
	}
	b.logits(x)
}
