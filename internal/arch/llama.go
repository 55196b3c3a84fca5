package arch

import "ck/internal/step"

// llama is the family of that name (Touvron et al. 2023, arXiv:2302.13971) and mistral, whose files say llama. Converters reorder the rows of
// queries and keys so that rotary pairs are neighbours. Biases are wherever the file has them, and so are experts: mixtral (Jiang et al. 2024,
// arXiv:2401.04088).
func llama(b *builder) {
	b.sparse(b.attention(b.windows(), b.rotate(neighbours)), b.mixture(step.Softmax, true))
}
