package arch

import "ck/internal/step"

// exaone4 is EXAONE 4 (LG AI Research 2025, arXiv:2507.11407): blocks read the residual stream as it is, and their results are normalised; so is each
// head of queries and keys. Where layers have a window, three of four, the others rotate nothing.
func exaone4(b *builder) {
	windows, turn := make([]int, b.layers), b.rotate(halves)
	if w := b.size("attention.sliding_window"); w > 0 {
		windows, _ = b.windowsOf(w, func(layer int) bool { return layer%4 != 3 })
		turn = onlyWindowed(windows, turn)
	}
	a := b.attention(windows, normHeads, turn)
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.norm("post_attention_norm", l.attend(a, x)))
		x = l.add("ffn_residual", x, l.norm("post_ffw_norm", l.gated(step.SiLU, x)))
	}
	b.logits(x)
}
