package arch

import (
	"math"

	"ck/internal/step"
)

// gemma is Gemma (Gemma team 2024, arXiv:2403.08295): llama with a scaled embedding and a GELU gate.
func gemma(b *builder) {
	a := b.attention(b.windows(), b.rotate(halves))
	x := b.embed(float32(math.Sqrt(float64(b.hidden))))
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(a, l.norm("attn_norm", x)))
		x = l.add("ffn_residual", x, l.gated(step.GELU, l.norm("ffn_norm", x)))
	}
	b.logits(x)
}

// gemma3 is Gemma 3 (Gemma team 2025, arXiv:2503.19786): gemma 2 without caps, with norms of heads, and five layers with a window, whose rotary
// base is their own, for each one without.
func gemma3(b *builder) {
	windows, _ := b.windowsOf(b.window(1024, "that of gemma 3"), func(layer int) bool { return layer%6 != 5 })
	base, ok := b.given("rope.freq_base_swa")
	if !ok {
		base = 10000
		b.note("rope.freq_base_swa", "10000", "that of gemma 3, whose first files do not say it")
	}
	near, far := b.rotateBy(halves, b.plainRope(base, b.size("rope.dimension_count"))), b.rotate(halves)
	a := b.attention(windows, normHeads, func(l *layer, of string, x value) value {
		if windows[l.n] > 0 {
			return near(l, of, x)
		}
		return far(l, of, x)
	})
	if scale, ok := b.given("attention.scale"); ok {
		a.scale = scale
	} else if b.layers == 62 { // the 27B model, whose files do not say it (llama.cpp, gemma3)
		a.scale = 1 / math.Sqrt(float64(b.hidden)/float64(b.heads))
	}
	x := b.embed(float32(math.Sqrt(float64(b.hidden))))
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.norm("post_attention_norm", l.attend(a, l.norm("attn_norm", x))))
		x = l.add("ffn_residual", x, l.norm("post_ffw_norm", l.gated(step.GELU, l.norm("ffn_norm", x))))
	}
	b.logits(x)
	if c, ok := b.given("final_logit_softcapping"); ok {
		b.capLogits(float32(c))
	}
}
