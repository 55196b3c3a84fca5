package arch

import "ck/internal/step"

// qwen3moe is qwen3 with experts (Qwen team 2025, arXiv:2505.09388).
func qwen3moe(b *builder) {
	b.sparse(b.attention(b.windows(), normHeads, b.rotate(halves)), b.mixture(step.Softmax, true))
}
