package arch

import "ck/internal/step"

// arcee is AFM 4.5B (Arcee AI 2025): llama with a feed-forward that has no gate, and squared ReLU in it.
func arcee(b *builder) {
	a := b.attention(b.windows(), b.rotate(neighbours))
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(a, l.norm("attn_norm", x)))
		up := l.linear("ffn_up", l.ffn, l.norm("ffn_norm", x))
		x = l.add("ffn_residual", x, l.back("ffn_down", 0, l.step(step.Activate{}, l.prefix+"ffn_act", l.ffn, []value{up})))
	}
	b.logits(x)
}
