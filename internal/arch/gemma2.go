package arch

import (
	"ck/internal/step"
	"math"
)

// gemma2 is Gemma 2 (Gemma team 2024, arXiv:2408.00118): a scaled embedding, norms before and behind each block, a GELU gate, soft caps of
// scores and logits, and a window in every other layer, the first one among them.
func gemma2(b *builder) {
	windows, _ := b.windowsOf(b.window(4096, "that of gemma 2, whose first files do not say it"), func(layer int) bool { return layer%2 == 0 })
	att := b.attention(windows, b.rotate(halves))
	att.cap = b.float("attn_logit_softcapping")
	if scale, ok := b.given("attention.scale"); ok {
		att.scale = scale
	} else if b.layers == 46 { // the 27B model, whose files do not say it (llama.cpp, gemma2)
		att.scale = 1 / math.Sqrt(float64(b.hidden)/float64(b.heads))
	}
	x := b.embed(float32(math.Sqrt(float64(b.hidden))))
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.norm("post_attention_norm", l.attend(att, l.norm("attn_norm", x))))
		x = l.add("ffn_residual", x, l.norm("post_ffw_norm", l.gated(step.GELU, l.norm("ffn_norm", x))))
	}
	b.logits(x)
	b.capLogits(float32(b.float("final_logit_softcapping")))
}
