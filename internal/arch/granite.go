package arch

import (
	"math"

	"ck/internal/step"
)

// granite is IBM's Granite (Granite team 2024, "Granite 3.0 Language Models"), with experts or without: llama with factors of the embedding, of what
// blocks add, of the scores and of the logits.
func granite(b *builder) {
	a, m := b.attention(b.windows(), b.rotate(neighbours)), b.mixture(step.Softmax, true)
	if s, ok := b.given("attention.scale"); ok {
		a.scale = s
	}
	residual := float32(b.float("residual_scale"))
	x := b.embed(float32(b.float("embedding_scale")))
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.scaled("attn_scaled", residual, l.attend(a, l.norm("attn_norm", x))))
		x = l.add("ffn_residual", x, l.scaled("ffn_scaled", residual, l.mixedOrGated(m, l.norm("ffn_norm", x))))
	}
	b.logits(x)
	if s := b.float("logit_scale"); s != 1 {
		b.g.Logits = b.step(step.Scale{By: float32(1 / math.Max(s, 1e-30))}, "output_scaled", b.g.Vocab, []value{b.g.Logits})
	}
}

// scaled is by times x; x itself where by is 1.
func (l *layer) scaled(name string, by float32, x value) value {
	if by == 1 {
		return x
	}
	return l.step(step.Scale{By: by}, l.prefix+name, l.g.Width(x), []value{x})
}
