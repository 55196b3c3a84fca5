package arch

import "ck/internal/step"

// gptOSS is gpt-oss (OpenAI 2025, arXiv:2508.10925): biases everywhere, a sink for each head, a window in every other layer, the first one among
// them, and experts with a clamped gate in every layer.
func gptOSS(b *builder) {
	windows, _ := b.windowsOf(b.window(128, "that of gpt-oss"), func(layer int) bool { return layer%2 == 0 })
	a, m := b.attention(windows, b.rotate(halves)), b.mixture(step.SoftmaxChosen, false)
	a.sinks, m.act = true, step.Clamped
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(a, l.norm("attn_norm", x)))
		x = l.add("ffn_residual", x, l.mixed(m, l.norm("post_attention_norm", x)))
	}
	b.logits(x)
}
