package arch

import "ck/internal/step"

// olmo2 is OLMo 2 (arXiv:2501.00656), and OLMo 3, whose files say olmo2: blocks read the residual stream as it is, and their results are
// normalised before they are added; queries and keys are normalised over all heads together. Layers with a window have rotary positions without
// scaling.
func olmo2(b *builder) {
	windows := b.windows()
	att := b.attention(windows, normWhole, b.rotateByWindow(halves, windows))
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.norm("post_attention_norm", l.attend(att, x)))
		x = l.add("ffn_residual", x, l.norm("post_ffw_norm", l.gated(step.SiLU, x)))
	}
	b.logits(x)
}
