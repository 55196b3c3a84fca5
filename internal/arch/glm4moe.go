package arch

import "ck/internal/step"

// glm4moe is GLM 4.5 to 4.7 (GLM team 2025, arXiv:2508.06471): a part of each head is rotated, large models normalise heads, the first layers have no
// experts, and the norm of the feed-forward is called after the attention before it.
func glm4moe(b *builder) {
	turns := []turn{b.rotate(halves)}
	if b.has("blk.0.attn_q_norm.weight") {
		turns = append([]turn{normHeads}, turns...)
	}
	a, m := b.attention(b.windows(), turns...), b.mixture(step.Sigmoid, false)
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(a, l.norm("attn_norm", x)))
		x = l.add("ffn_residual", x, l.mixedOrGated(m, l.norm("post_attention_norm", x)))
	}
	b.logits(x)
}
