package arch

import "ck/internal/step"

// olmoe is llama with norms of whole queries and keys, and experts whose weights do not add up to 1 (Muennighoff et al. 2024, arXiv:2409.02060).
func olmoe(b *builder) {
	b.sparse(b.attention(b.windows(), normWhole, b.rotate(halves)), b.mixture(step.Softmax, false))
}
