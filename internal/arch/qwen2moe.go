package arch

import "ck/internal/step"

// qwen2moe is qwen2 with experts, and a shared one behind a gate of its own (Qwen team 2024, arXiv:2407.10671).
func qwen2moe(b *builder) {
	b.sparse(b.attention(b.windows(), b.rotate(halves)), b.mixture(step.Softmax, false))
}
