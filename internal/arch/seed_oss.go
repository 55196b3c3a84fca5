package arch

import "ck/internal/step"

// seedOSS is Seed-OSS (ByteDance 2025): qwen2, whose second norm is called after the attention before it.
func seedOSS(b *builder) {
	a := b.attention(b.windows(), b.rotate(halves))
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(a, l.norm("attn_norm", x)))
		x = l.add("ffn_residual", x, l.gated(step.SiLU, l.norm("post_attention_norm", x)))
	}
	b.logits(x)
}
