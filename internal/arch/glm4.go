package arch

import "ck/internal/step"

// glm4 is GLM 4 of 9 and 32 billion weights (GLM team 2024, arXiv:2406.12793): norms before and behind each block, a part of each head is rotated, gate
// and up are one matrix.
func glm4(b *builder) {
	a := b.attention(b.windows(), b.rotate(neighbours))
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.norm("post_attention_norm", l.attend(a, l.norm("attn_norm", x))))
		x = l.add("ffn_residual", x, l.norm("post_ffw_norm", l.fusedGate(step.SiLU, l.norm("ffn_norm", x))))
	}
	b.logits(x)
}

// fusedGate is gated with a matrix ffn_up whose rows are the gate's, then up's.
func (l *layer) fusedGate(act step.Activation, x value) value {
	gate, up := l.linearPart("ffn_up", 0, 2*l.ffn, "ffn_gate", l.ffn, x), l.linearPart("ffn_up", l.ffn, 2*l.ffn, "ffn_up", l.ffn, x)
	return l.back("ffn_down", 0, l.step(step.GLU{Act: act}, l.prefix+"ffn_act", l.ffn, []value{gate, up}))
}
