package arch

import "ck/internal/step"

// minimaxM2 is MiniMax M2 (MiniMax 2025, "MiniMax-M2"): norms of whole queries and keys, half of each head is rotated, experts in every layer.
func minimaxM2(b *builder) {
	b.sparse(b.attention(b.windows(), normWhole, b.rotate(halves)), b.mixture(step.Sigmoid, true))
}
